"""Writes and reads a step in shared memory as arrays and a directory of them; nothing is pickled.

New memory and metric names are resent until the parent confirms them, because the parent can be
interrupted while receiving. A worker alternates between two arenas, so its last step stays valid
while it writes the next, even if it dies meanwhile.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameLayout, Slot
from entity_env.core.episode_stats import NO_EPISODES, NUM_INTS, NUM_METRICS, ROW, FinishedEpisodes
from entity_env.core.vec_obs import Metric
from entity_env.vec.step import BatchStep, StepArrays, StepMemory
from entity_env.vec.workers.shared_memory import SharedBlock

_ABSENT: Final = -1
"""Count of an array missing in a step."""

# Entries of the directory after the slots of rows and of last observations:
_NUM_EXTRAS: Final = 6
_FINAL_LENGTHS: Final = 0
_ENDED_INTS: Final = 1
"""Number of lost episodes, which come last; then `FinishedEpisodes.ints`."""
_ENDED_FLOATS: Final = 2
_EPISODE_METRICS: Final = 3
_BATCH_METRICS: Final = 4
_NAMES: Final = 5
"""JSON: number of names known to the parent, then the names after them."""

_ALIGN: Final = 64
_FIRST_BYTES: Final = 1 << 16
_INT: Final = np.dtype(np.int64)


class SharedRows:
    """Arrays with one element per row, for all workers, in one block.

    Holds the lengths, rewards and flags of two alternating steps, and the index of each row's
    current (or, if it has ended, next) episode.
    """

    def __init__(
        self, block: SharedBlock, layout: FrameLayout, num_envs: int, num_agents: int
    ) -> None:
        self.layout = layout
        self.num_agents = num_agents
        num_rows = num_envs * num_agents
        self.lengths: list[NDArray[np.int64]] = []
        self.arrays: list[StepArrays] = []
        offset = 0
        for _ in range(2):
            count = layout.num_lengths * num_rows
            lengths = block.array(offset, count, np.int64)
            self.lengths.append(lengths.reshape(layout.num_lengths, num_rows))
            offset = _aligned(offset + 8 * count)
            reward = block.array(offset, num_rows, np.float32)
            offset = _aligned(offset + 4 * num_rows)
            terminated = block.array(offset, num_rows, np.bool_)
            truncated = block.array(offset + num_rows, num_rows, np.bool_)
            is_over = block.array(offset + 2 * num_rows, num_envs, np.bool_)
            self.arrays.append(StepArrays(reward, terminated, truncated, is_over))
            offset = _aligned(offset + 2 * num_rows + num_envs)
        self.numbers = block.array(offset, num_rows, np.int64)

    def slice_of(self, envs: range) -> slice:
        """Rows of some environments."""
        return slice(envs.start * self.num_agents, envs.stop * self.num_agents)

    def part(self, parity: int, envs: range) -> tuple[NDArray[np.int64], StepArrays]:
        """Lengths, rewards and flags of some environments in one of the two steps."""
        rows = self.slice_of(envs)
        reward, terminated, truncated, is_over = self.arrays[parity]
        over = is_over[envs.start : envs.stop]
        arrays = StepArrays(reward[rows], terminated[rows], truncated[rows], over)
        return self.lengths[parity][:, rows], arrays

    @staticmethod
    def num_bytes(layout: FrameLayout, num_envs: int, num_agents: int) -> int:
        """Size of the block."""
        num_rows = num_envs * num_agents
        half = _aligned(8 * layout.num_lengths * num_rows) + _aligned(4 * num_rows)
        return 2 * (half + _aligned(2 * num_rows + num_envs)) + 8 * num_rows


class Arena:
    """Memory of a worker's step: a directory, then the arrays."""

    def __init__(self, layout: FrameLayout) -> None:
        self.num_entries = 2 * len(layout.slots) + _NUM_EXTRAS
        self.block = SharedBlock.create(_FIRST_BYTES + _aligned(16 * self.num_entries))
        self.number = 0
        """Number of this block among those sent; 0 = not sent yet."""
        self._words = self.block.buffer.cast("q")
        self._blank = np.array([0, _ABSENT] * self.num_entries, dtype=np.int64).tobytes()
        self._used = 0
        self._outgrown: list[tuple[memoryview, int]] = []
        """Blocks of this step that were too small, and the bytes used in each."""

    def clear(self) -> None:
        """Starts a new step."""
        self._outgrown.clear()  # not empty after a step that failed
        self._used = _aligned(16 * self.num_entries)
        self.block.buffer[: len(self._blank)] = self._blank

    def allocate(self, entry: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array `(count,)` for the caller to fill before `seal`."""
        offset = self._used
        end = offset + count * dtype.itemsize
        if end > self.block.num_bytes:
            self._grow(end)
        self._words[2 * entry] = offset
        self._words[2 * entry + 1] = count
        self._used = _aligned(end)
        return np.frombuffer(self.block.buffer, dtype, count, offset)

    def put(self, entry: int, array: NDArray[Any]) -> None:
        self.allocate(entry, array.size, array.dtype)[:] = array.reshape(-1)

    def seal(self) -> None:
        """Completes the step: copies the arrays of blocks that were too small."""
        start = _aligned(16 * self.num_entries)
        for outgrown, end in self._outgrown:
            self.block.buffer[start:end] = outgrown[start:end]
            start = end
        self._outgrown.clear()

    def _grow(self, num_bytes: int) -> None:
        larger = SharedBlock.create(_aligned(2 * num_bytes))
        directory = 16 * self.num_entries
        larger.buffer[:directory] = self.block.buffer[:directory]
        self._outgrown.append((self.block.buffer, self._used))
        self.block.close()
        self.block = larger
        self._words = larger.buffer.cast("q")
        self.number = 0


class ArenaMemory:
    """`FrameMemory` of rows or of last observations, in an arena.

    Its slots start at entry `first` of the directory. If `lengths` is None, the lengths are also an
    entry of the arena.
    """

    def __init__(self, arena: Arena, first: int, lengths: NDArray[np.int64] | None) -> None:
        self._arena = arena
        self._first = first
        self._lengths = lengths

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        if self._lengths is not None:
            return self._lengths
        entry, shape = 2 * len(layout.slots) + _FINAL_LENGTHS, (layout.num_lengths, num_rows)
        return self._arena.allocate(entry, shape[0] * shape[1], np.dtype(np.int64)).reshape(shape)

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        entry = self._first + slot.index
        return self._arena.allocate(entry, num_rows * slot.width, slot.dtype)

    def written(self, frame: Frame) -> Frame:
        return frame


class StepWriter:
    """Worker's side: writes steps to two arenas and numbers metric names."""

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
        self._arenas[parity].clear()

    def end(self, parity: int, step: BatchStep, num_known: int = 0) -> None:
        """Completes a step with finished episodes, metrics and their names."""
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
        """The arena of a step, or None if its block is block `known`, which the parent has."""
        arena = self._arenas[parity]
        return None if arena.number and arena.number == known else arena

    def close(self) -> None:
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
    """Parent's side: reads a worker's steps."""

    def __init__(self, rows: SharedRows, envs: range) -> None:
        self._layout = rows.layout
        self._views = [rows.part(parity, envs) for parity in range(2)]
        self._num_agents = rows.num_agents
        self._blocks: list[SharedBlock | None] = [None, None]
        self._names: list[str] = []
        self._plain: list[tuple[bytes, list[NDArray[Any] | None]]] = [(b"", []), (b"", [])]
        """Per arena: the last directory without episodes and metrics, and the arrays it lists."""

    def receive(self, parity: int, connection: socket.socket, number: int = 0) -> None:
        """Receives a new arena; raises like `SharedBlock.receive`."""
        old, self._blocks[parity] = self._blocks[parity], SharedBlock.receive(connection, number)
        self._plain[parity] = b"", []
        if old is not None:
            old.close()

    def read(self, parity: int) -> BatchStep:
        """The step in an arena, as views."""
        block = self._blocks[parity]
        if block is None:
            raise ValueError("the arena has not been received")
        buffer, layout = block.buffer, self._layout
        num_slots = len(layout.slots)
        extras = 2 * num_slots
        count = 2 * (extras + _NUM_EXTRAS)
        lengths, arrays = self._views[parity]
        directory = bytes(buffer[: 8 * count])
        plain, slots = self._plain[parity]
        if directory == plain:
            return BatchStep(Frame(layout, lengths, slots), *arrays)
        words = memoryview(directory).cast("q").tolist()
        slots = self._slots(buffer, words, 0)
        if max(words[2 * num_slots + 1 :: 2]) == _ABSENT:
            self._plain[parity] = directory, slots
            return BatchStep(Frame(layout, lengths, slots), *arrays)
        ended, lost = self._ended(buffer, words, extras)
        return BatchStep(
            Frame(layout, lengths, slots),
            *arrays,
            final=self._final(buffer, words, num_slots) if len(ended) else None,
            ended=ended,
            lost=lost,
            metrics=self._metrics(buffer, words, extras),
        )

    def close(self) -> None:
        for block in self._blocks:
            if block is not None:
                block.close()
        self._blocks = [None, None]
        self._plain = [(b"", []), (b"", [])]

    @property
    def num_names(self) -> int:
        return len(self._names)

    @property
    def num_bytes(self) -> int:
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
        lengths = _array(buffer, words, 2 * num_slots + _FINAL_LENGTHS, np.int64)
        if lengths is None:
            return None
        slots = self._slots(buffer, words, num_slots)
        return Frame(self._layout, lengths.reshape(self._layout.num_lengths, -1), slots)

    def _ended(
        self, buffer: memoryview, words: Sequence[int], extras: int
    ) -> tuple[FinishedEpisodes, FinishedEpisodes]:
        self._learn_names(buffer, words, extras)
        ints = _array(buffer, words, extras + _ENDED_INTS, np.int64)
        floats = _array(buffer, words, extras + _ENDED_FLOATS, np.float64)
        if ints is None or floats is None:
            return NO_EPISODES, NO_EPISODES
        values = _array(buffer, words, extras + _EPISODE_METRICS, np.float64)
        num_lost = int(ints[0])
        metrics = np.zeros((0, 2)) if values is None else values.reshape(-1, 2).copy()
        # Copies: episodes are made on first access, possibly after later steps.
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


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
