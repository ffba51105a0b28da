"""Batches with decisions in several parts, wherever they are kept, shared or evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    Game,
    SchemaError,
    VecObs,
)
from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.ppo.self_play import Opponent, SelfPlayVecEnv
from entity_env.agents.rogue_net import MLPConfig, NeuralAgent
from entity_env.agents.rogue_net.torch_net.mlp import make_policy
from entity_env.batching.frame import FrameLayout, LocalMemory
from entity_env.core.action_request import questions, random_answers
from entity_env.core.vec_actions import after_any_choice, checked_vec_actions, independent
from entity_env.core.vec_obs import VecActions
from entity_env.episodes.episode_env import EpisodeEnv
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.array_batch import write_frame
from entity_env.vec.evaluation.games import EvaluationGames
from entity_env.vec.replay_buffer import ReplayBuffer
from tests.contract.test_parts import RULES
from tests.games.composite_games import RandomGame, Rules, duel, order, pair, send
from tests.helpers.batches import assert_same_mask


@pytest.mark.parametrize("capacity", [10, 100])
@pytest.mark.parametrize("game", [send, pair])
def test_a_replay_buffer_keeps_the_masks(game: Game, capacity: int) -> None:
    buffer, rng = ReplayBuffer(capacity), np.random.default_rng(0)
    seen: list[VecObs] = []
    with VecEnv(game, 3, seed=0) as vec:
        obs = vec.reset().copy()
        for _ in range(9):
            chosen = random_actions(obs, game.action_space(), rng)
            next_obs = vec.act(chosen).copy()
            buffer.add(obs, chosen, next_obs)
            seen.append(obs)
            obs = next_obs
    found = buffer.select(np.arange(len(buffer)))
    everything = VecObs.concat(seen)
    wanted = everything.select(np.arange(len(everything) - len(buffer), len(everything)))
    for name, mask in wanted.action_masks.items():
        assert_same_mask(found.obs.action_masks[name], mask)


@pytest.mark.slow
@settings(max_examples=25)
@given(RULES, st.integers(0, 99))
def test_sampled_actions_are_legal(rules: Rules, seed: int) -> None:
    game, rng, buffer = RandomGame(rules), np.random.default_rng(seed), ReplayBuffer(10)
    with VecEnv(game, 2, seed=seed) as vec:
        obs = vec.reset().copy()
        for _ in range(9):
            chosen = random_actions(obs, game.action_space(), rng)
            next_obs = vec.act(chosen).copy()
            buffer.add(obs, chosen, next_obs)
            obs = next_obs
    if len(buffer):
        sampled = buffer.sample(16, rng)
        checked_vec_actions(sampled.actions, sampled.obs.action_masks, game.action_space(), str)


def shown(game: Game, seed: int = 0) -> VecObs:
    with VecEnv(game, 3, seed=seed) as vec:
        return vec.reset().copy()


@pytest.mark.parametrize("game", [send, pair])
def test_arrays_are_written_with_or_without_dependence(game: Game) -> None:
    obs, layout = shown(game), FrameLayout(game.obs_space(), game.action_space())
    frame = write_frame(obs, len(obs), layout, LocalMemory())
    for name, mask in frame.action_masks.items():
        assert_same_mask(mask, obs.action_masks[name])
    plain = {name: after_any_choice(mask) for name, mask in obs.action_masks.items()}
    obs.action_masks = plain
    frame = write_frame(obs, len(obs), layout, LocalMemory())
    for name, mask in frame.action_masks.items():
        assert_same_mask(independent(name, mask, "a test"), plain[name])


def test_arrays_of_another_size_are_refused() -> None:
    obs, layout = shown(pair), FrameLayout(pair.obs_space(), pair.action_space())
    mask: Any = obs.action_masks["Pair.second"]
    mask.per_actor.values[:] = 2
    with pytest.raises(SchemaError, match=r"'Pair\.second': per_actor of its mask must be"):
        write_frame(obs, len(obs), layout, LocalMemory())


def test_batches_with_and_without_per_actor_do_not_mix() -> None:
    first, second = shown(pair), shown(pair)
    second.action_masks = {
        name: after_any_choice(mask) for name, mask in second.action_masks.items()
    }
    with pytest.raises(SchemaError, match=r"batch 1 has different spaces: .*and per_actor"):
        VecObs.concat([first, second])


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_self_play_shares_the_masks(num_workers: int) -> None:
    rng = np.random.default_rng(0)
    seen: list[int] = []

    def decide(obs: VecObs) -> VecActions:
        _require_pairs(obs)
        seen.append(len(obs))
        return random_actions(obs, duel.action_space(), rng)

    with VecEnv(duel, 4, num_workers=num_workers, seed=1) as inner:
        vec = SelfPlayVecEnv(inner, [Opponent("other", decide, "")], seed=1)
        obs = vec.reset(1)
        for _ in range(9):
            _require_pairs(obs)
            obs = vec.act(random_actions(obs, duel.action_space(), rng))
    assert seen


def _require_pairs(obs: VecObs) -> None:
    """The second part of a pair must differ from the first."""
    mask: Any = obs.action_masks["Pair.second"]
    wanted = np.tile(~np.eye(3, dtype=np.bool_), (len(mask.actors.values), 1))
    np.testing.assert_array_equal(mask.mask.values, wanted)


@pytest.mark.parametrize("game", [send, pair, order])
def test_episode_envs_step_them(game: Game) -> None:
    rng = np.random.default_rng(0)
    with EpisodeEnv.of(game) as env:
        spaces = env.obs_space(), env.action_space()
        obs = env.reset()
        for _ in range(12):
            obs = env.step_with_reset(random_answers(questions(obs, *spaces), rng))[0].next_obs
    vec = VecEnv(game, 3, autoreset="disabled")
    with EpisodeEnv.of(vec) as envs:
        many = envs.reset()
        for _ in range(12):
            many = envs.step_with_reset(random_actions(many, game.action_space(), rng))[0].next_obs


def test_evaluations_play_against_others() -> None:
    net = make_policy(duel.obs_space(), duel.action_space(), MLPConfig(hidden=(4,)))
    games = EvaluationGames(duel, 4, lambda seed: RandomAgent(seed=seed), 1)
    try:
        played = games.play(NeuralAgent(net), range(4), max_length=100)
    finally:
        games.close()
    assert [episode.length for episode in played.mine] == [4] * 4
