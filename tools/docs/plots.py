"""Draws the plots of docs/benchmarks.md from the results in docs/results.

    python benchmarks/inversion.py --json > docs/results/inversion.json
    python -m tools.docs.plots

A result is what a benchmark prints with `--json`: figures, machine, versions and date.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.training import CONTROL_TASKS, STEP_TASKS
from entity_env.views.chart import COLOURS, svg_begin

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs" / "results"
OUT: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 720
_LEFT, _RIGHT, _TOP, _ROW = 300, 90, 36, 24
_LOG_SPAN: Final = 30
"""Ratio of the largest to the smallest value above which lengths are logarithms."""


@dataclass(frozen=True)
class Bars:
    """A plot of figures of one benchmark as bars.

    Args:
        title: what is measured, and in which unit.
        labels: of the bars by figure, in their order.
        is_ratio: values are ratios to a peer: a line marks 1.
    """

    title: str
    labels: Mapping[str, str]
    is_ratio: bool = False


PLOTS: Final = {
    "train": Bars(
        "Training: steps a second over enn-trainer's",
        {
            "fps_ratio_xor": "Xor",
            "fps_ratio_cherry_pick": "CherryPick",
            "fps_ratio_multi_snake": "MultiSnake",
            "fps_ratio_move_to_origin": "MoveToOrigin",
            "fps_ratio_treasure_hunt": "TreasureHunt",
        },
        is_ratio=True,
    ),
    "learning": Bars(
        "Training: steps a second of processor time over those of Stable-Baselines3 in one env",
        {f"steps_per_cpu_s_vs_sb3_{task}": CONTROL_TASKS[task].env_id for task in STEP_TASKS},
        is_ratio=True,
    ),
    "vec": Bars(
        "Many games at once: steps a second over those of a peer",
        {
            "vs_parallel_env_list_256": "entity-gym ParallelEnvList, 256 snakes",
            "vs_parallel_env_list_1024": "entity-gym ParallelEnvList, 1,024 snakes",
            "vs_env_list_256": "entity-gym EnvList, 256 snakes",
            "vs_env_list_1024": "entity-gym EnvList, 1,024 snakes",
            "vs_rust_vec_env_1024": "a game in Rust, 1,024 snakes",
        },
        is_ratio=True,
    ),
    "batch": Bars(
        "CartPole as arrays: steps a second over those of a peer",
        {
            "vs_gym_single_1": "Gymnasium, one environment",
            "vs_cartpole_vector_env_64": "CartPoleVectorEnv, 64",
            "vs_cartpole_vector_env_4096": "CartPoleVectorEnv, 4,096",
            "vs_envpool_4096": "EnvPool, 4,096",
            "vs_sync_4096": "SyncVectorEnv, 4,096",
        },
        is_ratio=True,
    ),
    "latency": Bars(
        "One decision: rogue-net's time over ours",
        {
            "ratio_10_entities": "10 entities",
            "ratio_100_entities": "100 entities",
            "ratio_10_entities_in_a_game": "10 entities, asked by a game",
            "ratio_100_entities_in_a_game": "100 entities, asked by a game",
        },
        is_ratio=True,
    ),
    "inversion": Bars(
        "A game that waits for its agent: microseconds",
        {
            "direct_us": "a plain call of the agent",
            "greenlet_extra_us_1": "greenlet, beyond that, 1 game",
            "greenlet_extra_us_1000": "greenlet, 1,000 suspended games",
            "greenlet_extra_us_10000": "greenlet, 10,000 suspended games",
            "thread_us_1": "thread, 1 game, the whole round trip",
        },
    ),
    "featurize": Bars(
        "Reading an entity of four fields: nanoseconds",
        {
            "by_hand_ns_per_entity": "by hand, np.array over 100 dataclasses",
            "dataclass_ns_per_entity": "100 dataclasses of floats",
            "mixed_dataclass_ns_per_entity": "100 dataclasses of mixed types",
            "numpy_ns_per_entity": "5,000 rows of an array",
        },
    ),
}
"""By the name of the benchmark, as of its script and its result."""


def svg(plot: Bars, result: Mapping[str, Any]) -> str:
    """A plot of a result; logarithmic where the values differ by orders of magnitude."""
    figures = {label: float(result["figures"][name]) for name, label in plot.labels.items()}
    least, most = min(figures.values()), max(figures.values())
    is_log = most > _LOG_SPAN * least
    begin = 10 ** math.floor(math.log10(min(least, 1.0) * 0.999)) if is_log else 0.0

    def x(value: float) -> float:
        share = math.log(value / begin) / math.log(most / begin) if is_log else value / most
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    height = _TOP + _ROW * len(figures) + 30
    title = f'<text x="12" y="20" font-size="14" font-weight="bold">{escape(plot.title)}</text>'
    parts = [svg_begin(WIDTH, height), title]
    for i, (label, value) in enumerate(figures.items()):
        y = _TOP + _ROW * i
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{_LEFT}" y="{y + 3}" width="{x(value) - _LEFT:.1f}" height="16" '
            f'fill="{COLOURS[0]}"/>'
            f'<text x="{x(value) + 6:.1f}" y="{y + 15}">{_number(value)}</text>'
        )
    if plot.is_ratio:
        parts.append(
            f'<path d="M{x(1):.1f} {_TOP - 4}V{height - 26}" stroke="{COLOURS[5]}" '
            f'stroke-width="1.5" stroke-dasharray="4 3"><title>as fast as the peer</title></path>'
        )
    machine = f"{result['machine']['processor']}, {result['machine']['cores']} cores"
    scale = "; lengths are logarithms" if is_log else ""
    note = escape(f"{result['date']}, {machine}{scale}")
    parts.append(f'<text x="12" y="{height - 8}" opacity="0.8">{note}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def pictures() -> dict[Path, str]:
    """Every plot by the file it belongs into."""
    return {
        OUT / f"bench_{name}.svg": svg(plot, json.loads((RESULTS / f"{name}.json").read_text()))
        for name, plot in PLOTS.items()
    }


def main() -> None:
    for path, text in pictures().items():
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {len(text)} bytes\n")


if __name__ == "__main__":
    main()
