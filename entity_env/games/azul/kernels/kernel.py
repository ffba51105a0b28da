"""Kernels: one source that runs as ordinary Python, or as machine code where numba is installed.

The decorator itself changes nothing: a kernel called from Python is interpreted, and so is
everything it calls. `machine_code` compiles a copy with different globals: other kernels are
compiled, tuples of numbers become arrays, and compiled forms replace the functions at the end of
this file. So the rules are written once, and a single game needs neither numba nor its compiler.

A kernel works on lists of integers or on arrays, and keeps 64-bit numbers in range by `& WORD`.
numba is imported only to compile something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import RLock
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import numpy as np

from entity_env.core.seeding import splitmix64_int
from entity_env.core.validation import has_numba

Function = TypeVar("Function", bound=Callable[..., object])

WORD: Final = 2**64 - 1

_KERNELS: Final[dict[object, bool]] = {}
_COMPILED: Final[dict[object, Any]] = {}
_GLOBALS: Final[dict[str, dict[str, Any]]] = {}
_LOCK: Final = RLock()


def kernel(*, inline: bool = False) -> Callable[[Function], Function]:
    """Decorator that marks a function as compilable; see `numba_utils.compiled`."""

    def decorate(function: Function) -> Function:
        _KERNELS[function] = inline
        return function

    return decorate


def fastest(function: Callable[..., object]) -> Any:  # noqa: ANN401 - takes lists or arrays
    """Machine code of a kernel if numba is installed, else the kernel itself."""
    return machine_code(function) if has_numba() else function


def copied_words(words: Sequence[int]) -> Any:  # noqa: ANN401 - a list or an array
    """Copy of a packed state as `fastest` functions take it: an array or a list."""
    return np.array(words, np.int64) if has_numba() else list(map(int, words))


def machine_code(function: Callable[..., object]) -> Any:  # noqa: ANN401 - numba's, untyped
    """Compiled form of a kernel, for arrays.

    Raises:
        ImportError: numba is not installed.
    """
    if function not in _COMPILED:
        with _LOCK:  # another thread must not see half-built globals
            # Compiling the module's globals may compile this function, too: keep the first copy.
            if function not in _COMPILED:
                _COMPILED.setdefault(function, _compile(function))
    return _COMPILED[function]


def _compile(function: Callable[..., object]) -> Any:  # noqa: ANN401 - numba's, untyped
    utils: Any = import_module("entity_env.core.numba_utils")
    if function in _PRIMITIVES:
        other = _PRIMITIVES[function]
        return getattr(utils, other) if isinstance(other, str) else other
    source = cast(FunctionType, function)
    copied = FunctionType(source.__code__, _compiled_globals(source.__globals__))
    return utils.compiled(inline=_KERNELS[function])(copied)


def _compiled_globals(module: dict[str, Any]) -> dict[str, Any]:
    name = module["__name__"]
    if name not in _GLOBALS:
        _GLOBALS[name] = copied = dict(module)
        copied.update({key: _as_compiled(value) for key, value in module.items()})
    return _GLOBALS[name]


def _as_compiled(value: Any) -> Any:  # noqa: ANN401 - any global
    if isinstance(value, tuple) and value and all(isinstance(item, int | float) for item in value):
        return np.array(value)
    is_known = isinstance(value, FunctionType) and (value in _KERNELS or value in _PRIMITIVES)
    return machine_code(value) if is_known else value


def bits_of(number: int) -> int:
    """Number of set bits of a number, 0 or more."""
    return number.bit_count()


def as_word(number: int) -> int:
    """A number as a 64-bit word."""
    return int(number)


def new_ints(size: int) -> list[int]:
    """`size` zeros."""
    return [0] * size


def new_floats(size: int) -> list[float]:
    """`size` zeros."""
    return [0.0] * size


_PRIMITIVES: Final[dict[object, Any]] = {
    as_word: np.uint64,
    bits_of: "popcount",
    new_ints: "zeros_int64",
    new_floats: "zeros_float64",
    splitmix64_int: "splitmix64",
}
"""Compiled form: a name in `core.numba_utils`, or the function."""
