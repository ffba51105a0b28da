"""An ONNX file decides as numpy does, for every kind of network, in ONNX Runtime."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from numpy.typing import NDArray

from benchmarks.peers.network_vectors import Vector, episode_vectors, random_weights, vectors_of
from entity_env import Entity, Observation, ObsSpace
from entity_env.agents.rogue_net import (
    RelposEncodingConfig,
    RogueNetConfig,
    Weights,
    operations,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import (
    agent_bytes,
    agent_checksum,
    read_agent,
)
from entity_env.agents.rogue_net.config import net_from_json, state_width
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.onnx_net import file as onnx_file
from entity_env.agents.rogue_net.onnx_net.file import inputs_of, onnx_bytes, write_onnx
from entity_env.agents.rogue_net.onnx_net.samples import sampled_batches
from entity_env.core.spaces import spaces_from_json
from entity_env.errors import CheckpointError, SchemaError
from entity_env.games.registry import GAMES
from tests import ROOT
from tests.helpers.strategies import action_spaces, obs_spaces, observations
from tests.page.test_network import (
    ACTIONS,
    CONFIGS,
    DEPENDENT_CONFIGS,
    FLAT,
    OBS,
    PLACED,
    SHIPPED,
    SMALL,
    Translate,
    configs,
    observed,
    placed,
    positions,
    without_value,
)

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
onnxruntime: Any = pytest.importorskip("onnxruntime")
from entity_env.agents.rogue_net.onnx_net.net import OnnxNet  # noqa: E402 - imports onnx

MAX_DIFFERENCE = 1e-5
SLOW = {"cartpole", "mountain_car", "pendulum"}
UNUSED = ("backbone.relpos_encoding.strides", "backbone.relpos_encoding.distance_values")
"""Tensors without effect."""
IN_UNITY = {
    *("Abs", "Add", "And", "Atan", "Cast", "Clip", "Concat", "Conv", "Cos", "Div", "Equal", "Erf"),
    *("Expand", "Gather", "Gemm", "Greater", "Identity", "Less", "LogSoftmax", "MatMul", "Max"),
    *("Min", "Mod", "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMean", "ReduceSum", "Relu"),
    *("Reshape", "Round", "Shape", "Sigmoid", "Sin", "Slice", "Softmax", "Sqrt", "Sub", "Tanh"),
    *("Transpose", "Unsqueeze", "Where"),
}
"""Operators in the table of com.unity.sentis 1.4 to 2.1, as far as networks use them."""


def session_of(content: bytes) -> Any:  # noqa: ANN401 - has no types
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def given_by(session: Any, weights: Weights, observation: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """The inputs for an observation in JSON, as a program in another language makes them."""
    features, actions = observation["features"], observation["actions"]
    found: dict[str, Any] = {}
    for each in session.get_inputs():
        part, _, name = each.name.partition("/")
        rows, request = features.get(name, []), actions.get(name, {})
        num_actors = len(request.get("actors", [])) if name in actions else 0
        if part == "globals":
            found[each.name] = np.array(observation["globals"], np.float32)
        elif part == "features":
            width = len(weights.obs_space.entities[name].features)
            found[each.name] = np.array(rows, np.float32).reshape(len(rows), width)
        elif part == "visible":
            flags = observation["visible"].get(name, [True] * len(rows))
            found[each.name] = np.array(flags, np.bool_)
        elif part in ("actors", "actees"):
            found[each.name] = np.array(request.get(part, []), np.int64)
        else:
            one, num_choices = each.shape
            num_choices = (
                num_choices if isinstance(num_choices, int) else len(request.get("actees", []))
            )
            num_actors = 1 if one == 1 else num_actors
            mask = request.get("mask", [[True] * num_choices] * num_actors)
            found[each.name] = np.array(mask, np.bool_).reshape(num_actors, num_choices)
    return found


def require_equal(weights: Weights, vectors: Iterable[Vector], *, has_visible: bool = True) -> None:
    """Compares probabilities, means and values with numpy's."""
    is_flat = not isinstance(weights.config, RogueNetConfig)
    session = session_of(onnx_bytes(weights, has_visible=has_visible and not is_flat))
    names = [each.name for each in session.get_outputs()]
    num_compared = 0
    for vector in vectors:
        inputs = given_by(session, weights, vector["observation"])
        found = dict(zip(names, session.run(None, inputs), strict=True))
        for action, probabilities in vector["probabilities"].items():
            logprobs = found[f"logprobs/{action}"]
            expected = np.array(probabilities, np.float32).reshape(logprobs.shape)
            np.testing.assert_allclose(np.exp(logprobs), expected, rtol=0, atol=MAX_DIFFERENCE)
            num_compared += len(expected)
        for action, numbers in vector["numbers"].items():
            space: Any = weights.action_space[action]
            mean, std = found[f"mean/{action}"], found[f"std/{action}"]
            chosen = np.clip(mean, space.low, space.high)
            expected = np.array(numbers).reshape(-1, len(space))
            np.testing.assert_allclose(
                np.broadcast_to(chosen, expected.shape), expected, rtol=1e-5, atol=MAX_DIFFERENCE
            )
            scale = np.subtract(space.high, space.low) / 2
            deviation = scale * np.exp(weights.tensors[f"action_heads.{action}.log_std"])
            np.testing.assert_allclose(std, np.broadcast_to(deviation, std.shape), rtol=1e-5)
            num_compared += len(expected)
        if vector["value"] is None:
            assert "value" not in found
        else:
            assert found["value"].shape == (1,)
            np.testing.assert_allclose(found["value"], [vector["value"]], rtol=1e-5, atol=1e-5)
    assert num_compared


# ---------------------------------------------------------------- games


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SHIPPED],
)
def test_shipped_agents_decide_the_same(name: str) -> None:
    weights = read_agent(ROOT / "examples" / SHIPPED[name])
    require_equal(weights, episode_vectors(GAMES[name], weights, 20))


# ---------------------------------------------------------------- every option


GRAPHS = [
    name
    for name, (obs_space, _, config) in CONFIGS.items()
    if not state_width(config) and not obs_space.relations
]
"""Networks without memory and relations, which a graph cannot have."""


@pytest.mark.parametrize("name", GRAPHS)
def test_every_option_has_the_same_effect(name: str) -> None:
    obs_space, actions, config = CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=len(name))
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    is_radial = relpos is not None and relpos.radial
    shown = [observed((obs_space, actions), seed, is_radial=is_radial) for seed in range(1, 11)]
    require_equal(weights, vectors_of(weights, shown))


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_is_valid_and_has_operators_of_unity(name: str) -> None:
    obs_space, actions, config = CONFIGS[name]
    model = onnx.load_from_string(onnx_bytes(random_weights((obs_space, actions), config)))
    onnx.checker.check_model(model, full_check=True)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 15)]
    assert model.ir_version <= 8
    assert {node.op_type for node in model.graph.node} <= IN_UNITY
    used = {name for node in model.graph.node for name in node.input}
    assert {each.name for each in model.graph.initializer} <= used


@pytest.mark.parametrize("name", GRAPHS)
def test_the_reference_implementation_of_onnx_agrees(name: str) -> None:
    """Results do not depend on ONNX Runtime, not even for empty arrays."""
    obs_space, actions, config = CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=len(name))
    content = onnx_bytes(weights)
    session, reference = session_of(content), onnx.reference.ReferenceEvaluator(content)
    names = [each.name for each in session.get_inputs()]
    for batch in sampled_batches(weights, 2, has_visible=False):
        inputs = inputs_of(batch, weights, names)
        with np.errstate(divide="ignore"):  # log(0) of a choice that is not allowed
            expected = reference.run(None, inputs)
        for each, one, two in zip(
            session.get_outputs(), session.run(None, inputs), expected, strict=True
        ):
            assert one.shape == two.shape, each.name
            if each.name.startswith("logprobs/"):
                one, two = np.exp(one), np.exp(two)
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=MAX_DIFFERENCE)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_entity_may_be_missing(name: str) -> None:
    obs_space, actions, config = CONFIGS[name]
    weights = random_weights((obs_space, actions), config)
    zeros = np.zeros(len(obs_space.global_features))
    session = session_of(onnx_bytes(weights))
    empty = {"features": {}, "globals": zeros, "visible": {}, "actions": {}}
    found = session.run(None, given_by(session, weights, empty))
    for each, values in zip(session.get_outputs(), found, strict=True):
        is_one = each.name == "value" or each.shape[0] == 1
        assert len(values) == is_one, each.name
    if "value" in (names := [each.name for each in session.get_outputs()]):
        blank = Observation(reward=0.0, global_features=zeros)
        value = vectors_of(weights, [blank])[0]["value"]
        np.testing.assert_allclose(found[names.index("value")], [value], atol=MAX_DIFFERENCE)


def test_hidden_entities_may_be_left_out() -> None:
    """The policy does not depend on them, so a file needs no inputs for them."""
    weights = random_weights((OBS, {"mode": ACTIONS["mode"]}), SMALL())
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4, 2))
    shown, part = (
        Observation(
            reward=0.0,
            global_features=[1.0],
            features={"A": each},
            actions=observed((OBS, {"mode": ACTIONS["mode"]}), 1).actions,
            visible=flags,
        )
        for each, flags in ((rows, {"A": [True, False, True, False]}), (rows[::2], {}))
    )
    one, two = vectors_of(weights, [shown, part])
    one["value"] = two["value"]
    np.testing.assert_allclose(
        one["probabilities"]["mode"], two["probabilities"]["mode"], atol=MAX_DIFFERENCE
    )
    require_equal(weights, [two], has_visible=False)


@pytest.mark.parametrize("turn", [0.0, 0.5, np.pi / 2, -3.0])
def test_a_reference_entity_is_at_the_origin(turn: float) -> None:
    translation = replace(
        Translate(add_dist_feature=True), reference_entity="A", rotation_angle_feature="z"
    )
    relpos = RelposEncodingConfig((2, 2), ("x", "y"))
    weights = random_weights(
        (PLACED, {"move": ACTIONS["move"]}), placed(relpos, translation=translation)
    )
    seen = observed((PLACED, {"move": ACTIONS["move"]}), 2)
    seen.features = {**seen.features, "A": np.array([[1.0, -2.0, turn]])}
    seen = Observation(
        reward=0.0,
        global_features=seen.global_features,
        features=seen.features,
        actions={"move": type(next(iter(seen.actions.values())))()},
    )
    require_equal(weights, vectors_of(weights, [seen]), has_visible=False)


def test_uncounted_features_are_only_clipped() -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    shown = [observed((OBS, ACTIONS), seed) for seed in range(4)]
    for count in (0.0, 1.0, 2.0):
        tensors = {
            name: np.array(count, np.float32) if name.endswith("count") else each
            for name, each in weights.tensors.items()
        }
        fresh = replace(weights, tensors=tensors)
        require_equal(fresh, vectors_of(fresh, shown))


def test_an_untrained_value_is_no_output() -> None:
    weights = random_weights((OBS, ACTIONS), SMALL(separate_value=True))
    untrained = without_value(weights)
    require_equal(untrained, vectors_of(untrained, [observed((OBS, ACTIONS), 1)]))
    assert len(onnx_bytes(untrained)) < 0.7 * len(onnx_bytes(weights))
    with pytest.raises(SchemaError, match="neither actions nor a value"):
        onnx_bytes(Weights(OBS, {}, *_value_only(untrained)))


def _value_only(weights: Weights) -> tuple[RogueNetConfig, dict[str, NDArray[Any]]]:
    return SMALL(), dict(without_value(random_weights((OBS, {}), SMALL())).tensors)


# ---------------------------------------------------------------- random networks


@given(data=st.data())
def test_random_games_are_decided_the_same(data: st.DataObject) -> None:
    spaces = data.draw(obs_spaces()), data.draw(action_spaces())
    assume(spaces[0].entities)
    config = replace(data.draw(configs()), memory=0)
    weights = random_weights(spaces, config, data.draw(st.integers(0, 99)))
    shown = [data.draw(observations(*spaces)) for _ in range(2)]
    vectors = vectors_of(weights, shown)
    assume(any(map(len, (part for v in vectors for part in v["probabilities"].values()))))
    require_equal(weights, vectors)


@given(relpos=positions(), seeds=st.lists(st.integers(0, 999), min_size=3, max_size=3))
def test_random_positions_have_the_same_effect(
    relpos: RelposEncodingConfig, seeds: Sequence[int]
) -> None:
    weights = random_weights((PLACED, ACTIONS), placed(relpos), seeds[0])
    shown = [observed((PLACED, ACTIONS), 4 * seed + 1, is_radial=relpos.radial) for seed in seeds]
    require_equal(weights, vectors_of(weights, shown))


# ---------------------------------------------------------------- files


def test_the_file_describes_its_network(tmp_path: Path) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    lines = write_onnx(tmp_path / "x.onnx", weights, game="zoo")
    model = onnx.load(tmp_path / "x.onnx")
    metadata = {each.key: each.value for each in model.metadata_props}
    assert metadata["game"] == "zoo"
    assert metadata["version"] == "1"
    assert metadata["checksum"] == agent_checksum(agent_bytes(weights))
    assert len(metadata["checksum"]) == 64
    assert spaces_from_json(json.loads(metadata["spaces"])) == (OBS, ACTIONS)
    assert net_from_json(json.loads(metadata["net"])) == weights.config
    assert lines == (
        "input features/A: float32 (num_A, 2)",
        "input features/keys: float32 (num_keys, 0)",
        "input features/B: float32 (num_B, 3)",
        "input globals: float32 (1)",
        "input actors/move: int64 (actors_move)",
        "input mask/move: bool (actors_move, 3)",
        "input actors/a.b: int64 (actors_a.b)",
        "input actees/a.b: int64 (actees_a.b)",
        "input mask/a.b: bool (actors_a.b, actees_a.b)",
        "input mask/mode: bool (1, 2)",
        "input actors/push: int64 (actors_push)",
        "output logprobs/move: float32 (actors_move, 3)",
        "output logprobs/a.b: float32 (actors_a.b, actees_a.b)",
        "output logprobs/mode: float32 (1, 2)",
        "output mean/push: float32 (actors_push, 2)",
        "output std/push: float32 (actors_push, 2)",
        "output value: float32 (1)",
    )


def test_the_same_network_makes_the_same_bytes() -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    assert onnx_bytes(weights) == onnx_bytes(weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two layers", "polar", "MLP", "CNN"])
def test_another_result_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every matrix matters to the comparison before a file is written."""
    obs_space, actions, config = CONFIGS[name]
    weights = random_weights((obs_space, actions), config, seed=1)
    changed = {
        part: np.where(each > each.mean(), each * np.float32(1.05), each)
        for part, each in weights.tensors.items()
        if each.dtype == np.float32 and each.ndim == 2 and not part.startswith(UNUSED)
    }
    path = tmp_path / "x.onnx"
    for part, tensor in changed.items():
        other = NumpyNet(replace(weights, tensors={**weights.tensors, part: tensor}))
        monkeypatch.setattr(onnx_file, "NumpyNet", lambda _, other=other: other)
        with pytest.raises(CheckpointError, match=r"of onnxruntime differs by .* from numpy's for"):
            write_onnx(path, weights)
    assert not list(tmp_path.iterdir())


def test_a_network_that_overflows_is_refused(tmp_path: Path) -> None:
    weights = random_weights((OBS, ACTIONS), SMALL())
    tensors = {
        name: np.full_like(each, 1e18) if name.endswith("weight") else each
        for name, each in weights.tensors.items()
    }
    with pytest.raises(CheckpointError, match=r"computes (nan|inf) for"):
        write_onnx(tmp_path / "x.onnx", replace(weights, tensors=tensors))
    assert not list(tmp_path.iterdir())


def test_deep_and_certain_networks_are_written(tmp_path: Path) -> None:
    """Rounding alone changes their probabilities by more than the limit."""
    weights = random_weights((OBS, ACTIONS), RogueNetConfig(128, 8, pooling="meanmax"))
    tensors = {
        name: each * np.float32(30) if "query_proj" in name else each
        for name, each in weights.tensors.items()
    }
    write_onnx(tmp_path / "x.onnx", replace(weights, tensors=tensors))


@pytest.mark.slow
def test_many_entity_types_are_written_in_bounded_memory(tmp_path: Path) -> None:
    obs_space = ObsSpace(("t",), {f"{i:x}": Entity(("x",)) for i in range(300)})
    config = RogueNetConfig(d_model=2, n_layer=1, n_head=1)
    weights = random_weights((obs_space, {"a.b": ACTIONS["a.b"]}), config)
    write_onnx(tmp_path / "x.onnx", weights)
    batches = sampled_batches(weights, 24, has_visible=False)
    most = max(sum(len(each.values) for each in batch.features.values()) for batch in batches)
    assert 40 < most < 200


def test_every_kind_of_operation_has_a_method() -> None:
    kinds = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", operations.__doc__ or "", re.M))
    )
    assert len(kinds) > 18
    missing = [kind for kind in kinds if not callable(getattr(OnnxNet, kind, None))]
    # A graph has no state and no relations, and makes no choices: such networks are refused.
    assert sorted(missing) == ["choice", "ends", "pairs", "recur", "relate"]


def test_an_operation_without_a_method_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(OnnxNet, "attend")
    with pytest.raises(SchemaError, match="the operation 'attend' cannot be written as ONNX"):
        write_onnx(tmp_path / "x.onnx", random_weights((OBS, ACTIONS), SMALL()))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["entities", "MLP"])
def test_actions_that_depend_on_others_are_refused(name: str, tmp_path: Path) -> None:
    obs_space, actions, config = DEPENDENT_CONFIGS[name]
    with pytest.raises(SchemaError) as caught:
        write_onnx(tmp_path / "x.onnx", random_weights((obs_space, actions), config))
    first, before = ("share", "target") if name == "entities" else ("pair", "mode")
    assert str(caught.value) == (
        f"action {first!r} depends on the choice of {before!r}, which an ONNX graph cannot make: "
        "write an .agent file instead"
    )
    assert not list(tmp_path.iterdir())


def test_inputs_without_effect_are_left_out() -> None:
    obs_space, actions, config = CONFIGS["MLP"]
    session = session_of(onnx_bytes(random_weights((obs_space, actions), config)))
    assert not obs_space.entities["Wall"].features
    assert [each.name for each in session.get_inputs()] == [
        "features/Car",
        "globals",
        "mask/mode",
    ]


def test_an_mlp_has_no_inputs_for_hidden_entities() -> None:
    obs_space, actions, config = CONFIGS["MLP"]
    with pytest.raises(SchemaError, match="an MLP or CNN reads hidden entities like visible ones"):
        onnx_bytes(random_weights((obs_space, actions), config), has_visible=True)
    assert obs_space is FLAT
