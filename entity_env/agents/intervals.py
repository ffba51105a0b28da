"""Estimates with confidence intervals, by Student's t or by stratified bootstrap.

Interquartile mean, probability of improvement and their intervals follow Agarwal et al. 2021, "Deep
Reinforcement Learning at the Edge of the Statistical Precipice", and its package rliable.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores: TypeAlias = Sequence[Sequence[float]] | NDArray[np.float64]
"""`(num_tasks, num_runs)` scores."""

_Z95: Final = 1.959963984540054
_MANY: Final = 200
"""Degrees of freedom above which the expansion of Student's t has an error below 1e-10."""
_MAX_DRAWN: Final = 4_000_000


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval.

    Args:
        low, high: the bounds; NaN if unknown, for example for a single value.
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


@lru_cache(maxsize=1024)
def student_t95(degrees: int) -> float:
    """97.5 % quantile of Student's t: half of a 95 % interval, in standard errors.

    Up to 200 degrees of freedom, solves the exact equations 26.7.3 and 26.7.4 of Abramowitz and
    Stegun; above, uses expansion 26.7.5, accurate to 1e-10. Infinite below 1 degree of freedom.
    """
    if degrees < 1:
        return math.inf
    if degrees > _MANY:
        z, n = _Z95, float(min(degrees, 10**15))
        terms = (
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
            (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
        )
        return z + sum(term / n ** (i + 1) for i, term in enumerate(terms))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability(middle, degrees) < 0.95 else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _probability(angle: float, degrees: int) -> float:
    """Probability that |t| < `sqrt(degrees) * tan(angle)`."""
    cos2, is_odd = math.cos(angle) ** 2, degrees % 2
    term = total = math.cos(angle) if is_odd else 1.0
    for k in range(2 + is_odd, degrees - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    if not is_odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if degrees > 1 else 0.0))


def mean_interval(mean: float, deviation: float, count: int) -> Interval:
    """Student's interval for a mean of `count` values, from their sample standard deviation.

    Without bounds if `count` is less than 2.
    """
    if count < 2:
        return Interval(mean)
    half = student_t95(count - 1) * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)


def mean_of(values: Sequence[float]) -> Interval:
    """Mean of one or more values, with Student's interval."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return mean_interval(statistics.fmean(values), deviation, len(values))


def interquartile_mean(scores: Scores) -> Interval:
    """Mean of the middle half of the scores, with an interval by stratified bootstrap.

    With fewer than 4 scores, the mean of all scores. Without bounds if no task has two runs.
    """
    tasks = [np.asarray(task, np.float64) for task in scores]
    value = float(_iqm(np.concatenate(tasks)[None])[0])
    if max(map(len, tasks)) < 2:
        return Interval(value)
    return bootstrap(value, tasks, lambda drawn: _iqm(np.concatenate(drawn, axis=1)))


def probability_of_improvement(first: Scores, second: Scores) -> Interval:
    """Probability that a run of `first` beats one of `second`; ties count half.

    The mean over tasks, with an interval by stratified bootstrap; without bounds if no task has two
    runs.
    """
    tasks = [np.asarray(task, np.float64) for task in (*first, *second)]
    count = len(tasks) // 2

    def compare(drawn: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        pairs = zip(drawn[:count], drawn[count:], strict=True)
        shares = np.array([_shares_above(one, other) for one, other in pairs])
        found: NDArray[np.float64] = shares.mean(axis=0)
        return found

    value = float(compare([task[None] for task in tasks])[0])
    if max(map(len, tasks)) < 2:
        return Interval(value)
    return bootstrap(value, tasks, compare)


def bootstrap(
    value: float,
    tasks: Sequence[NDArray[Any]],
    statistic: Callable[[Sequence[NDArray[Any]]], NDArray[np.float64]],
    num_resamples: int = 20_000,
) -> Interval:
    """95 % interval of an estimate: percentiles of a statistic over samples with replacement.

    Without bounds if no number of the statistic is finite.

    Args:
        value: the estimate.
        tasks: values of each task's runs; each task is resampled separately.
        statistic: maps `(num_samples, num_runs)` values per task to one number per sample; numbers
            that are not finite are ignored.
    """
    rng = np.random.default_rng(0)
    chunk = max(1, min(num_resamples, _MAX_DRAWN // sum(map(len, tasks))))
    found = []
    for begin in range(0, num_resamples, chunk):
        size = min(chunk, num_resamples - begin)
        rows = (rng.integers(len(task), size=(size, len(task))) for task in tasks)
        found.append(statistic([task[row] for task, row in zip(tasks, rows, strict=True)]))
    every = np.concatenate(found)
    every = every[np.isfinite(every)]
    if not len(every):
        return Interval(value)
    low, high = np.percentile(every, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def _iqm(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row without its lowest and highest quarter (quarters are rounded down)."""
    count = rows.shape[1]
    cut = count // 4
    middle: NDArray[np.float64] = np.sort(rows, axis=1)[:, cut : count - cut].mean(axis=1)
    return middle


def _shares_above(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row, the share of pairs whose value in `first` is higher: Mann-Whitney U / (n m).

    Ties count half.
    """
    found: NDArray[np.float64] = np.zeros(len(first))
    for column in range(first.shape[1]):
        one = first[:, column, None]
        found += (one > second).mean(axis=1) + (one == second).mean(axis=1) / 2
    found /= first.shape[1]
    return found
