"""ActionWriter: gathers who acts, and what is allowed, over the observations of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.ragged import RaggedArray
from entity_env.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)


@dataclass(frozen=True)
class EntityLayout:
    """Where the entities of each type lie within each observation of a batch.

    Args:
        names: entity types in order, without the global one.
        offsets: `(num_types, num_rows)` index of a type's first entity in the observation.
        starts: `(num_types, num_rows)` index of the same entity in the rows of that type.
        totals: `(num_rows,)` number of entities, the global one not counted.
    """

    names: tuple[EntityName, ...]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    totals: NDArray[np.int64]

    @classmethod
    def of(
        cls, features: Mapping[EntityName, RaggedArray[np.float32]], num_rows: int
    ) -> EntityLayout:
        """The layout of a batch of `num_rows` observations with these features."""
        names = tuple(name for name in features if name != GLOBAL_ENTITY)
        lengths = np.zeros((len(names), num_rows), dtype=np.int64)
        for i, name in enumerate(names):
            lengths[i] = features[name].lengths
        offsets = np.cumsum(lengths, axis=0) - lengths
        starts = np.cumsum(lengths, axis=1) - lengths
        return cls(names, offsets, starts, lengths.sum(axis=0))


class ActionWriter(ABC):
    """Gathers one action over the observations of a batch: rows are added in their order.

    An actor group is written as `(row, type, first, count)`: `count` entities of a type from
    number `first` on, counted over the whole batch.
    """

    def __init__(self, name: ActionName) -> None:
        self.name = name
        self.num_actors = 0
        self._groups: list[tuple[int, int, int, int]] = []
        self._indices: list[tuple[int, NDArray[np.int64]]] = []

    def clear(self) -> None:
        """Begins a new batch."""
        self.num_actors = 0
        self._groups.clear()
        self._indices.clear()

    def add_group(self, row: int, type_index: int, first: int, count: int) -> None:
        """Adds entities of one type as actors of an observation."""
        self._groups.append((row, type_index, first, count))
        self.num_actors += count

    def add_indices(self, row: int, indices: NDArray[np.int64]) -> None:
        """Adds actors by their index in the observation."""
        self._indices.append((row, indices))
        self.num_actors += len(indices)

    @abstractmethod
    def finish(self, layout: EntityLayout) -> VecActionMask:
        """The masks of the whole batch."""

    def _actors(self, layout: EntityLayout) -> RaggedArray[np.int64]:
        num_rows = len(layout.totals)
        if self._indices:
            rows, indices = zip(*self._indices, strict=True)
            return _ragged(np.array(rows), list(indices), num_rows)
        if not self._groups:
            return RaggedArray(np.zeros(0, np.int64), np.zeros(num_rows, np.int64))
        row, kind, first, count = np.array(self._groups, dtype=np.int64).T
        base = first - layout.starts[kind, row] + layout.offsets[kind, row]
        steps = np.arange(self.num_actors) - np.repeat(np.cumsum(count) - count, count)
        lengths = np.bincount(row, weights=count, minlength=num_rows).astype(np.int64)
        return RaggedArray(np.repeat(base, count) + steps, lengths)


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

    def finish(self, layout: EntityLayout) -> VecCategoricalActionMask:
        actors = self._actors(layout)
        return VecCategoricalActionMask(actors, self._mask(actors.lengths))

    def _mask(self, lengths: NDArray[np.int64]) -> RaggedArray[np.bool_] | None:
        if not self._masks:
            return None
        allowed = np.ones((self.num_actors, self.num_choices), dtype=np.bool_)
        for first, mask in self._masks:
            allowed[first : first + len(mask)] = mask
        return RaggedArray(allowed, lengths)


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

    def _actors(self, layout: EntityLayout) -> RaggedArray[np.int64]:
        rows = np.array(self._rows, dtype=np.int64)
        lengths = np.zeros(len(layout.totals), dtype=np.int64)
        lengths[rows] = 1
        return RaggedArray(layout.totals[rows], lengths)


class CategoricalWriter(_CategoricalWriter):
    """Gathers an action that several entities perform."""


class ContinuousWriter(ActionWriter):
    """Gathers an action of real numbers."""

    def finish(self, layout: EntityLayout) -> VecContinuousActionMask:
        return VecContinuousActionMask(self._actors(layout))


class SelectEntityWriter(ActionWriter):
    """Gathers an action that selects entities."""

    def __init__(self, name: ActionName) -> None:
        super().__init__(name)
        self._actees = ActeeWriter(name)
        self._masks: list[tuple[int, NDArray[np.bool_]]] = []
        self._shapes: list[tuple[int, int]] = []

    def clear(self) -> None:
        super().clear()
        self._actees.clear()
        self._masks.clear()
        self._shapes.clear()

    def add_actees(self, row: int, type_index: int, first: int, count: int) -> None:
        """Adds entities of one type as those that can be selected in an observation."""
        self._actees.add_group(row, type_index, first, count)

    def add_actee_indices(self, row: int, indices: NDArray[np.int64]) -> None:
        """Adds those that can be selected by their index in the observation."""
        self._actees.add_indices(row, indices)

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
        self._shapes.append((row, num_actors * num_actees))
        if mask is not None:
            allowed = as_mask(mask, (num_actors, num_actees), self.name)
            self._masks.append((row, allowed.reshape(-1)))

    def finish(self, layout: EntityLayout) -> VecSelectEntityActionMask:
        actees = self._actees.finish(layout).actors
        return VecSelectEntityActionMask(self._actors(layout), actees, self._mask(layout))

    def _mask(self, layout: EntityLayout) -> RaggedArray[np.bool_] | None:
        if not self._masks:
            return None
        lengths = np.zeros(len(layout.totals), dtype=np.int64)
        for row, size in self._shapes:
            lengths[row] = size
        allowed = RaggedArray(np.ones(int(lengths.sum()), dtype=np.bool_), lengths)
        for row, mask in self._masks:
            allowed[row][:] = mask
        return allowed


class ActeeWriter(ContinuousWriter):
    """Gathers the entities that can be selected: entities per observation, as actors are."""


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


def as_mask(mask: object, shape: tuple[int, int], action: ActionName) -> NDArray[np.bool_]:
    """Checks a mask of any dtype that holds only zeros and ones; a single row may be 1-D.

    Raises:
        SchemaError: another shape, other values, or a row that allows nothing.
    """
    try:
        array = np.asarray(mask)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(
            f"the mask of action {action!r} needs the shape (num_actors, num_choices) = {shape}: "
            f"got {mask!r}"
        ) from error
    if array.shape == shape[1:] and shape[0] == 1:
        array = array.reshape(shape)
    if array.shape != shape and not (array.size == 0 and shape[0] == 0):
        raise SchemaError(
            f"the mask of action {action!r} needs the shape (num_actors, num_choices) = {shape}: "
            f"got {array.shape}"
        )
    array = array.reshape(shape)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise SchemaError(
            f"the mask of action {action!r} must hold bools (True = allowed), got {array.dtype} "
            f"with {array.reshape(-1)[:8]}"
        )
    allowed = array.astype(np.bool_, copy=False)
    blocked = np.flatnonzero(~allowed.any(axis=1))
    if len(blocked):
        raise SchemaError(
            f"the mask of action {action!r} leaves actor {blocked[0]} no legal choice: "
            "allow at least one, or do not ask that actor"
        )
    return allowed


def _ragged(
    rows: NDArray[np.int64], indices: list[NDArray[np.int64]], num_rows: int
) -> RaggedArray[np.int64]:
    lengths = np.zeros(num_rows, dtype=np.int64)
    np.add.at(lengths, rows, [len(index) for index in indices])
    return RaggedArray(np.concatenate(indices), lengths)
