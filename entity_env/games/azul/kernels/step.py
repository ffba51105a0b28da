"""Steps of one game and of many, compiled: moves, and the arrays that they fill."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled, loaded
from entity_env.core.seeding import GAMMA
from entity_env.games.azul import features
from entity_env.games.azul.batch import ActionIds, BatchArrays
from entity_env.games.azul.engine.rules import CENTRE, FLOOR_SLOTS, NOBODY, NUM_LINES
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.env import EnvConfig, RewardScheme
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    deal_packed,
    end_round,
    is_legal_packed,
    num_factories_packed,
    pass_turn,
    seat,
    start_game,
    take_packed,
    write_mask,
)
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    FIELD,
    NUM_PLAYERS,
    NUM_WORDS,
    ROUND,
    SCORE,
    PackedState,
    unpack_state,
)
from entity_env.games.azul.kernels.playouts import deal_by, uniform
from entity_env.games.azul.single_game import ILLEGAL, OVER, TO_DEAL, Mask, Observations, Rewards

Row = NDArray[np.float32]
"""`(OBS_SIZE,)` float32."""


def _table(values: Iterable[float]) -> Row:
    """Rounded as the reference does: divided in float64 first."""
    return np.array(list(values), np.float32)


# Tables, since a division takes as long as ten loads.
_PER_FACTORY: Final = _table(i / 4 for i in range(5))
_PER_COLOUR: Final = _table(i / 20 for i in range(21))
_PER_FLOOR: Final = _table(i / FLOOR_SLOTS for i in range(FLOOR_SLOTS + 1))
_FILLED: Final = _table(count / (row + 1) for row in range(5) for count in range(6))
_ONE: Final = np.float32(1)


@compiled(inline=True)
def write_observation(words: PackedState, player: int, row: Row) -> None:
    """Encodes a position into a row that is 0 everywhere."""
    for factory in range(num_factories_packed(words)):
        tiles = words[at.SOURCES + factory]
        for colour in range(5):
            row[5 * factory + colour] = _PER_FACTORY[tiles >> 6 * colour & FIELD]
    centre, bag, lid = words[at.SOURCES + CENTRE], words[at.BAG], words[at.LID]
    for colour in range(5):
        row[features.CENTRE_TILES + colour] = _PER_COLOUR[centre >> 6 * colour & FIELD]
        row[features.BAG_TILES + colour] = _PER_COLOUR[bag >> 6 * colour & FIELD]
        row[features.LID_TILES + colour] = _PER_COLOUR[lid >> 6 * colour & FIELD]
    num_players = words[at.NUM_PLAYERS]
    if words[at.HOLDER] == NOBODY:
        row[features.MARKER_IN_CENTRE] = _ONE
    for other in range(num_players):
        first = features.SEATS + features.SEAT_SIZE * _relative(other, player, num_players)
        _write_player(words, seat(other), words[at.HOLDER] == other, row, first)
    row[features.TURN + _relative(words[at.CURRENT], player, num_players)] = _ONE
    row[features.BEGAN + _relative(words[at.START], player, num_players)] = _ONE
    row[features.ROUND] = np.float32(words[at.ROUND] / features.ROUND_SCALE)


@compiled(inline=True)
def _relative(other: int, player: int, num_players: int) -> int:
    """The seat of another, seen by a player."""
    distance = other - player
    return distance + num_players if distance < 0 else distance


@compiled(inline=True)
def _write_player(words: PackedState, me: int, holds_marker: bool, row: Row, first: int) -> None:
    row[first] = _ONE
    lines, wall = words[me + at.LINES], words[me + at.WALL]
    for i in range(NUM_LINES):
        line = lines >> 6 * i & FIELD
        if line:
            row[first + features.LINES + 6 * i + (line >> 3)] = _ONE
            row[first + features.LINES + 6 * i + 5] = _FILLED[6 * i + (line & 7)]
    for cell in range(25):
        row[first + features.WALL + cell] = np.float32(wall >> cell & 1)
    row[first + features.FLOOR] = _PER_FLOOR[words[me + at.FLOOR_LENGTH]]
    row[first + features.HOLDS_MARKER] = np.float32(holds_marker)
    row[first + features.SCORE] = np.float32(words[me + at.SCORE] / features.SCORE_SCALE)


_GAMMA: Final = np.uint64(GAMMA)
_ZERO: Final = np.float32(0)
_NO_LIMIT: Final = 2**62


@compiled(inline=True)
def _end_round(words: PackedState, is_dense: bool, rewards: Rewards) -> bool:
    """`end_round`, with the rewards of all players; returns whether the game is over."""
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


# ---------------------------------------------------------------------------------------- one game


@compiled()
def _show(words: PackedState, observations: Observations, mask: Mask) -> int:
    """`SteppedGame.show`."""
    if observations.shape[0]:
        for player in range(words[NUM_PLAYERS]):
            write_observation(words, player, observations[player])
    write_mask(words, mask)
    status: int = words[CURRENT] + OVER * (words[END] != 0)
    return status


@compiled()
def _move(
    words: PackedState, action_id: int, observations: Observations, mask: Mask, rewards: Rewards
) -> int:
    """`SteppedGame.move`; fills no observation and mask if it returns `TO_DEAL`."""
    source = action_id // 30
    choice = action_id - 30 * source
    if not is_legal_packed(words, source, choice):
        return ILLEGAL
    if not take_packed(words, source, choice):
        pass_turn(words)
        return _show(words, observations, mask)
    return _show(words, observations, mask) if _end_round(words, True, rewards) else TO_DEAL


@compiled()
def _deal_and_show(
    words: PackedState, uniforms: NDArray[np.float64], observations: Observations, mask: Mask
) -> int:
    """The rest of a move that returned `TO_DEAL`."""
    deal_packed(words, uniforms)
    return _show(words, observations, mask)


@compiled()
def _start(
    words: PackedState, num_players: int, starting_player: int, uniforms: NDArray[np.float64]
) -> None:
    """The first round of a game."""
    start_game(words, num_players, starting_player)
    deal_packed(words, uniforms)


class StepKernels:
    """The functions for one game as machine code, compiled or read from the cache.

    They check only the number of dimensions: arrays must be contiguous and of the right types.
    """

    def __init__(self) -> None:
        words = types.Array(types.int64, 1, "C")
        uniforms = types.Array(types.float64, 1, "C")
        observations = types.Array(types.float32, 2, "C")
        mask = types.Array(types.boolean, 1, "C")
        rewards = types.Array(types.float32, 1, "C")
        number: Any = types.int64
        self.show = loaded(_show, words, observations, mask)
        self.move = loaded(_move, words, number, observations, mask, rewards)
        self.deal_and_show = loaded(_deal_and_show, words, uniforms, observations, mask)
        self.start = loaded(_start, words, number, number, uniforms)


# --------------------------------------------------------------------------------------- many games


class CompiledGames:
    """Games of a batch on the compiled engine; see `BatchGames`."""

    def __init__(self, config: EnvConfig, arrays: BatchArrays) -> None:
        self._arrays: Final = arrays
        self._table = np.zeros((len(arrays.rewards), NUM_WORDS), np.int64)
        self._num_players = config.num_players
        self._start = -1 if config.starting_player == "random" else int(config.starting_player)
        self._limit = _NO_LIMIT if config.max_rounds is None else min(config.max_rounds, _NO_LIMIT)
        self._is_dense = config.reward_scheme is RewardScheme.DenseScoreDelta

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        _begin_games(env_ids, self._num_players, self._start, self._table, self._arrays)

    def first_illegal(self, actions: ActionIds) -> int:
        return int(_first_illegal(self._table, actions))

    def step(self, actions: ActionIds) -> None:
        _step_games(actions, self._limit, self._is_dense, self._table, *self._arrays)

    def state(self, env_id: int) -> GameState:
        return unpack_state(self._table[env_id], SplitMix(int(self._arrays.streams[env_id])))


@compiled()
def _first_illegal(table: NDArray[np.int64], actions: ActionIds) -> int:
    for i in range(actions.shape[0]):
        source = actions[i] // 30
        if not is_legal_packed(table[i], source, actions[i] - 30 * source):
            return i
    return -1


@compiled(inline=True)
def _show_game(
    words: PackedState, is_cut: bool, observation: NDArray[np.float32], mask: Mask
) -> None:
    observation[:] = _ZERO
    mask[:] = False
    write_observation(words, words[CURRENT], observation)
    if not is_cut:
        write_mask(words, mask)


@compiled()
def _begin_games(
    env_ids: NDArray[np.int64],
    num_players: int,
    starting_player: int,
    table: NDArray[np.int64],
    arrays: BatchArrays,
) -> None:
    uniforms = np.zeros(36, np.float64)
    for i in env_ids:
        word, start = arrays.streams[i], starting_player
        if start < 0:
            word += _GAMMA
            start = int(uniform(word) * num_players)
        start_game(table[i], num_players, start)
        arrays.streams[i] = deal_by(table[i], word, uniforms)
        arrays.terminals[i] = arrays.truncations[i] = 0
        arrays.current_players[i] = table[i, CURRENT]
        _show_game(table[i], False, arrays.observations[i], arrays.legal_masks[i])


# Arrays one by one: as a tuple they make a step a quarter slower.
@compiled()
def _step_games(
    actions: ActionIds,
    limit: int,
    is_dense: bool,
    table: NDArray[np.int64],
    observations: NDArray[np.float32],
    legal_masks: NDArray[np.bool_],
    current_players: NDArray[np.int64],
    rewards: NDArray[np.float32],
    player_rewards: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    streams: NDArray[np.uint64],
) -> None:
    uniforms = np.zeros(36, np.float64)
    for i in range(actions.shape[0]):
        words, earned = table[i], player_rewards[i]
        source = actions[i] // 30
        mover = words[CURRENT]
        is_over = is_cut = False
        earned[:] = _ZERO
        if not take_packed(words, source, actions[i] - 30 * source):
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
        _show_game(words, is_cut, observations[i], legal_masks[i])
