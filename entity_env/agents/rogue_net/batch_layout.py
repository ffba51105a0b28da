"""Layout of the entities of a batch: packed by type, ordered by observation, or padded.

The network keeps all entities of a batch in one packed matrix, ordered by type. Attention reads
them ordered by observation: at consecutive places, or, for batched matrix products, in padded
slots, `max_length` per nonempty observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import Floats, Ints, RaggedArray
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName
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
        relations: relations between these entities; None = the game has none.
    """

    lengths: Ints
    offsets: Ints
    rows: Ints
    places: Ints
    order: Ints
    visible: NDArray[np.bool_] | None
    relations: RelationLayout | None = None

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

    def packed_index(
        self, entities: RaggedArray[np.int64], what: str, *, has_relations: bool = False
    ) -> Ints:
        """Packed index of each entity, given its index in its observation.

        Raises `SchemaError` for an index out of range; `what` names the entities in the message.

        Args:
            has_relations: a relation may be among them; its packed index follows those of all
                entities.
        """
        rows = entities.row_index
        index = entities.values
        relations = self.relations
        num_all = self.lengths if relations is None else self.lengths + relations.layout.lengths
        wrong = (index < 0) | (index >= num_all[rows])
        if wrong.any():
            at = int(wrong.argmax())
            raise SchemaError(
                f"{what}: row {rows[at]} names entity {index[at]}, which is not among its "
                f"{num_all[rows[at]]} entities (indices start at 0)"
            )
        if relations is None:
            place: Ints = self.order[self.offsets[rows] + index]
            return place
        after = index - relations.num_before[rows]
        is_relation = (after >= 0) & (after < relations.layout.lengths[rows])
        if is_relation.any() and not has_relations:
            at = int(is_relation.argmax())
            raise SchemaError(
                f"{what}: row {rows[at]} names {index[at]}, which is a relation: expected one of "
                f"its {self.lengths[rows[at]]} entities, relations do not act"
            )
        # RelationLayout lie between the entities and the actor of global actions.
        index = np.where(after < 0, index, index - relations.layout.lengths[rows])
        place = np.empty(len(rows), np.int64)
        own, theirs = ~is_relation, is_relation
        place[own] = self.order[self.offsets[rows[own]] + index[own]]
        starts = relations.layout.offsets[rows[theirs]]
        place[theirs] = len(self.order) + relations.layout.order[starts + after[theirs]]
        return place


@dataclass(frozen=True)
class RelationLayout:
    """Layout of the relations of a batch.

    Args:
        layout: of all relations.
        num_before: `(num_rows,)` number of entities before the relations in each observation.
        pairs: `(num_relations, 2)` packed index of both entities of each packed relation.
        visible: see `Layout`, of the entities.
    """

    layout: Layout
    num_before: Ints
    pairs: Ints
    visible: NDArray[np.bool_] | None

    @classmethod
    def of(
        cls,
        batch: Batch,
        names: Sequence[EntityName],
        references: Mapping[EntityName, Sequence[EntityName]],
    ) -> RelationLayout:
        """The relations of a batch.

        Args:
            names: entity types, in packed order.
            references: both entity types of each relation.

        Raises:
            SchemaError: a reference that is not the position of an entity.
        """
        sizes = [len(batch.features[name].values) for name in names]
        starts = dict(zip(names, np.cumsum([0, *sizes]).tolist(), strict=False))
        pairs = [_pairs(batch, name, each, starts) for name, each in references.items()]
        counts = [batch.features[name].lengths for name in names if name != GLOBAL_ENTITY]
        return cls(
            lay_out(batch, tuple(references)),
            np.sum(counts, axis=0),
            np.concatenate(pairs),
            visible_entities(batch, names),
        )

    @cached_property
    def messages(self) -> tuple[Ints, Ints, Ints | None]:
        """Packed entities that receive and send messages, and their index, None = all messages.

        Message 2 i goes to the source of relation i, message 2 i + 1 to its target. Visible
        entities receive none from or about what is hidden.
        """
        receivers, senders = self.pairs.reshape(-1), self.pairs[:, ::-1].flatten()
        flags = self.layout.visible
        if self.visible is None and flags is None:
            return receivers, senders, None
        is_shown = np.full(len(receivers), True) if flags is None else np.repeat(flags, 2)
        if self.visible is not None:
            is_shown &= self.visible[senders]
            is_shown |= ~self.visible[receivers]
        (kept,) = np.nonzero(is_shown)
        return receivers[kept], senders[kept], kept


def _pairs(
    batch: Batch,
    name: EntityName,
    references: Sequence[EntityName],
    starts: Mapping[EntityName, int],
) -> Ints:
    """`(num_relations, 2)` packed index of both entities."""
    own = batch.features[name]
    rows, values = own.row_index, own.values[:, :2]
    pairs = np.empty((len(values), 2), np.int64)
    for column, other in enumerate(references):
        theirs, index = batch.features[other], values[:, column]
        lengths = theirs.lengths[rows]
        is_right = (index >= 0) & (index < lengths) & (index == np.floor(index))
        if not is_right.all():
            at = int(is_right.argmin())
            number, row = at - own.offsets[rows[at]], rows[at]
            raise SchemaError(
                f"row {row}: relation {name!r} {number} refers to {other!r} {index[at]:g}, "
                f"expected a whole number from 0: the position of one of {lengths[at]} entities"
            )
        pairs[:, column] = index
        pairs[:, column] += starts[other] + theirs.offsets[rows]
    return pairs


def _reduced(function: np.ufunc, x: Floats, seen: NDArray[np.bool_] | None, starts: Ints) -> Floats:
    """Sums or maxima of the visible rows from each start to the next."""
    if not len(starts):
        return np.zeros((0, x.shape[1]), np.float32)
    if seen is not None:
        x = np.where(seen, x, np.float32(0 if function is np.add else -np.inf))
    reduced: Floats = function.reduceat(x, starts)
    return reduced


def lay_out(
    batch: Batch,
    names: Sequence[EntityName],
    references: Mapping[EntityName, Sequence[EntityName]] | None = None,
    *,
    is_compiled: bool = False,
) -> Layout:
    """The layout of a batch; `names` are its entity types, in packed order.

    With `is_compiled`, a numba kernel computes it ten times faster, but numba takes time to load.

    Args:
        references: as for `RelationLayout.of`; None or empty = no relations.

    Raises:
        SchemaError: as `RelationLayout.of`.
    """
    if references:
        layout = lay_out(batch, names, is_compiled=is_compiled)
        return replace(layout, relations=RelationLayout.of(batch, names, references))
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
