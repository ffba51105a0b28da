"""The loop of `Books`, compiled: `batch_vec_books.py` has the reference."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from entity_env.core.numba_utils import array_of, compiled, loaded, trailing_zeros
from entity_env.vec.batch_env.stepper import BEGUN_AT, EARNED_SO_FAR, NUMBERS, Kernel

_ONE: Final = np.uint64(1)


@compiled()
def count(
    words: NDArray[np.uint64],
    clock: int,
    goes_on: bool,
    reward: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    books: NDArray[np.float64],
    flags: NDArray[np.bool_],
    env_ids: NDArray[np.int64],
    last_reward: NDArray[np.float32],
    last_flags: NDArray[np.bool_],
    last_books: NDArray[np.float64],
) -> None:
    """See `Kernel`."""
    earned, begun, numbers = books[EARNED_SO_FAR], books[BEGUN_AT], books[NUMBERS]
    terminated, truncated = flags[0], flags[1]
    for i in range(earned.shape[0]):
        earned[i] += reward[i]
    for i in range(earned.shape[0]):
        terminated[i] = terminals[i] != 0
        truncated[i] = truncations[i] != 0
    k = 0
    for j in range(words.shape[0]):
        word = words[j]
        while word:
            e = 64 * j + np.int64(trailing_zeros(word))
            word &= word - _ONE
            env_ids[k], last_reward[k] = e, reward[e]
            last_flags[0, k], last_flags[1, k] = terminated[e], truncated[e]
            last_books[EARNED_SO_FAR, k], last_books[NUMBERS, k] = earned[e], numbers[e]
            last_books[BEGUN_AT, k] = clock - begun[e]
            if goes_on:
                earned[e] = 0.0
                begun[e] = clock
                numbers[e] += 1.0
            k += 1


def load_count() -> Kernel:
    """`count`, compiled or read from the cache."""
    floats, longs, flags = array_of("float32"), array_of("int64"), array_of("uint8")
    bools, doubles = (types.Array(kind, 2, "C") for kind in (types.boolean, types.float64))
    step = array_of("uint64"), types.int64, types.boolean, floats, flags, flags
    return loaded(count, *step, doubles, bools, longs, floats, bools, doubles)
