"""Actors, actees and allowed choices of a batch's actions, as arrays for a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.core.ragged import Ints, RaggedArray
from entity_env.core.spaces import ActionName
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError

Samples: TypeAlias = NDArray[np.int64] | NDArray[np.float32]
"""Chosen indices, `(num_actors,)` int64, or numbers, `(num_actors, num_labels)` float32."""


@dataclass(frozen=True)
class Actees:
    """Entities that the actors of a select action can select.

    Args:
        packed: `(num_actees,)` packed index of every actee.
        mask: the action's mask, with the actors and actees of each observation.
    """

    packed: Ints
    mask: VecSelectEntityActionMask

    @property
    def num_rows(self) -> int:
        return len(self.mask.actors)

    def picked(self, rows: Ints, choices: Ints) -> Ints:
        """Packed index of the actees that actors of some observations have chosen."""
        index: Ints = self.packed[self.mask.actees.offsets[rows] + choices]
        return index

    @cached_property
    def max_actors(self) -> int:
        return int(self.mask.actors.lengths.max(initial=0))

    @cached_property
    def max_actees(self) -> int:
        return int(self.mask.actees.lengths.max(initial=0))

    @cached_property
    def slots(self) -> Ints:
        """`(num_actees,)` slot of each actee among `num_rows * max_actees` slots."""
        return _slots(self.mask.actees, self.max_actees)

    @cached_property
    def source(self) -> Ints:
        """`(num_rows * max_actees,)` packed index of the actee in each slot; empty slots have 0."""
        source = np.zeros(self.num_rows * self.max_actees, dtype=np.int64)
        source[self.slots] = self.packed
        return source

    @cached_property
    def actor_slots(self) -> Ints:
        """`(num_actors,)` slot of each actor among `num_rows * max_actors` slots."""
        return _slots(self.mask.actors, self.max_actors)


@dataclass(frozen=True, slots=True)
class Choices:
    """Actors and allowed choices of one action in a batch.

    Args:
        packed: `(num_actors,)` packed index of every actor.
        rows: `(num_actors,)` observation of every actor.
        allowed: `(num_actors, num_choices)` bool; None = all choices.
        actees: None unless the action selects entities; then a choice is an index into the actees
            of the observation.
        options: of an action that selects relations, `(num_actors, most_allowed)` the choices that
            each actor is allowed, which are then the columns of `allowed`; it is False behind an
            actor's last one. None = columns are choices.
    """

    packed: Ints
    rows: Ints
    allowed: NDArray[np.bool_] | None
    actees: Actees | None = None
    options: Ints | None = None

    @property
    def num_choices(self) -> int:
        """Of an action that selects entities: the most actees of an observation."""
        return 0 if self.actees is None else self.actees.max_actees

    def pairs(self, actees: Actees, options: Ints) -> tuple[Ints, Ints, Ints]:
        """Actor, column and index in `actees.packed` of every option.

        Time and memory of a head grow with these, not with the most options of an actor.
        """
        allowed = cast("NDArray[np.bool_]", self.allowed)  # as for all actions with options
        actors, columns = np.nonzero(allowed)
        first = actees.mask.actees.offsets[self.rows[actors]]
        return actors, columns, first + options[actors, columns]

    @property
    def num_picked(self) -> int:
        """Number of entity embeddings that this action's head reads."""
        return len(self.packed) + (0 if self.actees is None else len(self.actees.packed))


def find_choices(action: ActionName, mask: VecActionMask, layout: Layout) -> Choices:
    """The actors and allowed choices of an action.

    Raises:
        SchemaError: an actor without any allowed choice, or an index out of range.
    """
    packed = layout.packed_index(mask.actors, f"actors of action {action!r}")
    rows = mask.actors.row_index
    if isinstance(mask, VecContinuousActionMask):
        return Choices(packed, rows, allowed=None)
    if isinstance(mask, VecCategoricalActionMask):
        allowed = None if mask.mask is None else mask.mask.values
        choices = Choices(packed, rows, allowed)
    else:
        what = f"actees of action {action!r}"
        actees = Actees(layout.packed_index(mask.actees, what, has_relations=True), mask)
        are_relations = layout.relations is not None and (actees.packed >= len(layout.order)).all()
        if are_relations and mask.mask is not None and len(actees.packed):
            options, allowed = _options(mask, mask.mask)
            choices = Choices(packed, rows, allowed, actees, options)
        else:
            choices = Choices(packed, rows, _allowed_actees(mask, actees.max_actees), actees)
    _require_a_choice(action, choices)
    return choices


def find_row_choices(action: ActionName, mask: VecActionMask) -> Choices:
    """Like `find_choices`, for a network with one vector per row: `packed` is equal to `rows`.

    Raises:
        SchemaError: a select action, or an actor without any allowed choice.
    """
    rows = mask.actors.row_index
    if isinstance(mask, VecSelectEntityActionMask):
        raise SchemaError(f"action {action!r} selects entities: use a RogueNet")
    if isinstance(mask, VecContinuousActionMask):
        return Choices(rows, rows, allowed=None)
    choices = Choices(rows, rows, None if mask.mask is None else mask.mask.values)
    _require_a_choice(action, choices)
    return choices


def _slots(entities: RaggedArray[np.int64], width: int) -> Ints:
    slots: Ints = entities.row_index * width + _place_in_row(entities)
    return slots


def _place_in_row(entities: RaggedArray[np.int64]) -> Ints:
    place: Ints = np.arange(len(entities.values)) - entities.offsets[entities.row_index]
    return place


def _allowed_actees(mask: VecSelectEntityActionMask, max_actees: int) -> NDArray[np.bool_] | None:
    rows = mask.actors.row_index
    lengths = mask.actees.lengths[rows]
    if mask.mask is None and (lengths == max_actees).all():
        return None
    column = np.arange(max_actees)
    allowed: NDArray[np.bool_] = column < lengths[:, None]
    if mask.mask is not None and len(mask.mask.values):
        first = mask.mask.offsets[rows] + _place_in_row(mask.actors) * lengths
        flat = np.minimum(first[:, None] + column, len(mask.mask.values) - 1)
        allowed &= mask.mask.values[flat]
    return allowed


def _options(
    mask: VecSelectEntityActionMask, flags: RaggedArray[np.bool_]
) -> tuple[Ints, NDArray[np.bool_]]:
    """`options` and `allowed` of `Choices`."""
    rows, num_actors = mask.actors.row_index, len(mask.actors.values)
    # The first flag of each actor, in rising order.
    first = flags.offsets[rows] + _place_in_row(mask.actors) * mask.actees.lengths[rows]
    (found,) = np.nonzero(flags.values)
    actor = np.searchsorted(first, found, side="right") - 1
    counts = np.bincount(actor, minlength=num_actors)
    place = np.arange(len(found)) - (np.cumsum(counts) - counts)[actor]
    options = np.zeros((num_actors, counts.max(initial=1)), np.int64)
    options[actor, place] = found - first[actor]
    return options, np.arange(options.shape[1]) < counts[:, None]


def _require_a_choice(action: ActionName, choices: Choices) -> None:
    stuck: NDArray[np.bool_]
    if choices.allowed is not None:
        stuck = np.logical_not(choices.allowed.any(axis=1))
    elif choices.actees is None or choices.actees.packed.size:
        return
    else:
        stuck = np.full(len(choices.rows), True)
    if stuck.any():
        row = choices.rows[int(stuck.argmax())]
        raise SchemaError(
            f"action {action!r}: an actor in row {row} has nothing to choose from; "
            "allow it at least one choice, or leave it out of the actors"
        )
