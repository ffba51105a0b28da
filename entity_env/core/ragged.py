"""`RaggedArray`: sequences of different lengths, as flat values and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.validation import checked_count
from entity_env.errors import MissingExtraError, SchemaError, UsageError, shown

if TYPE_CHECKING:
    import torch

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.uint8] | NDArray[np.bool_]
"""Flags, set if not 0; kernels also accept other one-byte dtypes."""
Scalar = TypeVar("Scalar", bound=np.generic)

_MAX_INT64: Final = np.iinfo(np.int64).max
_MAX_ROWS: Final = _MAX_INT64 // 8
"""Maximum rows of one int64 array, such as `row_index`."""


class RaggedTensor(NamedTuple):
    """A `RaggedArray` as torch tensors, which own their memory.

    `torch.zeros(len(lengths), width).index_add(0, row_index, embedded)` sums
    `(len(values), width)` embeddings over the rows of each sequence.

    Args:
        values: the array's values, with its dtype.
        lengths: `(num_sequences,) int64`.
        row_index: `(num_rows,) int64`, index of the sequence of each row of `values`.
    """

    values: torch.Tensor
    lengths: torch.Tensor
    row_index: torch.Tensor


class RaggedArray(Generic[Scalar]):
    """`len(lengths)` sequences of rows, one after another, in one flat array.

    `ragged[i]` is a view of sequence `i`; `ragged[[2, 0]]` or `ragged[mask]` copies those sequences
    into a new `RaggedArray`.

    Args:
        values: `(sum(lengths),)` or `(sum(lengths), width)`, any dtype; kept, not copied.
        lengths: `(num_sequences,)` integers, 0 or more; kept if int64, else converted.

    Raises:
        SchemaError: lengths that are not one-dimensional integers, a negative length, or a sum that
            is not the number of rows.
    """

    __slots__ = ("__dict__", "lengths", "values")

    def __init__(self, values: NDArray[Scalar], lengths: ArrayLike) -> None:
        counts = np.asarray(lengths)
        if counts.ndim != 1 or (
            counts.size and (counts.dtype.kind not in "iu" or np.minimum.reduce(counts) < 0)
        ):
            raise SchemaError(
                "lengths must be one-dimensional integers and none of them negative: "
                f"got shape {counts.shape}, {counts.dtype}"
            )
        total = _total(counts, int(np.maximum.reduce(counts))) if counts.size else 0
        if total != len(values):
            raise SchemaError(
                f"lengths add up to {total} rows, but values has {len(values)}: "
                "pass one length per sequence, in the order of the rows"
            )
        self.values = values
        self.lengths: NDArray[np.int64] = counts.astype(np.int64, copy=False)

    @classmethod
    def unchecked(cls, values: NDArray[Scalar], lengths: NDArray[np.int64]) -> RaggedArray[Scalar]:
        """A `RaggedArray` whose int64 lengths are known to be valid: saves 5 µs of checks."""
        ragged = cls.__new__(cls)
        ragged.values = values
        ragged.lengths = lengths
        return ragged

    @classmethod
    def from_rows(cls, rows: Sequence[ArrayLike], dtype: type[Scalar]) -> RaggedArray[Scalar]:
        """Joins one or more arrays of rows, one per sequence.

        Raises:
            SchemaError: there are no arrays, one is a scalar, or their widths differ.
        """
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        if not arrays:
            raise SchemaError(
                "expected at least one sequence, got none: the width of a row is unknown"
            )
        if any(array.ndim == 0 for array in arrays):
            raise SchemaError("each sequence of a RaggedArray is an array of rows, got a scalar")
        widths = {array.shape[1:] for array in arrays if len(array)}
        if len(widths) > 1:
            raise SchemaError(f"rows of one RaggedArray need one width, got {sorted(widths)}")
        # Without rows, an empty array still gives the width; an empty list does not.
        shape = widths.pop() if widths else max((a.shape[1:] for a in arrays), key=len)
        values = np.concatenate([array.reshape(len(array), *shape) for array in arrays])
        return cls(values, [len(array) for array in arrays])

    @classmethod
    def concat(cls, parts: Sequence[RaggedArray[Scalar]]) -> RaggedArray[Scalar]:
        """Copies the sequences of several arrays, one array after another.

        Raises:
            SchemaError: there are no arrays, their widths or dtypes differ, or their total number
                of rows is too large for one array.
        """
        kinds = sorted({f"{part.values.shape[1:]} {part.values.dtype}" for part in parts})
        if len(kinds) != 1:
            got = " and ".join(kinds) or "no arrays"
            raise SchemaError(f"expected arrays with rows of one shape and dtype: got {got}")
        lengths = np.concatenate([part.lengths for part in parts])
        total_rows(lengths, max(len(part.values) for part in parts))
        return cls.unchecked(np.concatenate([part.values for part in parts]), lengths)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """`(num_sequences + 1,)` int64: start of each sequence in `values`, then `len(values)`."""
        offsets = np.zeros(len(self.lengths) + 1, dtype=np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    @cached_property
    def row_index(self) -> NDArray[np.int64]:
        """`(num_rows,) int64`: index of the sequence of each row of `values`."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def copy(self) -> RaggedArray[Scalar]:
        """A copy that owns its memory."""
        return RaggedArray.unchecked(self.values.copy(), self.lengths.copy())

    def pad(self, max_rows: int | None = None) -> tuple[NDArray[Scalar], NDArray[np.bool_]]:
        """Dense values and a mask, as new arrays.

        Args:
            max_rows: rows per sequence in the result; None = the length of the longest sequence.

        Returns:
            `(num_sequences, max_rows, ...)` values, zero or False where a sequence has no row; and
            `(num_sequences, max_rows) bool`, True = a row exists.

        Raises:
            UsageError: a sequence is longer than `max_rows`.
        """
        longest = int(self.lengths.max(initial=0))
        size = longest if max_rows is None else checked_count("max_rows", max_rows, 0)
        if longest > size:
            raise UsageError(
                f"sequence {self.lengths.argmax()} has {longest} rows, but max_rows is {size}: "
                "pass a larger one, since pad never drops rows"
            )
        shape = len(self), size
        if len(self.values) == shape[0] * size:  # all sequences are full
            dense = np.array(self.values).reshape(*shape, *self.values.shape[1:])
            return dense, np.ones(shape, dtype=np.bool_)
        present = np.arange(size) < self.lengths[:, None]
        dense = np.zeros((*shape, *self.values.shape[1:]), dtype=self.values.dtype)
        dense[present] = self.values
        return dense, present

    def to_torch(self, device: str | torch.device | None = None) -> RaggedTensor:
        """Values, lengths and row indices as tensors (copies).

        Raises:
            MissingExtraError: torch is not installed.
        """
        try:
            import torch
        except ModuleNotFoundError as error:
            raise MissingExtraError("torch", "train", "to_torch()") from error
        parts = self.values, self.lengths, self.row_index
        return RaggedTensor(*(torch.tensor(part, device=device) for part in parts))

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
        """Rows of one sequence (int), or a `RaggedArray` of several (indices, mask, slice).

        Raises:
            IndexError: an index or a mask does not fit.
            SchemaError: too many rows for one array.
        """
        if isinstance(index, int | np.integer):
            i = range(len(self))[index]
            return self.values[self.offsets[i] : self.offsets[i + 1]]
        chosen = np.arange(len(self))[index]
        lengths = self.lengths[chosen]
        total_rows(lengths, len(self.values))
        shift = np.repeat(self.offsets[chosen] - _starts(lengths), lengths)
        return RaggedArray.unchecked(self.values[shift + np.arange(len(shift))], lengths)

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


def chosen_rows(rows: object, num_rows: int, what: str) -> NDArray[np.int64]:
    """`(num_chosen,)`: indices of the chosen rows; see `VecObs.select`."""
    try:
        index: NDArray[np.int64] = np.arange(num_rows)[rows]  # type: ignore[call-overload]  # of any type
        problem = "" if index.ndim == 1 else f"got {shown(rows)}"
    except IndexError as error:
        problem = str(error)
    if problem:
        raise UsageError(
            f"{what} are chosen by a list of integers below {num_rows} or a mask of {num_rows} "
            f"bools: {problem}"
        )
    return index


def total_rows(lengths: NDArray[np.int64], longest: int) -> int:
    """Total rows of sequences of 0 to `longest` rows; SchemaError if too many for an array."""
    total = _total(lengths, longest)
    if total > _MAX_ROWS:
        raise SchemaError(
            f"the {len(lengths)} chosen sequences have {total} rows together, at most {_MAX_ROWS} "
            "fit into an array: choose fewer"
        )
    return total


def _total(lengths: NDArray[np.integer], longest: int) -> int:
    """Exact sum of lengths from 0 to `longest`.

    `lengths.sum()` wraps modulo 2**64, and so does the size that `np.repeat` allocates.
    """
    if longest * len(lengths) <= _MAX_INT64:
        return int(np.add.reduce(lengths))
    return sum(lengths.tolist())


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.cumsum(lengths) - lengths
