"""Curves of learning, drawn from the runs in docs/results/*_runs.jsonl.

`python -m tools.docs.plots` writes them. Each task has a panel. For one or two trainers, it shows
the median over the seeds, with a band from the lowest to the highest seed; for other trainers, a
thin gray median.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.games.registry import BENCHMARK_GAMES
from benchmarks.peers.training import CONTROL_TASKS
from entity_env.views.chart import COLOURS, Axis, Plot, Series, svg_begin, svg_line
from tools.docs.figures import RESULTS, ROOT

WIDTH: Final = 480
"""Width of plots, at which a phone shows their text almost in full size."""
_FONT: Final = 14
STYLE: Final = (
    "<style>svg{color:#1f2937}@media(prefers-color-scheme:dark){svg{color:#e5e7eb}}</style>"
)
"""Color of the text of a plot in a separate file; `stage` removes it from inlined plots."""
_COLUMNS, _HEIGHT, _HEAD = 2, 160, 70
_NUM_GRAY_POINTS: Final = 10

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Curves:
    """A picture with one panel of runs per task.

    Args:
        title: first line of the picture.
        about: second line, which names the axes.
        panels: titles, by task.
        steps: length of the x axis, by task.
        trainers: names at the ends of their lines, by trainer; two at most.
        key: longer names of the trainers, in their order, and of the gray lines.
        num_points: points per line.
        source: file of the runs, in the folder of results.
    """

    title: str
    about: str
    panels: Mapping[str, str]
    steps: Mapping[str, int]
    trainers: Mapping[str, str]
    key: Sequence[str]
    num_points: int
    source: str = "learning_runs.jsonl"


_CONTROL: Final = Curves(
    "Learning control tasks",
    "mean reward of the last 100 episodes, by step",
    {name: task.env_id for name, task in CONTROL_TASKS.items()},
    {name: task.total_steps for name, task in CONTROL_TASKS.items()},
    {"ours": "ours", "sb3_1": "SB3"},
    ("entity_env", "Stable-Baselines3, one environment"),
    num_points=24,
)
_GAMES: Final = Curves(
    "Learning the twenty games with the defaults",
    "mean episode reward, by decision",
    {name: f"{name}*" if game.held_out else name for name, game in BENCHMARK_GAMES.items()},
    {name: game.steps for name, game in BENCHMARK_GAMES.items()},
    {"default": ""},
    ("defaults", "eight other settings"),
    num_points=15,
)
_ARENA: Final = Curves(
    "Learning to beat bots of Kaggle",
    "mean reward of recent episodes, by decision",
    {"orbit_wars": "Orbit Wars, starter", "planet_wars": "Planet Wars, nearest_enemy"},
    {"orbit_wars": 200_000, "planet_wars": 50_000},
    {"ours": ""},
    ("entity_env",),
    num_points=40,
    source="arena_runs.jsonl",
)
FILES: Final = {
    ROOT / "docs" / "learning.svg": _CONTROL,
    ROOT / "docs" / "learning_games.svg": _GAMES,
    ROOT / "docs" / "learning_arena.svg": _ARENA,
}


def begin(width: float, height: float) -> str:
    """First tags of a plot of the docs, in the color of its surroundings."""
    return f"{svg_begin(width, height, background='', font_size=_FONT)}\n{STYLE}"


def pictures() -> dict[Path, str]:
    """All pictures by their files."""
    return {path: svg(each, _runs(each.source)) for path, each in FILES.items()}


def _runs(source: str) -> list[Run]:
    lines = (RESULTS / source).read_text("utf-8").splitlines()
    return [run for run in map(json.loads, lines) if run["curve"]]


def svg(curves: Curves, runs: Sequence[Run]) -> str:
    """The panels of the tasks that have runs."""
    tasks = [task for task in curves.panels if any(run["task"] == task for run in runs)]
    height = _HEAD + _HEIGHT * -(-len(tasks) // _COLUMNS)
    parts = [
        begin(WIDTH, height),
        f'<text x="4" y="19" font-size="17" font-weight="bold">{escape(curves.title)}</text>',
        f'<text x="4" y="39">{escape(curves.about)}</text>',
    ]
    x = 4.0
    for i, name in enumerate(curves.key):
        color = COLOURS[i] if i < len(curves.trainers) else "currentColor"
        line = f'd="M{x:g} 54h22" stroke="{color}" stroke-width="{3 if color in COLOURS else 1}"'
        parts.append(f'<path {line}/><text x="{x + 28:g}" y="59">{escape(name)}</text>')
        x += 52 + 7.5 * len(name)
    for i, task in enumerate(tasks):
        left = WIDTH / _COLUMNS * (i % _COLUMNS)
        top = _HEAD + _HEIGHT * (i // _COLUMNS)
        parts += _panel(curves, task, [run for run in runs if run["task"] == task], left, top)
    return "\n".join([*parts, "</svg>", ""])


def _panel(curves: Curves, task: str, runs: Sequence[Run], left: float, top: float) -> list[str]:
    """One task: its axes, the gray lines, the trainers, and their names."""
    steps = curves.steps[task]
    names = list(dict.fromkeys(run["who"] for run in runs))
    own = {who: [run for run in runs if run["who"] == who] for who in names}
    lines = {
        who: summary(
            curves.trainers.get(who, who),
            own[who],
            steps,
            curves.num_points if who in curves.trainers else _NUM_GRAY_POINTS,
        )
        for who in names
    }
    main = [lines[who] for who in curves.trainers]
    gray = [line for who, line in lines.items() if who not in curves.trainers]
    bounds = [v for line in main for v in (line.low.min(), line.high.max())]
    bounds += [v for line in gray for v in (line.y.min(), line.y.max())]
    plot = Plot(
        Axis.around((0, steps), is_whole=True, num_ticks=2),
        Axis.around(bounds, is_whole=True, num_ticks=3),
        left + 50,
        top + 28,
        left + WIDTH / _COLUMNS - 40,
        top + _HEIGHT - 32,
    )
    parts = [
        f'<text x="{left + 4:g}" y="{top + 16:g}" font-weight="bold">'
        f"{escape(curves.panels[task])}</text>",
        *plot.frame(),
    ]
    if gray:
        paths = "".join(_steps(plot, line) for line in gray)
        parts.append(f'<path d="{paths}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>')
    for i, line in reversed([*enumerate(main)]):
        parts += svg_line(line, i, plot)
    ends = [plot.at(line.x[-1], line.y[-1]) for line in main]
    for line, (x, _), y in zip(main, ends, _apart([y for _, y in ends]), strict=True):
        if line.name:
            parts.append(f'<text x="{x + 5:.0f}" y="{y + 5:.0f}">{escape(line.name)}</text>')
    return parts


def summary(name: str, runs: Sequence[Run], steps: int, num_points: int) -> Series:
    """Median of runs at equally spaced steps, with the band from the lowest to the highest run."""
    curves = [np.asarray(run["curve"], np.float64) for run in runs]
    first = max(curve[0, 0] for curve in curves)
    last = min(float(steps), *(curve[-1, 0] for curve in curves))
    x = np.linspace(first, last, num_points)
    y = np.stack([np.interp(x, curve[:, 0], curve[:, 1]) for curve in curves])
    if len(runs) == 1:
        return Series(name, x, y[0])
    return Series(name, x, np.median(y, axis=0), low=y.min(axis=0), high=y.max(axis=0))


def _steps(plot: Plot, line: Series) -> str:
    """A path of relative steps in whole pixels, which is exact enough for a thin line."""
    points = [plot.at(*each) for each in zip(line.x, line.y, strict=True)]
    first, *rest = np.diff(np.round([(0.0, 0.0), *points]), axis=0).tolist()
    return "M{:g} {:g}l".format(*first) + " ".join(f"{x:g} {y:g}" for x, y in rest)


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of two texts, moved apart until they are at least one line apart."""
    if len(heights) < 2 or abs(heights[0] - heights[1]) >= _FONT:
        return list(heights)
    middle, sign = sum(heights) / 2, 1 if heights[0] >= heights[1] else -1
    return [middle + sign * _FONT / 2, middle - sign * _FONT / 2]
