"""`ObservationBatcher`: converts `Observation`s of many environments to arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.entity_type import as_float32
from entity_env.batching.action_buffers import (
    CategoricalBuffer,
    ContinuousBuffer,
    GlobalCategoricalBuffer,
    SelectEntityBuffer,
)
from entity_env.batching.adapter import OURS, Adapter
from entity_env.batching.entity_buffer import Batcher, EntityBuffer
from entity_env.core.action_request import GLOBAL_ACTORS, Asked
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    ContinuousActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
    unknown_id,
    unknown_type,
)
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.errors import SchemaError

_SMALL = 64
"""Smaller arrays are cheaper to pass as a list than to copy as a slice."""

_AddGroup: TypeAlias = Callable[[int, int, int, int], None]
"""Adds entities as actors or actees, like `ActionBuffer.add_group`."""


_FEATURES: Final = attrgetter("features")
_GLOBALS: Final = attrgetter("global_features")
_IDS: Final = attrgetter("ids")
_ACTIONS: Final = attrgetter("actions")
_VISIBLE: Final = attrgetter("visible")
_METRICS: Final = attrgetter("metrics")
_MASK: Final = attrgetter("mask")
_ACTORS: Final = attrgetter("actor_ids"), attrgetter("actor_types")
_ACTEES: Final = attrgetter("actee_ids"), attrgetter("actee_types")
_NONE: Final = type(None)


class _NotAlikeError(Exception):
    """`collate` cannot add the observations."""


@dataclass(slots=True)
class _Column:
    """Entities of one type in several observations."""

    buffer: EntityBuffer
    kind: int
    """Index of the type."""
    counts: list[int]
    """Number of entities per observation."""
    ids: Sequence[Sequence[EntityID] | None] | None
    """Ids per observation, None for each without ids; or None if no observation has ids."""
    values: list[float]
    """Features, one row after another."""


@dataclass(slots=True)
class _Group:
    """Actors or actees of one action in several observations."""

    kinds: Sequence[int]
    """Indices of their types."""
    count: int
    """Their number, in all observations together."""
    ids: Iterable[Sequence[EntityID]]
    """Ids per observation."""


_NO_ENTITIES: Final = _Group((), 0, repeat(()))
_GLOBAL: Final = _Group((), 0, repeat(GLOBAL_ACTORS))


class ObservationBatcher(Batcher):
    """Collects `Observation`s; a SchemaError names whatever does not match the spaces.

    The adapter describes the observations passed to `collate`.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        where: Callable[[int], str] = "observation {}".format,
        adapter: Adapter = OURS,
        *,
        is_final: bool = False,
    ) -> None:
        super().__init__(obs_space, action_space, where, is_final=is_final)
        self._adapter = adapter
        self.asked: dict[ActionName, list[Asked]] = {name: [] for name in action_space}
        """Per action, actors and actees of each observation; `clear` makes a new dict."""
        self._types = {name: self.buffers[name] for name in obs_space.entities}
        self._kinds = {name: self.layout.entities[name].row for name in obs_space.entities}
        self._nameless: dict[EntityName, list[EntityID]] = {name: [] for name in self._types}
        """Default ids."""
        self._index_of: dict[EntityID, int] | None = None
        """Index by id in the current observation, if an action names ids."""

    def clear(self) -> None:
        super().clear()
        self.asked = {name: [] for name in self.asked}

    def add(self, observation: Observation, *, ask: bool = True) -> None:
        """Adds one observation; `ask=False` (a final observation) omits actors."""
        if not ask and observation.is_blank:
            self.add_metrics(observation.metrics)
            self.end_row()
            return
        self._add_features(observation)
        self._add_globals(observation)
        if ask:
            try:
                self._add_actions(observation)
            except SchemaError as error:
                raise self._error(str(error)) from error
        if observation.visible:
            self._add_visible(observation)
        if observation.metrics:
            self.add_metrics(observation.metrics)
        self.end_row()

    def _add_features(self, observation: Observation) -> None:
        features = observation.features
        for name in features:
            if name not in self._types:
                raise self._error(
                    f"entity {name!r} is not in the observation space, which has "
                    f"{', '.join(self._types) or 'none'}"
                )
        for name, buffer in self._types.items():
            rows = features.get(name)
            if rows is None or not len(rows):
                continue
            if isinstance(rows, np.ndarray):
                self._add_array(buffer, rows)
                continue
            width, extend = buffer.width, buffer.pending.extend
            for row in rows:
                try:
                    is_sound = len(row) == width
                except TypeError:
                    is_sound = False
                if not is_sound:
                    raise self._wrong_row(buffer, rows)
                extend(row)
            if not width:
                extend([0.0] * len(rows))

    def _add_array(self, buffer: EntityBuffer, rows: NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.shape[1] != buffer.width or rows.dtype.kind not in "fiub":
            raise self._error(
                f"entity {buffer.name}: features need the shape (num_entities, {buffer.width}) "
                f"and a numeric dtype, got {rows.shape} {rows.dtype}"
            )
        if rows.size < _SMALL and buffer.width:
            buffer.pending += rows.ravel().tolist()
        else:
            buffer.append(as_float32(rows))

    def _add_globals(self, observation: Observation) -> None:
        names = self.obs_space.global_features
        values = observation.global_features
        if len(values) != len(names):
            raise self._error(
                f"{len(values)} global features, expected {len(names)}: {', '.join(names)}"
            )
        buffer = self.buffers.get(GLOBAL_ENTITY)
        if buffer is not None:
            buffer.pending.extend(values if len(names) else (0.0,))

    def _add_visible(self, observation: Observation) -> None:
        for name, visible in observation.visible.items():
            if name not in self._types:
                raise self._error(f"visible names entity {name!r}, which does not exist")
            self.hide(name, np.asarray(visible), observation.num_entities(name))

    def _add_actions(self, observation: Observation) -> None:
        self._index_of = None
        features, ids = observation.features, observation.ids
        for name in ids:
            given = ids.get(name)
            if given is not None and len(given) != len(features.get(name, ())):
                observation.entity_ids(self.obs_space)  # raises, unless the type is undeclared
        for name, mask in observation.actions.items():
            if name not in self.actions:
                raise SchemaError(
                    f"action {name!r} is not in the action space, which has "
                    f"{', '.join(self.actions) or 'none'}"
                )
            self._add_action(name, mask, observation)

    def _add_action(self, name: ActionName, mask: ActionMask, observation: Observation) -> None:
        row, buffer = self.num_rows, self.actions[name]
        find = self._add_entities
        actors: Sequence[EntityID] = GLOBAL_ACTORS
        actees: Sequence[EntityID] = ()
        if isinstance(buffer, CategoricalBuffer) and isinstance(mask, CategoricalActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, buffer.add_group)
            if mask.mask is not None:
                buffer.add_mask(mask.mask, len(actors))
        elif isinstance(buffer, GlobalCategoricalBuffer) and isinstance(
            mask, GlobalCategoricalActionMask
        ):
            buffer.add(row)
            buffer.add_mask(mask.mask, 1)
        elif isinstance(buffer, SelectEntityBuffer) and isinstance(mask, SelectEntityActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, buffer.add_group)
            ids, types = mask.actee_ids, mask.actee_types
            actees = find(name, ids, types, observation, buffer.add_actees, "actee")
            buffer.add_mask(row, mask.mask, len(actors), len(actees))
        elif isinstance(buffer, ContinuousBuffer) and isinstance(mask, ContinuousActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, buffer.add_group)
        else:
            raise SchemaError(f"action {name!r} does not take a {type(mask).__name__}")
        self.asked[name].append((row, actors, actees))

    def _add_entities(
        self,
        action: ActionName,
        ids: Sequence[EntityID] | None,
        types: Iterable[EntityName] | None,
        observation: Observation,
        add: _AddGroup,
        role: str = "actor",
    ) -> list[EntityID]:
        if ids is not None:
            return self._add_by_id(action, ids, observation, add, role)
        found: list[EntityID] = []
        for name in self._types if types is None else types:
            buffer = self._types.get(name)
            if buffer is None:
                raise unknown_type(action, role, name, self._types)
            count = len(observation.features.get(name, ()))
            if count:
                add(self.num_rows, self._kinds[name], buffer.num_entities - count, count)
                given = observation.ids.get(name)
                found.extend(self._default_ids(name, count) if given is None else given)
        return found

    def _default_ids(self, name: EntityName, count: int) -> list[EntityID]:
        ids = self._nameless[name]
        ids.extend((name, i) for i in range(len(ids), count))
        return ids[:count]

    def _add_by_id(
        self,
        action: ActionName,
        ids: Sequence[EntityID],
        observation: Observation,
        add: _AddGroup,
        role: str,
    ) -> list[EntityID]:
        if self._index_of is None:
            self._index_of = observation.index_of_ids(self.obs_space)
        index_of = self._index_of
        try:
            indices = [index_of[entity_id] for entity_id in ids]
        except KeyError as error:
            raise unknown_id(action, role, error.args[0], index_of) from None
        counts = list(map(observation.num_entities, self._types))
        starts = [
            buffer.num_entities - count
            for buffer, count in zip(self._types.values(), counts, strict=True)
        ]
        kinds = list(self._kinds.values())
        for number, first, count in _runs(indices, list(accumulate(counts))):
            add(self.num_rows, kinds[number], starts[number] + first, count)
        present = list(index_of)
        return [present[i] for i in indices]

    def _wrong_row(self, buffer: EntityBuffer, rows: Sequence[Any]) -> SchemaError:
        i = next(i for i, row in enumerate(rows) if _length_of(row) != buffer.width)
        return self._error(
            f"entity {buffer.name}: row {i} is {rows[i]!r}, expected a sequence of {buffer.width} "
            f"features: {', '.join(buffer.features)}"
        )

    def _error(self, message: str) -> SchemaError:
        return SchemaError(f"{self.where(self.num_rows)}: {message}")

    # --------------------------------------------------------------------------------- bulk path

    def collate(self, observations: Sequence[Any], *, ask: bool = True) -> bool:
        """Adds observations in bulk if all have the same form; returns whether it did.

        In that form, all entities are visible and of known types, and their features are lists or
        arrays. With `ask`, every action has a mask that names the same entity types in all
        observations and forbids nothing, and select actions have actees; without `ask`, every
        observation has features. Fewer than two observations are never added in bulk, nor, with
        `ask`, a continuous action.
        """
        if len(observations) < 2:
            return False
        try:
            columns = self._columns(observations, ask)
            shared = self._shared(observations)
            asked = self._asked(observations, columns) if ask else self._unasked(observations)
        except (_NotAlikeError, TypeError, ValueError, AttributeError):
            return False
        self._commit(observations, columns, shared, asked)
        return True

    def _columns(self, observations: Sequence[Any], ask: bool) -> dict[EntityName, _Column]:
        features = list(map(_FEATURES, observations))
        _require(not any(map(_VISIBLE, observations)))
        _require(set(chain.from_iterable(features)) <= self._types.keys())
        _require(ask or all(map(len, features)))
        ids = list(map(_IDS, observations)) if ask else []
        has_ids = set(chain.from_iterable(ids))
        columns: dict[EntityName, _Column] = {}
        for name, buffer in self._types.items():
            rows = [shown.get(name, ()) for shown in features]
            counts = list(map(len, rows))
            values = _numbers(rows, buffer)
            _require(len(values) == sum(counts) * buffer.stride)
            named = [each.get(name) for each in ids] if name in has_ids else None
            _require(named is None or _fit(named, counts))
            kind = self._kinds[name]
            columns[name] = _Column(buffer, kind, counts, named, values)
        return columns

    def _shared(self, observations: Sequence[Any]) -> list[float]:
        width = len(self.obs_space.global_features)
        given = list(map(_GLOBALS, observations))
        _require(set(map(len, given)) == {width})
        return list(chain.from_iterable(given)) if width else [0.0] * len(observations)

    def _asked(
        self, observations: Sequence[Any], columns: dict[EntityName, _Column]
    ) -> dict[ActionName, tuple[_Group, _Group]]:
        actions = list(map(_ACTIONS, observations))
        _require(set(map(len, actions)) == {len(self.actions)})
        ids = list(map(_IDS, observations))
        asked: dict[ActionName, tuple[_Group, _Group]] = {}
        for name, buffer in self.actions.items():
            masks: list[Any] = [each.get(name) for each in actions]
            kinds = set(map(type, masks))
            _require(len(kinds) == 1 and set(map(_MASK, masks)) == {None})
            kind = self._adapter.masks.get(kinds.pop())
            if isinstance(buffer, GlobalCategoricalBuffer):
                _require(kind is GlobalCategoricalActionMask)
                asked[name] = _GLOBAL, _NO_ENTITIES
            elif isinstance(buffer, CategoricalBuffer):
                _require(kind is CategoricalActionMask)
                asked[name] = self._group(masks, _ACTORS, ids, columns), _NO_ENTITIES
            else:
                _require(isinstance(buffer, SelectEntityBuffer) and kind is SelectEntityActionMask)
                actees = self._group(masks, _ACTEES, ids, columns)
                _require(all(map(len, actees.ids)))
                asked[name] = self._group(masks, _ACTORS, ids, columns), actees
        return asked

    def _unasked(self, observations: Sequence[Any]) -> dict[ActionName, tuple[_Group, _Group]]:
        """No action is requested; the adapter, except `OURS`, must still know all mask types."""
        if self._adapter is not OURS:
            masks = chain.from_iterable(each.values() for each in map(_ACTIONS, observations))
            _require(set(map(type, masks)) <= self._adapter.masks.keys())
        return {}

    def _group(
        self,
        masks: Sequence[Any],
        role: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        ids: Sequence[Mapping[EntityName, Sequence[EntityID]]],
        columns: dict[EntityName, _Column],
    ) -> _Group:
        """Actors (or actees) of the types that the masks name; these types must be equal."""
        named, types = (list(map(get, masks)) for get in role)
        wanted = types[0]
        _require(types.count(wanted) == len(types))
        if named.count(None) < len(named):
            only = self._adapter.type_named(named, ids)
            _require(wanted is None and only is not None)
            wanted = (only,)
        if wanted is None:
            wanted = columns
        _require(all(name in columns for name in wanted))
        _require(len(wanted) > 0)
        chosen = [columns[name] for name in wanted]
        each: list[Any] = list(map(self._ids, chosen))
        return _Group(
            [column.kind for column in chosen],
            sum(sum(column.counts) for column in chosen),
            each[0] if len(each) == 1 else list(map(list, map(chain, *each))),
        )

    def _ids(self, column: _Column) -> list[Sequence[EntityID]]:
        if column.ids is not None and _NONE not in set(map(type, column.ids)):
            return list(map(list, column.ids))  # type: ignore[arg-type]  # none of them is None
        nameless = self._default_ids(column.buffer.name, max(column.counts))
        each = zip(column.ids or repeat(None), column.counts, strict=False)
        return [nameless[:count] if own is None else list(own) for own, count in each]

    def _commit(
        self,
        observations: Sequence[Any],
        columns: dict[EntityName, _Column],
        shared: list[float],
        asked: dict[ActionName, tuple[_Group, _Group]],
    ) -> None:
        for column in columns.values():
            _extend(column.buffer, column.values, column.counts)
        if GLOBAL_ENTITY in self.buffers:
            _extend(self.buffers[GLOBAL_ENTITY], shared, [1] * len(observations))
        rows = range(self.num_rows, self.num_rows + len(observations))
        for name, (actors, actees) in asked.items():
            buffer = self.actions[name]
            if isinstance(buffer, GlobalCategoricalBuffer):
                buffer.add_all(rows)
            else:
                buffer.add_types(rows, actors.kinds, actors.count)
            if isinstance(buffer, SelectEntityBuffer):
                buffer.add_actee_types(rows, actees.kinds, actees.count)
            self.asked[name].extend(zip(rows, actors.ids, actees.ids, strict=False))
        metrics = list(map(_METRICS, observations))
        if any(metrics):
            self._metrics += [pair for pair in zip(rows, metrics, strict=True) if pair[1]]
        self.num_rows += len(observations)


def _length_of(row: object) -> int | None:
    return len(row) if isinstance(row, Sized) else None


def _runs(indices: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int, int]]:
    """Groups indices into runs of adjacent entities of one type: type, first, count."""
    runs: list[tuple[int, int, int]] = []
    stop = end = -1
    for index in indices:
        if index == stop < end:
            number, first, count = runs[-1]
            runs[-1] = number, first, count + 1
        else:
            number = bisect_right(ends, index)
            end = ends[number]
            runs.append((number, index - (ends[number - 1] if number else 0), 1))
        stop = index + 1
    return runs


def _require(is_alike: bool) -> None:
    if not is_alike:
        raise _NotAlikeError


def _fit(named: Sequence[Sequence[EntityID] | None], counts: Sequence[int]) -> bool:
    if _NONE not in set(map(type, named)):
        return list(map(len, named)) == counts  # type: ignore[arg-type]  # none of them is None
    each = zip(named, counts, strict=True)
    return all(own is None or len(own) == count for own, count in each)


def _numbers(rows: Sequence[Any], buffer: EntityBuffer) -> list[float]:
    """Features of one type, flattened; a filler for each entity without features."""
    kinds = set(map(type, rows))
    if np.ndarray in kinds:
        arrays = [each for each in rows if len(each)]
        if not arrays:
            return []
        joined = np.concatenate(arrays)
        _require(joined.ndim == 2 and joined.shape[1] == buffer.width)
        _require(joined.dtype.kind in "fiub")
        return joined.ravel().tolist() if buffer.width else [0.0] * len(joined)
    entities = list(chain.from_iterable(rows))
    _require(set(map(len, entities)) <= {buffer.width})
    return list(chain.from_iterable(entities)) if buffer.width else [0.0] * len(entities)


def _extend(buffer: EntityBuffer, values: list[float], counts: Sequence[int]) -> None:
    end, stride = len(buffer.pending), buffer.stride
    ends = accumulate(counts) if stride == 1 else accumulate([n * stride for n in counts])
    buffer.pending += values
    buffer.ends += [end + more for more in ends] if end else ends
