"""`RaggedArray`: sequences of different lengths, as flat values and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.errors import SchemaError

Scalar = TypeVar("Scalar", bound=np.generic)


class RaggedArray(Generic[Scalar]):
    """`len(lengths)` sequences of rows, one after another, in one flat array.

    `ragged[i]` is a view of the rows of sequence `i`; `ragged[[2, 0]]` or `ragged[mask]` is a new
    `RaggedArray` with copies of those sequences.

    Args:
        values: `(sum(lengths),)` or `(sum(lengths), width)`, any dtype; kept, not copied.
        lengths: `(num_sequences,)` integers, none negative; kept when int64, else converted.

    Raises:
        SchemaError: the lengths are negative or do not add up to the number of rows.
    """

    __slots__ = ("__dict__", "lengths", "values")

    def __init__(self, values: NDArray[Scalar], lengths: ArrayLike) -> None:
        counts = np.asarray(lengths)
        if counts.ndim != 1 or (
            counts.size and (counts.dtype.kind not in "iu" or counts.min() < 0)
        ):
            raise SchemaError(
                "lengths must be one-dimensional integers and none of them negative: "
                f"got shape {counts.shape}, {counts.dtype}"
            )
        self.values = values
        self.lengths: NDArray[np.int64] = counts.astype(np.int64, copy=False)
        total = int(self.lengths.sum())
        if total != len(values):
            raise SchemaError(
                f"lengths add up to {total} rows, but values has {len(values)}: "
                "pass one length per sequence, in the order of the rows"
            )

    @classmethod
    def unchecked(cls, values: NDArray[Scalar], lengths: NDArray[np.int64]) -> RaggedArray[Scalar]:
        """A `RaggedArray` of int64 lengths that are known to fit: skips 5 µs of checks."""
        ragged = cls.__new__(cls)
        ragged.values = values
        ragged.lengths = lengths
        return ragged

    @classmethod
    def from_rows(cls, rows: Sequence[ArrayLike], dtype: type[Scalar]) -> RaggedArray[Scalar]:
        """Joins one array of rows per sequence into a new `RaggedArray`; at least one is needed."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        if not arrays:
            raise SchemaError("cannot tell the width of no rows: pass at least one sequence")
        if any(array.ndim == 0 for array in arrays):
            raise SchemaError("each sequence of a RaggedArray is an array of rows, got a scalar")
        widths = {array.shape[1:] for array in arrays if len(array)}
        if len(widths) > 1:
            raise SchemaError(f"rows of one RaggedArray need one width, got {sorted(widths)}")
        # An empty list does not tell its width: an empty array of rows does, if there is one.
        shape = widths.pop() if widths else max((a.shape[1:] for a in arrays), key=len)
        values = np.concatenate([array.reshape(len(array), *shape) for array in arrays])
        return cls(values, [len(array) for array in arrays])

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`(num_sequences + 1,)` int64: where each sequence begins in `values`, and the total."""
        offsets = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    @cached_property
    def row_index(self) -> NDArray[np.int64]:
        """`(num_rows,) int64`: for each row of `values` the index of its sequence."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def copy(self) -> RaggedArray[Scalar]:
        """A copy that owns its memory."""
        return RaggedArray(self.values.copy(), self.lengths.copy())

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[Scalar]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int | np.integer) -> NDArray[Scalar]: ...

    @overload
    def __getitem__(
        self, index: slice | Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]
    ) -> RaggedArray[Scalar]: ...

    def __getitem__(
        self,
        index: int | np.integer | slice | Sequence[int] | NDArray[np.integer] | NDArray[np.bool_],
    ) -> NDArray[Scalar] | RaggedArray[Scalar]:
        """Rows of one sequence (an int), or a `RaggedArray` of several (indices, mask, slice)."""
        if isinstance(index, int | np.integer):
            i = range(len(self))[index]
            return self.values[self.offsets[i] : self.offsets[i + 1]]
        chosen = np.arange(len(self))[index]
        lengths = self.lengths[chosen]
        shift = np.repeat(self.offsets[chosen] - _starts(lengths), lengths)
        return RaggedArray(self.values[shift + np.arange(len(shift))], lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedArray):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and np.array_equal(
            self.values, other.values
        )

    __hash__ = None  # type: ignore[assignment]  # mutable: comparable, not hashable

    def __repr__(self) -> str:
        return (
            f"RaggedArray({len(self)} sequences, {len(self.values)} rows, "
            f"shape {self.values.shape}, {self.values.dtype})"
        )


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(lengths) - lengths
