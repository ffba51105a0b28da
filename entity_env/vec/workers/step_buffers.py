"""Shared memory of steps: rows of fixed size of all workers, and an arena per worker and step."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import FrameLayout, Slot
from entity_env.vec.step import StepArrays
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
        """The rows of some environments."""
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
    """Memory of one step of one worker: a directory, then the arrays."""

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


class ArenaMemory:
    """`FrameMemory` of rows or of last observations, in an arena.

    Its slots begin at entry `first` of the directory. Without an array of lengths outside of the
    arena these are an entry, too.
    """

    def __init__(self, arena: Arena, first: int, lengths: NDArray[np.int64] | None) -> None:
        self._arena = arena
        self._first = first
        self._lengths = lengths

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        if self._lengths is not None:
            return self._lengths
        entry, shape = 2 * len(layout.slots) + FINAL_LENGTHS, (layout.num_lengths, num_rows)
        return self._arena.allocate(entry, shape[0] * shape[1], np.dtype(np.int64)).reshape(shape)

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        entry = self._first + slot.index
        return self._arena.allocate(entry, num_rows * slot.width, slot.dtype)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
