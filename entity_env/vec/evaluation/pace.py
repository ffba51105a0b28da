"""`Pace`: when to evaluate a run, and with how many episodes, at limited cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Final

from entity_env.agents.training.tracking.progress import TrainProgress

LEAST_EPISODES: Final = 4
"""Minimum number of episodes, for a meaningful mean."""
_OFTEN: Final = 20
"""Number of evaluations per run if they are cheap."""
_SELDOM: Final = 10
"""Number of evaluations per run if they are expensive."""
_CHEAP: Final = 0.05
"""Share of the time so far that full evaluations may take."""
_MOST: Final = 0.1
"""Share of the time so far that smaller evaluations may take."""
_LEAST_END_S: Final = 0.25
_LEAST_LAST_S: Final = 1.0
"""Minimum of the time allowed for the last evaluation."""
_MOST_END_S: Final = 60.0
_INTERRUPTED_S: Final = 1.5
_END: Final = 0.2
"""Share of the run's time for evaluations at its end."""
_END_EVALUATIONS: Final = 20
"""Limit of the time reserved for the end of a run: the time of this many full evaluations."""


class Pace:
    """When to evaluate, and with how many episodes.

    A fraction of a run is a share of its steps, or of its time limit if that share is larger. The
    last evaluation gives the cost of the next. One part of the cost is proportional to the number
    of episodes: the time that training takes for as many decisions. If that part is small, fewer
    episodes save little time, so an evaluation plays all episodes or none.

    Args:
        episodes: number of episodes of a full evaluation.
        interval: see `Evaluator`, also for the rule without an interval.
        clock: returns seconds.
    """

    def __init__(
        self, episodes: int, interval: int | None, clock: Callable[[], float] = perf_counter
    ) -> None:
        self.episodes = episodes
        self._interval = interval
        self.clock = clock
        self._start = clock()
        self._spent_s = 0.0
        self._fixed_s = 0.0
        """Measured seconds per evaluation, independent of the number of episodes."""
        self._episode_s: float | None = None
        """Measured seconds per episode."""
        self._step = 0
        self._evaluated = 0.0
        """Fraction of the run at the last evaluation."""

    def start(self, progress: TrainProgress) -> None:
        self._start, self._step = self.clock(), progress.step
        self._evaluated = progress.fraction

    def num_due(self, progress: TrainProgress) -> int:
        """Number of episodes to play after an update; 0 = none."""
        before, self._step = self._step, progress.step
        if progress.step >= progress.total:
            return self.num_last(progress)
        if self._interval is not None:
            is_due = progress.step // self._interval != before // self._interval
            return self.episodes if is_due else 0
        elapsed_s, all_s = self.clock() - self._start, self._estimate_s(progress)
        if self._has_come(progress, _OFTEN) and self._spent_s + all_s <= _CHEAP * elapsed_s:
            return self.episodes
        if not self._has_come(progress, _SELDOM):
            return 0
        if not math.isfinite(all_s):  # no episode has ended in training
            return 0 if self._spent_s else self._least
        return self._num_within(_MOST * elapsed_s - self._spent_s, progress)

    def num_last(self, progress: TrainProgress) -> int:
        """Number of episodes of the last evaluation; never 0."""
        if self._interval is not None:
            return self.episodes
        num = self._num_within(max(self.end_s(progress) / 2, _LEAST_LAST_S), progress)
        return num or (self._least if self._is_divisible(progress) else self.episodes)

    def num_in_round(self, seconds: float, num_players: int, progress: TrainProgress) -> int:
        """Number of episodes that each network can play in that time; 0 = too few."""
        return self._num_within(seconds / num_players, progress)

    def add(
        self, progress: TrainProgress, num_episodes: int, num_decisions: int, seconds: float
    ) -> None:
        self._spent_s += seconds
        own_s = min(seconds, num_decisions / max(progress.steps_per_s, 1e-9))
        self._episode_s, self._fixed_s = own_s / num_episodes, seconds - own_s
        self._evaluated = progress.fraction

    def end_s(self, progress: TrainProgress, *, is_interrupted: bool = False) -> float:
        """Seconds for evaluations at the end of the run."""
        if is_interrupted:
            return _INTERRUPTED_S
        whole_s = (self.clock() - self._start) / max(progress.fraction, 1e-9)
        return min(max(_END * whole_s, _LEAST_END_S), _MOST_END_S)

    def reserve_s(self, progress: TrainProgress) -> float:
        """Seconds to reserve for the end of a run with a time limit."""
        return min(self.end_s(progress), _END_EVALUATIONS * self._estimate_s(progress))

    @property
    def _least(self) -> int:
        return min(LEAST_EPISODES, self.episodes)

    def _has_come(self, progress: TrainProgress, num: int) -> bool:
        """True if one of `num` evenly spaced points was passed since the last evaluation."""
        return int(num * progress.fraction) > int(num * self._evaluated)

    def _each_s(self, progress: TrainProgress) -> float:
        """Seconds per episode; infinite if unknown."""
        if self._episode_s is not None:
            return self._episode_s
        if not math.isfinite(progress.mean_length) or not progress.steps_per_s:
            return math.inf
        return progress.mean_length / progress.steps_per_s

    def _estimate_s(self, progress: TrainProgress) -> float:
        """Seconds of a full evaluation; infinite if unknown."""
        return self._fixed_s + self.episodes * self._each_s(progress)

    def _num_within(self, seconds: float, progress: TrainProgress) -> int:
        """Number of episodes that fit in `seconds`; 0 if too few."""
        if self._estimate_s(progress) <= seconds:
            return self.episodes
        num = (seconds - self._fixed_s) / max(self._each_s(progress), 1e-9)
        return 0 if num < self._least or not self._is_divisible(progress) else int(num)

    def _is_divisible(self, progress: TrainProgress) -> bool:
        """True if most of an evaluation's time is proportional to its number of episodes."""
        return self._fixed_s < self._estimate_s(progress) / 2
