"""ActionLayout: actions of varying numbers of actors as arrays of fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError
from entity_env.interop.gymnasium.padded_entities import EntityLayout, require_counts

IllegalActions: TypeAlias = Literal["raise", "next"]
"""A choice that is not allowed: an error, or the next one that is allowed, going round."""

Masks: TypeAlias = dict[ActionName, NDArray[np.bool_]]
"""Per action with choices `(num_rows, num_actors, num_choices)`, True = allowed."""


@dataclass(frozen=True)
class _Action:
    """One action.

    Args:
        name, space: which.
        capacity: the largest number of actors.
        is_single: there is never more than one, so arrays have no dimension for actors.
        num_choices: of an actor; 0 if it chooses numbers.
    """

    name: ActionName
    space: ActionSpace
    capacity: int
    is_single: bool
    num_choices: int

    def gym_space(self) -> spaces.Space[Any]:
        if isinstance(self.space, ContinuousActionSpace):
            low = np.array(self.space.low, dtype=np.float32)
            high = np.array(self.space.high, dtype=np.float32)
            if not self.is_single:
                low, high = np.tile(low, (self.capacity, 1)), np.tile(high, (self.capacity, 1))
            return spaces.Box(low, high, dtype=np.float32)
        if self.is_single:
            return spaces.Discrete(self.num_choices)
        return spaces.MultiDiscrete([self.num_choices] * self.capacity)

    def table(self, given: object, num_rows: int) -> NDArray[Any]:
        """What the caller gave as `(num_rows, num_actors)` or `(.., num_numbers)`."""
        width = (len(self.space),) if isinstance(self.space, ContinuousActionSpace) else ()
        shape = (num_rows, *(() if self.is_single else (self.capacity,)), *width)
        kinds, wanted = ("iuf", "numbers") if width else ("iu", "integers")
        try:
            array = np.asarray(given)
        except (TypeError, ValueError) as error:
            raise SchemaError(f"action {self.name!r} needs an array: {error}") from error
        if array.shape != shape or array.dtype.kind not in kinds:
            raise SchemaError(
                f"action {self.name!r} needs the shape {shape} and {wanted}: got {array.shape} "
                f"{array.dtype}"
            )
        dtype = np.float32 if width else np.int64
        return array.astype(dtype).reshape(num_rows, self.capacity, *width)

    def present(self, mask: VecActionMask, obs: VecObs) -> NDArray[np.bool_]:
        """`(num_rows, num_actors)`: the first of each row, as many as there are."""
        counts = mask.actors.lengths
        if counts.max(initial=0) > self.capacity:
            row = int(np.flatnonzero(counts > self.capacity)[0])
            raise SchemaError(
                f"env {obs.env_id[row]}: {counts[row]} actors of action {self.name!r}, but there "
                f"is room for {self.capacity}: say how many there can be, "
                f"max_actors={{{self.name!r}: ...}}"
            )
        return np.arange(self.capacity) < counts[:, None]


class ActionLayout:
    """Reads and masks actions; see `entity_env.interop.gymnasium`.

    Args:
        action_space: what can be done.
        entities: where entities are in an observation.
        first: a batch in which all episodes begin.
        max_actors: per action the largest number of actors; that of the first batch when left out.
        illegal: what becomes of choices that are not allowed.

    Raises:
        SchemaError: nobody acts in the first batch, so that the number must be given.
        UsageError: `max_actors` of an action that there is not, or below 1.
    """

    def __init__(
        self,
        action_space: Mapping[ActionName, ActionSpace],
        entities: EntityLayout,
        first: VecObs,
        max_actors: Mapping[ActionName, int],
        illegal: IllegalActions,
    ) -> None:
        require_counts("max_actors", max_actors, action_space)
        self._entities = entities
        self._illegal = illegal
        self._actions = [
            _action(name, space, entities, first, max_actors.get(name))
            for name, space in action_space.items()
        ]

    def space(self) -> spaces.Space[Any]:
        """What one action is."""
        if len(self._actions) == 1:
            return self._actions[0].gym_space()
        return spaces.Dict({action.name: action.gym_space() for action in self._actions})

    def masks(self, obs: VecObs) -> Masks:
        """What is allowed now.

        Raises:
            SchemaError: a row with more actors than there is room for.
        """
        return {
            action.name: self._allowed(action, obs)
            for action in self._actions
            if action.num_choices
        }

    def info(self, masks: Masks) -> dict[str, Any]:
        """What `info` says of masks: new arrays, `(num_rows, ...)`."""
        arrays = {
            action.name: masks[action.name][:, 0] if action.is_single else masks[action.name]
            for action in self._actions
            if action.num_choices
        }
        told = {name: array.astype(np.int8) for name, array in arrays.items()}
        if not told:
            return {}
        return {"action_mask": told if len(self._actions) > 1 else next(iter(told.values()))}

    def answer(self, obs: VecObs, masks: Masks, given: object) -> VecActions:
        """The actions for a batch.

        Args:
            obs: the batch.
            masks: what is allowed there.
            given: what the caller wants, `(num_rows, ...)`.

        Raises:
            SchemaError: another shape or dtype, or a choice that is not allowed.
        """
        if len(self._actions) == 1:
            (action,) = self._actions
            return {action.name: self._values(action, obs, masks, given)}
        if not isinstance(given, Mapping) or set(given) != {each.name for each in self._actions}:
            names = ", ".join(repr(each.name) for each in self._actions)
            got = f"those of {list(given)}" if isinstance(given, Mapping) else f"{given!r:.80}"
            raise SchemaError(f"actions must be a dict of the actions {names}: got {got}")
        return {
            action.name: self._values(action, obs, masks, given[action.name])
            for action in self._actions
        }

    def _values(
        self, action: _Action, obs: VecObs, masks: Masks, given: object
    ) -> NDArray[np.int64] | NDArray[np.float32]:
        mask = obs.action_masks[action.name]
        table = action.table(given, len(obs))
        present = action.present(mask, obs)
        if self._illegal == "next" and action.num_choices:
            table = _next_allowed(table, present, masks[action.name])
        if isinstance(mask, VecSelectEntityActionMask):
            return self._positions(action, obs, mask, table, present)
        values: NDArray[np.int64] = table[present]
        return values

    def _positions(
        self,
        action: _Action,
        obs: VecObs,
        mask: VecSelectEntityActionMask,
        table: NDArray[np.int64],
        present: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """Positions among those that can be selected, from places in the observation."""
        places = np.full((len(obs), action.num_choices), -1, dtype=np.int64)
        rows = mask.actees.row_index
        order = np.arange(len(rows)) - mask.actees.offsets[rows]
        places[rows, self._entities.slots_of(obs, mask.actees)] = order
        rows, chosen = mask.actors.row_index, table[present]
        inside = (chosen >= 0) & (chosen < action.num_choices)
        found = np.where(inside, places[rows, np.where(inside, chosen, 0)], -1)
        wrong = np.flatnonzero(found < 0)
        if len(wrong):
            first = int(wrong[0])
            allowed = np.flatnonzero(places[rows[first]] >= 0).tolist()
            raise SchemaError(
                f"env {obs.env_id[rows[first]]}: action {action.name!r} selects place "
                f"{chosen[first]}, expected one of {allowed[:20]}; see info['action_mask']"
            )
        return np.asarray(found, dtype=np.int64)

    def _allowed(self, action: _Action, obs: VecObs) -> NDArray[np.bool_]:
        mask = obs.action_masks[action.name]
        present = action.present(mask, obs)
        allowed = np.zeros((*present.shape, action.num_choices), dtype=np.bool_)
        if isinstance(mask, VecSelectEntityActionMask):
            self._allow_selected(allowed, obs, mask)
        elif isinstance(mask, VecCategoricalActionMask):
            allowed[present] = True if mask.mask is None else mask.mask.values
        return allowed

    def _allow_selected(
        self, allowed: NDArray[np.bool_], obs: VecObs, mask: VecSelectEntityActionMask
    ) -> None:
        """Marks every pair of an actor and an entity that it may select."""
        rows = mask.actors.row_index
        actors = np.arange(len(rows)) - mask.actors.offsets[rows]
        widths = mask.actees.lengths[rows]
        pairs = np.repeat(np.arange(len(rows)), widths)
        actees = np.arange(len(pairs)) - np.repeat(np.cumsum(widths) - widths, widths)
        slots = self._entities.slots_of(obs, mask.actees)[mask.actees.offsets[rows][pairs] + actees]
        is_legal = True if mask.mask is None else mask.mask.values
        allowed[rows[pairs], actors[pairs], slots] = is_legal


def _action(
    name: ActionName, space: ActionSpace, entities: EntityLayout, first: VecObs, most: int | None
) -> _Action:
    if isinstance(space, ContinuousActionSpace):
        num_choices = 0
    elif isinstance(space, SelectEntityActionSpace):
        num_choices = entities.num_slots
    else:
        num_choices = len(space)
    if isinstance(space, GlobalCategoricalActionSpace):
        return _Action(name, space, 1, is_single=True, num_choices=num_choices)
    capacity = most or int(first.action_masks[name].actors.lengths.max(initial=0))
    if not capacity:
        raise SchemaError(
            f"nobody is asked for action {name!r} when episodes begin: say how many actors there "
            f"can be, max_actors={{{name!r}: ...}}"
        )
    return _Action(name, space, capacity, most is None and capacity == 1, num_choices)


def _next_allowed(
    table: NDArray[np.int64], present: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The choices, with the next allowed one in place of each that is not."""
    num_choices = allowed.shape[2]
    inside = (table >= 0) & (table < num_choices)
    looked_up = np.where(inside, table, 0)[..., None]
    is_legal = np.take_along_axis(allowed, looked_up, axis=2)[..., 0]
    rows, actors = np.nonzero(present & inside & ~is_legal)
    turned = (table[rows, actors][:, None] + np.arange(num_choices)) % num_choices
    order = np.take_along_axis(allowed[rows, actors], turned, axis=1).argmax(axis=1)
    table[rows, actors] = turned[np.arange(len(rows)), order]
    return table
