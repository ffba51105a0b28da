"""Where the time of a `VecEnv` goes."""

from time import perf_counter

import numpy as np
import pytest

from entity_env.vec import Autoreset, VecEnv, VecStatistics
from tests.executors import SteppedGame
from tests.tiny_games import count

STAY = {"Move": np.ones(3, np.int64)}


@pytest.mark.parametrize("of", ["games", "environments"])
def test_counts_add_up(of: str) -> None:
    source = count if of == "games" else lambda: SteppedGame(count, "greenlet")
    with VecEnv(source, 3) as vec:
        assert vec.statistics() == VecStatistics(0, 0, 0, 0.0, 0.0, 0.0, 0)
        episodes = 0
        vec.reset()
        for _ in range(7):
            episodes += len(vec.act(STAY).episodes)
        vec.reset()
        vec.send(STAY)
        episodes += len(vec.recv().episodes)
        told = vec.statistics()
        assert told.num_steps == 8
        assert told.num_env_steps == 24
        assert told.num_episodes == episodes == 6
        assert told.num_restarts == 0


def test_times_add_up() -> None:
    with VecEnv(count, 3) as vec:
        begin = perf_counter()
        vec.reset()
        for _ in range(20):
            vec.act(STAY)
        elapsed = perf_counter() - begin
        told = vec.statistics()
        parts = told.games_s, told.packing_s, told.waiting_s
        assert all(part > 0 for part in parts)
        assert sum(parts) <= elapsed


@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
def test_episodes_count_in_every_mode(autoreset: Autoreset) -> None:
    with VecEnv(count, 1, autoreset=autoreset) as vec:
        for _ in range(2):
            vec.reset()
            for _ in range(3):
                vec.act({"Move": np.ones(1, np.int64)})
        assert vec.statistics().num_episodes == 2
        assert vec.statistics().num_steps == 6


def test_in_words() -> None:
    told = VecStatistics(
        num_steps=1000,
        num_env_steps=64000,
        num_episodes=1200,
        games_s=3.0,
        packing_s=0.5,
        waiting_s=1.5,
        num_restarts=0,
    )
    assert str(told) == "64,000 env steps, 1,200 episodes: games 60 %, packing 10 %, caller 30 %"
    assert str(VecStatistics(0, 0, 0, 0, 0, 0, 0)).startswith("0 env steps, 0 episodes")
