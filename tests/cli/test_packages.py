"""Games in packages, in all commands and processes that run them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from click.testing import CliRunner

from entity_env import UsageError
from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.folder import Header, write_checkpoint
from entity_env.cli import main
from entity_env.cli.load_game import load_game
from entity_env.cli.training import load_callback
from entity_env.cluster.session import Portable
from entity_env.games import snake
from entity_env.replay import record, verify_in_new_process
from entity_env.vec import VecEnv
from entity_env.views import find_look

UNITS = """
from dataclasses import dataclass
from enum import Enum

class Move(Enum):
    LEFT = -1
    RIGHT = 1

class Mode(Enum):
    EASY = 0
    HARD = 1

@dataclass
class Me:
    x: int
"""
GAME = """
from entity_env import Game, Obs
{imports}

def play(agent, *, seed, mode: Mode = Mode.EASY, size: int = 3):
    me = Me(seed % size)
    for i in range(size + mode.value):
        move = agent.act(Obs(i).entities([me]), Move)
        if move is None:
            return
        me.x += move.value
    agent.game_over(Obs(size))

g = Game(play, entities=(Me,), actions=(Move,), name="walk")
"""
FILES = {
    "game": "from .units import Me, Mode, Move",
    "absolute": "from walks.units import Me, Mode, Move",
    "sibling": "from units import Me, Mode, Move",
}
"""Ways to import a module next to a game."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes a current folder with a package, and a game named like a standard module."""
    path, modules = sys.path.copy(), sys.modules.copy()
    (tmp_path / "walks").mkdir()
    (tmp_path / "walks" / "__init__.py").write_text("from .game import g\n")
    (tmp_path / "walks" / "units.py").write_text(UNITS)
    for name, imports in FILES.items():
        (tmp_path / "walks" / f"{name}.py").write_text(GAME.format(imports=imports))
    (tmp_path / "random.py").write_text(GAME.format(imports=UNITS))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            if name in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(sys.modules[name])
            del sys.modules[name]


NAMES = ["walks/game.py", "walks/game.py:g", "walks/absolute.py", "walks/sibling.py"]
NAMES += ["walks", "walks:g", "./walks", "walks.game", "walks.game:g", "random.py"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_played(project: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["play", name, "--no-render", "--set", "mode=HARD"])
    assert result.exit_code == 0, result.output
    assert "reward 3, 4 steps, over" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_run_it(project: Path, method: str) -> None:
    for name in ("walks/game.py", "random.py"):
        game = load_game(name, ["mode=HARD"])
        with VecEnv(game, 2, 1, seed=1, start_method=method) as vec:
            obs = vec.reset()
            obs = vec.act(random_actions(obs, vec.action_space(), np.random.default_rng(1)))
        assert obs.features["Me"].lengths.tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["walks/absolute.py", "walks:g", "random.py"])
def test_another_process_plays_it_again(project: Path, name: str) -> None:
    """Also with settings whose classes are defined in the game's module."""
    game = load_game(name, ["mode=HARD"])
    assert verify_in_new_process(game, [record(game, RandomAgent(seed=1))]) == [None]
    assert CliRunner().invoke(main, ["check", name, "--episodes", "1"]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["walks/game.py", "walks.absolute:g", "walks", "random.py"])
def test_a_replay_finds_it_below_the_current_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In the folders of the project and of the package."""
    out = str(project / "walk.replay")
    assert CliRunner().invoke(main, ["record", name, "--out", out]).exit_code == 0
    folders = [project, project / "walks"] if name != "random.py" else [project]
    for folder in folders:
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(main, ["verify", out])
        assert "same, 3 decisions" in result.output
    monkeypatch.chdir("/")
    assert "which is not here: add --game" in CliRunner().invoke(main, ["verify", out]).stderr


def test_a_process_of_a_cluster_runs_it(project: Path) -> None:
    """It gets this process's path and current folder, as sent by sweeps and learners."""
    data = pickle.dumps(Portable(load_game("walks/game.py", ["size=5"])))
    play = (
        "import pickle, sys; from entity_env.agents import RandomAgent; "
        "game = pickle.load(sys.stdin.buffer).value; print(game.run(RandomAgent(seed=1))[0].reward)"
    )
    done = subprocess.run([sys.executable, "-c", play], input=data, capture_output=True, cwd="/")
    assert done.stdout.split() == [b"5"], done.stderr


def test_bots_looks_and_callbacks_of_the_package_see_its_classes(project: Path) -> None:
    walks = project / "walks"
    (walks / "bots.py").write_text(
        "from entity_env.agents import ScriptedAgent\nfrom .units import Me, Move\n"
        "class Left(ScriptedAgent):\n    def choose(self, obs, *actions):\n"
        "        assert isinstance(obs.of_class(Me)[0], Me)\n        return Move.LEFT\n"
    )
    (walks / "game_look.py").write_text(
        "from entity_env.views import Look, Style\nfrom .units import Me\n"
        "look = Look(styles={Me: Style('square')})\n"
    )
    (walks / "stops.py").write_text(
        "from entity_env.agents.ppo import Callback\nfrom .units import Me\n"
        "class Stop(Callback): ...\n"
    )
    (walks / "wrong.py").write_text("from .unist import Me\n")
    game = load_game("walks/game.py")
    command = ["play", "walks/game.py", "--no-render", "--agent", "walks/bots.py:Left"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    for name in (None, "walks/game_look.py", "walks.game_look"):
        assert list(find_look(game, name).styles) == list(game.schema.index_of)
    assert load_callback("walks/stops.py:Stop").__module__ == "walks.stops"
    for load, name in ((load_callback, "walks/wrong.py:Stop"), (load_game, "walks/wrong.py")):
        with pytest.raises(UsageError, match=r"walks/wrong.py: .*'walks\.unist' .*; looked in"):
            load(name)
    with pytest.raises(UsageError, match=r"walks/wrong.py, line 1: .*'walks\.unist'; looked in"):
        find_look(game, "walks/wrong.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "walks.gaem:g",
            "no game 'walks.gaem:g': there is no module 'walks.gaem' in {folder}, nor",
        ),
        (
            "wlaks:g",
            "no game 'wlaks:g': there is no module 'wlaks' in {folder}, nor in an installed",
        ),
        ("walks:h", "walks holds no game 'h'; it has g"),
        ("walks.units", "walks.units holds no game: make one at its top level"),
        (
            "empty",
            "empty holds no game: import one there, or give its file or module: empty/inside.py",
        ),
        ("empty:g", "empty holds no game: import one there, or give"),
        ("runs/x", "runs/x holds a trained agent, not a game: name the game, then --agent runs/x"),
        ("runs", "runs is a folder without __init__.py, so it is not a package: name a file in it"),
        ("faulty.game", "faulty/__init__.py, line 2: "),
        ("faulty/game.py", "faulty/__init__.py, line 2: "),
        ("relative.py", "relative.py: attempted relative import with no known parent package "),
        (
            "relative.py",
            "({folder}/relative.py:1 in <module>); {folder} is not a package: give it an",
        ),
    ],
)
def test_says_what_is_missing_and_where_it_was_looked_for(
    project: Path, name: str, message: str
) -> None:
    for package in ("empty", "faulty"):
        (project / package).mkdir(parents=True)
    (project / "empty" / "__init__.py").write_text("")
    (project / "empty" / "inside.py").write_text("")
    (project / "faulty" / "__init__.py").write_text("x = 1\ndef play(:\n")
    (project / "faulty" / "game.py").write_text("")
    (project / "relative.py").write_text("from .units import Me\n")
    header = Header(snake.obs_space(), snake.action_space(), RogueNetConfig(), {})
    write_checkpoint(project / "runs" / "x" / "checkpoint", header, {"model.safetensors": b""})
    with pytest.raises(UsageError) as error:
        load_game(name)
    assert message.format(folder=project) in str(error.value)
