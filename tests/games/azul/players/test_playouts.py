"""play_many: statistics of random games."""

from typing import Any

import numpy as np
import pytest

from entity_env import UsageError
from entity_env.core.seeding import splitmix64_int
from entity_env.games.azul import ENDS, play_many
from entity_env.games.azul.engine.tile_draws import SplitMix


def test_a_game_without_progress_ends() -> None:
    """One of the rare games that would never end by the printed rules."""
    games = play_many(141, 2, num_players=4)
    assert ENDS[games.ends[140]] == "no_progress"
    assert (games.ends[:140] == 0).all()


@pytest.mark.parametrize(
    ("num_players", "moves", "score", "floor"),
    [(2, 70.0, 2.92, 0.43), (3, 90.4, 2.41, 0.40), (4, 108.3, 2.04, 0.38)],
)
def test_random_play_looks_as_it_should(
    num_players: int, moves: float, score: float, floor: float
) -> None:
    """Figures from 1,000 games of another engine, within more than four standard errors."""
    games = play_many(20_000, 5, num_players=num_players)
    assert abs(games.moves.mean() - moves) < 2.5
    assert 6.5 < games.rounds.mean() < 6.9
    assert abs(games.scores.mean() - score) < 0.4
    assert abs(games.floor_moves.sum() / games.moves.sum() - floor) < 0.01
    assert games.rounds.min() == 5
    assert games.scores.min() == 0


def test_a_game_depends_on_its_number_alone() -> None:
    few, many = play_many(3, 8), play_many(50, 8)
    np.testing.assert_array_equal(few.scores, many.scores[:3])
    assert len(np.unique(many.moves)) > 5
    other = play_many(50, 9)
    assert (other.scores != many.scores).any()


def test_neighbouring_seeds_share_no_games() -> None:
    one, other = play_many(200, 1), play_many(200, 2)
    assert not (one.scores[1:] == other.scores[:-1]).all(axis=1).all()
    assert (one.moves[1:] != other.moves[:-1]).mean() > 0.5


def test_no_games() -> None:
    games = play_many(0, 1, num_players=3)
    assert games.scores.shape == (0, 3)
    assert games.moves.shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0), "num_games must be an integer from 0"),
        ((1.0, 0), "num_games must be"),
        ((1, -1), "seed must be an integer from 0"),
        ((1, 2**64), "seed must be"),
        ((1, None), "seed must be"),
    ],
)
def test_arguments_that_cannot_be(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        play_many(*arguments)


def test_players_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="num_players must be an integer from 2 to 4: got 5"):
        play_many(1, 1, num_players=5)


def test_the_sequence_is_split_mix() -> None:
    """The first outputs from 0, as printed by the authors' code."""
    words, word = [], 0
    for _ in range(3):
        word = word + 0x9E3779B97F4A7C15 & 2**64 - 1
        words.append(splitmix64_int(word))
    assert words == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert SplitMix(0).random(3).tolist() == [(word >> 11) / 2**53 for word in words]
