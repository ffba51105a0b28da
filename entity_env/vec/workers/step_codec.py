"""Writes and reads a step in shared memory: arrays, and a directory of them; nothing is pickled.

New memory and new names of metrics are sent until the parent confirms them, because the parent can
be interrupted while it receives. A worker uses two arenas in turn, so that its last step stays
valid while it writes the next one, and also when it dies meanwhile.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame
from entity_env.core.episode import NO_EPISODES, NUM_INTS, NUM_METRICS, ROW, FinishedEpisodes
from entity_env.core.vec_obs import Metric
from entity_env.vec.step import BatchStep, StepMemory
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.step_buffers import (
    FINAL_LENGTHS,
    NUM_EXTRAS,
    Arena,
    ArenaMemory,
    SharedRows,
)

# Entries of the directory after the slots of rows and of last observations:
_ENDED_INTS: Final = 1
"""How many episodes were lost, which come last; then `FinishedEpisodes.ints`."""
_ENDED_FLOATS: Final = 2
_EPISODE_METRICS: Final = 3
_BATCH_METRICS: Final = 4
_NAMES: Final = 5
"""JSON: number of names that the parent has, and the names after them."""

_INT: Final = np.dtype(np.int64)


class StepWriter:
    """Worker's side: writes steps to two arenas, and numbers the names of metrics."""

    def __init__(self, rows: SharedRows, envs: range) -> None:
        num_slots = len(rows.layout.slots)
        self._extras = 2 * num_slots
        self._first_row = rows.slice_of(envs).start
        self._arenas = [Arena(rows.layout), Arena(rows.layout)]
        self._names: dict[str, int] = {}
        self.memory: list[StepMemory] = []
        for parity, arena in enumerate(self._arenas):
            lengths, arrays = rows.part(parity, envs)
            of_rows, final = ArenaMemory(arena, 0, lengths), ArenaMemory(arena, num_slots, None)
            self.memory.append(StepMemory(of_rows, final, arrays))

    def begin(self, parity: int) -> None:
        """Begins a step."""
        self._arenas[parity].clear()

    def end(self, parity: int, step: BatchStep, num_known: int = 0) -> None:
        """Completes a step by finished episodes, metrics and their names."""
        ended, metrics, arena = step.ended + step.lost, step.metrics, self._arenas[parity]
        if len(ended):
            self._put_ended(arena, ended, len(step.lost))
        if metrics:
            rows = [(self._id(k), m.count, m.sum, m.min, m.max) for k, m in metrics.items()]
            arena.put(self._extras + _BATCH_METRICS, np.array(rows, dtype=np.float64))
        if len(self._names) > num_known:
            names = json.dumps([num_known, list(self._names)[num_known:]]).encode()
            arena.put(self._extras + _NAMES, np.frombuffer(names, dtype=np.uint8))
        arena.seal()

    def unknown_arena(self, parity: int, known: int) -> Arena | None:
        """The arena of a step if the parent does not have its block, but block `known`."""
        arena = self._arenas[parity]
        return None if arena.number and arena.number == known else arena

    def close(self) -> None:
        """Closes the memory."""
        for arena in self._arenas:
            arena.block.close()

    def _put_ended(self, arena: Arena, ended: FinishedEpisodes, num_lost: int) -> None:
        ints = arena.allocate(self._extras + _ENDED_INTS, ended.ints.size + 1, _INT)
        ints[0] = num_lost
        rows = ints[1:].reshape(NUM_INTS, -1)
        rows[:] = ended.ints
        rows[ROW] += self._first_row
        arena.put(self._extras + _ENDED_FLOATS, ended.floats)
        if ended.ints[NUM_METRICS].any():
            metrics = [(self._id(k), x) for one in ended.episodes for k, x in one.metrics.items()]
            arena.put(self._extras + _EPISODE_METRICS, np.array(metrics, dtype=np.float64))

    def _id(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


class StepReader:
    """Parent's side: reads the steps of one worker; arguments as for `StepWriter`."""

    def __init__(self, rows: SharedRows, envs: range) -> None:
        self._layout = rows.layout
        self._views = [rows.part(parity, envs) for parity in range(2)]
        self._num_agents = rows.num_agents
        self._blocks: list[SharedBlock | None] = [None, None]
        self._names: list[str] = []

    def receive(self, parity: int, connection: socket.socket, number: int = 0) -> None:
        """Receives a new arena; raises as `SharedBlock.receive`."""
        old, self._blocks[parity] = self._blocks[parity], SharedBlock.receive(connection, number)
        if old is not None:
            old.close()

    def read(self, parity: int) -> BatchStep:
        """The step in one arena, as views."""
        block = self._blocks[parity]
        if block is None:
            raise ValueError("the arena has not been received")
        buffer, layout = block.buffer, self._layout
        num_slots = len(layout.slots)
        extras = 2 * num_slots
        count = 2 * (extras + NUM_EXTRAS)
        words = np.frombuffer(buffer, np.int64, count).tolist()
        ended, lost = self._ended(buffer, words, extras)
        lengths, arrays = self._views[parity]
        return BatchStep(
            Frame(layout, lengths, self._slots(buffer, words, 0)),
            *arrays,
            final=self._final(buffer, words, num_slots) if len(ended) else None,
            ended=ended,
            lost=lost,
            metrics=self._metrics(buffer, words, extras),
        )

    def close(self) -> None:
        """Closes the memory."""
        for block in self._blocks:
            if block is not None:
                block.close()
        self._blocks = [None, None]

    @property
    def num_names(self) -> int:
        """Number of metric names that it has."""
        return len(self._names)

    @property
    def num_bytes(self) -> int:
        """Size of both arenas."""
        return sum(block.num_bytes for block in self._blocks if block is not None)

    def _slots(
        self, buffer: memoryview, words: Sequence[int], first: int
    ) -> list[NDArray[Any] | None]:
        slots: list[NDArray[Any] | None] = []
        entry = 2 * first
        for slot in self._layout.slots:
            offset, count = words[entry], words[entry + 1]
            slots.append(None if count < 0 else np.frombuffer(buffer, slot.dtype, count, offset))
            entry += 2
        return slots

    def _final(self, buffer: memoryview, words: Sequence[int], num_slots: int) -> Frame | None:
        lengths = _array(buffer, words, 2 * num_slots + FINAL_LENGTHS, np.int64)
        if lengths is None:
            return None
        slots = self._slots(buffer, words, num_slots)
        return Frame(self._layout, lengths.reshape(self._layout.num_lengths, -1), slots)

    def _ended(
        self, buffer: memoryview, words: Sequence[int], extras: int
    ) -> tuple[FinishedEpisodes, FinishedEpisodes]:
        """The episodes that ended, and those of failures."""
        self._learn_names(buffer, words, extras)
        ints = _array(buffer, words, extras + _ENDED_INTS, np.int64)
        floats = _array(buffer, words, extras + _ENDED_FLOATS, np.float64)
        if ints is None or floats is None:
            return NO_EPISODES, NO_EPISODES
        values = _array(buffer, words, extras + _EPISODE_METRICS, np.float64)
        num_lost = int(ints[0])
        metrics = np.zeros((0, 2)) if values is None else values.reshape(-1, 2).copy()
        # Copies: episodes are made on first access, perhaps after the next steps.
        ints, floats = ints[1:].reshape(NUM_INTS, -1).copy(), floats.reshape(2, -1).copy()
        first = ints.shape[1] - num_lost
        split = int(ints[NUM_METRICS, :first].sum())
        read = FinishedEpisodes.from_arrays
        more = self._names, self._num_agents
        return (
            read(ints[:, :first], floats[:, :first], metrics[:split], *more),
            read(ints[:, first:], floats[:, first:], metrics[split:], *more),
        )

    def _metrics(self, buffer: memoryview, words: Sequence[int], extras: int) -> dict[str, Metric]:
        flat = _array(buffer, words, extras + _BATCH_METRICS, np.float64)
        rows = [] if flat is None else flat.reshape(-1, 5).tolist()
        return {self._names[int(i)]: Metric(int(n), s, low, high) for i, n, s, low, high in rows}

    def _learn_names(self, buffer: memoryview, words: Sequence[int], extras: int) -> None:
        names = _array(buffer, words, extras + _NAMES, np.uint8)
        if names is not None:
            first, new = json.loads(names.tobytes())
            self._names[first:] = new


def _array(
    buffer: memoryview, words: Sequence[int], entry: int, dtype: type[np.generic]
) -> NDArray[Any] | None:
    offset, count = words[2 * entry], words[2 * entry + 1]
    return None if count < 0 else np.frombuffer(buffer, dtype, count, offset)
