"""Steps of one game and of many: moves, and the arrays that they fill."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    Mask,
    deal_packed,
    end_round,
    is_legal_packed,
    pass_turn,
    seat,
    start_game,
    take_packed,
    write_mask,
)
from entity_env.games.azul.kernels.kernel import as_word, kernel, new_floats
from entity_env.games.azul.kernels.observation import Row, write_observation
from entity_env.games.azul.kernels.packed_state import PackedState
from entity_env.games.azul.kernels.playouts import deal_by, next_word, uniform

Observations: TypeAlias = NDArray[np.float32]
"""`(4, OBS_SIZE)` zeros to fill; `(0, OBS_SIZE)`: nothing is filled."""
Rewards: TypeAlias = NDArray[np.float32]
"""`(4,)` zeros to fill with changes of the scores."""
ActionIds: TypeAlias = NDArray[np.int64]
"""`(num_envs,)` int64, each from 0 to 299."""

ILLEGAL: Final = -1
TO_DEAL: Final = -2
"""Result of a move after which the next round must be dealt."""
OVER: Final = 4
NO_LIMIT: Final = 2**62


@kernel(inline=True)
def _end_round(words: PackedState, is_dense: bool, rewards: Rewards) -> bool:
    """`end_round` with rewards; True if the game is over."""
    num_players = words[at.NUM_PLAYERS]
    for player in range(num_players):
        rewards[player] = -words[seat(player) + at.SCORE]
    is_over = end_round(words)
    if is_dense:
        for player in range(num_players):
            rewards[player] += words[seat(player) + at.SCORE]
        return is_over
    total = 0
    for player in range(num_players):
        total += words[seat(player) + at.SCORE]
    for player in range(num_players):
        score = words[seat(player) + at.SCORE]
        rewards[player] = score - total / num_players if is_over else 0.0
    return is_over


# ---------------------------------------------------------------------------------------- one game


@kernel()
def show_game(words: PackedState, observations: Observations, mask: Mask) -> int:
    """Fills the arrays; returns the current player, or `OVER` plus the player of the last move."""
    if observations.shape[0]:
        for player in range(words[at.NUM_PLAYERS]):
            write_observation(words, player, observations[player])
    write_mask(words, mask)
    status: int = words[at.CURRENT] + OVER * (words[at.END] != 0)
    return status


@kernel()
def move_in_game(
    words: PackedState, action_id: int, observations: Observations, mask: Mask, rewards: Rewards
) -> int:
    """Makes a move, an id from 0 to 299, and fills the arrays; returns as `show_game`, or
    `ILLEGAL`, or `TO_DEAL`, which leaves observation and mask unfilled."""
    source = action_id // 30
    choice = action_id - 30 * source
    if not is_legal_packed(words, source, choice):
        return ILLEGAL
    if not take_packed(words, source, choice):
        pass_turn(words)
        return show_game(words, observations, mask)
    return show_game(words, observations, mask) if _end_round(words, True, rewards) else TO_DEAL


@kernel()
def deal_and_show(
    words: PackedState, uniforms: list[float], observations: Observations, mask: Mask
) -> int:
    """Completes a move that returned `TO_DEAL`."""
    deal_packed(words, uniforms)
    return show_game(words, observations, mask)


@kernel()
def start_dealt(
    words: PackedState, num_players: int, starting_player: int, uniforms: list[float]
) -> None:
    """Deals the first round of a game."""
    start_game(words, num_players, starting_player)
    deal_packed(words, uniforms)


# --------------------------------------------------------------------------------------- many games


class BatchArrays(NamedTuple):
    """Results of a batch, written in place.

    Args:
        observations: `(num_envs, OBS_SIZE)` float32, seen by the current player.
        legal_masks: `(num_envs, 300)` bool, legal actions of that player.
        current_players: `(num_envs,)` int64.
        rewards: `(num_envs,)` float32, reward of the player of the last move.
        player_rewards: `(num_envs, 4)` float32, rewards of all players.
        terminals, truncations: `(num_envs,)` uint8.
        streams: `(num_envs,)` uint64, generator states.
    """

    observations: NDArray[np.float32]
    legal_masks: NDArray[np.bool_]
    current_players: NDArray[np.int64]
    rewards: NDArray[np.float32]
    player_rewards: NDArray[np.float32]
    terminals: NDArray[np.uint8]
    truncations: NDArray[np.uint8]
    streams: NDArray[np.uint64]


@kernel()
def first_illegal(table: list[PackedState], actions: ActionIds) -> int:
    """First game with an illegal action, or -1."""
    for i in range(actions.shape[0]):
        action_id = int(actions[i])
        source = action_id // 30
        if not is_legal_packed(table[i], source, action_id - 30 * source):
            return i
    return -1


@kernel(inline=True)
def _show_current(words: PackedState, is_cut: bool, observation: Row, mask: Mask) -> None:
    observation[:] = 0.0
    mask[:] = False
    write_observation(words, words[at.CURRENT], observation)
    if not is_cut:
        write_mask(words, mask)


@kernel()
def begin_batch(
    env_ids: NDArray[np.int64],
    num_players: int,
    starting_player: int,
    table: list[PackedState],
    arrays: BatchArrays,
) -> None:
    """Starts new games, dealt by the next draws; a `starting_player` of -1 is drawn, too."""
    uniforms = new_floats(36)
    for i in env_ids:
        word, start = as_word(arrays.streams[i]), starting_player
        if start < 0:
            word = next_word(word)
            start = int(uniform(word) * num_players)
        start_game(table[i], num_players, start)
        arrays.streams[i] = deal_by(table[i], word, uniforms)
        arrays.terminals[i] = arrays.truncations[i] = 0
        arrays.current_players[i] = table[i][at.CURRENT]
        _show_current(table[i], False, arrays.observations[i], arrays.legal_masks[i])


# Separate arrays: a tuple makes a step a quarter slower.
@kernel()
def step_batch(
    actions: ActionIds,
    limit: int,
    is_dense: bool,
    table: list[PackedState],
    observations: NDArray[np.float32],
    legal_masks: NDArray[np.bool_],
    current_players: NDArray[np.int64],
    rewards: NDArray[np.float32],
    player_rewards: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    streams: NDArray[np.uint64],
) -> None:
    """Makes a legal move in every game; no game may be over."""
    uniforms = new_floats(36)
    for i in range(actions.shape[0]):
        words, earned = table[i], player_rewards[i]
        action_id = int(actions[i])
        source = action_id // 30
        mover = words[at.CURRENT]
        is_over = is_cut = False
        earned[:] = 0.0
        if not take_packed(words, source, action_id - 30 * source):
            pass_turn(words)
        else:
            is_over = _end_round(words, is_dense, earned)
            if not is_over:
                streams[i] = deal_by(words, as_word(streams[i]), uniforms)
                is_cut = words[at.ROUND] > limit
        rewards[i] = earned[mover]
        terminals[i] = is_over
        truncations[i] = is_cut
        current_players[i] = words[at.CURRENT]
        _show_current(words, is_cut, observations[i], legal_masks[i])
