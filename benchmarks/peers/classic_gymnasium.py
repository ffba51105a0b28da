"""Gymnasium's CartPole as contenders: one, `SyncVectorEnv`, and the numpy version."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from benchmarks.peers.stepper import Stepper

_NUM_BATCHES = 64


def vector(num_envs: int) -> Stepper:
    """`CartPoleVectorEnv`, which steps all environments in numpy and resets in the next step."""
    return _stepper(CartPoleVectorEnv(num_envs=num_envs), num_envs)


def sync(num_envs: int) -> Stepper:
    """`SyncVectorEnv`, one environment after another."""
    return _stepper(
        gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")] * num_envs, copy=False
        ),
        num_envs,
        num_batches=1,
    )


def single(num_envs: int) -> Stepper:
    """One environment from `gymnasium.make`, reset after each episode."""
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, _NUM_BATCHES).tolist()

    def steps() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return Stepper(_NUM_BATCHES, steps)


def _stepper(
    vec: gymnasium.vector.VectorEnv, num_envs: int, num_batches: int = _NUM_BATCHES
) -> Stepper:
    vec.reset(seed=0)
    batches = list(np.random.default_rng(0).integers(0, 2, (num_batches, num_envs)))

    def steps() -> None:
        for actions in batches:
            vec.step(actions)

    return Stepper(num_envs * num_batches, steps)
