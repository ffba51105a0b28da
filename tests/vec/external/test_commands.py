"""Commands play programs as games, and no file starts a program that the user has not named."""

from __future__ import annotations

import gc
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main
from entity_env.vec.external.game import ExternalGame

LIAR = Path(__file__).with_name("liar.py")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder with the program, and a user who has named nothing."""
    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    home = tmp_path / "games"
    home.mkdir()
    (home / "dots.py").write_text(LIAR.read_text())
    monkeypatch.chdir(home)
    yield home
    gc.collect()  # a command is a process, whose end would end the programs of its games


def dots() -> str:
    return f"exec:{shlex.quote(sys.executable)} -S dots.py"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_a_program_is_played_checked_recorded_and_verified() -> None:
    played = run("play", dots(), "--agent", "random", "--no-render", "--episodes", "2")
    assert "2: reward 1, 3 steps" in played.output, played.output
    assert "no violation" in run("check", dots()).output
    assert run("record", dots(), "--out", "a.replay").exit_code == 0
    assert "same, 3 decisions" in run("verify", "a.replay").output


def test_a_replay_does_not_start_a_program_that_was_not_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("record", dots(), "--out", "a.replay").exit_code == 0
    trap = folder / "started"
    changed = LIAR.read_text() + f"\nopen({str(trap)!r}, 'w')\n"
    (folder / "dots.py").write_text(changed)  # the same words, another program
    refused = run("verify", "a.replay")
    assert refused.exit_code != 0
    assert not trap.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "dots.py").write_text(changed)
    (tmp_path / "other" / "a.replay").write_bytes((folder / "a.replay").read_bytes())
    monkeypatch.chdir(tmp_path / "other")
    assert run("verify", "a.replay").exit_code != 0
    assert not trap.exists()


def test_a_file_names_a_program(folder: Path) -> None:
    (folder / "dots.toml").write_text(
        f'command = ["{sys.executable}", "-S", "dots.py"]\nlink = "stdio"\n'
    )
    assert "no violation" in run("check", "dots.toml").output
    game = ExternalGame.named(str(folder / "dots.toml"))
    assert game.link == "stdio"
    assert game.folder == folder


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("command = 3", "command must be a text or a list of texts, got 3"),
        ("folder = '.'", "has no command; a game's file has the keys command, folder"),
        ("command = 'x'\ncolor = 1", "has an unknown key 'color'"),
        ("command = ", "is not TOML"),
    ],
)
def test_a_file_with_an_error(text: str, line: str, folder: Path) -> None:
    (folder / "dots.toml").write_text(text)
    result = run("check", "dots.toml")
    assert result.exit_code != 0
    assert line in result.output
    assert "Traceback" not in result.output


def test_a_violation_is_one_line() -> None:
    result = run("check", f"{dots()} nan")
    assert result.exit_code != 0
    assert "message 2 (STEP): the features of 'Dot' must be finite" in result.output.replace(
        "message 3", "message 2"
    )
