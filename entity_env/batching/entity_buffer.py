"""`Batcher`: rows of many observations, collected into one `VecObs` or `Frame`.

Features of small observations are appended to one Python list per entity type and packed once per
batch; arrays are copied as slices. `ObsBatcher` adds `Obs` objects, `ObservationBatcher` adds
`Observation`s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game_traceback import require_mistake
from entity_env.authoring.speedups import NotANumber, pack_ints, pack_numbers
from entity_env.batching.action_buffers import ActionBuffer, EntityOffsets, action_buffer
from entity_env.batching.frame import Frame, FrameLayout, FrameMemory, LocalMemory, Slot
from entity_env.core.action_request import other_actors
from entity_env.core.episode import Episode
from entity_env.core.observation import BoolMask
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
    has_dependent,
)
from entity_env.core.validation import metric_problem
from entity_env.core.vec_actions import row_without_next
from entity_env.core.vec_obs import Metric, VecObs, wrong_relation
from entity_env.errors import SchemaError, shown


class EntityBuffer:
    """Features of one entity type in a batch; its memory is reused.

    A type without features gets one filler column. `where` maps an observation's index to its name,
    for errors.
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
        """Numbers added since the last `pack`."""
        self.ends: list[int] = []
        """For each observation, the length of `pending` after it."""
        self._packed: list[tuple[int, int]] = []
        self._values = np.empty(64 * self.stride, dtype=np.float32)
        self._used = 0

    def clear(self) -> None:
        """Removes all rows; keeps the memory."""
        self.pending.clear()
        self.ends.clear()
        self._packed.clear()
        self._used = 0

    @property
    def num_entities(self) -> int:
        return (self._used + len(self.pending)) // self.stride

    @property
    def num_packed(self) -> int:
        """Number of entities before those of `pending`."""
        return self._used // self.stride

    def append(self, rows: NDArray[np.float32]) -> None:
        """Adds an array `(num_entities, width)`, with one copy."""
        self.pack()
        start, self._used = self._used, self._used + len(rows) * self.stride
        self._reserve()
        self._values[start : self._used] = rows.reshape(-1) if self.width else 0.0
        self._packed.append((len(self.ends), self._used - start))

    def write_ends(self, ends: NDArray[np.int64]) -> None:
        """Writes, for each observation, the total number of values up to its end."""
        pack_ints(self.ends, ends)
        if self._packed:
            shift = np.zeros(len(ends) + 1, dtype=np.int64)
            np.add.at(shift, *map(np.array, zip(*self._packed, strict=True)))
            ends += np.cumsum(shift[:-1])

    def write_values(self, memory: FrameMemory, slot: Slot) -> NDArray[np.float32] | None:
        """Writes all rows into a slot and returns its array; None for a type without features."""
        if not self.width:
            return None
        count = len(self.pending)
        values: NDArray[np.float32] = memory.allocate(slot, (self._used + count) // self.stride)
        is_finite = self._pack_into(values, self._used)
        if self._used:
            values[: self._used] = packed = self._values[: self._used]
            is_finite = is_finite and bool(np.isfinite(packed).all())
        if not is_finite:
            raise self._not_finite(values)
        return values

    def pack(self) -> None:
        count = len(self.pending)
        if not count:
            return
        start, self._used = self._used, self._used + count
        self._reserve()
        self._pack_into(self._values, start)
        self._packed.append((len(self.ends), count))
        self.pending.clear()

    def _pack_into(self, values: NDArray[np.float32], start: int) -> bool:
        """Writes the pending numbers; returns whether they are finite."""
        try:
            return pack_numbers(self.pending, values, start)
        except NotANumber as wrong:
            raise self._bad_value(wrong) from wrong.__cause__

    def _reserve(self) -> None:
        if self._used > len(self._values):
            larger = np.empty(2 * self._used, dtype=np.float32)
            larger[: len(self._values)] = self._values
            self._values = larger

    def _bad_value(self, wrong: NotANumber) -> SchemaError:
        i = wrong.index
        first = self._packed[-1][0] if self._packed else 0
        row = bisect_right(self.ends, i, lo=first)
        start = self.ends[row - 1] if row > first else 0
        return SchemaError(
            f"{self._where(row)}: entity {self.name}: feature {self.features[i % self.stride]!r} "
            f"of row {(i - start) // self.stride} {wrong}"
        )

    def _not_finite(self, flat: NDArray[np.float32]) -> SchemaError:
        ends = np.empty(len(self.ends), dtype=np.int64)
        self.write_ends(ends)
        first = int(np.flatnonzero(~np.isfinite(flat))[0])
        row = int(np.searchsorted(ends, first, side="right"))
        entity, column = divmod(first - (int(ends[row - 1]) if row else 0), self.stride)
        return SchemaError(
            f"{self._where(row)}: entity {self.name}: feature {self.features[column]!r} of row "
            f"{entity} must be finite, got {flat[first]}"
        )


class Batcher:
    """Base class: collects observations, one row each, into one `VecObs`.

    `where` maps an observation's index to its name ("env 3"), for errors. With `is_final`, masks
    may leave an actor without a choice.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        where: Callable[[int], str] = "observation {}".format,
        *,
        is_final: bool = False,
    ) -> None:
        self.obs_space = obs_space
        self.where = where
        self.num_rows = 0
        self.layout = FrameLayout(obs_space, action_space)
        features = {name: entity.features for name, entity in obs_space.entities.items()}
        if GLOBAL_ENTITY in self.layout.entities:
            features[GLOBAL_ENTITY] = obs_space.global_features
        strides = [max(len(columns), 1) for columns in features.values()]
        self._strides = np.array(strides, dtype=np.int64)[:, None]
        self._has_strides = strides.count(1) < len(strides)
        self.buffers = {name: EntityBuffer(name, fs, where) for name, fs in features.items()}
        self.actions: dict[ActionName, ActionBuffer] = {
            name: action_buffer(
                name,
                space,
                where,
                may_block=is_final,
                depends=self.layout.actions[name].given is not None,
            )
            for name, space in action_space.items()
        }
        self._has_dependent = has_dependent(action_space)
        self._is_final = is_final
        self._row_ends = [(b.ends.append, b.pending) for b in self.buffers.values()]
        self._memory = LocalMemory()
        self._metrics: list[tuple[int, Mapping[str, float]]] = []
        self._metric_names: set[str] = set()
        """Names that have been checked."""
        self._hidden: list[tuple[int, EntityName, NDArray[np.bool_]]] = []

    def clear(self) -> None:
        """Removes all rows; the next batch overwrites the arrays of the last one."""
        self.num_rows = 0
        self._metrics.clear()
        self._hidden.clear()
        for buffer in self.buffers.values():
            buffer.clear()
        for action in self.actions.values():
            action.clear()

    def end_row(self) -> None:
        """Completes the current row, which is empty if nothing was added to it."""
        for append, pending in self._row_ends:
            append(len(pending))
        self.num_rows += 1

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        self._metrics.append((self.num_rows, metrics))

    def hide(self, name: EntityName, visible: BoolMask, count: int) -> None:
        """Sets which of the `count` entities of a type are visible in the current row."""
        flags = np.asarray(visible) if len(visible) else np.zeros(0, dtype=np.bool_)
        if flags.shape != (count,) or flags.dtype.kind not in "biu":
            raise SchemaError(
                f"{self.where(self.num_rows)}: visible of {name} needs {count} bools, one per "
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
        """All rows since `clear`; arrays are valid until the next batch.

        Raises:
            SchemaError: a feature is not a finite number that fits float32, or the name or value of
                a metric is invalid.
        """
        frame = self.write(self._memory)
        return VecObs(
            features=dict(frame.features),
            visible=dict(frame.visible),
            action_masks=dict(frame.action_masks),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=env_id,
            agent_id=agent_id,
            final=final,
            metrics=self.metrics(),
            episodes=episodes,
        )

    def write(self, memory: FrameMemory) -> Frame:
        """All rows since `clear`, in the given memory; checks features like `finish`."""
        layout = self.layout
        lengths = memory.lengths(layout, self.num_rows)
        frame = Frame(layout, lengths, [None] * len(layout.slots))
        self._write_entities(frame, memory)
        if layout.relations and (wrong := wrong_relation(layout.relations, frame.features)):
            raise SchemaError(f"{self.where(wrong[0])}: {wrong[1]}")
        self._write_visible(frame, memory)
        entities = EntityOffsets(lengths[: layout.num_local_types])
        for name, action in self.actions.items():
            action.write(layout.actions[name], entities, frame, memory)
        if self._has_dependent:
            self._require_same_actors(frame)
            if not self._is_final:
                self._require_choice_after(frame)
        return memory.written(frame)

    def _require_same_actors(self, frame: Frame) -> None:
        """Raises `SchemaError` if an action and one on which it depends have other actors."""
        for name, where in self.layout.actions.items():
            for other in where.space.given:
                before = self.layout.actions[other]
                if (row := frame.differing_actors(where, before)) is not None:
                    counts = (int(frame.lengths[each.row, row]) for each in (where, before))
                    raise SchemaError(f"{self.where(row)}: {other_actors(name, other, *counts)}")

    def _require_choice_after(self, frame: Frame) -> None:
        """Raises `SchemaError` if a legal choice leaves no choice of a dependent action."""
        for name, where in self.layout.actions.items():
            if where.given is None or frame.slots[where.mask.index] is None:
                continue
            mask, before = frame.mask_of(where), frame.mask_of(where.given)
            found = row_without_next(name, where.space, mask, before, where.given.space)
            if found is not None:
                raise SchemaError(f"{self.where(found[0])}: {found[1]}")

    def _write_entities(self, frame: Frame, memory: FrameMemory) -> None:
        counts = frame.lengths[: self.layout.num_types]
        for name, where in self.layout.entities.items():
            buffer = self.buffers[name]
            buffer.write_ends(counts[where.row])
            frame.slots[where.values.index] = buffer.write_values(memory, where.values)
        np.subtract(counts[:, 1:], counts[:, :-1], out=counts[:, 1:])
        if self._has_strides:
            counts //= self._strides

    def _write_visible(self, frame: Frame, memory: FrameMemory) -> None:
        for row, name, flags in self._hidden:
            where = self.layout.entities[name]
            lengths = frame.lengths[where.row]
            shown = frame.slots[where.visible.index]
            if shown is None:
                shown = memory.allocate(where.visible, int(lengths.sum()))
                shown[:] = True
                frame.slots[where.visible.index] = shown
            first = int(lengths[:row].sum())
            shown[first : first + len(flags)] = flags

    def metrics(self) -> dict[str, Metric]:
        merged: dict[str, Metric] = {}
        try:
            for _, metrics in self._metrics:
                for name, value in metrics.items():
                    merged.setdefault(name, Metric()).push(value)
        except BaseException as error:  # also of a user's class
            require_mistake(error)
            return self._checked_metrics()
        # A sum of float32s would lose digits.
        sums = [metric.sum for metric in merged.values()]
        ends = [end for metric in merged.values() for end in (metric.min, metric.max)]
        is_plain = all(each.__class__ is float for each in sums) and all(
            type(each) in (float, int, bool) or isinstance(each, np.generic) for each in ends
        )
        if not is_plain or not merged.keys() <= self._metric_names:
            return self._checked_metrics()
        return merged

    def _checked_metrics(self) -> dict[str, Metric]:
        """`metrics` with a check of every name and value; an error names the observation."""
        merged: dict[str, Metric] = {}
        for row, metrics in self._metrics:
            try:
                problem = _add_metrics(merged, metrics)
            except BaseException as error:
                require_mistake(error)
                raise SchemaError(
                    f"{self.where(row)}: the metrics cannot be read: {shown(error)}"
                ) from error
            if problem:
                raise SchemaError(f"{self.where(row)}: {problem}")
        self._metric_names |= merged.keys()
        return merged


def _add_metrics(merged: dict[str, Metric], metrics: object) -> str:
    """Adds the metrics of one observation; returns what is wrong with them, if anything."""
    if not isinstance(metrics, Mapping):
        return f"metrics must be a mapping from names to numbers, got {metrics!r}"
    for name, value in metrics.items():
        if problem := metric_problem(name, value):
            return problem
        merged.setdefault(name, Metric()).push(float(value))
    return ""
