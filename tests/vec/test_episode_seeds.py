"""`VecEnv.episode_seeds`: equal to the seeds that finished episodes report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from entity_env import ClosedError, ProtocolError
from entity_env.agents import TrainAgentEnv, random_actions
from entity_env.core.vec_env_base import Autoreset
from entity_env.games import rock_paper_scissors, snake
from entity_env.games.classic import CartPole
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv

SOURCES: dict[str, Any] = {
    "game": snake.with_settings(board_size=3),
    "two agents": rock_paper_scissors.with_settings(num_rounds=3),
    "environment": partial(TrainAgentEnv, snake.with_settings(board_size=3)),
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", SOURCES)
def test_they_are_what_episodes_report(name: str, autoreset: Autoreset, num_workers: int) -> None:
    with VecEnv(SOURCES[name], 3, num_workers, seed=4, autoreset=autoreset) as vec:
        obs, rng = vec.reset(), np.random.default_rng(1)
        shown, num_ended = seeds_of(vec), 0
        for _ in range(60):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
            for episode in obs.episodes:
                if autoreset != "same_step":
                    assert seeds_of(vec)[episode.env_id] == episode.seed
                assert shown[episode.env_id] == episode.seed
                num_ended += 1
            if autoreset == "disabled" and vec.is_over.any():
                obs = vec.reset_envs(vec.is_over)
            shown = seeds_of(vec)
            assert vec.episode_seeds([2, 0]) == [shown[2], shown[0]]
        assert num_ended > 6
        obs = vec.reset()  # in the middle of episodes
        assert not set(seeds_of(vec)) & set(shown)


def seeds_of(vec: VecEnv) -> list[int]:
    seeds = vec.episode_seeds()
    assert seeds is not None
    return seeds


def test_a_batch_environment_has_none() -> None:
    with BatchVecEnv(partial(CartPole, backend="numpy"), 3) as vec:
        vec.reset()
        assert vec.episode_seeds() is None


def test_when_there_are_none() -> None:
    calls: list[tuple[Callable[[VecEnv], object], str]] = [
        (lambda vec: None, "call reset first"),
        (lambda vec: vec.send({"Move": np.zeros(len(vec.reset()), np.int64)}), "call recv before"),
    ]
    vec = VecEnv(snake, 2)
    for prepare, message in calls:
        prepare(vec)
        with pytest.raises(ProtocolError, match=message):
            vec.episode_seeds()
    vec.close()
    with pytest.raises(ClosedError):
        vec.episode_seeds()
