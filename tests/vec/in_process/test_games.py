"""GameBatch: steps and Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import numpy as np
import pytest

from entity_env.games import multi_snake
from entity_env.vec import VecEnv


@pytest.mark.slow
def test_a_step_of_many_games_collects_no_garbage() -> None:
    """A step frees as many objects as it creates: actions are not created for all games at once."""
    num_envs, num_steps, threshold = 2_000, 10, gc.get_threshold()
    rng = np.random.default_rng(0)
    num_collections = 0

    def count(phase: str, info: Mapping[str, int]) -> None:
        nonlocal num_collections
        num_collections += phase == "start"

    with VecEnv(multi_snake.with_settings(num_snakes=1), num_envs) as env:
        env.reset(seed=0)
        for step in range(2 * num_steps):
            if step == num_steps:  # the games are at different points of their episodes
                gc.callbacks.append(count)
                gc.set_threshold(700)  # Python's default
            env.act({"Move": rng.integers(0, 4, num_envs)})
        gc.callbacks.remove(count)
        gc.set_threshold(*threshold)
    assert num_collections < num_steps // 2
