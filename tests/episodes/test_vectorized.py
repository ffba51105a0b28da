"""Episodes under the caller's control, many environments at once."""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    ClosedError,
    Episode,
    EpisodeEnv,
    Game,
    ProtocolError,
    Record,
    SchemaError,
    UsageError,
    VecActions,
    VecObs,
)
from entity_env.agents import random_actions
from entity_env.core.seeding import EpisodeSeeds
from entity_env.episodes.episode_env import Copies, EpisodeVec
from entity_env.games import snake
from entity_env.vec import VecEnv
from tests.agents.ppo.small_envs import VecXor
from tests.helpers.executors import Batch, plain_batch
from tests.helpers.strategies import untyped
from tests.helpers.tiny_games import chaos, count, together
from tests.helpers.worker_games import Lamp

Many: TypeAlias = EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]
each_number_of_workers = pytest.mark.parametrize("num_workers", [0, 2])


def plain(obs: VecObs, game: Game = snake) -> Batch:
    return plain_batch(obs, (game.obs_space(), game.action_space()))


def stay(num_envs: int) -> VecActions:
    return {"Move": np.ones(num_envs, dtype=np.int64)}


@each_number_of_workers
@pytest.mark.parametrize("num_envs", [1, 3])
def test_ended_environments_wait_for_their_reset(num_envs: int, num_workers: int) -> None:
    workers = min(num_workers, num_envs)
    with EpisodeEnv.of(count, num_envs=num_envs, num_workers=workers, seed=1) as env:
        env.reset()
        for i in range(3):
            step, record = env.step(stay(num_envs))
            assert step.reward.tolist() == [1.0] * num_envs
            assert step.is_done().tolist() == step.is_terminated.tolist() == [i == 2] * num_envs
            assert step.is_truncated.tolist() == [False] * num_envs
            assert step.reward.dtype == np.float32
            assert step.is_done().dtype == np.bool_
            assert step.init_obs is None
        assert record == Record(
            {"episode/reward": 3, "episode/length": 3, "episode/count": num_envs}
        )
        with pytest.raises(ProtocolError, match=r"call reset_envs"):
            env.step(stay(num_envs))
        first = [True] + [False] * (num_envs - 1)
        obs = env.reset(np.array(first))
        assert obs.done.tolist() == [not is_first for is_first in first]
        obs = env.reset(obs.done)
        assert not obs.done.any()
        env.step(stay(num_envs))


@pytest.mark.slow
@each_number_of_workers
@pytest.mark.parametrize("game", [snake, chaos], ids=["snake", "chaos"])
def test_it_shows_what_the_vec_env_below_shows(game: Game, num_workers: int) -> None:
    """`step_with_reset` equals `act` and `reset_envs` with copies in between."""
    rng, rng2 = np.random.default_rng(1), np.random.default_rng(1)
    seed = EpisodeSeeds(7)[0]
    vec = VecEnv(game, 4, num_workers, autoreset="disabled")
    with vec, EpisodeEnv.of(game, num_envs=4, num_workers=num_workers, seed=7) as env:
        expected, obs = vec.reset(seed=seed), env.reset()
        assert plain(obs, game) == plain(expected, game)
        num_ends = 0
        for _ in range(60):
            while obs.done.any():  # some episodes of `chaos` end without a question
                expected, obs = vec.reset_envs(expected.done), env.reset(obs.done)
            expected = vec.act(random_actions(expected, game.action_space(), rng))
            step, _ = env.step_with_reset(random_actions(obs, game.action_space(), rng2))
            assert plain(step.obs, game) == plain(expected, game)
            assert step.reward.tolist() == expected.reward.tolist()
            assert step.is_terminated.tolist() == expected.terminated.tolist()
            assert step.is_truncated.tolist() == expected.truncated.tolist()
            ended: Any = step.info.get("episodes", ())
            assert list(ended) == list(expected.episodes)
            num_ends += len(ended)
            if expected.done.any():
                last = copy.deepcopy(plain(expected, game))
                expected = vec.reset_envs(expected.done)
                assert step.init_obs is not None
                assert plain(step.init_obs, game) == plain(expected, game)
                assert plain(step.obs, game) == last  # unchanged by the reset
            else:
                assert step.init_obs is None
            obs = step.next_obs
        assert num_ends > 5


def test_what_a_step_tells_is_the_callers_own() -> None:
    rng = np.random.default_rng(1)
    with EpisodeEnv.of(snake, num_envs=8, seed=1) as env:
        obs = env.reset()
        kept = []
        for _ in range(20):
            step, _ = env.step_with_reset(random_actions(obs, snake.action_space(), rng))
            arrays: list[NDArray[Any]] = [step.reward, step.is_terminated, step.is_truncated]
            if step.init_obs is not None:
                head = step.obs.features["Head"]
                arrays += [step.obs.reward, head.values, head.lengths]
            kept += [(array, array.tolist()) for array in arrays]
            obs = step.next_obs
    assert all(array.tolist() == values for array, values in kept)


def test_the_record_averages_over_episodes() -> None:
    rng = np.random.default_rng(1)
    with EpisodeEnv.of(chaos, num_envs=30, seed=1) as env:
        obs = env.reset()
        while obs.done.any():
            obs = env.reset(obs.done)
        step, record = env.step(random_actions(obs, chaos.action_space(), rng))
    ended: Any = step.info["episodes"]
    assert len(ended) > 1
    assert all(isinstance(episode, Episode) for episode in ended)
    assert record.get_scalar("episode/count") == len(ended)
    assert record.get_scalar("episode/reward") == pytest.approx(
        np.mean([episode.reward for episode in ended])
    )
    assert record.get_scalar("episode/length") == pytest.approx(
        np.mean([episode.length for episode in ended])
    )
    cats = step.obs.metrics["cats"]
    assert record.get_scalar("metrics/cats") == cats.mean


@each_number_of_workers
def test_a_start_depends_on_its_index_alone(num_workers: int) -> None:
    rng = np.random.default_rng(1)
    with EpisodeEnv.of(snake, num_envs=3, seed=4) as env:
        starts = [plain(env.reset()) for _ in range(5)]
    assert len({str(start) for start in starts}) == 5
    assert all(len({str(row) for row in start.rows}) > 1 for start in starts)
    vec = VecEnv(snake, 3, num_workers, seed=99, autoreset="disabled")
    with EpisodeEnv.of(vec, seed=4) as other:
        for ix in (3, 0, 4, 4):
            obs = other.reset_with_index(ix)
            assert plain(obs) == starts[ix]
            for _ in range(ix):
                step, _ = other.step_with_reset(random_actions(obs, snake.action_space(), rng))
                obs = step.next_obs
        other.reset_with_index(1)
        assert plain(other.reset()) == starts[2]
        for bad in (-1, 0.5, True):
            with pytest.raises(UsageError, match="the index of a start must be an integer"):
                other.reset_with_index(untyped(bad))


def test_environments_of_other_kinds() -> None:
    sources: list[Many] = [
        EpisodeEnv.of(Lamp, num_envs=2),
        EpisodeEnv.of(VecEnv(Lamp, 2, autoreset="disabled")),
        EpisodeVec.build(Copies(Lamp, 2), seed=0),
    ]
    for source in sources:
        with source as env:
            assert env.reset().features["Dot"].values.tolist() == [[3], [3]]
            step, _ = env.step_with_reset(stay(2))
            assert step.reward.tolist() == [1, 1]


def test_what_cannot_be_stepped_is_refused() -> None:
    of = untyped(EpisodeEnv.of)
    with VecEnv(count, 2) as vec:
        with pytest.raises(UsageError, match='autoreset="disabled": got a VecEnv with "same_step"'):
            of(vec)
        with pytest.raises(UsageError, match="VecEnv already has its number of environments"):
            of(vec, num_envs=2)
    with pytest.raises(UsageError, match='a VecXor, which has no "disabled"'):
        of(VecXor(2))
    with pytest.raises(UsageError, match="has 6 rows for 2 environments"):
        of(together, num_envs=2)
    with pytest.raises(UsageError, match="num_envs must be an integer, 1 or more: got 0"):
        of(count, num_envs=0)
    with pytest.raises(UsageError, match="num_workers must be at most num_envs"):
        of(count, num_envs=1, num_workers=2)
    with pytest.raises(UsageError, match="a seed must be an integer"):
        of(count, num_envs=2, seed=-1)


def test_the_order_of_calls() -> None:
    env = EpisodeEnv.of(count, num_envs=2)
    with pytest.raises(ProtocolError, match="call reset first"):
        env.step(stay(2))
    with pytest.raises(ProtocolError, match="call reset first"):
        env.reset(np.array([True, False]))
    env.reset()
    with pytest.raises(SchemaError, match=r"shape \(2,\) and bools"):
        env.reset(np.array([True]))
    with pytest.raises(SchemaError, match=r"shape \(2,\) and bools"):
        env.reset(untyped(np.array([1, 0])))
    with pytest.raises(SchemaError):
        env.step(stay(3))
    env.step(stay(2))
    env.close()
    env.close()
    with pytest.raises(ClosedError):
        env.reset()
