"""ObservationWriter: adds `Observation`s of environments that are stepped from outside."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.entity_type import as_float32
from entity_env.batching.action_buffers import (
    CategoricalWriter,
    ContinuousWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batching.entity_buffer import BatchWriter, RowBuffer
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
"""Arrays of fewer numbers are cheaper to hand over as a list than to copy as a slice."""

_AddGroup: TypeAlias = Callable[[int, int, int, int], None]
"""Adds entities of one type as actors or as actees, as `ActionWriter.add_group` does."""


class ObservationWriter(BatchWriter):
    """Gathers `Observation`s; whatever does not fit the spaces is refused by name.

    Args:
        obs_space, action_space: what the observations may hold.
        where: names the observation of an index ("env 3"), for errors.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        where: Callable[[int], str] = "observation {}".format,
    ) -> None:
        super().__init__(obs_space, action_space, where)
        self.asked: dict[ActionName, list[Asked]] = {name: [] for name in action_space}
        """For each action who was asked, in the order of the observations; `clear` makes it anew,
        and leaves the old one to whoever reads it."""
        self._types = {name: self.buffers[name] for name in obs_space.entities}
        self._kinds = {name: self.layout.entities[name].row for name in obs_space.entities}
        self._nameless: dict[EntityName, list[EntityID]] = {name: [] for name in self._types}
        """The ids of entities without ids, as many as were ever needed."""
        self._index_of: dict[EntityID, int] | None = None
        """Of the observation that is being added, if somebody acts by id."""

    def clear(self) -> None:
        super().clear()
        self.asked = {name: [] for name in self.asked}

    def add(self, observation: Observation, *, ask: bool = True) -> None:
        """Adds one observation, with its actors unless `ask` is false (as for a final one).

        Raises:
            SchemaError: an unknown entity, a wrong width, an actor that is not observed, a mask
                that fits nothing, or ids that are not one a row.
        """
        if not ask and observation.is_blank:
            self.add_metrics(observation.metrics)
            self.add_empty()
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

    def _add_array(self, buffer: RowBuffer, rows: NDArray[Any]) -> None:
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
                observation.entity_ids(self.obs_space)  # raises, unless nobody declared this type
        for name, mask in observation.actions.items():
            if name not in self.actions:
                raise SchemaError(
                    f"action {name!r} is not in the action space, which has "
                    f"{', '.join(self.actions) or 'none'}"
                )
            self._add_action(name, mask, observation)

    def _add_action(self, name: ActionName, mask: ActionMask, observation: Observation) -> None:
        row, writer = self.num_rows, self.actions[name]
        find = self._add_entities
        actors: Sequence[EntityID] = GLOBAL_ACTORS
        actees: Sequence[EntityID] = ()
        if isinstance(writer, CategoricalWriter) and isinstance(mask, CategoricalActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, writer.add_group)
            if mask.mask is not None:
                writer.add_mask(mask.mask, len(actors))
        elif isinstance(writer, GlobalCategoricalWriter) and isinstance(
            mask, GlobalCategoricalActionMask
        ):
            writer.add(row)
            writer.add_mask(mask.mask, 1)
        elif isinstance(writer, SelectEntityWriter) and isinstance(mask, SelectEntityActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, writer.add_group)
            ids, types = mask.actee_ids, mask.actee_types
            actees = find(name, ids, types, observation, writer.add_actees, "actee")
            writer.add_mask(row, mask.mask, len(actors), len(actees))
        elif isinstance(writer, ContinuousWriter) and isinstance(mask, ContinuousActionMask):
            actors = find(name, mask.actor_ids, mask.actor_types, observation, writer.add_group)
        else:
            raise SchemaError(f"action {name!r} does not go with a {type(mask).__name__}")
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
        """Adds the entities of these ids or types as actors or actees; returns their ids."""
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
                found.extend(self._known_by_position(name, count) if given is None else given)
        return found

    def _known_by_position(self, name: EntityName, count: int) -> list[EntityID]:
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

    def _wrong_row(self, buffer: RowBuffer, rows: Sequence[Any]) -> SchemaError:
        i = next(i for i, row in enumerate(rows) if _length_of(row) != buffer.width)
        return self._error(
            f"entity {buffer.name}: row {i} is {rows[i]!r}, expected a sequence of {buffer.width} "
            f"features: {', '.join(buffer.features)}"
        )

    def _error(self, message: str) -> SchemaError:
        return SchemaError(f"{self.where(self.num_rows)}: {message}")


def _length_of(row: object) -> int | None:
    return len(row) if isinstance(row, Sized) else None


def _runs(indices: Sequence[int], ends: Sequence[int]) -> list[tuple[int, int, int]]:
    """Entities by index, as runs of neighbours of one type: number of the type, first, count.

    Args:
        indices: of entities in an observation.
        ends: for each type the index behind its last entity.
    """
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
