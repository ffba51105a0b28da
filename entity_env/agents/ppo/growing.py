"""Arrays that grow at their end and keep their memory when they are cleared."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray

Scalar = TypeVar("Scalar", bound=np.generic)


class GrowingArray(Generic[Scalar]):
    """Collects rows; shape and dtype of a row are those of the first that comes."""

    def __init__(self) -> None:
        self._rows: NDArray[Scalar] | None = None
        self._count = 0

    def extend(self, rows: NDArray[Scalar]) -> None:
        """Copies rows to the end."""
        count = self._count + len(rows)
        if self._rows is None:
            self._rows = np.empty((max(count, 16), *rows.shape[1:]), dtype=rows.dtype)
        elif count > len(self._rows):
            larger = np.empty((2 * count, *self._rows.shape[1:]), dtype=self._rows.dtype)
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        self._rows[self._count : count] = rows
        self._count = count

    def clear(self) -> None:
        """Forgets the rows, not the memory."""
        self._count = 0

    @property
    def rows(self) -> NDArray[Scalar]:
        """A view of all rows, valid until the next `extend` or `clear`."""
        if self._rows is None:
            raise ValueError("no rows came yet, so their shape is not known")
        return self._rows[: self._count]


class GrowingRagged(Generic[Scalar]):
    """Collects sequences of rows."""

    def __init__(self) -> None:
        self._values = GrowingArray[Scalar]()
        self._lengths = GrowingArray[np.int64]()

    def extend(self, sequences: RaggedArray[Scalar]) -> None:
        """Copies sequences to the end."""
        self._values.extend(sequences.values)
        self._lengths.extend(sequences.lengths)

    def clear(self) -> None:
        """Forgets the sequences, not the memory."""
        self._values.clear()
        self._lengths.clear()

    @property
    def ragged(self) -> RaggedArray[Scalar]:
        """A view of all sequences, valid until the next `extend` or `clear`."""
        return RaggedArray(self._values.rows, self._lengths.rows)
