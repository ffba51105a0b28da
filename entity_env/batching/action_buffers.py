"""ActionWriter: gathers who acts, and what is allowed, over the observations of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import ActionSlots, Frame, FrameMemory, Slot
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import as_mask
from entity_env.errors import SchemaError


class EntityLayout:
    """Where the entities of each type lie within each observation of a batch.

    Args:
        lengths: `(num_types, num_rows)` number of entities, without the global type.
    """

    def __init__(self, lengths: NDArray[np.int64]) -> None:
        self.lengths = lengths

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`(num_types, num_rows)` index of a type's first entity in the observation."""
        return np.asarray(np.cumsum(self.lengths, axis=0) - self.lengths)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """`(num_types, num_rows)` index of the same entity in the rows of that type."""
        return np.asarray(np.cumsum(self.lengths, axis=1) - self.lengths)


class ActionWriter(ABC):
    """Gathers one action over the observations of a batch: rows are added in their order.

    An actor group is written as `(row, type, first, count)`: `count` entities of a type from
    number `first` on, counted over the whole batch.
    """

    def __init__(self, name: ActionName) -> None:
        self.name = name
        self.num_actors = 0
        self._groups: list[int] = []
        """Row, type, first and count of each group, one after another."""
        self._whole: list[tuple[int, range, Sequence[int]]] = []
        """Rows in which types act as a whole: how many numbers `_groups` held, rows and types."""

    def clear(self) -> None:
        """Begins a new batch."""
        self.num_actors = 0
        self._groups.clear()
        self._whole.clear()

    def add_group(self, row: int, type_index: int, first: int, count: int) -> None:
        """Adds entities of one type as actors of an observation."""
        self._groups.extend((row, type_index, first, count))
        self.num_actors += count

    def add_groups(self, groups: Sequence[int]) -> None:
        """Adds several groups: row, type, first and count of each, one after another."""
        self._groups += groups
        self.num_actors += sum(groups[3::4])

    def add_types(self, rows: range, type_indices: Sequence[int], num_actors: int) -> None:
        """Adds all entities of some types as actors of several observations.

        Args:
            rows: the observations.
            type_indices: types, in the order in which they act in each of them.
            num_actors: how many entities that is.
        """
        self.num_actors += num_actors
        if self._whole:
            end, before, types = self._whole[-1]
            is_more = end == len(self._groups) and before.stop == rows.start
            if is_more and list(types) == list(type_indices):
                self._whole[-1] = end, range(before.start, rows.stop), types
                return
        self._whole.append((len(self._groups), rows, type_indices))

    @abstractmethod
    def write(
        self, where: ActionSlots, entities: EntityLayout, frame: Frame, memory: FrameMemory
    ) -> None:
        """Writes who acts over the whole batch, and the masks if there are any.

        Args:
            where: where this action lies in the frame.
            entities: of the same batch.
            frame: is completed by this action.
            memory: where arrays are written.
        """

    def _write_actors(
        self,
        slot: Slot,
        lengths: NDArray[np.int64],
        entities: EntityLayout,
        frame: Frame,
        memory: FrameMemory,
    ) -> None:
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
        entities: EntityLayout,
        out: NDArray[np.int64],
    ) -> None:
        """Writes that all entities of one type act, and nobody else does."""
        lengths[:] = counts = entities.lengths[kind]
        base = counts - np.cumsum(counts)
        if kind:
            base += np.add.reduce(entities.lengths[:kind])
        np.add(np.repeat(base, counts), np.arange(self.num_actors), out=out)

    def _all_groups(self, entities: EntityLayout) -> NDArray[np.int64]:
        """`(num_groups, 4)` in the order of their rows."""
        groups = np.array(self._groups, dtype=np.int64).reshape(-1, 4)
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


class _CategoricalWriter(ActionWriter):
    def __init__(self, name: ActionName, num_choices: int) -> None:
        super().__init__(name)
        self.num_choices = num_choices
        self._masks: list[tuple[int, NDArray[np.bool_]]] = []

    def clear(self) -> None:
        super().clear()
        self._masks.clear()

    def add_mask(self, mask: object, num_actors: int) -> None:
        """Sets the mask of the `num_actors` actors that were added last.

        Raises:
            SchemaError: another shape, values other than bools, or an actor without a choice.
        """
        if mask is None:
            return
        allowed = as_mask(mask, (num_actors, self.num_choices), self.name)
        self._masks.append((self.num_actors - num_actors, allowed))

    def write(
        self, where: ActionSlots, entities: EntityLayout, frame: Frame, memory: FrameMemory
    ) -> None:
        self._write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)
        if not self._masks:
            return
        flat = frame.slots[where.mask.index] = memory.allocate(where.mask, self.num_actors)
        allowed = flat.reshape(self.num_actors, self.num_choices)
        allowed[:] = True
        for first, mask in self._masks:
            allowed[first : first + len(mask)] = mask


class GlobalCategoricalWriter(_CategoricalWriter):
    """Gathers an action that is asked once for a whole observation."""

    def __init__(self, name: ActionName, num_choices: int) -> None:
        super().__init__(name, num_choices)
        self._rows: list[int] = []

    def clear(self) -> None:
        super().clear()
        self._rows.clear()

    def add(self, row: int) -> None:
        """Asks for the action in an observation."""
        self._rows.append(row)
        self.num_actors += 1

    def add_all(self, rows: Sequence[int]) -> None:
        """Asks for it in several observations."""
        self._rows += rows
        self.num_actors += len(rows)

    def _write_actors(
        self,
        slot: Slot,
        lengths: NDArray[np.int64],
        entities: EntityLayout,
        frame: Frame,
        memory: FrameMemory,
    ) -> None:
        lengths[:] = self.num_actors == len(lengths)
        if self.num_actors < len(lengths):
            lengths[self._rows] = 1


class CategoricalWriter(_CategoricalWriter):
    """Gathers an action that several entities perform."""


class ContinuousWriter(ActionWriter):
    """Gathers an action of real numbers."""

    def write(
        self, where: ActionSlots, entities: EntityLayout, frame: Frame, memory: FrameMemory
    ) -> None:
        self._write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)


class SelectEntityWriter(ActionWriter):
    """Gathers an action that selects entities."""

    def __init__(self, name: ActionName) -> None:
        super().__init__(name)
        self._actees = ActeeWriter(name)
        self._masks: list[tuple[int, NDArray[np.bool_]]] = []

    def clear(self) -> None:
        super().clear()
        self._actees.clear()
        self._masks.clear()

    def add_actees(self, row: int, type_index: int, first: int, count: int) -> None:
        """Adds entities of one type as those that can be selected in an observation."""
        self._actees.add_group(row, type_index, first, count)

    def add_actee_types(self, rows: range, type_indices: Sequence[int], num_actees: int) -> None:
        """Adds all entities of some types as those, as `add_types` adds actors."""
        self._actees.add_types(rows, type_indices, num_actees)

    def add_mask(self, row: int, mask: object, num_actors: int, num_actees: int) -> None:
        """Completes an observation: who of its actors may select whom.

        Raises:
            SchemaError: another shape, values other than bools, or an actor without an actee.
        """
        if num_actors and not num_actees:
            raise SchemaError(
                f"action {self.name!r}: {num_actors} actors have no legal choice, since no entity "
                "can be selected: ask only when there is one"
            )
        if mask is not None:
            self.add_allowed(row, as_mask(mask, (num_actors, num_actees), self.name))

    def add_allowed(self, row: int, allowed: NDArray[np.bool_]) -> None:
        """The same with a mask that was checked: `(num_actors, num_actees)`."""
        self._masks.append((row, allowed.reshape(-1)))

    def write(
        self, where: ActionSlots, entities: EntityLayout, frame: Frame, memory: FrameMemory
    ) -> None:
        actee_lengths = frame.lengths[where.actee_row]
        self._write_actors(where.actors, frame.lengths[where.row], entities, frame, memory)
        self._actees.write_actees(where.actees, actee_lengths, entities, frame, memory)
        if not self._masks:
            return
        sizes = frame.lengths[where.row] * actee_lengths
        starts = np.cumsum(sizes) - sizes
        allowed = frame.slots[where.mask.index] = memory.allocate(where.mask, int(sizes.sum()))
        allowed[:] = True
        for row, mask in self._masks:
            allowed[starts[row] : starts[row] + len(mask)] = mask


class ActeeWriter(ContinuousWriter):
    """Gathers the entities that can be selected: entities per observation, as actors are."""

    def write_actees(
        self,
        slot: Slot,
        lengths: NDArray[np.int64],
        entities: EntityLayout,
        frame: Frame,
        memory: FrameMemory,
    ) -> None:
        """Writes them, and how many there are in each observation."""
        self._write_actors(slot, lengths, entities, frame, memory)


def action_writer(name: ActionName, space: ActionSpace) -> ActionWriter:
    """The writer for an action of this space."""
    match space:
        case GlobalCategoricalActionSpace():
            return GlobalCategoricalWriter(name, len(space))
        case CategoricalActionSpace():
            return CategoricalWriter(name, len(space))
        case SelectEntityActionSpace():
            return SelectEntityWriter(name)
        case ContinuousActionSpace():
            return ContinuousWriter(name)
