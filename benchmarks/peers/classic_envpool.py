"""EnvPool's CartPole as a contender: compiled, with its own threads; resets in the next step."""

from __future__ import annotations

import warnings
from importlib import import_module

import numpy as np

from benchmarks.peers.stepper import Stepper

_NUM_BATCHES = 64


def cart_pole(num_envs: int, num_threads: int) -> Stepper:
    """EnvPool's CartPole. A step of the `Stepper` uses all precomputed actions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vec = import_module("envpool").make(
            "CartPole-v1", "gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
        )
    vec.reset()
    rng = np.random.default_rng(0)
    batches = list(rng.integers(0, 2, (_NUM_BATCHES, num_envs)).astype(np.int32))

    def steps() -> None:
        for actions in batches:
            vec.step(actions)

    return Stepper(num_envs * _NUM_BATCHES, steps)
