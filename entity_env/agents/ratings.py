"""Matches between agents of any game: seats, win rates, confidence intervals and Elo ratings.

Example:
    >>> from entity_env.agents.ratings import Match, Result
    >>> games = [Result(("a", "b"), (2, 1)), Result(("b", "a"), (0, 3)), Result(("a", "b"), (1, 1))]
    >>> [(row.name, row.wins) for row in Match(("a", "b"), tuple(games)).table()]
    [('a', 2.5), ('b', 0.5)]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import log10, sqrt
from typing import Final, Generic, TypeVar

from entity_env.authoring.local_run import AgentFailure
from entity_env.errors import UsageError
from entity_env.lazy_imports import np

Z95: Final = 1.959964
"""Half-width of a 95 % interval of the normal distribution, in standard deviations."""
_ELO: Final = 400.0
_ELO_ROUNDS: Final = 2000
_SURE: Final = 1e-9


@dataclass(frozen=True)
class Result:
    """Result of a game.

    Attributes:
        names: agent of each seat; an agent may have several seats. Seats that took no part are
            omitted.
        scores: score of each seat; higher is better.
        seats: number of each seat; () = from 0 on.
        is_cut: the game did not end within its step limit; the scores until then count.
        failure: the failure of an agent, which ended the game: its seat loses, and the other seats
            tie.
    """

    names: tuple[str, ...]
    scores: tuple[float, ...]
    seats: tuple[int, ...] = field(default=(), kw_only=True)
    is_cut: bool = field(default=False, kw_only=True)
    failure: AgentFailure | None = field(default=None, kw_only=True)

    @classmethod
    def lost(
        cls, names: Sequence[str], scores: Mapping[int, float], failure: AgentFailure
    ) -> Result:
        """Result of a game that the failure of an agent ended.

        Args:
            names: of all seats.
            scores: until then, by seat; 0 for others. The agent gets the lowest of all.
        """
        found = [scores.get(seat, 0.0) for seat in range(len(names))]
        found[failure.agent_id] = min(found)
        return Result(tuple(names), tuple(found), failure=failure)

    @property
    def seat_numbers(self) -> Sequence[int]:
        """The seat of each name."""
        return self.seats or range(len(self.names))

    @property
    def ranks(self) -> tuple[tuple[float, ...], ...]:
        """Sort key of each seat: the greatest wins; equal keys are a tie."""
        if self.failure is not None:
            return tuple((float(seat != self.failure.agent_id),) for seat in self.seat_numbers)
        return tuple((score,) for score in self.scores)

    @property
    def shares(self) -> tuple[float, ...]:
        """Each seat's share of the win: 1 for the winner, equal shares for a tie, 0 for others."""
        ranks = self.ranks
        first = ranks.count(max(ranks))
        return tuple(1 / first if rank == max(ranks) else 0.0 for rank in ranks)


R = TypeVar("R", bound=Result)
T = TypeVar("T")


@dataclass(frozen=True)
class SeatStanding:
    """How agents did in one seat.

    Attributes:
        num_games: number of games against others in which they had the seat.
        win_rate: share of these games that they won in this seat; shared wins count in part.
        low, high: 95 % confidence interval of the win rate (Wilson 1927).
        mean_score: mean score of the seat in these games.
    """

    seat: int
    num_games: int
    win_rate: float
    low: float
    high: float
    mean_score: float

    @classmethod
    def of(cls, seat: int, found: Sequence[tuple[float, float]]) -> SeatStanding:
        """From the win share and the score of every game in this seat."""
        wins = sum(share for share, _ in found)
        count = max(1, len(found))
        score = sum(score for _, score in found) / count
        return cls(seat, len(found), wins / count, *wilson(wins, len(found)), score)


@dataclass(frozen=True)
class Standing:
    """Row in the table of a match.

    Attributes:
        num_games: number of games played against others.
        wins: sum of the win shares of the agent's seats in those games.
        win_rate: `wins / num_games`; 0 without games.
        low, high: 95 % confidence interval of the win rate (Wilson 1927).
        mean_score: mean score of the agent's seats in those games.
        elo: rating; the mean over all agents is 0, and 400 more = 10 times the odds.
        num_failed: number of games that the agent lost because it failed.
        seats: its results in each seat.
    """

    name: str
    num_games: int
    wins: float
    win_rate: float
    low: float
    high: float
    mean_score: float
    elo: float
    num_failed: int = 0
    seats: tuple[SeatStanding, ...] = ()


@dataclass(frozen=True)
class Match(Generic[R]):
    """The games of a match."""

    names: tuple[str, ...]
    games: tuple[R, ...]

    def table(self) -> list[Standing]:
        """One row per agent, the highest Elo rating first."""
        elo = dict(zip(self.names, elo_ratings(self.names, self.games), strict=True))
        rows = [self._standing(name, elo[name]) for name in self.names]
        return sorted(rows, key=lambda row: -row.elo)

    def seats(self, name: str | None = None) -> tuple[SeatStanding, ...]:
        """Results in each seat, of one agent or of all, in games between different agents."""
        found: dict[int, list[tuple[float, float]]] = {}
        for game in self.games:
            if len(set(game.names)) < 2:
                continue
            results = zip(game.seat_numbers, game.names, game.shares, game.scores, strict=True)
            for seat, sits, share, score in results:
                if name in (None, sits):
                    found.setdefault(seat, []).append((share, score))
        return tuple(SeatStanding.of(seat, found[seat]) for seat in sorted(found))

    def failures(self, name: str) -> list[AgentFailure]:
        """The failures of an agent, in the order of the games."""
        return [
            game.failure
            for game in self.games
            if game.failure is not None
            and game.names[list(game.seat_numbers).index(game.failure.agent_id)] == name
        ]

    def win_rate(self, name: str, other: str) -> tuple[float, float, float]:
        """Rate of games in which an agent was ahead of another, with its 95 % interval.

        A tie counts half. If an agent has several seats in a game, the game counts as the mean over
        all pairs of seats.

        Raises:
            UsageError: they have not played each other.
        """
        met = self._results(name, other)
        if not met:
            raise UsageError(f"{name!r} and {other!r} have not played each other")
        return (sum(met) / len(met), *wilson(sum(met), len(met)))

    def has_met(self, name: str, other: str) -> bool:
        return bool(self._results(name, other))

    def _results(self, name: str, other: str) -> list[float]:
        found = []
        for game in self.games:
            seats = [
                result if first == name else 1 - result
                for first, second, result in _duels(game)
                if {first, second} == {name, other}
            ]
            if seats:
                found.append(sum(seats) / len(seats))
        return found

    def _standing(self, name: str, elo: float) -> Standing:
        played = [game for game in self.games if name in game.names and len(set(game.names)) > 1]
        seats = [
            (game.shares[i], game.scores[i])
            for game in played
            for i, sits in enumerate(game.names)
            if sits == name
        ]
        wins = sum(share for share, _ in seats)
        low, high = wilson(wins, len(played))
        return Standing(
            name=name,
            num_games=len(played),
            wins=wins,
            win_rate=wins / max(1, len(played)),
            low=low,
            high=high,
            mean_score=sum(score for _, score in seats) / max(1, len(seats)),
            elo=elo,
            num_failed=len(self.failures(name)),
            seats=self.seats(name),
        )

    def __str__(self) -> str:
        width = max(5, *(len(name) for name in self.names))
        lines = [f"{'agent':{width}}    elo  win rate     95 %        score  games"]
        for row in self.table():
            lines.append(
                f"{row.name:{width}}  {row.elo:5.0f}  {row.win_rate:7.1%}  "
                f"{row.low:6.1%} to {row.high:6.1%}  {row.mean_score:6.1f}  {row.num_games:5}"
            )
        return "\n".join(lines)


def seatings(
    names: Sequence[T], num_seats: int, num_games: int
) -> Iterator[tuple[tuple[T, ...], int]]:
    """Agents by seat, and index of the set, for each game of a match.

    Every combination of agents plays `num_games` games, in sets of `num_seats`; the last set may be
    smaller. In a full set, every agent has every seat once. Use one seed for all games of a set.
    """
    for group in combinations(names, num_seats):
        for number in range(num_games):
            shift = number % num_seats
            yield group[shift:] + group[:shift], number // num_seats


def match_groups(names: Sequence[str], num_seats: int) -> list[tuple[str, ...]]:
    """The groups of agents that play a match, with one name per seat.

    All combinations of `num_seats` agents. With fewer agents than seats, agents get several seats,
    in numbers that differ by at most one; each combination of agents gets the extra seats in one
    group.
    """
    base, extra = divmod(num_seats, len(names))
    return [
        tuple(name for name in names for _ in range(base + (name in more)))
        for more in combinations(names, extra)
    ]


def wilson(wins: float, count: int) -> tuple[float, float]:
    """95 % confidence interval of a rate (Wilson 1927); slightly too wide if wins are shared."""
    if not count:
        return 0.0, 1.0
    rate, z2 = wins / count, Z95**2 / count
    centre = (rate + z2 / 2) / (1 + z2)
    half = sqrt(z2 * (rate * (1 - rate) + z2 / 4)) / (1 + z2)
    return max(0.0, centre - half), min(1.0, centre + half)


def elo_ratings(names: Sequence[str], games: Sequence[Result]) -> list[float]:
    """Maximum likelihood ratings of the pairwise results (Bradley and Terry 1952), with mean 0.

    Uses the iteration of Hunter 2004. Every pair that met gets one extra draw, which keeps the
    rating finite for an agent that lost all games.
    """
    met, won = _meetings(names, games)
    strengths = np.ones(len(names))
    for _ in range(_ELO_ROUNDS):
        divided = met / (strengths[:, None] + strengths[None, :])
        after = won.sum(axis=1) / np.maximum(divided.sum(axis=1), 1e-300)
        after = np.where(met.sum(axis=1) > 0, after, 1.0)
        after /= np.exp(np.mean(np.log(after)))
        change = np.abs(after / strengths - 1).max()
        strengths = after
        if change < _SURE:
            break
    return [_ELO * log10(strength) for strength in strengths]


def _meetings(names: Sequence[str], games: Sequence[Result]) -> tuple[np.ndarray, np.ndarray]:
    """`(num_agents, num_agents)` duels of each pair, and the first agent's wins; a tie is half.

    Both include one extra draw for every pair that met.
    """
    places: Mapping[str, int] = {name: i for i, name in enumerate(names)}
    met, won = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for game in games:
        for name, other, result in _duels(game):
            i, j = places[name], places[other]
            met[[i, j], [j, i]] += 1
            won[[i, j], [j, i]] += result, 1 - result
    have_met = met > 0
    return met + have_met, won + 0.5 * have_met


def _duels(game: Result) -> Iterator[tuple[str, str, float]]:
    """Every pair of seats of different agents: 1 if the first was ahead, 0.5 for a tie."""
    seats = zip(game.names, game.ranks, strict=True)
    for (name, mine), (other, theirs) in combinations(seats, 2):
        if name != other:
            yield name, other, 0.5 if mine == theirs else float(mine > theirs)
