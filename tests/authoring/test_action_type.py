"""An Enum becomes an action: labels, answers, and rejected classes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    Categorical,
    CategoricalActionSpace,
    Continuous,
    ContinuousActionSpace,
    GlobalCategorical,
    GlobalCategoricalActionSpace,
    SchemaError,
    SelectEntity,
    SelectEntityActionSpace,
)
from entity_env.authoring.action_type import action_type
from tests.helpers.strategies import NAMES, Food, Move, Rock, Stance, make_enum, untyped


@dataclass(frozen=True)
class Steering:
    direction: Move
    stance: Stance = field(kw_only=True)


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Count:
    number: int


@dataclass
class Thawed:
    move: Move


@dataclass(frozen=True)
class Unknown:
    move: Nowhere  # type: ignore[name-defined]  # noqa: F821 - the point of the test


def test_an_enum_has_a_label_a_member() -> None:
    action = GlobalCategorical(Move)
    assert action.name == "Move"
    assert action.space == GlobalCategoricalActionSpace(("UP", "DOWN", "LEFT", "RIGHT"))
    assert [action.decode([i], ()) for i in range(4)] == list(Move)


def test_every_actor_gets_a_choice() -> None:
    action = Categorical(Move, "step")
    assert action.name == "step"
    assert action.space == CategoricalActionSpace(("UP", "DOWN", "LEFT", "RIGHT"))
    assert action.decode([3, 0], ()) == [Move.RIGHT, Move.UP]
    assert action.decode([], ()) == []


def test_aliases_are_no_choices() -> None:
    twice = make_enum("twice", {"A": 1, "B": 1})
    assert GlobalCategorical(twice).space.index_to_label == ("A",)


def test_the_last_field_of_a_product_varies_fastest() -> None:
    action = GlobalCategorical(Steering)
    labels = action.space.index_to_label
    assert labels[:4] == (
        "direction=UP,stance=CALM",
        "direction=UP,stance=ANGRY",
        "direction=UP,stance=ASLEEP",
        "direction=DOWN,stance=CALM",
    )
    assert action.decode([3], ()) == Steering(Move.DOWN, stance=Stance.CALM)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_a_product_counts_like_an_odometer(sizes: list[int], data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES, unique=True, min_size=len(sizes), max_size=len(sizes)))
    enums = [make_enum("E", [f"m{i}" for i in range(size)]) for size in sizes]
    cls = make_dataclass("Product", list(zip(names, enums, strict=True)), frozen=True)
    action: Categorical[Any] = Categorical(cls)
    expected = list(itertools.product(*enums))
    assert len(action.space) == len(expected)
    for i, members in enumerate(expected):
        pairs = list(zip(names, members, strict=True))
        assert action.space.index_to_label[i] == ",".join(f"{n}={m.name}" for n, m in pairs)
        assert action.decode([i], ()) == [cls(**dict(pairs))]


def test_select_gives_the_games_own_objects() -> None:
    foods = [Food(1.0), Food(2.0)]
    action = SelectEntity(Food)
    assert action.name == "SelectFood"
    assert action.space == SelectEntityActionSpace()
    chosen = action.decode([1, 1, 0], foods)
    assert all(one is two for one, two in zip(chosen, [foods[1], foods[1], foods[0]], strict=True))


def test_continuous_gives_a_row_an_actor() -> None:
    action = Continuous("steer", low=[-1, 0], high=[1, 5], labels=["turn", "speed"])
    assert action.space == ContinuousActionSpace((-1, 0), (1, 5), ("turn", "speed"))
    values = action.decode([[0.5, 2.0]], ())
    assert values.dtype == np.float32
    assert values.tolist() == [[0.5, 2.0]]
    assert action.decode([], ()).shape == (0, 2)


def test_two_that_ask_the_same_are_equal() -> None:
    assert Categorical(Move) == Categorical(Move)
    assert hash(Categorical(Move)) == hash(Categorical(Move))
    assert SelectEntity(Food) == SelectEntity(Food)
    assert Continuous("x", low=[0], high=[1]) == Continuous("x", low=[0], high=[1])
    assert Categorical(Move) != Categorical(Stance, "Move")
    assert Categorical(Move) != GlobalCategorical(Move)
    assert SelectEntity(Food) != SelectEntity(Rock, "SelectFood")
    assert Continuous("x", low=[0], high=[1]) != Continuous("x", low=[0], high=[2])
    assert Categorical(Move) != "Move"


def test_a_class_means_one_choice_for_the_whole_observation() -> None:
    assert action_type(Move) is action_type(Move)
    assert action_type(Move) == GlobalCategorical(Move)
    action = Categorical(Move)
    assert action_type(action) is action
    assert repr(action) == "Categorical(Move)"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            Rock,
            "an Enum, a frozen dataclass whose fields are Enums, or an ActionType .*: got .*Rock",
        ),
        (Thawed, "frozen dataclass"),
        (int, "an Enum"),
        (Move.UP, "got <Move.UP"),
        (Steering(Move.UP, stance=Stance.CALM), "got Steering"),
        ([Move], "got "),
        ("Move", "got 'Move'"),
        (Nothing, "no fields, so there is nothing to choose"),
        (Count, "field 'number' must be an Enum(, bool, .*)?, got <class 'int'>"),
        (Unknown, "annotation 'Nowhere' cannot be resolved"),
        (make_enum("Empty", []), "Enum has no members"),
    ],
)
def test_what_offers_no_choices_is_refused(key: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        action_type(untyped(key))
    with pytest.raises(SchemaError, match=message):
        GlobalCategorical(untyped(key))
    with pytest.raises(SchemaError, match=message):
        Categorical(untyped(key))


def test_select_needs_a_class() -> None:
    with pytest.raises(SchemaError, match=r"the class of an entity, got Food"):
        SelectEntity(untyped(Food(1.0)))


def test_a_name_is_a_text() -> None:
    with pytest.raises(SchemaError, match=r"SelectEntity: name must be a text.* takes one class"):
        SelectEntity(Food, untyped(Rock))
    for make in (partial(Categorical, Move), partial(GlobalCategorical, Move), bounded):
        with pytest.raises(SchemaError, match="name must be a text, such as 'move', got 3"):
            make(untyped(3))
    empty = "name must be a text, such as 'move', got ''"
    for unnamed in (partial(Categorical, Move), partial(SelectEntity, Food), bounded):
        with pytest.raises(SchemaError, match=empty):
            unnamed("")


def bounded(name: str) -> Continuous:
    return Continuous(name, low=[0], high=[1])
