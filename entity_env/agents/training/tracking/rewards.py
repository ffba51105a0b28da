"""Mean rewards of a run, and of random play for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from entity_env.agents.intervals import mean_interval
from entity_env.core.validation import is_number

MOST_UNFINISHED: Final = 0.05
"""Largest share of running episodes that may be longer than all recent finished ones.

Above it, means are biased toward short episodes.
If the distribution of lengths does not change, the share is about 1 / `episode_window`.
"""


VERDICT_EPISODES: Final = 100
"""Fewest episodes of each side for a verdict about two mean rewards.

With as many, `MeanReward.is_no_better` has a power of 97 %, and a difference of half a standard
deviation is found by `is_better` with a power of 94 %.
"""
_DIFFERENCE: Final = 0.5
"""Smallest difference that matters, in standard deviations of the rewards."""
_TWO_SIDED, _ONE_SIDED = 1.96, 1.645
"""Standard errors of a two-sided and a one-sided test with an error of 5 %."""


class Spread(NamedTuple):
    """Rewards of some episodes: mean, population standard deviation, number of episodes."""

    mean: float
    std: float
    num_episodes: int

    def is_above(self, other: Spread, num_errors: float = _TWO_SIDED) -> bool:
        """True if this mean is larger by more than chance explains."""
        return self.mean - other.mean > num_errors * self._error(other)

    def is_no_better(self, other: Spread) -> bool:
        """True if this mean is shown not to be larger by half a standard deviation.

        A test of equivalence: if the means differ by more, this is True in at most 5 % of cases.
        """
        spread = math.sqrt((self.std**2 + other.std**2) / 2)
        largest = self.mean - other.mean + _ONE_SIDED * self._error(other)
        return largest <= _DIFFERENCE * spread

    def _error(self, other: Spread) -> float:
        """Standard error of the difference of independent means."""
        errors = [each.std / math.sqrt(max(1, each.num_episodes)) for each in (self, other)]
        return math.hypot(*errors)


class MeanReward(NamedTuple):
    """Mean reward of some episodes of a run.

    Args:
        ci95: half-width of the mean's 95 % confidence interval (Student's t); NaN if unknown.
        num_episodes: 0 if unknown.
        step: number of training decisions before the mean was taken.
        std: population standard deviation of their rewards; NaN if unknown.
        is_biased: True if many running episodes are longer than all recent finished ones: the mean
            then covers mostly short episodes, and has no interval.
    """

    mean: float
    ci95: float
    num_episodes: int
    step: int = 0
    is_biased: bool = False
    std: float = math.nan

    @classmethod
    def of(
        cls, mean: float, deviation: float, num_episodes: int, step: int = 0, unfinished: float = 0
    ) -> MeanReward:
        """From mean and population standard deviation; `unfinished` as in `TrainProgress`."""
        is_biased = unfinished > MOST_UNFINISHED
        ci95 = math.nan
        if num_episodes > 1 and not is_biased:
            sample = deviation * math.sqrt(num_episodes / (num_episodes - 1))
            ci95 = mean_interval(mean, sample, num_episodes).half
        return cls(mean, ci95, num_episodes, step, is_biased, deviation)

    @classmethod
    def from_json(cls, data: object) -> MeanReward | None:
        """Reads the figures of an evaluation in `run.json`; None for anything else."""
        found = data if isinstance(data, Mapping) else {}
        names = ("mean_reward", "std_reward", "num_episodes", "step")
        numbers: list[Any] = [each for each in map(found.get, names) if is_number(each)]
        if len(numbers) < len(names):
            return None
        mean, deviation, num_episodes, step = numbers
        return cls.of(mean, deviation, int(num_episodes), int(step))

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + (f" ± {self.ci95:.3f}" if self.ci95 == self.ci95 else "")

    @property
    def words(self) -> str:
        if self.is_biased:
            return f"{self} ({self.num_episodes} finished episodes only)"
        interval = "95 %, " if self.ci95 == self.ci95 else ""
        return f"{self} ({interval}{self.num_episodes} episodes)"

    @property
    def spread(self) -> Spread:
        return Spread(self.mean, self.std, self.num_episodes)

    def compared_to(self, other: MeanReward) -> int | None:
        """1 if the mean is above the other, -1 if it is below, 0 if it is no better.

        None if that is unknown: a mean of fewer than `VERDICT_EPISODES`, or of finished episodes
        only; or episodes that allow no conclusion.
        """
        for each in (self, other):
            if each.num_episodes < VERDICT_EPISODES or each.is_biased or each.std != each.std:
                return None
        if self.spread.is_above(other.spread):
            return 1
        if other.spread.is_above(self.spread):
            return -1
        return 0 if self.spread.is_no_better(other.spread) else None


LAST: Final = "last"
"""Entry of the last network in "evaluated" of `run.json`, played by "policy"."""
OTHER_POLICY: Final = "other_policy"
"""The last network, played by the other policy."""
POLICY, GREEDY, SAMPLED = "policy", "greedy", "sampled"
PLAYS: Final = "plays"
"""The policy by which the last network plays better, if that is known."""


class PolicyScores(NamedTuple):
    """Scores of the last network of a run at its end, on the same episodes, as far as known.

    Args:
        plays: `GREEDY` or `SAMPLED`, by which the network plays; "" = there were too few episodes
            to tell, so it samples.
    """

    greedy: MeanReward | None
    sampled: MeanReward | None
    plays: str = ""

    @classmethod
    def from_json(cls, evaluated: object) -> PolicyScores:
        """Reads "evaluated" of a `run.json`; unknown scores for anything else."""
        data = evaluated if isinstance(evaluated, Mapping) else {}
        scores = [MeanReward.from_json(data.get(name)) for name in (LAST, OTHER_POLICY)]
        greedy, sampled = scores if data.get(POLICY, GREEDY) == GREEDY else reversed(scores)
        plays = data.get(PLAYS)
        return cls(greedy, sampled, plays if plays in (GREEDY, SAMPLED) else "")

    @property
    def better(self) -> MeanReward | None:
        """The score of the policy that plays better; of greedy play if that is unknown."""
        found = self.sampled if self.plays == SAMPLED else self.greedy
        return found or self.greedy or self.sampled


UNKNOWN: Final = PolicyScores(None, None)


@dataclass(frozen=True, slots=True)
class RandomPlay:
    """Episodes of uniformly random legal actions, as a baseline of a run.

    Args:
        mean_reward, std_reward, mean_length: over these episodes; `std_reward` is the population
            standard deviation (divides by n).
        is_like_training: True if training has the same conditions. False if, for example, several
            agents learn together; random play is then comparable with evaluations only.
    """

    mean_reward: float
    std_reward: float
    mean_length: float
    num_episodes: int
    is_like_training: bool = True

    @property
    def reward(self) -> MeanReward:
        return MeanReward.of(self.mean_reward, self.std_reward, self.num_episodes)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> RandomPlay | None:
        """Reads `to_json`; None for anything else, such as the file of an earlier release."""
        found = data if isinstance(data, Mapping) else {}
        figures: list[Any] = [
            found.get(name) for name in ("mean_reward", "std_reward", "mean_length")
        ]
        count, is_like_training = found.get("num_episodes"), found.get("is_like_training")
        numbers = [float(each) for each in figures if is_number(each) and math.isfinite(each)]
        if len(numbers) < len(figures) or type(count) is not int or count < 1:
            return None
        reward, deviation, length = numbers
        return cls(reward, deviation, length, count, is_like_training is True)
