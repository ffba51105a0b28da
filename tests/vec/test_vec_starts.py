"""Environments of a VecEnv that start with chosen episodes of a run."""

from __future__ import annotations

import os

import numpy as np
import pytest

from entity_env import Game, SchemaError, UsageError
from entity_env.agents import Agent, random_actions
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from entity_env.vec.options import Source
from tests.helpers.executors import Row, SteppedGame, plain_batch
from tests.helpers.strategies import untyped
from tests.helpers.tiny_games import TINY_GAMES, ask, chaos, count, dots_game

each_number_of_workers = pytest.mark.parametrize("num_workers", [0, 2])


def make(source: Source, num_envs: int, num_workers: int = 0) -> VecEnv:
    return VecEnv(source, num_envs, num_workers, seed=1, autoreset="disabled")


def play_seed(agent: Agent, *, seed: int) -> None:
    """Shows its seed, with the precision of a float32."""
    for _ in range(2):
        if ask(agent, x=seed % 2**20) is None:
            return
    agent.game_over()


shows_seed = dots_game(play_seed)


def shown(vec: VecEnv, starts: list[int], seed: int = 6) -> list[float]:
    """The first observation of every environment."""
    obs = vec.reset_envs(np.ones(vec.num_envs, np.bool_), seed, starts=starts)
    return obs.features["Dot"].values.ravel().tolist()


@each_number_of_workers
def test_a_start_is_an_episode_of_the_run_of_environment_0(num_workers: int) -> None:
    expected = [EpisodeSeeds(6)[ix] % 2**20 for ix in range(200)]
    starts = [7, 0, 199, 7]
    with make(shows_seed, 4, num_workers) as vec:
        obs = vec.reset(6, starts=starts)
        assert obs.features["Dot"].values.ravel().tolist() == [expected[ix] for ix in starts]
        for starts in ([0, 1, 2, 3], [3, 2, 1, 0], [64, 63, 5, 5]):
            assert shown(vec, starts) == [expected[ix] for ix in starts]


@each_number_of_workers
@pytest.mark.parametrize("name", [n for n, game in TINY_GAMES.items() if game.num_agents > 1])
def test_of_games_for_several_agents_too(name: str, num_workers: int) -> None:
    game = TINY_GAMES[name]
    rows = rows_of_starts(game, num_workers)
    for start in (0, 3):
        assert rows[0, start] == rows[1, start] == rows[2, start]


def rows_of_starts(game: Game, num_workers: int) -> dict[tuple[int, int], list[Row]]:
    """An environment's observation after a start."""
    spaces = game.obs_space(), game.action_space()
    rows: dict[tuple[int, int], list[Row]] = {}
    with make(game, 3, num_workers) as vec:
        vec.reset()
        for start in (0, 3):
            obs = vec.reset_envs([True] * 3, 6, starts=[start] * 3)
            batch = plain_batch(obs, spaces)
            for env_id in range(3):
                of_env = slice(env_id * game.num_agents, (env_id + 1) * game.num_agents)
                rows[env_id, start] = batch.rows[of_env]
    return rows


@each_number_of_workers
def test_of_environments_too(num_workers: int) -> None:
    with make(lambda: SteppedGame(count, "greenlet"), 3, num_workers) as vec:
        vec.reset()
        vec.reset_envs([True] * 3, 6, starts=[5, 0, 9])
        for _ in range(3):
            obs = vec.act({"Move": np.ones(3, np.int64)})
        assert [e.seed for e in obs.episodes] == [EpisodeSeeds(6)[ix] for ix in (5, 0, 9)]


@each_number_of_workers
def test_a_run_goes_on_after_its_start(num_workers: int) -> None:
    with make(count, 3, num_workers) as vec:
        vec.reset()
        vec.reset_envs([False, True, True], 6, starts=[0, 8, 2])
        told = []
        for _ in range(2):
            for _ in range(3):
                obs = vec.act({"Move": np.ones(3, np.int64)})
            told += [(e.env_id, e.number, e.seed) for e in obs.episodes]
            vec.reset_envs(obs.done)
    own, other = EpisodeSeeds(1, 0), EpisodeSeeds(6)
    assert sorted(told) == [
        (0, 0, own[0]),
        (0, 1, own[1]),
        (1, 8, other[8]),
        (1, 9, other[9]),
        (2, 2, other[2]),
        (2, 3, other[3]),
    ]


def play_until_it_dies(agent: Agent, *, seed: int, victim: int = -1) -> None:
    """Kills its process at the second question of one episode."""
    ask(agent, x=seed % 2**20)
    if seed == victim:
        os._exit(3)
    while ask(agent, x=seed % 2**20) is not None:
        pass


@pytest.mark.slow
def test_a_worker_that_replaces_another_goes_on_with_the_run() -> None:
    victim = EpisodeSeeds(6)[4]
    game = dots_game(play_until_it_dies).with_settings(victim=victim)
    with VecEnv(game, 2, 2, autoreset="disabled", on_error="restart") as vec:
        vec.reset(6, starts=[9, 4])
        obs = vec.act({"Move": np.ones(2, np.int64)})
        assert [(e.env_id, e.number, e.seed) for e in obs.episodes] == [(1, 4, victim)]
        dots = obs.features["Dot"].values.ravel().tolist()
        assert dots == [EpisodeSeeds(6)[ix] % 2**20 for ix in (9, 5)]


def test_the_same_start_twice_is_the_same_game() -> None:
    rng, rng2 = np.random.default_rng(1), np.random.default_rng(1)
    spaces = chaos.obs_space(), chaos.action_space()
    with make(chaos, 4) as vec, make(chaos, 4) as other:
        obs, obs2 = vec.reset(6, starts=[0, 1, 2, 3]), other.reset(9)
        obs2 = other.reset_envs([True] * 4, 6, starts=[0, 1, 2, 3])
        for _ in range(30):
            assert plain_batch(obs, spaces) == plain_batch(obs2, spaces)
            if obs.done.any():
                obs, obs2 = vec.reset_envs(obs.done), other.reset_envs(obs2.done)
            else:
                obs = vec.act(random_actions(obs, spaces[1], rng))
                obs2 = other.act(random_actions(obs2, spaces[1], rng2))


@pytest.mark.parametrize(
    "starts", [[0], [[0, 1]], 0, [0.0, 1.0], [True, False], [0, -1], [], ["a", "b"]]
)
def test_starts_that_make_no_sense_are_refused(starts: object) -> None:
    with make(count, 2) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match=r"starts needs the shape \(2,\) and integers"):
            vec.reset_envs([True, True], 1, starts=untyped(starts))
        with pytest.raises(SchemaError, match="starts needs"):
            vec.reset(1, starts=untyped(starts))
        with pytest.raises(UsageError, match="starts need a seed"):
            vec.reset_envs([True, True], starts=[0, 1])
        with pytest.raises(UsageError, match="a seed must be an integer"):
            vec.reset_envs([True, True], -1, starts=[0, 1])
        vec.act({"Move": np.ones(2, np.int64)})  # works as if nothing had been asked


def test_starts_of_a_vec_env_that_resets_by_itself() -> None:
    with VecEnv(shows_seed, 2, seed=1) as vec:
        obs = vec.reset(6, starts=[3, 0])
        expected = [EpisodeSeeds(6)[ix] % 2**20 for ix in (3, 0)]
        assert obs.features["Dot"].values.ravel().tolist() == expected
        obs = vec.reset_envs([True, False], 6, starts=[1, 0])
        expected = [EpisodeSeeds(6)[ix] % 2**20 for ix in (1, 0)]
        assert obs.features["Dot"].values.ravel().tolist() == expected
