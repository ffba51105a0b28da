"""Failures of a game and their reports, whatever the exception does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

from entity_env import Action, ActionName, EpisodeEnv, Game, Obs, Observation, WorkerError
from entity_env.agents import Agent, RandomAgent, TrainAgentEnv
from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.game_traceback import (
    game_traceback,
    is_failure,
    reason_of,
    suggestion_of,
    trace_of,
)
from entity_env.core.observation import GlobalCategoricalAction
from entity_env.errors import GameExit, SchemaError
from entity_env.vec import VecEnv
from tests.helpers.strategies import untyped
from tests.helpers.tiny_games import ask, dots_game
from tests.helpers.worker_games import Frozen, Lamp, Nameless, Speechless, throw

SIGNAL = signal.SIGTERM


def leave(number: int, frame: FrameType | None) -> None:
    sys.exit(3)


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class Leaving:
    """A signal handler that is not a function."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        sys.exit(3)

    def handle(self, number: int, frame: FrameType | None) -> None:
        sys.exit(3)


def end_after_interrupt() -> None:
    try:
        signal.raise_signal(SIGNAL)
    except KeyboardInterrupt:
        sys.exit()


def in_group() -> None:
    try:
        signal.raise_signal(SIGNAL)
    except BaseException as error:
        raise BaseExceptionGroup("of a task group", [ValueError(), error]) from None


def by_signal() -> None:
    signal.raise_signal(SIGNAL)


INTERRUPTS: Mapping[str, tuple[object, Callable[[], None]]] = {
    "Ctrl-C": (signal.default_int_handler, by_signal),
    "Ctrl-C, then sys.exit": (signal.default_int_handler, end_after_interrupt),
    "Ctrl-C in a group": (signal.default_int_handler, in_group),
    "a function": (leave, by_signal),
    "another function": (interrupt, by_signal),
    "a function, then sys.exit": (interrupt, end_after_interrupt),
    "a part": (partial(partial(leave)), by_signal),
    "a method": (Leaving().handle, by_signal),
    "an object": (Leaving(), by_signal),
}


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, SIGNAL)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("name", INTERRUPTS)
def test_a_signal_in_a_game_is_not_a_failure_of_it(name: str) -> None:
    handler, happens = INTERRUPTS[name]
    signal.signal(SIGNAL, handler)  # type: ignore[arg-type]  # what signal accepts
    signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]  # what signal accepts

    def play(agent: Agent, *, seed: int) -> None:
        ask(agent)
        happens()

    with VecEnv(dots_game(play), 2, on_error="restart") as vec:
        vec.reset()
        for run in (
            lambda: vec.act({"Move": np.zeros(2, np.int64)}),
            lambda: dots_game(play).run(RandomAgent()),
        ):
            with pytest.raises((KeyboardInterrupt, SystemExit, BaseExceptionGroup)) as caught:
                run()
            assert not is_failure(caught.value)


@pytest.mark.usefixtures("handlers")
def test_a_game_that_raises_what_a_handler_raises_fails() -> None:
    """If Ctrl-C has a Python handler, any other `KeyboardInterrupt` is the game's."""
    for number in (signal.SIGINT, SIGNAL):
        signal.signal(number, interrupt)
    for error in (KeyboardInterrupt(), SystemExit(3), GeneratorExit()):
        with pytest.raises(type(error)) as caught:
            throw(error)
        assert is_failure(caught.value)
    assert not is_failure(GameExit())


def exits(agent: Agent, *, seed: int) -> None:
    ask(agent)
    ask(agent)
    sys.exit()


def exits_at_once(agent: Agent, *, seed: int) -> None:
    sys.exit()


class ExitingLamp(Lamp):
    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        sys.exit()


class ExitingReset(Lamp):
    def reset(self, *, seed: int | None = None) -> Observation:
        sys.exit()


STAY = {"Move": GlobalCategoricalAction(1, "STAY")}
EXIT = r"the game called sys\.exit\(\): return from play instead \((env 0, )?seed \d+, episode 0, "


def step_twice(env: EpisodeEnv[Any, Any, Any, Any] | TrainAgentEnv) -> None:
    step = env.act if isinstance(env, TrainAgentEnv) else env.step
    env.reset()
    try:
        step(STAY)
        step(STAY)
    finally:
        env.close()


def test_a_game_that_exits_is_named_wherever_it_runs() -> None:
    game = dots_game(exits)
    with pytest.raises(WorkerError, match=EXIT + r"step 2\)\n(.*\n)+.*in exits") as caught:
        game.run(RandomAgent())
    assert isinstance(caught.value.__cause__, SystemExit)
    for env in (TrainAgentEnv(game), EpisodeEnv.of(TrainAgentEnv(game)), EpisodeEnv.of(game)):
        with pytest.raises(WorkerError, match=EXIT + r"step 2\)"):
            step_twice(env)
    with pytest.raises(WorkerError, match=EXIT + r"step 0\)"):
        step_twice(EpisodeEnv.of(ExitingLamp))
    for source in (ExitingReset, dots_game(exits_at_once)):
        with pytest.raises(WorkerError, match=EXIT + r"step 0\)"):
            EpisodeEnv.of(source).reset()
        with VecEnv(source, 1) as vec, pytest.raises(WorkerError, match=EXIT + r"step 0\)"):
            vec.reset()


def test_an_agent_that_exits_ends_the_program() -> None:
    class Leaving(PolicyAgent):
        def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
            sys.exit(5)

    with pytest.raises(SystemExit, match="5"):
        dots_game(exits).run(Leaving())


def test_a_game_that_exits_while_it_is_closed_leaves_no_other_open() -> None:
    ends = []

    def play(agent: Agent, *, seed: int) -> None:
        try:
            ask(agent)
        finally:
            ends.append(seed)
            sys.exit()

    vec = VecEnv(dots_game(play), 3)
    vec.reset()
    with pytest.raises(WorkerError, match=r"called sys\.exit\(\).*\(env 0, seed"):
        vec.close()
    assert len(ends) == 3


class Uncaused(ValueError):
    """An exception whose cause and notes cannot be read."""

    __cause__ = property(lambda _: throw(SystemExit()))
    __notes__ = property(lambda _: throw(SystemExit()))


UNREADABLE: Mapping[str, Callable[[int], Exception]] = {
    "Nameless": Nameless,
    "Speechless": Speechless,
    "Frozen": Frozen,
    "Uncaused": Uncaused,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_exception_that_cannot_be_read_is_reported(name: str) -> None:
    make = UNREADABLE[name]

    def play(agent: Agent, *, seed: int) -> None:
        ask(agent)
        try:
            raise make(5)
        except Exception as cause:
            raise SchemaError("a mistake") from cause

    error = make(5)
    assert reason_of(error).startswith(f"the game raised {name}: ")
    assert f"{name}: " in game_traceback(error)
    with pytest.raises(SchemaError, match="a mistake") as caught:
        dots_game(play).run(RandomAgent())
    assert "SchemaError: a mistake" in game_traceback(caught.value)


OBS: Any = Obs()
NUMBERS: Any = []


class Odd:
    """Lists no attributes."""

    def __dir__(self) -> list[str]:
        raise RuntimeError


def misspelled_name() -> None:
    observation = Obs()
    observatoin.entities([])  # type: ignore[name-defined]  # noqa: F821
    del observation


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("call", "suggestion"),
    [
        (lambda: OBS.entity([]), ". Did you mean: 'entities'?"),
        (lambda: OBS.actor([]), ". Did you mean: 'actors'?"),
        (lambda: NUMBERS.apend(1), ". Did you mean: 'append'?"),
        (misspelled_name, ". Did you mean: 'observation'?"),
        (
            lambda: untyped(RandomAgent(1)).ask(OBS),
            ". An agent has act, act_async, game_over and seed",
        ),
        (lambda: untyped(Game)(print, entites=()), ". Did you mean: 'entities'?"),
        (lambda: untyped(OBS).mask(action=1, masks=[]), ". Did you mean: 'mask'?"),
        (lambda: OBS.fly_to_the_moon, ""),
        (lambda: NUMBERS[3], ""),
    ],
)
def test_misspelled_names_are_suggested(call: Callable[[], object], suggestion: str) -> None:
    error = error_of(call)
    is_told = isinstance(error, TypeError) and "Did you mean" in str(error)  # from Python 3.13 on
    assert suggestion_of(error) == ("" if is_told else suggestion)
    suggestion = "" if is_told else suggestion
    error.add_note("a note")
    message, note = trace_of(error).splitlines()[-2:]
    assert message == f"{type(error).__name__}: {error}{suggestion}"
    assert note == "a note"


def test_objects_without_a_list_of_attributes_get_no_suggestion() -> None:
    error = error_of(lambda: Odd().speed)  # type: ignore[attr-defined]
    assert trace_of(error).endswith(f"AttributeError: {error}")
