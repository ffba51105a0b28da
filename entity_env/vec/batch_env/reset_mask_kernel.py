"""Numba kernels of `ResetMask`: flags to bits, and bits to indices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import (
    BYTES,
    LONGS,
    WORDS,
    compiled,
    count_bits,
    loaded,
    trailing_zeros,
)
from entity_env.core.ragged import Flags
from entity_env.core.validation import MISFIT

_U = tuple(np.uint64(value) for value in range(64))
_NO_FLAG = np.uint64(0xFEFEFEFEFEFEFEFE)
_SWAP_1 = np.uint64(0x00AA00AA00AA00AA)
_SWAP_2 = np.uint64(0x0000CCCC0000CCCC)
_SWAP_4 = np.uint64(0x00000000F0F0F0F0)


@compiled()
def _transposed(bits: np.uint64) -> np.uint64:
    """Transpose of eight bytes as an 8 x 8 bit matrix (Hacker's Delight, 7-3)."""
    swapped = (bits ^ (bits >> _U[7])) & _SWAP_1
    bits ^= swapped ^ (swapped << _U[7])
    swapped = (bits ^ (bits >> _U[14])) & _SWAP_2
    bits ^= swapped ^ (swapped << _U[14])
    swapped = (bits ^ (bits >> _U[28])) & _SWAP_4
    return bits ^ swapped ^ (swapped << _U[28])


@compiled()
def pack_words(
    num_words: int,
    first: NDArray[np.uint64],
    second: NDArray[np.uint64],
    words: NDArray[np.uint64],
) -> int:
    """Packs two arrays of flags, 8 flags per word, into bits; returns the number of bits set.

    Sets bit i of the first `num_words` words if flag i of `first` or `second` is 1. Returns
    `MISFIT` if a flag is neither 0 nor 1. Flag j of word k goes to bit k of byte j by a shift of
    the whole word, so eight words need one transposition.
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
    """True if flags can be read 8 at a time: contiguous, aligned to 8 bytes."""
    return flags.ctypes.data % 8 == 0 and (flags.shape[0] == 1 or flags.strides[0] == 1)


@compiled()
def pack_flags(first: Flags, second: Flags, words: NDArray[np.uint64]) -> int:
    """`pack_words` for any number of flags.

    Also returns `MISFIT` for no flags, different lengths, or flags that cannot be read as words.
    """
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
    """Writes the indices of all set bits, ascending."""
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
