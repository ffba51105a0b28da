"""Loops over the observations of a step, in C if the C module was built, else in Python.

Installing the package compiles `_speedups.c` if there is a C compiler. Without it, generated Python
gives equal results more slowly (`benchmarks/vec.py`).
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
"""Gathers observations that have the same form, reading entities with slots; see `ObsBatcher`. None
if the C module was not built."""


NO_NUMBER, FINITE, NOT_FINITE = range(3)
"""Results of `pack_floats`."""


def pack_floats(numbers: list[Any], out: NDArray[np.float32] | array[float], start: int = 0) -> int:
    """Writes numbers into a contiguous single-precision array, from index `start` on.

    Returns:
        `FINITE`; `NOT_FINITE` if a number is not finite as float32; `NO_NUMBER` if a value is not a
        real number (then only some of the values may have been written).

    Raises:
        Exception: any that a `__float__` raises, except TypeError, ValueError and OverflowError.
    """
    if IS_COMPILED:
        return _speedups.pack_floats(numbers, out, start)
    try:
        # Not out[:] = numbers, which accepts None as NaN and "1" as 1; nor struct.pack, which
        # replaces a KeyboardInterrupt in a __float__ with its own error.
        packed = array("f", numbers)
    except (TypeError, ValueError, OverflowError):
        return NO_NUMBER
    out[start : start + len(numbers)] = packed
    # A non-finite number makes the sum non-finite; finite float32s are too small to overflow it.
    return FINITE if isfinite(sum(packed)) else NOT_FINITE


def pack_ints(numbers: list[int], out: NDArray[np.int64]) -> None:
    """Writes integers to the whole array."""
    if not (IS_COMPILED and _speedups.pack_ints(numbers, out)):
        out[:] = numbers


def reader_of(
    cls: type, slots: tuple[tuple[str] | tuple[str, object], ...]
) -> _speedups.Reader | None:
    """Reader for the slots of a class's instances; None without the C module, or if a name is not
    a slot.

    Args:
        cls: the class; instances of subclasses are not read.
        slots: slots to read: `(name,)` for the value, or `(name, object)` for whether the slot
            holds that object.
    """
    if not IS_COMPILED:
        return None
    try:
        return _speedups.Reader(cls, slots)
    except ValueError:
        return None


def set_obs_class(cls: type) -> None:
    """Sets the class whose instances `gather` accepts; it must have the slots of `Obs`."""
    if IS_COMPILED:
        _speedups.set_obs_class(cls)
