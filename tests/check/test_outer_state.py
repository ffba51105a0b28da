"""The reason why two episodes with one seed differ: a global generator, or a kept variable."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter_ns

import numpy as np
import pytest

from entity_env import ContractError, Game, Obs, check_game
from entity_env.agents import Agent
from entity_env.check.outer_state import OuterState


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = -1
    RIGHT = 1


FILE = Path(__file__).name


def problem_of(play: Callable[..., None]) -> str:
    with pytest.raises(ContractError) as caught:
        check_game(Game(play, entities=(Dot,), actions=(Go,), name="dots"), new_process=False)
    return caught.value.problems[-1]


def show(agent: Agent, number: Callable[[], int]) -> None:
    """Plays a game that shows a number at every step."""
    for step in range(3):
        if agent.act(Obs(step).entities([Dot(number())]), Go) is None:
            return
    agent.game_over(Obs(3))


def draws(agent: Agent, *, seed: int) -> None:
    show(agent, lambda: random.randrange(99))


def draws_from_numpy(agent: Agent, *, seed: int) -> None:
    show(agent, lambda: int(np.random.randint(99)))


def seeds_what_all_share(agent: Agent, *, seed: int) -> None:
    random.seed(seed)
    show(agent, lambda: random.randrange(99))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("play", "begin", "module", "instead"),
    [
        (draws, "one seed gives different episodes: ", "random", "random.Random(seed)"),
        (
            draws_from_numpy,
            "one seed gives different episodes: ",
            "numpy.random",
            "np.random.default_rng(seed)",
        ),
        (seeds_what_all_share, "two copies in turn, as in tr", "random", "random.Random(seed)"),
    ],
)
def test_a_global_generator_is_named(
    play: Callable[..., None], begin: str, module: str, instead: str
) -> None:
    problem = problem_of(play)
    assert problem.startswith(begin)
    assert f"; play draws from the module {module} before " in problem
    assert f"{FILE}:" in problem
    assert problem.endswith(f"draw from rng = {instead}")


@pytest.mark.slow
def test_draws_that_nobody_sees_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        random.random()
        show(agent, lambda: 1)

    check_game(Game(play, entities=(Dot,), actions=(Go,)), new_process=False)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "play draws from the module random before" in record.getMessage()


CALLS = [0]
RNG = random.Random(0)


class Counter:
    """Counts in an attribute of the class or of the object."""

    num_calls = 0

    def __init__(self) -> None:
        self.calls = 0

    def play(self, agent: Agent, *, seed: int) -> None:
        self.calls += 1
        show(agent, lambda: self.calls)

    def __call__(self, agent: Agent, *, seed: int) -> None:
        self.play(agent, seed=seed)


def in_a_global(agent: Agent, *, seed: int) -> None:
    CALLS[0] += 1
    show(agent, lambda: CALLS[0])


def in_a_generator(agent: Agent, *, seed: int) -> None:
    show(agent, lambda: RNG.randrange(99))


def in_a_class(agent: Agent, *, seed: int) -> None:
    Counter.num_calls += 1
    show(agent, lambda: Counter.num_calls)


def in_a_default(agent: Agent, calls: list[int] = [0], *, seed: int) -> None:  # noqa: B006 - the point
    calls[0] += 1
    show(agent, lambda: calls[0])


def in_an_attribute(agent: Agent, *, seed: int) -> None:
    calls = vars(in_an_attribute)
    calls["calls"] = calls.get("calls", 0) + 1
    show(agent, lambda: calls["calls"])


def in_an_argument(calls: list[int], agent: Agent, *, seed: int) -> None:
    calls[0] += 1
    show(agent, lambda: calls[0])


def in_a_closure() -> Callable[..., None]:
    numbers = count()

    def play(agent: Agent, *, seed: int) -> None:
        number = next(numbers)
        show(agent, lambda: number)

    return play


def make_counter() -> Callable[[], int]:
    number = 0

    def count_up() -> int:
        nonlocal number
        number += 1
        return number

    return count_up


count_up = make_counter()


def in_a_closure_of_another_function(agent: Agent, *, seed: int) -> None:
    show(agent, count_up)


class World:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.day = 0

    def next_day(self) -> int:
        with self.lock:
            self.day += 1
            return self.day


WORLD = World()


class Proxy:
    """Proxy like that of a web request outside its context."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError("working outside of a request")


PROXY = Proxy()  # all tests here have to skip it


def in_an_object_with_a_lock(agent: Agent, *, seed: int) -> None:
    show(agent, WORLD.next_day)


LEFT_OVER: list[tuple[Callable[..., None], str]] = [
    (in_a_global, f"'CALLS' in {FILE}"),
    (in_a_generator, f"'RNG' in {FILE}"),
    (in_a_class, f"'num_calls' of Counter in {FILE}"),
    (in_a_default, "a default argument of play"),
    (in_an_attribute, "an attribute of play"),
    (in_a_closure(), "'numbers' around play"),
    (in_a_closure_of_another_function, f"'number' around count_up in {FILE}"),
    (in_an_object_with_a_lock, f"'day' of 'WORLD' in {FILE}"),
    (partial(in_an_argument, [0]), "an argument of functools.partial"),
    (Counter().play, "the Counter that play is a method of"),
    (Counter(), "the Counter that is called as play"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("play", "name"), LEFT_OVER)
def test_what_the_last_episode_left_is_named(play: Callable[..., None], name: str) -> None:
    problem = problem_of(play)
    assert problem.startswith("one seed gives different episodes: episode 0 (seed ")
    assert f"; left over from the last episode: {name}" in problem
    assert problem.endswith("which play has changed: create it in play")


@pytest.mark.slow
def test_an_error_of_the_second_time_says_that_the_first_was_fine() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        todo.pop()
        show(agent, lambda: 1)

    todo = [0] * 150  # enough for the first play, and for a part of the second
    problem = problem_of(play)
    told = "one seed gives different episodes: the first had no error; left over"
    assert problem.startswith(told)
    assert "'todo' around play" in problem


@pytest.mark.slow
def test_a_read_of_the_clock_is_named() -> None:
    problem = problem_of(lambda agent, *, seed: show(agent, lambda: perf_counter_ns() % 1000))
    assert "; play reads time.perf_counter_ns (" in problem


@pytest.mark.slow
def test_what_cannot_be_named_is_listed() -> None:
    problem = problem_of(
        lambda agent, *, seed: show(agent, lambda: int(1e6 * random.Random().random()))
    )
    assert problem.endswith(
        "; the episode may also depend on a generator made without the seed, the clock, id() or "
        "hash(), or state that is left over from the last episode"
    )


def test_what_cannot_be_compared_is_left_out() -> None:
    lock, large = threading.Lock(), bytearray(2**24 + 1)

    def play(agent: Agent, *, seed: int) -> None:
        with lock:
            large[0] += 1
        show(agent, lambda: 1)

    game = Game(play, entities=(Dot,), actions=(Go,))
    outer = OuterState(game)
    large[0] = 1
    assert outer.known_cause() == ""


def test_classes_and_proxies_that_raise_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(type):
        def __getattribute__(cls, name: str) -> object:
            raise RuntimeError(name)

    class Proxy:
        @property
        def __class__(self) -> type:  # like werkzeug's proxy outside its context
            raise RuntimeError("unbound")

        @__class__.setter
        def __class__(self, value: type) -> None: ...

    names = {"OddClass": Odd("OddClass", (), {}), "proxy": Proxy(), "left": [0]}
    for name, value in names.items():
        monkeypatch.setitem(globals(), name, value)
    game = Game(lambda agent, *, seed: show(agent, lambda: 1), entities=(Dot,), actions=(Go,))
    outer = OuterState(game)
    names["left"].append(1)  # type: ignore[attr-defined]  # the list
    assert "'left' in test_outer_state.py" in outer.known_cause()
