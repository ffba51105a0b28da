"""Steps of one game, compiled: the words change, and arrays are filled with what is to be seen."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled, loaded
from entity_env.core.seeding import GAMMA
from entity_env.games.azul.batch import ActionIds, BatchArrays
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.env import EnvConfig, RewardScheme
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
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    NUM_PLAYERS,
    NUM_WORDS,
    ROUND,
    SCORE,
    Words,
    unpack_state,
)
from entity_env.games.azul.kernels.playouts import deal_by, uniform
from entity_env.games.azul.single_game import ILLEGAL, OVER, TO_DEAL

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


_GAMMA: Final = np.uint64(GAMMA)
_ZERO: Final = np.float32(0)
_NO_LIMIT: Final = 2**62

Table = NDArray[np.float32]
Flags = NDArray[np.uint8]


class CompiledBoards:
    """Games on the compiled engine.

    Args:
        config: what is played.
        arrays: where it is shown.
    """

    def __init__(self, config: EnvConfig, arrays: BatchArrays) -> None:
        num_envs = len(arrays.rewards)
        self._arrays: Final = arrays
        self._words = np.zeros((num_envs, NUM_WORDS), np.int64)
        self._num_players = config.num_players
        self._start = -1 if config.starting_player == "random" else int(config.starting_player)
        self._limit = _NO_LIMIT if config.max_rounds is None else min(config.max_rounds, _NO_LIMIT)
        self._is_dense = config.reward_scheme is RewardScheme.DenseScoreDelta

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        arrays = self._arrays
        _begin(env_ids, self._num_players, self._start, self._words, arrays.streams)
        arrays.terminals[env_ids] = 0
        arrays.truncations[env_ids] = 0
        _show(env_ids, self._words, arrays.observations, arrays.legal_masks, arrays.current_players)

    def first_illegal(self, actions: ActionIds) -> int:
        return int(_first_illegal(self._words, actions))

    def step(self, actions: ActionIds) -> None:
        arrays = self._arrays
        _step(
            actions,
            self._limit,
            self._is_dense,
            self._words,
            arrays.streams,
            arrays.observations,
            arrays.legal_masks,
            arrays.current_players,
            arrays.rewards,
            arrays.player_rewards,
            arrays.terminals,
            arrays.truncations,
        )

    def state(self, env_id: int) -> GameState:
        return unpack_state(self._words[env_id], SplitMix(int(self._arrays.streams[env_id])))


@compiled()
def _first_illegal(table: NDArray[np.int64], actions: ActionIds) -> int:
    for i in range(actions.shape[0]):
        source = actions[i] // 30
        if not is_legal(table[i], source, actions[i] - 30 * source):
            return i
    return -1


@compiled()
def _begin(
    env_ids: NDArray[np.int64],
    num_players: int,
    starting_player: int,
    table: NDArray[np.int64],
    streams: NDArray[np.uint64],
) -> None:
    uniforms = np.zeros(36, np.float64)
    for i in env_ids:
        word, start = streams[i], starting_player
        if start < 0:
            word += _GAMMA
            start = int(uniform(word) * num_players)
        start_game(table[i], num_players, start)
        streams[i] = deal_by(table[i], word, uniforms)


@compiled(inline=True)
def _show_one(
    words: Words, is_cut: bool, observation: NDArray[np.float32], mask: NDArray[np.bool_]
) -> None:
    observation[:] = _ZERO
    mask[:] = False
    write_observation(words, words[CURRENT], observation)
    if not is_cut:
        write_mask(words, mask)


@compiled()
def _show(
    env_ids: NDArray[np.int64],
    table: NDArray[np.int64],
    observations: Table,
    masks: NDArray[np.bool_],
    current_players: NDArray[np.int64],
) -> None:
    for i in env_ids:
        _show_one(table[i], False, observations[i], masks[i])
        current_players[i] = table[i, CURRENT]


@compiled(inline=True)
def _end_round(words: Words, is_dense: bool, rewards: NDArray[np.float32]) -> bool:
    """`end_round`, and what it earns each player; whether the game is over."""
    num_players = words[NUM_PLAYERS]
    for player in range(num_players):
        rewards[player] = -words[seat(player) + SCORE]
    is_over = end_round(words)
    if is_dense:
        for player in range(num_players):
            rewards[player] += words[seat(player) + SCORE]
        return is_over
    total = 0
    for player in range(num_players):
        total += words[seat(player) + SCORE]
    for player in range(num_players):
        score = words[seat(player) + SCORE]
        rewards[player] = score - total / num_players if is_over else 0.0
    return is_over


@compiled()
def _step(
    actions: ActionIds,
    limit: int,
    is_dense: bool,
    table: NDArray[np.int64],
    streams: NDArray[np.uint64],
    observations: Table,
    masks: NDArray[np.bool_],
    current_players: NDArray[np.int64],
    rewards: NDArray[np.float32],
    player_rewards: Table,
    terminals: Flags,
    truncations: Flags,
) -> None:
    uniforms = np.zeros(36, np.float64)
    for i in range(actions.shape[0]):
        words, earned = table[i], player_rewards[i]
        source = actions[i] // 30
        mover = words[CURRENT]
        is_over = is_cut = False
        earned[:] = _ZERO
        if not take(words, source, actions[i] - 30 * source):
            pass_turn(words)
        else:
            is_over = _end_round(words, is_dense, earned)
            if not is_over:
                streams[i] = deal_by(words, streams[i], uniforms)
                is_cut = words[ROUND] > limit
        rewards[i] = earned[mover]
        terminals[i] = is_over
        truncations[i] = is_cut
        current_players[i] = words[CURRENT]
        _show_one(words, is_cut, observations[i], masks[i])
