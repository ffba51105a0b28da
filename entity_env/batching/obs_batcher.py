"""ObsWriter: adds what a game shows, straight from its own objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from entity_env.authoring.action_type import ActionType, SelectEntity
from entity_env.authoring.entity_type import EntityType, Writer
from entity_env.authoring.obs import Group, Obs, Rows, class_of, class_of_globals
from entity_env.authoring.schema import Schema
from entity_env.batching.action_buffers import (
    CategoricalWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batching.entity_buffer import BatchWriter, RowBuffer
from entity_env.batching.obs_columns import ObsColumns
from entity_env.core.spaces import GLOBAL_ENTITY
from entity_env.core.validation import of_selectors
from entity_env.errors import SchemaError

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
