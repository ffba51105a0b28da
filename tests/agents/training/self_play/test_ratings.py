"""Ratings from games against players with known ratings."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.training.self_play.ratings import LARGEST_DEVIATION, PairRecord, Rating


def test_the_example_of_the_paper() -> None:
    """Glickman's example of the Glicko system: 1500 with a deviation of 200 becomes 1464, 151.4."""
    games = [(1400, 30, 1.0), (1550, 100, 0.0), (1700, 300, 0.0)]
    records = [PairRecord(Rating(value, deviation), 1, score) for value, deviation, score in games]
    rating = Rating(1500, 200).updated(records)
    assert rating.value == pytest.approx(1464.1, abs=0.1)
    assert rating.deviation == pytest.approx(151.4, abs=0.1)


@given(st.floats(-800, 800), st.integers(50, 400))
def test_many_games_find_the_strength(strength: float, num_games: int) -> None:
    """A player without a rating, against a rated player and one of equal strength."""
    rating, known = Rating(), Rating(0, 0)
    score = num_games * Rating(strength, 0).expected_score(known)
    for _ in range(60):
        rating = rating.loosened(40).updated([PairRecord(known, num_games, score)])
    assert rating.value == pytest.approx(strength, abs=30)
    assert rating.deviation < LARGEST_DEVIATION


def test_without_games_or_doubt_nothing_changes() -> None:
    anchor = Rating(0, 0)
    assert Rating(10, 50).updated([]) == Rating(10, 50)
    assert anchor.updated([PairRecord(Rating(), 10, 10)]) == anchor
    assert Rating(5, 30).loosened(40) == Rating(5, 50)
    assert Rating(5, 340).loosened(400).deviation == LARGEST_DEVIATION
    assert math.isclose(Rating(400, 0).expected_score(anchor), 10 / 11)
