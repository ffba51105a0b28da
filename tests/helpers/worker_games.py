"""Games that misbehave on purpose, in worker processes; fast to import, since every worker does.

`faulty` asks four questions per episode. In the episode with the seed `victim`, it causes a fault
after `at` answers.
"""

import multiprocessing.reduction
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Obs,
    Observation,
    ObsSpace,
)
from entity_env.agents import Agent
from entity_env.core.spaces import Entity
from tests.helpers.tiny_games import Dot, Ghost, Move, ask, dots_game

LENGTH = 4
"""Number of questions in an episode of `faulty`."""


def play_faulty(
    agent: Agent, *, seed: int, victim: int = -1, at: int = 2, fault: str = "", told: str = ""
) -> None:
    try:
        for i in range(LENGTH):
            if seed == victim and i == at:
                FAULTS[fault](agent)
            if ask(agent, score=i, x=i) is None:
                return
        agent.game_over(Obs(LENGTH).entities([Dot(LENGTH)]))
    finally:
        tell(told, seed)


def tell(path: str, line: object) -> None:
    """Appends a line to a file, if there is a path."""
    if path:
        with open(path, "a") as file:
            file.write(f"{line}\n")


faulty = dots_game(play_faulty)


def catch_fire(agent: Agent) -> NoReturn:
    raise OSError("the board is 100 % on fire")


def be_killed(agent: Agent) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def be_stopped(agent: Agent) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stare_at_the_wall(agent: Agent) -> None:
    while True:
        threading.Event().wait()


def run_in_circles(agent: Agent) -> None:
    while True:
        pass


def leave_fork(agent: Agent, ends: str) -> None:
    """Forks like a library that starts a program, but the child fails to start it."""
    child = os.fork()
    if not child and ends == "raises":
        raise OSError("no such program")
    if child:
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 1:
            raise AssertionError(status)


class _Nameless(type):
    def __getattribute__(cls, name: str) -> Any:  # noqa: ANN401 - of any attribute
        raise LookupError(f"a class without {name}")


class Nameless(Exception, metaclass=_Nameless):
    """Its class refuses every attribute."""


class Speechless(Exception):
    """An exception whose attributes cannot be read."""

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - of any attribute
        raise LookupError(f"an exception without {name}")

    def __str__(self) -> str:
        sys.exit("no text")

    __repr__ = __str__

    def __reduce__(self) -> NoReturn:
        os._exit(9)


@dataclass(frozen=True)
class Frozen(Exception):
    """An exception whose attributes, even the traceback, cannot be set."""

    code: int


class OfGame(str):
    """A text that only the process of the game can unpickle."""

    def __reduce__(self) -> NoReturn:
        os._exit(9)


class Worded(Exception):
    def __str__(self) -> str:
        return OfGame("in its own words")


def throw(error: BaseException) -> NoReturn:
    raise error


EXITS: dict[str, str] = {
    "sys.exit": r"called sys\.exit\(4\): return from play instead",
    "GeneratorExit": "raised GeneratorExit",
    "BaseExceptionGroup": "raised BaseExceptionGroup: two",
    "Nameless": "raised Nameless: x",
    "Speechless": r"raised Speechless: \(its message cannot be made: SystemExit\)",
    "Frozen": r"raised Frozen: 5",
    "Worded": "raised Worded: in its own words",
}
"""Faults that would end the program or prevent a report, with the expected report."""

FAULTS: dict[str, Callable[[Agent], None]] = {
    "raise": catch_fire,
    "killed": be_killed,
    "stopped": be_stopped,
    "os._exit": lambda agent: os._exit(3),
    "sys.exit": lambda agent: sys.exit(4),
    "GeneratorExit": lambda agent: throw(GeneratorExit()),
    "BaseExceptionGroup": lambda agent: throw(
        BaseExceptionGroup("two", [SystemExit(1), ValueError()])
    ),
    "KeyboardInterrupt": lambda agent: throw(KeyboardInterrupt()),
    "Nameless": lambda agent: throw(Nameless("x")),
    "Speechless": lambda agent: throw(Speechless("x")),
    "Frozen": lambda agent: throw(Frozen(5)),
    "Worded": lambda agent: throw(Worded()),
    "fork returns": lambda agent: leave_fork(agent, "returns"),
    "fork raises": lambda agent: leave_fork(agent, "raises"),
    "waits": stare_at_the_wall,
    "loops": run_in_circles,
    "not a number": lambda agent: ask(agent, x=float("nan")) and None,
    "undeclared": lambda agent: agent.act(Obs().entities([Ghost()]), Move) and None,
    "score": lambda agent: ask(agent, score=float("nan")) and None,
}


def play_gated(agent: Agent, *, seed: int, victim: int = -1, gate: str = "") -> None:
    """Never ends; one game waits at every second step until a named pipe is opened."""
    i = 0
    while ask(agent, score=i, x=i) is not None:
        i += 1
        if seed == victim and i % 2 == 0:
            with open(gate) as pipe:
                pipe.read()


gated = dots_game(play_gated)


def play_crowd(agent: Agent, *, seed: int, largest: int = 100_000) -> None:
    """Shows one dot, then the maximum number, then one."""
    for count in (1, largest, 1):
        dots = np.arange(count, dtype=np.float32)[:, None]
        if agent.act(Obs(count).entities(dots, of=Dot), Move) is None:
            return
    agent.game_over(Obs(0).entities(np.ones((largest, 1), np.float32), of=Dot))


crowd = dots_game(play_crowd)


def forbid_pickling(agent: Agent) -> None:
    """Makes all pickling in this process an error."""
    for owner in (pickle, multiprocessing.reduction.ForkingPickler):
        for name in ("dump", "dumps", "load", "loads"):
            if hasattr(owner, name):
                setattr(owner, name, refuse)


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("something was pickled")


def play_without_pickles(agent: Agent, *, seed: int) -> None:
    """Episodes, metrics and growing blocks, in a process that cannot pickle."""
    forbid_pickling(agent)
    for i in range(3):
        dots = np.ones((30_000 * i, 1), dtype=np.float32)
        obs = Obs(i).entities(dots, of=Dot).metric(f"metric {i}", i)
        if agent.act(obs, Move) is None:
            return
    agent.game_over(Obs(3).metric("over", 1))


without_pickles = dots_game(play_without_pickles)


class Lamp(Environment):
    """An environment that renders itself and counts down."""

    def __init__(self) -> None:
        self.left = 3

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Dot": Entity(["x"])})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(["LEFT", "STAY", "RIGHT"])}

    def reset(self, *, seed: int | None = None) -> Observation:
        self.left = 3
        return self._show(0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        self.left -= 1
        return self._show(1)

    def render(self) -> NDArray[np.uint8]:
        return np.full((2, 2, 3), self.left, np.uint8)

    def _show(self, reward: float) -> Observation:
        return Observation(
            reward=reward,
            terminated=not self.left,
            features={"Dot": [[self.left]]},
            actions={"Move": GlobalCategoricalActionMask()},
        )


class DarkLamp(Lamp):
    """Cannot be rendered."""

    def render(self) -> NDArray[np.uint8]:
        return Environment.render(self)


class HangingLamp(Lamp):
    def render(self) -> NDArray[np.uint8]:
        threading.Event().wait()
        raise AssertionError


class DyingLamp(Lamp):
    def render(self) -> NDArray[np.uint8]:
        os._exit(5)


class BrokenLamp(Lamp):
    """Its constructor raises."""

    def __init__(self) -> None:
        raise OSError("no such bulb")


class DeadLamp(Lamp):
    """Its constructor kills the process."""

    def __init__(self) -> None:
        os._exit(7)


def ever_other_lamps() -> Environment:
    """Has a different entity type in every process."""
    lamp = Lamp()
    space = ObsSpace(entities={"Dot": Entity(["x"]), str(os.getpid()): Entity(["y"])})
    lamp.obs_space = lambda: space  # type: ignore[method-assign]
    return lamp
