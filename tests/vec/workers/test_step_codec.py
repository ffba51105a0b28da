"""Transport of a step from a worker to its parent: lossless for all observations."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import Entity, Episode, Metric, ObsSpace
from entity_env.batching.entity_buffer import Batcher
from entity_env.batching.frame import FrameLayout, LocalMemory, concat_frames
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.errors import ClosedError
from entity_env.vec.step import BatchStep, StepMemory, local_memory
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.step_codec import SharedRows, StepReader, StepWriter
from tests.helpers.batches import assert_same, finished_of
from tests.helpers.strategies import FEW, FLOATS, SCHEMA, Scene, scenes, untyped

INTS64 = st.integers(-(2**62), 2**62)
NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
METRICS = st.dictionaries(NAMES, st.floats(allow_nan=False), max_size=3)
EPISODES = st.builds(
    Episode,
    reward=st.floats(allow_nan=False),
    length=st.integers(0, 2**40),
    terminated=st.booleans(),
    truncated=st.booleans(),
    seed=st.integers(0, 2**63 - 1),
    number=st.integers(0, 2**40),
    metrics=METRICS,
)


class Told:
    """A step as sent by the worker with environments 2 to 4 of 7."""

    def __init__(self, draw: st.DrawFn, *, num_rows: int = 3) -> None:
        self.scenes = [draw(scenes()) for _ in range(num_rows)]
        self.reward = [draw(FLOATS) for _ in range(num_rows)]
        flags = st.lists(st.booleans(), min_size=num_rows, max_size=num_rows)
        self.flags = [draw(flags) for _ in range(3)]
        rows = st.lists(st.integers(0, num_rows - 1), max_size=3)
        self.ended = [(row, draw(FLOATS), draw(EPISODES)) for row in draw(rows)]
        self.lost = [(row, draw(FLOATS), draw(EPISODES)) for row in draw(rows)]
        shows_ends = draw(st.booleans())
        self.finals = [draw(scenes()) for _ in self.ended] if shows_ends else []
        self.metrics = {name: Metric(2, v, v, v) for name, v in draw(METRICS).items()}

    def write(self, memory: StepMemory) -> BatchStep:
        reward, *flags = memory.arrays
        reward[:] = self.reward
        for array, values in zip(flags, self.flags, strict=True):
            array[:] = values
        return BatchStep(
            gathered(self.scenes).write(memory.rows),
            *memory.arrays,
            final=gathered(self.finals, ask=False).write(memory.final) if self.finals else None,
            ended=finished_of(self.ended),
            lost=finished_of(self.lost),
            metrics=dict(self.metrics),
        )


steps = st.composite(Told)


def gathered(scenes: Sequence[Scene], *, ask: bool = True) -> ObsBatcher:
    writer = ObsBatcher(SCHEMA, "env {}".format)
    for scene in scenes:
        writer.add(scene.obs(), scene.asked if ask else ())
    return writer


LAYOUT = Batcher(SCHEMA.obs_space(), SCHEMA.action_space()).layout


@contextmanager
def pair(
    layout: FrameLayout, envs: range = range(2, 5), num_envs: int = 7
) -> Iterator[tuple[StepWriter, StepReader]]:
    """Both sides of the channel, in this process."""
    block = SharedBlock.create(SharedRows.num_bytes(layout, num_envs, 1))
    rows = SharedRows(block, layout, num_envs, 1)
    writer, reader = StepWriter(rows, envs), StepReader(rows, envs)
    try:
        yield writer, reader
    finally:
        writer.close()
        reader.close()
        block.close()


def carried(told: Told, writer: StepWriter, reader: StepReader, parity: int) -> BatchStep:
    """A step after writing and reading."""
    writer.begin(parity)
    writer.end(parity, told.write(writer.memory[parity]))
    hand_over(writer, reader, parity)
    return reader.read(parity)


def hand_over(writer: StepWriter, reader: StepReader, parity: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arena = writer.unknown_arena(parity, 0)
        if arena is not None and not arena.number:
            arena.number = 1
            arena.block.send(ours, arena.number)
            reader.receive(parity, theirs, arena.number)


def assert_same_step(step: BatchStep, expected: BatchStep, first_row: int) -> None:
    num_rows = len(step.reward)
    ids = np.arange(num_rows), np.zeros(num_rows, dtype=np.int64)
    for name in ("reward", "terminated", "truncated", "is_over"):
        assert_array_equal(getattr(step, name), getattr(expected, name), err_msg=name)
    for ended, wanted in ((step.ended, expected.ended), (step.lost, expected.lost)):
        assert_array_equal(ended.rows, wanted.rows + first_row)
        assert_array_equal(ended.ints[1:], wanted.ints[1:])
        assert_array_equal(ended.floats, wanted.floats)
        for row, one, other in zip(ended.rows, ended.episodes, wanted.episodes, strict=True):
            for name in ("reward", "length", "terminated", "truncated", "seed", "number"):
                assert getattr(one, name) == getattr(other, name), name
            assert one.env_id == row
            assert dict(one.metrics) == dict(other.metrics)
    assert step.metrics == expected.metrics
    step.ended = expected.ended
    step.lost = expected.lost
    assert_same(step.vec_obs(*ids), expected.vec_obs(*ids))
    assert (step.final is None) == (expected.final is None)
    if step.final is not None and expected.final is not None:
        assert_array_equal(step.final.lengths, expected.final.lengths)


@pytest.mark.slow
@FEW
@given(st.lists(steps(), min_size=1, max_size=4))
def test_a_step_arrives_as_it_was_written(run: list[Told]) -> None:
    with pair(LAYOUT) as (writer, reader):
        for number, told in enumerate(run):
            step = carried(told, writer, reader, number % 2)
            assert_same_step(step, told.write(local_memory(3, 3)), first_row=2)


@pytest.mark.slow
@settings(FEW, max_examples=15)
@given(steps(), steps(), st.integers(0, 200_000))
def test_an_arena_that_grows_in_the_middle_of_a_step(
    first: Told, second: Told, num_pixels: int
) -> None:
    """With much data between rows and final observations, they are in several blocks."""
    with pair(LAYOUT) as (writer, reader):
        carried(first, writer, reader, 0)
        writer.begin(0)
        step = second.write(writer.memory[0])
        for name, size in (("rows", num_pixels), ("more", 3 * num_pixels)):
            where = LAYOUT.entities["Rock"].visible
            memory = writer.memory[0].final
            memory.allocate(where, size)[:] = len(name) == 4
        writer.end(0, step)
        hand_over(writer, reader, 0)
        step = reader.read(0)
        step.final = None if not second.finals else step.final
        local = second.write(local_memory(3, 3))
        if step.final is not None:
            step.final.slots[LAYOUT.entities["Rock"].visible.index] = None
            assert local.final is not None
            local.final.slots[LAYOUT.entities["Rock"].visible.index] = None
        assert_same_step(step, local, first_row=2)


THINGS = FrameLayout(ObsSpace([], {"Thing": Entity(["x"])}), {})


def thing_step(memory: StepMemory, counts: Sequence[int], value: float) -> BatchStep:
    """A step with these numbers of entities, all with one value."""
    writer = Batcher(ObsSpace([], {"Thing": Entity(["x"])}), {})
    for count in counts:
        writer.buffers["Thing"].append(np.full((count, 1), value, dtype=np.float32))
        writer.end_row()
    return BatchStep(writer.write(memory.rows), *memory.arrays)


@FEW
@given(st.lists(st.lists(st.integers(0, 9_000), min_size=3, max_size=3), min_size=1, max_size=6))
def test_blocks_that_are_too_small_grow(run: list[list[int]]) -> None:
    with pair(THINGS) as (writer, reader):
        for number, counts in enumerate(run):
            parity = number % 2
            writer.begin(parity)
            writer.end(parity, thing_step(writer.memory[parity], counts, number))
            hand_over(writer, reader, parity)
            things = reader.read(parity).frame.features["Thing"]
            assert things.lengths.tolist() == counts
            assert things.values.tolist() == [[number]] * sum(counts)


def test_a_step_that_failed_after_growing_leaves_nothing_behind() -> None:
    with pair(THINGS) as (writer, reader):
        for value, is_complete in ((1.0, True), (2.0, False), (3.0, True)):
            writer.begin(0)
            count = 1 if value == 3 else 40_000 * int(value)
            step = thing_step(writer.memory[0], [count] * 3, value)
            if is_complete:
                writer.end(0, step)
        hand_over(writer, reader, 0)
        assert reader.read(0).frame.features["Thing"].values.tolist() == [[3.0]] * 3


def test_names_of_metrics_arrive_whatever_was_not_read_before() -> None:
    def write(parity: int, **metrics: float) -> None:
        writer.begin(parity)
        step = thing_step(writer.memory[parity], [1] * 3, 0.0)
        step.metrics = {name: Metric(1, value, value, value) for name, value in metrics.items()}
        writer.end(parity, step)

    def read(parity: int) -> dict[str, float]:
        hand_over(writer, reader, parity)
        return {name: metric.sum for name, metric in reader.read(parity).metrics.items()}

    with pair(THINGS) as (writer, reader):
        write(0, unread=1)
        bad: dict[str, float] = {"first": 3, "bad": untyped("no number")}
        with pytest.raises(ValueError, match="could not convert"):
            write(1, **bad)
        write(0, later=4, unread=5)
        assert read(0) == {"later": 4, "unread": 5}
        write(1, unread=6, new=7)
        assert read(1) == {"unread": 6, "new": 7}
        write(0)
        assert read(0) == {}


def test_what_was_shown_last_stays_whole_while_the_next_step_is_written() -> None:
    with pair(THINGS) as (writer, reader):
        writer.begin(0)
        writer.end(0, thing_step(writer.memory[0], [1, 2, 3], 1.0))
        hand_over(writer, reader, 0)
        shown = reader.read(0).frame.features["Thing"]
        writer.begin(1)
        thing_step(writer.memory[1], [50_000, 0, 7], 2.0)  # and the worker dies here
        assert shown.lengths.tolist() == [1, 2, 3]
        assert shown.values.tolist() == [[1.0]] * 6


def test_a_block_of_zeros_is_not_read() -> None:
    with pair(THINGS) as (_, reader), pytest.raises(ValueError, match="has not been received"):
        reader.read(0)


def test_views_outlive_the_reader() -> None:
    with pair(THINGS) as (writer, reader):
        writer.begin(0)
        writer.end(0, thing_step(writer.memory[0], [2, 2, 2], 5.0))
        hand_over(writer, reader, 0)
        things = reader.read(0).frame.features["Thing"]
    assert things.values.tolist() == [[5.0]] * 6
    with pytest.raises((ValueError, ClosedError)):
        reader.read(0)


@pytest.mark.slow
@FEW
@given(st.lists(st.lists(scenes(), min_size=1, max_size=3), min_size=1, max_size=4))
def test_batches_side_by_side_are_the_batch_made_at_once(parts: list[list[Scene]]) -> None:
    """Also if some batches have no actors, or only some hide entities or mask choices."""
    frames = [gathered(part).write(LocalMemory()) for part in parts]
    lengths = np.concatenate([frame.lengths for frame in frames], axis=1)
    together = concat_frames(LAYOUT, frames, lengths)
    whole = gathered([scene for part in parts for scene in part]).write(LocalMemory())
    assert_array_equal(together.lengths, whole.lengths)
    for slot in LAYOUT.slots:
        one, two = together.slots[slot.index], whole.slots[slot.index]
        empty = np.zeros(0, dtype=slot.dtype)
        assert_array_equal(
            empty if one is None else one, empty if two is None else two, err_msg=str(slot)
        )
