"""Many two-player games for training, with scripted opponents; `games.azul.self_play` owns the
arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    end_round,
    pass_turn,
    rows_of,
    seat,
    start_game,
    take_packed,
)
from entity_env.games.azul.kernels.entities import EntityRows, Scratch, write_entities
from entity_env.games.azul.kernels.heuristics import POINT, best_move, potential_packed
from entity_env.games.azul.kernels.kernel import as_word, kernel, new_floats, new_ints
from entity_env.games.azul.kernels.packed_state import PackedState
from entity_env.games.azul.kernels.playouts import (
    deal_by,
    next_word,
    nth_move,
    random_move,
    uniform,
)

LEARNER, GREEDY, RUSH, RANDOM = 0, 1, 2, 3
"""Players of the second seat."""


class SelfPlayGames(NamedTuple):
    """State of the games.

    Args:
        words: `(num_envs, 48)` int64, the positions.
        streams: `(num_envs,)` uint64, the states of the random generators.
        others: `(num_envs,)` int64, the players of the second seat.
        starts: `(num_envs,)` int64, the seat that begins the next game.
        leads: `(num_envs, 2)` float64, lead of each seat at its last observation, times
            `lead_scale`.
        has_lead: `(num_envs, 2)` bool, True if the seat was observed in this game.
    """

    words: Any
    streams: NDArray[np.uint64]
    others: NDArray[np.int64]
    starts: NDArray[np.int64]
    leads: NDArray[np.float64]
    has_lead: NDArray[np.bool_]


class SelfPlaySteps(NamedTuple):
    """Results of a step. Row `2 i + s` is seat s of game i.

    Args:
        reward: `(num_rows,)` float32.
        terminated: `(num_rows,)` bool.
        lengths: `(7, num_rows)` int64, numbers of entities by type.
        scores: `(num_envs, 2)` int64, scores of games that have just ended.
        shares: `(num_envs,)` float64, the first seat's share of the win in these games; -1
            elsewhere.
    """

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    scores: NDArray[np.int64]
    shares: NDArray[np.float64]


@kernel()
def _standing(words: PackedState, player: int) -> int:
    """Final score in hundredths of a point, or the potential before the end."""
    if words[at.END]:
        score: int = POINT * words[seat(player) + at.SCORE]
        return score
    return potential_packed(words, player)


@kernel()
def _make_move(
    games: SelfPlayGames, i: int, source: int, choice: int, uniforms: list[float]
) -> bool:
    """Makes a move, and deals after a round; True if the game is over."""
    words = games.words[i]
    if not take_packed(words, source, choice):
        pass_turn(words)
        return False
    if end_round(words):
        return True
    games.streams[i] = deal_by(words, as_word(games.streams[i]), uniforms)
    return False


@kernel()
def _answer(games: SelfPlayGames, i: int, uniforms: list[float], worths: list[int]) -> bool:
    """Plays the scripted player until a learner's turn; True if the game is over."""
    words, other = games.words[i], games.others[i]
    while other != LEARNER and words[at.CURRENT] == 1:
        if other == RANDOM:
            word = next_word(as_word(games.streams[i]))
            games.streams[i] = word
            source, choice = random_move(words, uniform(word))
        else:
            source, choice = best_move(words, 0 if other == GREEDY else 1, worths)
        if _make_move(games, i, source, choice, uniforms):
            return True
    return False


@kernel()
def _begin_one(games: SelfPlayGames, i: int, uniforms: list[float], worths: list[int]) -> None:
    start_game(games.words[i], 2, games.starts[i])
    games.starts[i] = 1 - games.starts[i]
    games.streams[i] = deal_by(games.words[i], as_word(games.streams[i]), uniforms)
    games.has_lead[i, 0] = games.has_lead[i, 1] = False
    _answer(games, i, uniforms, worths)


@kernel()
def _reward_lead(
    games: SelfPlayGames, i: int, player: int, scale: float, steps: SelfPlaySteps
) -> None:
    """Rewards a seat for the change of its lead since its last observation."""
    lead = float(_standing(games.words[i], player) - _standing(games.words[i], 1 - player))
    lead *= scale / POINT
    if games.has_lead[i, player]:
        steps.reward[2 * i + player] += lead - games.leads[i, player]
    games.leads[i, player] = lead
    games.has_lead[i, player] = True


@kernel()
def _finish(games: SelfPlayGames, i: int, scale: float, win: float, steps: SelfPlaySteps) -> None:
    words = games.words[i]
    mine, theirs = words[seat(0) + at.SCORE], words[seat(1) + at.SCORE]
    steps.scores[i, 0] = mine
    steps.scores[i, 1] = theirs
    rows = rows_of(words[seat(0) + at.WALL]) - rows_of(words[seat(1) + at.WALL])
    ahead = mine - theirs if mine != theirs else rows
    steps.shares[i] = 0.5 + 0.5 * (ahead > 0) - 0.5 * (ahead < 0)
    for player in range(1 + int(games.others[i] == LEARNER)):
        _reward_lead(games, i, player, scale, steps)
        sign = 2 * steps.shares[i] - 1
        steps.reward[2 * i + player] += win * (sign if player == 0 else -sign)
        steps.terminated[2 * i + player] = True


@kernel()
def begin_games(env_ids: NDArray[np.int64], games: SelfPlayGames) -> None:
    """Starts new games."""
    uniforms, worths = new_floats(36), new_ints(30)
    for i in env_ids:
        _begin_one(games, i, uniforms, worths)


@kernel()
def step_games(
    picks: NDArray[np.int64], scale: float, win: float, games: SelfPlayGames, steps: SelfPlaySteps
) -> None:
    """Makes the picked moves and those of scripted players; restarts games that end.

    Adds to `steps`, as `write_games` does; the caller clears `steps` before each step.
    """
    uniforms, worths = new_floats(36), new_ints(30)
    for i in range(picks.shape[0]):
        source, choice = nth_move(games.words[i], picks[i])
        is_over = _make_move(games, i, source, choice, uniforms)
        if is_over or _answer(games, i, uniforms, worths):
            _finish(games, i, scale, win, steps)
            _begin_one(games, i, uniforms, worths)


@kernel()
def write_games(
    scale: float, games: SelfPlayGames, steps: SelfPlaySteps, shown: EntityRows, scratch: Scratch
) -> tuple[int, int]:
    """Writes each current player's observation; returns the numbers of groups and options."""
    filled = new_ints(3)
    for i in range(games.words.shape[0]):
        words = games.words[i]
        player = words[at.CURRENT]
        _reward_lead(games, i, player, scale, steps)
        groups, options = write_entities(words, filled, shown, scratch)
        row = 2 * i + player
        steps.lengths[0, row] = 1
        steps.lengths[1, row] = 6
        steps.lengths[2, row] = groups
        steps.lengths[3, row] = 2
        steps.lengths[4, row] = 10
        steps.lengths[5, row] = 10
        steps.lengths[6, row] = options
    return filled[1], filled[2]
