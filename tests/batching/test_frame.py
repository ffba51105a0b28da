"""Frames: the arrays of a batch, views of them, and joining several frames."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import (
    GLOBAL_ENTITY,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.batching.frame import (
    ActionSlots,
    Frame,
    FrameLayout,
    LocalMemory,
    Slot,
    concat_frames,
)
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from tests.helpers.strategies import action_spaces, obs_spaces

Slots = list[NDArray[Any] | None]

OBS = ObsSpace(["time"], {"Head": Entity(["x", "y"]), "Rock": Entity([])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["up", "down", "stay"]),
    "call": GlobalCategoricalActionSpace(["a", "b"]),
    "eat": SelectEntityActionSpace(),
    "push": ContinuousActionSpace([0, 0], [1, 1]),
}
LAYOUT = FrameLayout(OBS, ACTIONS)


@st.composite
def layouts(draw: st.DrawFn) -> FrameLayout:
    return FrameLayout(draw(obs_spaces()), draw(action_spaces()))


@st.composite
def frames(draw: st.DrawFn, layout: FrameLayout) -> Frame:
    """A frame in which any of the optional arrays may be absent."""
    num_rows = draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    lengths = np.zeros((layout.num_lengths, num_rows), dtype=np.int64)
    slots: Slots = [None] * len(layout.slots)
    for name, entity in layout.entities.items():
        most = 1 if name == GLOBAL_ENTITY else 3
        lengths[entity.row] = rng.integers(0, most, size=num_rows, endpoint=True)
        count = int(lengths[entity.row].sum())
        if count and entity.values.width:
            numbers = rng.random(count * entity.values.width, dtype=np.float32)
            slots[entity.values.index] = numbers
        if draw(st.booleans()):
            slots[entity.visible.index] = rng.random(count) < 0.5
    for action in layout.actions.values():
        _add_action(action, lengths, slots, rng, has_mask=draw(st.booleans()))
    return Frame(layout, lengths, slots)


def _add_action(
    where: ActionSlots,
    lengths: NDArray[np.int64],
    slots: Slots,
    rng: np.random.Generator,
    *,
    has_mask: bool,
) -> None:
    is_global = isinstance(where.space, GlobalCategoricalActionSpace)
    num_rows = lengths.shape[1]
    lengths[where.row] = rng.integers(0, 1 if is_global else 2, size=num_rows, endpoint=True)
    count = int(lengths[where.row].sum())
    if count and not is_global:
        slots[where.actors.index] = rng.integers(0, 9, size=count)
    flags = count * where.mask.width
    if isinstance(where.space, SelectEntityActionSpace):
        lengths[where.actee_row] = rng.integers(0, 3, size=num_rows)
        flags = int(lengths[where.row] @ lengths[where.actee_row])
        num_actees = int(lengths[where.actee_row].sum())
        if num_actees:
            slots[where.actees.index] = rng.integers(0, 9, size=num_actees)
    if has_mask and not isinstance(where.space, ContinuousActionSpace):
        slots[where.mask.index] = rng.random(flags) < 0.5


def rows_of(frame: Frame) -> list[dict[str, object]]:
    """The content of a frame, row by row, in plain types; absent flags are all true."""
    features, visible, masks = frame.features, frame.visible, frame.action_masks
    told = []
    for row in range(frame.lengths.shape[1]):
        one: dict[str, object] = {
            f"features {name}": features[name][row].tolist() for name in features
        }
        for name in features:
            seen = (
                visible[name][row].tolist()
                if name in visible
                else [True] * len(features[name][row])
            )
            one[f"visible {name}"] = seen
        for name, mask in masks.items():
            one[f"action {name}"] = _told(mask, row, frame.layout.actions[name])
        told.append(one)
    return told


def _told(mask: VecActionMask, row: int, where: ActionSlots) -> object:
    actors = mask.actors[row].tolist()
    if isinstance(mask, VecContinuousActionMask):
        return actors
    if isinstance(mask, VecCategoricalActionMask):
        everything = np.ones((len(actors), where.mask.width), dtype=np.bool_)
        return actors, (everything if mask.mask is None else mask.mask[row]).tolist()
    actees = mask.actees[row].tolist()
    pairs = np.ones(len(actors) * len(actees), dtype=np.bool_)
    return actors, actees, (pairs if mask.mask is None else mask.mask[row]).tolist()


# ---------------------------------------------------------------------------- layout


@given(layout=layouts())
def test_every_slot_and_row_of_lengths_has_one_meaning(layout: FrameLayout) -> None:
    assert [slot.index for slot in layout.slots] == list(range(len(layout.slots)))
    rows = [entity.row for entity in layout.entities.values()]
    meant = [slot for entity in layout.entities.values() for slot in entity[1:]]
    for action in layout.actions.values():
        is_select = isinstance(action.space, SelectEntityActionSpace)
        rows += [action.row, action.actee_row] if is_select else [action.row]
        meant += [action.actors, action.mask, action.actees]
    assert rows == list(range(layout.num_lengths))
    assert meant == layout.slots
    assert list(layout.entities) == list(layout.widths)
    assert layout.num_types - layout.num_local_types == (GLOBAL_ENTITY in layout.widths)


def test_slots_have_the_dtypes_and_widths_of_their_spaces() -> None:
    head, rock, time = (LAYOUT.entities[name] for name in ("Head", "Rock", GLOBAL_ENTITY))
    assert [each.values.width for each in (head, rock, time)] == [2, 0, 1]
    assert {each.values.dtype for each in LAYOUT.entities.values()} == {np.dtype(np.float32)}
    assert {each.visible.dtype for each in LAYOUT.entities.values()} == {np.dtype(np.bool_)}
    assert [action.mask.width for action in LAYOUT.actions.values()] == [3, 2, 1, 2]
    for action in LAYOUT.actions.values():
        assert [action.actors.dtype, action.mask.dtype] == [np.dtype(np.int64), np.dtype(np.bool_)]
        assert (action.actees.dtype, action.actors.width) == (np.dtype(np.int64), 1)


# ---------------------------------------------------------------------------- one frame


@given(frame=layouts().flatmap(frames))
def test_a_frame_gives_views_of_its_slots(frame: Frame) -> None:
    for name, where in frame.layout.entities.items():
        rows = frame.features[name]
        assert rows.values.shape == (frame.lengths[where.row].sum(), where.values.width)
        assert rows.values.dtype == np.float32
        assert rows.lengths.tolist() == frame.lengths[where.row].tolist()
        array = frame.slots[where.values.index]
        assert array is None or np.shares_memory(rows.values, array)
        flags = frame.slots[where.visible.index]
        assert (name in frame.visible) == (flags is not None)
        assert flags is None or frame.visible[name].values is flags


@given(frame=layouts().flatmap(frames))
def test_masks_are_of_the_kind_of_their_space(frame: Frame) -> None:
    masks = frame.action_masks
    assert list(masks) == list(frame.layout.actions)
    for name, mask in masks.items():
        where = frame.layout.actions[name]
        assert mask.actors.values.dtype == np.int64
        assert len(mask.actors.values) == mask.actors.lengths.sum()
        if isinstance(where.space, ContinuousActionSpace):
            assert isinstance(mask, VecContinuousActionMask)
        elif isinstance(where.space, SelectEntityActionSpace):
            assert isinstance(mask, VecSelectEntityActionMask)
            assert mask.actees.lengths.tolist() == frame.lengths[where.actee_row].tolist()
        else:
            assert isinstance(mask, VecCategoricalActionMask)
            allowed = mask.mask
            assert allowed is None or allowed.values.shape[1:] == (where.mask.width,)


def test_the_actor_of_a_global_action_follows_the_last_entity() -> None:
    lengths = np.zeros((LAYOUT.num_lengths, 3), dtype=np.int64)
    lengths[LAYOUT.entities["Head"].row] = [2, 1, 0]
    lengths[LAYOUT.entities["Rock"].row] = [3, 4, 0]
    lengths[LAYOUT.entities[GLOBAL_ENTITY].row] = 1
    lengths[LAYOUT.actions["call"].row] = [1, 0, 1]
    frame = Frame(LAYOUT, lengths, [None] * len(LAYOUT.slots))
    assert frame.action_masks["call"].actors == RaggedArray(np.array([5, 0]), [1, 0, 1])


# ---------------------------------------------------------------------------- several frames


def part_of(frame: Frame, first: int, last: int) -> Frame:
    """A range of rows as a separate frame."""
    lengths, slots = frame.lengths, list(frame.slots)

    def cut(slot: Slot, numbers: NDArray[np.int64]) -> None:
        array = frame.slots[slot.index]
        if array is not None:
            slots[slot.index] = array[numbers[:first].sum() : numbers[:last].sum()]

    for entity in frame.layout.entities.values():
        cut(entity.values, lengths[entity.row] * entity.values.width)
        cut(entity.visible, lengths[entity.row])
    for action in frame.layout.actions.values():
        counts, widths = lengths[action.row], np.array(action.mask.width)
        if isinstance(action.space, SelectEntityActionSpace):
            widths = lengths[action.actee_row]
            cut(action.actees, widths)
        cut(action.actors, counts)
        cut(action.mask, counts * widths)
    return Frame(frame.layout, lengths[:, first:last], slots)


def side_by_side(parts: list[Frame]) -> NDArray[np.int64]:
    return np.concatenate([part.lengths for part in parts], axis=1)


@given(frame=(st.just(LAYOUT) | layouts()).flatmap(frames), cuts=st.lists(st.integers(0, 4)))
def test_a_frame_is_its_parts_side_by_side(frame: Frame, cuts: list[int]) -> None:
    num_rows = frame.lengths.shape[1]
    places = [0, *sorted(min(cut, num_rows) for cut in cuts), num_rows]
    parts = [part_of(frame, *each) for each in pairwise(places)]
    joined = concat_frames(frame.layout, parts, side_by_side(parts))
    assert joined.lengths.tolist() == frame.lengths.tolist()
    for array, whole in zip(joined.slots, frame.slots, strict=True):
        mine, theirs = ([] if each is None else each.tolist() for each in (array, whole))
        assert mine == theirs


@given(data=st.data())
def test_gathered_frames_tell_what_each_told_row_by_row(data: st.DataObject) -> None:
    layout = data.draw(st.just(LAYOUT) | layouts())
    parts = data.draw(st.lists(frames(layout), min_size=1, max_size=4))
    expected = [row for part in parts for row in rows_of(part)]
    assert rows_of(concat_frames(layout, parts, side_by_side(parts))) == expected
    assert [row for part in parts for row in rows_of(part)] == expected, "the parts have changed"


@given(data=st.data())
@settings(max_examples=30)
def test_what_nobody_has_stays_absent_and_several_share_no_memory(data: st.DataObject) -> None:
    parts = data.draw(st.lists(frames(LAYOUT), min_size=2, max_size=3))
    gathered = concat_frames(LAYOUT, parts, side_by_side(parts))
    for index, array in enumerate(gathered.slots):
        given = [part.slots[index] for part in parts]
        assert (array is None) == all(one is None for one in given)
        assert array is None or array.dtype == LAYOUT.slots[index].dtype
        assert not any(
            np.shares_memory(array, one) for one in given if one is not None and array is not None
        )


@given(data=st.data())
def test_frames_are_joined_in_memory_that_was_used_before(data: st.DataObject) -> None:
    """After different frames, the same frames, or the same arrays with other values."""
    memory = LocalMemory()
    batches = data.draw(st.lists(st.lists(frames(LAYOUT), min_size=2, max_size=3), max_size=2))
    order = data.draw(st.lists(st.sampled_from(batches), max_size=5)) if batches else []
    for parts in order:
        for part in parts:
            for array in part.slots:
                if array is not None:
                    array[:] = np.roll(array, 1)
        expected = [row for part in parts for row in rows_of(part)]
        parts = [Frame(LAYOUT, part.lengths, part.slots) for part in parts]
        assert rows_of(concat_frames(LAYOUT, parts, side_by_side(parts), memory)) == expected


@given(frame=frames(LAYOUT))
def test_one_frame_is_not_copied(frame: Frame) -> None:
    lengths = frame.lengths.copy()
    gathered = concat_frames(LAYOUT, [frame], lengths)
    assert gathered.lengths is lengths
    assert all(a is b for a, b in zip(gathered.slots, frame.slots, strict=True))


# ---------------------------------------------------------------------------- memory


@given(counts=st.lists(st.tuples(st.integers(0, len(LAYOUT.slots) - 1), st.integers(0, 9))))
def test_memory_of_each_slot_is_its_own(counts: list[tuple[int, int]]) -> None:
    memory = LocalMemory()
    given: dict[int, NDArray[Any]] = {}
    for index, num_rows in counts:
        slot = LAYOUT.slots[index]
        array = memory.allocate(slot, num_rows)
        assert (array.shape, array.dtype) == ((num_rows * slot.width,), slot.dtype)
        for other, before in given.items():
            assert other == index or not np.shares_memory(array, before)
        given[index] = array


def test_memory_is_used_again_and_grows() -> None:
    memory, slot = LocalMemory(), LAYOUT.entities["Head"].values
    large = memory.allocate(slot, 8)
    assert np.shares_memory(memory.allocate(slot, 3), large)
    assert np.shares_memory(memory.allocate(slot, 8), large)
    assert memory.allocate(slot, 800).shape == (1600,)
    lengths = memory.lengths(LAYOUT, 4)
    assert memory.lengths(LAYOUT, 4) is lengths
    assert (lengths.shape, lengths.dtype) == ((LAYOUT.num_lengths, 4), np.dtype(np.int64))
    assert memory.lengths(LAYOUT, 5).shape == (LAYOUT.num_lengths, 5)
