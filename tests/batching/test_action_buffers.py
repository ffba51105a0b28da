"""ActionBuffer: actors, legal choices, and all forms of masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import ContinuousActionSpace, Entity, ObsSpace, SchemaError
from entity_env.batching.action_buffers import ContinuousBuffer, EntityOffsets
from entity_env.batching.frame import Frame, FrameLayout, LocalMemory
from entity_env.core.masks import as_mask
from tests.helpers.strategies import bool_rows


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_masks_may_have_any_form(num_actors: int, num_choices: int, data: st.DataObject) -> None:
    mask = data.draw(bool_rows(num_actors, num_choices))
    forms: list[Any] = [mask, mask.tolist(), mask.astype(np.int64), mask.astype(np.float32)]
    if num_actors == 1:
        forms += [mask[0], mask[0].tolist()]
    for form in forms:
        allowed = as_mask(form, (num_actors, num_choices), "move")
        assert allowed.dtype == np.bool_
        assert_array_equal(allowed, mask)
        assert not np.shares_memory(allowed, mask)


def test_nobody_needs_no_choice() -> None:
    empties: list[Any] = [[], np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3), dtype=np.bool_)]
    for mask in empties:
        assert as_mask(mask, (0, 3), "move").shape == (0, 3)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([[True, True]], r"'move' needs the shape \(num_actors, num_choices\) = \(2, 2\): got"),
        ([True, True], r"got \(2,\)"),
        ([[True, True], [True]], r"\(2, 2\): got \[\[True, True\], \[True\]\]"),
        (True, r"got \(\)"),
        (None, r"got \(\)"),
        ([[2, 1], [1, 1]], r"must hold bools.*got 2 \(int\)$"),
        ([[0.5, 1], [1, 1]], r"must hold bools.*got 0.5 \(float\)"),
        ([[np.nan, 1], [1, 1]], "must hold bools"),
        ([[-1, 1], [1, 1]], "must hold bools"),
        ([["a", "b"], ["c", "d"]], r"must hold bools.*got 'a' \(str\)"),
        ([[None, True], [True, True]], r"must hold bools.*got None \(NoneType\)"),
        ([[1j, 1], [1, 1]], r"must hold bools.*got 1j \(complex\)"),
        ([[True, True], [False, False]], "leaves actor 1 no legal choice: allow at least one"),
    ],
)
def test_what_is_no_mask_is_refused(mask: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        as_mask(mask, (2, 2), "move")


@settings(max_examples=50)
@given(st.integers(0, 3), st.integers(0, 4), st.data())
def test_the_layout_says_where_entities_lie(
    num_types: int, num_rows: int, data: st.DataObject
) -> None:
    counts: NDArray[np.int64] = np.array(
        [[data.draw(st.integers(0, 3)) for _ in range(num_rows)] for _ in range(num_types)],
        dtype=np.int64,
    ).reshape(num_types, num_rows)
    layout = EntityOffsets(counts)
    for row in range(num_rows):
        for kind in range(num_types):
            assert layout.offsets[kind, row] == counts[:kind, row].sum()
            assert layout.starts[kind, row] == counts[kind, :row].sum()


@settings(max_examples=80)
@given(st.integers(1, 3), st.integers(1, 5), st.data())
def test_whole_types_are_groups_of_all_their_entities(
    num_types: int, num_rows: int, data: st.DataObject
) -> None:
    some = st.lists(st.integers(0, 3), min_size=num_rows, max_size=num_rows)
    lengths: NDArray[np.int64] = np.array([data.draw(some) for _ in range(num_types)])
    layout = EntityOffsets(lengths)
    whole, single = ContinuousBuffer("turn"), ContinuousBuffer("turn")
    row = 0
    while row < num_rows:
        kinds = data.draw(st.lists(st.integers(0, num_types - 1), max_size=3))
        rows = range(row, data.draw(st.integers(row + 1, num_rows)))
        add_each(single, rows, kinds, layout)
        if data.draw(st.booleans()):
            count = sum(int(lengths[kind, i]) for i in rows for kind in kinds)
            whole.add_types(rows, kinds, count)
        else:
            add_each(whole, rows, kinds, layout)
        row = rows.stop
    assert whole.num_actors == single.num_actors
    assert written(whole, lengths) == written(single, lengths)


def add_each(
    writer: ContinuousBuffer, rows: range, kinds: list[int], layout: EntityOffsets
) -> None:
    for row in rows:
        for kind in kinds:
            if count := int(layout.lengths[kind, row]):
                writer.add_group(row, kind, int(layout.starts[kind, row]), count)


def written(writer: ContinuousBuffer, lengths: NDArray[np.int64]) -> tuple[Any, Any]:
    """Writes the actors of each row and their number."""
    num_types, num_rows = lengths.shape
    space = ObsSpace([], {str(i): Entity(["x"]) for i in range(num_types)})
    layout, memory = FrameLayout(space, {"turn": ContinuousActionSpace([0], [1])}), LocalMemory()
    slots: list[Any] = [None] * len(layout.slots)
    frame = Frame(layout, memory.lengths(layout, num_rows), slots)
    where = layout.actions["turn"]
    writer.write(where, EntityOffsets(lengths), frame, memory)
    actors = frame.slots[where.actors.index]
    return frame.lengths[where.row].tolist(), None if actors is None else actors.tolist()
