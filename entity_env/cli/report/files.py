"""Reports of training runs as SVG and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from entity_env.agents.training.tracking.runs import REWARD, Curve, TrainingRun
from entity_env.cli.display.console import plain
from entity_env.cli.load_game import nearest
from entity_env.cli.report.curve_words import curve_title
from entity_env.cli.report.groups import curve_lines, game_runs, run_groups
from entity_env.cli.report.shared_names import shared_runs, without_folders
from entity_env.cli.run_tables import differing
from entity_env.errors import UsageError
from entity_env.views.chart import svg_begin, svg_chart


def require_curves(runs: Sequence[TrainingRun], names: Sequence[str]) -> None:
    """Checks that at least one run has each of these curves."""
    known = sorted({name for run in runs for name in run.curves})
    for name in names:
        if name not in known:
            listed = ", ".join(map(plain, known)) or "none"
            hint = nearest(name, known) or f"; the curves are {listed}"
            raise UsageError(f"no run has the curve {name!r}{hint}")


def report_svg(runs: Sequence[TrainingRun], names: Sequence[str] = ()) -> str:
    """An SVG with a chart per game and curve; () = only the mean reward."""
    charts = [
        svg_chart(curve_title(game, name), curve_lines(groups, name), x_label="decisions")
        for game, own in game_runs(shared_runs(runs)).items()
        for groups in [run_groups(own)]
        for name in names or (REWARD,)
    ]
    if len(charts) == 1:
        return charts[0]
    parts, top = [], 0.0
    for chart in charts:
        parts.append(f'<g transform="translate(0 {top:g})">\n{chart}</g>')
        found = re.search(r' width="([\d.]+)" height="([\d.]+)"', chart)
        width, height = map(float, found.groups()) if found else (0.0, 0.0)
        top += height
    return "\n".join((svg_begin(width, top), *parts, "</svg>\n"))


def report_csv(runs: Sequence[TrainingRun], names: Sequence[str] = ()) -> str:
    """CSV: a row per run and point; missing values are empty."""
    runs = shared_runs(runs)
    settings, values = differing(runs)
    found = names or sorted({name for run in runs for name in run.curves})
    names = ("run", "game", "seed", *settings, "step", "elapsed_s", *found)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writerow({name: plain(name) for name in names})
    for run, own in zip(runs, values, strict=True):
        who = {"run": plain(str(run.path)), "game": plain(run.game), "seed": run.seed}
        shown = {name: without_folders(value) for name, value in own.items()}
        for point in _points(run, found):
            writer.writerow({**who, **shown, **point})
    return out.getvalue()


def _points(run: TrainingRun, names: Sequence[str]) -> Iterator[dict[str, float | int]]:
    curves: Mapping[str, Curve] = {"elapsed_s": run.clock, **run.curves}
    rows: dict[int, dict[str, float | int]] = {}
    for name in ("elapsed_s", *names):
        if name in curves:
            for step, value in zip(*(each.tolist() for each in curves[name]), strict=True):
                rows.setdefault(step, {"step": step})[name] = value
    yield from (rows[step] for step in sorted(rows))
