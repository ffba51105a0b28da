"""The learning curve of a run, from its `curves.jsonl`, as numbers and as a picture.

    python examples/azul/curve.py runs/azul examples/azul

writes `curve.csv`, one line for each equal part of the run, and `curve.svg`, shares of games won.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from entity_env.agents.training.tracking.runs import Curve, read_run
from entity_env.views.chart import Series, svg_chart

COLUMNS: Final = {
    "wins_greedy": "metrics/wins_greedy.mean",
    "wins_rush": "metrics/wins_rush.mean",
    "wins_random": "metrics/wins_random.mean",
    "score_greedy": "metrics/score_greedy.mean",
    "score_self": "metrics/score_self.mean",
    "entropy": "losses/entropy",
    "decisions_per_s": "charts/steps_per_s",
}
NUM_POINTS: Final = 40
OPPONENTS: Final = {"wins_greedy": "greedy", "wins_rush": "rush", "wins_random": "random"}

Row = dict[str, float]


def main(run: str, out: str) -> None:
    """Reads a run and writes both files to a folder."""
    found = read_run(Path(run))
    rows = curve(
        {name: points(found.curves.get(tag)) for name, tag in COLUMNS.items()},
        [(step, seconds / 60) for step, seconds in points(found.clock)],
    )
    folder = Path(out)
    with (folder / "curve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.7g}" for name, value in row.items()} for row in rows)
    (folder / "curve.svg").write_text(picture(rows))


def points(curve: Curve | None) -> list[tuple[int, float]]:
    """Decisions and values of a curve."""
    return [] if curve is None else list(zip(*(each.tolist() for each in curve), strict=True))


def curve(
    curves: Mapping[str, Sequence[tuple[int, float]]], clock: Sequence[tuple[int, float]]
) -> list[Row]:
    """Means over equal parts of a run; NaN where a part has no value.

    Args:
        curves: decisions and values, by name.
        clock: decisions and minutes.
    """
    last = clock[-1][0]
    rows = []
    for part in range(NUM_POINTS):
        begin, end = part * last / NUM_POINTS, (part + 1) * last / NUM_POINTS
        minutes = [minute for step, minute in clock if begin < step <= end]
        if not minutes:
            continue
        row: Row = {"decisions": round(end), "minutes": minutes[-1]}
        for name, points in curves.items():
            values = [value for step, value in points if begin < step <= end]
            row[name] = sum(values) / len(values) if values else float("nan")
        rows.append(row)
    return rows


def picture(rows: Sequence[Row]) -> str:
    """Shares of games won over decisions, as SVG."""
    lines = []
    for name, against in OPPONENTS.items():
        shown = [row for row in rows if row[name] == row[name]]  # NaN is not equal to itself
        x, y = [row["decisions"] for row in shown], [row[name] for row in shown]
        lines.append(Series(f"games won, {against}", x, y))
    return svg_chart("shares of games won", lines, x_label="decisions")


if __name__ == "__main__":
    main(*sys.argv[1:])
