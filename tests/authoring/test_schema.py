"""Schema: converts the types of a game to spaces."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import pytest

from entity_env import (
    GLOBAL_ENTITY,
    Categorical,
    Entity,
    GlobalCategorical,
    ObsSpace,
    Schema,
    SchemaError,
    SelectEntity,
)
from tests.helpers.strategies import (
    CALL,
    MOVE,
    SCHEMA,
    Food,
    Move,
    Rock,
    Snake,
    Stance,
    World,
    make_enum,
    untyped,
)


def test_spaces_follow_from_the_types() -> None:
    schema = Schema((Food, Rock), (Move, Categorical(Stance)), World)
    assert schema.obs_space() == ObsSpace(
        ("time", "stance.is_CALM", "stance.is_ANGRY", "stance.is_ASLEEP"),
        {"Food": Entity(("value",)), "Rock": Entity(())},
    )
    assert list(schema.action_space()) == ["Move", "Stance"]
    assert schema.action_space()["Move"] == GlobalCategorical(Move).space
    assert schema.widths == {"Food": 1, "Rock": 0, GLOBAL_ENTITY: 4}
    assert schema.index_of == {Food: 0, Rock: 1}


def test_no_global_action_and_feature_need_no_global_entity() -> None:
    schema = Schema((Food,), (Categorical(Move),))
    assert not schema.has_global_entity
    assert schema.widths == {"Food": 1}


def test_declared_things_are_found() -> None:
    assert SCHEMA.entity(Food).features == ("value",)
    assert SCHEMA.action(MOVE) is MOVE
    assert SCHEMA.action(Categorical(Move, "move")) is MOVE  # equal objects are one question
    assert Schema((), (Move,)).action(Move) == GlobalCategorical(Move)


def test_undeclared_things_are_named() -> None:
    with pytest.raises(SchemaError, match=r"zoo: .* shows a World.*declared are Snake, Food, Rock"):
        SCHEMA.entity(World)
    with pytest.raises(SchemaError, match=r"asked for the action Stance.*Categorical.move.*Game"):
        SCHEMA.action(Stance)
    with pytest.raises(SchemaError, match=r"action \[.*which was not declared"):
        SCHEMA.action(untyped([Move]))
    with pytest.raises(SchemaError, match="declared are none"):
        Schema((), ()).action(Move)
    with pytest.raises(SchemaError, match="declared are none"):
        Schema((), ()).entity(Food)
    with pytest.raises(SchemaError, match=r"for GlobalCategorical\(Stance\).*not declared"):
        SCHEMA.require_declared([CALL, GlobalCategorical(Stance)])


def test_global_features_are_of_the_declared_class() -> None:
    SCHEMA.require_globals(World)
    bare = Schema((Food,), ())
    bare.require_globals(None)
    for schema, cls, message in [
        (SCHEMA, None, r"has none: add obs.globals\(World"),
        (SCHEMA, Food, "the global features Food, expected World"),
        (bare, World, r"not declared: add Game\(global_features=World\)"),
    ]:
        with pytest.raises(SchemaError, match=message):
            schema.require_globals(cls)


OTHER_FOOD = make_dataclass("Food", [("x", int)])
OTHER_MOVE = make_enum("Move", ["STAY"])


@pytest.mark.parametrize(
    ("entities", "actions", "features", "message"),
    [
        ((Food, OTHER_FOOD), (), None, "entities need different names, 'Food' came twice"),
        ((Food, Food), (), None, "'Food' came twice"),
        ((Food,), (Move, OTHER_MOVE), None, "actions need different names, 'Move' came twice"),
        ((Food,), (Move, Categorical(Move)), None, "'Move' came twice"),
        ((Food,), (SelectEntity(Rock),), None, "Rock, which was not declared"),
        ((str,), (), None, "must be a dataclass"),
        ((Food(1.0),), (), None, "the class, not an instance"),
        (Food, (), None, r"entities must be a tuple, got Food alone: write \(Food,\)"),
        ((Food,), Move, None, r"actions must be a tuple, got Move alone: write \(Move,\)"),
        ((Food,), Categorical(Move), None, r"got Categorical\(Move\) alone"),
        ((Food,), (Move.UP,), None, "an action must be an Enum"),
        ((Food,), (Rock,), None, "an action must be an Enum"),
        ((Food,), (), int, "must be a dataclass"),
        ((make_dataclass("__global__", []),), (), None, "'__global__' is reserved"),
    ],
)
def test_types_that_make_no_schema_are_refused(
    entities: Any,  # noqa: ANN401
    actions: Any,  # noqa: ANN401
    features: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(entities, actions, features, game="zoo")


def test_the_same_action_twice_is_one() -> None:
    assert list(Schema((Snake,), (Move, Move)).action_space()) == ["Move"]
