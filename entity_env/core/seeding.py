"""Seeds of episodes, derived from one seed of a run."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import is_integer
from entity_env.errors import UsageError

_BLOCK: Final = 64
_NO_SEEDS: Final[NDArray[np.uint64]] = np.zeros(0, dtype=np.uint64)


class EpisodeSeeds:
    """The seeds of one environment's episodes, by number.

    The seed of episode `n` depends on the seed of the run, the index of the environment and `n`
    alone, whatever happened before. Made in blocks, since a `SeedSequence` takes 15 µs to set up.

    Args:
        seed: seed of the run, 0 or more.
        env_id: index of the environment.

    Raises:
        UsageError: a seed that is no integer, or negative.
    """

    def __init__(self, seed: int, env_id: int = 0) -> None:
        if not _is_seed(seed):
            raise UsageError(f"a seed must be an integer, 0 or more: got {seed!r}")
        self._seed = seed
        self._env_id = env_id
        self._block = -1
        self._seeds = _NO_SEEDS

    def __getitem__(self, episode: int) -> int:
        """Seed of an episode, `0 <= seed < 2**63`."""
        block, index = divmod(episode, _BLOCK)
        if block != self._block:
            sequence = np.random.SeedSequence(self._seed, spawn_key=(self._env_id, block))
            self._seeds = sequence.generate_state(_BLOCK, np.uint64) >> np.uint64(1)
            self._block = block
        return int(self._seeds[index])


Run: TypeAlias = tuple[EpisodeSeeds, int]
"""A run of episodes: their seeds, and the number of the one that comes next."""


def _is_seed(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


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
