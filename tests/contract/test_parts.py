"""Decisions in several parts, in every way of stepping: legal combinations only, equal results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import (
    GLOBAL_ENTITY,
    ContinuousActionSpace,
    SchemaError,
    VecObs,
    VecSelectEntityActionMask,
    questions,
)
from entity_env.agents import RandomAgent, TrainAgentEnv, random_actions
from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.observation import Observation
from entity_env.vec import VecEnv
from tests.games.composite_games import (
    KINDS,
    NUM_STEPS,
    RandomGame,
    Rules,
    scene_of,
    send,
)
from tests.helpers.batches import assert_same

RULES = st.one_of(
    st.builds(
        Rules,
        st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4).map(tuple),
        st.booleans(),
    ),
    st.builds(
        Rules,
        st.lists(st.sampled_from(("share", "bool")), min_size=1, max_size=4).map(tuple),
        st.just(value=True),
    ),
)
SEEDS = st.integers(0, 99)
NUM_ENVS = 3


@pytest.mark.slow
@settings(max_examples=50)
@given(RULES, SEEDS)
def test_local_play_makes_only_legal_decisions(rules: Rules, seed: int) -> None:
    episodes = RandomGame(rules).run(RandomAgent(seed=seed), seed=seed, episodes=2)
    assert [each.length for each in episodes] == [NUM_STEPS] * 2


@pytest.mark.slow
@settings(max_examples=50)
@given(RULES, SEEDS)
def test_batches_show_the_rules_and_step_like_single_games(rules: Rules, seed: int) -> None:
    game, rng = RandomGame(rules), np.random.default_rng(seed)
    spaces = game.obs_space(), game.action_space()
    envs = [TrainAgentEnv(game, seed=seed, env_id=i) for i in range(NUM_ENVS)]
    with VecEnv(game, NUM_ENVS, seed=seed) as vec:
        obs = vec.reset()
        alone = [env.reset() for env in envs]
        for _ in range(2 * NUM_STEPS):
            _require_rules(obs, rules, list(spaces[1]))
            for row, observation in enumerate(alone):
                _require_same_masks(obs, row, questions(observation, *spaces))
            chosen = random_actions(obs, spaces[1], rng)
            alone = [
                stepped(env, questions(shown, *spaces), of_row(obs, chosen, row))
                for row, (env, shown) in enumerate(zip(envs, alone, strict=True))
            ]
            obs = vec.act(chosen)
            assert obs.reward.tolist() == [np.float32(each.reward) for each in alone]
            assert obs.done.tolist() == [each.done for each in alone]
            alone = [
                env.reset() if shown.done else shown for env, shown in zip(envs, alone, strict=True)
            ]
    for env in envs:
        env.close()


@pytest.mark.slow
@settings(max_examples=6)
@given(RULES, SEEDS)
def test_workers_send_the_same_batches(rules: Rules, seed: int) -> None:
    game = RandomGame(rules)
    rngs = [np.random.default_rng(seed) for _ in range(2)]
    with (
        VecEnv(game, NUM_ENVS, seed=seed) as here,
        VecEnv(game, NUM_ENVS, num_workers=2, seed=seed) as there,
    ):
        first, second = here.reset(), there.reset()
        for _ in range(2 * NUM_STEPS):
            assert_same(first, second)
            if first.final is not None and second.final is not None:
                assert_same(first.final, second.final)
            chosen = [
                random_actions(obs, game.action_space(), rng)
                for obs, rng in zip((first, second), rngs, strict=True)
            ]
            first, second = here.act(chosen[0]), there.act(chosen[1])
            assert first.reward.tolist() == second.reward.tolist()


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_illegal_combination_is_refused(num_workers: int) -> None:
    with VecEnv(send, 2, num_workers=num_workers, seed=1) as vec:
        obs = vec.reset()
        chosen = dict(random_actions(obs, vec.action_space(), np.random.default_rng(0)))
        targets = obs.action_masks["Send.target"]
        assert isinstance(targets, VecSelectEntityActionMask)
        planets = obs.features["Planet"]
        row = targets.actors.row_index
        sizes = planets.values[planets.offsets[row] + np.asarray(chosen["Send.target"]), 0]
        illegal = ((sizes + 1) % 3).astype(np.int64)
        wrong = {**chosen, "Send.share": illegal}
        message = r"action 'Send\.share': actor 0 of env 0 .*chose \d, which its mask forbids"
        with pytest.raises(SchemaError, match=message):
            vec.act(wrong)
        vec.act(chosen)  # nothing was performed
    env = TrainAgentEnv(send, seed=1)
    observation = env.reset()
    spaces = send.obs_space(), send.action_space()
    values, asked = of_row(obs, wrong, 0), questions(observation, *spaces)
    message = r"action 'Send\.share': actor 0 chose '\w+', which its mask forbids; allowed are \w+"
    with pytest.raises(SchemaError, match=message):
        choose_in_order(asked, lambda question: values[question.name])
    env.close()


def _require_rules(obs: VecObs, rules: Rules, names: list[str]) -> None:
    """Compares the actors and masks of a batch with the plain rules."""
    for row in range(len(obs)):
        number, step = obs.features[GLOBAL_ENTITY][row][0].astype(int).tolist()
        scene = scene_of(rules, number, step)
        asked = [i for i in range(scene.num_bases) if scene.is_asked(rules.kinds, i)]
        for part, (name, kind) in enumerate(zip(names, rules.kinds, strict=True)):
            actors = obs.action_masks[name].actors[row].tolist()
            if rules.is_global:
                assert len(actors) == 1
            else:
                assert actors == asked
            if kind == "number":
                continue
            num_before = scene.num_choices(rules.kinds[part - 1]) or 1 if part else 1
            wanted = [
                [scene.legal(rules.kinds, part, actor, before) for before in range(num_before)]
                for actor in asked
            ]
            shape = len(asked), num_before, scene.num_choices(kind)
            assert _flags(obs, name, row, shape).tolist() == wanted


def _flags(obs: VecObs, name: str, row: int, shape: tuple[int, int, int]) -> NDArray[np.bool_]:
    """The mask of a row, with a line for every choice of the action before."""
    mask: Any = obs.action_masks[name]
    if mask.mask is None or not shape[0]:
        return np.ones(shape, np.bool_)
    per_actor = 1 if mask.per_actor is None else int(mask.per_actor[row][0])
    assert per_actor in (1, shape[1])
    flags = mask.mask[row].reshape(shape[0], per_actor, shape[2])
    return np.broadcast_to(flags, shape)


def _require_same_masks(obs: VecObs, row: int, asked: list[Question]) -> None:
    """Compares a row of a batch with the questions of one environment."""
    counts: dict[str, int] = {}
    for question in asked:
        num_choices = (
            0 if isinstance(question.space, ContinuousActionSpace) else len(question.choices)
        )
        counts[question.name] = num_choices
        given = question.space.given
        if num_choices and len(question.actors):
            allowed = np.asarray(question.allowed)
            num_before = counts[given[-1]] or 1 if given else 1
            shape = len(question.actors), num_before, num_choices
            if allowed.ndim == 2:
                allowed = np.broadcast_to(allowed[:, None], shape)
            assert _flags(obs, question.name, row, shape).tolist() == allowed.tolist()


def of_row(obs: VecObs, chosen: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The values of one row."""
    found = {}
    for name, mask in obs.action_masks.items():
        first, last = mask.actors.offsets[row : row + 2]
        found[name] = np.asarray(chosen[name])[first:last]
    return found


def stepped(env: TrainAgentEnv, asked: list[Question], values: Mapping[str, Any]) -> Observation:
    return env.act(choose_in_order(asked, lambda question: values[question.name]))
