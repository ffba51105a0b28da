"""Neighboring seeds share no initial states, in any executor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import VecObs
from entity_env.games import multi_snake
from entity_env.games.azul import AzulBatch, AzulSelfPlay
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.games.meteor_shower import Meteors
from entity_env.games.multi_snake_batch import MultiSnakeBatch
from entity_env.vec import BatchEnv, BatchVecEnv, ResetMask, VecEnv

# The first call of azul_tables compiles, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

NUM_ENVS, NUM_SEEDS = 32, 20

BATCHES: dict[str, Callable[[int], BatchEnv]] = {
    "cart_pole": CartPole,
    "mountain_car": MountainCar,
    "pendulum": Pendulum,
    "azul": AzulBatch,
    "meteors": Meteors,
}
VEC_ENVS: dict[str, Callable[[int], VecEnv]] = {
    "cart_pole": lambda num_envs: BatchVecEnv(CartPole, num_envs),
    "multi_snake": partial(VecEnv, MultiSnakeBatch()),
    "azul_self_play": partial(VecEnv, AzulSelfPlay()),
    "multi_snake_games": lambda num_envs: VecEnv(multi_snake, num_envs),
}


def starts_of(env: BatchEnv) -> list[bytes]:
    return [row.tobytes() for row in env.view().observations]


def rows_of(obs: VecObs) -> list[bytes]:
    """Observations of the agents in every environment."""
    every = [ragged for _, ragged in sorted(obs.features.items())]
    rows = [b"|".join(ragged[row].tobytes() for ragged in every) for row in range(len(obs.env_id))]
    num_agents = int(obs.agent_id.max()) + 1
    return [b"|".join(rows[i : i + num_agents]) for i in range(0, len(rows), num_agents)]


def num_repeats(starts: list[list[bytes]]) -> int:
    every = [start for batch in starts for start in batch]
    return len(every) - len(set(every))


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_no_start_repeats_when_a_seed_is_counted_up(make: Callable[[int], BatchEnv]) -> None:
    env = make(NUM_ENVS)
    starts = []
    for seed in range(NUM_SEEDS):
        env.reset(seed)
        starts.append(starts_of(env))
    assert num_repeats(starts) == 0


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_no_start_repeats_when_each_reset_counts_a_seed_up(
    make: Callable[[int], BatchEnv],
) -> None:
    """Includes the next episodes of the other environments."""
    env = make(NUM_ENVS)
    env.reset(seed=99)
    starts, rng = [starts_of(env)], np.random.default_rng(0)
    for seed in range(100, 100 + 2 * NUM_SEEDS):
        chosen: NDArray[np.bool_] = rng.random(NUM_ENVS) < 0.5
        env.reset_envs(ResetMask.from_bool(chosen), seed if seed % 3 else None)
        starts.append(
            [start for start, is_new in zip(starts_of(env), chosen, strict=True) if is_new]
        )
    assert num_repeats(starts) == 0


@pytest.mark.parametrize("make", VEC_ENVS.values(), ids=VEC_ENVS)
def test_no_start_of_a_vector_environment_repeats(
    make: Callable[[int], VecEnv],
) -> None:
    with make(NUM_ENVS) as vec:
        starts = [rows_of(vec.reset(seed)) for seed in range(NUM_SEEDS)]
        starts.append(rows_of(vec.reset()))
    assert num_repeats(starts) == 0


def test_no_start_repeats_in_a_loop_that_counts_the_seed_up() -> None:
    """Steps without resets; finished environments are reset with a new seed each time."""
    env, rng = CartPole(64), np.random.default_rng(0)
    env.reset(seed=42)
    starts, seed = [starts_of(env)], 100
    for _ in range(300):
        mask = env.step_no_reset_with_result(rng.integers(2, size=64)).to_reset_mask()
        if mask.any():
            seed += 1
            env.reset_envs(mask, seed)
            starts.append([starts_of(env)[i] for i in mask.iter_set()])
    assert sum(map(len, starts)) > 500
    assert num_repeats(starts) == 0
