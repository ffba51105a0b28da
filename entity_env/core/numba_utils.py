"""How compiled code is made: decorators around numba, its types and a few of its intrinsics.

Imports numba, so that whoever imports it does so when compiled code is first needed. Compiled code
is kept next to the source: only the first process of an installation waits for the compiler.
"""

from __future__ import annotations

import inspect
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

from entity_env.core import seeding

Function = TypeVar("Function", bound=Callable[..., object])


def array_of(dtype: str) -> types.Array:
    """The compiler's type of an array of one dimension, without gaps."""
    return types.Array(types.Integer(dtype) if "int" in dtype else types.Float(dtype), 1, "C")


BYTES, LONGS, WORDS = array_of("uint8"), array_of("int64"), array_of("uint64")
ADDRESS = types.intp

# Everything that changes no result by more than rounding, except `reassoc`: that would fold the
# range reduction of sine and cosine away. Without `arcp` and `afn` a division is exact, which costs
# nothing here, and makes vectorized and scalar loops agree bit for bit.
FAST_MATH = frozenset({"contract", "nsz", "nnan", "ninf"})


def compiled(
    fast_math: Collection[str] = (), *, inline: bool = False
) -> Callable[[Function], Function]:
    """A decorator: compiles a function for the types that it is called with or loaded for.

    A division by zero gives infinity, as in numpy: a loop that might raise cannot be vectorized.

    Args:
        fast_math: what the compiler may assume; nothing when left out.
        inline: copy it to where it is called.
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
            # Private, but numba asks for nothing more than that it be equal.
            file: Any = made._cache._cache_file
            file._source_stamp = file._source_stamp, _sources(Path(inspect.getfile(function)))
        except (RuntimeError, AttributeError):
            # A read-only installation and no home, so nowhere to keep it; or another numba.
            made = make()(function)
        return cast(Function, made)

    return decorate


@cache
def _sources(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of all that a function may be made of: its package, and this module.

    numba itself looks at the file of a function alone. With code from before a change in another
    file, one that says where things are in memory, it would write where nothing of ours is.
    """
    folder = path.parent.parent if path.parent.name == "kernels" else path.parent
    stats = [
        (str(source), source.stat())
        for source in (Path(__file__), Path(seeding.__file__), *sorted(folder.rglob("*.py")))
    ]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def loaded(function: Function, *signature: object) -> Function:
    """The machine code of a compiled function, for one list of types.

    Calling it skips the look-up of types, which takes as long as 64 steps of CartPole. What is
    passed must be arrays of these numbers of dimensions, or memory is overwritten; anything else
    than an array, or one of items of another size, is a TypeError, and nothing more is looked at.
    """
    compiler: Any = function
    return cast(Function, compiler.compile(signature))


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:  # noqa: ANN401 - numba's, untyped
    """The pointer of an address, as the compiler makes it."""

    def convert(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), convert


pointer: Any = _pointer
"""The pointer of an address, for `carray`.

As in C, nothing is checked, and nobody keeps the memory alive: whoever hands an address over has
to. In return an address is handed over twice as fast as an array, and compiled code counts no
references to the arrays that it makes of it, which took half of the step of one environment."""

carray: Any = numpy_support.carray
"""`carray(pointer, length, dtype)`: an array of what a pointer points to, in compiled code."""
trailing_zeros: Callable[[np.uint64], np.uint64] = cast(Any, numbers.trailing_zeros)

_U = tuple(np.uint64(value) for value in range(64))
_PAIRS = np.uint64(0x5555555555555555)
_FOURS = np.uint64(0x3333333333333333)
_EIGHTS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


splitmix64 = compiled(inline=True)(seeding.splitmix64)


@compiled()
def count_bits(bits: np.uint64) -> np.int64:
    """How many bits are set; the compiler knows this way and makes one instruction of it."""
    bits -= (bits >> _U[1]) & _PAIRS
    bits = (bits & _FOURS) + ((bits >> _U[2]) & _FOURS)
    bits = (bits + (bits >> _U[4])) & _EIGHTS
    return np.int64((bits * _BYTES) >> _U[56])
