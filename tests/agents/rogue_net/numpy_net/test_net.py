"""RogueNet in numpy and in C matches rogue-net, and plays without torch."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.rogue_net import (
    CategoricalDistribution,
    GaussianDistribution,
    NeuralAgent,
    NumpyAgent,
    NumpyNet,
    RelposEncodingConfig,
    RogueNet,
    RogueNetConfig,
    TranslationConfig,
    Weights,
    save_checkpoint,
)
from entity_env.agents.rogue_net.numpy_net import single
from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    GaussianArrays,
    choose_label,
)
from entity_env.agents.rogue_net.numpy_net.functions import ACTIVATIONS, OPERATIONS, product
from entity_env.agents.rogue_net.numpy_net.single import PlainSingleNet, SingleNet, single_net
from entity_env.agents.rogue_net.numpy_net.single_reader import RequestedAction
from entity_env.agents.rogue_net.torch_net.distributions import at_temperature
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.observation import (
    CategoricalActionMask,
    ContinuousActionMask,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError, SchemaError, UsageError
from entity_env.games import cherry_pick, multi_snake, snake, treasure_hunt
from entity_env.vec import VecEnv
from tests.agents.rogue_net.fixtures import DATA, FIXTURES, OPTIONS, Fixture, batch_of
from tests.agents.rogue_net.torch_net.test_policy import require_same
from tests.helpers.tiny_games import chaos

Case = Mapping[str, NDArray[np.float64]]
EVERY = pytest.mark.parametrize("fixture", FIXTURES + OPTIONS, ids=lambda fixture: fixture.name)


def _check_logprobs(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    allowed = wanted > -1e29
    np.testing.assert_allclose(got[allowed], wanted[allowed], rtol=1e-5, atol=2e-5)
    assert (got[~allowed] < -1e29).all()
    np.testing.assert_array_equal(got.argmax(axis=1), wanted.argmax(axis=1))


@EVERY
def test_numbers_equal_upstream(fixture: Fixture) -> None:
    net, cases = NumpyNet(fixture.weights), fixture.cases()
    for part in (*([case] for case in cases), cases):
        distributions, values = net.distributions(batch_of(fixture, part))
        np.testing.assert_allclose(values, [case["value"] for case in part], atol=1e-5, rtol=0)
        for action, each in distributions.items():
            assert isinstance(each, CategoricalArrays)
            for row, case in enumerate(part):
                wanted = case[f"logprobs/{action}"].astype(np.float32)
                if wanted.size:
                    got = each.logprobs[each.rows == row][:, : wanted.shape[1]]
                    _check_logprobs(got, wanted)


def _own(fixture: Fixture, case: Case) -> dict[str, NDArray[np.float32]]:
    return {
        name: case[f"features/{name}"].reshape(-1, len(entity.features)).astype(np.float32)
        if entity.features
        else np.zeros((len(case[f"features/{name}"]), 0), np.float32)
        for name, entity in fixture.obs_space.entities.items()
    }


def _shared(case: Case) -> NDArray[np.float32]:
    return case.get("global", np.zeros(0)).reshape(-1).astype(np.float32)


def _visible(fixture: Fixture, case: Case) -> NDArray[np.bool_] | None:
    if not any(key.startswith("visible/") for key in case):
        return None
    own = _own(fixture, case)
    flags = [case.get(f"visible/{name}", np.ones(len(own[name]))) for name in own]
    has_global = any(
        isinstance(space, GlobalCategoricalActionSpace) for space in fixture.action_space.values()
    )
    return np.concatenate([*flags, np.ones(int(has_global))]).astype(np.bool_)


WAYS = pytest.mark.parametrize("way", ["compiled", "plain"])


def _single(weights: Weights, way: str) -> SingleNet:
    """The network for single observations, in C or in numpy."""
    if way == "plain":
        return PlainSingleNet(weights)
    if not single.IS_COMPILED:
        pytest.skip("needs the module in C, which was not built here")
    net = single_net(weights)
    assert net is not None
    assert not isinstance(net, PlainSingleNet)
    return net


def _single_agent(weights: Weights, way: str) -> NumpyAgent:
    agent = NumpyAgent(weights, greedy=True)
    agent._single = _single(weights, way)
    return agent


def _requested(fixture: Fixture, case: Case, action: str) -> RequestedAction:
    actors, actees = case[f"actors/{action}"].astype(np.int64), None
    num_choices = 0
    space = fixture.action_space[action]
    if isinstance(space, SelectEntityActionSpace):
        actees = case[f"actees/{action}"].astype(np.int64)
        num_choices = len(actees)
    else:
        num_choices = len(space)
    mask = case.get(f"mask/{action}")
    allowed = None if mask is None else np.ascontiguousarray(mask.astype(np.bool_))
    answers = np.full((len(actors), num_choices), np.nan, np.float32)
    return RequestedAction(action, actors, actees, allowed, answers)


@EVERY
@WAYS
def test_one_observation_at_a_time_equals_upstream(fixture: Fixture, way: str) -> None:
    net = _single(fixture.weights, way)
    for case in fixture.cases():
        own = _own(fixture, case)
        kept = {name: array.copy() for name, array in own.items()}
        names = [name for name in fixture.action_space if case[f"logprobs/{name}"].size]
        asked = [_requested(fixture, case, name) for name in names]
        assert net.decide(own, _shared(case), _visible(fixture, case), asked, 1.0, None)
        for each in asked:
            wanted = np.exp(case[f"logprobs/{each.name}"].astype(np.float32))
            np.testing.assert_allclose(each.answers, wanted, rtol=2e-4, atol=1e-5)
            alone = [_requested(fixture, case, each.name)]
            assert net.decide(own, _shared(case), _visible(fixture, case), alone, 1.0, None)
            np.testing.assert_allclose(alone[0].answers, each.answers, rtol=1e-4, atol=1e-6)
        for name, array in own.items():
            np.testing.assert_array_equal(array, kept[name])


def test_numpy_1_multiplies_rows_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = FIXTURES[3]
    case = fixture.cases()[0]
    first = [_requested(fixture, case, name) for name in fixture.action_space]
    second = [_requested(fixture, case, name) for name in fixture.action_space]
    net = PlainSingleNet(fixture.weights)
    assert net.decide(_own(fixture, case), _shared(case), None, first, 1.0, None)
    monkeypatch.setattr(single, "row_dot", single.einsum_row_dot)
    assert net.decide(_own(fixture, case), _shared(case), None, second, 1.0, None)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.answers, other.answers, rtol=1e-5, atol=1e-5)


def test_gelu_is_exact_enough() -> None:
    x = np.concatenate([np.linspace(-9, 9, 200_001), [-1e6, 1e6, 0.0]]).astype(np.float32)
    expected = torch.nn.functional.gelu(torch.from_numpy(x).double()).numpy()
    np.testing.assert_allclose(ACTIVATIONS["gelu"](x), expected, rtol=1e-6, atol=1.5e-6)


OBS = ObsSpace(("t",), {"A": Entity(("x", "y")), "keys": Entity(()), "B": Entity(("y", "x", "z"))})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(("a", "b", "c")),
    "a.b": SelectEntityActionSpace(),
    "mode": GlobalCategoricalActionSpace(("on", "off")),
    "push": ContinuousActionSpace((-1.0, 5.0), (1.0, 6.0), ("l", "r")),
}
POSITIONED = ObsSpace(("t", "x", "y"), {"A": Entity(("x", "y")), "B": Entity(("y", "x", "z"))})
CONFIGS = [
    RogueNetConfig(d_model=8, n_layer=2, n_head=2, d_qk=4),
    RogueNetConfig(d_model=4, n_layer=0, n_head=1, d_qk=3),
    RogueNetConfig(d_model=6, n_layer=1, n_head=6, d_qk=1),
    RogueNetConfig(d_model=1, n_layer=1, n_head=1, d_qk=1),
]
POSITIONED_CONFIGS = [
    RogueNetConfig(
        d_model=8,
        relpos_encoding=RelposEncodingConfig(
            (2, 3), ("x", "y"), value_relpos_projection=True, per_entity_values=True
        ),
    ),
    RogueNetConfig(
        d_model=8,
        relpos_encoding=RelposEncodingConfig(
            (4, 3),
            ("x", "y"),
            radial=True,
            distance=True,
            interpolate=True,
            rotation_angle_feature="z",
        ),
        translation=TranslationConfig("__global__", ("x", "y"), None, "t", True),
    ),
]


def _weights(obs_space: ObsSpace, config: RogueNetConfig, seed: int, scale: float) -> Weights:
    torch.manual_seed(seed)
    net = RogueNet(obs_space, ACTIONS, config)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("count", "squares_sum")):
                tensor.uniform_(0, 20)
            elif tensor.dtype == torch.float32 and not name.endswith("strides"):
                tensor.normal_(std=scale)
    return net.weights()


@st.composite
def observations(draw: st.DrawFn, obs_space: ObsSpace) -> Observation:
    """Observations with one or more entities, and actors for every action."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = {name: draw(st.integers(0, 4)) for name in obs_space.entities}
    total = sum(counts.values())
    ids = {name: [(name, i) for i in range(count)] for name, count in counts.items()}
    known = [each for name in ids for each in ids[name]]
    chosen = draw(st.lists(st.sampled_from(known), max_size=4)) if known else []
    mask = rng.random((len(chosen), 3)) < 0.5
    mask[:, 1] = True
    pairs = rng.random((len(chosen), total)) < 0.5
    pairs[:, :1] = True
    masked = draw(st.booleans())
    hidden = draw(st.booleans())
    return Observation(
        reward=0.0,
        global_features=rng.normal(size=len(obs_space.global_features)),
        features={
            name: rng.normal(size=(count, len(obs_space.entities[name].features))) * 2
            for name, count in counts.items()
            if count or draw(st.booleans())
        },
        ids={name: each for name, each in ids.items() if each},
        actions={
            "move": CategoricalActionMask(actor_ids=chosen, mask=mask if masked else None),
            "a.b": SelectEntityActionMask(actor_ids=chosen, mask=pairs if masked else None),
            "mode": GlobalCategoricalActionMask([0, 1] if masked else None),
            "push": ContinuousActionMask(actor_ids=chosen),
        },
        visible={"A": rng.random(counts["A"]) < 0.5} if hidden and counts["A"] else {},
    )


def _equal_ways(weights: Weights, observation: Observation) -> None:
    """The fast paths, the general path and torch agree on an observation."""
    agent = NumpyAgent(weights, greedy=True)
    require_same(RogueNet.of(weights), agent._batch_of(observation))
    quick_chosen, quick = agent.choose(observation)
    others = (
        _single_agent(weights, "plain").choose(observation),
        agent._choose_from_batch(observation),
        NeuralAgent(RogueNet.of(weights), greedy=True).choose(observation),
    )
    for chosen, probs in others:
        for name, each in quick.items():
            assert len(each) == len(probs[name]) == len(quick_chosen[name])
            if not len(each):
                continue
            np.testing.assert_allclose(each, probs[name], rtol=1e-3, atol=2e-5)
            best = np.sort(each, axis=1)
            if best.shape[1] == 1 or (best[:, -1] - best[:, -2] > 1e-3).all():
                np.testing.assert_array_equal(quick_chosen[name], chosen[name])
        np.testing.assert_allclose(quick_chosen["push"], chosen["push"], rtol=1e-4, atol=1e-4)


@st.composite
def configs(draw: st.DrawFn, pooling: str | None) -> RogueNetConfig:
    n_head = draw(st.integers(1, 6))
    return RogueNetConfig(
        d_model=n_head * draw(st.integers(1, 4)),
        n_layer=draw(st.integers(0, 2)),
        n_head=n_head,
        d_qk=draw(st.integers(1, 4)),
        separate_value=draw(st.booleans()),
        value_scale=draw(st.booleans()),
        pooling=pooling,
    )


@pytest.mark.slow
@pytest.mark.parametrize("pooling", [None, "mean", "max", "meanmax"])
@settings(max_examples=20)
@given(data=st.data())
def test_all_ways_are_equal(pooling: str | None, data: st.DataObject) -> None:
    config, seed = data.draw(configs(pooling)), data.draw(st.integers(0, 3))
    _equal_ways(_weights(OBS, config, seed, 0.4), data.draw(observations(OBS)))


@pytest.mark.slow
@pytest.mark.parametrize("config", POSITIONED_CONFIGS, ids=["grid", "polar and translated"])
@settings(max_examples=25)
@given(data=st.data())
def test_all_ways_are_equal_with_positions(config: RogueNetConfig, data: st.DataObject) -> None:
    _equal_ways(_weights(POSITIONED, config, 0, 0.4), data.draw(observations(POSITIONED)))


def _of_size(count: int, num_actors: int, is_hidden: bool) -> Observation:
    """An observation of `count` entities and a few others; 5 to 12 make 12 in total."""
    rng = np.random.default_rng(count)
    others = 12 - count if 5 <= count <= 12 else count % 3
    actors = rng.permutation(count)[:num_actors].tolist()
    return _usual(
        features={
            "A": rng.normal(size=(count, 2)).astype(np.float32),
            "B": rng.normal(size=(others, 3)).astype(np.float32),
        },
        ids={"A": list(range(count)), "B": [("B", i) for i in range(others)]},
        actions={
            "move": CategoricalActionMask(actor_ids=actors),
            "a.b": SelectEntityActionMask(actor_ids=actors[:1]),
            "push": ContinuousActionMask(actor_ids=actors),
            "mode": GlobalCategoricalActionMask(),
        },
        visible={"A": np.arange(count) % 2 == 0} if is_hidden else {},
    )


@WAYS
@pytest.mark.parametrize("num_actors", [1, 2, 400])
@pytest.mark.parametrize("is_hidden", [False, True])
def test_sizes_in_turn_are_as_exact(way: str, num_actors: int, is_hidden: bool) -> None:
    agent = _single_agent(_weights(OBS, CONFIGS[0], 4, 0.4), way)
    for count in (1, 9, 70, 5, 2, 300, 9, 5, 2, 70):
        observation = _of_size(count, num_actors, is_hidden)
        quick, slow = agent.choose(observation), agent._choose_from_batch(observation)
        for name, each in quick[1].items():
            np.testing.assert_allclose(each, slow[1][name], rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(quick[0]["push"], slow[0]["push"], rtol=1e-3, atol=1e-4)


@WAYS
def test_a_copy_of_an_agent_decides_alike(way: str) -> None:
    agent = _single_agent(_weights(OBS, CONFIGS[0], 4, 0.4), way)
    expected = agent.choose(_of_size(5, 1, False))[1]["move"]
    for other in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent)), copy.copy(agent)):
        assert type(other._single) is type(agent._single)
        other.choose(_of_size(6, 1, False))
        np.testing.assert_array_equal(other.choose(_of_size(5, 1, False))[1]["move"], expected)


@WAYS
def test_agents_share_a_network_on_any_thread(way: str) -> None:
    agent = _single_agent(_weights(OBS, CONFIGS[0], 4, 0.4), way)
    shown = [_of_size(count, 2, count % 2 == 0) for count in range(3, 11)]
    agents = [copy.copy(agent) for _ in shown]
    expected = [agent.choose(each)[1]["move"] for each in shown]

    def differs(i: int) -> bool:
        found = [agents[i].choose(shown[i])[1]["move"] for _ in range(100)]
        return any(not np.array_equal(each, expected[i]) for each in found)

    with ThreadPoolExecutor(len(shown)) as pool:
        assert not any(pool.map(differs, range(len(shown))))


def _usual(**changes: object) -> Observation:
    given: dict[str, object] = {
        "reward": 0.0,
        "global_features": np.zeros(1, np.float32),
        "features": {
            "A": np.array([[0.0, 1.0], [2.0, -1.0]], np.float32),
            "keys": np.zeros((1, 0), np.float32),
        },
        "ids": {"A": [10, 11], "keys": [12]},
        "actions": {
            "move": CategoricalActionMask(actor_ids=[11]),
            "a.b": SelectEntityActionMask(actor_ids=[12, 10], actee_types=["A"]),
        },
    }
    return Observation(**(given | changes))  # type: ignore[arg-type]  # includes wrong arguments


@WAYS
@pytest.mark.parametrize("scale", [0.4, 30.0, 3000.0])
def test_sharp_attention_is_as_exact(scale: float, way: str) -> None:
    """Logits far outside the range of `exp`, of both signs."""
    weights = _weights(OBS, CONFIGS[0], 5, 0.4)
    tensors = dict(weights.tensors)
    for name, tensor in weights.tensors.items():
        if ".attn.query." in name:
            tensors[name] = tensor * np.float32(scale)
    sharp = Weights(OBS, ACTIONS, weights.config, tensors)
    rng = np.random.default_rng(0)
    own = {"A": rng.normal(size=(9, 2)).astype(np.float32)}
    actions = {"move": CategoricalActionMask(actor_types=["A"])}
    observation = _usual(features=own, ids={}, actions=actions)
    agent = _single_agent(sharp, way)
    np.testing.assert_allclose(
        agent.choose(observation)[1]["move"],
        agent._choose_from_batch(observation)[1]["move"],
        rtol=2e-3,
        atol=1e-4,
    )


@WAYS
def test_rare_forms_take_the_thorough_way(way: str) -> None:
    agent = _single_agent(_weights(OBS, CONFIGS[0], 1, 0.4), way)
    expected = agent.choose(_usual())
    lists = _usual(
        features={"A": [[0, 1], [2, -1]], "keys": [[]]},
        global_features=[0],
        actions={
            "move": CategoricalActionMask(actor_ids=[11], mask=[[1, 1, 1]]),
            "a.b": SelectEntityActionMask(actor_ids=[12, 10], actee_ids=[10, 11]),
        },
    )
    same = _usual(
        features={"A": np.array([[0, 1], [2, -1]]), "keys": np.zeros((1, 0), np.float16)},
        visible={"A": [True, True]},
    )
    for other in (lists, same):
        chosen, probs = agent.choose(other)
        for name in expected[0]:
            np.testing.assert_array_equal(chosen[name], expected[0][name])
            np.testing.assert_allclose(probs[name], expected[1][name], rtol=1e-4)


KEYS = {"keys": np.zeros((1, 0), np.float32)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {**KEYS, "A": np.full((2, 2), np.nan, np.float32)}}, "finite"),
        ({"features": {**KEYS, "A": np.full((2, 2), np.inf)}}, "finite"),
        ({"features": {**KEYS, "A": np.full((2, 2), 1e300)}}, "finite"),
        ({"global_features": [np.nan]}, "finite"),
        ({"global_features": [1e300]}, "finite"),
        ({"global_features": []}, "0 global features, expected 1"),
        ({"features": {"A": np.zeros((2, 3))}}, r"shape \(num_entities, 2\)"),
        ({"features": {"C": np.zeros((2, 3))}}, "'C' is not in the observation space"),
        ({"ids": {"A": [1]}}, "2 rows of features but 1 ids"),
        ({"visible": {"A": [True]}}, "needs 2 bools"),
        ({"visible": {"C": [True]}}, "'C', which does not exist"),
        ({"actions": {"fly": CategoricalActionMask()}}, "'fly' is not in the action space"),
        ({"actions": {"move": GlobalCategoricalActionMask()}}, "does not take a Global"),
        ({"actions": {"move": CategoricalActionMask(actor_ids=[99])}}, "actor 99 is not among"),
        (
            {"actions": {"move": CategoricalActionMask(actor_ids=[10], mask=[[0, 0, 0]])}},
            "no legal choice",
        ),
        (
            {"actions": {"a.b": SelectEntityActionMask(actor_ids=[10], actee_ids=[])}},
            "1 actors have no legal choice",
        ),
        (
            {"actions": {"move": CategoricalActionMask(actor_ids=[10], mask=[[1, 1]])}},
            "shape",
        ),
    ],
)
def test_what_is_wrong_raises(changes: dict[str, object], message: str) -> None:
    weights = _weights(OBS, CONFIGS[0], 1, 0.4)
    plain = _single_agent(weights, "plain")
    for agent in (NumpyAgent(weights), plain, NeuralAgent(RogueNet.of(weights))):
        with pytest.raises(SchemaError, match=message):
            agent.choose(_usual(**changes))


def test_no_entity_and_no_actor_are_no_trouble() -> None:
    obs_space = ObsSpace((), {"A": Entity(("x",))})
    torch.manual_seed(0)
    weights = RogueNet(obs_space, {"move": ACTIONS["move"]}).weights()
    agent = NumpyAgent(weights)
    for features in ({}, {"A": np.zeros((0, 1), np.float32)}, {"A": np.zeros((2, 1), np.float32)}):
        observation = Observation(
            reward=0.0,
            features=features,
            actions={"move": CategoricalActionMask(actor_ids=[])},
        )
        chosen, probs = agent.choose(observation)
        assert chosen["move"].shape == (0,)
        assert probs["move"].shape == (0, 3)
        assert agent.choose(Observation(reward=0.0, features=features))


def test_a_reference_entity_is_needed_once() -> None:
    config = RogueNetConfig(d_model=8, translation=TranslationConfig("B", ("x", "y")))
    weights = _weights(POSITIONED, config, 0, 0.4)
    plain = _single_agent(weights, "plain")
    agents = NumpyAgent(weights), plain, NeuralAgent(RogueNet.of(weights))
    for count in (0, 2):
        observation = Observation(
            reward=0.0,
            global_features=np.zeros(3),
            features={"A": np.zeros((1, 2)), "B": np.zeros((count, 3))},
            actions={"move": CategoricalActionMask(actor_types=["A"])},
        )
        for agent in agents:
            with pytest.raises(SchemaError, match=f"row 0 has {count} entities of type 'B'"):
                agent.choose(observation)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 4.0])
def test_distributions_are_those_of_torch(temperature: float) -> None:
    weights = _weights(OBS, CONFIGS[0], 2, 0.4)
    agent = NumpyAgent(weights, temperature=temperature, seed=0)
    observation = _usual(
        actions={
            "move": CategoricalActionMask(actor_ids=[10, 11], mask=[[1, 0, 1], [1, 1, 1]]),
            "push": ContinuousActionMask(actor_ids=[12]),
        }
    )
    other = NeuralAgent(RogueNet.of(weights), temperature=temperature)
    np.testing.assert_allclose(
        agent.choose(observation)[1]["move"], other.choose(observation)[1]["move"], rtol=1e-4
    )
    batch = other._batch_of(observation)
    ours = {
        name: each.at_temperature(temperature)
        for name, each in NumpyNet(weights).distributions(batch)[0].items()
    }
    theirs = at_temperature(other.net.distributions(batch)[0], temperature)
    push, torch_push = ours["push"], theirs["push"]
    assert isinstance(push, GaussianArrays)
    assert isinstance(torch_push, GaussianDistribution)
    np.testing.assert_allclose(push.mean, torch_push.mean.detach(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(push.log_std, torch_push.log_std.detach(), rtol=1e-5)
    assert isinstance(theirs["move"], CategoricalDistribution)


def test_draws_follow_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    probs = np.array([[0.0, 0.7, 0.3, 0.0], [0.25, 0.25, 0.25, 0.25]], np.float32)
    drawn = np.array([choose_label(probs, False, rng) for _ in range(8000)])
    for row, expected in enumerate(probs):
        shares = np.bincount(drawn[:, row], minlength=4) / len(drawn)
        np.testing.assert_allclose(shares, expected, atol=0.02)
        assert (shares[expected == 0] == 0).all()
    np.testing.assert_array_equal(choose_label(probs, True, rng), [1, 0])
    for row in probs:  # one actor reaches the same choice another way
        for seed in range(50):
            one, two = (np.random.default_rng(seed) for _ in range(2))
            both = choose_label(np.stack([row, row]), False, two)
            assert choose_label(row[None], False, one) == both[0]


class _Edge(np.random.Generator):
    """Generator that returns the largest number of `random`, or 0."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size: object = None, *_: object, **__: object) -> NDArray[np.float64]:  # type: ignore[override]
        return np.full(() if size is None else size, self.value)  # type: ignore[call-overload, no-any-return]


def test_a_draw_at_the_edge_is_allowed() -> None:
    probs = np.array([[0.0, 0.1, 0.9, 0.0], [0.0, 0.0, 0.0, 1.0], [1.0, 0, 0, 0]], np.float32)
    probs[0] /= np.float32(3)
    for value in (0.0, 1 - 2**-53):
        drawn = choose_label(probs, False, _Edge(value))
        assert (probs[np.arange(3), drawn] > 0).all()
        for row in probs:
            assert row[choose_label(row[None], False, _Edge(value))[0]] > 0


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-40, float("nan"), float("inf")])
def test_a_temperature_is_large_enough(temperature: float) -> None:
    weights = _weights(OBS, CONFIGS[1], 0, 0.4)
    with pytest.raises(UsageError, match="temperature must be a finite number of at least 1e-06"):
        NumpyAgent(weights, temperature=temperature)


def _agent(game: Game, **settings: object) -> NumpyAgent:
    torch.manual_seed(0)
    net = RogueNet(game.obs_space(), game.action_space(), RogueNetConfig(d_model=8))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "heads" in name:
                parameter.normal_(std=0.5)
    return NumpyAgent(net.weights(), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("game", [cherry_pick, multi_snake, snake, treasure_hunt, chaos])
def test_it_plays_like_torch_and_tells_its_probabilities(game: Game) -> None:
    def turns(agent: NumpyAgent | NeuralAgent) -> list[Turn]:
        seen: list[Turn] = []
        game.run(agent, episodes=2, seed=3, watch=seen.append)
        return seen

    agent = _agent(game, greedy=True)
    ours = turns(agent)
    theirs = turns(NeuralAgent(RogueNet.of(agent.weights), greedy=True))
    assert len(ours) == len(theirs) > 2
    for turn, other in zip(ours, theirs, strict=True):
        assert turn.score == other.score
        for name, action in turn.actions.items():
            probs = getattr(action, "probs", None)
            if probs is not None:
                expected = getattr(other.actions[name], "probs", np.zeros(0))
                np.testing.assert_allclose(probs, expected, rtol=1e-3, atol=1e-5)
                np.testing.assert_allclose(probs.sum(axis=-1), 1, rtol=1e-5)


def test_a_seed_repeats_itself() -> None:
    first, again = (snake.run(_agent(snake, seed=3), episodes=3, seed=1) for _ in range(2))
    assert first == again


def test_a_product_that_reports_invalid_values_warns_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As some kernels of OpenBLAS do for finite numbers."""
    linear, num_reported = OPERATIONS["linear"], 0

    def reported(*given: object, **constants: object) -> object:
        nonlocal num_reported
        num_reported += 1
        np.subtract(np.float32(np.inf), np.float32(np.inf))
        return linear(*given, **constants)

    monkeypatch.setitem(OPERATIONS, "linear", reported)
    with VecEnv(multi_snake, 3, num_workers=0) as vec:
        _agent(multi_snake).decide_batch(vec.reset(seed=1), multi_snake.schema)
    assert num_reported


def test_it_decides_for_batches() -> None:
    agent = _agent(multi_snake, seed=1)
    assert isinstance(agent, BatchPolicy)
    with VecEnv(multi_snake, 3, num_workers=0) as vec:
        obs = vec.reset(seed=2)
        for _ in range(5):
            obs = vec.act(agent.decide_batch(obs, multi_snake.schema))
    with pytest.raises(CheckpointError, match="trained for a different game"):
        agent.decide_batch(obs, snake.schema)


def test_another_game_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"the checkpoint has the feature 'color', the game"):
        snake.run(_agent(multi_snake), episodes=1)


CODE = """
import sys
for name in ("torch", "safetensors", "msgpack") if {alone} else ("torch", "safetensors"):
    sys.modules[name] = None
from entity_env.agents import load_agent
from entity_env.games import snake
agent = load_agent(sys.argv[1], greedy=True, backend={backend!r})
snake.run(agent, episodes=1, board_size=4) if {alone} else agent
print(sorted(name for name in sys.modules if name.split(".")[0] in ("tensorboard", "scipy")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "auto"])
@pytest.mark.parametrize("alone", [True, False])
def test_no_torch_is_needed(tmp_path: Path, backend: str, alone: bool) -> None:
    path = DATA / "trained_multisnake"
    if alone:
        path = tmp_path
        net = RogueNet(snake.obs_space(), snake.action_space(), RogueNetConfig(d_model=8))
        save_checkpoint(path / "checkpoint", net)
    code = CODE.format(backend=backend, alone=alone)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], text=True, capture_output=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


@given(
    st.integers(0, 5), st.integers(0, 600), st.integers(1, 40), st.integers(1, 900), st.booleans()
)
def test_a_product_is_that_of_numpy(
    stacked: int, rows: int, inner: int, columns: int, transposed: bool
) -> None:
    rng = np.random.default_rng(rows)
    x = rng.random((stacked, rows, inner) if stacked else (rows, inner), np.float32)
    y = rng.random((columns, inner) if transposed else (inner, columns), np.float32)
    y = y.T if transposed else y
    np.testing.assert_allclose(product(x, y), np.matmul(x, y), rtol=1e-5)


THREADS = """
import os, sys, time
import numpy as np
from entity_env import GlobalCategoricalActionMask, Observation
from entity_env.agents import load_agent
from entity_env.agents.rogue_net.numpy_net.functions import product

def cpu_ns():
    own = str(os.getpid())
    found = {t: int(open(f"/proc/self/task/{t}/schedstat").read().split()[0])
             for t in os.listdir("/proc/self/task") if t != own}
    return sum(found.values())

def check(name, decide):
    before, end = cpu_ns(), time.monotonic() + 0.05
    decide()
    while time.monotonic() < end:
        decide()
    assert cpu_ns() == before, name

agent, rng = load_agent(sys.argv[1], backend="numpy"), np.random.default_rng(0)
for length in (1, 10, 150, 500, 1500):
    features = {"Head": rng.random((1, 2)), "Segment": rng.random((length, 2))}
    actions = {"Move": GlobalCategoricalActionMask(None)}
    observation = Observation(reward=0.0, features=features, actions=actions)
    check(f"{length} entities", lambda: agent.choose(observation))
for rows, inner, columns in ((1, 64, 256), (1, 300, 300), (2, 1024, 4096), (700, 512, 3)):
    x, y = rng.random((rows, inner), np.float32), rng.random((inner, columns), np.float32)
    check((rows, inner, columns), lambda: product(x, y))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no times of threads")
def test_a_decision_wakes_no_other_thread() -> None:
    """On a busy machine, waiting for a BLAS thread takes a hundred times as long."""
    path = Path(__file__).parents[4] / "examples" / "ship" / "snake.agent"
    command = [sys.executable, "-c", THREADS, str(path)]
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(command, text=True, capture_output=True, timeout=50, env=free)
    assert (done.returncode, done.stderr) == (0, "")


FORMS = st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.int32])


@st.composite
def arrays_of_any_form(draw: st.DrawFn) -> NDArray[np.generic] | None:
    """Arrays of the wrong type, shape or layout now and then, and of numbers out of range."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    values = draw(st.sampled_from([0, 1, 3, -1, 2**40]))
    with np.errstate(all="ignore"):
        array: NDArray[np.generic] = np.full(shape, values).astype(draw(FORMS))
    if draw(st.booleans()) and array.ndim == 2:
        array = np.asfortranarray(array)
    array.flags.writeable = draw(st.booleans())
    return None if draw(st.integers(0, 9)) == 0 else array


@pytest.mark.skipif(
    not single.IS_COMPILED, reason="needs the module in C, which was not built here"
)
@settings(max_examples=300)
@given(data=st.data())
def test_wrong_arguments_are_declined_in_c(data: st.DataObject) -> None:
    net = _single(_weights(OBS, CONFIGS[0], 1, 0.4), "compiled")
    anything = arrays_of_any_form()
    right = {
        "A": np.zeros((3, 2), np.float32),
        "keys": np.zeros((1, 0), np.float32),
        "B": np.zeros((2, 3), np.float32),
    }
    own = {name: data.draw(st.just(array) | anything) for name, array in right.items()}
    rows = data.draw(st.sampled_from([np.arange(3), np.array([5]), np.array([6]), np.array([-1])]))
    answers = np.full((len(rows), 3), np.nan, np.float32)
    request = (
        data.draw(st.sampled_from(["move", "push", "mode", "a.b", "nothing", 3])),
        data.draw(st.just(rows) | anything),
        data.draw(st.none() | st.just(np.arange(3)) | anything),
        data.draw(st.none() | st.just(np.ones((len(rows), 3), np.bool_)) | anything),
        data.draw(st.just(answers) | anything),
    )
    shared = data.draw(st.just(np.zeros(1, np.float32)) | anything)
    visible = data.draw(st.none() | st.just(np.ones(7, np.bool_)) | anything)
    twice = data.draw(st.booleans())
    state = data.draw(st.none() | anything) if data.draw(st.booleans()) else None
    decided = net.decide(own, shared, visible, [request] * (1 + twice), 1.0, state)  # type: ignore[arg-type, list-item]
    assert decided in (True, False)
    if decided and request[4] is answers and request[0] != "push":
        np.testing.assert_allclose(answers.sum(axis=1), 1, rtol=1e-5)
    assert not (decided and twice)


@pytest.mark.skipif(
    not single.IS_COMPILED, reason="needs the module in C, which was not built here"
)
def test_a_network_in_c_is_made_of_an_agent_file() -> None:
    from entity_env.agents.rogue_net.numpy_net._forward import Forward

    with pytest.raises(ValueError, match="agent file"):
        Forward(b"nothing", ())
    wrong: list[tuple[Any, ...]] = [(), (b"", ()), ("text", ()), (b"x", 3)]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError)):
            Forward(*arguments)
    net = _single(_weights(OBS, CONFIGS[0], 1, 0.4), "compiled")
    wrong = [(), ({}, 1, 2, 3, 4, 5), ([], None, None, [], 1.0, 0), ({}, None, None, [], "x", 0)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            net.decide(*arguments)
