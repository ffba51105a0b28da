"""Shared by the tests of the classic batches: games, actions, histories."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from entity_env.games.classic import Backend, CartPole, MountainCar, Pendulum
from entity_env.games.classic.batch_env import ClassicEnv
from entity_env.vec.batch_env.batch_env import BatchActions

GAMES = (CartPole, MountainCar, Pendulum)
Game = type[CartPole] | type[MountainCar] | type[Pendulum]

BACKENDS: tuple[Backend, ...] = ("numba", "numpy")
Make = Callable[..., ClassicEnv]


def actions_of(game: Game, num_envs: int, num_steps: int) -> list[BatchActions]:
    rng = np.random.default_rng(num_steps)
    return [random_actions(game, rng, num_envs) for _ in range(num_steps)]


def starts_of(env: ClassicEnv) -> list[bytes]:
    """The state of each environment, bit for bit."""
    return [row.tobytes() for row in env.state]


def random_actions(game: Game, rng: np.random.Generator, num_envs: int) -> BatchActions:
    """One legal action per environment."""
    if game is Pendulum:
        return rng.uniform(-2, 2, num_envs).astype(np.float32)
    return rng.integers(0, 2 if game is CartPole else 3, num_envs)


def wide_states(game: Game, rng: np.random.Generator, num_envs: int) -> NDArray[np.float32]:
    """States from the whole range in which episodes continue."""
    high = {
        CartPole: (2.39, 3.0, 0.205, 3.0),
        MountainCar: (0.9, 0.07),
        Pendulum: (np.pi, 8.0),
    }[game]
    middle = {CartPole: (0, 0, 0, 0), MountainCar: (-0.3, 0), Pendulum: (0, 0)}[game]
    states = np.array(middle) + rng.uniform(-1, 1, (num_envs, len(high))) * np.array(high)
    narrow: NDArray[np.float32] = states.astype(np.float32)
    return narrow


def play(env: ClassicEnv, actions: list[BatchActions]) -> list[NDArray[np.float32]]:
    """Observations, rewards and flags of some steps; finished environments are reset at once."""
    shown: list[NDArray[np.float32]] = []
    for action in actions:
        result = env.step_no_reset_with_result(action)
        flags = np.stack([result.terminals, result.truncations]).astype(np.float32)
        shown.append(np.column_stack([result.observations, result.rewards, *flags]))
        mask = result.to_reset_mask()
        if mask.any():
            env.reset_envs(mask)
        shown.append(env.view().observations.copy())
    return shown


def same_bits(first: list[NDArray[np.float32]], second: list[NDArray[np.float32]]) -> bool:
    """Whether two histories are equal in every bit."""
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
