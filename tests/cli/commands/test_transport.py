"""`--transport thread`: a game with an event loop is trained, evaluated and resumed."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main

SMALL = ("--num-envs=4", "--set-train=net={d_model=8,n_layer=1,n_head=1}")
GAME = """
import asyncio, os, signal
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = -1
    RIGHT = 1

@dataclass
class Me:
    x: int

async def turns(agent, fails, interrupts):
    me = Me(0)
    for i in range(5):
        move = agent.act(Obs(me.x).entities([me]), Move)
        if move is None:
            return
        await asyncio.sleep(0)
        me.x += move.value
        if fails and i == 3:
            raise ValueError("a bug in a task")
        # Not in the look at the game before the run.
        if interrupts and i == 4 and os.path.exists(os.path.dirname(interrupts) + "/run/run.json"):
            with suppress(FileExistsError):
                os.mkdir(interrupts)  # once
                os.kill(int(os.path.basename(interrupts)), signal.SIGINT)
    agent.game_over(Obs(me.x))

def play(agent, *, seed, fails: bool = False, interrupts: str = ""):
    coroutine = turns(agent, fails, interrupts)
    try:
        asyncio.run(coroutine)
    finally:
        coroutine.close()

game = Game(play, entities=(Me,), actions=(Move,), name="loops")
"""


@pytest.fixture
def game(tmp_path: Path) -> str:
    path = tmp_path / "loops.py"
    path.write_text(GAME)
    return str(path)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", ["0", "2"])
def test_without_it_the_error_says_it(game: str, num_workers: str, tmp_path: Path) -> None:
    words = ("--steps=64", f"--num-workers={num_workers}", "--out", str(tmp_path / "run"))
    result = run("train", game, *words, *SMALL)
    assert result.exit_code == 1
    assert "running event loop" in result.stderr
    assert "--transport thread" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", ["0", "2"])
def test_trains_evaluates_and_goes_on(game: str, num_workers: str, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    words = ("--steps=64", f"--num-workers={num_workers}", "--out", out)
    result = run("train", game, "--transport=thread", *words, *SMALL)
    assert (result.exit_code, result.stderr) == (0, "")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["options"]["transport"] == "thread"
    resumed = run("train", "--resume", "--out", out, "--steps=128")
    assert (resumed.exit_code, resumed.stderr) == (0, "")
    # Games with their own event loops do not work with greenlets: eval uses the run's transport.
    measured = run("eval", game, "--agent", out, "--episodes=4", "--json")
    assert (measured.exit_code, measured.stderr) == (0, "")
    assert json.loads(measured.stdout)["mean_length"] == 5


def test_measures_its_speed(game: str) -> None:
    result = run("bench", game, "--num-envs=2", "--seconds=0.01", "--transport=thread")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "2 copies in a VecEnv" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", ["0", "2"])
def test_a_failure_is_named_as_always(game: str, num_workers: str, tmp_path: Path) -> None:
    words = ("--steps=64", f"--num-workers={num_workers}", "--out", str(tmp_path / "run"))
    result = run("train", game, "--set=fails=true", "--transport=thread", *words, *SMALL)
    assert result.exit_code == 1
    assert 'raise ValueError("a bug in a task")' in result.stderr
    assert "ValueError: a bug in a task (env " in result.stderr
    assert "episode 0, step 4)" in result.stderr


def test_it_has_two_values(game: str) -> None:
    result = run("bench", game, "--transport=process")
    assert result.exit_code == 2
    assert "'greenlet', 'thread'" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", ["0", "2"])
def test_ctrl_c_saves_and_leaves_nothing_behind(
    game: str, num_workers: str, tmp_path: Path
) -> None:
    """`tests/conftest.py` fails any test that leaves something behind, such as a game's thread."""
    out = tmp_path / "run"
    words = ("--steps=10000000", f"--num-workers={num_workers}", "--out", str(out), *SMALL)
    interrupts = f"--set=interrupts={tmp_path / str(os.getpid())}"
    result = run("train", game, "--transport=thread", "--keep=none", interrupts, *words)
    assert (result.exit_code, result.stderr) == (130, "")
    assert "saved at step" in result.stdout
