"""RaggedArray behaves like a list of arrays."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import RaggedArray, SchemaError, UsageError
from tests.helpers.strategies import row_lists, untyped

Rows = list[NDArray[np.float32]]


def ragged(rows: Rows) -> RaggedArray[np.float32]:
    return RaggedArray.from_rows(rows, np.float32)


def assert_holds(array: RaggedArray[np.float32], rows: Rows) -> None:
    assert array.lengths.tolist() == [len(row) for row in rows]
    assert [row.tolist() for row in array] == [row.tolist() for row in rows]


@given(row_lists())
def test_holds_the_rows_it_was_made_of(rows: Rows) -> None:
    array = ragged(rows)
    assert len(array) == len(rows)
    assert array.values.shape == (sum(map(len, rows)), rows[0].shape[1])
    assert array.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert array.row_index.tolist() == [i for i, row in enumerate(rows) for _ in row]
    assert_holds(array, rows)


@given(row_lists(), st.data())
def test_an_integer_gives_a_view(rows: Rows, data: st.DataObject) -> None:
    i = data.draw(st.integers(-len(rows), len(rows) - 1))
    array = ragged(rows)
    row = array[np.int64(i)] if data.draw(st.booleans()) else array[i]
    assert row.tolist() == rows[i].tolist()
    assert not row.size or np.shares_memory(row, array.values)


@given(row_lists(), st.data())
def test_a_selection_gives_copies(rows: Rows, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1)))
    expected = [rows[i] for i in chosen]
    assert_holds(ragged(rows)[chosen], expected)
    assert_holds(ragged(rows)[np.array(chosen, dtype=np.int64)], expected)


@given(row_lists(), st.data())
def test_a_mask_or_slice_selects(rows: Rows, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    some = data.draw(st.slices(len(rows)))
    array = ragged(rows)
    expected = [row for row, flag in zip(rows, flags, strict=True) if flag]
    assert_holds(array[np.array(flags, dtype=np.bool_)], expected)
    assert_holds(array[some], rows[some])


@given(row_lists())
def test_a_copy_and_a_pickle_are_equal_and_own_their_memory(rows: Rows) -> None:
    array = ragged(rows)
    for copy in (array.copy(), pickle.loads(pickle.dumps(array))):
        assert copy == array
        assert not np.shares_memory(copy.values, array.values)
        assert not np.shares_memory(copy.lengths, array.lengths)


@given(row_lists(), st.lists(st.integers(0, 6)))
def test_concatenation_is_that_of_lists(rows: Rows, cuts: list[int]) -> None:
    parts = [rows[i:j] for i, j in pairwise([0, *sorted(cuts), len(rows)])]
    width = rows[0].shape[1]
    arrays = [
        ragged(part) if part else RaggedArray(np.zeros((0, width), np.float32), np.zeros(0, int))
        for part in parts
    ]
    joined = RaggedArray.concat(arrays)
    assert_holds(joined, rows)
    assert joined.values.shape == ragged(rows).values.shape
    assert not any(np.shares_memory(joined.values, array.values) for array in arrays)


def test_concatenation_needs_one_kind_of_rows() -> None:
    flat, wide = (RaggedArray(np.zeros(shape), [1]) for shape in ((1,), (1, 2)))
    with pytest.raises(SchemaError, match=r"got \(\) float64 and \(2,\) float64"):
        RaggedArray.concat([flat, wide])
    with pytest.raises(SchemaError, match=r"float32 and .* float64"):
        RaggedArray.concat(untyped([wide, RaggedArray(np.zeros((1, 2), np.float32), [1])]))
    with pytest.raises(SchemaError, match="got no arrays"):
        RaggedArray.concat(untyped([]))


@given(row_lists(), st.integers(0, 2), st.booleans())
def test_padding_fills_up_with_zeros(rows: Rows, more: int, is_given: bool) -> None:
    size = max(map(len, rows)) + more * is_given
    array = ragged(rows)
    dense, present = array.pad(size if is_given else None)
    width = rows[0].shape[1]
    assert dense.shape == (len(rows), size, width)
    assert dense.dtype == np.float32
    for i, row in enumerate(rows):
        assert dense[i].tolist() == [*row.tolist(), *[[0.0] * width] * (size - len(row))]
        assert present[i].tolist() == [True] * len(row) + [False] * (size - len(row))
    assert not np.shares_memory(dense, array.values)


def test_padding_cuts_nothing_off() -> None:
    array = RaggedArray(np.zeros(3), [1, 2])
    with pytest.raises(UsageError, match="sequence 1 has 2 rows, but max_rows is 1"):
        array.pad(1)
    with pytest.raises(UsageError, match="max_rows must be an integer, 0 or more: got -1"):
        array.pad(-1)
    empty, present = array[[]].pad(4)
    assert empty.shape == present.shape == (0, 4)


@given(row_lists())
def test_tensors_hold_the_rows_in_memory_of_their_own(rows: Rows) -> None:
    array = ragged(rows)
    tensors = array.to_torch()
    assert tensors.values.dtype == torch.float32
    assert tensors.values.tolist() == array.values.tolist()
    assert tensors.lengths.tolist() == array.lengths.tolist()
    assert tensors.row_index.tolist() == array.row_index.tolist()
    width = rows[0].shape[1]
    sums = torch.zeros(len(rows), width).index_add(0, tensors.row_index, tensors.values)
    expected = [row.sum(axis=0) for row in rows]
    np.testing.assert_allclose(sums.numpy(), expected, atol=1e-5)
    array.values[:] = np.nan
    assert not tensors.values.isnan().any()


def test_equality_needs_the_same_values_and_lengths() -> None:
    array = RaggedArray(np.arange(3), [1, 2])
    assert array != RaggedArray(np.arange(3), [2, 1])
    assert array != RaggedArray(np.arange(3) + 1, [1, 2])
    assert array != [[0], [1, 2]]
    with pytest.raises(TypeError):
        hash(array)


def test_arrays_are_kept() -> None:
    values, lengths = np.arange(3), np.array([1, 2])
    array = RaggedArray(values, lengths)
    assert array.values is values
    assert array.lengths is lengths
    assert RaggedArray(values, lengths.astype(np.int32)).lengths.dtype == np.int64
    assert RaggedArray(values[:0], np.array([], dtype=np.str_)).lengths.dtype == np.int64


def test_rows_without_a_width_take_it_from_the_others() -> None:
    width_two = np.zeros((0, 2))
    assert RaggedArray.from_rows([[], [[1, 2]]], np.float32).values.shape == (1, 2)
    assert RaggedArray.from_rows([[], width_two], np.float32).values.shape == (0, 2)
    assert RaggedArray.from_rows([[], np.zeros((3, 0))], np.float32).values.shape == (3, 0)
    assert RaggedArray.from_rows([[], []], np.float32).values.shape == (0,)


def test_says_what_it_is() -> None:
    array = RaggedArray(np.zeros((3, 2)), [1, 2])
    assert repr(array) == "RaggedArray(2 sequences, 3 rows, shape (3, 2), float64)"


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 1], "add up to 2 rows, but values has 3"),
        ([4, -1], "none of them negative"),
        ([[1, 2]], r"one-dimensional.*\(1, 2\)"),
        (3, "one-dimensional"),
        ([1.0, 2.0], "integers.*float64"),
        ([True, False], "integers"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        RaggedArray(np.zeros(3), lengths)


@st.composite
def hostile_lengths(draw: st.DrawFn) -> tuple[int, NDArray[Any]]:
    """A number of rows, and lengths whose sum often equals it only modulo 2**64."""
    lengths = draw(st.lists(st.integers(0, 3), max_size=4))
    num_rows = sum(lengths)
    lengths += draw(st.sampled_from([[], [2**62] * 4, [2**63 - 1] * 2 + [2], [2**63] * 2]))
    lengths += draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=1))
    wide = max(lengths, default=0) >= 2**63
    if wide:
        lengths = [abs(length) for length in lengths]
    shuffled = draw(st.permutations(lengths))
    return num_rows, np.array(shuffled, dtype=np.uint64 if wide else np.int64)


@given(hostile_lengths())
def test_lengths_are_added_up_exactly(case: tuple[int, NDArray[Any]]) -> None:
    num_rows, lengths = case
    exact = lengths.tolist()
    values = np.zeros((num_rows, 0), dtype=np.bool_)
    if min(exact, default=0) >= 0 and sum(exact) == num_rows:
        assert RaggedArray(values, lengths).lengths.tolist() == exact
    else:
        with pytest.raises(SchemaError, match=r"none of them negative|lengths add up to"):
            RaggedArray(values, lengths)


def test_rows_without_memory_are_counted_exactly() -> None:
    values = np.zeros((2**60, 0), dtype=np.bool_)  # needs no memory
    with pytest.raises(SchemaError, match=f"add up to {17 * 2**60} rows"):
        RaggedArray(values, [2**60] * 17)
    array = RaggedArray(values, [2**60])
    with pytest.raises(SchemaError, match=f"16 chosen sequences have {2**64} rows together"):
        array[[0] * 16]
    with pytest.raises(SchemaError, match=f"16 chosen sequences have {2**64} rows together"):
        RaggedArray.concat([array] * 16)


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SchemaError, match="at least one sequence, got none"):
        RaggedArray.from_rows([], np.float32)
    with pytest.raises(SchemaError, match="one width"):
        RaggedArray.from_rows([[[1, 2]], [[1]]], np.float32)
    with pytest.raises(SchemaError, match="got a scalar"):
        RaggedArray.from_rows(untyped([1, 2]), np.float32)


def test_an_index_out_of_range_is_an_index_error() -> None:
    array = RaggedArray(np.zeros(3), [1, 2])
    with pytest.raises(IndexError):
        array[2]
    with pytest.raises(IndexError):
        array[[0, 2]]
