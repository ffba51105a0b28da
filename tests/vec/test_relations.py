"""Relations wherever batches are kept, shared or converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    Action,
    ActionSpace,
    Environment,
    Game,
    GlobalCategoricalActionMask,
    Obs,
    Observation,
    ObsSpace,
    SchemaError,
    VecObs,
)
from entity_env.agents import Agent, random_actions
from entity_env.batching.frame import FrameLayout, LocalMemory
from entity_env.check import check_env
from entity_env.core.action_request import questions, random_answers
from entity_env.episodes.episode_env import EpisodeEnv
from entity_env.errors import ContractError
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.array_batch import write_frame
from entity_env.vec.replay_buffer import ReplayBuffer
from tests.games.relation_games import (
    Kind,
    Planet,
    Route,
    convoys,
    play_routes,
    random_relations,
    routes,
    travels,
)
from tests.helpers.strategies import Move

GAMES = [routes, travels, convoys, random_relations]


@pytest.mark.slow
@settings(max_examples=10)
@given(st.sampled_from((routes, travels, convoys)), st.integers(0, 99), st.sampled_from((10, 100)))
def test_a_replay_buffer_keeps_relations(game: Game, seed: int, capacity: int) -> None:
    buffer, rng = ReplayBuffer(capacity), np.random.default_rng(seed)
    seen: list[VecObs] = []
    with VecEnv(game, 3, seed=seed) as vec:
        obs = vec.reset().copy()
        for _ in range(9):
            chosen = random_actions(obs, game.action_space(), rng)
            next_obs = vec.act(chosen).copy()
            buffer.add(obs, chosen, next_obs)
            seen.append(obs)
            obs = next_obs
    found = buffer.select(np.arange(len(buffer))).obs
    everything = VecObs.concat(seen)
    wanted = everything.select(np.arange(len(everything) - len(buffer), len(everything)))
    for name, rows in wanted.features.items():
        assert found.features[name].values.tolist() == rows.values.tolist()


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_episode_envs_step_them(game: Game) -> None:
    rng = np.random.default_rng(0)
    with EpisodeEnv.of(game) as env:
        spaces = env.obs_space(), env.action_space()
        obs = env.reset()
        for _ in range(12):
            obs = env.step_with_reset(random_answers(questions(obs, *spaces), rng))[0].next_obs
    with EpisodeEnv.of(VecEnv(game, 3, autoreset="disabled")) as envs:
        many = envs.reset()
        for _ in range(12):
            many = envs.step_with_reset(random_actions(many, game.action_space(), rng))[0].next_obs


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
def test_arrays_are_written(game: Game) -> None:
    layout = FrameLayout(game.obs_space(), game.action_space())
    with VecEnv(game, 3, seed=5) as vec:
        obs = vec.reset()
        frame = write_frame(obs, len(obs), layout, LocalMemory())
        for name, rows in obs.features.items():
            assert frame.features[name].values.tolist() == rows.values.tolist()


class Roads(Environment):
    """An environment that shows rows itself; `wrong` is a reference to nothing."""

    def __init__(self, wrong: float | None = None) -> None:
        self.wrong = wrong

    def obs_space(self) -> ObsSpace:
        return routes.obs_space()

    def action_space(self) -> Mapping[str, ActionSpace]:
        return Game(play_routes, entities=(Planet,), actions=(Move,)).action_space()

    def reset(self, *, seed: int | None = None) -> Observation:
        return self._shown(done=False)

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return self._shown(done=True)

    def _shown(self, *, done: bool) -> Observation:
        target = 1.0 if self.wrong is None else self.wrong
        return Observation(
            reward=0.0,
            terminated=done,
            features={"Route": [[0, target, 1, 1, 0]], "Planet": [[1], [2]]},
            actions={} if done else {"Move": GlobalCategoricalActionMask()},
        )


def test_environments_show_rows_with_references() -> None:
    check_env(Roads)
    with VecEnv(Roads, 2) as vec:
        assert vec.reset().features["Route"].values[:, :2].tolist() == [[0, 1]] * 2
    message = r"relation Route: 'target' of row 0 is 2, expected a whole number from 0 to 1"
    with pytest.raises(ContractError, match=message):
        check_env(lambda: Roads(2.0))
    with VecEnv(lambda: Roads(2.0), 2) as vec, pytest.raises(SchemaError, match=message):
        vec.reset()


def play_fixed(agent: Agent, *, seed: int) -> None:
    """Two planets with two routes."""
    planets = [Planet(1.0), Planet(2.0)]
    for _ in range(3):
        a, b = planets
        shown = [Route(1.0, a, Kind.FAST, b), Route(1.0, b, Kind.FAST, a)]
        if agent.act(Obs().entities(planets).relations(shown), Move) is None:
            return
    agent.game_over(Obs())


@pytest.mark.slow
def test_gymnasium_pads_their_rows() -> None:
    pytest.importorskip("gymnasium")
    from entity_env.interop.gymnasium import GameEnv

    game = Game(play_fixed, entities=(Planet,), relations=(Route,), actions=(Move,), name="fixed")
    env = GameEnv(game)
    obs, _ = env.reset(seed=0)
    assert obs["Route"][:, :2].tolist() == [[0, 1], [1, 0]]
    env.close()
    with pytest.raises(SchemaError, match="the number of entities of type 'Route' varies"):
        GameEnv(routes)
    env = GameEnv(routes, max_entities={"Route": 16})
    obs, info = env.reset(seed=0)
    count = int(obs["Route_mask"].sum())
    legal: Any = info["action_mask"]
    assert legal.shape == (4, 20)
    for actor, row in enumerate(legal):
        chosen = np.flatnonzero(row) - 4  # after the planets
        assert obs["Route"][chosen, 0].tolist() == [actor] * len(chosen)
        assert chosen.max() < count
    env.close()
