"""Where every entity of a batch lies: packed by type, and padded by observation.

The network keeps the entities of a batch as one packed matrix, type after type. Only attention
needs the entities of one observation side by side: there they lie in slots, `max_length` for each
observation that has any entity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.ragged import RaggedArray
from entity_env.spaces import ActionName, EntityName
from entity_env.vec_obs import VecActionMask, VecObs

Int: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ObsBatch:
    """The part of a `VecObs` that a network reads; a `VecObs` has the same fields."""

    features: Mapping[EntityName, RaggedArray[np.float32]]
    visible: Mapping[EntityName, RaggedArray[np.bool_]]
    action_masks: Mapping[ActionName, VecActionMask]


Batch: TypeAlias = ObsBatch | VecObs


@dataclass(frozen=True, slots=True)
class Layout:
    """Says where every entity of a batch lies.

    Args:
        lengths: `(num_rows,)` number of entities of each observation.
        rows: `(num_entities,)` for each packed entity the observation that it belongs to.
        slots: `(num_entities,)` the slot of each packed entity.
        source: `(num_padded * max_length,)` the packed entity in each slot, 0 for an empty slot.
        padded_rows: `(num_rows,)` where the slots of an observation begin, in units of
            `max_length`; meaningless for one without entities, which has no slots.
        num_padded: number of observations that have slots.
        max_length: slots of each of them; at least 1.
        hidden: `(num_padded, max_length, max_length)` or `(num_padded, max_length, 1)` bool: the
            entity in the first slot is hidden from the one in the second; None = nothing is.
    """

    lengths: Int
    rows: Int
    slots: Int
    source: Int
    padded_rows: Int
    num_padded: int
    max_length: int
    hidden: NDArray[np.bool_] | None

    def packed_index(self, entities: RaggedArray[np.int64], what: str) -> Int:
        """Where the entities that each observation counts from 0 lie in the packed matrix.

        Raises:
            SchemaError: an observation has no entity of that index; `what` names the list.
        """
        rows = entities.row_index
        index = entities.values
        wrong = (index < 0) | (index >= self.lengths[rows])
        if wrong.any():
            at = int(wrong.argmax())
            raise SchemaError(
                f"{what}: row {rows[at]} names entity {index[at]}, "
                f"but it has {self.lengths[rows[at]]} entities"
            )
        place: Int = self.source[self.padded_rows[rows] * self.max_length + index]
        return place


def lay_out(batch: Batch, names: Sequence[EntityName]) -> Layout:
    """Finds the place of every entity of the types `names`, in that order."""
    counts = np.stack([batch.features[name].lengths for name in names])
    lengths = counts.sum(axis=0)
    max_length = max(1, int(lengths.max(initial=0)))
    has_entities = lengths > 0
    padded_rows = np.cumsum(has_entities) - 1
    # The slot of the first entity of a type in a row, minus its place among that type's rows.
    first = padded_rows * max_length + np.cumsum(counts, axis=0) - counts
    shift = first - (np.cumsum(counts, axis=1) - counts)
    slots = np.concatenate(
        [
            np.repeat(shift[i], counts[i]) + np.arange(len(batch.features[name].values))
            for i, name in enumerate(names)
        ]
    )
    num_padded = int(np.count_nonzero(has_entities))
    source = np.zeros(num_padded * max_length, dtype=np.int64)
    source[slots] = np.arange(len(slots))
    return Layout(
        lengths=lengths,
        rows=np.concatenate([batch.features[name].row_index for name in names]),
        slots=slots,
        source=source,
        padded_rows=padded_rows,
        num_padded=num_padded,
        max_length=max_length,
        hidden=_hidden(batch, names, slots, lengths[has_entities], max_length),
    )


def _hidden(
    batch: Batch, names: Sequence[EntityName], slots: Int, lengths: Int, max_length: int
) -> NDArray[np.bool_] | None:
    """Empty slots are hidden from all; what a game hides is hidden from what it does not hide."""
    is_empty = np.arange(max_length) >= lengths[:, None]
    seen = [batch.visible.get(name) for name in names]
    if all(values is None for values in seen):
        return is_empty[:, :, None] if is_empty.any() else None
    flat = np.zeros(is_empty.size, dtype=np.bool_)
    flat[slots] = np.concatenate(
        [
            np.ones(len(batch.features[name].values), dtype=np.bool_)
            if values is None
            else values.values
            for name, values in zip(names, seen, strict=True)
        ]
    )
    visible = flat.reshape(is_empty.shape)
    hidden: NDArray[np.bool_] = (visible[:, None, :] & ~visible[:, :, None]) | is_empty[:, :, None]
    return hidden
