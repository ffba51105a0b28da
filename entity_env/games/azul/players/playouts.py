"""Many whole games of random moves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import splitmix64_int
from entity_env.core.validation import checked_count, checked_seed
from entity_env.games.azul.engine.rules import MAX_PLAYERS, MIN_PLAYERS
from entity_env.games.azul.kernels.kernel import fastest
from entity_env.games.azul.kernels.playouts import play_games


class Playouts(NamedTuple):
    """Results of many games, one row per game; all int64.

    Attributes:
        scores: `(num_games, num_players)`, final scores.
        moves, rounds: `(num_games,)`.
        floor_moves: `(num_games,)`, moves that sent all tiles to the floor.
        ends: `(num_games,)`, why each game ended: an index into `ENDS`.
    """

    scores: NDArray[np.int64]
    moves: NDArray[np.int64]
    rounds: NDArray[np.int64]
    floor_moves: NDArray[np.int64]
    ends: NDArray[np.int64]


def play_many(num_games: int, seed: int, *, num_players: int = 2) -> Playouts:
    """Plays games of uniformly random legal moves; player `i % num_players` begins game i.

    Game i depends only on seed, i and the number of players.

    Args:
        num_games: 0 or more.
        seed: 0 to 2**64 - 1.
        num_players: 2 to 4.

    Raises:
        UsageError: an invalid argument.
    """
    _check(num_games, seed, num_players)
    scores = np.zeros((num_games, num_players), np.int64)
    counts = np.zeros((num_games, 4), np.int64)
    fastest(play_games)(np.uint64(splitmix64_int(seed)), num_players, scores, counts)
    moves, rounds, floor_moves, ends = np.ascontiguousarray(counts.T)
    return Playouts(scores, moves, rounds, floor_moves, ends - 1)


def _check(num_games: int, seed: int, num_players: int) -> None:
    checked_count("play_many: num_games", num_games, 0, 2**62)
    checked_seed(seed, bits=64)
    checked_count("play_many: num_players", num_players, MIN_PLAYERS, MAX_PLAYERS)
