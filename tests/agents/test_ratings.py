"""Matches in any game: seats, shared wins, standings, intervals and ratings."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import UsageError
from entity_env.agents.ratings import Match, Result, elo_ratings, match_groups, seatings, wilson

NAMES = "abcde"


def result(*seats: tuple[str, float]) -> Result:
    names, scores = zip(*seats, strict=True)
    return Result(names, scores)


@st.composite
def matches(draw: st.DrawFn) -> Match[Result]:
    """Games of 2 to 4 out of five agents, in which every agent has played."""
    names = tuple(NAMES[: draw(st.integers(2, 5))])
    seats = draw(st.integers(2, min(4, len(names))))
    games = []
    for sits, _ in seatings(names, seats, seats):
        scores = draw(st.lists(st.integers(0, 3), min_size=seats, max_size=seats))
        games.append(Result(sits, tuple(scores)))
    return Match(names, tuple(games))


@given(names=st.integers(2, 6), seats=st.integers(2, 4), sets=st.integers(1, 3))
def test_everybody_sits_everywhere_as_often(names: int, seats: int, sets: int) -> None:
    called = [str(i) for i in range(names)]
    if names < seats:
        assert list(seatings(called, seats, seats * sets)) == []
        return
    games = list(seatings(called, seats, seats * sets))
    assert len(games) == comb(names, seats) * seats * sets
    places = Counter((name, i) for sits, _ in games for i, name in enumerate(sits))
    assert len(places) == names * seats
    assert len(set(places.values())) == 1
    groups = Counter((frozenset(sits), number) for sits, number in games)
    assert set(groups.values()) == {seats}
    assert {group for group, _ in groups} == {frozenset(g) for g in combinations(called, seats)}
    assert {number for _, number in groups} == set(range(sets))


@given(match=matches())
def test_shares_of_a_win_are_one_win(match: Match[Result]) -> None:
    for game in match.games:
        assert sum(game.shares) == pytest.approx(1)
        best = max(game.scores)
        assert [share > 0 for share in game.shares] == [score == best for score in game.scores]
        assert len({share for share in game.shares if share}) == 1


@settings(deadline=None)
@given(match=matches())
def test_standings_add_up(match: Match[Result]) -> None:
    table = match.table()
    assert sorted(row.name for row in table) == sorted(match.names)
    assert sum(row.wins for row in table) == pytest.approx(len(match.games))
    assert sum(row.num_games for row in table) == sum(len(game.names) for game in match.games)
    assert sum(row.elo for row in table) == pytest.approx(0, abs=1e-6)
    assert [row.elo for row in table] == sorted((row.elo for row in table), reverse=True)
    for row in table:
        assert row.low <= row.win_rate + 1e-12
        assert row.win_rate <= row.high + 1e-12
        mine = [
            score
            for game in match.games
            for name, score in zip(game.names, game.scores, strict=True)
            if name == row.name
        ]
        assert row.mean_score == pytest.approx(np.mean(mine))
        assert row.num_games == len(mine)


@given(match=matches())
def test_a_duel_is_reversed_for_the_other_agent(match: Match[Result]) -> None:
    for name, other in combinations(match.names, 2):
        rate, low, high = match.win_rate(name, other)
        back, low_back, high_back = match.win_rate(other, name)
        assert rate + back == pytest.approx(1)
        assert (low, high) == pytest.approx((1 - high_back, 1 - low_back), abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(match=matches(), order=st.randoms())
def test_ratings_do_not_depend_on_any_order(match: Match[Result], order: Random) -> None:
    names, games = list(match.names), list(match.games)
    rated = dict(zip(names, elo_ratings(names, games), strict=True))
    order.shuffle(names)
    order.shuffle(games)
    again = dict(zip(names, elo_ratings(names, games), strict=True))
    assert again == pytest.approx(rated, abs=1e-3)


def test_a_win_more_is_a_better_rating() -> None:
    before = [result(("a", 1), ("b", 0)), result(("b", 1), ("a", 0))]
    one, other = elo_ratings("ab", before)
    assert one == pytest.approx(other)
    better, worse = elo_ratings("ab", [*before, result(("a", 2), ("b", 1))])
    assert better > one
    assert worse < other


def test_only_who_was_ahead_counts_not_by_how_much() -> None:
    small = [result(("a", 2), ("b", 1), ("c", 0))]
    large = [result(("a", 99), ("b", 50), ("c", -7))]
    assert elo_ratings("abc", small) == elo_ratings("abc", large)


def test_numbers_of_a_known_match() -> None:
    games = (result(("a", 5), ("b", 3)), result(("b", 4), ("a", 4)), result(("a", 9), ("b", 1)))
    best, worst = Match(("b", "a"), games).table()
    assert (best.name, best.wins, best.num_games, best.mean_score) == ("a", 2.5, 3, 6)
    assert worst.win_rate == pytest.approx(1 / 6)
    assert str(Match(("a", "b"), games)).splitlines()[1].startswith("a ")
    with pytest.raises(UsageError, match="'a' and 'z' have not played each other"):
        Match(("a", "b"), games).win_rate("a", "z")


@given(wins=st.integers(0, 50), more=st.integers(0, 50))
def test_intervals_hold_the_rate_and_shrink(wins: int, more: int) -> None:
    count = wins + more
    if not count:
        return
    low, high = wilson(wins, count)
    assert 0 <= low <= wins / count + 1e-12
    assert wins / count - 1e-12 <= high <= 1
    narrow = wilson(10 * wins, 10 * count)
    assert narrow[1] - narrow[0] < high - low


# ------------------------------------------------------------------ fewer agents than seats


@given(count=st.integers(2, 6), seats=st.integers(2, 6))
def test_groups_fill_all_seats_fairly(count: int, seats: int) -> None:
    names = NAMES[:count] if count < 6 else f"{NAMES}f"
    groups = match_groups(names, seats)
    assert len(groups) == len(set(groups)) > 0
    assert {len(group) for group in groups} == {seats}
    totals = Counter(name for group in groups for name in group)
    assert len(totals) == len(names)
    assert len(set(totals.values())) == 1
    for group in groups:
        each = [group.count(name) for name in names]
        assert max(each) - min(each) <= 1
    if count >= seats:
        assert groups == list(combinations(names, seats))


def test_an_agent_of_several_seats_is_rated_by_game_and_by_pair() -> None:
    games = (
        result(("a", 3), ("a", 1), ("b", 2), ("b", 0)),
        result(("b", 3), ("a", 1), ("a", 1), ("b", 3)),
    )
    match = Match(("a", "b"), games)
    assert match.win_rate("a", "b")[0] == pytest.approx((3 / 4 + 0) / 2)
    assert match.win_rate("b", "a")[0] == pytest.approx((1 / 4 + 1) / 2)
    best, other = match.table()
    assert (best.name, best.num_games, best.wins, best.mean_score) == ("b", 2, 1, 2)
    assert (other.name, other.num_games, other.wins, other.mean_score) == ("a", 2, 1, 1.5)
    assert best.elo > other.elo


def test_games_without_an_opponent_are_not_rated() -> None:
    games = (result(("a", 1)), result(("a", 1), ("a", 2)), result(("a", 0), ("b", 1)))
    match = Match(("a", "b", "c"), games)
    rows = {row.name: row for row in match.table()}
    assert [(rows[name].num_games, rows[name].wins) for name in "abc"] == [(1, 0), (1, 1), (0, 0)]
    assert (rows["c"].low, rows["c"].high) == (0, 1)
    assert match.has_met("b", "a")
    assert not match.has_met("a", "c")
    with pytest.raises(UsageError, match="have not played each other"):
        match.win_rate("a", "c")
