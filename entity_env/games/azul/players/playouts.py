"""Many whole games of random moves at once."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import splitmix64_int
from entity_env.core.validation import checked_count, checked_seed
from entity_env.games.azul.engine.engine import apply_in_place, legal_actions, new_game
from entity_env.games.azul.engine.rules import FLOOR, MAX_PLAYERS, MIN_PLAYERS
from entity_env.games.azul.engine.state import ENDS
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.single_game import Backend, plays_compiled


class Playouts(NamedTuple):
    """Results of many games, a row each; all int64.

    Attributes:
        scores: `(num_games, num_players)`, final.
        moves, rounds: `(num_games,)`, numbers of moves and rounds.
        floor_moves: `(num_games,)`, moves that took tiles straight to the floor.
        ends: `(num_games,)`, why each was over: an index of `ENDS`.
    """

    scores: NDArray[np.int64]
    moves: NDArray[np.int64]
    rounds: NDArray[np.int64]
    floor_moves: NDArray[np.int64]
    ends: NDArray[np.int64]


def play_many(
    num_games: int, seed: int, *, num_players: int = 2, backend: Backend = "auto"
) -> Playouts:
    """Plays games of uniformly random legal moves; game i is begun by player `i % num_players`.

    Game i depends on seed, i and the number of players alone, whatever the backend.

    Args:
        num_games: 0 or more.
        seed: 0 to 2**64 - 1.
        num_players: 2 to 4.
        backend: see `Backend`.

    Raises:
        UsageError: an invalid argument.
        MissingExtraError: backend "numba" where numba is not installed.
    """
    _check(num_games, seed, num_players)
    scores = np.zeros((num_games, num_players), np.int64)
    counts = np.zeros((num_games, 4), np.int64)
    start = splitmix64_int(seed)
    if plays_compiled(backend, "play_many"):
        module: Any = import_module("entity_env.games.azul.kernels.playouts")
        module.play_games(np.uint64(start), num_players, scores, counts)
    else:
        for i in range(num_games):
            scores[i], counts[i] = _play_game(
                splitmix64_int(start + i), i % num_players, num_players
            )
    moves, rounds, floor_moves, ends = np.ascontiguousarray(counts.T)
    return Playouts(scores, moves, rounds, floor_moves, ends - 1)


def _play_game(word: int, starting_player: int, num_players: int) -> tuple[list[int], list[int]]:
    """One game by the reference: scores, and moves, rounds, floor moves and end."""
    numbers = SplitMix(word)
    state = new_game(num_players, starting_player=starting_player, rng=numbers)
    num_moves = num_floor_moves = 0
    while state.end is None:
        actions = legal_actions(state)
        action = actions[int(numbers.uniform() * len(actions))]
        num_moves += 1
        num_floor_moves += action.destination == FLOOR
        apply_in_place(state, action, check=False)
    return state.scores, [num_moves, state.round, num_floor_moves, 1 + ENDS.index(state.end)]


def _check(num_games: int, seed: int, num_players: int) -> None:
    checked_count("play_many: num_games", num_games, 0, 2**62)
    checked_seed(seed, bits=64)
    checked_count("play_many: num_players", num_players, MIN_PLAYERS, MAX_PLAYERS)
