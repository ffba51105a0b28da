"""Loops over the observations of a step, in C if the C module was built, else in Python; and the
cache of what is generated for a class.

Installing the package compiles `_speedups.c` if there is a C compiler. Without it, generated Python
gives equal results more slowly (`benchmarks/vec.py`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TypeVar

from entity_env.authoring.game_traceback import require_mistake, summary_of
from entity_env.errors import shown
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T")
_RESULTS: Final = "__entity_env__"
"""Attribute of a class with what was generated for it."""


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


class NotANumber(Exception):
    """A value that cannot become a float32; its text says what is wrong with it."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index


def pack_numbers(
    numbers: list[Any], out: NDArray[np.float32] | array[float], start: int = 0
) -> bool:
    """Writes numbers into an array as `pack_floats`; returns whether all are finite as float32.

    Raises:
        NotANumber: the first other value; its cause is what the conversion raised, if anything.
    """
    cause: BaseException | None = None
    try:
        if (packed := pack_floats(numbers, out, start)) != NO_NUMBER:
            return packed == FINITE
    except BaseException as error:  # of a `__float__`
        require_mistake(error)
        cause = error
    one = array("f", [0.0])
    for i, value in enumerate(numbers):
        is_kind = isinstance(value, float | int) or _is_scalar(value)
        try:
            if is_kind and pack_floats([value], one) != NO_NUMBER:
                continue
        except BaseException as error:
            require_mistake(error)
            cause = error
        problem = f"must be a number that fits float32, got {shown(value)}"
        if cause is not None:
            problem += f", whose conversion raised {summary_of(cause)}"
        raise NotANumber(i, problem) from cause
    raise NotANumber(
        0, f"could not be converted: {'' if cause is None else summary_of(cause)}"
    ) from cause


def _is_scalar(value: object) -> bool:
    """Whether a value is a real number of numpy."""
    return "numpy" in sys.modules and isinstance(value, np.integer | np.floating | np.bool_)


def once_per_class(make: Callable[..., T]) -> Callable[..., T]:
    """Caches a function whose first argument is a class, as long as that class exists.

    The results are kept in an attribute of the class, because they refer to it: a global cache
    would keep every class for ever. Others than the class must be hashable.
    """

    def cached(cls: type, *others: object) -> T:
        own = cls.__dict__.get(_RESULTS)
        if own is None:
            own = _lasting.get(cls) or _Results()
            try:
                type.__setattr__(cls, _RESULTS, own)
            except TypeError:  # a class of the interpreter or of a C module, which stays
                _lasting[cls] = own
        key = make, *others
        if key not in own:
            own[key] = make(cls, *others)
        found: T = own[key]
        return found

    return cached


class _Results(dict[Any, Any]):
    """Results of `once_per_class` for a class; other processes begin with an empty one."""

    def __reduce__(self) -> tuple[type[_Results], tuple[()]]:
        return _Results, ()


_lasting: dict[type, _Results] = {}
