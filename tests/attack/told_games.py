"""Games whose observations contain the episode's seed and step, so that a model can check all of
them. Workers import this module."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    Categorical,
    Environment,
    Game,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Obs,
    Observation,
    ObsSpace,
)
from entity_env.agents import Agent
from entity_env.core.spaces import Entity

SPLIT = 2**21
"""A float32 represents every integer below 2**24, so a seed of 63 bits takes three numbers."""


class Move(Enum):
    LEFT = 0
    STAY = 1
    RIGHT = 2


class Turn(Enum):
    BACK = 0
    ON = 1


EACH = Categorical(Turn)


@dataclass
class Told:
    """The seed in three parts, the step, and the number of this entity in its observation."""

    high: float
    middle: float
    low: float
    step: float
    number: float


@dataclass
class Ghost:
    step: float


def length_of(seed: int) -> int:
    """Number of actions in an episode."""
    return 1 + seed % 4


def rate_of(seed: int) -> int:
    """Reward of each action of an episode."""
    return 1 + seed % 3


def is_cut(seed: int) -> bool:
    """Whether the episode is truncated."""
    return seed % 2 == 1


def told_rows(seed: int, step: int) -> list[list[float]]:
    """The features of all `Told` of an observation; at least one."""
    high, rest = divmod(seed, SPLIT * SPLIT)
    parts = [float(high), *map(float, divmod(rest, SPLIT)), float(step)]
    return [[*parts, float(i)] for i in range(1 + (seed + step) % 3)]


def ghost_rows(seed: int, step: int) -> list[list[float]]:
    """The features of all `Ghost`s; often none."""
    return [[float(step)]] * ((seed // 4 + step) % 3)


def is_masked(seed: int, step: int) -> bool:
    """Whether the first choice is illegal, in games with masks."""
    return (seed // 8 + step) % 2 == 1


def _obs(seed: int, step: int, kind: str, score: float) -> Obs:
    obs = Obs(score)
    told = [Told(*row) for row in told_rows(seed, step)]
    if kind == "actors":
        obs.actors(told)
    else:
        obs.entities(told)
    if kind == "masked" and step % 2:
        obs.entities(np.array(ghost_rows(seed, step)).reshape(-1, 1), of=Ghost)
    else:
        obs.entities([Ghost(*row) for row in ghost_rows(seed, step)])
    if kind == "masked" and is_masked(seed, step):
        obs.mask(Move, [False, True, True])
    return obs


def play_told(agent: Agent, *, seed: int, kind: str = "global", fault: str = "") -> None:
    """Plays one episode; in some episodes `fault` happens after the first action."""
    length, rate = length_of(seed), rate_of(seed)
    action = EACH if kind == "actors" else Move
    for step in range(length):
        obs = _obs(seed, step, kind, step * rate).metric("seen", 1.0)
        if step and fault:
            suffer(fault, seed)
        if agent.act(obs, action) is None:
            return
    final = _obs(seed, length, kind, length * rate).metric("last", rate)
    agent.game_over(final, truncated=is_cut(seed))


def told_game(kind: str = "global", fault: str = "") -> Game:
    """One game; kinds are "global", "masked" and "actors"."""
    action = EACH if kind == "actors" else Move
    game = Game(play_told, entities=(Told, Ghost), actions=(action,))
    return game.with_settings(kind=kind, fault=fault)


class ToldEnv(Environment):
    """The game as an environment."""

    fault = ""

    def __init__(self) -> None:
        self._seed = 0
        self._step = 0

    def obs_space(self) -> ObsSpace:
        names = tuple(Told.__dataclass_fields__)
        return ObsSpace(entities={"Told": Entity(names), "Ghost": Entity(("step",))})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(("LEFT", "STAY", "RIGHT"))}

    def reset(self, *, seed: int | None = None) -> Observation:
        self._seed = 0 if seed is None else seed
        self._step = 0
        return self._observation(0.0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        if self.fault:
            suffer(self.fault, self._seed)
        self._step += 1
        return self._observation(rate_of(self._seed))

    def _observation(self, reward: float) -> Observation:
        seed, step = self._seed, self._step
        is_over = step == length_of(seed)
        return Observation(
            reward=reward,
            terminated=is_over and not is_cut(seed),
            truncated=is_over and is_cut(seed),
            features={"Told": told_rows(seed, step), "Ghost": ghost_rows(seed, step)},
            actions={} if is_over else {"Move": GlobalCategoricalActionMask()},
            metrics={"last": float(rate_of(seed))} if is_over else {"seen": 1.0},
        )

    def render(self) -> NDArray[np.uint8]:
        return np.full((1, 1, 3), self._step, np.uint8)


class FaultyEnv(ToldEnv):
    """Raises in some episodes."""

    fault = "raise"


def suffer(fault: str, seed: int) -> None:
    """Causes a fault in episodes with certain seeds; `fault` may name a file to wait for."""
    kind, _, path = fault.partition(":")
    if Path(path).exists() if path else seed % 5 == 0:
        FAULTS[kind](path)


def _catch_fire(path: str) -> None:
    raise OSError("the board is on fire")


def _hang(path: str) -> None:
    while True:
        threading.Event().wait()


FAULTS: dict[str, Callable[[str], object]] = {
    "raise": _catch_fire,
    "exit": lambda path: sys.exit(4),
    "killed": lambda path: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
}
