"""All readers of a network decide the same on the same file and observation, or refuse the same.

The readers are numpy for batches and for single observations, torch, `entity_agent.h` (alone and in
Python), `network.mjs` and ONNX. Observations have numbers up to the largest of float32.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.peers.network_in_c import CLibrary
from benchmarks.peers.network_vectors import (
    NODE,
    NetworkInNode,
    Vector,
    network_in_node,
    random_weights,
    vectors_of,
)
from entity_env.agents.rogue_net import (
    MLPConfig,
    NeuralAgent,
    NumpyAgent,
    RelposEncodingConfig,
    RogueNetConfig,
    Weights,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes, agent_from_bytes
from entity_env.agents.rogue_net.config import NetConfig, state_width
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.single import IS_COMPILED, PlainSingleNet
from entity_env.core.observation import Observation
from entity_env.core.spaces import ContinuousActionSpace, Spaces, has_dependent
from entity_env.errors import CheckpointError, SchemaError
from tests.page.test_network import (
    ACTIONS,
    CONFIGS,
    DEPENDENT_CONFIGS,
    FLAT,
    FLAT_ACTIONS,
    OBS,
    SMALL,
    Translate,
    configs,
    dependent_observation,
    observed,
    placed,
    positions,
)

pytestmark = pytest.mark.skipif(
    NODE is None or shutil.which("gcc") is None, reason="needs Node and gcc"
)
onnxruntime: Any = pytest.importorskip("onnxruntime")
from tests.agents.rogue_net.onnx_net import test_file as in_onnx  # noqa: E402 - imports onnx

LARGEST = float(np.finfo(np.float32).max)
ODD = (0.0, -0.0, 1e-45, -1e-40, 1e10, 1e18, -1e18, 3e18, -1e30, 1e30, LARGEST, -LARGEST, 3e38)
MAX_DIFFERENCE = 1e-5
BUILDS = ("", "-DEA_NO_AVX2", "-DEA_NO_VECTORS")
UNUSABLE = "the network computes"
Answer: TypeAlias = Mapping[str, Any] | str
"""Probabilities and numbers by action, or the error."""


class Others(NamedTuple):
    """Readers outside of Python: `network.mjs`, and builds of `entity_agent.h`."""

    node: NetworkInNode
    headers: Sequence[CLibrary]

    def compare(self, content: bytes, vectors: Sequence[Vector] = ()) -> dict[str, Any]:
        """What `compare` of every reader returns, by name."""
        found = {f"C {i}": each.compare(content, vectors) for i, each in enumerate(self.headers)}
        return {"JavaScript": self.node.compare(content, vectors), **found}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((), id="JavaScript"),
        pytest.param(BUILDS, id="C", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def others(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Others]:
    headers = [
        CLibrary(tmp_path_factory.mktemp("c"), ["gcc", "-std=c99", "-O1", *build.split()])
        for build in request.param
    ]
    with network_in_node() as node:
        yield Others(node, headers)


def _numpy(weights: Weights) -> NumpyAgent:
    agent = NumpyAgent(weights, greedy=True)
    agent._single = None
    return agent


def _plain(weights: Weights) -> NumpyAgent | None:
    agent = NumpyAgent(weights, greedy=True)
    if has_dependent(weights.action_space) or not isinstance(weights.config, RogueNetConfig):
        return None
    if not PlainSingleNet.fits(weights):
        return None
    agent._single = PlainSingleNet(weights)
    return agent


AGENTS: Mapping[str, Callable[[Weights], TrainedAgent | None]] = {
    "numpy, single observations": _plain,
    "C in Python": lambda weights: NumpyAgent(weights, greedy=True) if IS_COMPILED else None,
    "torch": lambda weights: NeuralAgent.of(weights, greedy=True),
}


def _answer(agent: TrainedAgent, observation: Observation) -> Answer:
    """What an agent in Python decides; it then remembers the observation."""
    spaces = agent._spaces[1]
    try:
        chosen, probs = agent.choose(observation)
        agent.watch(observation)
    except (CheckpointError, SchemaError) as error:
        return str(error)
    numbers = {
        name: rows
        for name, rows in chosen.items()
        if isinstance(spaces[name], ContinuousActionSpace) and name in observation.actions
    }
    return {**{name: probs[name] for name in observation.actions if name in probs}, **numbers}


def _require_equal(found: Answer, expected: Answer, where: str) -> None:
    if isinstance(expected, str) or isinstance(found, str):
        assert isinstance(found, str), (where, expected)
        assert isinstance(expected, str), (where, found)
        assert (UNUSABLE in found) == (UNUSABLE in expected), (where, found, expected)
        return
    assert found.keys() == expected.keys(), where
    for name, rows in expected.items():
        wanted, got = np.asarray(rows, np.float64), np.asarray(found[name], np.float64)
        assert np.isfinite(wanted).all(), (where, name)
        scale = np.maximum(1, np.abs(wanted))
        difference = (np.abs(got.reshape(wanted.shape) - wanted) / scale).max(initial=0)
        assert difference <= 10 * MAX_DIFFERENCE, (where, name, difference)


def require_agreement(weights: Weights, shown: Sequence[Observation], others: Others) -> int:
    """All readers of the file agree about an episode; returns how many observations they refuse."""
    content = agent_bytes(weights)
    weights = agent_from_bytes(content, "the file")
    made = {name: make(weights) for name, make in AGENTS.items()}
    agents = {name: agent for name, agent in made.items() if agent is not None}
    base, num_refused = _numpy(weights), 0
    for observation in shown:
        expected = _answer(base, observation)
        num_refused += isinstance(expected, str)
        for name, agent in agents.items():
            _require_equal(_answer(agent, observation), expected, name)
    if num_refused or has_dependent(weights.action_space):
        return num_refused
    vectors = vectors_of(weights, shown)
    for name, found in others.compare(content, vectors).items():
        assert "error" not in found, (name, found)
        assert found["other_choices"] == 0, (name, found)
        for kind in ("probabilities", "values", "numbers", "states"):
            assert found[kind] <= 10 * MAX_DIFFERENCE, (name, kind, found)
    config = weights.config
    has_angle = isinstance(config, RogueNetConfig) and (
        (config.relpos_encoding and config.relpos_encoding.radial) or config.translation is not None
    )
    if not (state_width(config) or weights.obs_space.relations or has_angle):
        in_onnx.require_equal(weights, [each for each in vectors if each["probabilities"]])
    return 0


def hostile(observation: Observation, spaces: Spaces, seed: int) -> Observation:
    """The observation with a third of its numbers replaced, up to the largest float32."""
    rng = np.random.default_rng(seed)
    obs_space = spaces[0]
    for name, rows in observation.features.items():
        array = np.array(rows, np.float64)
        first = 2 if name in obs_space.relations else 0
        is_odd = rng.random(array.shape) < 0.35
        is_odd[:, :first] = False
        array[is_odd] = rng.choice(ODD, int(is_odd.sum()))
        observation.features = {**observation.features, name: array}
    shared = np.array(observation.global_features, np.float64)
    is_odd = rng.random(shared.shape) < 0.35
    shared[is_odd] = rng.choice(ODD, int(is_odd.sum()))
    observation.global_features = shared
    return observation


def episode(spaces: Spaces, seed: int, count: int) -> list[Observation]:
    make = dependent_observation if has_dependent(spaces[1]) else observed
    return [hostile(make(spaces, seed + i), spaces, seed + i) for i in range(count)]


FAST = ("two layers", "angles", "extrapolated", "turned by a vector", "relations", "MLP", "CNN")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow])
        for name in (*CONFIGS, *DEPENDENT_CONFIGS)
    ],
)
def test_readers_agree_on_extreme_numbers(name: str, others: Others) -> None:
    obs_space, actions, config = (CONFIGS | DEPENDENT_CONFIGS)[name]
    spaces = obs_space, actions
    weights = random_weights(spaces, config, seed=len(name))
    assert require_agreement(weights, episode(spaces, 11, 6), others) == 0


_TURNED: dict[str, Any] = {"rotation_vec_features": ("z", "t")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("others", [pytest.param(BUILDS, id="C")], indirect=True)
@settings(max_examples=300)
@given(
    relpos=st.none() | positions(),
    translation=st.sampled_from([None, Translate(), Translate(**_TURNED, add_dist_feature=True)]),
    plain=configs(),
    seed=st.integers(0, 9999),
    is_linked=st.booleans(),
)
def test_readers_agree_in_random_games(
    relpos: RelposEncodingConfig | None,
    translation: Any,  # noqa: ANN401
    plain: RogueNetConfig,
    seed: int,
    is_linked: bool,
    others: Others,
) -> None:
    has_own_value = plain.separate_value and translation is None  # it has no global entity
    config: NetConfig = replace(plain, translation=translation, separate_value=has_own_value)
    if relpos is not None:
        # Extrapolation multiplies by the distance, and differences of rounding with it.
        relpos = replace(relpos, enable_negative_distance_weight_bug=False)
        config = placed(relpos, translation=translation, memory=plain.memory)
    name = "relations and positions" if is_linked else "positions of a value network"
    spaces = CONFIGS[name][0], ACTIONS
    weights = random_weights(spaces, config, seed)
    assert require_agreement(weights, episode(spaces, seed, 3), others) == 0


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        (MLPConfig((8, 8), norm_inputs=False), 9e17),
        pytest.param(SMALL(memory=3), 1e12, marks=pytest.mark.slow),
        pytest.param(SMALL(memory=3), 9e17, marks=pytest.mark.slow),
    ],
)
def test_readers_agree_on_huge_parameters(config: NetConfig, scale: float, others: Others) -> None:
    """Sums that overflow are refused, and never a choice of NaN."""
    spaces = (FLAT, FLAT_ACTIONS) if isinstance(config, MLPConfig) else (OBS, ACTIONS)
    good = random_weights(spaces, config, 3)
    shown, num_refused = episode(spaces, 5, 4), 0
    names = [name for name, each in good.tensors.items() if each.ndim == 2 and each.size > 1]
    for i, name in enumerate(names):
        tensor = good.tensors[name].copy()
        tensor.flat[i % tensor.size] = scale
        weights = replace(good, tensors={**good.tensors, name: tensor})
        content = agent_bytes(weights)
        for observation in shown:
            base, agents = _numpy(weights), [make(weights) for make in AGENTS.values()]
            expected = _answer(base, observation)
            for agent in agents:
                if agent is not None:
                    _require_equal(_answer(agent, observation), expected, name)
            if isinstance(expected, str):
                num_refused += 1
                vector = vectors_of(good, [observation])[0]
                for found in others.compare(content, [vector]).values():
                    assert UNUSABLE in found["error"], name
    assert bool(num_refused) == (scale > 1e15 and isinstance(config, RogueNetConfig))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -2e18])
def test_readers_refuse_a_file_with_a_wrong_parameter(wrong: float, others: Others) -> None:
    good = random_weights((OBS, ACTIONS), SMALL())
    for name, tensor in good.tensors.items():
        if name.endswith(("count", "mean", "squares_sum")):
            continue
        changed = tensor.copy()
        changed.flat[-1] = wrong
        content = agent_bytes(replace(good, tensors={**good.tensors, name: changed}))
        with pytest.raises(CheckpointError, match=r"holds numbers .*not finite|above 1e\+18"):
            agent_from_bytes(content, "the file")
        for found in others.compare(content).values():
            assert f"numbers that are not finite, or too large, in {name}" in found["error"]


@pytest.mark.parametrize("wrong", [1e39, -1e300])
def test_readers_refuse_a_feature_beyond_float32(wrong: float, others: Others) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    good = next(o for o in (observed((OBS, ACTIONS), i) for i in range(9)) if len(o.features["B"]))
    rows = np.array(good.features["B"], np.float64)
    assert len(rows)
    [vector] = vectors_of(weights, [good])
    rows[-1, 1] = wrong
    bad = replace(good, features={**good.features, "B": rows})
    for make in (_numpy, *AGENTS.values()):
        agent = make(weights)
        if agent is not None:
            assert "entity B: feature 'x' of row" in str(_answer(agent, bad))
    asked = {**vector["observation"]["features"], "B": rows.tolist()}
    vector = {**vector, "observation": {**vector["observation"], "features": asked}}
    for found in others.compare(agent_bytes(weights), [vector]).values():
        assert re.search(f"numbers of B|others of B {len(rows) - 1}", found["error"])
