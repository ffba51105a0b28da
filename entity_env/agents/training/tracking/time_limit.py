"""`TimeLimit`: how much of the time of a run has passed, and how much is kept for its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from entity_env.errors import UsageError, shown

TIME_FRACTION: Final = "charts/time_fraction"
"""Name of the curve of what schedules follow where a run has a limit."""
_MOST_RESERVED: Final = 0.1
"""Of the time of a run, kept for its end."""


class TimeLimit:
    """Time of one call of `train`, which starts when this is made.

    Args:
        limit_s: `max_train_time_s` of the run; None = there is no limit.
        clock: returns seconds.
    """

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._start = clock()
        self._reserved_s = 0.0
        self._given: float | None = None
        """Fraction in place of that of the clock."""
        self.update_fraction = 0.0
        """That of rank 0, when the rollout of the last update began."""

    @property
    def is_set(self) -> bool:
        """Whether schedules follow the time."""
        return self.limit_s is not None or self._given is not None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        """Seconds of training that are left; infinite without a limit."""
        if self.limit_s is None:
            return math.inf
        return max(0.0, self.limit_s - self._reserved_s - self.elapsed_s)

    @property
    def is_over(self) -> bool:
        """Whether training must end."""
        return self.left_s <= 0

    @property
    def fraction(self) -> float:
        """Fraction of the time for training that has passed, 0 to 1; 0 without a limit."""
        if self.limit_s is None:
            return 0.0
        elapsed_s = self.elapsed_s
        return 1.0 if self.is_over else elapsed_s / max(elapsed_s, self.limit_s - self._reserved_s)

    def reserve(self, seconds: float) -> None:
        """Keeps time for what comes after training, a tenth of the limit at most."""
        if self.limit_s is not None:
            self._reserved_s = min(max(seconds, 0.0), _MOST_RESERVED * self.limit_s)

    def set_fraction(self, fraction: float) -> None:
        """Sets the fraction that updates follow, 0 to 1, in place of that of the clock."""
        if not 0 <= fraction <= 1:
            raise UsageError(f"a fraction of the time must be from 0 to 1, got {shown(fraction)}")
        self._given = fraction

    def start_update(self, gather: Callable[[float], Sequence[float]]) -> float:
        """The fraction that an update follows, that of rank 0 on all ranks.

        `gather` returns that of every rank.
        """
        if self.is_set:
            own = self.fraction if self._given is None else self._given
            self.update_fraction = gather(own)[0]
        return self.update_fraction
