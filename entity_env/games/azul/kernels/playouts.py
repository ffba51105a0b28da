"""Whole games of random moves, compiled; `players.playouts` has the reference."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled, splitmix64
from entity_env.core.seeding import GAMMA
from entity_env.games.azul.engine.rules import FLOOR, NUM_SOURCES
from entity_env.games.azul.kernels.engine import (
    bits_of,
    colour_fields,
    deal_packed,
    end_round,
    fits_of,
    num_factories_packed,
    pass_turn,
    seat,
    start_game,
    take_packed,
)
from entity_env.games.azul.kernels.packed_state import (
    END,
    NUM_WORDS,
    ROUND,
    SCORE,
    SOURCES,
    PackedState,
)

_GAMMA: Final = np.uint64(GAMMA)
_U11: Final = np.uint64(11)
_UNIT: Final = 2.0**-53


@compiled(inline=True)
def uniform(word: np.uint64) -> float:
    """`SplitMix.uniform`, of a sequence that has reached `word`."""
    return float(splitmix64(word) >> _U11) * _UNIT


@compiled(inline=True)
def deal_by(words: PackedState, word: np.uint64, uniforms: NDArray[np.float64]) -> np.uint64:
    """Deals by the next numbers of a sequence; returns its new state."""
    for i in range(4 * num_factories_packed(words)):
        word += _GAMMA
        uniforms[i] = uniform(word)
    deal_packed(words, uniforms)
    return word


@compiled(inline=True)
def nth_bit(bits: int, n: int) -> int:
    """The position of a bit that is set, counted from 0, lowest first."""
    for _ in range(n):
        bits &= bits - 1
    return bits_of((bits & -bits) - 1)


@compiled(inline=True)
def random_move(words: PackedState, number: float) -> tuple[int, int]:
    """A legal move by a number from 0 to 1: source, and `6 * colour + destination`."""
    fits = fits_of(words)
    total = 0
    for i in range(NUM_SOURCES):
        total += bits_of(fits & colour_fields(words[SOURCES + i]))
    left = int(number * total)
    source = 0
    moves = fits & colour_fields(words[SOURCES])
    count = bits_of(moves)
    while left >= count:
        left -= count
        source += 1
        moves = fits & colour_fields(words[SOURCES + source])
        count = bits_of(moves)
    return source, nth_bit(moves, left)


@compiled()
def play_games(
    start: np.uint64,
    num_players: int,
    scores: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Plays as many random games as there are rows; see `playouts.Playouts`."""
    words = np.zeros(NUM_WORDS, np.int64)
    uniforms = np.zeros(36, np.float64)
    for i in range(scores.shape[0]):
        word = splitmix64(start + np.uint64(i))
        start_game(words, num_players, i % num_players)
        word = deal_by(words, word, uniforms)
        num_moves = num_floor_moves = 0
        while words[END] == 0:
            word += _GAMMA
            source, choice = random_move(words, uniform(word))
            num_moves += 1
            num_floor_moves += choice % 6 == FLOOR
            if not take_packed(words, source, choice):
                pass_turn(words)
            elif not end_round(words):
                word = deal_by(words, word, uniforms)
        counts[i, 0] = num_moves
        counts[i, 1] = words[ROUND]
        counts[i, 2] = num_floor_moves
        counts[i, 3] = words[END]
        for player in range(num_players):
            scores[i, player] = words[seat(player) + SCORE]
