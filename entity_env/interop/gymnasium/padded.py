"""Varying numbers of entities and actions as arrays of fixed shapes, padded with zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ACTOR_ENTITY,
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import checked_count
from entity_env.core.vec_actions import independent
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError, UsageError

IllegalActions: TypeAlias = Literal["raise", "next"]
"""On an illegal choice, raise, or take the next legal one, wrapping around."""

Masks: TypeAlias = dict[ActionName, NDArray[np.bool_]]
"""Per action with choices, `(num_rows, num_actors, num_choices)`, True = allowed."""

GLOBAL_KEY: Final = "global"
"""Key of the global features in an observation."""


@dataclass(frozen=True)
class _EntityRows:
    """Entities of one type: `(capacity, width)` at `key`, with a mask unless `is_fixed`."""

    name: EntityName
    key: str
    width: int
    capacity: int
    is_fixed: bool

    @property
    def mask_key(self) -> str:
        return f"{self.key}_mask"


class PaddedEntities:
    """Converts entities to a dict of arrays; see `entity_env.interop.gymnasium`.

    Types that are not in `max_entities` must always be as numerous as in `first`.
    """

    def __init__(
        self, obs_space: ObsSpace, first: VecObs, max_entities: Mapping[EntityName, int]
    ) -> None:
        require_counts("max_entities", max_entities, obs_space.entities)
        self.entities = [
            _entity_rows(name, len(entity.features), first, max_entities.get(name))
            for name, entity in obs_space.entities.items()
        ]
        self._all = [rows for rows in self.entities if rows.name != ACTOR_ENTITY]
        if obs_space.global_features:
            width = len(obs_space.global_features)
            self._all.append(_EntityRows(GLOBAL_ENTITY, GLOBAL_KEY, width, 1, is_fixed=True))
        self.num_slots = sum(rows.capacity for rows in self.entities)
        """Number of places that an action can select."""
        self._first_slot = np.cumsum([0, *(rows.capacity for rows in self.entities)])

    @property
    def fixed(self) -> list[EntityName]:
        """Entity types whose number must not vary."""
        return [rows.name for rows in self.entities if rows.is_fixed]

    def space(self) -> spaces.Dict:
        found: dict[str, spaces.Space[Any]] = {}
        for rows in self._all:
            shape = (rows.width,) if rows.key == GLOBAL_KEY else (rows.capacity, rows.width)
            _add(found, rows.key, spaces.Box(-np.inf, np.inf, shape, np.float32))
            if not rows.is_fixed:
                _add(found, rows.mask_key, spaces.MultiBinary(rows.capacity))
        return spaces.Dict(found)

    def observe(self, obs: VecObs) -> dict[str, NDArray[Any]]:
        """Converts a batch to new `(num_rows, ...)` arrays; SchemaError for too many entities."""
        arrays: dict[str, NDArray[Any]] = {}
        for rows in self._all:
            features = obs.features[rows.name]
            self._require_room(rows, features.lengths, obs)
            table, mask = _table(rows, features, obs.visible.get(rows.name))
            arrays[rows.key] = table[:, 0] if rows.key == GLOBAL_KEY else table
            if not rows.is_fixed:
                arrays[rows.mask_key] = mask
        return arrays

    def slots_of(self, obs: VecObs, indices: RaggedArray[np.int64]) -> NDArray[np.int64]:
        """Places of entities in the padded observation; `indices` count within a row of `obs`."""
        counts = np.stack([obs.features[rows.name].lengths for rows in self.entities], axis=1)
        ends = np.cumsum(counts, axis=1)
        rows = indices.row_index
        kinds = (indices.values[:, None] >= ends[rows]).sum(axis=1)
        return np.asarray(
            self._first_slot[kinds] + indices.values - (ends - counts)[rows, kinds], dtype=np.int64
        )

    def _require_room(self, rows: _EntityRows, counts: NDArray[np.int64], obs: VecObs) -> None:
        wrong = counts != rows.capacity if rows.is_fixed else counts > rows.capacity
        if rows.is_fixed and wrong.any():  # agents that are not asked may see no entities
            wrong &= obs.is_ready | (counts > 0)
        if not wrong.any():
            return
        row = int(np.flatnonzero(wrong)[0])
        got = f"env {obs.env_id[row]}: {counts[row]} entities of type {rows.name!r}"
        if rows.is_fixed:
            raise SchemaError(
                f"{got}, but there were {rows.capacity} at first: if their number varies, give the "
                f"largest number, max_entities={{{rows.name!r}: ...}}"
            )
        raise SchemaError(
            f"{got}, but max_entities[{rows.name!r}] is {rows.capacity}: increase it, because no "
            "entity is left out"
        )


def require_counts(setting: str, given: object, known: Mapping[str, object]) -> None:
    """Raises `UsageError` for an unknown name or a count that is not a positive integer."""
    if not isinstance(given, Mapping):
        example = {next(iter(known), "name"): 9}
        raise UsageError(f'{setting} must be a dict, as {example}, or "auto": got {given!r}')
    for name, count in given.items():
        if name not in known:
            raise UsageError(f"{setting} names {name!r}; there are {', '.join(known) or 'none'}")
        checked_count(f"{setting}[{name!r}]", count)


def _entity_rows(name: EntityName, width: int, first: VecObs, most: int | None) -> _EntityRows:
    if name == ACTOR_ENTITY:  # neither shown nor selected
        return _EntityRows(name, name, 0, 0, is_fixed=False)
    if most is not None:
        largest = int(first.features[name].lengths.max(initial=0))
        if most < largest:
            raise SchemaError(
                f"episodes begin with {largest} entities of type {name!r}, but "
                f"max_entities[{name!r}] is {most}: increase it, because no entity is left out"
            )
        return _EntityRows(name, name, width, int(most), is_fixed=False)
    # Environments whose episode ended at once may have no entities.
    counts = np.unique(first.features[name].lengths[first.is_ready])
    if len(counts) != 1 or not counts[0]:
        shown = " or ".join(map(str, counts)) or "no"
        raise SchemaError(
            f"episodes begin with {shown} entities of type {name!r}: give the largest number, "
            f'max_entities={{{name!r}: ...}}, or max_entities="auto"'
        )
    return _EntityRows(name, name, width, int(counts[0]), is_fixed=True)


def _add(found: dict[str, spaces.Space[Any]], key: str, space: spaces.Space[Any]) -> None:
    if key in found:
        raise SchemaError(f"two parts of the observation would be called {key!r}: rename an entity")
    found[key] = space


def _table(
    rows: _EntityRows, features: RaggedArray[np.float32], visible: RaggedArray[np.bool_] | None
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Features `(num_rows, capacity, width)`, 0 if hidden, and mask `(num_rows, capacity)`."""
    if visible is not None:
        shown = np.where(visible.values[:, None], features.values, np.float32(0))
        features = RaggedArray.unchecked(shown, features.lengths)
    table, mask = features.pad(rows.capacity)
    if visible is not None:
        mask[mask] = visible.values
    return table, mask.astype(np.int8)


@dataclass(frozen=True)
class _Action:
    name: ActionName
    space: ActionSpace
    capacity: int
    is_single: bool
    """True if arrays have no actor dimension."""
    num_choices: int
    """0 for a continuous action."""

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
        """The given actions, checked, as `(num_rows, num_actors)` or
        `(num_rows, num_actors, num_numbers)`."""
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
        """`(num_rows, num_actors)`, True for present actors, which come first.

        SchemaError for too many actors.
        """
        counts = mask.actors.lengths
        if counts.max(initial=0) > self.capacity:
            row = int(np.flatnonzero(counts > self.capacity)[0])
            raise SchemaError(
                f"env {obs.env_id[row]}: {counts[row]} actors of action {self.name!r}, but at "
                f"most {self.capacity} were expected: give the largest number, "
                f"max_actors={{{self.name!r}: ...}}"
            )
        return np.arange(self.capacity) < counts[:, None]


class PaddedActions:
    """Converts actions and their masks; see `entity_env.interop.gymnasium`.

    Actions that are not in `max_actors` have at most as many actors as in `first`.
    """

    def __init__(
        self,
        action_space: Mapping[ActionName, ActionSpace],
        entities: PaddedEntities,
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

    @property
    def capacities(self) -> dict[ActionName, int]:
        """Maximum number of actors of each action that entities perform."""
        return {
            action.name: action.capacity
            for action in self._actions
            if not isinstance(action.space, GlobalCategoricalActionSpace)
        }

    def space(self) -> spaces.Space[Any]:
        if len(self._actions) == 1:
            return self._actions[0].gym_space()
        return spaces.Dict({action.name: action.gym_space() for action in self._actions})

    def masks(self, obs: VecObs) -> Masks:
        """Action masks; `SchemaError` for too many actors in a row, or a mask that depends on an
        earlier choice."""
        return {
            action.name: self._allowed(action, obs)
            for action in self._actions
            if action.num_choices
        }

    def masks_with_final(self, obs: VecObs, masks: Masks) -> Masks:
        """`masks`, with those of `obs.final` for the environments that it contains.

        `obs` must have a row for every environment, in order.
        """
        if obs.final is None:
            return masks
        # Backward, to keep the first of several episodes of an environment: the later ones ended
        # before their first action.
        rows = obs.final.env_id[::-1]
        shown = {name: mask.copy() for name, mask in masks.items()}
        for name, mask in self.masks(obs.final).items():
            shown[name][rows] = mask[::-1]
        return shown

    def info(self, masks: Masks) -> dict[str, Any]:
        """The masks for `info`: new arrays, `(num_rows, ...)` int8."""
        arrays = {
            action.name: masks[action.name][:, 0] if action.is_single else masks[action.name]
            for action in self._actions
            if action.num_choices
        }
        flags = {name: array.astype(np.int8) for name, array in arrays.items()}
        if not flags:
            return {}
        return {"action_mask": flags if len(self._actions) > 1 else next(iter(flags.values()))}

    def answer(self, obs: VecObs, masks: Masks, given: object) -> VecActions:
        """Actions for a batch with these masks, from the caller's `(num_rows, ...)` arrays."""
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

    def padded(
        self, obs: VecObs, actions: Mapping[ActionName, RaggedArray[Any]]
    ) -> NDArray[Any] | dict[ActionName, NDArray[Any]]:
        """Inverse of `answer`: the array for these actions, or a dict for several actions.

        Absent actors and unrequested actions are zeros.
        """
        tables = {each.name: self._padded(each, obs, actions[each.name]) for each in self._actions}
        return tables if len(tables) > 1 else next(iter(tables.values()))

    def _padded(self, action: _Action, obs: VecObs, chosen: RaggedArray[Any]) -> NDArray[Any]:
        mask = obs.action_masks[action.name]
        action.present(mask, obs)  # refuses too many actors
        if isinstance(mask, VecSelectEntityActionMask):
            slots = self._entities.slots_of(obs, mask.actees)
            first = mask.actees.offsets[mask.actors.row_index]
            chosen = RaggedArray(slots[first + chosen.values], chosen.lengths)
        table, _ = chosen.pad(action.capacity)
        return table[:, 0] if action.is_single else table

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
        """Positions among selectable entities, from places in the observation."""
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
        mask = independent(action.name, obs.action_masks[action.name], "Gymnasium")
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
        rows = mask.actors.row_index
        actors = np.arange(len(rows)) - mask.actors.offsets[rows]
        widths = mask.actees.lengths[rows]
        pairs = np.repeat(np.arange(len(rows)), widths)
        actees = np.arange(len(pairs)) - np.repeat(np.cumsum(widths) - widths, widths)
        slots = self._entities.slots_of(obs, mask.actees)[mask.actees.offsets[rows][pairs] + actees]
        is_legal = True if mask.mask is None else mask.mask.values
        allowed[rows[pairs], actors[pairs], slots] = is_legal


def _action(
    name: ActionName, space: ActionSpace, entities: PaddedEntities, first: VecObs, most: int | None
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
            f"action {name!r} has no actors in the first observations: give the largest number, "
            f'max_actors={{{name!r}: ...}}, or max_actors="auto"'
        )
    return _Action(name, space, capacity, most is None and capacity == 1, num_choices)


def _next_allowed(
    table: NDArray[np.int64], present: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    num_choices = allowed.shape[2]
    inside = (table >= 0) & (table < num_choices)
    looked_up = np.where(inside, table, 0)[..., None]
    is_legal = np.take_along_axis(allowed, looked_up, axis=2)[..., 0]
    rows, actors = np.nonzero(present & inside & ~is_legal)
    turned = (table[rows, actors][:, None] + np.arange(num_choices)) % num_choices
    order = np.take_along_axis(allowed[rows, actors], turned, axis=1).argmax(axis=1)
    table[rows, actors] = turned[np.arange(len(rows)), order]
    return table
