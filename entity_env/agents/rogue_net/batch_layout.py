"""Layout of the entities of a batch: packed by type, ordered by observation, or padded.

The network keeps all entities of a batch in one packed matrix, ordered by type. Attention reads
them ordered by observation: at consecutive places, or, for batched matrix products, in padded
slots, `max_length` per nonempty observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import Floats, Ints, RaggedArray
from entity_env.core.spaces import EntityName
from entity_env.core.vec_obs import EntityBatch
from entity_env.errors import SchemaError

Batch: TypeAlias = EntityBatch
"""Alias of `EntityBatch`."""
ObsBatch: TypeAlias = EntityBatch
"""Alias of `EntityBatch`."""


@dataclass(frozen=True)
class Layout:
    """Index arrays between packed entities, places and slots.

    Args:
        lengths: `(num_rows,)` number of entities in each observation.
        offsets: `(num_rows + 1,)` cumulative sum of `lengths`, from 0.
        rows: `(num_entities,)` observation of each packed entity.
        places: `(num_entities,)` place of each packed entity in the order by observation.
        order: `(num_entities,)` packed index of the entity at each place.
        visible: `(num_entities,)` bool, for each packed entity: the policy sees it; None = it sees
            all.
    """

    lengths: Ints
    offsets: Ints
    rows: Ints
    places: Ints
    order: Ints
    visible: NDArray[np.bool_] | None

    @cached_property
    def max_length(self) -> int:
        """Number of slots per nonempty observation, at least 1."""
        return max(1, int(self.lengths.max(initial=0)))

    @cached_property
    def num_padded(self) -> int:
        """Number of nonempty observations."""
        return int(np.count_nonzero(self.lengths))

    @cached_property
    def slots(self) -> Ints:
        """`(num_entities,)` slot of each packed entity."""
        padded_rows = np.cumsum(self.lengths > 0) - 1
        shift = padded_rows * self.max_length - self.offsets[:-1]
        slots: Ints = shift[self.rows] + self.places
        return slots

    @cached_property
    def source(self) -> Ints:
        """`(num_padded * max_length,)` packed index of the entity in each slot.

        Empty slots have 0 (see `hidden`).
        """
        source = np.zeros(self.num_padded * self.max_length, dtype=np.int64)
        source[self.slots] = np.arange(len(self.slots))
        return source

    @cached_property
    def hidden(self) -> NDArray[np.bool_] | None:
        """Attention mask, True = masked; None = nothing is masked.

        `(num_padded, max_length, max_length)` or `(num_padded, max_length, 1)` bool, with axes
        (observation, key, query). Empty slots are masked for all queries, invisible entities for
        visible queries.
        """
        is_empty = np.arange(self.max_length) >= self.lengths[self.lengths > 0][:, None]
        if self.visible is None:
            return is_empty[:, :, None] if is_empty.any() else None
        flat = np.zeros(is_empty.size, dtype=np.bool_)
        flat[self.slots] = self.visible
        seen = flat.reshape(is_empty.shape)
        hidden: NDArray[np.bool_] = (seen[:, None, :] & ~seen[:, :, None]) | is_empty[:, :, None]
        return hidden

    def pooled(self, x: Floats, of: str) -> Floats:
        """`(num_rows, …)`: "mean", "max" or "meanmax" of the visible entities of every observation.

        0 if none is visible; `x` is `(num_entities, width)`, packed.
        """
        has_entities = self.lengths > 0
        x = x[self.order]
        starts = self.offsets[:-1][has_entities]
        counts = self.lengths[has_entities, None]
        seen = None if self.visible is None else self.visible[self.order, None]
        if seen is not None:
            counts = np.add.reduceat(seen, starts, dtype=np.int64) if len(starts) else counts
        parts: list[Floats] = []
        if "mean" in of:
            mean = _reduced(np.add, x, seen, starts)
            mean /= np.maximum(counts, 1).astype(np.float32)
            parts.append(mean)
        if "max" in of:
            most = _reduced(np.maximum, x, seen, starts)
            parts.append(np.where(counts > 0, most, np.float32(0)))
        found = np.concatenate(parts, axis=1)
        if has_entities.all():
            return found
        spread = np.zeros((len(has_entities), found.shape[1]), np.float32)
        spread[has_entities] = found
        return spread

    def packed_index(self, entities: RaggedArray[np.int64], what: str) -> Ints:
        """Packed index of each entity, given its index in its observation.

        Raises `SchemaError` for an index out of range; `what` names the entities in the message.
        """
        rows = entities.row_index
        index = entities.values
        wrong = (index < 0) | (index >= self.lengths[rows])
        if wrong.any():
            at = int(wrong.argmax())
            raise SchemaError(
                f"{what}: row {rows[at]} names entity {index[at]}, which is not among its "
                f"{self.lengths[rows[at]]} entities (indices start at 0)"
            )
        place: Ints = self.order[self.offsets[rows] + index]
        return place


def _reduced(function: np.ufunc, x: Floats, seen: NDArray[np.bool_] | None, starts: Ints) -> Floats:
    """Sums or maxima of the visible rows from each start to the next."""
    if not len(starts):
        return np.zeros((0, x.shape[1]), np.float32)
    if seen is not None:
        x = np.where(seen, x, np.float32(0 if function is np.add else -np.inf))
    reduced: Floats = function.reduceat(x, starts)
    return reduced


def lay_out(batch: Batch, names: Sequence[EntityName], *, is_compiled: bool = False) -> Layout:
    """The layout of a batch; `names` are its entity types, in packed order.

    With `is_compiled`, a numba kernel computes it ten times faster, but numba takes time to load.
    """
    counts = np.stack([batch.features[name].lengths for name in names])
    lengths = counts.sum(axis=0)
    visible = visible_entities(batch, names)
    if is_compiled:
        from entity_env.agents.rogue_net.kernels.layout import place_all

        offsets = np.empty(len(lengths) + 1, dtype=np.int64)
        rows, places, order = np.empty((3, int(lengths.sum())), dtype=np.int64)
        place_all(counts, offsets, rows, places, order)
        return Layout(lengths, offsets, rows, places, order, visible)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    rows = np.concatenate([batch.features[name].row_index for name in names])
    # Packed index of each type's first entity in each row.
    before = np.cumsum(counts, axis=1) - counts
    before += (np.cumsum(counts.sum(axis=1)) - counts.sum(axis=1))[:, None]
    # Place minus packed index, for each type's entities in each row.
    shift = offsets[:-1] + np.cumsum(counts, axis=0) - counts - before
    places = np.repeat(shift.reshape(-1), counts.reshape(-1))
    places += np.arange(len(places))
    order = np.empty(len(places), dtype=np.int64)
    order[places] = np.arange(len(places))
    return Layout(lengths, offsets, rows, places, order, visible)


def visible_entities(batch: Batch, names: Sequence[EntityName]) -> NDArray[np.bool_] | None:
    """`(num_entities,)` bool: for each entity in packed order, whether the policy sees it.

    None = it sees all.
    """
    seen = [batch.visible.get(name) for name in names]
    if all(flags is None for flags in seen):
        return None
    return np.concatenate(
        [
            np.ones(len(batch.features[name].values), dtype=np.bool_)
            if flags is None
            else flags.values
            for name, flags in zip(names, seen, strict=True)
        ]
    )
