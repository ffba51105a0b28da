"""Seeds of episodes, derived from the seed of a run, and SplitMix64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

from entity_env.core.validation import checked_seed

Item = TypeVar("Item")

SEEDS_PER_BLOCK: Final = 64
EVALUATED_ENV: Final = 2**31 - 1
"""No environment has this index, so that no episode of training has a seed of it."""


class EpisodeSeeds:
    """The seeds of one environment's episodes, by number.

    The seed of episode `n` depends on the seed of the run, the index of the environment and `n`
    alone: the upper 63 bits of a word of numpy's `SeedSequence(seed, spawn_key=(env_id, n // 64))`.
    It is computed here, in 10 µs for 64 episodes and one more for each, so that a game needs no
    numpy. A `UsageError` as of `checked_seed`.
    """

    def __init__(self, seed: int, env_id: int = 0) -> None:
        self.seed = checked_seed(seed)
        self.run_seed: int | None = self.seed
        """The seed of the run; None if the episodes are of none."""
        self.env_id = env_id
        self._block = -1
        self._pool: Sequence[int] = ()

    def __getitem__(self, episode: int) -> int:
        """Seed of an episode, `0 <= seed < 2**63`."""
        block, index = divmod(episode, SEEDS_PER_BLOCK)
        if block != self._block:
            self._pool = _pool_of(self.seed, self.env_id, block)
            self._block = block
        low, high = (_word(self._pool, i) for i in (2 * index, 2 * index + 1))
        return (high << 32 | low) >> 1


class SeedsFrom(EpisodeSeeds):
    """Seeds of which the first one is given: an episode that is played once more, alone."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.run_seed = None
        self._first = first

    def __getitem__(self, episode: int) -> int:
        return self._first if episode == 0 else super().__getitem__(episode)


# ------------------------------------------------------------------ numpy's SeedSequence

_UINT32: Final = 2**32 - 1
_POOL: Final = 4
_HASH, _HASH_STEP = 0x43B0D7E5, 0x931E8875
_WORD, _WORD_STEP = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = 0xCA01F9DD, 0x4973F715


def _pool_of(seed: int, *spawn_key: int) -> list[int]:
    """The pool of a `SeedSequence`: entropy hashed into four words (O'Neill 2015, randutils)."""
    entropy = _words(seed)
    entropy += [0] * (_POOL - len(entropy))
    for key in spawn_key:
        entropy += _words(key)
    constant = _HASH

    def hashed(word: int) -> int:
        nonlocal constant
        word ^= constant
        constant = constant * _HASH_STEP & _UINT32
        word = word * constant & _UINT32
        return word ^ word >> 16

    def mixed(x: int, y: int) -> int:
        word = (x * _LEFT - y * _RIGHT) & _UINT32
        return word ^ word >> 16

    pool = [hashed(word) for word in entropy[:_POOL]]
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                pool[i] = mixed(pool[i], hashed(pool[source]))
    for word in entropy[_POOL:]:
        for i in range(_POOL):
            pool[i] = mixed(pool[i], hashed(word))
    return pool


def _words(number: int) -> list[int]:
    """The 32 bit words of a number, the lowest first."""
    found = [number & _UINT32]
    while number := number >> 32:
        found.append(number & _UINT32)
    return found


def _word(pool: Sequence[int], index: int) -> int:
    """A word of the state that a `SeedSequence` generates from its pool."""
    word = pool[index % _POOL] ^ _CONSTANTS[index]
    word = word * _CONSTANTS[index + 1] & _UINT32
    return word ^ word >> 16


_CONSTANTS: Final = [
    _WORD * pow(_WORD_STEP, i, _UINT32 + 1) & _UINT32 for i in range(2 * SEEDS_PER_BLOCK + 1)
]


Run: TypeAlias = tuple[EpisodeSeeds, int]
"""Seeds of the episodes of a run, and the number of the next one."""


GAMMA: Final = 0x9E3779B97F4A7C15
"""Step of a SplitMix64 sequence: draw `k` of the sequence that begins at `state` is
`splitmix64(state + k * GAMMA)`; Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014."""

_UINT64: Final = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


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
