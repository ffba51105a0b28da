"""entity-gym's `EnvList` and `ParallelEnvList`, and entity-gym-rs' `RustVecEnv`, as contenders.

Runs only in the peers' environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from entity_gym.env import (
    Action,
    Entity,
    Environment,
    EnvList,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    ParallelEnvList,
)
from entity_gym.examples.multi_snake import MultiSnake
from entity_gym_rs import (  # type: ignore[import-not-found]  # ships no types
    RustVecEnv,
    multisnake,
)
from ragged_buffer import RaggedBufferI64

from benchmarks.peers.stepper import Stepper

_NUM_BATCHES = 64

make_snake = partial(MultiSnake, board_size=10, num_snakes=1)


class Nothing(Environment):  # type: ignore[misc]  # entity_gym ships no types
    """A game without rules that shows 8 entities."""

    def __init__(self) -> None:
        self._things = [(i, i + 1, 3) for i in range(8)]

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Thing": Entity(["x", "y", "z"])})

    def action_space(self) -> dict[str, Any]:
        return {"choice": GlobalCategoricalActionSpace(["stay", "go"])}

    def reset(self) -> Observation:
        return self._observe()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return self._observe()

    def _observe(self) -> Observation:
        return Observation(
            features={"Thing": self._things},
            actions={"choice": GlobalCategoricalActionMask()},
            reward=0.0,
            done=False,
        )


def snake_list(num_envs: int) -> Stepper:
    """entity-gym's MultiSnake in this process."""
    return _stepper(EnvList(make_snake, num_envs), "move", 4)


def snake_processes(num_envs: int) -> Stepper:
    """entity-gym's MultiSnake in two processes."""
    return _stepper(ParallelEnvList(make_snake, num_envs, 2), "move", 4)


def snake_rust(num_envs: int) -> Stepper:
    """entity-gym-rs' multi-snake, one snake, in two threads."""
    vec: Any = RustVecEnv(multisnake(num_envs, 2, board_size=10, num_snakes=1))
    return Stepper(num_envs, _RustSteps(vec))


def nothing_list(num_envs: int) -> Stepper:
    """A game without rules, in this process."""
    return _stepper(EnvList(Nothing, num_envs), "choice", 2)


def nothing_processes(num_envs: int) -> Stepper:
    """A game without rules, in two processes."""
    return _stepper(ParallelEnvList(Nothing, num_envs, 2), "choice", 2)


def _stepper(vec: Any, name: str, num_choices: int) -> Stepper:  # noqa: ANN401 - untyped
    space = vec.obs_space()
    vec.reset(space)
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, num_choices, (_NUM_BATCHES, len(vec), 1, 1))
    batches = cycle([{name: RaggedBufferI64.from_array(batch)} for batch in chosen])
    act: Callable[..., object] = vec.act
    return Stepper(len(vec), lambda: act(next(batches), space))


class _RustSteps:
    """Supplies actions for the actors present: the step after an episode has no actor."""

    def __init__(self, vec: Any) -> None:  # noqa: ANN401 - untyped
        self._vec = vec
        self._space = vec.obs_space()
        self._obs = vec.reset(self._space)
        rng = np.random.default_rng(0)
        self._batches = cycle(rng.integers(0, 4, (_NUM_BATCHES, len(vec), 1)))

    def __call__(self) -> None:
        num_actors = self._obs.action_masks["move"].actors.size1()
        values = next(self._batches)[: num_actors.sum()]
        moves = RaggedBufferI64.from_flattened(values, num_actors)
        self._obs = self._vec.act({"move": moves}, self._space)
