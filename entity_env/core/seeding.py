"""Episode seeds, derived from the seed of a run, and SplitMix64."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Final, TypeAlias, TypeVar

from entity_env.core.validation import checked_seed

Item = TypeVar("Item")

SEEDS_PER_BLOCK: Final = 64
EVALUATED_ENV: Final = 2**31 - 1
"""Environment index for evaluations during training. No training environment has this index, so
seeds differ."""
PLAYED: Final = 2**31 - 2
"""Environment index for everything that plays outside training: `Game.run`, evaluations, matches,
recordings. Their episodes never occur in training, not even with the same seed."""


class EpisodeSeeds:
    """Seeds of one environment's episodes, by episode number.

    Without an environment's index, those of a run outside training: all ways of playing take the
    seed of episode `n` from here, so with the same seed, all agents play the same episodes.

    The seed of episode `n` depends only on the run's seed, the environment's index and `n`: the
    upper 63 bits of a 64-bit word of numpy's `SeedSequence(seed, spawn_key=(env_id, n // 64))`,
    computed here without numpy in 10 µs per block of 64 episodes plus 1 µs per episode. Raises
    `UsageError` for seeds that `checked_seed` refuses.
    """

    def __init__(self, seed: int, env_id: int = PLAYED) -> None:
        self.seed = checked_seed(seed)
        self.run_seed: int | None = self.seed
        """The seed of the run; None if the episodes do not belong to a run."""
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
    """Seeds with a given first seed, to replay one episode."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.run_seed = None
        self._first = self.seed

    def __getitem__(self, episode: int) -> int:
        return self._first if episode == 0 else super().__getitem__(episode)


# ------------------------------------------------------------------ numpy's SeedSequence

_UINT32: Final = 2**32 - 1
_POOL: Final = 4
_HASH, _HASH_STEP = 0x43B0D7E5, 0x931E8875
_WORD, _WORD_STEP = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = 0xCA01F9DD, 0x4973F715


def _pool_of(seed: int, *spawn_key: int) -> list[int]:
    """Pool of a `SeedSequence`: entropy hashed into four words (O'Neill 2015, randutils)."""
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
    """The 32-bit words of a number, lowest first."""
    found = [number & _UINT32]
    while number := number >> 32:
        found.append(number & _UINT32)
    return found


def _word(pool: Sequence[int], index: int) -> int:
    """One word that a `SeedSequence` generates from its pool."""
    word = pool[index % _POOL] ^ _CONSTANTS[index]
    word = word * _CONSTANTS[index + 1] & _UINT32
    return word ^ word >> 16


_CONSTANTS: Final = [
    _WORD * pow(_WORD_STEP, i, _UINT32 + 1) & _UINT32 for i in range(2 * SEEDS_PER_BLOCK + 1)
]


Run: TypeAlias = tuple[EpisodeSeeds, int]
"""Episode seeds of a run, and the number of the next episode."""


GAMMA: Final = 0x9E3779B97F4A7C15
"""Step of a SplitMix64 sequence: draw `k` of the sequence that starts at `state` is
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


class SplitMix64:
    """Random numbers that a seed determines in every language, and in batch environments.

    Draw `k` (from 1 on) is `splitmix64(seed + k * GAMMA)`; how numbers are derived from it is
    specified in docs/reference/protocol.md. A game written as a loop can reproduce an episode of
    its batch environment or of its twin in another language. The methods are named as those of
    `random.Random`.
    """

    def __init__(self, seed: int = 0) -> None:
        self._state = seed

    def seed(self, seed: int) -> None:
        """Restarts the sequence from a seed."""
        self._state = seed

    def random(self) -> float:
        """A multiple of 2**-53, at least 0 and less than 1."""
        self._state += GAMMA
        return (splitmix64_int(self._state) >> 11) / 2**53

    def uniform(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        return low + (high - low) * self.random()

    def randrange(self, stop: int) -> int:
        """Integer from 0 to `stop - 1`, with `stop` at most 2**32.

        The probability of each integer differs from `1 / stop` by less than 2**-32.
        """
        self._state += GAMMA
        return (splitmix64_int(self._state) >> 32) * stop >> 32

    def choice(self, items: Sequence[Item]) -> Item:
        """A random one of at most 2**32 items."""
        return items[self.randrange(len(items))]

    def shuffle(self, items: MutableSequence[Item]) -> None:
        """Puts items in random order, in place: swaps each from the last on with one up to it."""
        for i in range(len(items) - 1, 0, -1):
            j = self.randrange(i + 1)
            items[i], items[j] = items[j], items[i]
