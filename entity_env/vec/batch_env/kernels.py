"""Numba kernel of `BatchEpisodeStats`; the reference is `count_step_numpy` in statistics.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from entity_env.core.episode_stats import STATS_LENGTH, STATS_NUMBER, STATS_REWARD
from entity_env.core.numba_utils import array_of, compiled, loaded, trailing_zeros

_ONE: Final = np.uint64(1)


@compiled()
def count_step(
    words: NDArray[np.uint64],
    clock: int,
    goes_on: bool,
    reward: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    counts: NDArray[np.float64],
    flags: NDArray[np.bool_],
    env_ids: NDArray[np.int64],
    last_reward: NDArray[np.float32],
    last_flags: NDArray[np.bool_],
    last_counts: NDArray[np.float64],
) -> None:
    """See `CountStep` in statistics.py."""
    total, length, number = counts[STATS_REWARD], counts[STATS_LENGTH], counts[STATS_NUMBER]
    terminated, truncated = flags[0], flags[1]
    for i in range(total.shape[0]):
        total[i] += reward[i]
    for i in range(total.shape[0]):
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
            last_counts[STATS_REWARD, k], last_counts[STATS_NUMBER, k] = total[e], number[e]
            last_counts[STATS_LENGTH, k] = clock + length[e]
            if goes_on:
                total[e] = 0.0
                length[e] = -clock
                number[e] += 1.0
            k += 1


def load_count_step() -> Callable[..., None]:
    """`count_step`, compiled or read from the cache."""
    floats, longs, flags = array_of("float32"), array_of("int64"), array_of("uint8")
    bools, doubles = (types.Array(kind, 2, "C") for kind in (types.boolean, types.float64))
    step = array_of("uint64"), types.int64, types.boolean, floats, flags, flags
    return loaded(count_step, *step, doubles, bools, longs, floats, bools, doubles)
