"""ObservationBatcher: many observations at once give what one after another does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    VecObs,
)
from entity_env.batching.observation_batcher import ObservationBatcher
from tests.batching.test_observation_batcher import forms_of
from tests.helpers.batches import finish
from tests.helpers.strategies import action_spaces, obs_spaces, observations

SPACE = ObsSpace(["t"], {"A": Entity(["x", "y"]), "B": Entity([])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["up", "down"]),
    "call": GlobalCategoricalActionSpace(["yes", "no"]),
    "pick": SelectEntityActionSpace(),
}
MASKS: dict[str, Any] = {
    "move": CategoricalActionMask(actor_types=["A"]),
    "call": GlobalCategoricalActionMask(),
    "pick": SelectEntityActionMask(actor_types=["B"], actee_types=["A", "B"]),
}
PLAIN: dict[str, Any] = {
    "reward": 0.0,
    "global_features": [0.5],
    "features": {"A": [[1, 2], [3, 4]], "B": [[]]},
    "actions": MASKS,
}


def observation(**changes: Any) -> Observation:  # noqa: ANN401
    return Observation(**{**PLAIN, **changes})


def both(
    shown: Sequence[Observation],
    obs_space: ObsSpace = SPACE,
    action_space: dict[str, ActionSpace] = ACTIONS,
) -> tuple[ObservationBatcher, ObservationBatcher, bool]:
    """The first observation comes on its own, so that numbers begin in the middle."""
    bulk, single = (
        ObservationBatcher(obs_space, action_space),
        ObservationBatcher(obs_space, action_space),
    )
    bulk.add(shown[0])
    are_alike = bulk.collate(shown[1:])
    for one in shown[1:]:
        if not are_alike:
            bulk.add(one)
    for one in shown:
        single.add(one)
    return bulk, single, are_alike


def assert_same(bulk: ObservationBatcher, single: ObservationBatcher) -> None:
    for name, wanted in single.asked.items():
        got = [(row, list(actors), list(actees)) for row, actors, actees in bulk.asked[name]]
        assert got == [(row, list(actors), list(actees)) for row, actors, actees in wanted]
    mine, theirs = finish(bulk), finish(single)
    assert mine.features == theirs.features
    assert mine.visible == theirs.visible
    assert mine.metrics == theirs.metrics
    for name in mine.action_masks:
        assert_same_mask(mine, theirs, name)


def assert_same_mask(mine: VecObs, theirs: VecObs, name: str) -> None:
    got, wanted = mine.action_masks[name], theirs.action_masks[name]
    assert type(got) is type(wanted)
    for part in ("actors", "actees", "mask"):
        assert getattr(got, part, None) == getattr(wanted, part, None)


@settings(max_examples=60)
@given(st.data())
def test_equals_one_after_another(data: st.DataObject) -> None:
    obs_space, action_space = data.draw(obs_spaces()), data.draw(action_spaces())
    one_form = observations(obs_space, action_space).flatmap(lambda one: forms_of(one, obs_space))
    shown = data.draw(st.lists(one_form, min_size=1, max_size=4))
    bulk, single, _ = both(shown, obs_space, dict(action_space))
    assert_same(bulk, single)


ROWS = st.lists(st.tuples(st.integers(-9, 9), st.floats(-1, 1, width=32)), min_size=1, max_size=4)


@settings(max_examples=40)
@given(st.lists(st.tuples(ROWS, st.integers(0, 2)), min_size=3, max_size=5), st.booleans())
def test_plain_ones_are_added_at_once(
    rows: list[tuple[list[tuple[int, float]], int]], is_array: bool
) -> None:
    shown = [
        observation(
            features={
                "A": np.array(places, dtype=np.float32) if is_array else places,
                "B": np.zeros((count, 0), dtype=np.float32) if is_array else [()] * count,
            },
            ids={"A": [f"a{i}" for i in range(len(places))]} if i % 2 else {},
            metrics={"n": float(i)} if i else {},
        )
        for i, (places, count) in enumerate(rows)
    ]
    bulk, single, are_alike = both(shown)
    assert are_alike
    assert_same(bulk, single)


NOT_ALIKE: dict[str, dict[str, Any]] = {
    "visible": {"visible": {"A": [True, False]}},
    "unknown entity": {"features": {"Z": [[1]]}},
    "width": {"features": {"A": [[1, 2, 3]]}},
    "widths that add up": {"features": {"A": [[1], [1, 2, 3]]}},
    "flat array": {"features": {"A": np.zeros(4)}},
    "no entities": {"features": {"A": None}},
    "globals": {"global_features": []},
    "ids": {"ids": {"A": ["only one"]}},
    "action left out": {"actions": {}},
    "other types": {"actions": {**MASKS, "move": CategoricalActionMask(actor_types=["B"])}},
    "unknown type": {"actions": {**MASKS, "move": CategoricalActionMask(actor_types=["Z"])}},
    "by id": {"actions": {**MASKS, "move": CategoricalActionMask(actor_ids=[("A", 0)])}},
    "mask": {"actions": {**MASKS, "call": GlobalCategoricalActionMask([True, False])}},
    "other kind": {"actions": {**MASKS, "call": CategoricalActionMask()}},
    "no actee": {"features": {"A": [], "B": []}},
    "text": {"features": {"A": ["ab", "cd"]}},
}


@pytest.mark.parametrize("name", NOT_ALIKE)
def test_what_is_different_is_left_alone(name: str) -> None:
    writer = ObservationBatcher(SPACE, ACTIONS)
    odd = observation(**NOT_ALIKE[name])
    is_text = name == "text"  # its width is right: what it holds is found out when it is packed
    assert writer.collate([observation(), odd, observation()]) is is_text
    if is_text:
        with pytest.raises(SchemaError, match="must be a number"):
            finish(writer)
        return
    assert writer.num_rows == 0
    writer.add(observation())
    batch = finish(writer)
    assert len(batch) == 1
    assert_array_equal(batch.features["A"].values, [[1, 2], [3, 4]])


@pytest.mark.parametrize("name", ["unknown type", "by id", "no actee"])
def test_what_none_of_them_shows_is_left_alone(name: str) -> None:
    writer = ObservationBatcher(SPACE, ACTIONS)
    assert not writer.collate([observation(**NOT_ALIKE[name])] * 3)
    assert writer.num_rows == 0


@settings(max_examples=60)
@given(st.data())
def test_last_ones_equal_one_after_another(data: st.DataObject) -> None:
    obs_space, action_space = data.draw(obs_spaces()), data.draw(action_spaces())
    one_form = observations(obs_space, action_space).flatmap(lambda one: forms_of(one, obs_space))
    shown = data.draw(st.lists(one_form, min_size=2, max_size=4))
    if data.draw(st.booleans()):
        shown[0] = Observation(reward=0.0, terminated=True, metrics={"n": 1.0})
    bulk, single = (
        ObservationBatcher(obs_space, action_space),
        ObservationBatcher(obs_space, action_space),
    )
    if not bulk.collate(shown, ask=False):
        for one in shown:
            bulk.add(one, ask=False)
    for one in shown:
        single.add(one, ask=False)
    assert not any(bulk.asked.values())
    assert_same(bulk, single)


def test_last_ones_that_show_nothing_are_left_alone() -> None:
    writer = ObservationBatcher(ObsSpace([], SPACE.entities), ACTIONS)
    plain = observation(global_features=[])
    assert writer.collate([plain, plain], ask=False)
    assert not writer.collate([plain, Observation(reward=0.0, terminated=True)], ask=False)
    assert writer.num_rows == 2


def test_nobody_is_asked_by_last_ones_whatever_their_ids() -> None:
    writer = ObservationBatcher(SPACE, ACTIONS)
    assert writer.collate([observation(ids={"A": ["only one"]}, actions={})] * 2, ask=False)
    assert finish(writer).action_masks["call"].actors.lengths.tolist() == [0, 0]


def test_one_alone_is_not_worth_it() -> None:
    writer = ObservationBatcher(SPACE, ACTIONS)
    assert not writer.collate([observation()])
    assert not writer.collate([])
