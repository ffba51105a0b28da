"""ObsColumns: reads many observations at once, type by type.

Most observations of a batch look alike: entities in lists, one group of them acting or a global
question, no masks. Those are gathered first, which is a few calls of C each, and then read by one
loop a type. Whatever looks different takes the long way, `ObsWriter.add`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.entity_type import EntityType, Writer
from entity_env.authoring.obs import Obs, Rows
from entity_env.authoring.schema import Schema
from entity_env.batching.action_buffers import (
    ActionWriter,
    CategoricalWriter,
    GlobalCategoricalWriter,
)
from entity_env.batching.entity_buffer import RowBuffer
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName
from entity_env.errors import SchemaError

_NOBODY: Final = -1


class ObsColumns:
    """Gathers the observations of one schema for the buffers and actions of a writer."""

    def __init__(
        self,
        schema: Schema,
        buffers: Mapping[EntityName, RowBuffer],
        actions: Mapping[ActionName, ActionWriter],
    ) -> None:
        self._columns = [_Column(kind, buffers[kind.name]) for kind in schema.entities]
        self._find = {
            column.cls: (column.entities.extend, column.entities, index)
            for index, column in enumerate(self._columns)
        }.get
        self._globals_cls: type = type(None)
        if schema.globals is not None:
            self._globals_cls = schema.globals.cls
        self._globals: _Column | None = None
        if GLOBAL_ENTITY in buffers:
            self._globals = _Column(schema.globals, buffers[GLOBAL_ENTITY])
        self._all = [*self._columns, *([self._globals] if self._globals else [])]
        self._actions = actions
        self._metrics: list[tuple[int, Mapping[str, float]]] = []
        self._actors: list[int] = []
        """Row, type, first and count of each group of actors, one after another."""
        self._asking: list[int] = []
        """Rows that are asked for anything."""
        self._is_empty = True
        """Nothing is left of an `add` that was cut off, by an interrupt say."""

    def add(
        self,
        shown: Sequence[Obs | None],
        asked: Sequence[tuple[ActionType[Any], ...]],
        first: int,
        first_row: int,
        metrics: list[tuple[int, Mapping[str, float]]],
    ) -> int:
        """Adds those that look alike, from one on.

        Args:
            shown: the observations; None is a row without anything.
            asked: the actions that each asks for.
            first: the one to begin with.
            first_row: row of the batch of `shown[0]`.
            metrics: the named numbers are added to these, with their rows.

        Returns:
            How many were added. Fewer than there are when one looks different, or when they cannot
            be read: the long way says what is wrong.
        """
        if not self._is_empty:
            self._clear()
        kinds = next((asked[i] for i in range(first, len(shown)) if shown[i] is not None), ())
        writers = [self._actions[kind.name] for kind in kinds]
        acts = len(writers) == 1 and isinstance(writers[0], CategoricalWriter)
        if not acts and not all(isinstance(one, GlobalCategoricalWriter) for one in writers):
            return 0
        self._is_empty = False
        count = self._gather(shown, asked, first, first_row, kinds, acts)
        if count and not self._read():
            count = 0
        if count:
            metrics += self._metrics
            for writer in writers:
                if isinstance(writer, GlobalCategoricalWriter):
                    writer.add_all(self._asking)
                else:
                    writer.add_groups(self._actors)
        self._clear()
        return count

    def _gather(
        self,
        shown: Sequence[Obs | None],
        asked: Sequence[tuple[ActionType[Any], ...]],
        first: int,
        first_row: int,
        kinds: tuple[ActionType[Any], ...],
        acts: bool,
    ) -> int:
        """Gathers observations until one looks different, and says how many.

        A loop without calls: it runs for every observation of every step.
        """
        find, globals_cls = self._find, self._globals_cls
        add_globals = self._globals.entities.append if self._globals else None
        ends = [(column.ends.append, column.entities) for column in self._all]
        before = [column.buffer.num_entities for column in self._columns]
        add_actors, ask = self._actors.extend, self._asking.append
        acting = _NOBODY
        for i in range(first, len(shown)):
            obs = shown[i]
            if obs is not None:
                marked = obs.actor_groups
                if acts and marked is not None and len(marked) == 1 and not marked[0][1]:
                    acting = marked[0][0]
                elif acts or marked is not None:
                    return self._cut(i - first)
                features = obs.global_features
                if (
                    asked[i] != kinds
                    or obs.masks is not None
                    or obs.hidden is not None
                    or features.__class__ is not globals_cls
                ):
                    return self._cut(i - first)
                for number, group in enumerate(obs.groups):
                    if group:
                        found = find(group[0].__class__)
                        if found is None or group.__class__ is Rows:
                            return self._cut(i - first, first_row + i)
                        extend, entities, index = found
                        if number == acting:
                            start = before[index] + len(entities)
                            add_actors((first_row + i, index, start, len(group)))
                        extend(group)
                if add_globals is not None:
                    add_globals(features)
                ask(first_row + i)
                if obs.metrics is not None:
                    self._metrics.append((first_row + i, obs.metrics))
            for append, entities in ends:
                append(len(entities))
        return len(shown) - first

    def _cut(self, count: int, row: int = _NOBODY) -> int:
        """Takes back what was gathered of an observation that looks different."""
        if self._actors and self._actors[-4] == row:
            del self._actors[-4:]
        for column in self._all:
            del column.entities[column.ends[-1] if count else 0 :]
        return count

    def _read(self) -> bool:
        """Reads all that was gathered; false if that fails, and then nothing has changed."""
        before = [(len(column.buffer.pending), len(column.buffer.ends)) for column in self._all]
        try:
            for column in self._all:
                column.read()
        except SchemaError:
            for column, (num_pending, num_ends) in zip(self._all, before, strict=True):
                del column.buffer.pending[num_pending:]
                del column.buffer.ends[num_ends:]
            return False
        return True

    def _clear(self) -> None:
        """Drops all that was gathered."""
        for column in self._all:
            column.entities.clear()
            column.ends.clear()
        for gathered in (self._metrics, self._actors, self._asking):
            gathered.clear()
        self._is_empty = True


class _Column:
    """Entities of one type, of several observations, that have not been read yet."""

    def __init__(self, kind: EntityType | None, buffer: RowBuffer) -> None:
        self.cls = None if kind is None else kind.cls
        self.buffer = buffer
        self.entities: list[object] = []
        self.ends: list[int] = []
        """For each observation the length of `entities` when it was complete."""
        self._write: Writer = self._fill if kind is None else kind.writer(buffer.pending.extend)

    def read(self) -> None:
        """Hands the features of all to the buffer.

        Raises:
            SchemaError: one of them cannot be read.
        """
        buffer = self.buffer
        first = len(buffer.pending)
        self._write(self.entities)
        if buffer.stride == 1 and not first:
            buffer.ends += self.ends
        else:
            stride = buffer.stride
            buffer.ends += [first + stride * end for end in self.ends]

    def _fill(self, entities: Sequence[object]) -> None:
        """The actor of a global action has no features, but one number all the same."""
        self.buffer.pending.extend([0.0] * len(entities))
