"""`Frame`: the arrays of one batch.

A batch is a matrix of lengths, with one column per observation, and flat arrays, the slots.
`FrameLayout` fixes their order for both sides of shared memory; a `FrameMemory` allocates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import is_, itemgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One flat array of a batch."""

    index: int
    dtype: np.dtype[Any]
    width: int
    """Elements per row: a slot with `num_rows` rows is an array of `num_rows * width` elements."""


class EntitySlots(NamedTuple):
    """Slots of one entity type."""

    row: int
    """Row of the matrix of lengths."""
    values: Slot
    visible: Slot
    """Absent if all entities are visible."""


class ActionSlots(NamedTuple):
    """Slots of one action."""

    space: ActionSpace
    row: int
    """Row of the matrix of lengths."""
    actors: Slot
    """Absent for a global action, whose actors follow from the lengths."""
    mask: Slot
    """Absent if everything is allowed."""
    actee_row: int
    """Row of the actees in the matrix of lengths; only select actions have it."""
    actees: Slot
    given: ActionSlots | None
    """The action whose choices the mask depends on, if it has choices."""

    def per_actor(self, lengths: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """`(num_rows,)`: mask rows of each actor; None = one row.

        Args:
            lengths: the matrix of lengths.
        """
        if self.given is None:
            return None
        if isinstance(self.given.space, SelectEntityActionSpace):
            counts: NDArray[np.int64] = lengths[self.given.actee_row]
            return counts
        return np.full(lengths.shape[1], self.given.mask.width)

    def mask_sizes(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """`(num_rows,)`: rows of the mask slot of each observation."""
        sizes: NDArray[np.int64] = lengths[self.row]
        per_actor = self.per_actor(lengths)
        if per_actor is not None:
            sizes = sizes * per_actor
        if isinstance(self.space, SelectEntityActionSpace):
            sizes = sizes * lengths[self.actee_row]
        return sizes


class FrameLayout:
    """Order of the arrays of a batch."""

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> None:
        self.slots: list[Slot] = []
        self.widths = entity_widths(obs_space, action_space)
        self.entities: dict[EntityName, EntitySlots] = {
            name: EntitySlots(row, self._slot(np.float32, width), self._slot(np.bool_))
            for row, (name, width) in enumerate(self.widths.items())
        }
        self.relations = obs_space.relations
        self.num_types = len(self.entities)
        self.num_local_types = self.num_types - (GLOBAL_ENTITY in self.entities)
        self.num_lengths = self.num_types
        self.actions: dict[ActionName, ActionSlots] = {}
        for name, space in action_space.items():
            self.actions[name] = self._action(space)

    def _action(self, space: ActionSpace) -> ActionSlots:
        is_select = isinstance(space, SelectEntityActionSpace)
        row = self.num_lengths
        self.num_lengths += 2 if is_select else 1
        width = 1 if isinstance(space, SelectEntityActionSpace) else len(space)
        given = self.actions[space.given[-1]] if space.given else None
        if given is not None and isinstance(given.space, ContinuousActionSpace):
            given = None
        return ActionSlots(
            space,
            row,
            self._slot(np.int64),
            self._slot(np.bool_, width),
            row + 1,
            self._slot(np.int64),
            given,
        )

    def _slot(self, dtype: type[np.generic], width: int = 1) -> Slot:
        slot = Slot(len(self.slots), np.dtype(dtype), width)
        self.slots.append(slot)
        return slot


Slots: TypeAlias = list[NDArray[Any] | None]
"""One flat array per slot; None = absent."""


class FrameMemory(Protocol):
    """Allocates the arrays of a batch."""

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        """`(layout.num_lengths, num_rows)`, uninitialized."""

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        """`(num_rows * slot.width,)` of the slot's dtype, uninitialized."""

    def written(self, frame: Frame) -> Frame:
        """This frame, or an earlier one with equal lengths and the same arrays."""


class LocalMemory:
    """Memory of this process; each batch overwrites the last one."""

    def __init__(self) -> None:
        self._arrays: dict[int, NDArray[Any]] = {}
        self._parts: dict[int, NDArray[Any]] = {}
        """Of each array, the part that `allocate` returned last."""
        self._lengths: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
        self._last: tuple[Frame, bytes] | None = None
        self._join = _Join([], [], [], False)

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        if self._lengths.shape != (layout.num_lengths, num_rows):
            self._lengths = np.empty((layout.num_lengths, num_rows), dtype=np.int64)
        return self._lengths

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        count = num_rows * slot.width
        part = self._parts.get(slot.index)
        if part is None or len(part) != count:
            array = self._arrays.get(slot.index)
            if array is None or len(array) < count:
                array = self._arrays[slot.index] = np.empty(2 * count, dtype=slot.dtype)
            part = self._parts[slot.index] = array[:count]
        return part

    def written(self, frame: Frame) -> Frame:
        # Equal lengths in the same arrays give equal views: reuse the last frame's.
        lengths = frame.lengths.tobytes()
        if self._last is not None:
            last, last_lengths = self._last
            if lengths == last_lengths and all(map(is_, frame.slots, last.slots)):
                return last
        self._last = frame, lengths
        return frame

    def join(self, layout: FrameLayout, sources: Sequence[Slots]) -> _Join:
        """Copies the slots of several frames here, one frame after another."""
        join = self._join
        if len(sources) != len(join.sources) or not all(map(is_, sources, join.sources)):
            copies: list[tuple[list[NDArray[Any]], NDArray[Any]]] = []
            slots: Slots = [None] * len(layout.slots)
            for slot, *parts in zip(layout.slots, *sources, strict=True):
                if present := [part for part in parts if part is not None]:
                    out = self.allocate(slot, sum(map(len, present)) // slot.width)
                    slots[slot.index] = out
                    copies.append((present, out))
            is_partial = any(len(present) < len(sources) for present, _ in copies)
            join = self._join = _Join(sources, copies, slots, is_partial)
        for present, out in join.copies:
            np.concatenate(present, out=out)
        return join


class _Join(NamedTuple):
    """The last join: if the sources are unchanged, its copies are repeated."""

    sources: Sequence[Slots]
    copies: list[tuple[list[NDArray[Any]], NDArray[Any]]]
    slots: Slots
    is_partial: bool
    """Whether some sources lack arrays that others have."""


@dataclass(eq=False)
class Frame:
    """The arrays of one batch; its properties are computed on first access.

    Args:
        lengths: `(layout.num_lengths, num_rows)` int64.
        slots: one flat array per slot; None = absent.
    """

    layout: FrameLayout
    lengths: NDArray[np.int64]
    slots: Slots

    @cached_property
    def features(self) -> dict[EntityName, RaggedArray[np.float32]]:
        return {
            name: RaggedArray.unchecked(self._features(where), self.lengths[where.row])
            for name, where in self.layout.entities.items()
        }

    @cached_property
    def visible(self) -> dict[EntityName, RaggedArray[np.bool_]]:
        """Visibility flags of types with hidden entities."""
        return {
            name: RaggedArray.unchecked(flags, self.lengths[where.row])
            for name, where in self.layout.entities.items()
            if (flags := self.slots[where.visible.index]) is not None
        }

    @cached_property
    def action_masks(self) -> dict[ActionName, VecActionMask]:
        return {name: self.mask_of(where) for name, where in self.layout.actions.items()}

    @cached_property
    def has_actors(self) -> NDArray[np.bool_]:
        """`(num_rows,)` bool: the row waits for an action."""
        rows = [where.row for where in self.layout.actions.values()]
        has_actors: NDArray[np.bool_] = np.add.reduce(self.lengths[rows]) > 0
        return has_actors

    def differing_actors(self, where: ActionSlots, other: ActionSlots) -> int | None:
        """The first row with other actors of one action than of another; None = all are equal."""
        wrong = self.lengths[where.row] != self.lengths[other.row]
        if not wrong.any():
            actors, others = self.slots[where.actors.index], self.slots[other.actors.index]
            if actors is None or others is None or np.array_equal(actors, others):
                return None
            rows = np.repeat(np.arange(len(wrong)), self.lengths[where.row])
            return int(rows[np.flatnonzero(actors != others)[0]])
        return int(np.flatnonzero(wrong)[0])

    def foreign_relation(self, where: ActionSlots, selected: EntityName) -> str:
        """Which actor may choose a relation of another actor, in words; "" if none may.

        Args:
            where: an action that selects relations; it must have a mask.
            selected: the relations.
        """
        mask, lengths = self.mask_of(where), self.lengths
        if not isinstance(mask, VecSelectEntityActionMask) or mask.mask is None:
            return ""
        row, flags = mask.actors.row_index, mask.mask.values
        width = mask.actees.lengths[row]
        size = width if mask.per_actor is None else width * mask.per_actor.values[row]
        first = np.cumsum(size) - size
        is_last = np.diff(row, append=-1) != 0  # a relation starts at one of the actors of its row
        if np.count_nonzero(flags) > size[is_last].sum():
            return f"several actors may choose one {selected!r}"
        at = np.flatnonzero(flags)
        actor = np.searchsorted(first, at, side="right") - 1
        chosen = (at - first[actor]) % np.maximum(width[actor], 1)
        source = self.layout.entities[(self.layout.relations[selected].references or ("",))[0]].row
        place = mask.actors.values - lengths[:source].sum(axis=0)[row]
        relations = self.features[selected]
        sources = relations.values[relations.offsets[row[actor]] + chosen, 0]
        wrong = np.flatnonzero(sources != place[actor])
        if not len(wrong):
            return ""
        number = actor[wrong[0]] - mask.actors.offsets[row[actor[wrong[0]]]]
        return (
            f"actor {number} may choose {selected!r} {chosen[wrong[0]]}, which does not start at it"
        )

    def mask_of(self, where: ActionSlots) -> VecActionMask:
        """The actors and the mask of an action."""
        lengths = self.lengths[where.row]
        mask = self.slots[where.mask.index]
        if isinstance(where.space, GlobalCategoricalActionSpace):
            actors = RaggedArray.unchecked(self._global_actors(lengths), lengths)
        else:
            actors = RaggedArray.unchecked(self._rows(where.actors, np.int64), lengths)
        if isinstance(where.space, ContinuousActionSpace):
            return VecContinuousActionMask(actors)
        is_select = isinstance(where.space, SelectEntityActionSpace)
        allowed = per_actor = None
        if mask is not None:
            rows = mask if is_select else mask.reshape(-1, where.mask.width)
            allowed = RaggedArray.unchecked(rows, where.mask_sizes(self.lengths))
        counts = where.per_actor(self.lengths)
        if counts is not None:
            per_actor = RaggedArray.unchecked(counts, np.ones_like(counts))
        if not is_select:
            return VecCategoricalActionMask(actors, allowed, per_actor)
        actee_lengths = self.lengths[where.actee_row]
        actees = RaggedArray.unchecked(self._rows(where.actees, np.int64), actee_lengths)
        return VecSelectEntityActionMask(actors, actees, allowed, per_actor)

    def _global_actors(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of each requested global actor, after the last entity of its observation."""
        totals: NDArray[np.int64] = np.add.reduce(self.lengths[: self.layout.num_local_types])
        return totals[lengths > 0]

    def _features(self, where: EntitySlots) -> NDArray[np.float32]:
        if where.values.width == 0:
            return np.zeros((int(self.lengths[where.row].sum()), 0), dtype=np.float32)
        return self._rows(where.values, np.float32).reshape(-1, where.values.width)

    def _rows(self, slot: Slot, dtype: type[np.generic]) -> NDArray[Any]:
        array = self.slots[slot.index]
        return np.zeros(0, dtype=dtype) if array is None else array


def concat_frames(
    layout: FrameLayout,
    frames: Sequence[Frame],
    lengths: NDArray[np.int64],
    memory: LocalMemory | None = None,
) -> Frame:
    """Joins one or more frames; the slots of a single frame are used without a copy.

    Args:
        lengths: matrix of lengths of the result; used without a copy.
        memory: where slots are copied to, except flags that only some frames have; None = new
            memory.
    """
    if len(frames) == 1:
        return Frame(layout, lengths, frames[0].slots)
    memory = memory or LocalMemory()
    join = memory.join(layout, [frame.slots for frame in frames])
    if not join.is_partial:
        return memory.written(Frame(layout, lengths, join.slots))
    gathered = Frame(layout, lengths, join.slots.copy())
    # A frame without an array of actors has no actors, so only flags must be filled in.
    for where in layout.entities.values():
        _fill_partial(gathered, frames, where.visible, itemgetter(where.row))
    for action in layout.actions.values():
        _fill_partial(gathered, frames, action.mask, action.mask_sizes)
    return gathered


def _fill_partial(
    gathered: Frame,
    frames: Sequence[Frame],
    slot: Slot,
    sizes: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> None:
    """Concatenates flags that only some frames have; those without the array get all True.

    `sizes` computes the rows of each observation from the matrix of lengths.
    """
    parts = [frame.slots[slot.index] for frame in frames]
    num_absent = sum(part is None for part in parts)
    if num_absent in (0, len(parts)):
        return
    filled: list[NDArray[Any]] = []
    for frame, part in zip(frames, parts, strict=True):
        count = int(sizes(frame.lengths).sum()) * slot.width
        filled.append(np.ones(count, dtype=slot.dtype) if part is None else part)
    gathered.slots[slot.index] = np.concatenate(filled)
