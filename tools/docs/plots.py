"""Draws the plots of docs/benchmarks.md from the results in docs/results.

    python benchmarks/inversion.py --json > docs/results/inversion.json
    python -m tools.docs.plots

A plot has a dot for each figure, on a logarithmic axis. If the result contains the spread, a line
leads from the smallest to the largest round. The curves of learning are in `curves`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from benchmarks.peers.training import CONTROL_TASKS, STEP_TASKS
from entity_env.views.chart import COLOURS
from tools.docs import curves
from tools.docs.curves import WIDTH, begin
from tools.docs.figures import RESULTS, ROOT, Result, read

OUT: Final = ROOT / "docs" / "pictures"
_LEFT, _RIGHT, _ROW = 232, 66, 27
_MARGIN: Final = 1.08
"""Smallest factor between a dot and the ends of the axis."""
_MANY: Final = 50
"""If the ends of an axis have a larger ratio, only powers of ten are ticks."""


@dataclass(frozen=True)
class Dots:
    """A plot of figures of one benchmark.

    Args:
        title: first line of the plot.
        about: second line, how the figures were measured.
        labels: names of the dots, by figure.
        unit: unit of the figures; `"×"` = ratios to a peer.
        reference: figure marked by a line; "" = the ratio 1.
        reference_label: text at this line.
    """

    title: str
    about: str
    labels: Mapping[str, str]
    unit: str = "×"
    reference: str = ""
    reference_label: str = "as fast as the peer"


PLOTS: Final = {
    "train": Dots(
        "Training: × faster than enn-trainer",
        "steps per second, equal network and settings, one core",
        {
            "fps_ratio_xor": "Xor",
            "fps_ratio_cherry_pick": "CherryPick",
            "fps_ratio_multi_snake": "MultiSnake",
            "fps_ratio_move_to_origin": "MoveToOrigin",
            "fps_ratio_treasure_hunt": "TreasureHunt",
        },
        reference_label="as fast as enn-trainer",
    ),
    "learning": Dots(
        "Training: × faster than Stable-Baselines3",
        "steps per CPU second; its PPO in one environment; 100k to 300k steps",
        {
            f"steps_per_cpu_s_vs_sb3_{name}": (
                f"{CONTROL_TASKS[name].env_id}, {CONTROL_TASKS[name].total_steps // 1000}k"
            )
            for name in STEP_TASKS
        },
        reference_label="as fast as Stable-Baselines3",
    ),
    "vec": Dots(
        "Many games at once: × faster than a peer",
        "steps per second, snake, two workers",
        {
            "vs_parallel_env_list_256": "ParallelEnvList, 256 games",
            "vs_parallel_env_list_1024": "ParallelEnvList, 1,024 games",
            "vs_env_list_256": "EnvList, 256 games",
            "vs_env_list_1024": "EnvList, 1,024 games",
            "vs_rust_vec_env_1024": "snake in Rust, 1,024 games",
        },
    ),
    "batch": Dots(
        "CartPole as arrays: × faster than a peer",
        "steps per second, whole loop, one thread",
        {
            "vs_gym_single_1": "one Gymnasium environment",
            "vs_cartpole_vector_env_64": "CartPoleVectorEnv, 64",
            "vs_cartpole_vector_env_4096": "CartPoleVectorEnv, 4,096",
            "vs_envpool_4096": "EnvPool, 4,096",
            "vs_sync_4096": "SyncVectorEnv, 4,096",
        },
    ),
    "latency": Dots(
        "One decision: × faster than rogue-net",
        "time from observation to action, equal weights, one thread",
        {
            "ratio_10_entities": "10 entities",
            "ratio_100_entities": "100 entities",
            "ratio_10_entities_in_a_game": "10 entities, in a game",
            "ratio_100_entities_in_a_game": "100 entities, in a game",
        },
        reference_label="as fast as rogue-net",
    ),
    "inversion": Dots(
        "A game that waits for its agent: time per call",
        "in addition to a plain call; thread: the whole round trip",
        {
            "greenlet_extra_us_1": "greenlet, 1 game",
            "greenlet_extra_us_1000": "greenlet, 1,000 games",
            "greenlet_extra_us_10000": "greenlet, 10,000 games",
            "thread_us_1": "thread, 1 game",
        },
        unit=" µs",
        reference="direct_us",
        reference_label="a plain call",
    ),
    "featurize": Dots(
        "Reading an entity: time per entity",
        "four fields into a row of a batch",
        {
            "dataclass_ns_per_entity": "100 dataclasses of floats",
            "mixed_dataclass_ns_per_entity": "100 dataclasses of mixed types",
            "numpy_ns_per_entity": "5,000 rows of an array",
        },
        unit=" ns",
        reference="by_hand_ns_per_entity",
        reference_label="by hand, np.array",
    ),
}
"""By the name of the result."""


class LogAxis:
    """Logarithmic axis whose ends are 1, 2 or 5 times a power of ten.

    Args:
        values: positive; all of them are inside, away from the ends.
        mark: inside or at an end.
        left, right: positions of the ends.
    """

    def __init__(self, values: list[float], mark: float, left: float, right: float) -> None:
        steps = [k * 10.0**power for power in range(-12, 13) for k in (1, 2, 5)]
        least, most = min(*values, mark * _MARGIN), max(*values, mark / _MARGIN)
        self.low = max(each for each in steps if each * _MARGIN <= least)
        self.high = min(each for each in steps if each >= most * _MARGIN)
        self.left, self.right = left, right
        inside = [each for each in steps if self.low <= each <= self.high]
        is_long = self.high > _MANY * self.low
        self.ticks = [each for each in inside if not is_long or _is_power_of_ten(each)]

    def at(self, value: float) -> float:
        """Position of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.left + share * (self.right - self.left)


def svg(plot: Dots, result: Result) -> str:
    """A plot of a result, from the fastest to the slowest."""
    rows = sorted(plot.labels, key=result.figures.__getitem__, reverse=plot.unit == "×")
    spread = {name: result.spread[name] for name in rows if name in result.spread}
    mark = result.figures[plot.reference] if plot.reference else 1.0
    shown = [result.figures[name] for name in rows] + [
        each for low in spread.values() for each in low
    ]
    axis = LogAxis(shown, mark, _LEFT, WIDTH - _RIGHT)
    top, bottom = 76, 76 + _ROW * len(rows)
    about = [f"{result.date}, {result.machine}"]
    about += ["lines: from the smallest to the largest round"] if spread else []
    parts = [
        begin(WIDTH, bottom + 26 + 19 * len(about)),
        f'<text x="4" y="19" font-size="17" font-weight="bold">{escape(plot.title)}</text>',
        f'<text x="4" y="39">{escape(plot.about)}</text>',
        *_grid(plot, axis, top, bottom),
        *_reference(plot, axis.at(mark), top, bottom),
    ]
    for i, name in enumerate(rows):
        y = top + _ROW * (i + 0.5)
        value = result.figures[name]
        text = f"{_number(value)}{plot.unit}"
        parts.append(f'<text x="4" y="{y + 5:g}">{escape(plot.labels[name])}</text>')
        if name in spread:
            low, high = map(axis.at, spread[name])
            parts.append(
                f'<path d="M{low:.1f} {y:g}H{high:.1f}" stroke="{COLOURS[0]}" stroke-width="3"/>'
            )
        parts.append(f'<circle cx="{axis.at(value):.1f}" cy="{y:g}" r="6" fill="{COLOURS[0]}"/>')
        parts.append(f'<text x="{WIDTH - 4}" y="{y + 5:g}" text-anchor="end">{text}</text>')
    for i, text in enumerate(about):
        parts.append(f'<text x="4" y="{bottom + 41 + 19 * i}" opacity="0.8">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _grid(plot: Dots, axis: LogAxis, top: float, bottom: float) -> list[str]:
    """A line for each tick, with its number below."""
    parts = []
    for tick in axis.ticks:
        x = f"{axis.at(tick):.1f}"
        number = f"{tick / 1000:g}k" if tick >= 1000 else f"{tick:g}"
        parts.append(
            f'<path d="M{x} {top}V{bottom}" stroke="currentColor" stroke-opacity="0.2"/>'
            f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{number}{plot.unit}</text>'
        )
    return parts


def _reference(plot: Dots, x: float, top: float, bottom: float) -> list[str]:
    """The line that values are compared with, and its text above."""
    is_left = x < (_LEFT + WIDTH - _RIGHT) / 2
    side = 'text-anchor="start"' if is_left else 'text-anchor="end"'
    return [
        f'<path d="M{x:.1f} {top - 8}V{bottom}" stroke="{COLOURS[1]}" stroke-width="2" '
        f'stroke-dasharray="5 4"/>',
        f'<text x="{x:.1f}" y="{top - 13}" {side}>{escape(plot.reference_label)}</text>',
    ]


def _is_power_of_ten(value: float) -> bool:
    return math.isclose(math.log10(value), round(math.log10(value)), abs_tol=1e-9)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def pictures() -> dict[Path, str]:
    """Every plot by its file."""
    plots = {
        OUT / f"bench_{name}.svg": svg(plot, read(RESULTS / f"{name}.json"))
        for name, plot in PLOTS.items()
    }
    return plots | curves.pictures()


def main() -> None:
    for path, text in pictures().items():
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {len(text.encode())} bytes\n")


if __name__ == "__main__":
    main()
