"""Runs with equal settings and different seeds: joint scores, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from entity_env.agents.intervals import (
    Interval,
    interquartile_mean,
    mean_of,
    probability_of_improvement,
)
from entity_env.agents.training.tracking.rewards import MeanReward
from entity_env.agents.training.tracking.runs import TrainingRun


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed.

    Args:
        runs: one or more, in order of their seeds; of several with the same seed, only the run with
            the most steps.
        is_evaluated: True if all have an evaluation: scores are then from the last one, otherwise
            they are mean rewards of training.
    """

    runs: tuple[TrainingRun, ...]
    is_evaluated: bool

    @cached_property
    def scores(self) -> tuple[float, ...]:
        return tuple(each.mean for each in map(self._reward, self.runs) if each is not None)

    @cached_property
    def is_biased(self) -> bool:
        """True if scores are training means, some of them biased toward short episodes."""
        return any(each.is_biased for each in map(self._reward, self.runs) if each is not None)

    @cached_property
    def mean(self) -> Interval:
        """Mean score, with Student's interval over seeds."""
        return mean_of(self.scores)

    @cached_property
    def iqm(self) -> Interval:
        """Interquartile mean of the scores, with its bootstrap interval over seeds."""
        return interquartile_mean([self.scores])

    def improvement_over(self, other: SeedGroup) -> Interval | None:
        """Probability that a run of this group has a higher score than a run of `other`.

        None if the games differ, or only one group has evaluations.
        """
        if (self.is_evaluated, self.runs[0].game) != (other.is_evaluated, other.runs[0].game):
            return None
        return probability_of_improvement([self.scores], [other.scores])

    def _reward(self, run: TrainingRun) -> MeanReward | None:
        return run.final_evaluation if self.is_evaluated else run.final_reward


def seed_groups(runs: Sequence[TrainingRun]) -> list[SeedGroup]:
    """The runs that have a score, in groups.

    Sorted by game, in the order in which the games appear in `runs`. Within a game, groups with
    evaluations come first; among these and among the others, groups with higher means come first.
    """
    found: dict[object, dict[object, TrainingRun]] = {}
    for run in sorted(runs, key=lambda run: str(run.path)):
        if run.score is not None:
            members = found.setdefault(run.group(), {})
            key = run.path if run.seed is None else run.seed
            if key not in members or members[key].step < run.step:
                members[key] = run
    groups = []
    for members in found.values():
        own = tuple(sorted(members.values(), key=lambda run: -1 if run.seed is None else run.seed))
        is_evaluated = all(run.final_evaluation is not None for run in own)
        scored = own if is_evaluated else tuple(run for run in own if run.final_reward is not None)
        if scored:
            groups.append(SeedGroup(scored, is_evaluated))
    games = list(dict.fromkeys(run.game for run in runs))

    def order(group: SeedGroup) -> tuple[int, bool, float]:
        return games.index(group.runs[0].game), not group.is_evaluated, -group.mean.value

    return sorted(groups, key=order)
