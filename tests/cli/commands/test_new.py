"""Games of installed packages, by entry point, and `entity-env new`."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entity_env.agents import RandomAgent
from entity_env.check import check_game
from entity_env.cli import main
from entity_env.cli.load_game import game_code, installed_games, load_game
from entity_env.errors import UsageError
from entity_env.games import GAMES
from entity_env.replay import Replay
from tests import ROOT

GAME = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

@dataclass
class Me:
    x: int

class Step(Enum):
    LEFT = -1
    RIGHT = 1

def play(agent, *, seed, goal: int = 3):
    '''Walk to the goal.'''
    me = Me(0)
    while abs(me.x) < goal:
        step = agent.act(Obs().entities([me]), Step)
        if step is None:
            return
        me.x += step.value
    agent.game_over(Obs(me.x))

walk = Game(play, entities=(Me,), actions=(Step,), name="walk")
"""
Install = Callable[..., None]


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args, env={"COLUMNS": "100"})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with a game, in the layout of pip."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    modules = set(sys.modules)

    def add(
        package: str, text: str | None = GAME, *, name: str = "walk", version: str = "1.2"
    ) -> None:
        monkeypatch.delitem(sys.modules, package, raising=False)  # loaded by another test
        site = tmp_path / "site"
        info = site / f"{package}-{version}.dist-info"
        info.mkdir(parents=True)
        module = package if text is None else f"{package}.game"
        if text is None:
            (site / f"{package}.py").write_text(GAME)
        else:
            (site / package).mkdir()
            (site / package / "__init__.py").touch()
            (site / package / "game.py").write_text(text)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        points = f"[entity_env.games]\n{name} = {module}:walk\n"
        (info / "entry_points.txt").write_text(points)
        installed_games.cache_clear()
        importlib.invalidate_caches()  # the folder may have been cached within this second

    yield add
    installed_games.cache_clear()
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def test_an_installed_game_is_used_by_its_name(install: Install, tmp_path: Path) -> None:
    install("walks")
    assert game_code("walk") == "walks.game"
    game = load_game("walk", ["goal=2"])
    assert [abs(each.reward) for each in game.run(RandomAgent(1))] == [2]
    replay = str(tmp_path / "w.replay")
    assert run("record", "walk", "--agent", "random", "--out", replay).exit_code == 0
    result = run("verify", replay)
    assert result.stderr == ""
    assert result.exit_code == 0
    assert "did you mean walk?" in run("play", "wlak").stderr


def test_a_package_may_be_a_single_module(install: Install, tmp_path: Path) -> None:
    install("paces", None)
    replay = str(tmp_path / "p.replay")
    assert run("record", "walk", "--agent", "random", "--out", replay).exit_code == 0
    assert Replay.load(replay).header.source == "paces:walk"
    result = run("verify", replay)
    assert (result.stderr, result.exit_code) == ("", 0)


def test_the_list_says_which_package_a_game_is_of(install: Install) -> None:
    install("walks")
    lines = run("games").stdout.splitlines()
    at = lines.index("walks 1.2")
    assert lines[0].startswith("entity-env ")
    assert lines[at + 2].split() == ["walk", "1", "goal=3", "Walk", "to", "the", "goal."]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nowhere", "No module named 'nowhere'"),
        ("walk = 1", "holds no game"),
        ("def (", "line 1: invalid syntax"),
        ("raise SystemExit(3)", "ends the program when it is loaded"),
        (GAME.replace('name="walk"', 'players="nowhere:x"'), "No module named 'nowhere'"),
        (GAME.replace('name="walk"', 'players=f"{__name__}:walk"'), "an instance of GameAgents"),
    ],
)
def test_a_broken_game_is_one_line_and_breaks_no_other(
    install: Install, text: str, why: str
) -> None:
    install("broken", text, name="broken")
    install("walks")
    result = run("games")
    assert result.exit_code == 0
    assert "walks 1.2" in result.stdout
    [line] = result.stderr.splitlines()
    assert line.startswith("broken of broken 1.2 cannot be loaded: ")
    assert why in line
    assert load_game("walk").name == "walk"


def test_games_of_one_name_are_all_told_and_named_by_module(install: Install) -> None:
    install("walks")
    install("strolls", version="2.0")
    lines = run("games").stderr.splitlines()
    assert lines == [
        "walk of strolls 2.0 has the name of walks.game:walk: use strolls.game:walk",
        "walk of walks 1.2 has the name of strolls.game:walk: use walks.game:walk",
    ]
    with pytest.raises(UsageError, match=r"several packages have a game 'walk'.*strolls.game:walk"):
        load_game("walk")
    assert load_game("strolls.game:walk").name == "walk"


def test_a_package_does_not_take_the_name_of_our_games(install: Install) -> None:
    install("walks", name="snake")
    [line] = run("games").stderr.splitlines()
    assert line.startswith("snake of walks 1.2 has the name of a game of entity-env")
    assert load_game("snake") is not GAMES["snake"]
    assert load_game("snake").play is GAMES["snake"].play


# ------------------------------------------------------------------ entity-env new


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_new_package_keeps_the_contract_and_passes_its_tests(here: Path) -> None:
    assert run("new", "robots").exit_code == 0
    check_game(load_game("robots/src/robots/game.py"), new_process=False)
    path = os.pathsep.join(("robots/src", str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "robots"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout.splitlines()[-1].split()[:2]) == (0, ["2", "passed"])


@pytest.mark.parametrize(
    "name",
    ["9x", "a b", "../x", "a-b", "", "X", "for", "json", "snake", "gymnasium", "tests", "a" * 41],
)
def test_a_name_that_cannot_be_is_one_line(here: Path, name: str) -> None:
    result = run("new", name)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert list(here.iterdir()) == []


def test_nothing_that_is_there_is_touched(here: Path) -> None:
    (here / "robots").mkdir()
    (here / "ants").write_text("mine")
    (here / "bees").symlink_to("nowhere")
    for name in ("robots", "ants", "bees"):
        result = run("new", name)
        assert (result.exit_code, "already exists" in result.stderr) == (2, True)
    assert list((here / "robots").iterdir()) == []
    assert (here / "ants").read_text() == "mine"


def test_a_disk_that_is_full_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    result = run("new", "robots")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert list(here.iterdir()) == []
