"""`Rating` of a player whose strength may change, by Glicko."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_Q: Final = math.log(10) / 400
LARGEST_DEVIATION: Final = 350.0
"""Deviation of an unknown rating."""


@dataclass(frozen=True, slots=True)
class Rating:
    """A rating on Elo's scale: 400 more = 10 times the odds of a win.

    Args:
        value: the mean.
        deviation: standard deviation in points.
    """

    value: float = 0.0
    deviation: float = LARGEST_DEVIATION

    def expected_score(self, other: Rating) -> float:
        """Probability of a win plus half the probability of a draw, against another player."""
        return 1 / (1 + 10 ** (-_weight(other) * (self.value - other.value) / 400))

    def loosened(self, points: float) -> Rating:
        """The rating of a player whose strength may have changed by `points`."""
        return Rating(self.value, min(math.hypot(self.deviation, points), LARGEST_DEVIATION))

    def updated(self, records: Sequence[PairRecord]) -> Rating:
        """The rating after games against others, given their ratings before these games.

        Glickman, "Parameter estimation in large dynamic paired comparison experiments" (1999),
        equations 9 and 10.
        """
        surprise = information = 0.0
        for other, num_games, score in records:
            expected, weight = self.expected_score(other), _weight(other)
            surprise += weight * (score - num_games * expected)
            information += _Q**2 * weight**2 * num_games * expected * (1 - expected)
        if not information or not self.deviation:
            return self
        variance = 1 / (1 / self.deviation**2 + information)
        return Rating(self.value + _Q * variance * surprise, math.sqrt(variance))


class PairRecord(NamedTuple):
    """Games against another player.

    Args:
        other: rating of the other player.
        num_games: number of games.
        score: sum of the results: 1 for a win, 0.5 for a draw.
    """

    other: Rating
    num_games: int
    score: float


def _weight(other: Rating) -> float:
    """Information in a game against a player: less if its rating is uncertain."""
    return 1 / math.sqrt(1 + 3 * (_Q * other.deviation / math.pi) ** 2)
