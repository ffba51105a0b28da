"""A dataclass becomes features: names, values, and rejected classes."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass, field, make_dataclass
from enum import Flag
from typing import Annotated, Any, ClassVar, NewType

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import HIDDEN, SchemaError
from entity_env.authoring.entity_type import EntityType, as_float32, entity_type
from entity_env.authoring.speedups import NotANumber, pack_numbers
from tests.helpers.strategies import (
    Food,
    Point,
    Rock,
    Snake,
    Stance,
    entity_classes,
    instances,
    make_enum,
    named_features_of,
    untyped,
)


@dataclass(slots=True)
class Slotted:
    x: int
    y: float


Id = NewType("Id", int)


def with_field(kind: object) -> type:
    """A dataclass with one field of this type."""
    return make_dataclass("Thing", [("field", kind)])


@settings(max_examples=40)
@given(st.data())
def test_features_are_those_of_a_slow_reading_by_name(data: st.DataObject) -> None:
    cls = data.draw(entity_classes())
    entities = data.draw(st.lists(instances(cls), min_size=1, max_size=3))
    kind = entity_type(cls)
    expected = [named_features_of(entity, "") for entity in entities]
    assert kind.features == tuple(name for name, _ in expected[0])
    assert kind.width == len(kind.features)
    rows = kind.featurize(entities)
    assert rows.dtype == np.float32
    assert rows.shape == (len(entities), kind.width)
    assert rows.tolist() == [[value for _, value in row] for row in expected]


@settings(max_examples=30)
@given(st.lists(instances(Snake)))
def test_a_writer_appends_the_features_of_each_entity(snakes: list[Snake]) -> None:
    kind = entity_type(Snake)
    numbers: list[float] = [7.0]
    kind.writer(numbers)(snakes)
    assert_array_equal(
        np.array(numbers[1:], dtype=np.float32).reshape(-1, kind.width), kind.featurize(snakes)
    )


def test_it_can_be_pickled_after_it_has_read() -> None:
    kind = entity_type(Slotted)
    rows = kind.featurize([Slotted(1, 2.5)])
    again = pickle.loads(pickle.dumps(kind))
    assert again == kind
    assert_array_equal(again.featurize([Slotted(1, 2.5)]), rows)


def test_names_follow_the_fields() -> None:
    assert entity_type(Snake).features == (
        *("pos.x", "pos.y", "stance.is_CALM", "stance.is_ANGRY", "stance.is_ASLEEP"),
        *("alive", "cooldowns.0", "cooldowns.1"),
    )
    assert entity_type(Snake).name == "Snake"


def test_fields_of_a_generated_class_may_have_any_name() -> None:
    names = ["speed.0", "mode=-1", "class", "plain", "it's"]
    cls = type("Thing", (), {"__annotations__": dict.fromkeys(names, float)})
    kind = entity_type(dataclass(init=False, repr=False, eq=False)(cls))
    thing = cls()
    for i, name in enumerate(names):
        setattr(thing, name, i)
    assert kind.features == tuple(names)
    assert kind.featurize([thing]).tolist() == [[0, 1, 2, 3, 4]]


def test_a_class_without_features_has_rows_of_nothing() -> None:
    kind = entity_type(Rock)
    assert kind.featurize([Rock(), Rock()]).shape == (2, 0)
    assert (kind.width, kind.stride) == (0, 1)
    assert kind.featurize([]).shape == (0, 0)


@dataclass
class Base:
    x: int


@dataclass(slots=True)
class Player(Base):
    kinds: ClassVar[int] = 3
    name: str = field(default="", metadata=HIDDEN)
    hp: Annotated[float, "between 0 and 1"] = 1.0
    trail: tuple[tuple[int, bool], Point] = ((1, True), Point(2.0, 3))
    score: int | float = field(default=5, kw_only=True)


def test_fields_may_be_inherited_hidden_annotated_nested_and_keyword_only() -> None:
    kind = entity_type(Player)
    assert kind.features == (
        *("x", "hp", "trail.0.0", "trail.0.1", "trail.1.x", "trail.1.y", "score"),
    )
    assert kind.featurize([Player(7)]).tolist() == [[7, 1, 1, 1, 2, 3, 5]]


def test_members_may_have_any_name() -> None:
    strange = make_enum("strange", {"a-b": 1, "class": 2, "alias": 1})
    kind = entity_type(with_field(strange))
    assert kind.features == ("field.is_a-b", "field.is_class")
    assert kind.featurize([kind.cls(strange(1))]).tolist() == [[1, 0]]


def test_two_enums_of_one_name_are_told_apart() -> None:
    first, second = make_enum("E", ["A"]), make_enum("E", ["A"])
    kind = entity_type(make_dataclass("Thing", [("x", first), ("y", second)]))
    assert kind.featurize([kind.cls(first["A"], first["A"])]).tolist() == [[1, 0]]


def test_it_is_made_once() -> None:
    assert entity_type(Food) is entity_type(Food)


@dataclass
class Loop:
    inner: Loop


@dataclass
class Unknown:
    x: Nowhere  # type: ignore[name-defined]  # noqa: F821 - the point of the test


class Colors(Flag):
    RED = 1


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Stance, "must be a dataclass"),
        (Food(1.0), "an instance"),
        (5, "must be a dataclass, got 5"),
        ([Food], "must be a dataclass"),
        (with_field(str), "field 'field' of type str cannot become features: use.*HIDDEN"),
        (
            with_field(list[int]),
            r"list\[int\] cannot become features: its length may vary, so show",
        ),
        (with_field(dict[str, Food]), "show its items as entities, instances of another dataclass"),
        (with_field(tuple[int, ...]), r"tuple\[int, \.\.\.\] cannot become features: its length"),
        (with_field(tuple), "tuple cannot become"),
        (with_field(str | None), "field 'field' of type str cannot become"),
        (with_field(Stance | Colors), "cannot become features"),
        (with_field(Id), "field 'field' has the NewType Id, write its own type: i"),
        (with_field(Id | None), "has the NewType Id, write its own type: int$"),
        (with_field(Annotated[np.ndarray, 0]), "cannot become features"),
        (with_field(Annotated[np.ndarray, "x"]), "cannot become features"),
        (make_dataclass("Two", [("has_x", bool), ("x", int | None)]), "Two: two .*called 'has_x'"),
        (with_field(object), "object cannot become features"),
        (with_field(complex), "complex cannot become features"),
        (with_field(np.complex64), "complex64 cannot become features"),
        (with_field(np.ndarray), "ndarray cannot become features: use"),
        (with_field(tuple[int, str]), r"field 'field\.1' of type str"),
        (Loop, "'inner' contains its own type Loop"),
        (Unknown, "annotation 'Nowhere' cannot be resolved"),
    ],
)
def test_classes_that_cannot_be_featurized_are_refused(cls: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        entity_type(untyped(cls))


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ([Food(1.0), Rock()], r"a sequence of Food holds a Rock: Rock\(\)"),
        ([Food(untyped(None))], "'value' of row 0 must be a number that fits float32, got None"),
        ([Food(1.0), Food(untyped("2"))], r"'value' of row 1 .* got '2'"),
        ([Food(10**400)], "'value' of row 0 must be a number"),
        ([Food(untyped(1j))], "got 1j"),
        ([Food(untyped([1.0]))], r"got \[1.0\]"),
        ([Food(untyped(Food(1.0)))], "got Food"),
    ],
)
def test_entities_that_hold_no_numbers_are_refused(entities: list[Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        entity_type(Food).featurize(entities)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pos": None}, "'NoneType' object has no attribute 'x'"),
        ({"cooldowns": (1,)}, "tuple index out of range"),
        ({"cooldowns": None}, "not subscriptable"),
        ({"cooldowns": {}}, r"\(0, in cooldowns\[0\]\)"),
    ],
)
def test_fields_that_are_not_what_they_declare_are_refused(
    change: dict[str, Any], message: str
) -> None:
    good = Snake(Point(1.0, 2), Stance.CALM, True, (1, 2.0))
    bad = dataclasses.replace(good, **change)
    with pytest.raises(SchemaError, match=f"features of Snake.*cannot be read.*{message}"):
        entity_type(Snake).featurize([good, bad])


def test_subclasses_are_other_entities() -> None:
    with pytest.raises(SchemaError, match="a sequence of Base holds a Player"):
        entity_type(Base).featurize([Player(1)])


def test_numpy_scalars_and_infinities_are_numbers() -> None:
    entities = [Food(untyped(np.float64(0.5))), Food(untyped(np.bool_(True))), Food(1e39)]
    assert entity_type(Food).featurize(entities).tolist() == [[0.5], [1.0], [float("inf")]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint64, np.bool_])
def test_rows_of_any_numeric_dtype_become_float32(dtype: Any) -> None:  # noqa: ANN401
    rows = np.ones((3, 1), dtype=dtype)
    checked = entity_type(Food).rows(rows)
    assert checked.dtype == np.float32
    assert checked.tolist() == [[1.0]] * 3
    assert np.shares_memory(checked, rows) == (dtype is np.float32)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(3), r"\(num_entities, 1\), one column each for value: got \(3,\)"),
        (np.zeros((3, 2)), r"got \(3, 2\)"),
        (np.zeros((1, 1, 1)), "got"),
        (np.full((1, 1), "a"), "numeric dtype: got <U1"),
        (np.full((1, 1), None), "numeric dtype: got object"),
        (np.zeros((1, 1), dtype=np.complex64), "numeric dtype: got complex64"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        entity_type(Food).rows(rows)


def test_numbers_beyond_float32_become_infinite_without_a_warning() -> None:
    assert as_float32(np.array([1e39, -1e39])).tolist() == [float("inf"), float("-inf")]
    assert entity_type(Food).rows(np.array([[1e300]])).tolist() == [[float("inf")]]


def test_the_first_value_that_does_not_fit_is_named() -> None:
    good = [1, 0.5, True, np.float16(1), np.bool_(False)]
    out = np.zeros(7, np.float32)
    assert pack_numbers(good, out)
    assert not pack_numbers([*good, float("nan")], out)
    for bad in (None, "1", [1], 1j, 10**400):
        with pytest.raises(NotANumber, match="must be a number that fits float32") as caught:
            pack_numbers([*good, bad, 2.0], out)
        assert caught.value.index == len(good)


def test_entity_types_compare_by_class() -> None:
    assert isinstance(entity_type(Food), EntityType)
    assert entity_type(Food) != entity_type(Rock)
    assert len({entity_type(Food), entity_type(Rock), entity_type(Food)}) == 2
