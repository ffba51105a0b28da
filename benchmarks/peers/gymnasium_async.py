"""Gymnasium's `AsyncVectorEnv(shared_memory=True)` as a contender: one process per environment.

It has no entities: 8 entities with 3 features become a box of 24 numbers.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.stepper import Stepper

_NUM_BATCHES = 64


class Nothing(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A game without rules that shows 24 numbers."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (24,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._things = np.ones(24, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        return self._things, {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        return self._things, 0.0, False, False, {}


def nothing_async(num_envs: int) -> Stepper:
    """A game without rules, in one process per environment."""
    vec = gymnasium.vector.AsyncVectorEnv([Nothing] * num_envs, shared_memory=True)
    vec.reset(seed=0)
    rng = np.random.default_rng(0)
    batches = cycle(rng.integers(0, 2, (_NUM_BATCHES, num_envs)))
    return Stepper(num_envs, lambda: vec.step(next(batches)))
