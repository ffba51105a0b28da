"""Decorators, types and intrinsics for numba.

Importing this module imports numba, so import it only for compiled code. Machine code is cached
next to its source, so only the first process of an installation compiles.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Collection
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.cpython.unsafe import numbers
from numba.extending import intrinsic
from numba.np import numpy_support
from numpy.typing import NDArray

from entity_env.core import seeding, vec_env_base

Function = TypeVar("Function", bound=Callable[..., object])


def array_of(dtype: str) -> types.Array:
    """Type of a contiguous one-dimensional array."""
    return types.Array(types.Integer(dtype) if "int" in dtype else types.Float(dtype), 1, "C")


BYTES, LONGS, WORDS = array_of("uint8"), array_of("int64"), array_of("uint64")
ADDRESS = types.intp

# Flags that change finite results only by rounding. Not `reassoc`, which would remove the range
# reduction of sine and cosine. Not `arcp` and `afn`: exact division costs nothing here, and without
# them vectorized and scalar loops agree bit for bit.
FAST_MATH = frozenset({"contract", "nsz", "nnan", "ninf"})


def compiled(
    fast_math: Collection[str] = (), *, inline: bool = False
) -> Callable[[Function], Function]:
    """Decorator: compiles a function for the argument types of its calls, or of `loaded`.

    Division by zero gives infinity, as in numpy, because a loop that might raise is not vectorized.
    `fast_math` takes LLVM flags; `inline` forces inlining into compiled callers.
    """

    def decorate(function: Function) -> Function:
        make = partial(
            njit,
            nogil=True,
            error_model="numpy",
            fastmath=set(fast_math),
            forceinline=inline,
        )
        try:
            made: Any = make(cache=True)(function)
            # A private attribute, which numba only compares for equality: code is compiled again
            # after a change in any of the sources.
            file: Any = made._cache._cache_file
            file._source_stamp = file._source_stamp, _sources(_package(function))
        except (RuntimeError, AttributeError):
            # Compile without a cache: its folder is not writable (read-only installation, no home),
            # or this version of numba lacks the private attribute.
            made = make()(function)
        return cast(Function, made)

    return decorate


def _package(function: Callable[..., object]) -> Path:
    """The folder with every file that a function may depend on."""
    folder = Path(inspect.getfile(function)).parent
    return folder.parent if folder.name == "kernels" else folder


@cache
def _sources(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, mtime and size of the files that functions in a folder may depend on.

    These are the Python files of the folder, this file, `seeding` and `vec_env_base`, which has
    `splitmix64`. numba checks only the file of the function. After a change in another file, such
    as a memory layout, cached code would write to wrong addresses.
    """
    shared = (__file__, seeding.__file__, vec_env_base.__file__)
    stats = [
        (str(source), source.stat())
        for source in (*map(Path, shared), *sorted(folder.rglob("*.py")))
    ]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def loaded(function: Function, *signature: object) -> Function:
    """Machine code of a compiled function for one list of argument types.

    Calling it skips the type lookup, which takes as long as 64 steps of CartPole. The call checks
    only that array arguments are arrays with the right item size (TypeError): an array with the
    wrong number of dimensions overwrites memory.
    """
    compiler: Any = function
    return cast(Function, compiler.compile(signature))


def is_cached(function: Callable[..., object]) -> bool | None:
    """Whether the disk cache holds machine code of a function for this machine; None if unknown."""
    compiler: Any = function
    try:  # all private attributes
        index = compiler._cache._cache_file._load_index()
        machine = compiler.targetctx.codegen().magic_tuple()
        return any(key[1] == machine for key in index)
    except (AttributeError, LookupError, OSError, EOFError, ValueError, pickle.UnpicklingError):
        return None


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:  # noqa: ANN401 - numba is untyped
    def convert(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), convert


pointer: Any = _pointer
"""Pointer to an address, for `carray`.

Nothing is checked, and the caller must keep the memory alive. Passing an address is twice as fast
as passing an array. Arrays made from it are not reference-counted; reference counting took half of
the step time of one environment."""

carray: Any = numpy_support.carray
"""`carray(pointer, length, dtype)`: array at an address, in compiled code."""
trailing_zeros: Callable[[np.uint64], np.uint64] = cast(Any, numbers.trailing_zeros)

_U = tuple(np.uint64(value) for value in range(64))
_PAIRS = np.uint64(0x5555555555555555)
_FOURS = np.uint64(0x3333333333333333)
_EIGHTS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


splitmix64 = compiled(inline=True)(vec_env_base.splitmix64)


@compiled()
def count_bits(bits: np.uint64) -> np.int64:
    """Number of set bits, compiled to one machine instruction."""
    bits -= (bits >> _U[1]) & _PAIRS
    bits = (bits & _FOURS) + ((bits >> _U[2]) & _FOURS)
    bits = (bits + (bits >> _U[4])) & _EIGHTS
    return np.int64((bits * _BYTES) >> _U[56])


@compiled(inline=True)
def popcount(number: int) -> int:
    """Number of set bits of a nonnegative number."""
    return int(count_bits(np.uint64(number)))


@compiled(inline=True)
def zeros_int64(size: int) -> NDArray[np.int64]:
    """`(size,)` int64, zeros."""
    return np.zeros(size, np.int64)


@compiled(inline=True)
def zeros_float64(size: int) -> NDArray[np.float64]:
    """`(size,)` float64, zeros."""
    return np.zeros(size, np.float64)
