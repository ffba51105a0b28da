"""BatchWriter: gathers the rows of many observations into one `VecObs`.

Features of small observations go through one Python list per entity type and are packed once per
batch; arrays are copied as slices. `ObsWriter` and `ObservationWriter` say how one observation is
added; everything here works on whole batches.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from entity_env.action_writer import ActionWriter, EntityLayout, action_writer
from entity_env.entity_type import fits_float32
from entity_env.episode import Episode
from entity_env.errors import SchemaError
from entity_env.observation import BoolMask
from entity_env.ragged import RaggedArray
from entity_env.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
    entity_widths,
)
from entity_env.vec_obs import Metric, VecObs


class RowBuffer:
    """Rows of one entity type, for all observations of a batch, in memory that is used again.

    Args:
        name: name of the entity type.
        features: names of its columns. A type without features has one filler column inside.
        where: names the observation of an index, for errors.
    """

    def __init__(
        self, name: EntityName, features: Sequence[str], where: Callable[[int], str]
    ) -> None:
        self.name = name
        self._where = where
        self.features = features
        self.width = len(features)
        self.stride = max(self.width, 1)
        self.pending: list[float] = []
        """Numbers that were written since the last array, not packed yet."""
        self.ends: list[int] = []
        """For each observation the length of `pending` when it was complete."""
        self._packed: list[tuple[int, int]] = []
        self._values = np.empty(64 * self.stride, dtype=np.float32)
        self._used = 0

    def clear(self) -> None:
        """Begins a new batch; arrays given out before are overwritten from now on."""
        self.pending.clear()
        self.ends.clear()
        self._packed.clear()
        self._used = 0

    @property
    def num_entities(self) -> int:
        """Number of entities written so far."""
        return (self._used + len(self.pending)) // self.stride

    def append(self, rows: NDArray[np.float32]) -> None:
        """Adds entities as an array `(num_entities, width)`, by one copy.

        Raises:
            SchemaError: a value that was written before is no number.
        """
        self.pack()
        start, self._used = self._used, self._used + len(rows) * self.stride
        self._reserve()
        self._values[start : self._used] = rows.reshape(-1) if self.width else 0.0
        self._packed.append((len(self.ends), self._used - start))

    def finish(self) -> RaggedArray[np.float32]:
        """The rows of all observations: a view that is valid until `clear`.

        Raises:
            SchemaError: a value that is no number, not finite, or beyond float32.
        """
        ends = np.array(self.ends, dtype=np.int64)
        if self._packed:
            shift = np.zeros(len(ends) + 1, dtype=np.int64)
            np.add.at(shift, *map(np.array, zip(*self._packed, strict=True)))
            ends += np.cumsum(shift[:-1])
        self.pack()
        values = self._values[: self._used].reshape(-1, self.stride)
        lengths = np.diff(ends, prepend=0) // self.stride
        if not np.isfinite(values).all():
            raise self._not_finite(values, np.cumsum(lengths))
        return RaggedArray(values[:, : self.width], lengths)

    def pack(self) -> None:
        """Turns the pending numbers into float32 rows."""
        count = len(self.pending)
        if not count:
            return
        start, self._used = self._used, self._used + count
        self._reserve()
        try:
            struct.pack_into(f"{count}f", self._values.data, start * 4, *self.pending)
        except (struct.error, TypeError, OverflowError) as error:
            raise self._bad_value() from error
        self._packed.append((len(self.ends), count))
        self.pending.clear()

    def _reserve(self) -> None:
        if self._used > len(self._values):
            larger = np.empty(2 * self._used, dtype=np.float32)
            larger[: len(self._values)] = self._values
            self._values = larger

    def _bad_value(self) -> SchemaError:
        i = next((i for i, value in enumerate(self.pending) if not fits_float32(value)), 0)
        first = self._packed[-1][0] if self._packed else 0
        row = bisect_right(self.ends, i, lo=first)
        start = self.ends[row - 1] if row > first else 0
        return SchemaError(
            f"{self._where(row)}: entity {self.name}: "
            f"feature {self.features[i % self.stride]!r} of row "
            f"{(i - start) // self.stride} must be a number that fits float32, "
            f"got {self.pending[i]!r}"
        )

    def _not_finite(self, values: NDArray[np.float32], ends: NDArray[np.int64]) -> SchemaError:
        entity, column = (int(i) for i in np.argwhere(~np.isfinite(values))[0])
        row = int(np.searchsorted(ends, entity, side="right"))
        first = int(ends[row - 1]) if row else 0
        return SchemaError(
            f"{self._where(row)}: entity {self.name}: feature {self.features[column]!r} of row "
            f"{entity - first} must be finite, got {values[entity, column]}"
        )


class BatchWriter:
    """Gathers observations, one after another, into one `VecObs`.

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
        self.obs_space = obs_space
        self.where = where
        self.num_rows = 0
        features = {name: entity.features for name, entity in obs_space.entities.items()}
        if GLOBAL_ENTITY in entity_widths(obs_space, action_space):
            features[GLOBAL_ENTITY] = obs_space.global_features
        self.buffers = {name: RowBuffer(name, fs, where) for name, fs in features.items()}
        self.actions: dict[ActionName, ActionWriter] = {
            name: action_writer(name, space) for name, space in action_space.items()
        }
        self._metrics: list[Mapping[str, float]] = []
        self._hidden: list[tuple[int, EntityName, NDArray[np.bool_]]] = []

    def clear(self) -> None:
        """Begins a new batch; arrays of the last one are overwritten from now on."""
        self.num_rows = 0
        self._metrics.clear()
        self._hidden.clear()
        for buffer in self.buffers.values():
            buffer.clear()
        for action in self.actions.values():
            action.clear()

    def add_empty(self) -> None:
        """Adds the row of an agent that is not asked for anything: no entities, no actors."""
        self.end_row()

    def end_row(self) -> None:
        """Completes the observation that is being written."""
        for buffer in self.buffers.values():
            buffer.ends.append(len(buffer.pending))
        self.num_rows += 1

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Counts the named numbers of the observation that is being written."""
        self._metrics.append(metrics)

    def hide(self, name: EntityName, visible: BoolMask, count: int) -> None:
        """Says which of the `count` entities of a type are visible in the current observation.

        Raises:
            SchemaError: another number of flags, or of another type.
        """
        flags = np.asarray(visible) if len(visible) else np.zeros(0, dtype=np.bool_)
        if flags.shape != (count,) or flags.dtype.kind not in "biu":
            raise SchemaError(
                f"{self.where(self.num_rows)}: visible of {name} needs {count} bools, one an "
                f"entity: got shape {flags.shape}, {flags.dtype}"
            )
        self._hidden.append((self.num_rows, name, flags.astype(np.bool_)))

    def finish(
        self,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        *,
        final: VecObs | None = None,
        episodes: Sequence[Episode] = (),
    ) -> VecObs:
        """The batch of all rows since `clear`; its features are views, valid until the next one.

        Raises:
            SchemaError: a feature that is no finite number.
        """
        features = {name: buffer.finish() for name, buffer in self.buffers.items()}
        layout = EntityLayout.of(features, self.num_rows)
        return VecObs(
            features=features,
            visible=self._visible(features),
            action_masks={name: a.finish(layout) for name, a in self.actions.items()},
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=env_id,
            agent_id=agent_id,
            final=final,
            metrics=self._merged_metrics(),
            episodes=episodes,
        )

    def _visible(
        self, features: Mapping[EntityName, RaggedArray[np.float32]]
    ) -> dict[EntityName, RaggedArray[np.bool_]]:
        visible: dict[EntityName, RaggedArray[np.bool_]] = {}
        for row, name, flags in self._hidden:
            if name not in visible:
                shown = np.ones(len(features[name].values), dtype=np.bool_)
                visible[name] = RaggedArray(shown, features[name].lengths)
            visible[name][row][:] = flags
        return visible

    def _merged_metrics(self) -> dict[str, Metric]:
        merged: dict[str, Metric] = {}
        for metrics in self._metrics:
            for name, value in metrics.items():
                merged.setdefault(name, Metric()).push(value)
        return merged
