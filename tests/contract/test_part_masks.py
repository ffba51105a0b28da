"""Masks that depend on an earlier choice, compared with plain loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import (
    CategoricalActionSpace,
    RaggedArray,
    SchemaError,
    SelectEntityActionSpace,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
    require_given,
    spaces_from_json,
    spaces_to_json,
)
from entity_env.core.vec_actions import (
    after_any_choice,
    choices_without_next,
    independent,
    narrowed,
    repeated,
)
from tests.helpers.batches import assert_same_mask

Mask: TypeAlias = VecCategoricalActionMask | VecSelectEntityActionMask
NUM_LABELS = 3


@dataclass
class Case:
    """A mask and its flags, `(num_before, num_choices)` for every actor of every row."""

    mask: Mask
    flags: list[NDArray[np.bool_]]
    counts: list[int]
    """Per row, choices of the action before."""
    rows: list[int]
    """Row of each actor."""


@st.composite
def cases(draw: st.DrawFn, *, counts: list[int] | None = None, alike: bool = False) -> Case:
    is_select = draw(st.booleans())
    num_rows = draw(st.integers(1, 3)) if counts is None else len(counts)
    counts = counts or draw(st.lists(st.integers(1, 3), min_size=num_rows, max_size=num_rows))
    widths = [draw(st.integers(1, 3)) if is_select else NUM_LABELS for _ in counts]
    num_actors = [draw(st.integers(0, 2)) for _ in counts]
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rows = [row for row, count in enumerate(num_actors) for _ in range(count)]
    flags = [rng.random((counts[row], widths[row])) < 0.6 for row in rows]
    if alike:
        flags = [np.repeat(each[:1], len(each), axis=0) for each in flags]
    return Case(_mask(flags, counts, widths, rows, is_select=is_select), flags, counts, rows)


def _mask(
    flags: list[NDArray[np.bool_]],
    counts: list[int],
    widths: list[int],
    rows: list[int],
    *,
    is_select: bool,
) -> Mask:
    num_actors = np.bincount(rows, minlength=len(counts)) if rows else np.zeros(len(counts), int)
    actors = RaggedArray(np.arange(len(rows)), num_actors)
    per_actor = RaggedArray(np.array(counts), np.ones(len(counts), int))
    sizes = num_actors * np.array(counts)
    if not is_select:
        values = np.concatenate([np.zeros((0, NUM_LABELS), np.bool_), *flags])
        return VecCategoricalActionMask(actors, RaggedArray(values, sizes), per_actor)
    values = np.concatenate([np.zeros(0, np.bool_), *(each.reshape(-1) for each in flags)])
    actees = RaggedArray(np.arange(sum(widths)), widths)
    return VecSelectEntityActionMask(
        actors, actees, RaggedArray(values, sizes * np.array(widths)), per_actor
    )


def _plain(case: Case, rows: list[NDArray[np.bool_]]) -> Mask:
    """The mask with one row of flags per actor."""
    mask = case.mask
    lengths = mask.actors.lengths
    if isinstance(mask, VecCategoricalActionMask):
        values = np.array(rows, np.bool_).reshape(-1, NUM_LABELS)
        return replace(mask, mask=RaggedArray(values, lengths), per_actor=None)
    values = np.concatenate([np.zeros(0, np.bool_), *rows])
    return replace(mask, mask=RaggedArray(values, lengths * mask.actees.lengths), per_actor=None)


@given(cases(), st.data())
def test_a_choice_leaves_its_row(case: Case, data: st.DataObject) -> None:
    chosen = [data.draw(st.integers(0, len(each) - 1)) for each in case.flags]
    wanted = _plain(case, [each[i] for each, i in zip(case.flags, chosen, strict=True)])
    assert_same_mask(narrowed(case.mask, np.array(chosen, np.int64)), wanted)
    without = replace(case.mask, mask=None)
    assert narrowed(without, np.array(chosen, np.int64)) == replace(without, per_actor=None)


@given(cases())
def test_what_is_legal_after_any_choice(case: Case) -> None:
    wanted = _plain(case, [np.asarray(each.any(axis=0)) for each in case.flags])
    assert_same_mask(after_any_choice(case.mask), wanted)


@given(cases(alike=True))
def test_a_mask_without_dependence_survives(case: Case) -> None:
    plain = _plain(case, [each[0] for each in case.flags])
    assert_same_mask(independent("a", case.mask, "Gym"), plain)
    assert_same_mask(repeated("a", plain, np.array(case.counts)), case.mask)
    assert_same_mask(repeated("a", case.mask, np.array(case.counts)), case.mask)
    assert repeated("a", plain, None) is plain


@given(cases())
def test_a_dependence_is_refused(case: Case) -> None:
    if all((each == each[0]).all() for each in case.flags):
        independent("a", case.mask, "Gym")
        return
    message = r"action 'a' depends on the choice before it, and Gym has no such masks: expected"
    with pytest.raises(SchemaError, match=message):
        independent("a", case.mask, "Gym")


def test_another_number_of_choices_is_refused() -> None:
    actors = RaggedArray(np.zeros(1, np.int64), [1])
    mask = VecCategoricalActionMask(actors, None, RaggedArray(np.array([3]), [1]))
    with pytest.raises(SchemaError, match=r"it depends, \[2\]\.\.\.: got \[3\]"):
        repeated("a", mask, np.array([2]))
    with pytest.raises(SchemaError, match=r"it depends, None: got \[3\]"):
        repeated("a", mask, None)


@given(cases(), st.data())
def test_dead_ends_are_found(case: Case, data: st.DataObject) -> None:
    before_of_row = [[data.draw(st.booleans()) for _ in range(count)] for count in case.counts]
    before = [np.array([before_of_row[row]]) for row in case.rows]
    widths = case.counts
    mask = _mask(before, [1] * len(widths), widths, case.rows, is_select=True)
    mask = replace(mask, per_actor=None)
    wanted = [
        (actor, choice)
        for actor, row in enumerate(case.rows)
        for choice in range(case.counts[row])
        if before[actor][0][choice] and not case.flags[actor][choice].any()
    ]
    assert list(choices_without_next(case.mask, mask)) == wanted
    everything = [
        (actor, choice)
        for actor, row in enumerate(case.rows)
        for choice in range(case.counts[row])
        if not case.flags[actor][choice].any()
    ]
    assert list(choices_without_next(case.mask, replace(mask, mask=None))) == everything


# ------------------------------------------------------------------ spaces

LABELS = ("x", "y")


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"b": SelectEntityActionSpace(("a",))}, r"'b' depends on 'a', .* earlier are none"),
        ({"b": SelectEntityActionSpace(("b",))}, r"'b' depends on 'b', .* earlier are none"),
        (
            {
                "a": GlobalCategoricalActionSpace(LABELS),
                "b": CategoricalActionSpace(LABELS, ("a",)),
            },
            r"'b' depends on 'a', but only one of them is global",
        ),
        (
            {"a": SelectEntityActionSpace(), "b": CategoricalActionSpace(LABELS, ("a", "a"))},
            r"actions that another depends on must differ: got a more than once",
        ),
    ],
)
def test_dependences_that_cannot_be(actions: dict[str, ActionSpace], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        require_given(actions)
    with pytest.raises(SchemaError, match=message):
        spaces_from_json(spaces_to_json(ObsSpace(), actions))


def test_dependences_come_back_from_json() -> None:
    actions: dict[str, ActionSpace] = {
        "a": SelectEntityActionSpace(),
        "b": ContinuousActionSpace((0.0,), (1.0,), given=("a",)),
        "c": CategoricalActionSpace(LABELS, ("a", "b")),
    }
    data: Any = spaces_to_json(ObsSpace(), actions)
    assert [each.get("given") for each in data["actions"]] == [None, ["a"], ["a", "b"]]
    found = spaces_from_json(data)[1]
    assert spaces_to_json(ObsSpace(), found) == data
