"""`ActionBuffer`: actors and masks of one action in a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.speedups import pack_ints
from entity_env.batching.frame import ActionSlots, Frame, FrameMemory, Slot
from entity_env.core.action_request import wrong_num_earlier
from entity_env.core.masks import nested_mask
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError


class EntityOffsets:
    """Position of each entity type's first entity, in its observation and in the batch.

    `lengths`: `(num_types, num_rows)` numbers of entities, without the global type.
    """

    def __init__(self, lengths: NDArray[np.int64]) -> None:
        self.lengths = lengths

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`(num_types, num_rows)` index among all entities of the observation."""
        return np.asarray(np.cumsum(self.lengths, axis=0) - self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """`(num_types, num_rows)` index among all entities of the type in the batch."""
        return np.asarray(np.cumsum(self.lengths, axis=1) - self.lengths)


class ActionBuffer:
    """Actors of one action; observations are added in row order.

    A group of actors is `(row, type, first, count)`: `count` consecutive entities of one type.
    `first` is the index of the first among all entities of its type in the batch.

    Attributes:
        depends: whether masks can depend on the choices of another action.
        where: maps a row to its name, for errors.
    """

    depends: bool = False
    where: Callable[[int], str] = staticmethod("observation {}".format)

    def __init__(self, name: ActionName, *, may_block: bool = False) -> None:
        self.name = name
        self.num_actors = 0
        self._may_block = may_block
        self._groups: list[int] = []
        """Row, type, first and count of each group, flattened."""
        self._whole: list[tuple[int, range, Sequence[int]]] = []
        """Ranges of rows in which all entities of some types act: `(position, rows, types)`.

        `position` is `len(_groups)` when the range was added.
        """

    def clear(self) -> None:
        self.num_actors = 0
        self._groups.clear()
        self._whole.clear()

    def add_group(self, row: int, type_index: int, first: int, count: int) -> None:
        self._groups.extend((row, type_index, first, count))
        self.num_actors += count

    def add_groups(self, groups: Sequence[int]) -> None:
        """Adds several groups, flattened."""
        self._groups += groups
        self.num_actors += sum(groups[3::4])

    def add_types(self, rows: range, type_indices: Sequence[int], num_actors: int) -> None:
        """Adds all entities of some types, in the given order, as actors of several rows."""
        self.num_actors += num_actors
        if self._whole:
            end, before, types = self._whole[-1]
            is_more = end == len(self._groups) and before.stop == rows.start
            if is_more and list(types) == list(type_indices):
                self._whole[-1] = end, range(before.start, rows.stop), types
                return
        self._whole.append((len(self._groups), rows, type_indices))

    def write(
        self, where: ActionSlots, entities: EntityOffsets, frame: Frame, memory: FrameMemory
    ) -> None:
        self.write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)

    def write_actors(
        self,
        slot: Slot,
        lengths: NDArray[np.int64],
        entities: EntityOffsets,
        frame: Frame,
        memory: FrameMemory,
    ) -> None:
        """Writes the number of actors per observation to `lengths`, and their indices to `slot`."""
        lengths[:] = 0
        if not self.num_actors:
            return
        out = frame.slots[slot.index] = memory.allocate(slot, self.num_actors)
        if len(self._whole) == 1 and not self._groups:
            ((_, rows, kinds),) = self._whole
            if len(kinds) == 1 and len(rows) == len(lengths):
                self._write_type(kinds[0], lengths, entities, out)
                return
        row, kind, first, count = self._all_groups(entities).T
        np.add.at(lengths, row, count)
        base = first - entities.starts[kind, row] + entities.offsets[kind, row]
        base -= np.cumsum(count) - count
        np.add(np.repeat(base, count), np.arange(self.num_actors), out=out)

    def _write_type(
        self,
        kind: int,
        lengths: NDArray[np.int64],
        entities: EntityOffsets,
        out: NDArray[np.int64],
    ) -> None:
        lengths[:] = counts = entities.lengths[kind]
        base = counts - np.cumsum(counts)
        if kind:
            base += np.add.reduce(entities.lengths[:kind])
        np.add(np.repeat(base, counts), np.arange(self.num_actors), out=out)

    def _repeated(self, row: int, mask: NDArray[np.bool_], per_actor: int) -> NDArray[np.bool_]:
        """A mask of `(num_actors, per_actor, num_choices)`, also if it depends on no other action.

        Raises:
            SchemaError: it has another number of choices of the other action.
        """
        if mask.ndim == 2:
            return np.repeat(mask[:, None], per_actor, axis=1)
        if mask.shape[1] != per_actor and len(mask):
            error = wrong_num_earlier(self.name, per_actor, mask.shape[1])
            raise SchemaError(f"{self.where(row)}: {error}")
        return mask

    def _all_groups(self, entities: EntityOffsets) -> NDArray[np.int64]:
        """`(num_groups, 4)` in row order."""
        groups = np.empty((len(self._groups) // 4, 4), dtype=np.int64)
        pack_ints(self._groups, groups.reshape(-1))
        if not self._whole:
            return groups
        parts: list[NDArray[np.int64]] = []
        begin = 0
        for end, rows, kinds in self._whole:
            row = np.repeat(np.arange(rows.start, rows.stop), len(kinds))
            kind = np.tile(np.array(kinds, dtype=np.int64), len(rows))
            first, count = entities.starts[kind, row], entities.lengths[kind, row]
            parts += groups[begin : end // 4], np.stack([row, kind, first, count], axis=1)
            begin = end // 4
        return np.concatenate([*parts, groups[begin:]])


class _MaskedBuffer(ActionBuffer):
    is_global = False

    def __init__(self, name: ActionName, num_choices: int, *, may_block: bool = False) -> None:
        super().__init__(name, may_block=may_block)
        self.num_choices = num_choices
        self._masks: list[tuple[int, NDArray[np.bool_]]] = []
        """First actor of each mask, and `(num_actors, num_choices)`, or with three dimensions if it
        depends on another action.
        """

    def clear(self) -> None:
        super().clear()
        self._masks.clear()

    def add_mask(self, mask: object, num_actors: int) -> None:
        """Sets the mask of the last `num_actors` actors added; None allows everything."""
        if mask is None:
            return
        allowed = nested_mask(
            mask,
            (num_actors, self.num_choices),
            self.name,
            may_block=self._may_block,
            depends=self.depends,
            is_global=self.is_global,
        )
        self._masks.append((self.num_actors - num_actors, allowed))

    def write(
        self, where: ActionSlots, entities: EntityOffsets, frame: Frame, memory: FrameMemory
    ) -> None:
        self.write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)
        if not self._masks:
            return
        per_actor = where.per_actor(frame.lengths)
        count = self.num_actors if per_actor is None else int(where.mask_sizes(frame.lengths).sum())
        flat = frame.slots[where.mask.index] = memory.allocate(where.mask, count)
        allowed = flat.reshape(count, self.num_choices)
        allowed[:] = True
        if per_actor is None:
            for first, mask in self._masks:
                allowed[first : first + len(mask)] = mask
            return
        lengths = frame.lengths[where.row]
        starts = np.cumsum(lengths) - lengths
        offsets = np.cumsum(lengths * per_actor) - lengths * per_actor
        for first, mask in self._masks:
            row = int(np.searchsorted(starts, first, side="right")) - 1
            rows = self._repeated(row, mask, int(per_actor[row])).reshape(-1, self.num_choices)
            allowed[offsets[row] : offsets[row] + len(rows)] = rows


class GlobalCategoricalBuffer(_MaskedBuffer):
    """Buffer of a `GlobalCategoricalActionSpace`: one choice per observation."""

    is_global = True

    def __init__(self, name: ActionName, num_choices: int, *, may_block: bool = False) -> None:
        super().__init__(name, num_choices, may_block=may_block)
        self._rows: list[int] = []

    def clear(self) -> None:
        super().clear()
        self._rows.clear()

    def add(self, row: int) -> None:
        self._rows.append(row)
        self.num_actors += 1

    def add_all(self, rows: Sequence[int]) -> None:
        self._rows += rows
        self.num_actors += len(rows)

    def write_actors(
        self,
        slot: Slot,
        lengths: NDArray[np.int64],
        entities: EntityOffsets,
        frame: Frame,
        memory: FrameMemory,
    ) -> None:
        lengths[:] = self.num_actors == len(lengths)
        if self.num_actors < len(lengths):
            lengths[self._rows] = 1


class CategoricalBuffer(_MaskedBuffer):
    """Buffer of a `CategoricalActionSpace`: one choice per actor."""


class ContinuousBuffer(ActionBuffer):
    """Buffer of a `ContinuousActionSpace`: real numbers per actor."""


class SelectEntityBuffer(ActionBuffer):
    """Buffer of a `SelectEntityActionSpace`: one selected entity per actor."""

    def __init__(self, name: ActionName, *, may_block: bool = False) -> None:
        super().__init__(name, may_block=may_block)
        self._actees = ActionBuffer(name)
        self._masks: list[tuple[int, NDArray[np.bool_]]] = []

    def clear(self) -> None:
        super().clear()
        self._actees.clear()
        self._masks.clear()

    def add_actees(self, row: int, type_index: int, first: int, count: int) -> None:
        self._actees.add_group(row, type_index, first, count)

    def add_actee_types(self, rows: range, type_indices: Sequence[int], num_actees: int) -> None:
        """Adds all entities of some types as actees; see `add_types`."""
        self._actees.add_types(rows, type_indices, num_actees)

    def add_mask(self, row: int, mask: object, num_actors: int, num_actees: int) -> None:
        """Sets an observation's mask, `(num_actors, num_actees)`; None allows everything."""
        if num_actors and not num_actees and not self._may_block:
            raise SchemaError(
                f"action {self.name!r}: {num_actors} actors have no legal choice, since no entity "
                "can be selected: request the action only if there is one"
            )
        if mask is not None:
            shape = num_actors, num_actees
            allowed = nested_mask(
                mask, shape, self.name, may_block=self._may_block, depends=self.depends
            )
            self._masks.append((row, allowed))

    def write(
        self, where: ActionSlots, entities: EntityOffsets, frame: Frame, memory: FrameMemory
    ) -> None:
        actee_lengths = frame.lengths[where.actee_row]
        self.write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)
        self._actees.write_actors(where.actees, actee_lengths, entities, frame, memory)
        if not self._masks:
            return
        sizes, per_actor = where.mask_sizes(frame.lengths), where.per_actor(frame.lengths)
        starts = np.cumsum(sizes) - sizes
        allowed = frame.slots[where.mask.index] = memory.allocate(where.mask, int(sizes.sum()))
        allowed[:] = True
        for row, each in self._masks:
            mask = each if per_actor is None else self._repeated(row, each, int(per_actor[row]))
            allowed[starts[row] : starts[row] + mask.size] = mask.reshape(-1)


def action_buffer(
    name: ActionName,
    space: ActionSpace,
    where: Callable[[int], str],
    *,
    may_block: bool = False,
    depends: bool = False,
) -> ActionBuffer:
    """Makes the buffer for an action.

    With `may_block`, masks may leave an actor without a choice, as in final observations; otherwise
    that is a `SchemaError`.
    """
    buffer: ActionBuffer
    match space:
        case GlobalCategoricalActionSpace():
            buffer = GlobalCategoricalBuffer(name, len(space), may_block=may_block)
        case CategoricalActionSpace():
            buffer = CategoricalBuffer(name, len(space), may_block=may_block)
        case SelectEntityActionSpace():
            buffer = SelectEntityBuffer(name, may_block=may_block)
        case ContinuousActionSpace():
            buffer = ContinuousBuffer(name)
    buffer.where, buffer.depends = where, depends
    return buffer
