"""`ObsBatcher`: reads `Obs` objects of many games straight into arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, TypeAlias

from entity_env.authoring.action_type import ActionType, GlobalActor, SelectEntity
from entity_env.authoring.entity_type import EntityType, Places, Writer
from entity_env.authoring.obs import (
    Obs,
    Rows,
    class_of_globals,
    has_targets,
    mask_error,
    masks_of,
)
from entity_env.authoring.relations.relations import (
    Relations,
    mask_of,
    num_of_class,
    places_of,
    relation_rows,
)
from entity_env.authoring.schema import Schema
from entity_env.authoring.speedups import gather, set_obs_class
from entity_env.batching.action_buffers import (
    CategoricalBuffer,
    GlobalCategoricalBuffer,
    SelectEntityBuffer,
)
from entity_env.batching.entity_buffer import Batcher, EntityBuffer
from entity_env.core.observation import BoolMask
from entity_env.core.spaces import GLOBAL_ENTITY
from entity_env.errors import SchemaError
from entity_env.lazy_imports import np

set_obs_class(Obs)

_NOBODY: Final = -1
_MAX_SINGLE: Final = 64
"""Maximum number of observations added one by one before the bulk path is tried again."""

_Actors: TypeAlias = tuple[tuple[ActionType[Any], ...], int, int, int]
"""Entities that act: their actions (empty = all), index of their type, first entity, count."""
_Buffers: TypeAlias = list[GlobalCategoricalBuffer | CategoricalBuffer]
_NO_ROLES: Final[Mapping[int, tuple[ActionType[Any], ...]]] = {}


class _Column:
    def __init__(self, kind: EntityType | None, buffer: EntityBuffer, index: int) -> None:
        self.kind = kind
        self.buffer = buffer
        self.index = index
        self.is_relation = kind is not None and kind.references is not None
        self.entities: list[object] = []
        """Entities that have not been read yet."""
        self.ends: list[int] = []
        """For each observation, the length of `entities` after it."""
        self.reader = None if kind is None or gather is None else kind.reader
        # Without global features, the actor of global actions gets a filler number.
        self.write: Writer = self._fill if kind is None else kind.writer(buffer.pending)

    def compiled(self) -> tuple[type | None, object, list[Any], list[int], int, int]:
        """The column as passed to `_speedups.gather`.

        Class, reader, output list, output ends, number of earlier entities, and numbers per entity.
        """
        buffer, cls = self.buffer, None if self.kind is None else self.kind.cls
        if self.reader is None:
            return cls, None, self.entities, self.ends, buffer.num_entities, 1
        return cls, self.reader, buffer.pending, buffer.ends, buffer.num_packed, buffer.stride

    def read(self) -> None:
        """Reads `entities` into the buffer; SchemaError if one is unreadable."""
        buffer = self.buffer
        first, stride = len(buffer.pending), buffer.stride
        self.write(self.entities)
        if stride == 1 and not first:
            buffer.ends += self.ends
        else:
            buffer.ends += [first + stride * end for end in self.ends]

    def _fill(self, entities: Sequence[object]) -> None:
        self.buffer.pending.extend([0.0] * len(entities))


class ObsBatcher(Batcher):
    """Collects `Obs` objects of games with one schema; entities are read when added."""

    def __init__(
        self,
        schema: Schema,
        where: Callable[[int], str] = "observation {}".format,
        *,
        is_final: bool = False,
    ) -> None:
        super().__init__(schema.obs_space(), schema.action_space(), where, is_final=is_final)
        self.schema = schema
        buffers = self.buffers
        columns = [_Column(kind, buffers[kind.name], i) for i, kind in enumerate(schema.entities)]
        self._columns = {
            kind.cls: column for kind, column in zip(schema.entities, columns, strict=True)
        }
        """Of entities and relations, by class."""
        self._of_entities = {
            cls: column for cls, column in self._columns.items() if not column.is_relation
        }
        self._actor = self._columns.get(GlobalActor)
        self._globals_cls: type = schema.globals.cls if schema.globals else type(None)
        self._globals: _Column | None = None
        if GLOBAL_ENTITY in buffers:
            self._globals = _Column(schema.globals, buffers[GLOBAL_ENTITY], len(columns))
            columns.append(self._globals)
        self._write_globals = self._globals_writer()
        self._all_columns = columns
        self._ask = {
            name: buffer.add
            for name, buffer in self.actions.items()
            if isinstance(buffer, GlobalCategoricalBuffer)
        }
        # Gathered by the bulk path, not yet added.
        self._asking: list[int] = []
        self._acting: list[int] = []
        """Row, type, first and count of each group of actors, flattened."""
        self._named: list[tuple[int, Mapping[str, float]]] = []
        self._gathered: list[list[Any]] = [self._named, self._acting, self._asking]
        self._gathered += [each for c in columns for each in (c.entities, c.ends)]
        self._form: tuple[tuple[ActionType[Any], ...], _Buffers | None, bool] = (), [], False
        """The last requested actions, and `_form_of` for them."""
        self._empty = [(0, 0)] * len(columns), tuple(column.compiled() for column in columns)
        """Lengths of the buffers, and columns, for an empty batch."""
        self._is_clean = True
        """False while the bulk path runs: an interrupt may leave gathered data behind."""

    def add_all(
        self, shown: Sequence[Obs | None], asked: Sequence[tuple[ActionType[Any], ...]]
    ) -> None:
        """Adds several observations like `add`, but faster where the C module can gather them.

        None adds an empty row.
        """
        done, num_single = 0, 0
        while done < len(shown):
            count = self._add_alike(shown, asked, done)
            done += count
            # Back off from the bulk path when observations differ.
            num_single = 1 if count else min(2 * num_single, _MAX_SINGLE) or 1
            for i in range(done, min(done + num_single, len(shown))):
                obs = shown[i]
                if obs is None:
                    self.end_row()
                else:
                    self.add(obs, asked[i])
            done = min(done + num_single, len(shown))

    def add(self, obs: Obs, actions: Sequence[ActionType[Any]]) -> None:
        """Adds an observation and its actions; if it is truncated, those it would request next."""
        if not actions and obs.is_blank:
            self._add_blank(obs)
            return
        roles = dict(obs.actor_groups) if obs.actor_groups else _NO_ROLES
        if obs.masks is not None or (roles and any(roles.values())):
            self.schema.require_declared(obs.actions_named)
        actors: list[_Actors] = []
        find = self._of_entities.get
        number, has_relations = _NOBODY, False
        group: Any
        for group in obs.groups:
            number += 1
            made = group.__class__
            if made is list or made is tuple:
                if not group:
                    continue
                cls = group[0].__class__
            elif made is Rows:
                cls = group.cls
            else:
                has_relations = True
                continue
            column = find(cls)
            if column is None:
                raise self._not_an_entity(cls)
            if roles and number in roles and group:
                actors.append((roles[number], column.index, column.buffer.num_entities, len(group)))
            if made is Rows:
                column.buffer.append(group.values)
            else:
                column.write(group)
        if has_relations:
            self._add_relations(obs)
        self._add_actions(actions, obs, actors)
        features = obs.global_features
        if features.__class__ is not self._globals_cls:
            self._add_frozen_globals(features)
        elif self._write_globals is not None:
            self._write_globals(features)
        if obs.hidden is not None:
            self._add_hidden(obs, obs.hidden)
        if obs.metrics is not None:
            self.add_metrics(obs.metrics)
        for append, pending in self._row_ends:
            append(len(pending))
        self.num_rows += 1

    def _add_blank(self, obs: Obs) -> None:
        if obs.metrics is not None:
            self.add_metrics(obs.metrics)
        self.end_row()

    def _add_hidden(self, obs: Obs, hidden: Sequence[tuple[type, BoolMask]]) -> None:
        for cls, visible in hidden:
            self.hide(self.schema.entity(cls).name, visible, num_of_class(cls, obs))

    def _not_an_entity(self, cls: type) -> SchemaError:
        """Error for a class that is shown as an entity, but is not declared as one."""
        try:
            self.schema.require_role(self.schema.entity(cls), is_relation=False)
        except SchemaError as error:
            return error
        return self.schema.undeclared(cls)

    def _add_relations(self, obs: Obs) -> None:
        """Adds the relations of an observation, after all of its entities."""
        places: dict[type, Places] = {}
        for group in obs.groups:
            if type(group) is not Relations or group.cls is None:
                continue
            kind = self.schema.entity(group.cls)
            self.schema.require_role(kind, is_relation=True)
            buffer = self._columns[kind.cls].buffer
            if group.values is not None:
                rows = relation_rows(kind, group, obs)
                group.sources = rows[:, 0].astype(np.int64)
                buffer.append(rows)
                continue
            for cls in kind.references or ():
                if cls not in places:
                    places[cls] = places_of(cls, obs)
            first, pending = len(buffer.pending), buffer.pending
            kind.writer(pending, *(places[cls] for cls in kind.references or ()))(group.entities)
            group.sources = np.array(pending[first :: buffer.stride], dtype=np.int64)

    def _globals_writer(self) -> Callable[[object], None] | None:
        if self._globals is None:
            return None
        write, pending = self._globals.write, self._globals.buffer.pending
        if self.schema.globals is None:
            return lambda _: pending.append(0.0)
        return lambda features: write((features,))

    def _add_frozen_globals(self, features: object) -> None:
        self.schema.require_globals(class_of_globals(features))
        if self._globals is not None and isinstance(features, Rows):
            self._globals.buffer.append(features.values)

    def _add_global_mask(
        self, action: ActionType[Any], masks: Mapping[ActionType[Any], BoolMask]
    ) -> None:
        buffer = self.actions[action.name]
        if isinstance(buffer, GlobalCategoricalBuffer):
            buffer.add_mask(masks.get(action), 1)

    def _add_actions(
        self, actions: Sequence[ActionType[Any]], obs: Obs, actors: Sequence[_Actors]
    ) -> None:
        own: list[_Actors] = []
        if self._actor is not None and any(action.has_own_actor for action in actions):
            own.append(((), self._actor.index, self._actor.buffer.num_entities, 1))
            self._actor.write((GlobalActor(),))
        for action in actions:
            ask = self._ask.get(action.name)
            if ask is not None:
                ask(self.num_rows)
                if obs.masks is not None:
                    self._add_global_mask(action, obs.masks)
            elif obs.actor_groups is None and not action.has_own_actor:
                raise self.schema.no_actors(action)
            else:
                try:
                    self._add_actors(action, obs, own if action.has_own_actor else actors)
                except SchemaError as error:
                    raise mask_error(error, action, obs) from None

    def _add_actors(self, action: ActionType[Any], obs: Obs, actors: Sequence[_Actors]) -> None:
        buffer = self.actions[action.name]
        row, num_actees = self.num_rows, 0
        mask = None if obs.masks is None else obs.masks.get(action)
        if action.has_own_actor:
            mask = mask_of(action, obs)
        if isinstance(buffer, SelectEntityBuffer) and isinstance(action, SelectEntity):
            column = self._columns[action.actee]
            num_actees = num_of_class(action.actee, obs)
            first_actee = column.buffer.num_entities - num_actees
            buffer.add_actees(row, column.index, first_actee, num_actees)
            if column.is_relation:
                mask = mask_of(action, obs)
        asked = None
        if action.whole is not None or (
            isinstance(buffer, SelectEntityBuffer) and (mask is not None or not num_actees)
        ):
            asked = has_targets(action, obs)
        num_actors = 0
        for performs, index, first, count in actors:
            if performs and action not in performs:
                continue
            if asked is None:
                buffer.add_group(row, index, first, count)
                num_actors += count
                continue
            for i in compress(range(count), asked[num_actors : num_actors + count]):
                buffer.add_group(row, index, first + i, 1)
            num_actors += count
        if mask is None:
            return
        if asked is not None:
            mask, num_actors = masks_of(action, mask, asked, obs), sum(asked)
        if isinstance(buffer, SelectEntityBuffer):
            buffer.add_mask(row, mask, num_actors, num_actees)
        elif isinstance(buffer, CategoricalBuffer):
            buffer.add_mask(mask, num_actors)
        else:
            raise SchemaError(f"{self.schema.game}: {action!r} takes no mask")

    # --------------------------------------------------------------------------------- bulk path

    def _add_alike(
        self,
        shown: Sequence[Obs | None],
        asked: Sequence[tuple[ActionType[Any], ...]],
        first: int,
    ) -> int:
        """Adds observations of equal form from `shown[first]` on; returns how many it added."""
        if not self._is_clean:
            self._drop_gathered()
        kinds = next((asked[i] for i in range(first, len(shown)) if shown[i] is not None), ())
        if kinds != self._form[0]:
            self._form = kinds, *self._form_of(kinds)
        _, buffers, acts = self._form
        if buffers is None or gather is None:
            return 0
        self._is_clean = False
        before, columns = self._empty
        if self.num_rows:
            before = [(len(c.buffer.pending), len(c.buffer.ends)) for c in self._all_columns]
            columns = tuple(column.compiled() for column in self._all_columns)
        count = gather(
            shown,
            asked,
            first,
            self.num_rows,
            kinds,
            acts,
            columns,
            self._globals_cls,
            self._globals is not None,
            self._acting,
            self._asking,
            self._named,
        )
        if count and not self._read(before):
            count = 0
        if count:
            self._metrics += self._named
            for buffer in buffers:
                if isinstance(buffer, GlobalCategoricalBuffer):
                    buffer.add_all(self._asking)
                else:
                    buffer.add_groups(self._acting)
        self._drop_gathered()
        self.num_rows += count
        return count

    def _form_of(self, kinds: tuple[ActionType[Any], ...]) -> tuple[_Buffers | None, bool]:
        """The buffers of observations with these actions, and whether actors are involved.

        The buffers are None if the observations must be added one by one.
        """
        buffers = [self.actions[kind.name] for kind in kinds]
        found = [b for b in buffers if isinstance(b, GlobalCategoricalBuffer | CategoricalBuffer)]
        acts = any(isinstance(each, CategoricalBuffer) for each in found)
        return (found if len(found) == len(kinds) <= (1 if acts else len(kinds)) else None), acts

    def _read(self, before: Sequence[tuple[int, int]]) -> bool:
        """Reads all gathered data; on failure, truncates buffers to `before`, returns False."""
        columns = self._all_columns
        try:
            for column in columns:
                if column.ends:
                    column.read()
        except SchemaError:
            for column, (num_pending, num_ends) in zip(columns, before, strict=True):
                del column.buffer.pending[num_pending:]
                del column.buffer.ends[num_ends:]
            return False
        return True

    def _drop_gathered(self) -> None:
        for gathered in self._gathered:
            gathered.clear()
        self._is_clean = True
