"""What does it cost to use a batch environment as a VecEnv, and how much faster are workers?

4,096 CartPoles with precomputed random actions: a hand-written loop without auto-reset (step, mask
of finished environments, reset), and `BatchVecEnv.act`, which also returns final observations and
episode statistics. The cost is the median over rounds of the difference within a round. Two workers
are compared with one at 65,536 CartPoles, enough work to divide.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.batch_groups.plan import Setup
from entity_env.games.classic import CartPole
from entity_env.vec.batch_env.vec_env import BatchVecEnv

_NUM_ENVS = 4096
_NUM_ENVS_OF_WORKERS = 65_536
_NUM_BATCHES = 64
_ROUND_S = 0.2


def figures(setup: Setup) -> dict[str, float]:
    """Measures the cost of `BatchVecEnv` and the speed of workers.

    Returns:
        `face_us_4096`, microseconds per step that `BatchVecEnv.act` adds to the hand-written loop,
        and both times; `2_workers_vs_1`, ratio of steps per second with two workers and one.
    """
    setup.say("4,096 CartPoles")
    bare, face = _Bare(_NUM_ENVS), _Face(_NUM_ENVS, 0)
    with face.vec:
        rounds = [(_us(bare), _us(face)) for _ in range(setup.num_rounds)]
    setup.say("workers")
    one, two = (_Face(_NUM_ENVS_OF_WORKERS, num_workers) for num_workers in (1, 2))
    with one.vec, two.vec:
        shares = [(_us(one), _us(two)) for _ in range(setup.num_rounds)]
    return {
        "face_us_4096": statistics.median(b - a for a, b in rounds),
        "bare_loop_us_4096": statistics.median(a for a, _ in rounds),
        "batch_vec_env_us_4096": statistics.median(b for _, b in rounds),
        "2_workers_vs_1": statistics.median(a / b for a, b in shares),
    }


class _Bare:
    """One step of the hand-written loop without auto-reset."""

    def __init__(self, num_envs: int) -> None:
        self._env = CartPole(num_envs)
        self._env.reset(seed=0)
        self._batches = _batches(num_envs)

    def __call__(self) -> None:
        result = self._env.step_no_reset_with_result(next(self._batches))
        mask = result.to_reset_mask()
        if mask.any():
            self._env.reset_envs(mask)


class _Face:
    """One step of a `BatchVecEnv`."""

    def __init__(self, num_envs: int, num_workers: int) -> None:
        self.vec = BatchVecEnv(CartPole, num_envs, num_workers)
        self.vec.reset(seed=0)
        self._batches = _batches(num_envs)

    def __call__(self) -> None:
        self.vec.act({"Push": next(self._batches)})


def _batches(num_envs: int) -> Iterator[NDArray[Any]]:
    return cycle(np.random.default_rng(0).integers(0, 2, (_NUM_BATCHES, num_envs)))


def _us(step: Callable[[], None]) -> float:
    """Microseconds per step, over one round."""
    for _ in range(10):
        step()
    num_steps, begin = 0, perf_counter()
    while perf_counter() - begin < _ROUND_S:
        for _ in range(10):
            step()
        num_steps += 10
    return (perf_counter() - begin) / num_steps * 1e6
