"""A seed means the same episode, however an environment is made, and when repeated alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from entity_env import Game, Obs
from entity_env.agents import Agent, RandomAgent, TrainAgentEnv
from entity_env.authoring.local_run import Turn
from entity_env.core.seeding import EpisodeSeeds
from entity_env.games import rock_paper_scissors, snake
from entity_env.games.classic import CartPole
from entity_env.interop.gymnasium import (
    EntityVectorEnv,
    GameEnv,
    GymnasiumVecEnv,
    from_gymnasium,
    make_vector_env,
)
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.helpers.tiny_games import Move

PARTS = 5
"""Features that represent a seed of 63 bits exactly, 15 bits each."""


@dataclass
class Seed:
    """The seed passed to `play`."""

    a: float
    b: float
    c: float
    d: float
    e: float


def play(agent: Agent, *, seed: int, idle: bool = False) -> None:
    """Shows its seed; ends after 2 to 6 steps. If `idle`, every eighth episode ends at once."""
    shown = Seed(*(seed >> 15 * i & 0x7FFF for i in range(PARTS)))
    for step in range(0 if idle and seed % 8 == 0 else 2 + seed % 5):
        if agent.act(Obs(step).entities([shown]), Move) is None:
            return
    agent.game_over(Obs(9).entities([shown]))


tells = Game(play, entities=(Seed,), actions=(Move,), name="tells")


def seed_in(rows: NDArray[Any]) -> int:
    return sum(int(part) << 15 * i for i, part in enumerate(np.ravel(rows)))


@pytest.fixture
def limited_id() -> Iterator[str]:
    gymnasium.register(
        "Tells-v0",
        entry_point="entity_env.interop.gymnasium:GameEnv",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": tells},
        max_episode_steps=3,
    )
    yield "Tells-v0"
    del gymnasium.registry["Tells-v0"]


def starts_of(env: Any, num_steps: int = 40) -> list[list[int]]:  # noqa: ANN401 - one or many
    """Observed seeds, by environment, in the run with seed 3."""
    obs, infos = env.reset(seed=3)
    if obs["Seed"].ndim == 2:
        shown = [seed_in(obs["Seed"])]
        assert infos["episode_seed"] == shown[0]
        for _ in range(num_steps):
            *_, terminated, truncated, infos = env.step(0)
            assert infos["episode_seed"] == shown[-1]
            if terminated or truncated:
                obs, infos = env.reset()
                shown.append(seed_in(obs["Seed"]))
                assert infos["episode_seed"] == shown[-1]
        return [shown]
    found: list[list[int]] = [[] for _ in obs["Seed"]]
    for _ in range(num_steps):
        for i, rows in enumerate(obs["Seed"]):
            if rows.any() and [seed_in(rows)] != found[i][-1:]:
                found[i].append(seed_in(rows))
            if rows.any() and "episode_seed" in infos and infos["_episode_seed"][i]:
                assert infos["episode_seed"][i] == seed_in(rows)
        obs, *_, infos = env.step(np.zeros(len(found), np.int64))
    return found


@pytest.mark.slow
def test_a_limit_does_not_change_what_a_seed_means(limited_id: str) -> None:
    """Environments of an id with a limit, made in both ways, compared with those without it."""
    sync, ours = (
        starts_of(gymnasium.make_vec(limited_id, 4, vectorization_mode=mode))
        for mode in ("sync", "vector_entry_point")
    )
    assert ours == sync
    plain = starts_of(make_vector_env(tells, 4))
    for i in range(4):
        single = TimeLimit(GameEnv(tells), 3)
        first = seed_in(single.reset(seed=3 + i)[0]["Seed"])
        assert ours[i][0] == plain[i][0] == first
        assert ours[i][:6] == plain[i][:6]
    assert starts_of(TimeLimit(GameEnv(tells), 3))[0][:8] == ours[0][:8]


@pytest.mark.parametrize(
    "source",
    [CartPole, from_gymnasium("CartPole-v1"), partial(TrainAgentEnv, tells)],
    ids=["batch", "imported", "environment"],
)
def test_nor_does_it_for_other_sources(source: Any) -> None:  # noqa: ANN401 - of any kind
    plain, limited = (make_vector_env(source, 3, max_episode_steps=limit) for limit in (None, 2))
    for _ in range(2):
        shown, infos = plain.reset(seed=6)
        assert data_equivalence((shown, infos), limited.reset(seed=6), exact=True)
        if isinstance(shown, dict) and "Seed" in shown:
            assert [seed_in(rows) for rows in shown["Seed"]] == infos["episode_seed"].tolist()
    plain.close()
    limited.close()


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("limit", [None, 3])
def test_the_seed_that_an_episode_reports_repeats_it(limit: int | None, num_workers: int) -> None:
    envs = make_vector_env(
        snake,
        3,
        max_episode_steps=limit,
        num_workers=num_workers,
        max_entities={"Segment": 99},
    )
    obs, infos = envs.reset(seed=[5, 6, 7])
    for i, seed in enumerate(infos["episode_seed"].tolist()):
        assert first_of(snake, seed) == [*obs["Head"][i][0], *obs["Food"][i][0]]
    envs.close()


def first_of(game: Game, seed: int) -> list[float]:
    """Head and food in the first observation of a separate episode of snake."""
    turns: list[Turn] = []
    game.play_episode(RandomAgent(seed=1), seed=seed, watch=turns.append)
    features = turns[0].observation.features
    return [float(each) for name in ("Head", "Food") for each in np.ravel(features[name])]


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_infos_have_the_seed_of_the_episode_that_is_shown(
    mode: AutoresetMode, limit: int | None
) -> None:
    """In every step and in the infos of final observations, equal to `Episode.seed`."""
    envs = make_vector_env(tells, 3, autoreset_mode=mode, max_episode_steps=limit, idle=True)
    vec: Any = envs._vec  # type: ignore[attr-defined]
    obs, infos = envs.reset(seed=8)
    reported: list[int] = []
    ended: list[int] = []
    for _ in range(60):
        assert infos["_episode_seed"].all()
        shown = [seed_in(rows) for rows in obs["Seed"]]
        assert infos["episode_seed"].dtype == np.int64
        assert infos["episode_seed"].tolist() == shown
        obs, _, terminated, truncated, infos = envs.step(np.zeros(3, np.int64))
        done = terminated | truncated
        over = np.flatnonzero(done).tolist()
        skips = mode != AutoresetMode.NEXT_STEP  # episodes that end before the first action
        episodes = vec._pending[0].obs.episodes
        reported += [each.seed for each in episodes if each.length or not skips]
        if mode == AutoresetMode.SAME_STEP and over:
            final = infos["final_info"]
            assert final["_episode_seed"].tolist() == done.tolist()
            seeds = [seed_in(infos["final_obs"][i]["Seed"]) for i in over]
            assert final["episode_seed"][over].tolist() == seeds
            ended += seeds
        else:
            ended += [seed_in(obs["Seed"][i]) for i in over]
        if mode == AutoresetMode.DISABLED and over:
            was = infos["episode_seed"]
            obs, begun = envs.reset(options={"reset_mask": done})
            assert begun["_episode_seed"].tolist() == done.tolist()
            infos = {"_episode_seed": ~done | done}
            infos["episode_seed"] = np.where(done, begun["episode_seed"], was)
    envs.close()
    assert ended == reported
    assert len(ended) > 20


def test_agents_of_pettingzoo_have_it_too() -> None:
    pytest.importorskip("pettingzoo")
    from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv

    parallel, turns = GameParallelEnv(rock_paper_scissors), GameAECEnv(rock_paper_scissors)
    _, infos = parallel.reset(seed=2)
    turns.reset(seed=2)
    expected = EpisodeSeeds(2**62)[2 * 2**31]
    assert {info["episode_seed"] for info in [*infos.values(), *turns.infos.values()]} == {expected}
    *_, infos = parallel.step(dict.fromkeys(parallel.agents, 1))
    assert {info["episode_seed"] for info in infos.values()} == {expected}
    turns.reset()
    assert turns.infos["player_1"]["episode_seed"] == EpisodeSeeds(2**62)[2 * 2**31 + 1]


def test_a_batch_has_none() -> None:
    envs = EntityVectorEnv(BatchVecEnv(CartPole(2, backend="numpy"), autoreset="disabled"))
    assert "episode_seed" not in envs.reset(seed=1)[1]
    envs.close()
    theirs = GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", 2))
    again = EntityVectorEnv(theirs)
    assert "episode_seed" not in again.reset(seed=1)[1]
    again.close()


def test_an_environment_of_gymnasium_begins_an_episode_again_outside() -> None:
    game = from_gymnasium("CartPole-v1")
    turns: list[Turn] = []
    [episode] = game.run(RandomAgent(seed=1), seed=4, watch=turns.append)
    obs, _ = gymnasium.make("CartPole-v1").reset(seed=episode.seed % 2**31)
    assert turns[0].observation.features["Env"][0] == pytest.approx(obs.tolist())


def test_a_small_run_is_the_first_rows_of_a_large_one() -> None:
    """An environment's episodes do not depend on the number of environments and workers."""

    def play(num_envs: int, num_workers: int) -> list[list[float]]:
        with VecEnv(snake, num_envs, num_workers, seed=5) as vec:
            obs, heads = vec.reset(), []
            for _ in range(30):
                heads.append(np.concatenate([obs.features["Head"][i][0] for i in range(8)]))
                obs = vec.act({"Move": np.arange(len(obs)) % 4})
        return [head.tolist() for head in heads]

    assert play(8, 0) == play(64, 0) == play(8, 2)
