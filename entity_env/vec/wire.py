"""How a worker hands a step to its parent: arrays in shared memory, and a directory of them.

Nothing is pickled. A worker has two arenas and uses them in turns, so that what it showed last
stays whole while it writes the next step, and also when it dies in the middle of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.episode import Episode
from entity_env.frame import Frame, FrameLayout, FrameMemory, Slot
from entity_env.vec.batch_step import BatchStep, Ended
from entity_env.vec.shared_block import SharedBlock
from entity_env.vec_obs import Metric

_ALIGN: Final = 64
_FIRST_BYTES: Final = 1 << 16
_ABSENT: Final = -1

# After the slots of the rows and those of last observations, the directory lists:
_FINAL_LENGTHS: Final = 0
_ENDED_INTS: Final = 1
_ENDED_FLOATS: Final = 2
_EPISODE_METRICS: Final = 3
_BATCH_METRICS: Final = 4
_NAMES: Final = 5
_NUM_EXTRAS: Final = 6

_ENDED_WIDTH: Final = 9
"""Row, agent, length, terminated, truncated, seed, number, how many metrics, whether lost."""


class Rows:
    """What every row of all workers has one of, in one block: lengths, reward and flags; twice.

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

    @staticmethod
    def num_bytes(layout: FrameLayout, num_rows: int, num_envs: int) -> int:
        """Size of the block."""
        half = _aligned(8 * layout.num_lengths * num_rows) + _aligned(4 * num_rows)
        return 2 * (half + _aligned(2 * num_rows + num_envs))


class Arena:
    """Memory of one step of one worker: arrays one after another, behind their directory.

    Args:
        layout: of the batch.
    """

    def __init__(self, layout: FrameLayout) -> None:
        self.num_entries = 2 * len(layout.slots) + _NUM_EXTRAS
        self.block = SharedBlock.create(_FIRST_BYTES + _aligned(16 * self.num_entries))
        self.is_new = True
        """The parent has not got this block yet."""
        self._words = self.block.buffer.cast("q")
        self._used = 0
        self._outgrown: list[tuple[memoryview, int]] = []
        """Blocks of this step that were too small, and how much of them was in use."""

    def clear(self) -> None:
        """Begins a new step."""
        self._used = _aligned(16 * self.num_entries)
        words = self._words
        for i in range(1, 2 * self.num_entries, 2):
            words[i] = _ABSENT

    def allocate(self, entry: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """`(count,)` of a dtype, to be filled before `seal`."""
        offset = self._used
        end = offset + count * dtype.itemsize
        if end > self.block.num_bytes:
            self._grow(end)
        self._words[2 * entry] = offset
        self._words[2 * entry + 1] = count
        self._used = _aligned(end)
        return np.frombuffer(self.block.buffer, dtype, count, offset)

    def put(self, entry: int, array: NDArray[Any]) -> None:
        """Copies an array of any shape."""
        self.allocate(entry, array.size, array.dtype)[:] = array.reshape(-1)

    def seal(self) -> None:
        """Completes the step: collects what was written into blocks that turned out too small."""
        start = _aligned(16 * self.num_entries)
        for outgrown, end in self._outgrown:
            self.block.buffer[start:end] = outgrown[start:end]
            start = end
        self._outgrown.clear()

    def _grow(self, num_bytes: int) -> None:
        larger = SharedBlock.create(2 * num_bytes)
        directory = 16 * self.num_entries
        larger.buffer[:directory] = self.block.buffer[:directory]
        self._outgrown.append((self.block.buffer, self._used))
        self.block.close()
        self.block = larger
        self._words = larger.buffer.cast("q")
        self.is_new = True


class RowMemory:
    """`FrameMemory` of the rows of a step: lengths in the common block, the rest in the arena."""

    def __init__(self, arena: Arena, lengths: NDArray[np.int64]) -> None:
        self._arena = arena
        self._lengths = lengths

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        return self._lengths

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        return self._arena.allocate(slot.index, num_rows * slot.width, slot.dtype)


class FinalMemory:
    """`FrameMemory` of last observations: all of it in the arena."""

    def __init__(self, arena: Arena, layout: FrameLayout) -> None:
        self._arena = arena
        self._first = len(layout.slots)
        self._extras = 2 * len(layout.slots)

    def lengths(self, layout: FrameLayout, num_rows: int) -> NDArray[np.int64]:
        flat = self._arena.allocate(
            self._extras + _FINAL_LENGTHS, layout.num_lengths * num_rows, np.dtype(np.int64)
        )
        return flat.reshape(layout.num_lengths, num_rows)

    def allocate(self, slot: Slot, num_rows: int) -> NDArray[Any]:
        entry = self._first + slot.index
        return self._arena.allocate(entry, num_rows * slot.width, slot.dtype)


class Share:
    """`StepMemory` of one worker: its share of the rows of all, and one of its arenas."""

    def __init__(
        self,
        arena: Arena,
        layout: FrameLayout,
        rows: Rows,
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


class StepWriter:
    """The worker's side: two arenas, and the names of metrics that the parent knows already.

    Args:
        layout: of the batch.
        rows: of all workers.
        envs: of this worker.
        num_agents: rows an environment.
    """

    def __init__(self, layout: FrameLayout, rows: Rows, envs: range, num_agents: int) -> None:
        self._extras = 2 * len(layout.slots)
        self._arenas = [Arena(layout), Arena(layout)]
        self._names: dict[str, int] = {}
        self.memory = [
            Share(arena, layout, rows, parity, envs, num_agents)
            for parity, arena in enumerate(self._arenas)
        ]

    def begin(self, parity: int) -> None:
        """Begins to write a step."""
        self._arenas[parity].clear()

    def end(self, parity: int, step: BatchStep) -> None:
        """Completes a step by what is no array."""
        ended, metrics = [*step.ended, *step.lost], step.metrics
        arena, num_names = self._arenas[parity], len(self._names)
        if ended:
            self._put_ended(arena, ended, len(step.lost))
        if metrics:
            rows = [(self._id(k), m.count, m.sum, m.min, m.max) for k, m in metrics.items()]
            arena.put(self._extras + _BATCH_METRICS, np.array(rows, dtype=np.float64))
        if len(self._names) > num_names:
            new = "\0".join(list(self._names)[num_names:]).encode()
            arena.put(self._extras + _NAMES, np.frombuffer(new, dtype=np.uint8))
        arena.seal()

    def new_blocks(self, parity: int) -> list[SharedBlock]:
        """What the parent must be sent before it can read the step."""
        arena = self._arenas[parity]
        is_new, arena.is_new = arena.is_new, False
        return [arena.block] if is_new else []

    def close(self) -> None:
        """Lets go of the memory."""
        for arena in self._arenas:
            arena.block.close()

    def _put_ended(self, arena: Arena, ended: Sequence[Ended], num_lost: int) -> None:
        num_kept = len(ended) - num_lost
        ints = np.array(
            [_integers(one, i >= num_kept) for i, one in enumerate(ended)], dtype=np.int64
        )
        floats = np.array([(one.reward, one.episode.reward) for one in ended], dtype=np.float64)
        arena.put(self._extras + _ENDED_INTS, ints)
        arena.put(self._extras + _ENDED_FLOATS, floats)
        metrics = [
            (self._id(name), value) for one in ended for name, value in one.episode.metrics.items()
        ]
        if metrics:
            arena.put(self._extras + _EPISODE_METRICS, np.array(metrics, dtype=np.float64))

    def _id(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


class StepReader:
    """The parent's side of one worker.

    Args:
        layout: of the batch.
        rows: of all workers.
        envs: of the worker.
        num_agents: rows an environment.
    """

    def __init__(self, layout: FrameLayout, rows: Rows, envs: range, num_agents: int) -> None:
        self._layout = layout
        self._rows = rows
        self._envs = envs
        self._mine = slice(envs.start * num_agents, envs.stop * num_agents)
        self._num_agents = num_agents
        self._blocks: list[SharedBlock | None] = [None, None]
        self._names: list[str] = []

    def receive(self, parity: int, connection: Connection[Any, Any]) -> None:
        """Takes over a new arena, in place of the one before."""
        old, self._blocks[parity] = self._blocks[parity], SharedBlock.receive(connection)
        if old is not None:
            old.close()

    def read(self, parity: int) -> BatchStep:
        """The step of one arena, as views."""
        block = self._blocks[parity]
        if block is None:
            raise ValueError("the arena has not been received")
        buffer, layout = block.buffer, self._layout
        num_slots = len(layout.slots)
        extras = 2 * num_slots
        count = 2 * (extras + _NUM_EXTRAS)
        words = np.frombuffer(buffer, np.int64, count).tolist()
        ended, lost = self._ended(buffer, words, extras)
        rows = self._rows
        return BatchStep(
            frame=Frame(layout, rows.lengths[parity][:, self._mine], self._slots(buffer, words, 0)),
            reward=rows.reward[parity][self._mine],
            terminated=rows.terminated[parity][self._mine],
            truncated=rows.truncated[parity][self._mine],
            is_over=rows.is_over[parity][self._envs.start : self._envs.stop],
            final=self._final(buffer, words, num_slots) if ended else None,
            ended=ended,
            lost=lost,
            metrics=self._metrics(buffer, words, extras),
        )

    def close(self) -> None:
        """Lets go of the memory."""
        for block in self._blocks:
            if block is not None:
                block.close()
        self._blocks = [None, None]

    @property
    def num_bytes(self) -> int:
        """Size of both arenas."""
        return sum(block.num_bytes for block in self._blocks if block is not None)

    def _slots(
        self, buffer: memoryview, words: Sequence[int], first: int
    ) -> list[NDArray[Any] | None]:
        return [
            None
            if words[2 * (first + slot.index) + 1] < 0
            else np.frombuffer(
                buffer,
                slot.dtype,
                words[2 * (first + slot.index) + 1],
                words[2 * (first + slot.index)],
            )
            for slot in self._layout.slots
        ]

    def _final(self, buffer: memoryview, words: Sequence[int], num_slots: int) -> Frame | None:
        lengths = _array(buffer, words, 2 * num_slots + _FINAL_LENGTHS, np.int64)
        if lengths is None:
            return None
        slots = self._slots(buffer, words, num_slots)
        return Frame(self._layout, lengths.reshape(self._layout.num_lengths, -1), slots)

    def _ended(
        self, buffer: memoryview, words: Sequence[int], extras: int
    ) -> tuple[list[Ended], list[Ended]]:
        """The episodes that ended, and those that were lost."""
        self._learn_names(buffer, words, extras)
        ints = _array(buffer, words, extras + _ENDED_INTS, np.int64)
        floats = _array(buffer, words, extras + _ENDED_FLOATS, np.float64)
        ended: list[Ended] = []
        lost: list[Ended] = []
        if ints is None or floats is None:
            return ended, lost
        values = _array(buffer, words, extras + _EPISODE_METRICS, np.float64)
        pairs = iter([] if values is None else values.reshape(-1, 2).tolist())
        numbers_of_all = ints.reshape(-1, _ENDED_WIDTH).tolist()
        for numbers, reals in zip(numbers_of_all, floats.reshape(-1, 2).tolist(), strict=True):
            metrics = {self._names[int(k)]: v for k, v in islice(pairs, numbers[7])}
            (lost if numbers[8] else ended).append(self._one_ended(numbers, reals, metrics))
        return ended, lost

    def _one_ended(
        self, numbers: Sequence[int], reals: Sequence[float], metrics: Mapping[str, float]
    ) -> Ended:
        row, agent_id, length, terminated, truncated, seed, number = numbers[:7]
        row += self._mine.start
        episode = Episode(
            reward=reals[1],
            length=length,
            terminated=bool(terminated),
            truncated=bool(truncated),
            seed=seed,
            number=number,
            env_id=row // self._num_agents,
            agent_id=agent_id,
            metrics=metrics,
        )
        return Ended(row, reals[0], episode)

    def _metrics(self, buffer: memoryview, words: Sequence[int], extras: int) -> dict[str, Metric]:
        flat = _array(buffer, words, extras + _BATCH_METRICS, np.float64)
        rows = [] if flat is None else flat.reshape(-1, 5).tolist()
        return {self._names[int(i)]: Metric(int(n), s, low, high) for i, n, s, low, high in rows}

    def _learn_names(self, buffer: memoryview, words: Sequence[int], extras: int) -> None:
        names = _array(buffer, words, extras + _NAMES, np.uint8)
        if names is not None:
            self._names += names.tobytes().decode().split("\0")


def _integers(ended: Ended, is_lost: bool) -> tuple[int, ...]:
    episode = ended.episode
    return (
        ended.row,
        episode.agent_id,
        episode.length,
        episode.terminated,
        episode.truncated,
        episode.seed,
        episode.number,
        len(episode.metrics),
        is_lost,
    )


def _array(
    buffer: memoryview, words: Sequence[int], entry: int, dtype: type[np.generic]
) -> NDArray[Any] | None:
    offset, count = words[2 * entry], words[2 * entry + 1]
    return None if count < 0 else np.frombuffer(buffer, dtype, count, offset)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
