"""EntityLayout: entities of varying numbers as arrays of fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.core.validation import checked_count
from entity_env.core.vec_obs import VecObs
from entity_env.errors import SchemaError, UsageError

GLOBAL_KEY: Final = "global"
"""Where an observation has the global features."""


@dataclass(frozen=True)
class Slots:
    """The rows of an observation that are for one type of entity.

    Args:
        name: the type.
        key: where the observation has it.
        width: features of an entity.
        capacity: how many rows.
        is_fixed: all of them are always taken; else there is a mask beside them.
    """

    name: EntityName
    key: str
    width: int
    capacity: int
    is_fixed: bool

    @property
    def mask_key(self) -> str:
        """Where the observation says which rows are taken."""
        return f"{self.key}_mask"


class EntityLayout:
    """Writes batches of entities as a dict of arrays; see `entity_env.interop.gymnasium`.

    Args:
        obs_space: what can be observed.
        first: a batch in which all episodes begin: the types that are not in `max_entities` are
            expected to be as many as there ever after.
        max_entities: for types whose number varies, the largest that it can be.

    Raises:
        SchemaError: a type of which the first batch shows different numbers, or none; or two names
            that would be the same in the observation.
        UsageError: `max_entities` of a type that there is not, or below 1.
    """

    def __init__(
        self, obs_space: ObsSpace, first: VecObs, max_entities: Mapping[EntityName, int]
    ) -> None:
        require_counts("max_entities", max_entities, obs_space.entities)
        self.entities = [
            _slots(name, len(entity.features), first, max_entities.get(name))
            for name, entity in obs_space.entities.items()
        ]
        """The types of entities, in the order of the observation space."""
        self._all = list(self.entities)
        if obs_space.global_features:
            width = len(obs_space.global_features)
            self._all.append(Slots(GLOBAL_ENTITY, GLOBAL_KEY, width, 1, is_fixed=True))
        self.num_slots = sum(slots.capacity for slots in self.entities)
        """Places that an action can select."""
        self._first_slot = np.cumsum([0, *(slots.capacity for slots in self.entities)])

    def space(self) -> spaces.Dict:
        """What one observation is."""
        found: dict[str, spaces.Space[Any]] = {}
        for slots in self._all:
            shape = (slots.width,) if slots.key == GLOBAL_KEY else (slots.capacity, slots.width)
            _add(found, slots.key, spaces.Box(-np.inf, np.inf, shape, np.float32))
            if not slots.is_fixed:
                _add(found, slots.mask_key, spaces.MultiBinary(slots.capacity))
        return spaces.Dict(found)

    def observe(self, obs: VecObs) -> dict[str, NDArray[Any]]:
        """The rows of a batch as new arrays, `(num_rows, ...)`.

        Raises:
            SchemaError: a row with more entities of a type than there is room for, or with another
                number than always.
        """
        arrays: dict[str, NDArray[Any]] = {}
        for slots in self._all:
            features = obs.features[slots.name]
            self._require_room(slots, features.lengths, obs)
            table, mask = _table(slots, features, obs.visible.get(slots.name))
            arrays[slots.key] = table[:, 0] if slots.key == GLOBAL_KEY else table
            if not slots.is_fixed:
                arrays[slots.mask_key] = mask
        return arrays

    def slots_of(self, obs: VecObs, indices: RaggedArray[np.int64]) -> NDArray[np.int64]:
        """The place of every entity that an action names by its index in its row."""
        counts = np.stack([obs.features[slots.name].lengths for slots in self.entities], axis=1)
        ends = np.cumsum(counts, axis=1)
        rows = indices.row_index
        kinds = (indices.values[:, None] >= ends[rows]).sum(axis=1)
        return np.asarray(
            self._first_slot[kinds] + indices.values - (ends - counts)[rows, kinds], dtype=np.int64
        )

    def _require_room(self, slots: Slots, counts: NDArray[np.int64], obs: VecObs) -> None:
        wrong = counts != slots.capacity if slots.is_fixed else counts > slots.capacity
        if slots.is_fixed and wrong.any():  # who is not asked anything may show nothing
            wrong &= obs.is_ready | (counts > 0)
        if not wrong.any():
            return
        row = int(np.flatnonzero(wrong)[0])
        came = f"env {obs.env_id[row]}: {counts[row]} entities of type {slots.name!r}"
        if slots.is_fixed:
            raise SchemaError(
                f"{came}, but there were {slots.capacity} at first: if their number varies, say "
                f"how many there can be, max_entities={{{slots.name!r}: ...}}"
            )
        raise SchemaError(
            f"{came}, but max_entities[{slots.name!r}] is {slots.capacity}: make it larger, since "
            "none is ever left out"
        )


def require_counts(setting: str, given: Mapping[str, int], known: Mapping[str, object]) -> None:
    """Checks a number a name.

    Raises:
        UsageError: a name that is not known, or a number that is no positive integer.
    """
    for name, count in given.items():
        if name not in known:
            raise UsageError(f"{setting} names {name!r}; there are {', '.join(known) or 'none'}")
        checked_count(f"{setting}[{name!r}]", count)


def _slots(name: EntityName, width: int, first: VecObs, most: int | None) -> Slots:
    if most is not None:
        return Slots(name, name, width, int(most), is_fixed=False)
    # An episode that is over at once may show nothing.
    counts = np.unique(first.features[name].lengths[first.is_ready])
    if len(counts) != 1 or not counts[0]:
        shown = " or ".join(map(str, counts)) or "no"
        raise SchemaError(
            f"episodes begin with {shown} entities of type {name!r}: say how many there can be, "
            f"max_entities={{{name!r}: ...}}"
        )
    return Slots(name, name, width, int(counts[0]), is_fixed=True)


def _add(found: dict[str, spaces.Space[Any]], key: str, space: spaces.Space[Any]) -> None:
    if key in found:
        raise SchemaError(f"two parts of the observation would be called {key!r}: rename an entity")
    found[key] = space


def _table(
    slots: Slots, features: RaggedArray[np.float32], visible: RaggedArray[np.bool_] | None
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """`(num_rows, capacity, width)` features, 0 of what is not seen; `(.., capacity)` what is."""
    values, taken = features.values, np.ones(len(features.values), dtype=np.int8)
    if visible is not None:
        taken = visible.values.astype(np.int8)
        values = np.where(visible.values[:, None], values, np.float32(0))
    shape = len(features), slots.capacity
    if len(values) == shape[0] * shape[1]:  # none has more than there is room for: all are full
        return np.array(values).reshape(*shape, slots.width), taken.reshape(shape)
    present = np.arange(slots.capacity) < features.lengths[:, None]
    table = np.zeros((*shape, slots.width), dtype=np.float32)
    table[present] = values
    mask = np.zeros(shape, dtype=np.int8)
    mask[present] = taken
    return table, mask
