"""Where episodes start: draws that depend on an environment's seed and its episode alone.

Every environment has a sequence of its own, SplitMix64 (Steele, Lea and Flood 2014), and an episode
takes the next two numbers of it. The sequence of environment i begins at the mixed `seed + i`: the
neighbours of a seed are unrelated, and draw k of one environment is never draw k - 1 of the next.
`compiled.py` draws the same bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import is_integer
from entity_env.errors import UsageError

NUM_SEEDS: Final = 2**64
NUM_DRAWS: Final = 4
HALF: Final = 2**23
"""Draws are integers from `-HALF` to `HALF - 1`: all of them are exact float32."""

GAMMA: Final = 0x9E3779B97F4A7C15
MULTIPLIERS: Final = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS: Final = (30, 27, 31)


def checked_seed(seed: int) -> int:
    """A seed from 0 to `NUM_SEEDS - 1`.

    Raises:
        UsageError: anything else.
    """
    if not is_integer(seed) or not 0 <= seed < NUM_SEEDS:
        raise UsageError(f"a seed must be an integer from 0 to 2**64 - 1: got {seed!r}")
    return int(seed)


def streams(seed: int, env_ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`(len(env_ids),)` uint64: where the sequences of environments begin, by `seed + env_id`."""
    return mixed(np.uint64(seed) + env_ids.astype(np.uint64))


def draw(streams: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The draws of one episode each, and where the sequences go on.

    Returns:
        `(NUM_DRAWS, num)` int32 from `-HALF` to `HALF - 1`, and `(num,)` uint64.
    """
    first = streams + np.uint64(GAMMA)
    second = first + np.uint64(GAMMA)
    words = np.stack([mixed(first), mixed(second)])
    high, low = words >> np.uint64(40), words >> np.uint64(8) & np.uint64(2 * HALF - 1)
    bits = np.stack([high[0], low[0], high[1], low[1]])
    return bits.astype(np.int32) - np.int32(HALF), second


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64: a bijection that spreads every bit over all."""
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(multiplier)
    return words ^ (words >> np.uint64(SHIFTS[-1]))
