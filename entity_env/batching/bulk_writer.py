"""BulkWriter: adds the observations of many environments at once, column after column.

Most environments show the same kinds of entities on every step, as lists or arrays, and ask the
same of them. Then a few calls for all of them do what takes a dozen for each. Whatever is
different, or wrong, is left to `ObservationWriter.add`, which knows the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from operator import attrgetter
from typing import Any, Final

import numpy as np

from entity_env.batching.action_buffers import (
    CategoricalWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batching.adapter import OURS, Dialect
from entity_env.batching.entity_buffer import RowBuffer
from entity_env.batching.observation_batcher import ObservationWriter
from entity_env.core.action_request import GLOBAL_ACTORS
from entity_env.core.observation import (
    CategoricalActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    SelectEntityActionMask,
)
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, EntityName, ObsSpace

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
    """Some observation needs to be looked at on its own."""


@dataclass(slots=True)
class _Column:
    """The entities of one type.

    Args:
        buffer: where they belong.
        kind: index of the type.
        counts: how many there are in each observation.
        ids: those of each observation, if it gives any; None = no observation does.
        values: their features, one after another.
    """

    buffer: RowBuffer
    kind: int
    counts: list[int]
    ids: Sequence[Sequence[EntityID] | None] | None
    values: list[float]


@dataclass(slots=True)
class _Group:
    """Who acts, or can be selected: types, how many they are, and ids for each observation."""

    kinds: Sequence[int]
    count: int
    ids: Iterable[Sequence[EntityID]]


_NOBODY: Final = _Group((), 0, repeat(()))
_GLOBAL: Final = _Group((), 0, repeat(GLOBAL_ACTORS))


class BulkWriter(ObservationWriter):
    """Gathers observations, those that are alike faster.

    Args:
        obs_space, action_space, where: as for `ObservationWriter`.
        dialect: of the observations that `add_alike` is given.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        where: Callable[[int], str] = "observation {}".format,
        dialect: Dialect = OURS,
    ) -> None:
        super().__init__(obs_space, action_space, where)
        self._dialect = dialect

    def add_alike(self, observations: Sequence[Any], *, ask: bool = True) -> bool:
        """Adds observations with their actors, if all of them are plain; else it adds none.

        Plain is what shows lists or arrays of known entities, hides none, and asks for every
        action, of the same types and without masks.

        Args:
            observations: in the dialect.
            ask: as for `add`; who is asked for nothing must show something.
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
        """The global features of all observations, one after another."""
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
        for name, writer in self.actions.items():
            masks: list[Any] = [each.get(name) for each in actions]
            kinds = set(map(type, masks))
            _require(len(kinds) == 1 and set(map(_MASK, masks)) == {None})
            kind = self._dialect.masks.get(kinds.pop())
            if isinstance(writer, GlobalCategoricalWriter):
                _require(kind is GlobalCategoricalActionMask)
                asked[name] = _GLOBAL, _NOBODY
            elif isinstance(writer, CategoricalWriter):
                _require(kind is CategoricalActionMask)
                asked[name] = self._group(masks, _ACTORS, ids, columns), _NOBODY
            else:
                _require(isinstance(writer, SelectEntityWriter) and kind is SelectEntityActionMask)
                actees = self._group(masks, _ACTEES, ids, columns)
                _require(all(map(len, actees.ids)))
                asked[name] = self._group(masks, _ACTORS, ids, columns), actees
        return asked

    def _unasked(self, observations: Sequence[Any]) -> dict[ActionName, tuple[_Group, _Group]]:
        """Nobody is asked; masks must be of a known kind all the same, as when translated."""
        if self._dialect is not OURS:
            masks = chain.from_iterable(each.values() for each in map(_ACTIONS, observations))
            _require(set(map(type, masks)) <= self._dialect.masks.keys())
        return {}

    def _group(
        self,
        masks: Sequence[Any],
        role: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        ids: Sequence[Mapping[EntityName, Sequence[EntityID]]],
        columns: dict[EntityName, _Column],
    ) -> _Group:
        """The entities of the types that all masks name, if they name the same."""
        named, types = (list(map(get, masks)) for get in role)
        wanted = types[0]
        _require(types.count(wanted) == len(types))
        if named.count(None) < len(named):
            only = self._dialect.type_named(named, ids)
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
        """The ids of all its entities, observation after observation."""
        if column.ids is not None and _NONE not in set(map(type, column.ids)):
            return list(map(list, column.ids))  # type: ignore[arg-type]  # none of them is None
        nameless = self._known_by_position(column.buffer.name, max(column.counts))
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
            writer = self.actions[name]
            if isinstance(writer, GlobalCategoricalWriter):
                writer.add_all(rows)
            else:
                writer.add_types(rows, actors.kinds, actors.count)
            if isinstance(writer, SelectEntityWriter):
                writer.add_actee_types(rows, actees.kinds, actees.count)
            self.asked[name].extend(zip(rows, actors.ids, actees.ids, strict=False))
        metrics = list(map(_METRICS, observations))
        if any(metrics):
            self._metrics += [pair for pair in zip(rows, metrics, strict=True) if pair[1]]
        self.num_rows += len(observations)


def _require(is_alike: bool) -> None:
    if not is_alike:
        raise _NotAlikeError


def _fit(named: Sequence[Sequence[EntityID] | None], counts: Sequence[int]) -> bool:
    """There is one id an entity, wherever there are any."""
    if _NONE not in set(map(type, named)):
        return list(map(len, named)) == counts  # type: ignore[arg-type]  # none of them is None
    each = zip(named, counts, strict=True)
    return all(own is None or len(own) == count for own, count in each)


def _numbers(rows: Sequence[Any], buffer: RowBuffer) -> list[float]:
    """All features of one type, one after another; a filler for each entity without features."""
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


def _extend(buffer: RowBuffer, values: list[float], counts: Sequence[int]) -> None:
    """Adds the entities of several observations, so many each."""
    end, stride = len(buffer.pending), buffer.stride
    ends = accumulate(counts) if stride == 1 else accumulate([n * stride for n in counts])
    buffer.pending += values
    buffer.ends += [end + more for more in ends] if end else ends
