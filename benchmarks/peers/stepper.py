"""Stepper: the interface of all contenders, so one loop times them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Stepper:
    """Environments that can be stepped.

    Args:
        num_envs: number of steps of single environments in a call of `step`.
        step: steps all environments once or several times, with precomputed actions.
        totals: seconds spent so far, by activity.
    """

    num_envs: int
    step: Callable[[], object]
    totals: Callable[[], Mapping[str, float]] = dict

    def round(self, duration_s: float) -> dict[str, float]:
        """Steps for `duration_s`; returns µs per environment and step, also for each total."""
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
