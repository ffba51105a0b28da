"""Batcher: rows of many observations in reused memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import Entity, ObsSpace, RaggedArray, SchemaError
from entity_env.batching.entity_buffer import Batcher
from tests.helpers.batches import finish
from tests.helpers.strategies import FLOATS, untyped


def writer_of(width: int) -> Batcher:
    """Gathers observations of one entity type."""
    space = ObsSpace([], {"Thing": Entity([f"f{i}" for i in range(width)])})
    return Batcher(space, {}, "env {}".format)


def things(writer: Batcher) -> RaggedArray[np.float32]:
    return finish(writer).features["Thing"]


Parts = list[list[tuple[bool, int]]]
"""For every observation, parts given as an array (True) or as numbers, with their row counts."""
PARTS = st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=4), max_size=5)


@settings(max_examples=40)
@given(PARTS, PARTS, st.integers(0, 3))
def test_arrays_and_numbers_mix(first: Parts, second: Parts, width: int) -> None:
    writer = writer_of(width)
    for batch in (first, second):
        writer.clear()
        expected = [write_observation(writer, parts) for parts in batch]
        result = things(writer)
        assert result.lengths.tolist() == [len(block) for block in expected]
        for got, block in zip(result, expected, strict=True):
            assert_array_equal(got, block)


def write_observation(writer: Batcher, parts: list[tuple[bool, int]]) -> NDArray[np.float32]:
    rows = writer.buffers["Thing"]
    rng = np.random.default_rng(len(parts))
    blocks = [np.zeros((0, rows.width), dtype=np.float32)]
    for as_array, count in parts:
        block = rng.normal(size=(count, rows.width)).astype(np.float32)
        before = rows.num_entities
        if as_array:
            rows.append(block)
        else:
            rows.pending.extend(block.ravel().tolist() if rows.width else [0.0] * count)
        assert rows.num_entities == before + count
        blocks.append(block)
    writer.end_row()
    return np.concatenate(blocks)


@given(st.lists(FLOATS))
def test_numbers_come_out_as_they_went_in(values: list[float]) -> None:
    writer = writer_of(1)
    writer.buffers["Thing"].pending.extend(values)
    writer.end_row()
    assert things(writer).values.ravel().tolist() == values


def test_memory_is_used_again() -> None:
    writer = writer_of(2)
    writer.buffers["Thing"].pending.extend([1.0, 2.0])
    writer.end_row()
    first = things(writer).values
    writer.clear()
    writer.buffers["Thing"].append(np.array([[3.0, 4.0]], dtype=np.float32))
    writer.end_row()
    assert np.shares_memory(first, things(writer).values)
    assert first.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("bad", [None, "1", [0.0]])
def test_a_bad_number_is_found_wherever_it_lies(bad: object) -> None:
    for before in (0, 1, 3):
        writer = writer_of(2)
        rows = writer.buffers["Thing"]
        rows.append(np.zeros((5, 2), dtype=np.float32))
        writer.end_row()
        for _ in range(before):
            rows.pending.extend([0.0, 0.0])
            writer.end_row()
        rows.pending.extend([0.0, 0.0, 0.0, untyped(bad)])
        writer.end_row()
        with pytest.raises(SchemaError, match=f"env {before + 1}: .*Thing: feature 'f1' of row 1"):
            finish(writer)


def test_a_value_that_is_not_finite_is_found_wherever_it_lies() -> None:
    for number, row in ((0, 0), (1, 2), (3, 1)):
        writer = writer_of(2)
        for i in range(4):
            block = np.zeros((i + 1, 2), dtype=np.float32)
            if i == number:
                block[min(row, i), 1] = -np.inf
            writer.buffers["Thing"].append(block)
            writer.end_row()
        place = f"env {number}: .*'f1' of row {min(row, number)} must be finite, got -inf"
        with pytest.raises(SchemaError, match=place):
            finish(writer)


def test_an_empty_batch_has_no_rows() -> None:
    batch = finish(Batcher(ObsSpace(["t"], {"A": Entity(["x"])}), {}))
    assert len(batch) == 0
    assert {name: len(rows) for name, rows in batch.features.items()} == {"A": 0, "__global__": 0}


def test_an_idle_agent_has_a_row_of_nothing() -> None:
    writer = Batcher(ObsSpace(["t"], {"A": Entity(["x"])}), {})
    writer.end_row()
    writer.end_row()
    batch = finish(writer)
    assert batch.features["A"].lengths.tolist() == [0, 0]
    assert not batch.is_ready.any()
    assert not batch.done.any()


def test_entities_nobody_hides_are_visible() -> None:
    writer = Batcher(ObsSpace([], {"A": Entity(["x"])}), {})
    for flags in ([True], None, [False, True]):
        count = 1 if flags is None else len(flags)
        writer.buffers["A"].append(np.zeros((count, 1), dtype=np.float32))
        if flags is not None:
            writer.hide("A", flags, count)
        writer.end_row()
    assert [row.tolist() for row in finish(writer).visible["A"]] == [[True], [True], [False, True]]


def test_metrics_of_all_observations_are_merged() -> None:
    writer = Batcher(ObsSpace(), {})
    for value in (1.0, 3.0):
        writer.add_metrics({"won": value})
        writer.end_row()
    metric = finish(writer).metrics["won"]
    assert (metric.count, metric.sum, metric.min, metric.max, metric.mean) == (2, 4, 1, 3, 2)
