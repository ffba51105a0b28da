"""The loops over the observations of a step in C, where that module was built, else in Python.

`_speedups.c` is compiled when the package is installed where there is a C compiler. Without it
games are read by generated Python, with the same results and more slowly (`benchmarks/vec.py`).
"""

from __future__ import annotations

from array import array
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


try:
    from entity_env.authoring import _speedups
except ImportError:  # no compiler, or no wheel for this platform
    IS_COMPILED = False
else:
    IS_COMPILED = True

gather: Final = _speedups.gather if IS_COMPILED else None
"""Gathers observations of one form, and reads their entities where these have slots; see
`ObsBatcher`. None if it was not built."""


NO_NUMBER, FINITE, NOT_FINITE = range(3)
"""What `pack_floats` returns."""


def pack_floats(numbers: list[Any], out: NDArray[np.float32] | array[float], start: int = 0) -> int:
    """Writes numbers into a contiguous array of single precision from an index on.

    Returns:
        `FINITE`; `NOT_FINITE` if one is not, as float32; `NO_NUMBER` if one is no real number, in
        which case some are not written.

    Raises:
        Exception: raised by a `__float__`, except TypeError, ValueError and OverflowError.
    """
    if IS_COMPILED:
        return _speedups.pack_floats(numbers, out, start)
    try:
        # Not out[:] = numbers, which takes None for NaN and "1" for 1; nor struct.pack, which
        # replaces a KeyboardInterrupt in a __float__ by its own error.
        packed = array("f", numbers)
    except (TypeError, ValueError, OverflowError):
        return NO_NUMBER
    out[start : start + len(numbers)] = packed
    # One number that is not finite makes the sum so; others are too small to do it.
    return FINITE if isfinite(sum(packed)) else NOT_FINITE


def pack_ints(numbers: list[int], out: NDArray[np.int64]) -> None:
    """Writes as many integers as the array holds."""
    if not (IS_COMPILED and _speedups.pack_ints(numbers, out)):
        out[:] = numbers


def reader_of(
    cls: type, slots: tuple[tuple[str] | tuple[str, object], ...]
) -> _speedups.Reader | None:
    """What reads the slots of instances of a class; None if it was not built, or a name is no slot.

    Args:
        cls: the class; instances of its subclasses are not read.
        slots: name of each slot to read, or the name and an object: whether the slot holds it.
    """
    if not IS_COMPILED:
        return None
    try:
        return _speedups.Reader(cls, slots)
    except ValueError:
        return None


def set_obs_class(cls: type) -> None:
    """Says which class `gather` gathers instances of, with the slots of an `Obs`."""
    if IS_COMPILED:
        _speedups.set_obs_class(cls)
