"""The learning curve of a run, from what it wrote for TensorBoard: numbers and a picture.

    python examples/azul/curve.py runs/azul examples/azul

writes `curve.csv`, a line for every so many updates, and `curve.svg`, the shares of games won.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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
WIDTH, HEIGHT, MARGIN = 640, 320, 40
COLOURS: Final = {"wins_greedy": "#c03028", "wins_rush": "#3060c0", "wins_random": "#308030"}

Row = dict[str, float]


def main(run: str, out: str) -> None:
    """Reads a run, and writes both files into a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(Path(run) / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    known = events.Tags()["scalars"]
    curves = {name: events.Scalars(tag) if tag in known else [] for name, tag in COLUMNS.items()}
    begin = curves["entropy"][0].wall_time
    rows = curve(
        {name: [(point.step, point.value) for point in points] for name, points in curves.items()},
        [(point.step, (point.wall_time - begin) / 60) for point in curves["entropy"]],
    )
    folder = Path(out)
    with (folder / "curve.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.7g}" for name, value in row.items()} for row in rows)
    (folder / "curve.svg").write_text(picture(rows))


def curve(
    curves: Mapping[str, Sequence[tuple[int, float]]], clock: Sequence[tuple[int, float]]
) -> list[Row]:
    """Means over equal parts of a run; NaN where a part has no value.

    Args:
        curves: by name decisions and values.
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
    last = rows[-1]["decisions"]

    def place(decisions: float, share: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * decisions / last
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = place(0, share).split(",")[1]
        parts.append(f'<path d="M{place(0, share)} L{place(last, share)}" stroke="#ccc"/>')
        parts.append(f'<text x="4" y="{y}">{share:.0%}</text>')
    for i, (name, colour) in enumerate(COLOURS.items()):
        shown = [row for row in rows if row[name] == row[name]]  # not those that are NaN
        points = " ".join(place(row["decisions"], row[name]) for row in shown)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        against = name.removeprefix("wins_")
        line = HEIGHT - MARGIN - 60 + 16 * i
        parts.append(
            f'<text x="{WIDTH - 160}" y="{line}" fill="{colour}">games won, {against}</text>'
        )
    parts.append(f'<text x="{WIDTH // 2 - 60}" y="{HEIGHT - 8}">{last:,.0f} decisions</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main(*sys.argv[1:])
