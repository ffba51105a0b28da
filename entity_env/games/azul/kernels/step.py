"""Steps of one game, compiled: the words change, and arrays are filled with what is to be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from entity_env.games.azul.kernels.engine import (
    deal,
    end_round,
    is_legal,
    pass_turn,
    seat,
    start_game,
    take,
    write_mask,
)
from entity_env.games.azul.kernels.features import write_observation
from entity_env.games.azul.kernels.packed_state import CURRENT, END, NUM_PLAYERS, SCORE, Words
from entity_env.games.azul.single_game import ILLEGAL, OVER, TO_DEAL
from entity_env.vec.batch_env.batch_compiled import compiled, loaded

Observations = NDArray[np.float32]
Mask = NDArray[np.bool_]
Rewards = NDArray[np.float32]


@compiled()
def show(words: Words, observations: Observations, mask: Mask) -> int:
    """Fills the mask, and a row for each player unless there are no rows: all 0 before.

    Returns what `SteppedGame.show` returns.
    """
    if observations.shape[0]:
        for player in range(words[NUM_PLAYERS]):
            write_observation(words, player, observations[player])
    write_mask(words, mask)
    status: int = words[CURRENT] + OVER * (words[END] != 0)
    return status


@compiled()
def advance(
    words: Words, action_id: int, observations: Observations, mask: Mask, rewards: Rewards
) -> int:
    """Makes a move, and shows what it led to, unless it returns `TO_DEAL`.

    Otherwise it returns what `SteppedGame.move` returns.
    """
    source = action_id // 30
    choice = action_id - 30 * source
    if not is_legal(words, source, choice):
        return ILLEGAL
    if not take(words, source, choice):
        pass_turn(words)
        return show(words, observations, mask)
    for player in range(words[NUM_PLAYERS]):
        rewards[player] = -words[seat(player) + SCORE]
    is_over = end_round(words)
    for player in range(words[NUM_PLAYERS]):
        rewards[player] += words[seat(player) + SCORE]
    return show(words, observations, mask) if is_over else TO_DEAL


@compiled()
def deal_and_show(
    words: Words, uniforms: NDArray[np.float64], observations: Observations, mask: Mask
) -> int:
    """What `advance` leaves to be done when a round begins."""
    deal(words, uniforms)
    return show(words, observations, mask)


@compiled()
def start(
    words: Words, num_players: int, starting_player: int, uniforms: NDArray[np.float64]
) -> None:
    """The first round of a game."""
    start_game(words, num_players, starting_player)
    deal(words, uniforms)


class Kernels:
    """The functions of this module as machine code, compiled or read from the cache.

    They look at no more than the number of dimensions: arrays must be whole, of the right types.
    """

    def __init__(self) -> None:
        words = types.Array(types.int64, 1, "C")
        uniforms = types.Array(types.float64, 1, "C")
        observations = types.Array(types.float32, 2, "C")
        mask = types.Array(types.boolean, 1, "C")
        rewards = types.Array(types.float32, 1, "C")
        number: Any = types.int64
        self.show = loaded(show, words, observations, mask)
        self.advance = loaded(advance, words, number, observations, mask, rewards)
        self.deal_and_show = loaded(deal_and_show, words, uniforms, observations, mask)
        self.start = loaded(start, words, number, number, uniforms)
