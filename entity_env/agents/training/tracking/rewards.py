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


class MeanReward(NamedTuple):
    """Mean reward of some episodes of a run.

    Args:
        ci95: half-width of the mean's 95 % confidence interval (Student's t); NaN if unknown.
        num_episodes: 0 if unknown.
        step: number of training decisions before the mean was taken.
        is_biased: True if many running episodes are longer than all recent finished ones: the mean
            then covers mostly short episodes, and has no interval.
    """

    mean: float
    ci95: float
    num_episodes: int
    step: int = 0
    is_biased: bool = False

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
        return cls(mean, ci95, num_episodes, step, is_biased)

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + (f" ± {self.ci95:.3f}" if self.ci95 == self.ci95 else "")

    @property
    def words(self) -> str:
        if self.is_biased:
            return f"{self} ({self.num_episodes} finished episodes only)"
        interval = "95 %, " if self.ci95 == self.ci95 else ""
        return f"{self} ({interval}{self.num_episodes} episodes)"

    def compared_to(self, other: MeanReward) -> float:
        """1 if the mean is above the other by more than the error of their difference.

        -1 if it is below by more than that error, else 0; NaN if a confidence interval is unknown.
        Assumes independent means.
        """
        difference, error = self.mean - other.mean, math.hypot(self.ci95, other.ci95)
        if math.isnan(error):
            return math.nan
        return 0.0 if abs(difference) <= error else math.copysign(1.0, difference)


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
