"""Input of a network: moved positions, single observations, compiled code, damaged files."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.agents.rogue_net import (
    ObsBatch,
    RogueNetConfig,
    TranslationConfig,
    Weights,
)
from entity_env.agents.rogue_net.checkpoints.agent_file import MAGIC, agent_bytes, agent_from_bytes
from entity_env.agents.rogue_net.features import Inputs, input_features
from entity_env.agents.rogue_net.numpy_net.single_reader import SingleObservationReader
from entity_env.agents.rogue_net.weights import expected_tensors
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    ContinuousActionMask,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import CheckpointError, SchemaError

SPACE = ObsSpace(
    ["time"],
    {
        "Ship": Entity(["x", "y", "angle", "dx", "dy"]),
        "Rock": Entity(["size", "y", "x"]),
        "Flag": Entity(["x"]),
    },
)
ACTIONS: dict[str, ActionSpace] = {
    "go": CategoricalActionSpace(["a", "b"]),
    "pick": SelectEntityActionSpace(),
    "push": ContinuousActionSpace([0.0, 0.0], [1.0, 1.0], ["p", "q"]),
    "mood": GlobalCategoricalActionSpace(["calm", "wild", "off"]),
}
WIDTHS = {name: len(entity.features) for name, entity in SPACE.entities.items()}


def moved_by_hand(
    rock: list[float], ship: list[float], config: TranslationConfig
) -> tuple[list[float], float]:
    """Size, y and x of a rock relative to a ship, and its distance."""
    size, y, x = rock[0], rock[1] - ship[1], rock[2] - ship[0]
    turn = 1 + 0j
    if config.rotation_angle_feature is not None:
        turn = complex(math.cos(ship[2]), math.sin(ship[2]))
    elif config.rotation_vec_features is not None:
        turn = complex(ship[3], ship[4])
    seen = complex(x, y) * turn.conjugate()
    return [size, seen.imag, seen.real], abs(seen)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.sampled_from([None, "angle", "vector"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_positions_are_moved_as_by_hand(
    num_rocks: list[int], turned: str | None, adds: bool, seed: int
) -> None:
    config = TranslationConfig(
        "Ship",
        ["x", "y"],
        rotation_vec_features=["dx", "dy"] if turned == "vector" else None,
        rotation_angle_feature="angle" if turned == "angle" else None,
        add_dist_feature=adds,
    )
    rng, num_rows = np.random.default_rng(seed), len(num_rocks)
    counts = {"Ship": [1] * num_rows, "Rock": num_rocks, "Flag": [2] * num_rows}
    features = {
        name: RaggedArray(rng.normal(size=(sum(own), WIDTHS[name])).astype(np.float32), own)
        for name, own in counts.items()
    }
    shared = rng.normal(size=(num_rows, 1)).astype(np.float32)
    features[GLOBAL_ENTITY] = RaggedArray(shared, [1] * num_rows)
    before = {name: own.values.copy() for name, own in features.items()}
    inputs = Inputs(SPACE, ACTIONS, config)
    arrays = inputs.arrays(ObsBatch(features, {}, {}))
    rows = {name: RaggedArray(arrays[name], own) for name, own in counts.items()}
    for row in range(num_rows):
        ship = features["Ship"][row][0].tolist()
        for rock, seen in zip(features["Rock"][row], rows["Rock"][row], strict=True):
            place, distance = moved_by_hand(rock.tolist(), ship, config)
            wanted = [*place, shared[row, 0], *([distance] if adds else [])]
            np.testing.assert_allclose(seen, wanted, rtol=1e-4, atol=1e-5)
        for name in ("Ship", "Flag"):  # the reference, and a type without a position
            assert (rows[name][row][:, :-1] == features[name][row]).all()
            assert (rows[name][row][:, -1] == shared[row]).all()
        own = {name: features[name][row] for name in counts if len(features[name][row])}
        alone = inputs.of_one(own, shared[row])
        for name in own:
            np.testing.assert_allclose(alone[name], rows[name][row], rtol=1e-6, atol=1e-7)
        assert alone[GLOBAL_ENTITY].tolist() == [shared[row].tolist()]
    assert {name: array.shape[1] for name, array in arrays.items()} == inputs.widths
    for name, values in before.items():  # the input is unchanged
        np.testing.assert_array_equal(features[name].values, values)


def test_the_entity_of_global_actions_is_the_last() -> None:
    assert [*input_features(SPACE, ACTIONS)] == ["Ship", "Rock", "Flag", GLOBAL_ENTITY]
    own_actions = {name: space for name, space in ACTIONS.items() if name != "mood"}
    features = input_features(SPACE, own_actions)
    assert [*features] == ["Ship", "Rock", "Flag"]
    assert features["Flag"] == ("x", "time")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (TranslationConfig("Moon", ["x"]), "entity 'Moon', expected one of Ship, Rock, Flag"),
        (TranslationConfig("Flag", ["x", "y"]), "needs the feature 'y' of 'Flag', which has x, t"),
        (
            TranslationConfig("Rock", ["x", "y"], rotation_angle_feature="angle"),
            "needs the feature 'angle' of 'Rock'",
        ),
        (
            TranslationConfig("Rock", ["x", "y"], rotation_vec_features=["dx", "dy"]),
            "needs the feature 'dx' of 'Rock'",
        ),
    ],
)
def test_a_translation_by_what_is_not_there_raises(config: TranslationConfig, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        Inputs(SPACE, ACTIONS, config)


def test_a_network_reads_something() -> None:
    with pytest.raises(SchemaError, match="there is no entity to learn from"):
        Inputs(ObsSpace([], {}), {})


def observed(**changes: Any) -> Observation:  # noqa: ANN401  # any field of an observation
    usual: dict[str, Any] = {
        "reward": 0.0,
        "global_features": np.array([0.5]),
        "features": {"Rock": np.arange(6.0).reshape(2, 3), "Flag": np.array([[7]])},
        "ids": {"Rock": ["r0", "r1"], "Flag": ["f"]},
        "actions": {
            "go": CategoricalActionMask(actor_ids=["f", "r1"], mask=[[1, 0], [1, 1]]),
            "pick": SelectEntityActionMask(actor_types=["Flag"], actee_ids=["r1", "f"]),
            "push": ContinuousActionMask(),
            "mood": GlobalCategoricalActionMask(mask=[0, 0, 1]),
        },
    }
    return Observation(**{**usual, **changes})


def test_one_observation_is_read_as_it_is() -> None:
    one = SingleObservationReader(SPACE, ACTIONS).read(observed(visible={"Rock": [0, 1]}))
    assert one is not None
    assert {name: rows.tolist() for name, rows in one.own.items()} == {
        "Rock": [[0, 1, 2], [3, 4, 5]],
        "Flag": [[7]],
    }
    assert all(rows.dtype == np.float32 for rows in (*one.own.values(), one.shared))
    assert one.shared.tolist() == [0.5]
    assert one.visible is not None
    assert one.visible.tolist() == [False, True, True, True]  # the last is for global actions
    asked = {each.name: each for each in one.asked}
    assert asked["go"].actors.tolist() == [2, 1]
    assert asked["go"].allowed is not None
    assert asked["go"].allowed.tolist() == [[True, False], [True, True]]
    actees = asked["pick"].actees
    assert actees is not None
    assert actees.tolist() == [1, 2]
    assert asked["pick"].allowed is None
    assert asked["push"].actors.tolist() == [0, 1, 2]
    assert asked["mood"].actors.tolist() == [3]
    everything = SingleObservationReader(SPACE, ACTIONS).read(observed())
    assert everything is not None
    assert everything.visible is None


def asking(name: str, mask: ActionMask) -> dict[str, Any]:
    return {"actions": {name: mask}}


@pytest.mark.parametrize(
    "changes",
    [
        {"features": {"Rock": [[0.0, 1.0, 2.0]]}, "ids": {}, "actions": {}},
        {"features": {"Rock": np.zeros((1, 2))}, "ids": {}, "actions": {}},
        {"features": {"Rock": np.zeros(3)}, "ids": {}, "actions": {}},
        {"features": {"Rock": np.zeros((1, 3), complex)}, "ids": {}, "actions": {}},
        {"features": {"Moon": np.zeros((1, 3))}, "ids": {}, "actions": {}},
        {"global_features": np.zeros(2)},
        {"global_features": np.zeros((1, 1))},
        {"visible": {"Moon": [1]}},
        {"visible": {"Rock": [1]}},
        {"visible": {"Rock": [1, 2]}},
        asking("fly", CategoricalActionMask()),
        asking("go", SelectEntityActionMask()),
        asking("go", CategoricalActionMask(actor_ids=["missing"])),
        asking("go", CategoricalActionMask(actor_ids=["f"], mask=[[0, 0]])),
        asking("go", CategoricalActionMask(actor_ids=["f"], mask=[[1, 1, 1]])),
        asking("go", CategoricalActionMask(actor_types=["Moon"])),
        asking("pick", SelectEntityActionMask(actor_ids=["f"], actee_types=["Ship"])),
        asking("mood", GlobalCategoricalActionMask(mask=[0, 0, 0])),
    ],
)
def test_what_is_unusual_or_wrong_is_left_to_others(changes: dict[str, Any]) -> None:
    assert SingleObservationReader(SPACE, ACTIONS).read(observed(**changes)) is None


def tiny_agent() -> bytes:
    """The file of a network small enough to mutate every byte."""
    obs_space, config = ObsSpace([], {"A": Entity(["x"])}), RogueNetConfig(d_model=2, n_layer=0)
    actions = {"go": CategoricalActionSpace(["a", "b"])}
    rng = np.random.default_rng(0)
    tensors = {
        name: np.asarray(rng.random(spec.shape), dtype=spec.dtype)
        for name, spec in expected_tensors(obs_space, actions, config).items()
    }
    return agent_bytes(Weights(obs_space, actions, config, tensors))


def test_every_byte_counts() -> None:
    content = tiny_agent()
    agent_from_bytes(content, "it")
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(CheckpointError, match=r"^it "):
            agent_from_bytes(bytes(damaged), "it")


@pytest.mark.slow
def test_any_forged_byte_is_an_error_or_an_agent_that_fits_itself() -> None:
    content = tiny_agent()
    start, num_read = len(MAGIC) + 4 + 32, 0
    for at in range(start, len(content)):
        body = bytearray(content[start:])
        body[at - start] ^= 1 << at % 7
        sealed = content[: start - 32] + hashlib.sha256(body).digest() + bytes(body)
        try:
            weights = agent_from_bytes(sealed, "it")
        except CheckpointError:
            continue
        num_read += 1
        spaces = weights.obs_space, weights.action_space
        wanted = expected_tensors(*spaces, weights.config)
        assert {name: each.shape for name, each in weights.tensors.items()} == {
            name: spec.shape for name, spec in wanted.items()
        }
        assert all(np.isfinite(each).all() for each in weights.tensors.values())
        again = agent_from_bytes(agent_bytes(weights), "again")
        assert (again.obs_space, again.action_space) == spaces
        assert again.config == weights.config
    assert 0 < num_read < len(content) - start
