"""Report of a sweep: rank correlations of settings and score, with a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.intervals import Interval, bootstrap, mean_of
from entity_env.cluster.search_range import SearchRange, Settings
from entity_env.cluster.sweep_plan import SweepTrial
from entity_env.views.chart import Axis, Plot, svg_begin

_COLUMNS: Final = 3
_WIDTH, _HEIGHT = 300, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 30, 34
_HEAD: Final = 44
_LEGEND: Final = "hollow: stopped early; red: best"
LEAST: Final = 10
"""Minimum number of combinations of settings with a score for `importance`."""
_NUM_RESAMPLES: Final = 2000
_COLOURS: Final = {"done": "#2563eb", "stopped": "#94a3b8", "running": "#f59e0b"}


@dataclass(frozen=True)
class SettingsResult:
    """Runs of a sweep with equal settings, one per seed."""

    runs: tuple[SweepTrial, ...]

    @property
    def number(self) -> int:
        return self.runs[0].number

    @property
    def settings(self) -> Settings:
        return self.runs[0].settings

    @property
    def best(self) -> SweepTrial:
        return max(self.runs, key=lambda run: run.score if math.isfinite(run.score) else -math.inf)

    @cached_property
    def score(self) -> Interval:
        """Mean score with Student's interval over seeds; NaN without scores."""
        scores = [run.score for run in self.runs if math.isfinite(run.score)]
        return mean_of(scores) if scores else Interval(math.nan)

    @property
    def state(self) -> str:
        """State of the runs; if they differ, the count of each."""
        states = [run.state for run in self.runs]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        if len(counts) == 1:
            return states[0]
        return ", ".join(f"{count} {state}" for state, count in counts.items())

    @property
    def has_failed(self) -> bool:
        return any(run.state == "failed" for run in self.runs)


def ranked(trials: Sequence[SweepTrial]) -> list[SettingsResult]:
    """Results by combination of settings, best mean score first; failures and NaN last."""
    found: dict[int, list[SweepTrial]] = {}
    for trial in trials:
        found.setdefault(trial.number, []).append(trial)

    def key(result: SettingsResult) -> tuple[bool, float]:
        is_bad = result.has_failed or not math.isfinite(result.score.value)
        return is_bad, 0.0 if is_bad else -result.score.value

    return sorted((SettingsResult(tuple(own)) for own in found.values()), key=key)


def importance(found: SearchRange, trials: Sequence[SweepTrial]) -> Interval:
    """Correlation of the score with a setting, from -1 to 1, with its bootstrap interval.

    Spearman's rank correlation. For choices that are not numbers, the correlation ratio of the
    score ranks, 0 or more, adjusted for the number of choices (Kelley 1935). NaN if fewer than
    `LEAST` combinations of settings have a score, because a correlation of few values is chance.
    """
    rows = _with_score(trials)
    if len(rows) < LEAST:
        return Interval(math.nan)
    scores = np.array([each.score.value for each in rows])
    values = [each.settings[found.name] for each in rows]
    are_numbers = all(type(value) in (int, float) for value in (*values, *found.choices))
    places = np.array([value if are_numbers else found.share_of(value) for value in values], float)
    measure = _rank_correlation if are_numbers else _correlation_ratio

    def over(drawn: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        return np.array([measure(places[row], scores[row]) for row in drawn[0]])

    value = measure(places, scores)
    return bootstrap(value, [np.arange(len(rows))], over, _NUM_RESAMPLES)


def by_importance(
    ranges: Sequence[SearchRange], trials: Sequence[SweepTrial]
) -> list[tuple[SearchRange, Interval]]:
    """Varied settings with their importance, most important first."""
    found = [(each, importance(each, trials)) for each in ranges]
    return sorted(
        found, key=lambda pair: -abs(pair[1].value) if math.isfinite(pair[1].value) else 1
    )


def num_scored(trials: Sequence[SweepTrial]) -> int:
    """Number of combinations of settings with a score; `importance` needs `LEAST`."""
    return len(_with_score(trials))


def picture(title: str, ranges: Sequence[SearchRange], trials: Sequence[SweepTrial]) -> str:
    """SVG with one panel per varied setting, ordered by importance: values and scores of runs."""
    panels = by_importance(ranges, trials)
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    width, height = columns * _WIDTH, rows * _HEIGHT + _HEAD
    best = ranked(trials)[0]
    parts = [
        svg_begin(width, height),
        f'<text x="{_LEFT}" y="18" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<text x="{_LEFT}" y="34" opacity="0.7">{_LEGEND}</text>',
    ]
    for i, (found, weight) in enumerate(panels):
        x, y = i % columns * _WIDTH, _HEAD + i // columns * _HEIGHT
        parts += [
            f'<g transform="translate({x} {y})">',
            *_panel(found, weight, trials, best),
            "</g>",
        ]
    return "\n".join((*parts, "</svg>\n"))


def _panel(
    found: SearchRange, weight: Interval, trials: Sequence[SweepTrial], best: SettingsResult
) -> list[str]:
    rows = [
        (result, run)
        for result in _with_score(trials)
        for run in result.runs
        if math.isfinite(run.score)
    ]
    x, y = Axis(-0.04, 1.04, _ticks(found)), Axis.around(run.score for _, run in rows)
    plot = Plot(x, y, _LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)
    heading = f"{found.name}   {weight_words(found, weight)}".rstrip()
    parts = [
        f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{escape(heading)}</text>',
        *plot.frame(),
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}" opacity="0.7">'
        f"{'logarithmic' if found.is_log else ''}</text>",
    ]
    for result, each in rows:
        colour = _COLOURS.get(each.state, _COLOURS["running"])
        fill = "none" if each.state == "stopped" else colour
        is_best = result.number == best.number
        ring = ' stroke="#dc2626" stroke-width="2"' if is_best else f' stroke="{colour}"'
        across, up = plot.at(found.share_of(each.settings[found.name]), each.score)
        tip = f"{each.name}: {shown_value(each.settings[found.name])}, reward {each.score:.4g}"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{fill}" fill-opacity="0.7"{ring}>'
            f"<title>{escape(tip)}</title></circle>"
        )
    return parts


def weight_words(found: SearchRange, weight: Interval) -> str:
    """Importance in words: ρ = Spearman's correlation, η = correlation ratio; "" if unknown."""
    if not weight.is_known:
        return ""
    symbol = "ρ" if all(type(each) in (int, float) for each in found.choices) else "η"
    return f"{symbol} = {weight.value:+.2f} [{weight.low:+.2f}, {weight.high:+.2f}]"


def shown_value(value: Any) -> str:  # noqa: ANN401
    """A value of a setting in a few characters: 0.00123, 64x64."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ticks(found: SearchRange) -> list[tuple[float, str]]:
    if found.choices:
        return [(found.share_of(each), shown_value(each)) for each in found.choices]
    values = [found.low, found.at(0.5), found.high]
    return [(found.share_of(each), shown_value(each)) for each in values]


def _with_score(trials: Sequence[SweepTrial]) -> list[SettingsResult]:
    return [
        each for each in ranked(trials) if not each.has_failed and math.isfinite(each.score.value)
    ]


def _rank_correlation(values: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    return _correlation(_ranks(values), _ranks(scores))


def _correlation_ratio(places: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """Square root of the adjusted share of the rank variance between choices; NaN if undefined."""
    ranks, groups = _ranks(scores), np.unique(places)
    if not ranks.std() or len(groups) < 2 or len(ranks) <= len(groups):
        return math.nan
    within = sum(float(ranks[places == each].var() * (places == each).sum()) for each in groups)
    rest = within / (len(ranks) * float(ranks.var()))
    return math.sqrt(max(0.0, 1 - rest * (len(ranks) - 1) / (len(ranks) - len(groups))))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0; ties share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[which], dtype=np.float64)


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if not first.std() or not second.std():
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])
