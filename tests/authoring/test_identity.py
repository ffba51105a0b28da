"""A game is identified by the digest of its source, its version, its package and its commit."""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from entity_env import Game
from entity_env.authoring.identity import changed_rules, identity_of
from entity_env.authoring.load_module import load_module
from entity_env.core.files import code_digest
from entity_env.errors import UsageError
from entity_env.games import multi_snake, snake

SOURCE = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Categorical, Game
@dataclass
class Dot:
    x: int
class Move(Enum):
    LEFT = 0
def play(agent, *, seed):
    pass
dots = Game(play, entities=[Dot], actions=[Categorical(Move)], name="dots", version="2b")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    return tmp_path


def game_of(path: Path, name: str = "dots") -> Game:
    found: Game = vars(load_module(path))[name]
    return found


def test_a_file_has_the_digest_that_sha256sum_prints(here: Path) -> None:
    path = here / "identified_alone.py"
    path.write_text(SOURCE)
    assert identity_of(game_of(path)) == {
        "source": "identified_alone.py:dots",
        "version": "2b",
        "sha256": hashlib.sha256(SOURCE.encode()).hexdigest(),
    }


def test_a_package_counts_with_all_its_python_files(here: Path) -> None:
    package = here / "identified_package"
    package.mkdir()
    for name, text in (("__init__.py", ""), ("game.py", SOURCE), ("board.py", "SIZE = 1")):
        (package / name).write_text(text)
    game = game_of(package / "game.py")
    before = identity_of(game)
    (package / "notes.txt").write_text("new")
    assert identity_of(game) == before
    (package / "board.py").write_text("SIZE = 2")
    assert identity_of(game)["sha256"] != before["sha256"]


def test_a_game_of_this_package_counts_without_the_other_games() -> None:
    found = identity_of(snake)
    path = Path(inspect.getfile(snake.play))
    assert found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert str(found["package"]).startswith("entity-env ")
    assert found["source"] == "entity_env.games.snake:snake"


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(("git", "-C", str(folder), *identity, *words), check=True, capture_output=True)


def test_the_commit_is_that_of_a_repository_which_has_the_file(here: Path) -> None:
    path = here / "identified_in_git.py"
    path.write_text(SOURCE)
    game = game_of(path)
    git(here, "init")
    assert "git" not in identity_of(game)  # not under version control
    git(here, "add", path.name)
    git(here, "commit", "-m", "one")
    clean = str(identity_of(game)["git"])
    path.write_text(f"{SOURCE}\n")
    assert identity_of(game)["git"] == f"{clean}-dirty"


@pytest.mark.parametrize("path", ["", "fails"])
def test_without_git_the_commit_is_left_out(
    here: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    program = here / "fails" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(here / path) if path else "")
    assert "git" not in identity_of(snake)


@pytest.mark.parametrize("version", ["", "a\nb", "x" * 65, True, 1.5, b"1"])
def test_a_version_is_a_number_or_a_line(version: str) -> None:
    with pytest.raises(UsageError, match="version must be an integer or a line of 1 to 64"):
        Game(snake.play, entities=[], actions=[], version=version)


def test_a_version_stays_with_other_settings() -> None:
    game = Game(snake.play, entities=[], actions=[], version=3)
    assert game.with_settings(board_size=6).version == 3
    assert identity_of(game)["version"] == 3


def same(_: dict[str, str | int]) -> None:
    """A decorator without effect."""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (same, ""),
        (lambda found: found.update(sha256="f" * 64), "source digest 0000"),
        (lambda found: found.update(version=2), "version 1, now 2"),
        (lambda found: found.update(package="a 2"), ""),
        (lambda found: found.update(git="b"), ""),
        (lambda found: found.update(source="elsewhere.py:dots"), ""),
        (lambda found: found.pop("sha256"), ""),
        (lambda found: found.update(sha256="f" * 64, git="b"), "a-dirty, now b"),
    ],
)
def test_rules_have_changed_with_the_source_or_the_version(
    change: Callable[[dict[str, str | int]], object], words: str
) -> None:
    before: dict[str, str | int] = {
        **{"source": "dots.py:dots", "sha256": "0" * 64, "version": 1},
        **{"package": "a 1", "git": "a-dirty"},
    }
    now = dict(before)
    change(now)
    found = changed_rules(before, now)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("before", [None, [], "x", {}, {"sha256": None}, {"sha256": [[]]}])
def test_what_a_file_says_is_not_trusted(before: object) -> None:
    assert "\n" not in changed_rules(before, {"sha256": "0" * 64})
    assert len(changed_rules({"sha256": "x\n" * 10**6}, {"sha256": "0" * 64})) < 100


def test_code_of_batch_environments_counts(here: Path) -> None:
    """The module of `training`, and the folder of a game of this package."""
    (here / "identified_fast.py").write_text("x = 1\n")
    text = SOURCE.replace("Game(play,", 'Game(play, training="identified_fast:x",')
    (here / "identified_slow.py").write_text(text)
    game = game_of(here / "identified_slow.py")
    before = identity_of(game)["sha256"]
    (here / "identified_fast.py").write_text("x = 2\n")
    assert identity_of(game)["sha256"] != before
    file = Path(inspect.getfile(multi_snake.play))
    assert identity_of(multi_snake)["sha256"] != code_digest(file)
