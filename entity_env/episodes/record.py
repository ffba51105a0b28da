"""Record: named numbers, arrays and texts of one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.errors import UsageError

RecordValue: TypeAlias = float | str | NDArray[np.float64]
"""A number, a text, or an array that cannot be written to."""


class Record:
    """Holds values by name, in the order in which they were named.

    Numbers and bools become floats, arrays float64 copies that cannot be written to, whatever
    they came as; NaN and infinities are values like others. An array without dimensions is a
    number. A name is any text that is not empty; parts are told apart by slashes, `losses/value`.

    Args:
        values: what it begins with.

    Raises:
        UsageError: a name that is no text or empty, or a value of another kind.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str | ArrayLike] | None = None) -> None:
        self._values: dict[str, RecordValue] = {}
        for name, value in (values or {}).items():
            self.insert(name, value)

    def insert(self, name: str, value: str | ArrayLike) -> None:
        """Gives a name a value, in place of the one that it had.

        Raises:
            UsageError: as for the constructor; nothing has changed then.
        """
        _require_name(name)
        self._values[name] = _checked(name, value)

    def get(self, name: str) -> RecordValue | None:
        """The value of that name, whatever its kind; None when there is none."""
        return self._values.get(name)

    def get_scalar(self, name: str) -> float:
        """The number of that name.

        Raises:
            UsageError: there is none, or it is no number.
        """
        value = self[name]
        return value if isinstance(value, float) else self._refuse(name, "a number", value)

    def get_array(self, name: str, ndim: int | None = None) -> NDArray[np.float64]:
        """The array of that name, which cannot be written to.

        Args:
            name: which.
            ndim: how many dimensions it must have; None = any.

        Raises:
            UsageError: there is none, or it is no such array.
        """
        value = self[name]
        wanted = "an array" if ndim is None else f"an array of {ndim} dimensions"
        if isinstance(value, np.ndarray) and ndim in (None, value.ndim):
            return value
        self._refuse(name, wanted, value)

    def get_string(self, name: str) -> str:
        """The text of that name.

        Raises:
            UsageError: there is none, or it is no text.
        """
        value = self[name]
        return value if isinstance(value, str) else self._refuse(name, "a text", value)

    def keys(self) -> list[str]:
        """All names, in order."""
        return list(self._values)

    def items(self) -> list[tuple[str, RecordValue]]:
        """All names with their values, in order."""
        return list(self._values.items())

    def is_empty(self) -> bool:
        """Holds nothing."""
        return not self._values

    def merge(self, other: Record) -> Record:
        """A new record with the values of both; of a name in both, the other's."""
        merged = Record()
        merged._values = {**self._values, **other._values}
        return merged

    def prefixed(self, prefix: str) -> Record:
        """A new record with a text before every name: `record.prefixed("train/")`."""
        named = Record()
        named._values = {f"{prefix}{name}": value for name, value in self._values.items()}
        return named

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
        """Has the same names and values, in any order; NaN equals NaN."""
        if not isinstance(other, Record):
            return NotImplemented
        return self._values.keys() == other._values.keys() and all(
            _is_same(value, other._values[name]) for name, value in self._values.items()
        )

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"Record({self._values!r})"

    def _refuse(self, name: str, wanted: str, value: RecordValue) -> NoReturn:
        raise UsageError(f"{name!r} of the record must be {wanted}, it is {_show(value)}")


def _require_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"a value of a record needs a name, a text: got {name!r}")


def _checked(name: str, value: object) -> RecordValue:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float | int) and not isinstance(value, np.generic):
        return _as_float(name, value)
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


def _as_float(name: str, value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise UsageError(f"{name!r} of the record is too large for a float: {value}") from error


def _is_same(a: RecordValue, b: RecordValue) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and a == b
    return np.ndim(a) == np.ndim(b) and np.array_equal(a, b, equal_nan=True)


def _show(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    return repr(value)
