"""Commands play programs as games, and no file starts a program that the user has not named."""

from __future__ import annotations

import gc
import os
import pickle
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main
from entity_env.errors import UsageError, WorkerError
from entity_env.vec import VecEnv
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
    assert game.source == pickle.loads(pickle.dumps(game)).source == "dots.toml"


@pytest.mark.parametrize("changed", ["rules/dots.py", "dots.toml"])
def test_a_replay_starts_the_program_of_a_file_while_both_are_unchanged(
    changed: str, folder: Path
) -> None:
    (folder / "rules").mkdir()
    (folder / "dots.py").rename(folder / "rules" / "dots.py")
    (folder / "dots.toml").write_text(
        f'command = ["{sys.executable}", "-S", "dots.py"]\nfolder = "rules"\n'
    )
    assert run("record", "dots.toml", "--out", "a.replay").exit_code == 0
    assert "same, 3 decisions" in run("verify", "a.replay").output
    with (folder / changed).open("a") as file:
        file.write("# another game\n")
    refused = run("verify", "a.replay")
    assert "dots.toml, which you have not named here before or which has changed" in refused.output
    assert "same, 3 decisions" in run("verify", "a.replay", "--game", "dots.toml").output


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("command = 3", "command must be a text or a list of texts, got 3"),
        ("folder = '.'", "has no command, or also an address; a game's file has the keys"),
        ("command = 'x'\naddress = 'tcp:127.0.0.1:1'", "has no command, or also an address"),
        ("command = 'x \"'", "cannot be split: No closing quotation"),
        ("command = ''", "command must be a text or a list of texts, got ''"),
        ("address = 3", "folder and address must be texts"),
        ("address = 'tcp:10.0.0.1:5005'", "is unix:PATH or tcp:127.0.0.1:PORT, got 'tcp:10.0"),
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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_program_may_be_started_by_somebody_else(kind: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"unix:{tmp_path / 's'}" if kind == "unix" else f"tcp:127.0.0.1:{port}"
    environment = {**os.environ, "ENTITY_ENV_ADDRESS": address}
    environment.pop("ENTITY_ENV_TOKEN", None)
    is_done = threading.Event()

    def serve() -> None:
        """Starts the program again whenever it has exited."""
        while not is_done.wait(0.01):
            command = [sys.executable, "-S", "dots.py"]
            subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        game = f"listen:{address}"
        assert "no violation" in run("check", game).output
        assert run("record", game, "--out", "a.replay").exit_code == 0
        with VecEnv(ExternalGame(address=address), 4, num_workers=2) as vec:
            assert len(vec.reset()) == 4
            moves = np.zeros(4, dtype=np.int64)
            assert vec.act({"Move": moves}).reward.tolist() == [1.0] * 4
        assert "same, 3 decisions" in run("verify", "a.replay", "--game", dots()).output
        assert not (tmp_path / "s").exists()
    finally:
        is_done.set()
        for thread in threads:
            thread.join()


def test_waiting_has_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = "entity_env.vec.external.program"
    monkeypatch.setattr(f"{module}.WAIT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(f"{module}._QUIET_S", 0.05)
    with pytest.raises(WorkerError, match=r"no program connected to unix:.* within 0.1 s"):
        ExternalGame(address=f"unix:{tmp_path / 's'}")
    (tmp_path / "s").write_text("mine")
    monkeypatch.setattr(f"{module}.START_TIMEOUT_S", 0.01)
    with pytest.raises(UsageError, match=r"cannot wait for a program at unix:.*in use"):
        ExternalGame(address=f"unix:{tmp_path / 's'}")
    assert (tmp_path / "s").read_text() == "mine"
    with pytest.raises(UsageError, match="needs either a command to run, or an address"):
        ExternalGame()
