"""Groups of runs that differ only in their seed, and their curves as lines with bands and dots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.intervals import mean_of, student_t95
from entity_env.agents.training.tracking.runs import EVALUATED, REWARD, Curve, TrainingRun
from entity_env.cli.display.console import plain
from entity_env.cli.report.curve_words import curve_words
from entity_env.cli.report.shared_names import without_folders
from entity_env.cli.run_tables import differing
from entity_env.views.chart import Points, Series

Numbers: TypeAlias = NDArray[np.float64]
_MAX_POINTS: Final = 400
_MAX_TITLE_SETTINGS: Final = 3
LEAST_FOR_BAND: Final = 3
"""Minimum number of runs in a group whose mean has a band: Student's interval of two runs is 13
times as wide as their distance."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of a game that differ only in their seed.

    Args:
        label: path of the run; for several, their common folder, if any, and their number.
        settings: those that differ from other groups of the game, as text.
    """

    runs: tuple[TrainingRun, ...]
    label: str
    settings: dict[str, str]

    @property
    def title(self) -> str:
        """The label and the differing settings; without these if there are more than three."""
        shown = [f"{name}={value}" for name, value in self.settings.items()]
        if len(shown) > _MAX_TITLE_SETTINGS:
            return self.label
        return ": ".join(filter(None, [self.label, ", ".join(shown)]))

    def line(self, name: str, *, dots: str = "") -> Series:
        """A curve of the group; with several runs, their mean.

        Args:
            dots: a curve to draw as dots, such as evaluations; "" = none.
        """
        runs = [run for run in self.runs if name in run.curves]
        points = self._dots(dots)
        if name.startswith("evaluation/"):  # too few points for a line
            return Series(self.title, [], [], dots=self._dots(name))
        curves = [_inside(name, run.curves[name]) for run in runs]
        if len(curves) == 1:
            low, high = _bounds(runs[0]) if name == REWARD else (None, None)
            return Series(self.title, *curves[0], low=low, high=high, dots=points)
        steps, mean, half = _mean_and_half(curves)
        bounds = (mean - half, mean + half) if len(curves) >= LEAST_FOR_BAND else (None, None)
        return Series(
            self.title, steps, mean, low=bounds[0], high=bounds[1], members=curves, dots=points
        )

    def _dots(self, name: str) -> Points | None:
        """Points of a curve, or None; of several runs, their means at the steps that all have.

        If there are no such steps, all points of these runs.
        """
        runs = [run for run in self.runs if name in run.curves]
        if not runs:
            return None
        if len(runs) == 1:
            return _dots_of(runs[0], name)
        common = set.intersection(*(set(run.curves[name].steps.tolist()) for run in runs))
        if not common:
            parts = zip(*(_dots_of(run, name) for run in runs), strict=True)
            every = np.array([np.concatenate(part) for part in parts])
            return Points(*every[:, np.argsort(every[0], kind="stable")])
        steps = sorted(common)
        found = [dict(zip(*map(np.ndarray.tolist, run.curves[name]), strict=True)) for run in runs]
        means = np.array([mean_of([values[step] for values in found]) for step in steps])
        if len(runs) < LEAST_FOR_BAND:
            means[:, 1:] = math.nan
        return Points(np.array(steps, np.float64), *means.T)


def _dots_of(run: TrainingRun, name: str) -> Points:
    steps, values = run.curves[name]
    halves = np.full(len(steps), math.nan)
    if name == EVALUATED:
        halves = np.array([each.ci95 for each in run.mean_rewards(name)])
    return Points(steps.astype(np.float64), values, values - halves, values + halves)


def _bounds(run: TrainingRun) -> tuple[Numbers, Numbers] | tuple[None, None]:
    """95 % interval of the mean over the last episodes of training; None if none is known."""
    values = run.curves[REWARD].values
    halves = np.array([each.ci95 for each in run.mean_rewards(REWARD)])
    if not np.isfinite(halves).any():
        return None, None
    return values - halves, values + halves


def _inside(name: str, curve: Curve) -> Curve:
    return Curve(curve.steps, np.clip(curve.values, *curve_words(name).bounds))


def _mean_and_half(curves: Sequence[Curve]) -> tuple[Numbers, Numbers, Numbers]:
    """Steps where all curves have values, their mean, and half of Student's 95 % interval of it."""
    begin = max((int(curve.steps[0]) for curve in curves), default=0)
    end = min((int(curve.steps[-1]) for curve in curves), default=-1)
    if end < begin:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    steps = np.unique(np.concatenate([curve.steps for curve in curves])).astype(np.float64)
    steps = steps[(steps >= begin) & (steps <= end)]
    if len(steps) > _MAX_POINTS:
        steps = np.linspace(begin, end, _MAX_POINTS)
    values = np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(curves))
    return steps, values.mean(axis=0), student_t95(len(curves) - 1) * error


def run_groups(runs: Sequence[TrainingRun]) -> list[RunGroup]:
    """Groups of runs of one game, in the order of their first run."""
    _, settings = differing(runs)
    members: dict[object, list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault(run.group(), []).append(i)
    labels = [_label([runs[i] for i in own]) for own in members.values()]
    return [
        RunGroup(
            tuple(runs[i] for i in own),
            label if labels.count(label) == 1 else f"{label}, {plain(runs[own[0]].name)}",
            {name: without_folders(value) for name, value in settings[own[0]].items()},
        )
        for label, own in zip(labels, members.values(), strict=True)
    ]


def _label(runs: Sequence[TrainingRun]) -> str:
    if len(runs) == 1:
        return plain(str(runs[0].path))
    is_seeds = len({run.seed for run in runs}) == len(runs)
    number = f"{len(runs)} {'seeds' if is_seeds else 'runs'}"
    parents = {run.path.parent for run in runs}
    folder = plain(str(parents.pop())) if len(parents) == 1 else "."
    return f"mean of {number}" if folder == "." else f"{folder}, mean of {number}"


def game_runs(runs: Sequence[TrainingRun]) -> dict[str, list[TrainingRun]]:
    """Runs by game."""
    found: dict[str, list[TrainingRun]] = {}
    for run in runs:
        found.setdefault(plain(run.game), []).append(run)
    return found


def curve_lines(groups: Sequence[RunGroup], name: str, *, dots: str = "") -> list[Series]:
    """A line for each group of runs of one game, in this order, and those of random play."""
    lines = [group.line(name, dots=dots) for group in groups]
    return lines + _random_lines([run for group in groups for run in group.runs], name, lines)


def _random_lines(runs: Sequence[TrainingRun], name: str, lines: Sequence[Series]) -> list[Series]:
    """A dashed line at the reward of random play, per game and settings."""
    ends = np.concatenate([np.zeros(0), *(line.all_x for line in lines)])
    found: dict[str, list[float]] = {}
    for run in runs:
        is_comparable = run.random_play is not None and (
            name == EVALUATED or (name == REWARD and run.random_play.is_like_training)
        )
        if run.random_play is not None and is_comparable and len(ends):
            own = run.about.get("settings")
            words = own.items() if isinstance(own, dict) else ()
            settings = plain(", ".join(f"{key}={value}" for key, value in words))
            found.setdefault(settings, []).append(run.random_play.mean_reward)
    return [
        Series(
            f"random play ({without_folders(settings)})" if len(found) > 1 else "random play",
            [ends.min(), ends.max()],
            [fmean(rewards)] * 2,
            is_dashed=True,
        )
        for settings, rewards in found.items()
    ]
