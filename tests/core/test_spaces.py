"""Spaces: entity-gym's names, validated on construction."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given

from entity_env import (
    GLOBAL_ENTITY,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SchemaError,
    SelectEntityActionSpace,
)
from entity_env.core.spaces import entity_widths, has_global_entity
from tests.helpers.strategies import action_spaces, obs_spaces, untyped


def test_spaces_take_the_keywords_of_entity_gym() -> None:
    space = ObsSpace(global_features=["time"], entities={"Food": Entity(features=["x", "y"])})
    assert space.entities["Food"].features == ["x", "y"]
    assert len(CategoricalActionSpace(index_to_label=["up", "down"])) == 2
    assert len(GlobalCategoricalActionSpace(index_to_label=["stay"])) == 1
    assert SelectEntityActionSpace() == SelectEntityActionSpace()
    assert ObsSpace() == ObsSpace(global_features=(), entities={})


def test_a_continuous_space_names_its_numbers() -> None:
    space = ContinuousActionSpace(low=[-1, 0], high=[1, 2])
    assert space.labels == ("0", "1")
    assert len(space) == 2
    assert ContinuousActionSpace([0], [1], ["torque"]).labels == ["torque"]


@given(obs_spaces(), action_spaces())
def test_widths_are_those_of_the_entities_and_the_global_one_last(
    obs_space: ObsSpace, action_space: dict[str, ActionSpace]
) -> None:
    widths = entity_widths(obs_space, action_space)
    expected = {name: len(entity.features) for name, entity in obs_space.entities.items()}
    is_asked = any(isinstance(s, GlobalCategoricalActionSpace) for s in action_space.values())
    assert has_global_entity(obs_space, action_space) == bool(obs_space.global_features or is_asked)
    if has_global_entity(obs_space, action_space):
        expected[GLOBAL_ENTITY] = len(obs_space.global_features)
    assert list(widths.items()) == list(expected.items())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Entity(["x", "y", "x"]), "entity features must differ: got x more than once"),
        (lambda: Entity("xy"), "a list of names, got the single string 'xy'"),
        (lambda: ObsSpace(["t", "t"]), "global features must differ"),
        (lambda: Entity(["a"], references=("A", "A")), "two features that refer to their entities"),
        (
            lambda: Entity(["a", "b"], references=("A",)),  # type: ignore[arg-type]  # one name
            "a relation needs the names of two entity types, and two features",
        ),
        (
            lambda: ObsSpace([], {"R": Entity(["a", "b"], references=("A", "A")), "A": Entity([])}),
            "relations must come after all entity types: got R, A",
        ),
        (
            lambda: ObsSpace([], {"A": Entity([]), "R": Entity(["a", "b"], references=("A", "B"))}),
            "relation 'R' refers to 'B', expected an entity type: A",
        ),
        (lambda: ObsSpace([], {"": Entity(["x"])}), "entity name '' is reserved"),
        (lambda: ObsSpace([], {GLOBAL_ENTITY: Entity(["x"])}), "'__global__' is reserved"),
        *(
            (partial(make, name), f"without NUL and lone surrogates: rename {name!r}")
            for name in ("x\0", "\ud800")
            for make in (
                lambda name: Entity([name]),
                lambda name: ObsSpace([name]),
                lambda name: ObsSpace([], {name: Entity(["x"])}),
                lambda name: CategoricalActionSpace([name]),
                lambda name: GlobalCategoricalActionSpace(["a", name]),
                lambda name: ContinuousActionSpace([0], [1], [name]),
            )
        ),
        (lambda: CategoricalActionSpace([]), "at least one label"),
        (lambda: CategoricalActionSpace("up"), "single string 'up'"),
        (lambda: CategoricalActionSpace(["up", "up"]), "action labels must differ"),
        (lambda: GlobalCategoricalActionSpace([]), "at least one label"),
        (lambda: GlobalCategoricalActionSpace(["up", "up"]), "got up more than once"),
        (lambda: ContinuousActionSpace([], []), "at least one"),
        (lambda: ContinuousActionSpace([0, 0], [1]), "got 2 low, 1 high, 2 labels"),
        (lambda: ContinuousActionSpace([0], [1], ["a", "b"]), "got 1 low, 1 high, 2 labels"),
        (
            lambda: ContinuousActionSpace(untyped(["a"]), [1], ["2"]),
            "needs numbers as bounds: got low 'a'",
        ),
        (lambda: ContinuousActionSpace([1], [1], ["a"]), "'a' needs finite bounds with low < high"),
        (lambda: ContinuousActionSpace([float("-inf")], [1]), "finite bounds.*low -inf"),
        (lambda: ContinuousActionSpace([float("nan")], [1]), "finite bounds.*low nan"),
        (lambda: ContinuousActionSpace([0], [1, 2], untyped("ab")), "got 1 low, 2 high"),
    ],
)
def test_what_makes_no_space_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("\\", "\\\\")):
        make()
