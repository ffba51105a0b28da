"""ObservationBatcher: writes observations of stepped environments into a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    GLOBAL_ENTITY,
    ActionMask,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    VecObs,
    questions,
)
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.action_request import Asked
from tests.helpers.batches import finish
from tests.helpers.strategies import action_spaces, obs_spaces, observations, untyped

SPACE = ObsSpace(["t"], {"A": Entity(["x", "y"]), "B": Entity([])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["up", "down"]),
    "call": GlobalCategoricalActionSpace(["yes", "no", "maybe"]),
    "pick": SelectEntityActionSpace(),
    "turn": ContinuousActionSpace([0], [1]),
}


def observation(**changes: Any) -> Observation:  # noqa: ANN401
    """Two As and one B."""
    given: dict[str, Any] = {
        "reward": 0.0,
        "global_features": [0.5],
        "features": {"A": [[1, 2], [3, 4]], "B": [[]]},
    }
    return Observation(**{**given, **changes})


def write(*shown: Observation, ask: bool = True) -> VecObs:
    writer = ObservationBatcher(SPACE, ACTIONS, where="env {}".format)
    for one in shown:
        writer.add(one, ask=ask)
    return finish(writer)


FORMS: list[Callable[[Any], Any]] = [
    lambda rows: rows,
    lambda rows: rows.tolist(),
    lambda rows: [tuple(row) for row in rows.tolist()],
    tuple,
    lambda rows: np.asfortranarray(rows.astype(np.float64)),
]
LISTS: list[Callable[[Any], Any]] = [list, tuple, np.array]


@st.composite
def forms_of(draw: st.DrawFn, shown: Observation, obs_space: ObsSpace) -> Observation:
    """The same entities in different forms, with actors by type if all entities act."""
    features = {name: draw(st.sampled_from(FORMS))(rows) for name, rows in shown.features.items()}
    ids = {name: draw(st.sampled_from(LISTS))(given) for name, given in shown.ids.items()}
    types = st.lists(st.sampled_from(list(obs_space.entities) or ["none"]), max_size=3)
    actions = {
        name: dataclasses.replace(untyped(mask), actor_types=draw(types))
        if obs_space.entities and _asks_all(mask)
        else mask
        for name, mask in shown.actions.items()
    }
    return dataclasses.replace(shown, features=features, ids=ids, actions=actions)


def _asks_all(mask: ActionMask) -> bool:
    """All entities act, without masks."""
    if isinstance(mask, GlobalCategoricalActionMask) or mask.actor_ids is not None:
        return False
    return getattr(mask, "mask", None) is None


@settings(max_examples=40)
@given(st.data())
def test_a_batch_shows_what_the_observations_hold(data: st.DataObject) -> None:
    obs_space, action_space = data.draw(obs_spaces()), data.draw(action_spaces())
    one_form = observations(obs_space, action_space).flatmap(lambda one: forms_of(one, obs_space))
    shown = data.draw(st.lists(one_form, max_size=3))
    writer = ObservationBatcher(obs_space, action_space)
    for one in shown:
        writer.add(one)
    assert_knows_who_was_asked(writer, shown)
    batch = finish(writer)
    for row, one in enumerate(shown):
        for name, entity in obs_space.entities.items():
            expected = np.array(untyped(one.features.get(name, ())), dtype=np.float32)
            shape = one.num_entities(name), len(entity.features)
            assert_array_equal(batch.features[name][row], expected.reshape(shape))
            if name in batch.visible:
                flags = one.visible.get(name, np.ones(one.num_entities(name), dtype=np.bool_))
                assert_array_equal(batch.visible[name][row], untyped(flags))
        if GLOBAL_ENTITY in batch.features:
            assert_array_equal(batch.features[GLOBAL_ENTITY][row], [one.global_features])
        for name in action_space:
            assert_asks(batch, row, one, name, obs_space)
    hidden = {name for one in shown for name in one.visible}
    assert set(batch.visible) == hidden


def assert_knows_who_was_asked(writer: ObservationBatcher, shown: Sequence[Observation]) -> None:
    """Ids equal those of the plain questions; those of the last batch stay after `clear`."""
    action_space = {name: where.space for name, where in writer.layout.actions.items()}
    expected: dict[str, list[Asked]] = {name: [] for name in action_space}
    for row, one in enumerate(shown):
        for question in questions(one, writer.obs_space, action_space):
            expected[question.name].append((row, question.actors, question.actees))
    asked = {
        name: [(row, list(actors), list(actees)) for row, actors, actees in rows]
        for name, rows in writer.asked.items()
    }
    assert asked == expected


def assert_asks(batch: VecObs, row: int, one: Observation, name: str, obs_space: ObsSpace) -> None:
    vec = batch.action_masks[name]
    actors = one.actor_indices(name, obs_space)
    assert_array_equal(vec.actors[row], actors)
    given = getattr(one.actions.get(name), "mask", None)
    if hasattr(vec, "actees"):
        assert_array_equal(vec.actees[row], one.actee_indices(name, obs_space))
    if given is not None:
        assert_array_equal(untyped(vec).mask[row].reshape(-1), np.ravel(given))
    elif getattr(vec, "mask", None) is not None:
        assert untyped(vec).mask[row].all()


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2], [3, 4]],
        ((1.0, 2.0), (3.0, 4.0)),
        [np.array([1, 2]), np.array([3.0, 4.0])],
        np.array([[1, 2], [3, 4]], dtype=np.uint8),
        np.array([[1, 2], [3, 4]], dtype=np.float64),
        np.array([[1, 2], [3, 4]], dtype=np.int64)[::1],
        np.asfortranarray(np.array([[1.0, 2.0], [3.0, 4.0]])),
    ],
)
def test_features_may_have_any_form(rows: Any) -> None:  # noqa: ANN401
    values = write(observation(features={"A": rows})).features["A"].values
    assert values.dtype == np.float32
    assert values.tolist() == [[1, 2], [3, 4]]


def test_small_and_large_arrays_and_lists_mix() -> None:
    large = np.arange(400.0).reshape(200, 2)
    forms: list[Any] = [large[:2], large, large[:1].tolist(), [], large[:3], large]
    batch = write(*(observation(features={"A": rows}) for rows in forms))
    for row, rows in zip(batch.features["A"], forms, strict=True):
        assert row.tolist() == [list(r) for r in rows]


def test_entities_without_features_are_counted() -> None:
    many = np.zeros((100, 0))
    batch = write(observation(features={"B": many}), observation(features={"B": [[], []]}))
    assert batch.features["B"].lengths.tolist() == [100, 2]
    assert batch.features["B"].values.shape == (102, 0)


def test_a_last_observation_asks_nothing() -> None:
    batch = write(observation(actions={"call": GlobalCategoricalActionMask()}), ask=False)
    assert not batch.is_ready.any()


def test_a_blank_last_observation_needs_no_global_features() -> None:
    batch = write(Observation(reward=1.0, terminated=True, metrics={"won": 2.0}), ask=False)
    assert batch.features[GLOBAL_ENTITY].lengths.tolist() == [0]
    assert batch.metrics["won"].sum == 2.0


def test_an_absent_action_has_no_actor_in_that_row() -> None:
    every = {
        "move": CategoricalActionMask(actor_types=["A"], mask=np.array([[1, 0], [1, 1]])),
        "call": GlobalCategoricalActionMask(mask=[True, False, True]),
        "pick": SelectEntityActionMask(actor_types=["B"], actee_types=["A"], mask=[[False, True]]),
        "turn": ContinuousActionMask(actor_types=["A"]),
    }
    batch = write(observation(), observation(actions=every), observation())
    for name, mask in batch.action_masks.items():
        assert mask.actors.lengths.tolist() == [0, {"move": 2, "turn": 2}.get(name, 1), 0]
    assert untyped(batch.action_masks["pick"]).actees.lengths.tolist() == [0, 2, 0]
    assert untyped(batch.action_masks["pick"]).mask.lengths.tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": {"Z": [[1]]}}, "entity 'Z' is not in the observation space, which has A, B"),
        ({"features": {GLOBAL_ENTITY: [[1]]}}, "'__global__' is not in the observation space"),
        ({"features": {"A": [[1, 2], [3]]}}, r"row 1 is \[3\], expected a sequence of 2.*x, y"),
        ({"features": {"A": [1, 2]}}, "row 0 is 1, expected a sequence of 2"),
        ({"features": {"A": np.zeros((2, 3))}}, r"\(num_entities, 2\).*got \(2, 3\) float64"),
        ({"features": {"A": np.zeros(2)}}, r"got \(2,\)"),
        ({"features": {"A": np.full((1, 2), "a")}}, "a numeric dtype"),
        ({"features": {"A": [["a", "b"]]}}, "'x' of row 0 must be a number.*got 'a'"),
        ({"features": {"A": [[0, None]]}}, "'y' of row 0 must be a number.*got None"),
        ({"features": {"A": [[0, 0], [np.nan, 0]]}}, "'x' of row 1 must be finite, got nan"),
        ({"features": {"A": np.full((99, 2), 1e39)}}, "'x' of row 0 must be finite, got inf"),
        ({"global_features": []}, "0 global features, expected 1: t"),
        ({"global_features": [1, 2]}, "2 global features, expected 1"),
        ({"global_features": ["a"]}, "feature 't' of row 0 must be a number"),
        ({"global_features": [np.inf]}, "'t' of row 0 must be finite"),
        ({"visible": {"Z": []}}, "visible names entity 'Z'"),
        ({"visible": {"A": [True]}}, r"visible of A needs 2 bools.*\(1,\)"),
        ({"visible": {"A": [0.5, 1]}}, "visible of A needs 2 bools.*float64"),
        ({"actions": {"fly": CategoricalActionMask()}}, "'fly' is not in the action space.*move"),
        ({"actions": {"move": GlobalCategoricalActionMask()}}, "does not take a GlobalCat"),
        ({"actions": {"call": CategoricalActionMask()}}, "does not take a CategoricalAct"),
        ({"actions": {"pick": ContinuousActionMask()}}, "does not take a ContinuousAct"),
        ({"actions": {"turn": SelectEntityActionMask()}}, "does not take a SelectEntity"),
        ({"actions": {"move": CategoricalActionMask(actor_ids=["no"])}}, "actor 'no' is not among"),
        ({"actions": {"pick": SelectEntityActionMask(actee_ids=["no"])}}, "actee 'no' is not"),
        ({"actions": {"pick": SelectEntityActionMask(actee_types=[])}}, "no legal choice"),
        ({"actions": {"move": CategoricalActionMask(actor_types=["Z"])}}, "actor type 'Z' is not"),
        ({"actions": {"pick": SelectEntityActionMask(actee_types=["Z"])}}, "actee type 'Z' is not"),
        ({"ids": {"A": ["a"]}}, "entity 'A': 2 rows of features but 1 ids"),
        ({"actions": {"call": GlobalCategoricalActionMask([True] * 2)}}, r" \(3,\): got \(2,\)"),
        ({"actions": {"call": GlobalCategoricalActionMask([[False] * 3])}}, "no legal choice"),
        (
            {"actions": {"pick": SelectEntityActionMask(mask=np.ones((3, 2), dtype=np.bool_))}},
            r"\(3, 3\): got \(3, 2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"env 1.*{message}"):
        write(observation(), observation(**changes))


def test_ids_of_types_that_nobody_declared_are_left_alone() -> None:
    batch = write(observation(ids={"Z": ["z"], "A": ["a", "b"]}))
    assert batch.features["A"].lengths.tolist() == [2]


def test_a_last_observation_needs_no_ids() -> None:
    assert len(write(observation(ids={"A": ["a"]}), ask=False)) == 1


def test_those_who_were_asked_stay_known_when_the_batch_is_cleared() -> None:
    writer = ObservationBatcher(SPACE, ACTIONS)
    mask = CategoricalActionMask(actor_ids=[("B", 0), "b", "a"])
    writer.add(observation(ids={"A": ["a", "b"]}, actions={"move": mask}))
    asked = writer.asked["move"]
    writer.clear()
    assert asked == [(0, [("B", 0), "b", "a"], ())]
    assert writer.asked["move"] == []


def test_neighbours_act_as_one_group() -> None:
    names = list("abcdefg")
    batch = write(
        observation(),
        observation(
            features={"A": np.zeros((5, 2)), "B": [[], []]},
            ids={"A": names[:5], "B": names[5:]},
            actions={"turn": ContinuousActionMask(actor_ids=list("bcdefgaab"))},
        ),
    )
    assert batch.action_masks["turn"].actors[1].tolist() == [1, 2, 3, 4, 5, 6, 0, 0, 1]


def test_global_features_that_nobody_declared_are_refused() -> None:
    writer = ObservationBatcher(ObsSpace([], {"A": Entity(["x", "y"])}), {})
    with pytest.raises(SchemaError, match="1 global features, expected 0"):
        writer.add(observation(features={}))


def test_spaces_of_nothing_are_named() -> None:
    writer = ObservationBatcher(ObsSpace(), {})
    with pytest.raises(SchemaError, match="which has none"):
        writer.add(Observation(reward=0.0, features={"A": [[1]]}))
    with pytest.raises(SchemaError, match="which has none"):
        writer.add(Observation(reward=0.0, actions={"a": CategoricalActionMask()}))


# Adding many at once equals adding them one by one.

ALIKE = {name: ACTIONS[name] for name in ("move", "call", "pick")}
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


def alike(**changes: Any) -> Observation:  # noqa: ANN401
    return Observation(**{**PLAIN, **changes})


def added_both_ways(
    shown: Sequence[Observation],
    obs_space: ObsSpace = SPACE,
    action_space: dict[str, ActionSpace] = ALIKE,
) -> tuple[ObservationBatcher, ObservationBatcher, bool]:
    """The first observation is added separately, so numbers do not start at 0."""
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
    bulk, single, _ = added_both_ways(shown, obs_space, dict(action_space))
    assert_same(bulk, single)


ROWS = st.lists(st.tuples(st.integers(-9, 9), st.floats(-1, 1, width=32)), min_size=1, max_size=4)


@settings(max_examples=40)
@given(st.lists(st.tuples(ROWS, st.integers(0, 2)), min_size=3, max_size=5), st.booleans())
def test_plain_ones_are_added_at_once(
    rows: list[tuple[list[tuple[int, float]], int]], is_array: bool
) -> None:
    shown = [
        alike(
            features={
                "A": np.array(places, dtype=np.float32) if is_array else places,
                "B": np.zeros((count, 0), dtype=np.float32) if is_array else [()] * count,
            },
            ids={"A": [f"a{i}" for i in range(len(places))]} if i % 2 else {},
            metrics={"n": float(i)} if i else {},
        )
        for i, (places, count) in enumerate(rows)
    ]
    bulk, single, are_alike = added_both_ways(shown)
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
    writer = ObservationBatcher(SPACE, ALIKE)
    odd = alike(**NOT_ALIKE[name])
    is_text = name == "text"  # the width is right; packing finds the wrong content
    assert writer.collate([alike(), odd, alike()]) is is_text
    if is_text:
        with pytest.raises(SchemaError, match="must be a number"):
            finish(writer)
        return
    assert writer.num_rows == 0
    writer.add(alike())
    batch = finish(writer)
    assert len(batch) == 1
    assert_array_equal(batch.features["A"].values, [[1, 2], [3, 4]])


@pytest.mark.parametrize("name", ["unknown type", "by id", "no actee"])
def test_what_none_of_them_shows_is_left_alone(name: str) -> None:
    writer = ObservationBatcher(SPACE, ALIKE)
    assert not writer.collate([alike(**NOT_ALIKE[name])] * 3)
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
    writer = ObservationBatcher(ObsSpace([], SPACE.entities), ALIKE)
    plain = alike(global_features=[])
    assert writer.collate([plain, plain], ask=False)
    assert not writer.collate([plain, Observation(reward=0.0, terminated=True)], ask=False)
    assert writer.num_rows == 2


def test_nobody_is_asked_by_last_ones_whatever_their_ids() -> None:
    writer = ObservationBatcher(SPACE, ALIKE)
    assert writer.collate([alike(ids={"A": ["only one"]}, actions={})] * 2, ask=False)
    assert finish(writer).action_masks["call"].actors.lengths.tolist() == [0, 0]


def test_one_alone_is_not_worth_it() -> None:
    writer = ObservationBatcher(SPACE, ALIKE)
    assert not writer.collate([alike()])
    assert not writer.collate([])
