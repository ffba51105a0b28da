"""Relations in every way of stepping: references are positions, actors choose their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    GLOBAL_ENTITY,
    Game,
    SchemaError,
    VecObs,
    VecSelectEntityActionMask,
    questions,
)
from entity_env.agents import RandomAgent, TrainAgentEnv, random_actions
from entity_env.core.observation import Observation
from entity_env.vec import VecEnv
from tests.contract.test_parts import of_row, stepped
from tests.games.relation_games import (
    NUM_STEPS,
    convoys,
    random_relations,
    routes,
    scene_of,
    travels,
)
from tests.helpers.batches import assert_same

SEEDS = st.integers(0, 999)
NUM_ENVS = 3
GAMES = (random_relations, random_relations.with_settings(arrays=True))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.sampled_from(GAMES), SEEDS)
def test_local_play_shows_positions_and_chooses_own_relations(game: Game, seed: int) -> None:
    shown: list[Observation] = []
    episodes = game.run(
        RandomAgent(seed=seed),
        seed=seed,
        episodes=2,
        watch=lambda turn: shown.append(turn.observation),
    )
    assert [each.length for each in episodes] == [NUM_STEPS] * 2
    for observation in shown:
        if not observation.done:
            _require_scene(observation)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.sampled_from(GAMES), SEEDS)
def test_batches_show_the_scenes_and_step_like_single_games(game: Game, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spaces = game.obs_space(), game.action_space()
    envs = [TrainAgentEnv(game, seed=seed, env_id=i) for i in range(NUM_ENVS)]
    with VecEnv(game, NUM_ENVS, seed=seed) as vec:
        obs = vec.reset()
        alone = [env.reset() for env in envs]
        for _ in range(2 * NUM_STEPS):
            _require_scenes(obs)
            for observation in alone:
                _require_scene(observation)
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
@given(st.sampled_from((*GAMES, routes, travels, convoys)), SEEDS)
def test_workers_and_threads_send_the_same_batches(game: Game, seed: int) -> None:
    makers: list[Callable[[], VecEnv]] = [
        lambda: VecEnv(game, NUM_ENVS, seed=seed),
        lambda: VecEnv(game, NUM_ENVS, num_workers=2, seed=seed),
        lambda: VecEnv(game, NUM_ENVS, transport="thread", seed=seed),
    ]
    played = [_played(make, game, seed) for make in makers]
    for other in played[1:]:
        for one, two in zip(played[0], other, strict=True):
            assert_same(one, two)


def _played(make: Callable[[], VecEnv], game: Game, seed: int) -> list[VecObs]:
    rng = np.random.default_rng(seed)
    with make() as vec:
        seen = [vec.reset().copy()]
        for _ in range(2 * NUM_STEPS):
            seen.append(vec.act(random_actions(seen[-1], game.action_space(), rng)).copy())
    return seen


def test_a_relation_of_another_actor_is_refused() -> None:
    with VecEnv(routes, 2, seed=1) as vec:
        obs = vec.reset()
        chosen = np.array(
            random_actions(obs, vec.action_space(), np.random.default_rng(0))["SelectRoute"]
        )
        wrong = np.roll(chosen[: obs.action_masks["SelectRoute"].actors.lengths[0]], 1)
        message = r"actor 0 of env 0 .*chose \d+, which its mask forbids"
        with pytest.raises(SchemaError, match=message):
            vec.act({"SelectRoute": np.concatenate([wrong, chosen[len(wrong) :]])})
        vec.act({"SelectRoute": chosen})  # nothing was performed


def _require_scenes(obs: VecObs) -> None:
    """Compares a batch with the plain scenes."""
    for row in range(len(obs)):
        number, step = obs.features[GLOBAL_ENTITY][row][0].astype(int).tolist()
        scene = scene_of(number, step)
        expected = scene.rows()
        assert obs.features["Route"][row].tolist() == expected[0]
        assert obs.features["Guard"][row].tolist() == expected[1]
        for name, seen in (("Planet", scene.visible), ("Route", scene.routes_visible)):
            if name in obs.visible:
                assert obs.visible[name][row].tolist() in (seen, [True] * len(seen))
        mask = obs.action_masks["SelectRoute"]
        assert isinstance(mask, VecSelectEntityActionMask)
        legal = [scene.legal(i) for i in range(len(scene.actors))]
        asked = [i for i, flags in enumerate(legal) if any(flags)]
        first = scene.num_bases
        assert mask.actors[row].tolist() == [first + scene.actors[i] for i in asked]
        if asked:
            first += scene.num_planets
            assert mask.actees[row].tolist() == [*range(first, first + len(scene.routes))]
            assert mask.mask is not None
            assert mask.mask[row].reshape(len(asked), -1).tolist() == [legal[i] for i in asked]


def _require_scene(observation: Observation) -> None:
    """Compares an observation with the plain scene."""
    number, step = np.asarray(observation.global_features).astype(int).tolist()
    if observation.done:
        return
    scene = scene_of(number, step)
    for name, rows in zip(("Route", "Guard"), scene.rows(), strict=True):
        assert np.asarray(observation.features.get(name, [])).tolist() == rows
    spaces = random_relations.obs_space(), random_relations.action_space()
    legal = [flags for i in range(len(scene.actors)) if any(flags := scene.legal(i))]
    shown = [np.asarray(each.allowed).tolist() for each in questions(observation, *spaces)]
    assert shown == [legal] or not (shown or legal)
