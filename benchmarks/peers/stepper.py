"""Stepper: what every contender makes of itself, so that all are timed by the same loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Stepper:
    """Environments that can be stepped.

    Args:
        num_envs: how many a step.
        step: makes one step of all, with the next actions of those made beforehand.
        totals: running totals of where the time went, in seconds by name.
    """

    num_envs: int
    step: Callable[[], object]
    totals: Callable[[], Mapping[str, float]] = dict

    def round(self, duration_s: float) -> dict[str, float]:
        """Steps for some time; µs an environment a step, and what the totals grew by, as µs."""
        for _ in range(3):
            self.step()
        before = dict(self.totals())
        num_steps = 0
        begin = end = perf_counter()
        while end < begin + duration_s:
            self.step()
            num_steps += 1
            end = perf_counter()
        scale = 1e6 / num_steps / self.num_envs
        grown = {name: (value - before[name]) * scale for name, value in self.totals().items()}
        return {"us": (end - begin) * scale, **grown}
