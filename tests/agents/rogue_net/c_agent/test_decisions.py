"""Networks in C decide as in numpy, for every kind and option, on every set of instructions."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from benchmarks.peers.network_in_c import AgentError, CAgent, CLibrary
from benchmarks.peers.network_vectors import (
    Vector,
    dependent_vectors,
    episode_vectors,
    given_choices,
    random_weights,
    vectors_of,
)
from entity_env import Observation
from entity_env.agents.rogue_net import (
    MLPConfig,
    RelposEncodingConfig,
    RogueNetConfig,
    Weights,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, read_agent
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.numpy_net.distributions import Chooser
from entity_env.core.spaces import Spaces
from entity_env.games.registry import GAMES
from examples.skirmish import skirmish
from tests import ROOT
from tests.helpers.strategies import action_spaces, obs_spaces, observations
from tests.page.test_network import (
    ACTIONS,
    CONFIGS,
    DEPENDENT,
    DEPENDENT_CONFIGS,
    FLAT,
    FLAT_DEPENDENT,
    LINKED,
    NETS,
    OBS,
    PLACED,
    SHIPPED,
    SMALL,
    configs,
    counted,
    dependent_observation,
    dependent_spaces,
    observed,
    placed,
    positions,
    require_equal,
    without_value,
)

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.slow,
]
# As -ffast-math, which would also turn off subnormal numbers in the whole process.
INEXACT = (
    "-fassociative-math -freciprocal-math -fno-signed-zeros -fno-trapping-math -ffinite-math-only"
)
BUILDS = {
    "C": "gcc -std=c99 -O2",
    "C++ with inexact math": f"g++ -x c++ -std=c++11 -O3 {INEXACT}",
    "without AVX2": "gcc -std=c99 -O2 -DEA_NO_AVX2",
    "without vectors": "gcc -std=c99 -O2 -DEA_NO_VECTORS",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    return CLibrary(tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_agents_decide_the_same(name: str, library: CLibrary) -> None:
    weights = read_agent(ROOT / "examples" / SHIPPED[name])
    vectors = episode_vectors(GAMES[name], weights, 30)
    require_equal(library.compare(weights, vectors), 0 if name == "pendulum" else 30)


@pytest.mark.parametrize("config", NETS.values(), ids=NETS)
def test_new_networks_decide_the_same_in_a_game(config: RogueNetConfig, library: CLibrary) -> None:
    """Integer positions lie on the borders of buckets."""
    spaces = skirmish.schema.obs_space(), skirmish.schema.action_space()
    weights = random_weights(spaces, config)
    require_equal(library.compare(weights, episode_vectors(skirmish, weights, 20)), 100)


def _shown(name: str) -> tuple[Weights, list[Observation]]:
    obs_space, actions, config = CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=len(name))
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    is_radial = relpos is not None and relpos.radial
    shown = [observed((obs_space, actions), seed, is_radial=is_radial) for seed in range(1, 9)]
    return weights, shown


@pytest.mark.parametrize("build", BUILDS)
def test_every_option_has_the_same_effect(
    build: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = BUILDS[build].split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    library = CLibrary(tmp_path_factory.mktemp("c"), words)
    for name in CONFIGS:
        weights, shown = _shown(name)
        found = library.compare(weights, vectors_of(weights, shown))
        try:
            require_equal(found)
        except AssertionError as error:
            error.add_note(name)
            raise
    obs_space, actions, config = DEPENDENT_CONFIGS["entities"]
    weights = random_weights((obs_space, actions), config)
    shown = [dependent_observation((obs_space, actions), seed) for seed in range(8)]
    require_equal(library.compare(weights, _given_c(library, weights, shown, 3)), 8)


def test_every_entity_may_be_missing(library: CLibrary) -> None:
    for name in ("two layers", "pooling max", "separate value", "MLP", "CNN", "projections"):
        obs_space, actions, config = CONFIGS[name]
        weights = random_weights((obs_space, actions), config)
        empty = Observation(reward=0.0, global_features=np.zeros(len(obs_space.global_features)))
        require_equal(library.compare(weights, vectors_of(weights, [empty])))


@pytest.mark.parametrize("count", [0.0, 1.0, 2.0])
def test_uncounted_features_are_only_clipped(count: float, library: CLibrary) -> None:
    fresh = counted(random_weights((OBS, ACTIONS), SMALL()), count)
    shown = [observed((OBS, ACTIONS), seed) for seed in range(4)]
    require_equal(library.compare(fresh, vectors_of(fresh, shown)))


def test_an_untrained_value_is_none(library: CLibrary) -> None:
    untrained = without_value(random_weights((OBS, ACTIONS), SMALL(separate_value=True)))
    vectors = vectors_of(untrained, [observed((OBS, ACTIONS), 1)])
    assert vectors[0]["value"] is None
    require_equal(library.compare(untrained, vectors))


@pytest.mark.parametrize("temperature", [0.01, 0.5, 3.0])
def test_a_temperature_has_the_same_effect(temperature: float, library: CLibrary) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    shown = [observed((OBS, ACTIONS), seed) for seed in range(1, 6)]
    found = library.compare(weights, vectors_of(weights, shown, temperature))
    assert found["probabilities"] <= 1e-5 / min(temperature, 1), found
    assert not found["other_choices"]


@given(data=st.data())
def test_random_games_are_decided_the_same(data: st.DataObject, library: CLibrary) -> None:
    spaces = data.draw(obs_spaces()), data.draw(action_spaces())
    assume(spaces[0].entities)
    weights = random_weights(spaces, data.draw(configs()), data.draw(st.integers(0, 99)))
    shown = [data.draw(observations(*spaces)) for _ in range(3)]
    require_equal(library.compare(weights, vectors_of(weights, shown)))


@given(relpos=positions(), seeds=st.lists(st.integers(0, 999), min_size=3, max_size=3))
def test_random_positions_have_the_same_effect(
    relpos: RelposEncodingConfig, seeds: Sequence[int], library: CLibrary
) -> None:
    weights = random_weights((PLACED, ACTIONS), placed(relpos), seeds[0])
    shown = [observed((PLACED, ACTIONS), seed, is_radial=relpos.radial) for seed in seeds]
    require_equal(library.compare(weights, vectors_of(weights, shown)))


def _given_c(
    library: CLibrary, weights: Weights, shown: Sequence[Observation], seed: int | None
) -> list[Vector]:
    """What numpy computes for the choices that C makes; None = the most probable."""
    found = []
    with CAgent(library, agent_bytes(weights)) as agent:
        for observation, vector in zip(shown, dependent_vectors(weights, shown, 0), strict=True):
            asked = vector["observation"] | ({} if seed is None else {"random": seed})
            agent.think(agent.observation(asked))
            chosen = vector["observation"]["chosen"]
            chooser = Chooser()
            for name, rows in chosen.items():
                choices = agent.choices(name, len(rows))
                chooser.chosen[name] = np.array(choices, np.asarray(rows).dtype)
                if name in vector["probabilities"]:
                    for row, choice in zip(agent.rows(name, len(rows)), choices, strict=True):
                        assert row[choice] > 0
                        assert seed is not None or row[choice] >= max(row) - 2e-5
            past = Past(np.array([asked["state"]], np.float32)) if asked["state"] else None
            made = given_choices(weights, observation, vector, chooser, past)
            found.append({**made, "observation": {**asked, **made["observation"]}})
    return found


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", DEPENDENT_CONFIGS)
def test_choices_decide_what_follows(name: str, seed: int | None, library: CLibrary) -> None:
    obs_space, actions, config = DEPENDENT_CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=len(name))
    shown = [dependent_observation((obs_space, actions), seed) for seed in range(8)]
    require_equal(library.compare(weights, _given_c(library, weights, shown, seed)), 8)


@given(
    spaces=dependent_spaces(),
    config=configs(),
    seed=st.integers(0, 999),
    random=st.none() | st.integers(0, 2**64 - 1),
)
def test_choices_decide_what_follows_in_random_games(
    spaces: Spaces, config: RogueNetConfig, seed: int, random: int | None, library: CLibrary
) -> None:
    weights = random_weights(spaces, config, seed)
    shown = [dependent_observation(spaces, seed + i) for i in range(2)]
    require_equal(library.compare(weights, _given_c(library, weights, shown, random)))


def test_dependent_choices_are_drawn_from_the_distributions(library: CLibrary) -> None:
    weights = random_weights((FLAT, FLAT_DEPENDENT), MLPConfig((16,)))
    shown = dependent_observation((FLAT, FLAT_DEPENDENT), 2)
    [vector] = dependent_vectors(weights, [shown], 0)
    with CAgent(library, agent_bytes(weights)) as agent:
        counts, probs = np.zeros((2, 3)), np.zeros((2, 3))
        for seed in range(3000):
            agent.think(agent.observation({**vector["observation"], "random": seed}))
            [first], [second] = agent.choices("mode", 1), agent.choices("pair", 1)
            counts[first, second] += 1
            probs[first] = agent.rows("pair", 1)[0]
        [modes] = agent.rows("mode", 1)
        np.testing.assert_allclose(counts / 3000, np.transpose([modes]) * probs, atol=0.04)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next": None}, "expected 2 actors of next, on which push depends, got 0"),
        ({"share": {"actors": [0]}}, "expected 1 actors of target, on which share depends, got 2"),
        (
            {"share": {"actors": [0, 1], "mask": [[[False] * 3] * 2] * 2}},
            "of share for actor 0 after choice 0 of target, got none",
        ),
        (
            {"turn": {"actors": [0, 1], "mask": [[[True] * 2] * 2] * 2}},
            "a mask of turn that does not depend on the numbers of push",
        ),
    ],
)
def test_wrong_dependent_requests_are_refused(
    changes: Mapping[str, Any], message: str, library: CLibrary
) -> None:
    after_numbers = replace(DEPENDENT["turn"], given=("next", "push"))
    actions = {**DEPENDENT, "turn": after_numbers}
    content = agent_bytes(random_weights((OBS, actions), SMALL()))
    asked: dict[str, Any] = {
        name: {"actors": [0, 1], "actees": [0, 1]} for name in DEPENDENT if name != "last"
    }
    good = {"features": {"A": [[1, 2], [3, 4]]}, "globals": [0], "actions": asked}
    changed = {name: each for name, each in {**asked, **changes}.items() if each}
    with CAgent(library, content) as agent:
        agent.think(agent.observation(good))
        with pytest.raises(AgentError) as caught:
            agent.think(agent.observation({**good, "actions": changed}))
        assert message in str(caught.value)


GOOD: dict[str, Any] = {
    "features": {"A": [[1, 2]]},
    "globals": [0],
    "actions": {"move": {"actors": [0], "mask": [[True, False, False]]}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {"A": [[1, np.inf]]}}, "expected finite features, got others of A 0"),
        ({"globals": [np.nan]}, "expected finite global features, got another t"),
        ({"features": {"B": [[1, 2, 3]] * 201}}, "at most 200 entities, got more: 201 of B"),
        ({"actions": {"move": {"actors": [2]}}}, "expected actors of move from 0 to 1, got 2"),
        ({"actions": {"a.b": {"actors": [0], "actees": [-1]}}}, "actees of a.b from 0 to 1"),
        ({"actions": {"a.b": {"actors": [0], "actees": []}}}, "allowed choice of a.b for actor 0"),
        ({"actions": {"move": {"actors": [0], "mask": [[False] * 3]}}}, "allowed choice of move"),
        ({"actions": {"move": {"actors": [0] * 202}}}, "0 to 201 actors of move, got 202"),
    ],
)
def test_wrong_observations_are_refused(
    changes: Mapping[str, Any], message: str, library: CLibrary
) -> None:
    content = agent_bytes(random_weights((OBS, ACTIONS), SMALL()))
    with CAgent(library, content) as agent:
        agent.think(agent.observation(GOOD))
        with pytest.raises(AgentError) as caught:
            agent.think(agent.observation({**GOOD, **changes}))
        assert message in str(caught.value)
        with pytest.raises(AgentError, match="temperature from 1e-6"):
            agent.think(agent.observation(GOOD), 0.0)


@pytest.mark.parametrize("wrong", [-1, 1, 0.5, 1000])
def test_references_to_no_entity_are_refused(wrong: float, library: CLibrary) -> None:
    content = agent_bytes(random_weights((LINKED, ACTIONS), SMALL()))
    features: dict[str, Any] = {"A": [[1, 2]], "B": [[1, 2, 3]] * 2, "R": [[0, 0, 5], [1, 0, 5]]}
    with CAgent(library, content) as agent:
        agent.think(agent.observation({**GOOD, "features": features}))
        features["R"][1][1] = wrong
        with pytest.raises(AgentError, match=f"expected R 1 of one of 1 A, got {wrong:g}"):
            agent.think(agent.observation({**GOOD, "features": features}))
        features["R"][1][1] = 0
        move = {"actors": [3], "mask": [[True] * 3]}
        with pytest.raises(AgentError, match="expected actors of move, got the relation 3"):
            agent.think(
                agent.observation({**GOOD, "features": features, "actions": {"move": move}})
            )


def test_choices_are_drawn_from_the_distributions(library: CLibrary) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    observation = {
        **GOOD,
        "actions": {"move": {"actors": [0, 1]}, "push": {"actors": [0]}},
    }
    with CAgent(library, agent_bytes(weights)) as agent:
        agent.think(agent.observation(observation))
        random = ctypes.c_uint64(1)
        [first, second] = agent.rows("move", 2)
        drawn = np.array([agent.choices("move", 2, random) for _ in range(4000)])
        for column, probs in ((0, first), (1, second)):
            share = np.bincount(drawn[:, column], minlength=3) / len(drawn)
            np.testing.assert_allclose(share, probs, atol=0.04)
        numbers = np.array([agent.choices("push", 1, random)[0] for _ in range(4000)])
        [means] = agent.rows("push", 1)
    deviations = np.exp(weights.tensors["action_heads.push.log_std"]) * [1.0, 0.75]
    samples = np.random.default_rng(0).normal(means, deviations, (100_000, 2))
    clipped = samples.clip([-1, 5], [1, 6.5])
    np.testing.assert_allclose(numbers.mean(axis=0), clipped.mean(axis=0), atol=0.06)
    np.testing.assert_allclose(numbers.std(axis=0), clipped.std(axis=0), atol=0.06)


def test_masked_choices_are_never_drawn(library: CLibrary) -> None:
    with CAgent(library, agent_bytes(random_weights((OBS, ACTIONS), SMALL()))) as agent:
        mask = [[False, True, False]]
        given_mask = {"move": {"actors": [0], "mask": mask}}
        agent.think(agent.observation({**GOOD, "actions": given_mask}))
        assert agent.rows("move", 1) == [[0, 1, 0]]
        random = ctypes.c_uint64(1)
        assert {agent.choices("move", 1, random)[0] for _ in range(200)} == {1}
