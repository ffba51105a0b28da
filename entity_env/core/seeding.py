"""Seeds of episodes, derived from the seed of a run, and SplitMix64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import checked_seed

Item = TypeVar("Item")
Words = TypeVar("Words", np.uint64, NDArray[np.uint64])

SEEDS_PER_BLOCK: Final = 64
EVALUATED_ENV: Final = 2**31 - 1
"""No environment has this index, so that no episode of training has a seed of it."""
_NO_SEEDS: Final[NDArray[np.uint64]] = np.zeros(0, dtype=np.uint64)


class EpisodeSeeds:
    """The seeds of one environment's episodes, by number.

    The seed of episode `n` depends on the seed of the run, the index of the environment and `n`
    alone. Made in blocks, since a `SeedSequence` takes 15 µs to set up. A `UsageError` as of
    `checked_seed`.
    """

    def __init__(self, seed: int, env_id: int = 0) -> None:
        self.seed = checked_seed(seed)
        self.run_seed: int | None = self.seed
        """The seed of the run; None if the episodes are of none."""
        self.env_id = env_id
        self._block = -1
        self._seeds = _NO_SEEDS

    def __getitem__(self, episode: int) -> int:
        """Seed of an episode, `0 <= seed < 2**63`."""
        block, index = divmod(episode, SEEDS_PER_BLOCK)
        if block != self._block:
            sequence = np.random.SeedSequence(self.seed, spawn_key=(self.env_id, block))
            self._seeds = sequence.generate_state(SEEDS_PER_BLOCK, np.uint64) >> np.uint64(1)
            self._block = block
        return int(self._seeds[index])


class SeedsFrom(EpisodeSeeds):
    """Seeds of which the first one is given: an episode that is played once more, alone."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.run_seed = None
        self._first = first

    def __getitem__(self, episode: int) -> int:
        return self._first if episode == 0 else super().__getitem__(episode)


Run: TypeAlias = tuple[EpisodeSeeds, int]
"""Seeds of the episodes of a run, and the number of the next one."""


GAMMA: Final = 0x9E3779B97F4A7C15
"""Step of a SplitMix64 sequence: draw `k` of the sequence that begins at `state` is
`splitmix64(state + k * GAMMA)`; Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014."""

_UINT64: Final = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MULTIPLY_1, _MULTIPLY_2 = np.uint64(_FIRST), np.uint64(_SECOND)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


def splitmix64(state: Words) -> Words:
    """Output function of SplitMix64, for arrays of uint64 and for scalars in compiled code."""
    state = (state ^ (state >> _SHIFT_1)) * _MULTIPLY_1
    state = (state ^ (state >> _SHIFT_2)) * _MULTIPLY_2
    return state ^ (state >> _SHIFT_3)


def splitmix64_int(state: int) -> int:
    """`splitmix64` of an integer of any size, modulo 2**64."""
    state &= _UINT64
    state = (state ^ state >> 30) * _FIRST & _UINT64
    state = (state ^ state >> 27) * _SECOND & _UINT64
    return state ^ state >> 31


class Draws:
    """Random integers of SplitMix64, as batch environments draw them, one by one.

    Draw `k`, from 1, is that of `splitmix64(seed + k * GAMMA)`. With it a game that is written as
    a loop repeats an episode of its batch environment from the seed. It has the methods of
    `random.Random` that `multi_snake` calls.
    """

    def __init__(self, seed: int = 0) -> None:
        self._state = seed

    def seed(self, seed: int) -> None:
        """Restarts the sequence from a seed."""
        self._state = seed

    def below(self, limit: int) -> int:
        """An integer from 0 to `limit - 1`, of at most 2**32, equally likely up to 1 in 2**32."""
        self._state += GAMMA
        return (splitmix64_int(self._state) >> 32) * limit >> 32

    def choice(self, items: Sequence[Item]) -> Item:
        """Any of at most 2**32 items."""
        return items[self.below(len(items))]


def env_seeds(seed: int, env_ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`(len(env_ids),) uint64`: seed of the sequence of episodes of each environment of a batch.

    That of environment 0 is the seed itself, so that a batch of one repeats any environment of any
    batch. That of environment i, from 1, is a hash of the seed plus i, below 2**63: batches whose
    seeds are neighbours share no sequence, and the seeds within a batch follow each other.

    Args:
        seed: of the batch, below 2**64.
        env_ids: from 0 to 2**62 - 1.
    """
    seeds = env_ids.astype(np.uint64)
    seeds += np.uint64(splitmix64_int(seed + GAMMA) >> 2)
    seeds[env_ids == 0] = seed
    return seeds
