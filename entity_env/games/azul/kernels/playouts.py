"""Whole games of random moves, and the random numbers of all kernels."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import GAMMA, splitmix64_int
from entity_env.games.azul.engine.rules import FLOOR, NUM_SOURCES
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    colour_fields,
    deal_packed,
    fits_of,
    make_move,
    num_factories_packed,
    seat,
    start_game,
)
from entity_env.games.azul.kernels.kernel import (
    WORD,
    as_word,
    bits_of,
    kernel,
    new_floats,
    new_ints,
)
from entity_env.games.azul.kernels.packed_state import NUM_WORDS, PackedState

_UNIT: Final = 2.0**-53


@kernel(inline=True)
def next_word(word: int) -> int:
    """Next SplitMix64 state."""
    return word + GAMMA & WORD


@kernel(inline=True)
def uniform(word: int) -> float:
    """`SplitMix.uniform` for a sequence in state `word`."""
    return float(splitmix64_int(word) >> 11) * _UNIT


@kernel(inline=True)
def deal_by(words: PackedState, word: int, uniforms: list[float]) -> int:
    """Deals with the next numbers of a sequence; returns its new state."""
    for i in range(4 * num_factories_packed(words)):
        word = next_word(word)
        uniforms[i] = uniform(word)
    deal_packed(words, uniforms)
    return word


@kernel(inline=True)
def nth_bit(bits: int, n: int) -> int:
    """Position of the n-th set bit, from 0, lowest first."""
    for _ in range(n):
        bits &= bits - 1
    return bits_of((bits & -bits) - 1)


@kernel(inline=True)
def nth_move(words: PackedState, n: int) -> tuple[int, int]:
    """Source and choice of the n-th legal move by id, from 0; -1, -1 if none."""
    fits = fits_of(words)
    for source in range(NUM_SOURCES):
        moves = fits & colour_fields(words[at.SOURCES + source])
        count = bits_of(moves)
        if n < count:
            return source, nth_bit(moves, n)
        n -= count
    return -1, -1


@kernel(inline=True)
def random_move(words: PackedState, number: float) -> tuple[int, int]:
    """A legal move for a number in [0, 1): source, and `6 * colour + destination`."""
    fits = fits_of(words)
    total = 0
    for source in range(NUM_SOURCES):
        total += bits_of(fits & colour_fields(words[at.SOURCES + source]))
    return nth_move(words, int(number * total))


@kernel()
def play_games(
    start: int,
    num_players: int,
    scores: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """One random game per row; see `playouts.Playouts`."""
    words = new_ints(NUM_WORDS)
    uniforms = new_floats(36)
    for i in range(scores.shape[0]):
        word = splitmix64_int(as_word(start) + as_word(i) & WORD)
        start_game(words, num_players, i % num_players)
        word = deal_by(words, word, uniforms)
        num_moves = num_floor_moves = 0
        while words[at.END] == 0:
            word = next_word(word)
            source, choice = random_move(words, uniform(word))
            num_moves += 1
            num_floor_moves += choice % 6 == FLOOR
            if make_move(words, source, choice) and words[at.END] == 0:
                word = deal_by(words, word, uniforms)
        counts[i, 0] = num_moves
        counts[i, 1] = words[at.ROUND]
        counts[i, 2] = num_floor_moves
        counts[i, 3] = words[at.END]
        for player in range(num_players):
            scores[i, player] = words[seat(player) + at.SCORE]
