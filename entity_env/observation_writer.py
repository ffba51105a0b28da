"""ObservationWriter: adds `Observation`s of environments that are stepped from outside."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.action_writer import (
    CategoricalWriter,
    ContinuousWriter,
    GlobalCategoricalWriter,
    SelectEntityWriter,
)
from entity_env.batch_writer import BatchWriter, RowBuffer
from entity_env.entity_type import as_float32
from entity_env.errors import SchemaError
from entity_env.observation import (
    ActionMask,
    CategoricalActionMask,
    ContinuousActionMask,
    Features,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.spaces import GLOBAL_ENTITY, ActionName

_SMALL = 64
"""Arrays of fewer numbers are cheaper to hand over as a list than to copy as a slice."""


class ObservationWriter(BatchWriter):
    """Gathers `Observation`s; whatever does not fit the spaces is refused by name."""

    def add(self, observation: Observation, *, ask: bool = True) -> None:
        """Adds one observation, with its actors unless `ask` is false (as for a final one).

        Raises:
            SchemaError: an unknown entity, a wrong width, an actor that is not observed, or a mask
                that fits nothing.
        """
        if not ask and observation.is_blank:
            self.add_metrics(observation.metrics)
            self.add_empty()
            return
        for name in observation.features:
            if name not in self.buffers or name == GLOBAL_ENTITY:
                raise self._error(
                    f"entity {name!r} is not in the observation space, which has "
                    f"{', '.join(self.obs_space.entities) or 'none'}"
                )
        for name in self.obs_space.entities:
            rows = observation.features.get(name)
            if rows is not None and len(rows):
                self._add_rows(self.buffers[name], rows)
        self._add_globals(observation)
        if ask:
            self._add_actions(observation)
        for name, visible in observation.visible.items():
            if name not in self.obs_space.entities:
                raise self._error(f"visible names entity {name!r}, which does not exist")
            self.hide(name, np.asarray(visible), observation.num_entities(name))
        if observation.metrics:
            self.add_metrics(observation.metrics)
        self.end_row()

    def _add_rows(self, buffer: RowBuffer, rows: Features) -> None:
        if isinstance(rows, np.ndarray):
            self._require_rows(buffer, rows)
            if rows.size < _SMALL and buffer.width:
                buffer.pending.extend(rows.ravel().tolist())
            else:
                buffer.append(as_float32(rows))
            return
        width = buffer.width
        for i, row in enumerate(rows):
            if _length_of(row) != width:
                raise self._error(
                    f"entity {buffer.name}: row {i} is {row!r}, expected a sequence of {width} "
                    f"features: {', '.join(buffer.features)}"
                )
            buffer.pending.extend(row if width else (0.0,))

    def _require_rows(self, buffer: RowBuffer, rows: NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.shape[1] != buffer.width or rows.dtype.kind not in "fiub":
            raise self._error(
                f"entity {buffer.name}: features need the shape (num_entities, {buffer.width}) "
                f"and a numeric dtype, got {rows.shape} {rows.dtype}"
            )

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

    def _add_actions(self, observation: Observation) -> None:
        for name, mask in observation.actions.items():
            if name not in self.actions:
                raise self._error(
                    f"action {name!r} is not in the action space, which has "
                    f"{', '.join(self.actions) or 'none'}"
                )
            try:
                self._add_action(name, mask, observation)
            except SchemaError as error:
                raise self._error(str(error)) from error

    def _add_action(self, name: ActionName, mask: ActionMask, observation: Observation) -> None:
        row = self.num_rows
        writer = self.actions[name]
        if isinstance(writer, GlobalCategoricalWriter) and isinstance(
            mask, GlobalCategoricalActionMask
        ):
            writer.add(row)
            writer.add_mask(mask.mask, 1)
            return
        actors = observation.actor_indices(name, self.obs_space)
        writer.add_indices(row, actors)
        if isinstance(writer, CategoricalWriter) and isinstance(mask, CategoricalActionMask):
            writer.add_mask(mask.mask, len(actors))
        elif isinstance(writer, SelectEntityWriter) and isinstance(mask, SelectEntityActionMask):
            actees = observation.actee_indices(name, self.obs_space)
            writer.add_actee_indices(row, actees)
            writer.add_mask(row, mask.mask, len(actors), len(actees))
        elif not (isinstance(writer, ContinuousWriter) and isinstance(mask, ContinuousActionMask)):
            raise SchemaError(f"action {name!r} does not go with a {type(mask).__name__}")

    def _error(self, message: str) -> SchemaError:
        return SchemaError(f"{self.where(self.num_rows)}: {message}")


def _length_of(row: object) -> int | None:
    return len(row) if isinstance(row, Sized) else None
