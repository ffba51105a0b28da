"""Options of a RogueNet: derived numbers, and invalid combinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import UsageError
from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net.config import (
    GATES,
    MAX_BUCKETS,
    RelposEncodingConfig,
    TranslationConfig,
)
from entity_env.agents.training.tracking.settings_file import parse_setting_text

XY = ("x", "y")
GRID: Mapping[str, Any] = {"extent": (2, 3), "position_features": XY}
RADIAL: Mapping[str, Any] = {
    "extent": (8,),
    "position_features": XY,
    "radial": True,
    "rotation_angle_feature": "angle",
}
RINGS: Mapping[str, Any] = {"extent": (4,), "position_features": XY, "distance": True}
SHIP: Mapping[str, Any] = {"reference_entity": "Ship", "position_features": XY}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 9))
def test_every_bucket_has_a_number_of_its_own(extent: list[int], angles: int, rings: int) -> None:
    names = tuple("xyz"[: len(extent)])
    polar = {**RADIAL, "extent": (angles, rings), "distance": True}
    for config, kind in (
        (RelposEncodingConfig(tuple(extent), names), "grid"),
        (RelposEncodingConfig(**{**RADIAL, "extent": (angles,)}), "radial"),
        (RelposEncodingConfig(**{**RINGS, "extent": (rings,)}), "distance"),
        (RelposEncodingConfig(**polar), "polar"),
    ):
        assert config.kind == kind
        numbers = [int(np.dot(at, config.strides)) for at in np.ndindex(*config.sizes)]
        assert sorted(numbers) == list(range(config.num_buckets))
        assert config.strides[0] == 1  # neighbors along the first axis have consecutive numbers


def test_a_grid_reaches_as_far_both_ways() -> None:
    assert RelposEncodingConfig(**GRID).sizes == (5, 7)
    assert RelposEncodingConfig(extent=(0,), position_features=("x",)).num_buckets == 1


def test_lists_and_tuples_are_one_configuration() -> None:
    vector: Mapping[str, Any] = {"rotation_vec_features": ["dx", "dy"]}
    listed = RelposEncodingConfig([2, 3], ["x", "y"], exclude_entities=["Wall"], **vector)
    frozen = RelposEncodingConfig(
        (2, 3), XY, exclude_entities=("Wall",), rotation_vec_features=("dx", "dy")
    )
    assert listed == frozen
    assert hash(listed) == hash(frozen)
    turned = TranslationConfig("Ship", ["x", "y"], rotation_vec_features=["dx", "dy"])
    assert len({turned, TranslationConfig("Ship", XY, rotation_vec_features=("dx", "dy"))}) == 1


@pytest.mark.parametrize("gate", [None, *GATES])
def test_every_gate_is_one(gate: str | None) -> None:
    assert RelposEncodingConfig(**GRID, value_gate=gate).value_gate == gate


@pytest.mark.parametrize("name", ["value_relpos_projection", "key_relpos_projection"])
def test_a_projection_of_keys_or_values_is_one(name: str) -> None:
    setting: Mapping[str, Any] = {name: True}
    assert RelposEncodingConfig(**GRID, **setting).has_projection
    assert not RelposEncodingConfig(**GRID, per_entity_projections=True).has_projection
    with pytest.raises(UsageError, match="projections need two position features, got 1"):
        RelposEncodingConfig((2,), ("x",), **setting)


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (
            GRID,
            {"extent": (2,)},
            "extent must have length 2 for grid buckets of the positions x, y",
        ),
        (
            GRID,
            {"extent": (2, -1)},
            r"extent must be a list of integers from 0 to 1000000, got \(2, -1\)",
        ),
        (GRID, {"extent": (2, 1.0)}, "extent must be a list of integers"),
        (GRID, {"extent": (2, True)}, "extent must be a list of integers"),
        (GRID, {"extent": 4}, "extent must be a list of integers from 0 to 1000000, got 4"),
        (GRID, {"extent": (500, 500)}, f"1002001 buckets, at most {MAX_BUCKETS} are allowed"),
        (GRID, {"extent": (), "position_features": ()}, "must name at least one feature"),
        (GRID, {"position_features": "xy"}, "position_features must be a list of names, got 'xy'"),
        (GRID, {"position_features": ("x", 1)}, "position_features must be a list of names"),
        (GRID, {"exclude_entities": "Wall"}, "exclude_entities must be a list of names"),
        (GRID, {"scale": 0.0}, "scale must be a number above 0, got 0.0"),
        (GRID, {"scale": -1}, "scale must be a number above 0"),
        (GRID, {"scale": float("nan")}, "scale must be a number above 0"),
        (GRID, {"scale": float("inf")}, "scale must be a number above 0"),
        (GRID, {"scale": 1e-320}, "scale must be at least 1e-30"),
        (GRID, {"scale": True}, "scale must be a number above 0, got True"),
        (GRID, {"scale": "1"}, "scale must be a number above 0"),
        (GRID, {"value_gate": "tanh"}, "value_gate must be one of .*, got 'tanh'"),
        (GRID, {"interpolate": True}, "in a grid cannot be interpolated"),
        (GRID, {"interpolate": 1}, "interpolate must be true or false, got 1"),
        (GRID, {"per_entity_values": None}, "per_entity_values must be true or false, got None"),
        (RADIAL, {"radial": "yes"}, "radial must be true or false, got 'yes'"),
        (RADIAL, {"extent": (0,)}, "extent must be integers from 1 to"),
        (RADIAL, {"extent": (3, 3)}, "extent must have length 1 for radial"),
        (RADIAL, {"distance": True}, "extent must have length 2 for polar"),
        (RADIAL, {"rotation_angle_feature": None}, "set rotation_vec_features or rotation_angle"),
        (RADIAL, {"position_features": ("x",)}, "radial positions need two position features"),
        (RADIAL, {"rotation_angle_feature": 3}, "rotation_angle_feature must be a name.*, got 3"),
        (RADIAL, {"rotation_vec_features": XY}, "not both"),
        (RINGS, {"rotation_vec_features": ("dx",)}, r"needs two names, got \['dx'\]"),
        (RINGS, {"rotation_vec_features": "ab"}, "rotation_vec_features must be a list of names"),
        (RINGS, {"extent": (0,)}, "extent must be integers from 1 to"),
    ],
)
def test_relative_positions_that_cannot_be(
    base: Mapping[str, Any], changes: Mapping[str, Any], message: str
) -> None:
    RelposEncodingConfig(**base)  # valid without the change
    with pytest.raises(UsageError, match=message):
        RelposEncodingConfig(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference_entity": None}, "reference_entity must be a name.*, got None"),
        ({"position_features": "xy"}, "position_features must be a list of names"),
        ({"add_dist_feature": 1}, "add_dist_feature must be true or false, got 1"),
        ({"rotation_angle_feature": ("a",)}, "rotation_angle_feature must be a name"),
        ({"rotation_vec_features": ("dx", "dy", "dz")}, "needs two names"),
        ({"rotation_vec_features": XY, "rotation_angle_feature": "a"}, "not both"),
        (
            {"position_features": ("x", "y", "z"), "rotation_angle_feature": "a"},
            "expected two position features to rotate, got 3: x, y, z",
        ),
    ],
)
def test_translations_that_cannot_be(changes: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TranslationConfig(**{**SHIP, **changes})


def test_a_translation_rotates_if_it_has_a_direction() -> None:
    assert not TranslationConfig(**SHIP).is_rotated
    assert TranslationConfig(**SHIP, rotation_angle_feature="a").is_rotated
    assert TranslationConfig(**SHIP, rotation_vec_features=("dx", "dy")).is_rotated
    assert not TranslationConfig("Ship", ("x", "y", "z")).is_rotated


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({}, "x=2,y=3"),
        (
            {"scale": 2.0, "exclude_entities": ["Wall"], "per_entity_values": True},
            '{extent=[2, 3], position_features=["x", "y"], scale=2.0, '
            'per_entity_values=true, exclude_entities=["Wall"]}',
        ),
    ],
)
def test_relative_positions_are_shown_as_they_are_typed(
    others: Mapping[str, Any], text: str
) -> None:
    given = RelposEncodingConfig((2, 3), ("x", "y"), **others)
    assert str(given) == text
    config = PPOConfig().changed({"net": {"relpos_encoding": given}})
    assert f"relpos_encoding=({text})" in config.summary()
    if others:
        assert PPOConfig().changed(parse_setting_text(f"net.relpos_encoding={text}")) == config
