"""ObsWriter: adds what a game shows, straight from its own objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from entity_env.authoring.action_type import ActionType, SelectEntity
from entity_env.authoring.entity_type import EntityType, Writer
from entity_env.authoring.obs import Group, Obs, Rows, class_of, class_of_globals
from entity_env.authoring.schema import Schema
from entity_env.batching.action_buffers import (
    ActionWriter,
    CategoricalWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batching.entity_buffer import BatchWriter, RowBuffer
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName
from entity_env.core.validation import of_selectors
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


_MAX_DETOUR: Final = 64
"""Observations that are added one by one before it is tried again to add many at once."""

_Actors: TypeAlias = tuple[tuple[ActionType[Any], ...], int, int, int]
"""Entities that act: which actions (none = all), their type, the first one, how many."""


class ObsWriter(BatchWriter):
    """Gathers the `Obs` of games of one schema; what they show is read when it is added.

    Args:
        schema: what the game declared.
        where: names the observation of an index ("env 3"), for errors.
    """

    def __init__(
        self, schema: Schema, where: Callable[[int], str] = "observation {}".format
    ) -> None:
        super().__init__(schema.obs_space(), schema.action_space(), where)
        self.schema = schema
        self._type_buffers = [self.buffers[kind.name] for kind in schema.entities]
        self._writers: dict[type, Writer] = {
            kind.cls: _compiled(kind, self.buffers[kind.name]) for kind in schema.entities
        }
        self._globals = self.buffers.get(GLOBAL_ENTITY)
        self._write_globals = (
            _compiled(schema.globals, self._globals) if schema.globals and self._globals else None
        )
        self._globals_cls = schema.globals.cls if schema.globals else None
        self._shows_globals = schema.globals is not None
        self._selects = {
            name: writer
            for name, writer in self.actions.items()
            if isinstance(writer, SelectEntityWriter)
        }
        self._ask = {
            name: writer.add
            for name, writer in self.actions.items()
            if isinstance(writer, GlobalCategoricalWriter)
        }
        self._categoricals = {
            name: writer
            for name, writer in self.actions.items()
            if isinstance(writer, CategoricalWriter)
        }
        self._ends = [(b.ends.append, b.pending) for b in self.buffers.values()]
        self._columns = ObsColumns(schema, self.buffers, self.actions)

    def add_all(
        self, shown: Sequence[Obs | None], asked: Sequence[tuple[ActionType[Any], ...]]
    ) -> None:
        """Adds several observations, as `add` would one after the other, but faster.

        Args:
            shown: what is read now; None is the row of an agent that is not asked for anything.
            asked: the actions that each asks for.

        Raises:
            SchemaError: as `add`; `num_rows` is then the row of the one that cannot be added.
        """
        first_row = self.num_rows
        done, detour = 0, 0
        while done < len(shown):
            count = self._columns.add(shown, asked, done, first_row, self._metrics)
            done += count
            self.num_rows += count
            # Where observations look different, it takes ever longer until the short way is tried.
            detour = 1 if count else min(2 * detour, _MAX_DETOUR) or 1
            for i in range(done, min(done + detour, len(shown))):
                obs = shown[i]
                if obs is None:
                    self.add_empty()
                else:
                    self.add(obs, asked[i])
            done = min(done + detour, len(shown))

    def add(self, obs: Obs, actions: Sequence[ActionType[Any]]) -> None:
        """Adds one observation that asks for these actions; none for a final one.

        Raises:
            SchemaError: an entity or action that was not declared, or a mask that fits nothing.
        """
        if not actions and obs.is_blank:
            if obs.metrics is not None:
                self.add_metrics(obs.metrics)
            self.add_empty()
            return
        if obs.actor_groups is None and obs.masks is None:
            find = self._writers.get
            for group in obs.groups:
                if group:
                    write = find(group[0].__class__)
                    if write is None or group.__class__ is Rows:
                        self._add_group(group)
                    else:
                        write(group)
            for action in actions:
                ask = self._ask.get(action.name)
                if ask is None:
                    raise self.schema.no_actors(action)
                ask(self.num_rows)
        elif obs.masks is None and len(actions) == 1 and actions[0].name in self._categoricals:
            self._add_with_categorical(obs, self._categoricals[actions[0].name], actions)
        else:
            self._add_with_actors(obs, actions)
        if obs.global_features is not None or self._shows_globals:
            self._add_globals(obs)
        elif self._globals is not None:
            self._globals.pending.append(0.0)  # the filler of the actor of global actions
        if obs.hidden is not None:
            self._add_hidden(obs)
        if obs.metrics is not None:
            self.add_metrics(obs.metrics)
        for append, pending in self._ends:
            append(len(pending))
        self.num_rows += 1

    def _add_group(self, group: Group) -> None:
        if type(group) is Rows:
            self.buffers[self.schema.entity(group.cls).name].append(group.values)
        elif group:
            cls = group[0].__class__
            write = self._writers.get(cls)
            if write is None:
                raise self.schema.undeclared(cls)
            write(group)

    def _add_with_categorical(
        self, obs: Obs, writer: CategoricalWriter, actions: Sequence[ActionType[Any]]
    ) -> None:
        """What most games with actors show: one group of them, asked one thing."""
        [(marked, performs), *others] = obs.actor_groups or ((-1, actions),)
        if others or performs or type(obs.groups[marked]) is Rows:
            self._add_with_actors(obs, actions)
            return
        find = self._writers.get
        for i, group in enumerate(obs.groups):
            if i == marked and group:
                index = self.schema.index_of.get(group[0].__class__)
                if index is None:
                    raise self.schema.undeclared(group[0].__class__)
                first = self._type_buffers[index].num_entities
                writer.add_group(self.num_rows, index, first, len(group))
            write = find(group[0].__class__) if group and type(group) is not Rows else None
            if write is None:
                self._add_group(group)
            else:
                write(group)

    def _add_with_actors(self, obs: Obs, actions: Sequence[ActionType[Any]]) -> None:
        marked = obs.actor_groups or ()
        if obs.masks is not None or len(marked) != 1 or marked[0][1]:
            self.schema.require_declared(obs.actions_named)
        before = [self._num_actees(action) for action in actions] if self._selects else ()
        roles = dict(marked)
        actors: list[_Actors] = []
        for i, group in enumerate(obs.groups):
            if i in roles and group:
                cls = class_of(group)
                index = self.schema.index_of.get(cls) if cls is not None else None
                if cls is not None and index is None:
                    raise self.schema.undeclared(cls)
                first = self._type_buffers[index or 0].num_entities
                actors.append((roles[i], index or 0, first, len(group)))
            self._add_group(group)
        for number, action in enumerate(actions):
            ask = self._ask.get(action.name)
            if ask is not None:
                ask(self.num_rows)
                self._add_global_mask(action, obs)
                continue
            if obs.actor_groups is None:
                raise self.schema.no_actors(action)
            self._add_actors(action, obs, actors, before[number] if before else 0)

    def _add_global_mask(self, action: ActionType[Any], obs: Obs) -> None:
        writer = self.actions[action.name]
        if obs.masks is not None and isinstance(writer, GlobalCategoricalWriter):
            writer.add_mask(obs.masks.get(action), 1)

    def _add_actors(
        self, action: ActionType[Any], obs: Obs, actors: Sequence[_Actors], first_actee: int
    ) -> None:
        writer = self.actions[action.name]
        row = self.num_rows
        mask = None if obs.masks is None else obs.masks.get(action)
        select = self._selects.get(action.name)
        if select is not None and isinstance(action, SelectEntity):
            index = self.schema.index_of[action.actee]
            num_actees = self._type_buffers[index].num_entities - first_actee
            select.add_actees(row, index, first_actee, num_actees)
            if mask is not None or not num_actees:
                self._add_selectors(action, select, mask, actors, num_actees)
                return
        num_actors = 0
        for performs, index, first, count in actors:
            if not performs or action in performs:
                writer.add_group(row, index, first, count)
                num_actors += count
        if mask is not None:
            if not isinstance(writer, CategoricalWriter):
                raise SchemaError(f"{self.schema.game}: {action!r} takes no mask")
            writer.add_mask(mask, num_actors)

    def _add_selectors(
        self,
        action: ActionType[Any],
        writer: SelectEntityWriter,
        mask: object,
        actors: Sequence[_Actors],
        num_actees: int,
    ) -> None:
        """Adds those actors of a select action that have a target."""
        mine = [
            (index, first + i)
            for performs, index, first, count in actors
            if not performs or action in performs
            for i in range(count)
        ]
        has_target, allowed = of_selectors(mask, len(mine), num_actees, action.name)
        asked = [True] * len(mine) if has_target is None else has_target.tolist()
        for (index, entity), is_asked in zip(mine, asked, strict=True):
            if is_asked:
                writer.add_group(self.num_rows, index, entity, 1)
        if allowed is not None:
            writer.add_allowed(self.num_rows, allowed)

    def _num_actees(self, action: ActionType[Any]) -> int:
        """How many entities that an action selects have been written so far."""
        if not isinstance(action, SelectEntity):
            return 0
        return self._type_buffers[self.schema.index_of[action.actee]].num_entities

    def _add_globals(self, obs: Obs) -> None:
        features = obs.global_features
        if features.__class__ is self._globals_cls and self._write_globals is not None:
            self._write_globals((features,))
            return
        self.schema.require_globals(class_of_globals(features))
        buffer = self._globals
        if buffer is None:
            return
        if isinstance(features, Rows):
            buffer.append(features.values)

    def _add_hidden(self, obs: Obs) -> None:
        for cls, visible in obs.hidden or ():
            kind = self.schema.entity(cls)
            self.hide(kind.name, visible, sum(len(g) for g in obs.groups if class_of(g) is cls))


def _compiled(kind: EntityType, buffer: RowBuffer) -> Writer:
    return kind.writer(buffer.pending.extend)
