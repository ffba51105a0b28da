"""ObsWriter: adds what a game shows, straight from its own objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from entity_env.action_type import ActionType, SelectEntity
from entity_env.action_writer import (
    ActionWriter,
    CategoricalWriter,
    ContinuousWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batch_writer import BatchWriter, RowBuffer
from entity_env.entity_type import EntityType, Writer
from entity_env.errors import SchemaError
from entity_env.obs import Group, Obs, Rows, class_of, class_of_globals
from entity_env.schema import Schema
from entity_env.spaces import GLOBAL_ENTITY


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
        self._ends = [(b.ends.append, b.pending) for b in self.buffers.values()]

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
            writers = self._writers
            for group in obs.groups:
                if group:
                    if group.__class__ is Rows or group[0].__class__ not in writers:
                        self._add_group(group)
                    else:
                        writers[group[0].__class__](group)
            for action in actions:
                self._ask_whole_observation(action)
        else:
            self._add_with_actors(obs, actions)
        if self._globals is not None or obs.global_features is not None:
            self._add_globals(obs)
        if obs.hidden is not None:
            self._add_hidden(obs)
        if obs.metrics is not None:
            self.add_metrics(obs.metrics)
        for append, pending in self._ends:
            append(len(pending))
        self.num_rows += 1

    def _add_group(self, group: Group) -> None:
        if isinstance(group, Rows):
            self.buffers[self.schema.entity(group.cls).name].append(group.values)
            return
        cls = class_of(group)
        if cls is not None:
            self.schema.entity(cls)
            self._writers[cls](group)

    def _ask_whole_observation(self, action: ActionType[Any]) -> None:
        writer = self.actions[action.name]
        if not isinstance(writer, GlobalCategoricalWriter):
            raise self.schema.no_actors(action)
        writer.add(self.num_rows)

    def _add_with_actors(self, obs: Obs, actions: Sequence[ActionType[Any]]) -> None:
        self.schema.require_declared(obs.actions_named)
        before = [buffer.num_entities for buffer in self._type_buffers]
        actors: list[tuple[tuple[ActionType[Any], ...], int, int, int]] = []
        roles = dict(obs.actor_groups or ())
        for i, group in enumerate(obs.groups):
            cls = class_of(group)
            if cls is None:
                continue
            index = self.schema.index_of.get(cls)
            if index is None:
                raise self.schema.undeclared(cls)
            first = self._type_buffers[index].num_entities
            self._add_group(group)
            if i in roles:
                actors.append((roles[i], index, first, len(group)))
        for action in actions:
            writer = self.actions[action.name]
            if isinstance(writer, GlobalCategoricalWriter):
                writer.add(self.num_rows)
                writer.add_mask((obs.masks or {}).get(action), 1)
            elif obs.actor_groups is None:
                self._ask_whole_observation(action)
            else:
                self._add_actors(action, writer, obs, actors, before)

    def _add_actors(
        self,
        action: ActionType[Any],
        writer: ActionWriter,
        obs: Obs,
        actors: Sequence[tuple[tuple[ActionType[Any], ...], int, int, int]],
        before: Sequence[int],
    ) -> None:
        num_actors = 0
        for performs, index, first, count in actors:
            if not performs or action in performs:
                writer.add_group(self.num_rows, index, first, count)
                num_actors += count
        mask = (obs.masks or {}).get(action)
        if isinstance(writer, CategoricalWriter):
            writer.add_mask(mask, num_actors)
        elif isinstance(writer, SelectEntityWriter) and isinstance(action, SelectEntity):
            index = self.schema.index_of[action.actee]
            count = self._type_buffers[index].num_entities - before[index]
            writer.add_actees(self.num_rows, index, before[index], count)
            writer.add_mask(self.num_rows, mask, num_actors, count)
        elif mask is not None and isinstance(writer, ContinuousWriter):
            raise SchemaError(f"{self.schema.game}: {action!r} takes no mask")

    def _add_globals(self, obs: Obs) -> None:
        features = obs.global_features
        self.schema.require_globals(class_of_globals(features))
        buffer = self._globals
        if buffer is None:
            return
        if self._write_globals is None:
            buffer.pending.append(0.0)
        elif isinstance(features, Rows):
            buffer.append(features.values)
        else:
            self._write_globals((features,))

    def _add_hidden(self, obs: Obs) -> None:
        for cls, visible in obs.hidden or ():
            kind = self.schema.entity(cls)
            self.hide(kind.name, visible, sum(len(g) for g in obs.groups if class_of(g) is cls))


def _compiled(kind: EntityType, buffer: RowBuffer) -> Writer:
    return kind.writer(buffer.pending.extend)
