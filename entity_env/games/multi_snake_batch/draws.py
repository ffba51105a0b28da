"""Seeds of episodes, and the draws that follow from each: the same in Python, numpy and numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.core import seeding
from entity_env.core.seeding import SEEDS_PER_BLOCK, splitmix64_int

Item = TypeVar("Item")
Words = TypeVar("Words", np.uint64, NDArray[np.uint64])

_MASK: Final = 0xFFFF_FFFF

# The constants of numpy.random.SeedSequence.
_INIT_A: Final = 0x43B0_D7E5
_MULT_A: Final = 0x931E_8875
_INIT_B: Final = 0x8B51_F9DD
_MULT_B: Final = 0x58F3_8DED
_MIX_LEFT: Final = 0xCA01_F9DD
_MIX_RIGHT: Final = 0x4973_F715
_POOL_SIZE: Final = 4


class Draws:
    """SplitMix64, as far as multi_snake needs a `random.Random`.

    Draw `k` of an episode, from 1, is that of `splitmix64(seed + k * GAMMA)`. With it in place of
    its own generator the plain game repeats an episode of `MultiSnakeBatch` from its seed.
    """

    def __init__(self) -> None:
        self._state = 0

    def seed(self, seed: int) -> None:
        """Begins the draws that follow from this seed."""
        self._state = seed

    def choice(self, items: Sequence[Item]) -> Item:
        """Any of less than 2**32 items, all equally likely up to 1 in 2**32."""
        self._state += seeding.GAMMA
        return items[(splitmix64_int(self._state) >> 32) * len(items) >> 32]


U1: Final = np.uint64(1)
U6: Final = np.uint64(6)
U16: Final = np.uint64(16)
U32: Final = np.uint64(32)
U63: Final = np.uint64(63)
MASK: Final = np.uint64(_MASK)
GAMMA: Final = np.uint64(seeding.GAMMA)
MULT_A: Final = np.uint64(_MULT_A)
MIX_LEFT: Final = np.uint64(_MIX_LEFT)
MIX_RIGHT: Final = np.uint64(2**32 - _MIX_RIGHT)

POWERS_A: Final[NDArray[np.uint64]] = np.array(
    [pow(_MULT_A, i, 2**32) for i in range(_POOL_SIZE)], dtype=np.uint64
)
OUT: Final[NDArray[np.uint64]] = np.array(
    [_INIT_B * pow(_MULT_B, i, 2**32) % 2**32 for i in range(2 * SEEDS_PER_BLOCK + 1)],
    dtype=np.uint64,
)
"""What each word that a SeedSequence generates is mixed with."""

# The next two are written for arrays and for compiled scalars alike: operators, and no calls.


def index_of(draw: Words, num_items: Words) -> Words:
    """The index that `Draws.choice` takes for a draw of `splitmix64`."""
    return ((draw >> U32) * num_items) >> U32


def absorbed(pool: Words, constant: Words, word: Words) -> Words:
    """One word of the pool of a SeedSequence after one more word of its entropy."""
    word = ((word ^ constant) * (constant * MULT_A & MASK)) & MASK
    word = word ^ (word >> U16)
    pool = (MIX_LEFT * pool + MIX_RIGHT * word) & MASK
    return pool ^ (pool >> U16)


def generated(pool: Words, out: Words, next_out: Words) -> Words:
    """One word that a SeedSequence generates."""
    word = ((pool ^ out) * next_out) & MASK
    return word ^ (word >> U16)


def runs(seed: int, env_ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """What the seeds of all episodes of a run follow from.

    Args:
        seed: of the run, 0 or more.
        env_ids: `(num_envs,)` below 2**32.

    Returns:
        `(num_envs, 5)`: the pool of `SeedSequence(seed, spawn_key=(env_id, ...))` before the rest
        of the spawn key, and the constant of its next step.
    """
    words = [seed >> shift & _MASK for shift in range(0, max(seed.bit_length(), 1), 32)]
    words += [0] * (_POOL_SIZE - len(words))
    constant = _INIT_A
    pool = []
    for word in words[:_POOL_SIZE]:
        pool.append(_hashed(word, constant))
        constant = constant * _MULT_A & _MASK
    for source in range(_POOL_SIZE):
        for i in range(_POOL_SIZE):
            if i != source:
                pool[i] = _mixed(pool[i], _hashed(pool[source], constant))
                constant = constant * _MULT_A & _MASK
    for word in words[_POOL_SIZE:]:
        for i in range(_POOL_SIZE):
            pool[i] = _mixed(pool[i], _hashed(word, constant))
            constant = constant * _MULT_A & _MASK
    constants = POWERS_A * np.uint64(constant) & MASK
    begun = np.empty((len(env_ids), _POOL_SIZE + 1), dtype=np.uint64)
    begun[:, :-1] = absorbed(
        np.array(pool, dtype=np.uint64), constants, env_ids.astype(np.uint64)[:, np.newaxis]
    )
    begun[:, -1] = constant * pow(_MULT_A, _POOL_SIZE, 2**32) & _MASK
    return begun


def episode_seeds(run: NDArray[np.uint64], number: NDArray[np.int64]) -> NDArray[np.int64]:
    """Seeds of episodes: those of `EpisodeSeeds(seed, env_id)[number]`.

    Args:
        run: `(num_envs, 5)`, see `runs`.
        number: `(num_envs,)`, 0 or more.
    """
    block, index = np.divmod(number, SEEDS_PER_BLOCK)
    rows = np.arange(len(run))
    seed = np.zeros(len(run), dtype=np.uint64)
    for half in (0, 1):
        i = 2 * index + half
        constant = run[:, -1] * POWERS_A[i % _POOL_SIZE] & MASK
        pool = absorbed(run[rows, i % _POOL_SIZE], constant, block.astype(np.uint64))
        seed |= generated(pool, OUT[i], OUT[i + 1]) << np.uint64(32 * half)
    return (seed >> np.uint64(1)).astype(np.int64)


def _hashed(word: int, constant: int) -> int:
    word = (word ^ constant) * (constant * _MULT_A & _MASK) & _MASK
    return word ^ word >> 16


def _mixed(pool: int, word: int) -> int:
    pool = (_MIX_LEFT * pool - _MIX_RIGHT * word) & _MASK
    return pool ^ pool >> 16
