"""Tile sources of a deal: random numbers, or a function that replays a game."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import GAMMA, splitmix64_int
from entity_env.errors import SchemaError, UsageError

Draw: TypeAlias = Callable[[tuple[int, ...]], int]
"""Draws a tile: maps the counts of the bag by color, never all 0, to a color. Called once per tile
in deal order: factory 0 first, four tiles per factory."""


class RandomSource(Protocol):
    """Random numbers for deals: a `numpy.random.Generator`, or any object with this method."""

    def random(self, size: int, /) -> NDArray[np.float64]:
        """`(size,)` float64, uniform in [0, 1). Called once per deal, for 4 numbers per factory."""


def checked_rng(rng: RandomSource | None) -> RandomSource:
    """The given source, or a new one with a random seed."""
    if rng is None:
        return np.random.default_rng()
    source: object = rng
    if isinstance(source, Random) or not hasattr(source, "random"):
        raise UsageError(
            f"Azul: rng must be a numpy.random.Generator, as default_rng(seed) makes, got {rng!r}"
        )
    return rng


def deal_numbers(rng: RandomSource, count: int) -> NDArray[np.float64]:
    """Numbers of one deal, `(count,)` contiguous float64."""
    numbers = np.ascontiguousarray(rng.random(count), np.float64)
    if numbers.shape != (count,):
        raise SchemaError(
            f"Azul: {type(rng).__name__}.random({count}) must return an array of that many "
            f"numbers, got shape {numbers.shape}"
        )
    return numbers


_WORD: Final = 2**64 - 1


class SplitMix:
    """SplitMix64 as a source of random numbers, as in `kernels.playouts`.

    Args:
        word: initial state, 64 bits.
    """

    def __init__(self, word: int) -> None:
        self.word = word & _WORD

    def uniform(self) -> float:
        """Number in [0, 1): the upper 53 bits of the next output."""
        self.word = self.word + GAMMA & _WORD
        return (splitmix64_int(self.word) >> 11) * 2.0**-53

    def random(self, size: int, /) -> NDArray[np.float64]:
        return np.array([self.uniform() for _ in range(size)])
