"""Shared memory of steps: rows of fixed size of all workers, and an arena per worker and step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import FrameLayout, FrameMemory, Slot
from entity_env.vec.workers.shared_memory import SharedBlock

ABSENT: Final = -1
"""Count of an array that is missing in a step."""
NUM_EXTRAS: Final = 6
"""Entries of the directory after the slots of rows and of last observations; see `step_codec`."""
FINAL_LENGTHS: Final = 0
"""The first of those."""

_ALIGN: Final = 64
_FIRST_BYTES: Final = 1 << 16


class SharedRows:
    """Arrays with one element per row, of all workers in one block.

    Lengths, reward and flags of two steps, used in turn; and the numbers of the current, or next,
    episodes.

    Args:
        block: shared by the parent and all workers.
        layout: of the batch.
        num_rows: of all workers.
        num_envs: of all workers.
    """

    def __init__(
        self, block: SharedBlock, layout: FrameLayout, num_rows: int, num_envs: int
    ) -> None:
        self.lengths: list[NDArray[np.int64]] = []
        self.reward: list[NDArray[np.float32]] = []
        self.terminated: list[NDArray[np.bool_]] = []
        self.truncated: list[NDArray[np.bool_]] = []
        self.is_over: list[NDArray[np.bool_]] = []
        offset = 0
        for _ in range(2):
            count = layout.num_lengths * num_rows
            lengths = block.array(offset, count, np.int64)
            self.lengths.append(lengths.reshape(layout.num_lengths, num_rows))
            offset = _aligned(offset + 8 * count)
            self.reward.append(block.array(offset, num_rows, np.float32))
            offset = _aligned(offset + 4 * num_rows)
            self.terminated.append(block.array(offset, num_rows, np.bool_))
            self.truncated.append(block.array(offset + num_rows, num_rows, np.bool_))
            self.is_over.append(block.array(offset + 2 * num_rows, num_envs, np.bool_))
            offset = _aligned(offset + 2 * num_rows + num_envs)
        self.numbers = block.array(offset, num_rows, np.int64)

    @staticmethod
    def num_bytes(layout: FrameLayout, num_rows: int, num_envs: int) -> int:
        """Size of the block."""
        half = _aligned(8 * layout.num_lengths * num_rows) + _aligned(4 * num_rows)
        return 2 * (half + _aligned(2 * num_rows + num_envs)) + 8 * num_rows


class Arena:
    """Memory of one step of one worker: a directory, then the arrays.

    Args:
        layout: of the batch.
    """

    def __init__(self, layout: FrameLayout) -> None:
        self.num_entries = 2 * len(layout.slots) + NUM_EXTRAS
        self.block = SharedBlock.create(_FIRST_BYTES + _aligned(16 * self.num_entries))
        self.number = 0
        """Number of this block among those that were sent; 0 = not sent yet."""
        self._words = self.block.buffer.cast("q")
        self._used = 0
        self._outgrown: list[tuple[memoryview, int]] = []
        """Blocks of this step that were too small, and the bytes used in each."""

    def clear(self) -> None:
        """Begins a new step."""
        self._outgrown.clear()  # not empty after a step that failed
        self._used = _aligned(16 * self.num_entries)
        words = self._words
        for i in range(1, 2 * self.num_entries, 2):
            words[i] = ABSENT

    def allocate(self, entry: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Array `(count,)` that the caller fills before `seal`."""
        offset = self._used
        end = offset + count * dtype.itemsize
        if end > self.block.num_bytes:
            self._grow(end)
        self._words[2 * entry] = offset
        self._words[2 * entry + 1] = count
        self._used = _aligned(end)
        return np.frombuffer(self.block.buffer, dtype, count, offset)

    def put(self, entry: int, array: NDArray[Any]) -> None:
        """Copies an array of any shape into the arena."""
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


class RowMemory:
    """`FrameMemory` of the rows of a step: lengths in `SharedRows`, the rest in the arena."""

    def __init__(self, arena: Arena, lengths: NDArray[np.int64]) -> None:
        self._arena = arena
        self._lengths = lengths

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        return self._lengths

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        return self._arena.allocate(slot.index, num_rows * slot.width, slot.dtype)


class FinalMemory:
    """`FrameMemory` of last observations, in the arena."""

    def __init__(self, arena: Arena, layout: FrameLayout) -> None:
        self._arena = arena
        self._first = len(layout.slots)
        self._extras = 2 * len(layout.slots)

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        flat = self._arena.allocate(
            self._extras + FINAL_LENGTHS, layout.num_lengths * num_rows, np.dtype(np.int64)
        )
        return flat.reshape(layout.num_lengths, num_rows)

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        entry = self._first + slot.index
        return self._arena.allocate(entry, num_rows * slot.width, slot.dtype)


class WorkerMemory:
    """`StepMemory` of one worker: its part of `SharedRows`, and one of its arenas."""

    def __init__(
        self,
        arena: Arena,
        layout: FrameLayout,
        rows: SharedRows,
        parity: int,
        envs: range,
        num_agents: int,
    ) -> None:
        mine = slice(envs.start * num_agents, envs.stop * num_agents)
        self.rows: FrameMemory = RowMemory(arena, rows.lengths[parity][:, mine])
        self.final: FrameMemory = FinalMemory(arena, layout)
        self.reward = rows.reward[parity][mine]
        self.terminated = rows.terminated[parity][mine]
        self.truncated = rows.truncated[parity][mine]
        self.is_over = rows.is_over[parity][envs.start : envs.stop]


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
