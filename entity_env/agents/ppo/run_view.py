"""`RunView`: a training run so far, as input of the rules for hints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Final

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.training.tracking.progress import TrainProgress
from entity_env.agents.training.tracking.rewards import (
    MOST_UNFINISHED,
    UNKNOWN,
    VERDICT_EPISODES,
    PolicyScores,
    Spread,
)

FIRST_UPDATES: Final = 5
"""Number of updates after which policy and value have changed, if they change at all."""
LEAST_EPISODES: Final = 20
MOST_FIRST: Final = 0.95
"""Share of rows whose first episodes must have ended before first episodes are a reference."""
_LATEST_FIRST: Final = 0.5
"""Share of a run after which first episodes no longer come from an untrained policy."""
_LEAST_SHARE: Final = 0.3
"""Share of a run before which a flat reward means nothing."""
_STANDARD_ERRORS: Final = 3.0
_LARGEST_MEAN_OF_ZERO_SUM: Final = 0.02
"""In standard deviations of rewards; not 0, since the last episodes may favor one agent."""


@dataclass(frozen=True)
class RunView:
    """A run so far, as input of the rules.

    Args:
        points: metrics after some updates since the start, at least one.
        last: metrics after the last update.
        scores: of the last network, at the end of an evaluated run.
    """

    points: Sequence[TrainProgress]
    last: TrainProgress
    config: PPOConfig
    scores: PolicyScores = UNKNOWN

    @cached_property
    def is_whole(self) -> bool:
        """True if the run was not resumed from a checkpoint."""
        return self.points[0].update <= 1

    @cached_property
    def scored(self) -> list[TrainProgress]:
        """Points with a mean reward."""
        return [each for each in self.points if math.isfinite(each.mean_reward)]

    @property
    def share(self) -> float:
        """Completed share of the run."""
        return self.last.step / max(1, self.last.total)

    @cached_property
    def reference(self) -> Spread | None:
        """Rewards without learning; None if unknown.

        Those of random play, if 100 or more episodes were measured as in training. Otherwise those
        of the first episode of nearly every row, because the first 20 episodes to end would be the
        shortest ones; in fewer than 20 rows, those of about 20 episodes. None until these have
        ended. Also None if the first episodes of 20 or more rows ended in the second half of the
        run and the reward has not risen since, because they may already show learning.
        """
        if self.is_random_reference and self.last.random_play is not None:
            return self.last.random_play.reward.spread
        point = self.fair[0] if self.fair else None
        if point is None:
            return None
        seen = point.rollouts
        if not seen.num_rows or seen.num_first < LEAST_EPISODES:
            return self.rewards(point)
        first = Spread(seen.first_mean, seen.first_std, seen.num_first)
        is_late = point.step > _LATEST_FIRST * self.last.total
        return None if is_late and not self.is_above(self.rewards(self.last), first) else first

    @property
    def is_random_reference(self) -> bool:
        """True if `reference` is random play."""
        found = self.last.random_play
        has_many = found is not None and found.num_episodes >= VERDICT_EPISODES
        return found is not None and found.is_like_training and has_many

    @cached_property
    def fair(self) -> list[TrainProgress]:
        """Points when the first episodes of nearly all rows had ended, and 20 episodes in total."""
        return [
            point
            for point in self.scored
            if point.num_episodes >= LEAST_EPISODES
            and point.rollouts.num_first >= MOST_FIRST * point.rollouts.num_rows
        ]

    def rewards(self, point: TrainProgress) -> Spread:
        """Rewards of the last episodes at a point."""
        number = point.window or min(point.num_episodes, self.config.episode_window)
        return Spread(point.mean_reward, point.std_reward, number)

    @cached_property
    def is_comparable(self) -> bool:
        """True if a flat mean reward shows that nothing was learned.

        False if agents that share the network may play each other or a pool of opponents, if the
        mean reward is always about 0, if a resumed run may have risen before, if fewer than two
        points have a mean reward, or if the last episodes are short ones.
        """
        is_versus = self.last.rollouts.num_rows > self.last.rollouts.num_envs
        if is_versus or "rating" in self.last.metrics:
            return False
        if len(self.scored) < 2 or not self.is_whole:
            return False
        points = [*self.scored, self.last]
        return self.last.unfinished <= MOST_UNFINISHED and not _is_zero_sum(points)

    @cached_property
    def evaluation(self) -> Spread | None:
        """Rewards of the last network outside training, by its better policy; None if unknown."""
        if self.scores.better is not None:
            return self.scores.better.spread
        names = ("mean_reward", "std_reward", "num_episodes")
        found = [self.last.metrics.get(f"evaluation/{name}") for name in names]
        known = [each for each in found if each is not None]
        return Spread(known[0], known[1], int(known[2])) if len(known) == len(names) else None

    @cached_property
    def beats_random(self) -> bool:
        """True if the last evaluation was better than random play."""
        found, random = self.evaluation, self.last.random_play
        return found is not None and random is not None and found.is_above(random.reward.spread)

    @cached_property
    def has_risen(self) -> bool:
        reference = self.reference
        return reference is not None and self.is_above(self.rewards(self.last), reference)

    @cached_property
    def is_stuck(self) -> bool:
        """True if the reward is shown to be flat, after a good part of the run."""
        if self.has_risen or self.beats_random or not self.is_comparable:
            return False
        if self.reference is None or not self.rewards(self.last).is_no_better(self.reference):
            return False
        num_first = self.last.rollouts.num_first
        return self.share >= _LEAST_SHARE and self.last.num_episodes >= 2 * num_first

    @property
    def may_be_stuck(self) -> bool:
        """True if the reward is flat, or if too few episodes ended to tell."""
        is_unclear = self.last.unfinished > MOST_UNFINISHED or not self.last.num_episodes
        return self.is_stuck or (is_unclear and not self.has_risen and not self.beats_random)

    @staticmethod
    def is_above(one: Spread, other: Spread) -> bool:
        """True if a mean of training is larger; stricter, because every update asks."""
        return one.is_above(other, _STANDARD_ERRORS)

    def freedom(self, point: TrainProgress) -> float:
        """Entropy as a share of the entropy of equally likely choices.

        Unlike entropy, this share does not depend on the number of actors and choices. With
        real-valued actions, or if the choices are unknown: the entropy in nats.
        """
        found = point.rollouts
        uniform = 0.0 if found.num_reals else found.random_entropy
        return point.losses.entropy / (uniform if uniform > 0 else 1.0)

    @cached_property
    def freedoms(self) -> tuple[float, float]:
        """`freedom` at the start, and its median over the last updates."""
        return self.freedom(self.points[0]), median_of(map(self.freedom, self.latest))

    @cached_property
    def latest(self) -> list[TrainProgress]:
        is_last = self.points[-1] is self.last
        return [*self.points, *([] if is_last else [self.last])][-FIRST_UPDATES:]

    def recent(self, name: str) -> float:
        """Median of a loss over the last updates."""
        return median_of(getattr(point.losses, name) for point in self.latest)


def median_of(values: Iterable[float]) -> float:
    """Median of the finite values; NaN if there are none. Some updates have no losses."""
    finite = list(filter(math.isfinite, values))
    return median(finite) if finite else math.nan


def _is_zero_sum(points: Sequence[TrainProgress]) -> bool:
    """True if one agent's gain seems to be another's loss: the mean reward is always about 0."""
    return any(each.std_reward > 0 for each in points) and all(
        abs(each.mean_reward) <= _LARGEST_MEAN_OF_ZERO_SUM * each.std_reward for each in points
    )
