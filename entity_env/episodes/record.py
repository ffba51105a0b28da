"""`Record`: named numbers, arrays and texts of one step."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.errors import UsageError

RecordValue: TypeAlias = float | str | NDArray[np.float64]
"""A number, a text, or a read-only array."""


class Record:
    """Values by name, in insertion order.

    Numbers, bools and 0-d arrays become floats, arrays read-only float64 copies; NaN and infinities
    are allowed. A name is any nonempty text; slashes separate its parts, as in `losses/value`.

    Raises:
        UsageError: a name that is empty or not text, or a value of an unsupported type.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str | ArrayLike] | None = None) -> None:
        self._values: dict[str, RecordValue] = {}
        for name, value in (values or {}).items():
            self.insert(name, value)

    def insert(self, name: str, value: str | ArrayLike) -> None:
        """Sets or replaces a value; raises like the constructor."""
        self._values[_checked_name(name)] = _checked(name, value)

    def get(self, name: str) -> RecordValue | None:
        """The value of a name; None if missing."""
        return self._values.get(name)

    def get_scalar(self, name: str) -> float:
        """The number with this name; UsageError if it is missing or not a number."""
        value = self[name]
        return value if isinstance(value, float) else self._refuse(name, "a number")

    def get_array(self, name: str, ndim: int | None = None) -> NDArray[np.float64]:
        """The array with this name, with `ndim` dimensions (None = any); else UsageError."""
        value = self[name]
        if isinstance(value, np.ndarray) and ndim in (None, value.ndim):
            return value
        self._refuse(name, "an array" if ndim is None else f"an array of {ndim} dimensions")

    def get_string(self, name: str) -> str:
        """The text with this name; UsageError if it is missing or not text."""
        value = self[name]
        return value if isinstance(value, str) else self._refuse(name, "a text")

    def keys(self) -> list[str]:
        """All names, in order."""
        return list(self._values)

    def items(self) -> list[tuple[str, RecordValue]]:
        """All names and values, in order."""
        return list(self._values.items())

    def is_empty(self) -> bool:
        """Whether there are no values."""
        return not self._values

    def merge(self, other: Record) -> Record:
        """A new record with the values of both; `other` wins for names in both."""
        merged = Record()
        merged._values = self._values | other._values
        return merged

    def prefixed(self, prefix: str) -> Record:
        """A new record with a prefix on every name: `record.prefixed("train/")`."""
        renamed = Record()
        renamed._values = {f"{prefix}{name}": value for name, value in self._values.items()}
        return renamed

    def __getitem__(self, name: str) -> RecordValue:
        if name not in self._values:
            raise UsageError(f"the record has no {name!r}; it has {', '.join(self) or 'nothing'}")
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        """In any order; NaN equals NaN."""
        if not isinstance(other, Record):
            return NotImplemented
        return self._values.keys() == other._values.keys() and all(
            _is_same(value, other._values[name]) for name, value in self._values.items()
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Record({self._values!r})"

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        value = self._values[name]
        raise UsageError(f"{name!r} of the record must be {wanted}, got {_show(value)}")


def _checked_name(name: object) -> str:
    if isinstance(name, str) and name:
        return name
    raise UsageError(f"a value of a record needs a name, a text: got {name!r}")


def _checked(name: str, value: object) -> RecordValue:
    if isinstance(value, str | float):
        return str(value) if isinstance(value, str) else float(value)
    try:
        array = np.array(value)
    except ValueError as error:  # rows of different lengths
        raise UsageError(f"{name!r} of the record: {error}") from error
    if array.dtype.kind not in "fiub":
        raise UsageError(
            f"{name!r} of the record must be a number, an array of numbers or a text: "
            f"got {_show(value)}"
        )
    if not array.ndim:
        return float(array)
    array = array.astype(np.float64, copy=False)
    array.flags.writeable = False
    return array


def _is_same(a: RecordValue, b: RecordValue) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and a == b
    return np.ndim(a) == np.ndim(b) and np.array_equal(a, b, equal_nan=True)


def _show(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    return reprlib.repr(value)
