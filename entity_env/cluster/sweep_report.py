"""What mattered in a sweep: rank correlations of settings and reward, and a picture of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.cluster.search_range import SearchRange
from entity_env.cluster.sweep import SweepTrial
from entity_env.views.chart import Axis, Plot, svg_begin

_COLUMNS: Final = 3
_WIDTH, _HEIGHT = 300, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 30, 34
_HEAD: Final = 44
_LEGEND: Final = "hollow: stopped early; red: best"
_LEAST: Final = 3
_COLOURS: Final = {"done": "#2563eb", "stopped": "#94a3b8", "running": "#f59e0b"}


def ranked(trials: Sequence[SweepTrial]) -> list[SweepTrial]:
    """The trials, best reward first; those that failed, and those without a reward, last."""

    def key(trial: SweepTrial) -> tuple[bool, float]:
        is_bad = trial.state == "failed" or not math.isfinite(trial.reward)
        return is_bad, 0.0 if is_bad else -trial.reward

    return sorted(trials, key=key)


def importance(found: SearchRange, trials: Sequence[SweepTrial]) -> float:
    """How much the reward goes with a setting, from -1 to 1; NaN for fewer than 3 rewards.

    Spearman's rank correlation; for choices that are no numbers the correlation ratio of the ranks
    of the rewards, 0 or more. A correlation of few trials may be chance.
    """
    rows = _with_reward(trials)
    if len(rows) < _LEAST:
        return math.nan
    rewards = _ranks([each.reward for each in rows])
    values = [each.settings[found.name] for each in rows]
    if all(type(value) in (int, float) for value in (*values, *found.choices)):
        return _correlation(_ranks(values), rewards)
    places = np.array([found.share_of(value) for value in values])
    means = np.zeros(len(rows))
    for place in set(places.tolist()):
        means[places == place] = rewards[places == place].mean()
    return math.sqrt(means.var() / rewards.var()) if rewards.var() else math.nan


def by_importance(
    ranges: Sequence[SearchRange], trials: Sequence[SweepTrial]
) -> list[tuple[SearchRange, float]]:
    """Every varied setting and its importance, the most important first."""
    found = [(each, importance(each, trials)) for each in ranges]
    return sorted(found, key=lambda pair: -abs(pair[1]) if math.isfinite(pair[1]) else 1)


def picture(title: str, ranges: Sequence[SearchRange], trials: Sequence[SweepTrial]) -> str:
    """An SVG: per varied setting a panel of its value against the reward, by importance."""
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
    found: SearchRange, weight: float, trials: Sequence[SweepTrial], best: SweepTrial
) -> list[str]:
    rows = _with_reward(trials)
    x, y = Axis(-0.04, 1.04, _ticks(found)), Axis.around(each.reward for each in rows)
    plot = Plot(x, y, _LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)
    heading = f"{found.name}   {symbol(found)} = {weight:+.2f}" if weight == weight else found.name
    parts = [
        f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{escape(heading)}</text>',
        *plot.frame(),
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}" opacity="0.7">'
        f"{'logarithmic' if found.is_log else ''}</text>",
    ]
    for each in rows:
        colour = _COLOURS.get(each.state, _COLOURS["running"])
        fill = "none" if each.state == "stopped" else colour
        ring = ' stroke="#dc2626" stroke-width="2"' if each is best else f' stroke="{colour}"'
        across, up = plot.at(found.share_of(each.settings[found.name]), each.reward)
        tip = f"{each.name}: {shown_value(each.settings[found.name])}, reward {each.reward:.4g}"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{fill}" fill-opacity="0.7"{ring}>'
            f"<title>{escape(tip)}</title></circle>"
        )
    return parts


def symbol(found: SearchRange) -> str:
    """ρ for Spearman's correlation, η for the correlation ratio."""
    return "ρ" if all(type(each) in (int, float) for each in found.choices) else "η"


def shown_value(value: Any) -> str:  # noqa: ANN401
    """A setting in a few characters: 0.00123, 64x64."""
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _ticks(found: SearchRange) -> list[tuple[float, str]]:
    if found.choices:
        return [(found.share_of(each), shown_value(each)) for each in found.choices]
    values = [found.low, found.at(0.5), found.high]
    return [(found.share_of(each), shown_value(each)) for each in values]


def _with_reward(trials: Sequence[SweepTrial]) -> list[SweepTrial]:
    return [each for each in trials if each.state != "failed" and math.isfinite(each.reward)]


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks from 0; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts + 1) / 2)[which], dtype=np.float64)


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    if not first.std() or not second.std():
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])
