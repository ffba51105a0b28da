"""What a game raises is told with the game's own frames; what is not its fault passes."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path

import pytest

from entity_env import (
    CheckpointError,
    EntityEnvError,
    Game,
    MissingExtraError,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent
from entity_env.cli.load_game import GameFailed, game_errors, load_game, trace_from

BROKEN = """
from enum import Enum
from entity_env import Game

class Move(Enum):
    GO = 0

def helper(text):
    return int(text)

def play(agent, *, seed):
    helper("x")

class Player:
    def __call__(self, agent, *, seed):
        helper("y")

by_function = Game(play, entities=(), actions=(Move,))
by_object = Game(Player(), name="by_object", entities=(), actions=(Move,))
"""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken_game_of_failures.py"
    path.write_text(BROKEN)
    return path


class Move(Enum):
    GO = 0


def play(agent: Agent, *, seed: int) -> None:
    raise ZeroDivisionError("of the game")


def raised(error: BaseException) -> BaseException:
    """The error with a traceback that does not go through any game."""
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("name", ["by_function", "by_object"])
def test_a_trace_begins_in_the_game(broken: Path, name: str) -> None:
    game = load_game(f"{broken}:{name}")
    with pytest.raises(GameFailed) as failed, game_errors(game):
        game.run(RandomAgent(seed=0))
    trace = failed.value.trace
    assert trace == str(failed.value)
    files = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert len(files) == 2  # the game, and the helper that raised: nothing of ours
    assert all(str(broken) in file for file in files)
    assert trace.splitlines()[-1].startswith("ValueError: invalid literal")
    assert isinstance(failed.value.__cause__, ValueError)


def game_of(play: Callable[..., None]) -> Game:
    return Game(play, name="broken", entities=(), actions=(Move,))


GAME = game_of(play)


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no such file"),
        CheckpointError("another game"),
        MissingExtraError("torch", "train", "training"),
    ],
)
def test_what_the_user_can_mend_passes_also_out_of_a_game(error: EntityEnvError) -> None:
    def asks(agent: Agent, *, seed: int) -> None:
        raise error

    game = game_of(asks)
    with pytest.raises(type(error)) as passed, game_errors(game):
        asks(RandomAgent(seed=0), seed=0)
    assert passed.value is error


@pytest.mark.parametrize("error", [KeyError("ours"), KeyboardInterrupt(), SystemExit(3)])
def test_what_no_frame_of_the_game_has_raised_passes(error: BaseException) -> None:
    def fails() -> None:
        raise error

    game = load_game("snake")
    with pytest.raises(type(error)) as passed, game_errors(game):
        fails()
    assert passed.value is error


def test_ctrl_c_in_a_game_is_no_failure_of_it() -> None:
    def interrupted(agent: Agent, *, seed: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), game_errors(game_of(interrupted)):
        interrupted(RandomAgent(seed=0), seed=0)


def worker_error(cause: BaseException | None) -> WorkerError:
    error = WorkerError("play raised", env_id=3, seed=5, game_traceback="its own\n  traceback\n")
    error.__cause__ = cause
    return error


def test_of_a_worker_the_traceback_that_it_sent_is_shown_and_where_it_was() -> None:
    with pytest.raises(GameFailed) as failed, game_errors(GAME):
        raise worker_error(None)
    assert failed.value.trace == "its own\n  traceback\nplay raised (env 3, seed 5)\n"


def test_of_this_process_the_frames_of_the_game_are_shown() -> None:
    cause: BaseException | None = None
    try:
        play(RandomAgent(seed=0), seed=0)
    except ZeroDivisionError as error:
        cause = error
    with pytest.raises(GameFailed) as failed, game_errors(GAME):
        raise worker_error(cause)
    lines = failed.value.trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2:] == ["ZeroDivisionError: of the game", "play raised (env 3, seed 5)"]
    assert "its own" not in failed.value.trace


def test_a_wrapped_play_is_found_by_what_it_wraps(broken: Path) -> None:
    inner = load_game(f"{broken}:by_function")

    def wrapper(agent: Agent, *, seed: int) -> None:
        inner.play(agent, seed=seed)

    wrapper.__wrapped__ = inner.play  # type: ignore[attr-defined]  # as functools.wraps does
    game = game_of(wrapper)
    with pytest.raises(GameFailed) as failed, game_errors(game):
        wrapper(RandomAgent(seed=0), seed=0)
    assert str(Path(__file__)) not in failed.value.trace


def test_no_frame_no_trace() -> None:
    calls: list[Callable[[], BaseException]] = [lambda: raised(OSError("x")), lambda: OSError("x")]
    for call in calls:
        assert trace_from(call(), "/no/such/file.py") is None
