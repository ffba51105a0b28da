"""`TimeLimit`: elapsed fraction of a run's time, and time reserved for its end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from entity_env.errors import UsageError, shown

TIME_FRACTION: Final = "charts/time_fraction"
"""Name of the curve of the elapsed fraction of time.

Recorded if there is a time limit, or if the fraction was set.
"""
_MOST_RESERVED: Final = 0.1
"""Largest share of a run's time to reserve for its end."""


class TimeLimit:
    """Clock of one `train` call; starts when this object is created.

    Args:
        limit_s: `max_train_time_s` of the run; None = no limit.
    """

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._start = clock()
        self._reserved_s = 0.0
        self._given: float | None = None
        """Fraction from `set_fraction`; `start_update` uses it instead of `fraction`."""
        self.update_fraction = 0.0
        """Rank 0's fraction at the start of the last update's rollout."""

    @property
    def is_set(self) -> bool:
        """True if schedules take time into account.

        They then follow time or steps, whichever is further along.
        """
        return self.limit_s is not None or self._given is not None

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._start

    @property
    def left_s(self) -> float:
        """Seconds of training left; infinite without a limit."""
        if self.limit_s is None:
            return math.inf
        return max(0.0, self.limit_s - self._reserved_s - self.elapsed_s)

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    @property
    def fraction(self) -> float:
        """Elapsed fraction, 0 to 1, of the limit minus the reserved time; 0 without a limit."""
        if self.limit_s is None:
            return 0.0
        elapsed_s = self.elapsed_s
        return 1.0 if self.is_over else elapsed_s / max(elapsed_s, self.limit_s - self._reserved_s)

    def reserve(self, seconds: float) -> None:
        """Reserves time for the end, at most a tenth of the limit."""
        if self.limit_s is not None:
            self._reserved_s = min(max(seconds, 0.0), _MOST_RESERVED * self.limit_s)

    def set_fraction(self, fraction: float) -> None:
        """Sets the elapsed fraction, 0 to 1, that `start_update` uses instead of `fraction`.

        Raises:
            UsageError: the fraction is outside 0 to 1.
        """
        if not 0 <= fraction <= 1:
            raise UsageError(f"a fraction of the time must be from 0 to 1, got {shown(fraction)}")
        self._given = fraction

    def start_update(self, gather: Callable[[float | None], Sequence[float | None]]) -> float:
        """Rank 0's fraction, which the next update follows; `gather` returns those of all ranks.

        All ranks gather, even if the fraction was set on some of them only; 0 if not on rank 0.
        """
        own = self.fraction if self._given is None else self._given
        self.update_fraction = gather(own if self.is_set else None)[0] or 0.0
        return self.update_fraction
