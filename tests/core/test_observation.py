"""Observation, masks and actions, with entity-gym's names and keywords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import (
    CategoricalAction,
    CategoricalActionMask,
    ContinuousActionMask,
    Entity,
    GlobalCategoricalActionMask,
    Observation,
    ObsSpace,
    SchemaError,
    SelectEntityActionMask,
)
from entity_env.views.seen import seen_entities
from tests.helpers.strategies import action_spaces, obs_spaces, observations, untyped

SPACE = ObsSpace(["t"], {"A": Entity(["x"]), "B": Entity(["x", "y"]), "C": Entity([])})


def observation(**changes: Any) -> Observation:  # noqa: ANN401
    """Two As with ids, three Bs without, no C."""
    given: dict[str, Any] = {
        "reward": 0.0,
        "features": {"A": [[1.0], [2.0]], "B": np.zeros((3, 2))},
        "ids": {"A": ["first", "second"]},
    }
    return Observation(**{**given, **changes})


def test_everything_but_the_reward_has_a_default() -> None:
    bare = Observation(reward=1.0)
    assert (bare.terminated, bare.truncated, bare.done) == (False, False, False)
    assert not bare.features
    assert not bare.actions
    assert not bare.ids
    assert not bare.visible
    assert not bare.metrics
    assert bare.is_blank
    assert not observation().is_blank


def test_done_is_entity_gyms_word_for_terminated() -> None:
    assert observation(done=True).terminated
    assert not observation(done=True).truncated
    assert not observation(done=False).done
    cut = observation(truncated=True)
    assert cut.done
    assert not cut.terminated
    with pytest.raises(SchemaError, match="pass done or terminated, not both"):
        observation(done=True, terminated=True)


def test_entities_is_entity_gyms_short_form() -> None:
    short = Observation(
        reward=0.0, entities={"A": ([[1.0]], ["a"]), "B": np.zeros((2, 2)), "C": None}
    )
    assert short.features["A"] == [[1.0]]
    assert short.ids == {"A": ["a"]}
    assert short.num_entities("B") == 2
    assert short.num_entities("C") == 0
    with pytest.raises(SchemaError, match="pass features or entities, not both"):
        Observation(reward=0.0, features={}, entities={})
    with pytest.raises(SchemaError, match=r"entity 'A': a tuple means \(features, ids\), got 3"):
        Observation(reward=0.0, entities={"A": untyped(([1.0], [2.0], [3.0]))})


def test_entities_without_ids_are_known_by_type_and_position() -> None:
    assert observation().entity_ids(SPACE) == ["first", "second", ("B", 0), ("B", 1), ("B", 2)]


@pytest.mark.parametrize(
    ("mask", "indices"),
    [
        (CategoricalActionMask(), [0, 1, 2, 3, 4]),
        (CategoricalActionMask(actor_types=["B"]), [2, 3, 4]),
        (CategoricalActionMask(actor_types=["B", "A"]), [2, 3, 4, 0, 1]),
        (CategoricalActionMask(actor_types=["C"]), []),
        (CategoricalActionMask(actor_types=[]), []),
        (CategoricalActionMask(actor_ids=["second", ("B", 2)]), [1, 4]),
        (CategoricalActionMask(actor_ids=[]), []),
        (SelectEntityActionMask(actor_ids=["first"]), [0]),
        (ContinuousActionMask(actor_types=["A"]), [0, 1]),
        (GlobalCategoricalActionMask(), [5]),
    ],
)
def test_actors_are_found(mask: Any, indices: list[int]) -> None:  # noqa: ANN401
    found = observation(actions={"act": mask}).actor_indices("act", SPACE)
    assert found.dtype == np.int64
    assert found.tolist() == indices


def test_an_action_that_is_not_asked_has_no_actor_and_no_actee() -> None:
    assert observation().actor_indices("act", SPACE).tolist() == []
    assert observation().actee_indices("act", SPACE).tolist() == []


def test_actees_are_found() -> None:
    for mask, indices in [
        (SelectEntityActionMask(), [0, 1, 2, 3, 4]),
        (SelectEntityActionMask(actee_types=["B"]), [2, 3, 4]),
        (SelectEntityActionMask(actee_ids=[("B", 1), "first"]), [3, 0]),
    ]:
        found = observation(actions={"act": mask}).actee_indices("act", SPACE)
        assert found.tolist() == indices


@settings(max_examples=50)
@given(st.data())
def test_indices_are_positions_among_all_ids(data: st.DataObject) -> None:
    obs_space, action_space = data.draw(obs_spaces()), data.draw(action_spaces())
    shown = data.draw(observations(obs_space, action_space))
    ids = shown.entity_ids(obs_space)
    assert len(ids) == sum(map(shown.num_entities, obs_space.entities))
    for name, mask in shown.actions.items():
        indices = shown.actor_indices(name, obs_space)
        if isinstance(mask, GlobalCategoricalActionMask):
            assert indices.tolist() == [len(ids)]
        else:
            expected = ids if mask.actor_ids is None else list(mask.actor_ids)
            assert [ids[i] for i in indices] == expected


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: CategoricalActionMask(actor_ids=[1], actor_types=["A"]), "actor_ids or actor_types"),
    (lambda: ContinuousActionMask(actor_ids=[1], actor_types=["A"]), "not both"),
    (lambda: SelectEntityActionMask(actor_ids=[1], actor_types=["A"]), "not both"),
    (lambda: SelectEntityActionMask(actee_ids=[1], actee_types=["A"]), "actee_ids or actee_types"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_two_ways_to_say_who_acts_exclude_each_other(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        make()


@pytest.mark.parametrize(
    ("changes", "mask", "message"),
    [
        ({}, CategoricalActionMask(actor_ids=["third"]), r"actor 'third' is not among.*'first'"),
        ({}, CategoricalActionMask(actor_types=["D"]), "actor type 'D' is not in.*A, B, C"),
        ({"ids": {"A": ["x"]}}, CategoricalActionMask(actor_ids=["x"]), "2 rows.*but 1 ids"),
        (
            {"ids": {"A": ["x", "y"], "B": ["y", "z", "w"]}},
            CategoricalActionMask(actor_ids=["x"]),
            "the id 'y' belongs to more than one entity",
        ),
        ({"ids": {"A": [[], []]}}, CategoricalActionMask(actor_ids=["x"]), "must be hashable"),
    ],
)
def test_actors_that_are_not_there_are_named(
    changes: dict[str, Any],
    mask: Any,  # noqa: ANN401
    message: str,
) -> None:
    with pytest.raises(SchemaError, match=message):
        observation(**changes, actions={"act": mask}).actor_indices("act", SPACE)


def test_actees_that_are_not_there_are_named() -> None:
    for mask, message in [
        (SelectEntityActionMask(actee_ids=["third"]), "actee 'third' is not among"),
        (SelectEntityActionMask(actee_types=["D"]), "actee type 'D'"),
        (CategoricalActionMask(), "selects no entity"),
    ]:
        with pytest.raises(SchemaError, match=message):
            observation(actions={"act": mask}).actee_indices("act", SPACE)


def test_a_categorical_action_has_labels() -> None:
    action = CategoricalAction(["a", "b"], np.array([1, 0]), ["up", "down"])
    assert action.labels == ["down", "up"]


def test_types_without_entities_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may declare thousands of types; work per type used to be done for every line."""
    space = ObsSpace(entities={f"E{i}": Entity(["x"]) for i in range(1000)})
    observation = Observation(reward=0, features={"E7": [[1.0]], "E3": [[2.0]]})
    counted: set[str] = set()
    count = Observation.num_entities

    def counting(self: Observation, name: str) -> int:
        counted.add(name)
        return count(self, name)

    monkeypatch.setattr(Observation, "num_entities", counting)
    assert observation.entity_ids(space) == [("E3", 0), ("E7", 0)]
    assert [entity.index for entity in seen_entities(observation, space)] == [0, 1]
    assert counted == {"E3", "E7"}
