"""Our classic batches as contenders. A step of a `Stepper` uses all precomputed actions.

Uses only the public interface: step, read results, build a mask, reset finished environments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.stepper import Stepper
from entity_env.games.classic import Backend, CartPole, MountainCar, Pendulum
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask

NUM_BATCHES = 64
_NEVER = 10**9


def cart_pole(num_envs: int) -> Stepper:
    """The full loop without automatic resets."""
    return _full_loop(num_envs, "numba")


def cart_pole_plain(num_envs: int) -> Stepper:
    """The full loop, in plain numpy."""
    return _full_loop(num_envs, "numpy")


def _full_loop(num_envs: int, backend: Backend) -> Stepper:
    env = CartPole(num_envs, backend=backend)
    env.reset(seed=0)
    batches = pushes(num_envs, 2)

    def steps() -> None:
        for actions in batches:
            result = env.step_no_reset_with_result(actions)
            mask = result.to_reset_mask()
            if mask.any():
                env.reset_envs(mask)

    return Stepper(num_envs * NUM_BATCHES, steps)


def cart_pole_auto(num_envs: int) -> Stepper:
    """Steps with automatic resets that write their results to the caller's arrays."""
    env = CartPole(num_envs)
    env.reset(seed=0)
    batches = pushes(num_envs, 2)
    observations, rewards = np.zeros((num_envs, 4), np.float32), np.zeros(num_envs, np.float32)
    terminals, truncations = np.zeros((2, num_envs), np.uint8)

    def steps() -> None:
        for actions in batches:
            env.step(actions)
            env.write_observations(observations)
            env.write_rewards(rewards)
            env.write_terminals(terminals)
            env.write_truncations(truncations)

    return Stepper(num_envs * NUM_BATCHES, steps)


def cart_pole_auto_view(num_envs: int) -> Stepper:
    """Steps with automatic resets; results are views."""
    env = CartPole(num_envs)
    env.reset(seed=0)
    return _steps_alone(env, pushes(num_envs, 2))


def mountain_car(num_envs: int) -> Stepper:
    """The step alone, without truncation; random pushes hardly ever reach the goal."""
    env = MountainCar(num_envs, max_episode_steps=_NEVER)
    env.reset(seed=0)
    return _steps_alone(env, pushes(num_envs, 3))


def pendulum(num_envs: int) -> Stepper:
    """The step alone, without truncation."""
    env = Pendulum(num_envs, max_episode_steps=_NEVER)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    torques = rng.uniform(-2, 2, (NUM_BATCHES, num_envs)).astype(np.float32)
    return _steps_alone(env, list(torques))


def _steps_alone(
    env: BatchEnv, batches: list[NDArray[np.uint8]] | list[NDArray[np.float32]]
) -> Stepper:
    def steps() -> None:
        for actions in batches:
            env.step(actions)
            env.view()

    return Stepper(env.num_envs * NUM_BATCHES, steps)


def pushes(num_envs: int, num_choices: int) -> list[NDArray[np.uint8]]:
    """Precomputed random choices."""
    rng = np.random.default_rng(0)
    return list(rng.integers(0, num_choices, (NUM_BATCHES, num_envs)).astype(np.uint8))


def mask(num_envs: int) -> Stepper:
    """Builds masks of 5 % of the environments and lists their indices."""
    terminals, truncations = _flags(num_envs)

    def build() -> None:
        for _ in range(NUM_BATCHES):
            ResetMask.from_done_flags(terminals, truncations).indices()

    return Stepper(NUM_BATCHES, build)


def flatnonzero(num_envs: int) -> Stepper:
    """Lists the same indices with numpy."""
    terminals, truncations = _flags(num_envs)

    def build() -> None:
        for _ in range(NUM_BATCHES):
            np.flatnonzero(terminals | truncations)

    return Stepper(NUM_BATCHES, build)


def _flags(num_envs: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    flags = (np.random.default_rng(0).random((2, num_envs)) < 0.025).astype(np.uint8)
    return flags[0].copy(), flags[1].copy()
