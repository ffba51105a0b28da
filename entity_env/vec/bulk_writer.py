"""BulkWriter: adds the observations of many environments at once, column after column.

Most environments show the same kinds of entities on every step, as lists or arrays, and ask the
same of them. Then a few calls for all of them do what takes a dozen for each. Whatever is
different, or wrong, is left to `ObservationWriter.add`, which knows the words for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import numpy as np

from entity_env.action_writer import (
    CategoricalWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batch_writer import RowBuffer
from entity_env.observation import (
    ActionMask,
    CategoricalActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.observation_writer import ObservationWriter
from entity_env.question import GLOBAL_ACTORS, Asked
from entity_env.spaces import GLOBAL_ENTITY, ActionName, EntityName

_FEATURES: Final = attrgetter("features")
_GLOBALS: Final = attrgetter("global_features")
_IDS: Final = attrgetter("ids")
_ACTIONS: Final = attrgetter("actions")
_VISIBLE: Final = attrgetter("visible")
_METRICS: Final = attrgetter("metrics")
_MASK: Final = attrgetter("mask")


class _NotAlikeError(Exception):
    """Some observation needs to be looked at on its own."""


@dataclass(slots=True)
class _Column:
    """The entities of one type: how many in each observation, the first one's number, ids if any.

    `values` are their features, one after another.
    """

    name: EntityName
    kind: int
    counts: list[int]
    numbers: list[int]
    named: list[Sequence[EntityID] | None]
    values: list[float]


@dataclass(slots=True)
class _Group:
    """Who acts, or can be selected: groups as `ActionWriter.add_groups` takes them, and ids."""

    flat: list[int]
    ids: list[Sequence[EntityID]]


class BulkWriter(ObservationWriter):
    """Gathers `Observation`s, those that are alike faster; args as for `ObservationWriter`."""

    def add_alike(self, observations: Sequence[Observation]) -> bool:
        """Adds observations with their actors, if all of them are plain; else it adds none.

        Plain is what shows lists or arrays of known entities, hides none, and asks for every
        action, of the same types and without masks.
        """
        if len(observations) < 2:
            return False
        try:
            columns = self._columns(observations)
            shared = self._shared(observations)
            asked = self._asked(observations, columns)
        except (_NotAlikeError, TypeError, ValueError, AttributeError):
            return False
        self._commit(observations, columns, shared, asked)
        return True

    def _columns(self, observations: Sequence[Observation]) -> dict[EntityName, _Column]:
        features = list(map(_FEATURES, observations))
        known = self._types.keys()
        _require(not any(map(_VISIBLE, observations)))
        _require(all(shown.keys() <= known for shown in features))
        ids = list(map(_IDS, observations))
        columns: dict[EntityName, _Column] = {}
        for name, buffer in self._types.items():
            rows = [shown.get(name, ()) for shown in features]
            counts = list(map(len, rows))
            first = buffer.num_entities
            numbers = list(accumulate(counts, initial=first))
            values = _numbers(rows, buffer)
            _require(len(values) == (numbers[-1] - first) * buffer.stride)
            named = [each.get(name) for each in ids]
            _require(
                all(
                    own is None or len(own) == count
                    for own, count in zip(named, counts, strict=True)
                )
            )
            columns[name] = _Column(name, self._kinds[name], counts, numbers, named, values)
        return columns

    def _shared(self, observations: Sequence[Observation]) -> list[float]:
        """The global features of all observations, one after another."""
        width = len(self.obs_space.global_features)
        given = list(map(_GLOBALS, observations))
        _require(set(map(len, given)) == {width})
        return list(chain.from_iterable(given)) if width else [0.0] * len(observations)

    def _asked(
        self, observations: Sequence[Observation], columns: dict[EntityName, _Column]
    ) -> dict[ActionName, tuple[_Group, _Group]]:
        actions = list(map(_ACTIONS, observations))
        _require(set(map(len, actions)) == {len(self.actions)})
        asked: dict[ActionName, tuple[_Group, _Group]] = {}
        for name, writer in self.actions.items():
            masks: list[Any] = [each.get(name) for each in actions]
            kinds = set(map(type, masks))
            _require(len(kinds) == 1 and not any(mask is not None for mask in map(_MASK, masks)))
            kind, nobody = kinds.pop(), _Group([], [()] * len(masks))
            if isinstance(writer, GlobalCategoricalWriter):
                _require(kind is GlobalCategoricalActionMask)
                asked[name] = _Group([], [GLOBAL_ACTORS] * len(masks)), nobody
            elif isinstance(writer, CategoricalWriter):
                _require(kind is CategoricalActionMask)
                asked[name] = self._group(masks, "actor", columns), nobody
            else:
                _require(isinstance(writer, SelectEntityWriter) and kind is SelectEntityActionMask)
                actees = self._group(masks, "actee", columns)
                _require(all(map(len, actees.ids)))
                asked[name] = self._group(masks, "actor", columns), actees
        return asked

    def _group(
        self, masks: Sequence[ActionMask], role: str, columns: dict[EntityName, _Column]
    ) -> _Group:
        """The entities of the types that all masks name, if they name the same."""
        _require(not any(ids is not None for ids in map(attrgetter(f"{role}_ids"), masks)))
        types = list(map(attrgetter(f"{role}_types"), masks))
        wanted = types[0]
        _require(all(each is wanted or each == wanted for each in types))
        chosen = [columns[name] for name in (columns if wanted is None else wanted)]
        rows = range(self.num_rows, self.num_rows + len(masks))
        if len(chosen) == 1:
            (column,) = chosen
            flat = _groups(column, rows)
            return _Group(flat, self._ids(column))
        each = [zip(rows, c.numbers, c.counts, strict=False) for c in chosen]
        flat = [
            number
            for groups in zip(*each, strict=True)
            for column, (row, first, count) in zip(chosen, groups, strict=True)
            if count
            for number in (row, column.kind, first, count)
        ]
        parts = zip(*map(self._ids, chosen), strict=True)
        return _Group(flat, [list(chain.from_iterable(part)) for part in parts])

    def _ids(self, column: _Column) -> list[Sequence[EntityID]]:
        """The ids of all its entities, observation after observation."""
        return [
            self._known_by_position(column.name, count) if own is None else list(own)
            for own, count in zip(column.named, column.counts, strict=True)
        ]

    def _commit(
        self,
        observations: Sequence[Observation],
        columns: dict[EntityName, _Column],
        shared: list[float],
        asked: dict[ActionName, tuple[_Group, _Group]],
    ) -> None:
        for name, column in columns.items():
            _extend(self.buffers[name], column.values, column.counts)
        if GLOBAL_ENTITY in self.buffers:
            _extend(self.buffers[GLOBAL_ENTITY], shared, [1] * len(observations))
        rows = range(self.num_rows, self.num_rows + len(observations))
        for name, (actors, actees) in asked.items():
            writer = self.actions[name]
            if isinstance(writer, GlobalCategoricalWriter):
                writer.add_all(rows)
            else:
                writer.add_groups(actors.flat)
            if isinstance(writer, SelectEntityWriter):
                for i in range(0, len(actees.flat), 4):
                    writer.add_actees(*actees.flat[i : i + 4])
            questions: Iterable[Asked] = zip(rows, actors.ids, actees.ids, strict=True)
            self.asked[name].extend(questions)
        for metrics in filter(None, map(_METRICS, observations)):
            self.add_metrics(metrics)
        self.num_rows += len(observations)


def _require(is_alike: bool) -> None:
    if not is_alike:
        raise _NotAlikeError


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


def _groups(column: _Column, rows: Iterable[int]) -> list[int]:
    kind = column.kind
    return [
        number
        for row, first, count in zip(rows, column.numbers, column.counts, strict=False)
        if count
        for number in (row, kind, first, count)
    ]


def _extend(buffer: RowBuffer, values: list[float], counts: Sequence[int]) -> None:
    """Adds the entities of several observations, so many each."""
    end, stride = len(buffer.pending), buffer.stride
    buffer.pending += values
    buffer.ends.extend(end := end + count * stride for count in counts)
