"""Compiled cores of batches: how they are compiled, and the two loops of `ResetMask`.

The only module of `vec` that imports numba; whoever needs it imports it when asked for. Compiled
code is kept next to the source, so that only the first process of an installation waits for it.
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
from numpy.typing import NDArray

from entity_env.vec.batch_env.reset_mask import MISFIT, Flags

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
    """Name, time and size of all that a function may be made of: its folder, and this module.

    numba itself looks at the file of a function alone. With code from before a change in another
    file, one that says where things are in memory, it would write where nothing of ours is.
    """
    here = Path(__file__).parent
    own = [here / "batch_compiled.py", here / "reset_mask.py"]
    others = [] if path.parent == here else sorted(path.parent.glob("*.py"))
    stats = [(source.name, source.stat()) for source in (*own, *others)]
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
_NO_FLAG = np.uint64(0xFEFEFEFEFEFEFEFE)
_SWAP_1 = np.uint64(0x00AA00AA00AA00AA)
_SWAP_2 = np.uint64(0x0000CCCC0000CCCC)
_SWAP_4 = np.uint64(0x00000000F0F0F0F0)
_PAIRS = np.uint64(0x5555555555555555)
_FOURS = np.uint64(0x3333333333333333)
_EIGHTS = np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES = np.uint64(0x0101010101010101)


@compiled()
def _transposed(bits: np.uint64) -> np.uint64:
    """Eight bytes as the rows of a matrix of bits, transposed (Hacker's Delight, 7-3)."""
    swapped = (bits ^ (bits >> _U[7])) & _SWAP_1
    bits ^= swapped ^ (swapped << _U[7])
    swapped = (bits ^ (bits >> _U[14])) & _SWAP_2
    bits ^= swapped ^ (swapped << _U[14])
    swapped = (bits ^ (bits >> _U[28])) & _SWAP_4
    return bits ^ swapped ^ (swapped << _U[28])


@compiled()
def count_bits(bits: np.uint64) -> np.int64:
    """How many bits are set; the compiler knows this way and makes one instruction of it."""
    bits -= (bits >> _U[1]) & _PAIRS
    bits = (bits & _FOURS) + ((bits >> _U[2]) & _FOURS)
    bits = (bits + (bits >> _U[4])) & _EIGHTS
    return np.int64((bits * _BYTES) >> _U[56])


@compiled()
def pack_words(
    num_words: int,
    first: NDArray[np.uint64],
    second: NDArray[np.uint64],
    words: NDArray[np.uint64],
) -> int:
    """Sets bit i of the first words where flag i of either is 1, 8 flags a word; counts them.

    `MISFIT` when a flag is neither 0 nor 1. Flag j of the word k goes to bit k of byte j, by a
    shift of the whole word: after eight words only the transposition is left to do.
    """
    count = np.int64(0)
    seen = _U[0]
    for i in range(num_words):
        bits = _U[0]
        for k in range(8):
            flags = first[8 * i + k] | second[8 * i + k]
            seen |= flags
            bits |= flags << np.uint64(k)
        words[i] = _transposed(bits)
        count += count_bits(words[i])
    return MISFIT if seen & _NO_FLAG else int(count)


@compiled()
def _are_words(flags: Flags) -> bool:
    """Whether flags can be read 8 at a time: one after another, from a multiple of 8."""
    return flags.ctypes.data % 8 == 0 and (flags.shape[0] == 1 or flags.strides[0] == 1)


@compiled()
def pack_flags(first: Flags, second: Flags, words: NDArray[np.uint64]) -> int:
    """`pack_words` for any number of flags; `MISFIT`, too, when they cannot be read as words."""
    num_flags = first.shape[0]
    if num_flags == 0 or second.shape[0] != num_flags:
        return MISFIT
    if not (_are_words(first) and _are_words(second)):
        return MISFIT
    num_whole = num_flags // 64
    count = pack_words(
        num_whole,
        first[: 64 * num_whole].view(np.uint64),
        second[: 64 * num_whole].view(np.uint64),
        words,
    )
    if count == MISFIT or num_flags % 64 == 0:
        return count
    bits = _U[0]
    for i in range(64 * num_whole, num_flags):
        if first[i] | second[i]:
            bits |= _U[1] << np.uint64(i % 64)
    words[num_whole] = bits
    return count + int(count_bits(bits))


@compiled()
def list_bits(words: NDArray[np.uint64], indices: NDArray[np.int64]) -> None:
    """Writes the indices of all bits that are set, ascending."""
    k = 0
    for j in range(words.shape[0]):
        word = words[j]
        while word:
            indices[k] = 64 * j + np.int64(trailing_zeros(word))
            word &= word - _U[1]
            k += 1


def load_pack_flags() -> Callable[[Flags, Flags, NDArray[np.uint64]], int]:
    """`pack_flags`, compiled or read from the cache."""
    return loaded(pack_flags, BYTES, BYTES, WORDS)


def load_list_bits() -> Callable[[NDArray[np.uint64], NDArray[np.int64]], None]:
    """`list_bits`, compiled or read from the cache."""
    return loaded(list_bits, WORDS, LONGS)
