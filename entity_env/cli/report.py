"""Reports of training runs: curves and tables as HTML, curves as SVG and CSV."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from entity_env.agents.ppo.advice import PAGE
from entity_env.agents.ppo.hints import command_to_try, hints_of
from entity_env.agents.training.tracking.runs import (
    AGREEMENT,
    EVALUATED,
    REWARD,
    Curve,
    TrainingRun,
    replays_of,
)
from entity_env.cli.commands.replay import replay_animation
from entity_env.cli.display.console import ProgressBar
from entity_env.cli.game_errors import GameFailed
from entity_env.cli.load_game import nearest
from entity_env.cli.run_tables import (
    TextTable,
    differing,
    plain,
    run_table,
    seed_table,
)
from entity_env.errors import CheckpointError, EntityEnvError, UsageError
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits
from entity_env.views.chart import Mark, Series, svg_begin, svg_chart
from entity_env.views.page import as_iframe

_VARIANCE: Final = "losses/explained_variance"
_MORE: Final = (
    *("episode/mean_length", "losses/entropy", _VARIANCE, "losses/value_loss"),
    *("losses/approx_kl", "charts/steps_per_s", EVALUATED, "evaluation/win_rate"),
)
"""Curves of an HTML report in addition to the reward and the game's metrics."""
_MAX_METRICS: Final = 12
_TEACHER: Final = "agreement with the teacher, and the score as a share of its range"
_RUN_NOTE: Final = (
    "Evaluation: mean reward of the last one, ± half of its 95 % confidence interval within that "
    "run; other seeds may differ by more. Training: mean over the last episodes that ended. "
    "Random: mean reward of random play."
)
_MAX_POINTS: Final = 400
_SMALL: Final = (360, 220)
_BAND: Final = (
    "Runs that differ only in their seed are one line: their mean, in a band from the "
    "lowest to the highest, up to the step that all of them have reached."
)
_SELF_PLAY: Final = (
    "Its agents play against each other, so the mean reward says little about how well they "
    "do: what one of them wins, another one may lose. entity-env eval plays against other agents."
)


_HINTS: Final = (
    "Why a run may not learn, from its figures so far, and settings to try. The rules are "
    f"explained in {PAGE}."
)
Pages: TypeAlias = Mapping[Path, str]
"""HTML pages of replays, by file."""


# ------------------------------------------------------------------ curves


def _games(runs: Sequence[TrainingRun]) -> dict[str, list[TrainingRun]]:
    found: dict[str, list[TrainingRun]] = {}
    for run in runs:
        found.setdefault(plain(run.game), []).append(run)
    return found


def _lines(
    runs: Sequence[TrainingRun], name: str, pages: Pages = MappingProxyType({})
) -> list[Series]:
    """A line for the runs of each group that have the curve, in a fixed order."""
    _, settings = differing(runs)
    groups: dict[object, list[int]] = {}
    for i, run in enumerate(runs):
        groups.setdefault(run.group(), []).append(i)
    lines = []
    for members in groups.values():
        own = ", ".join(f"{key}={value}" for key, value in settings[members[0]].items())
        paths = plain(str(runs[members[0]].path))
        many = f"mean and range of {len(members)} runs" if len(members) > 1 else paths
        if len({runs[i].seed for i in members}) == len(members) > 1:
            many = f"mean and range of {len(members)} seeds"
        title = f"{own} ({many})" if own else many
        curves = [runs[i].curves[name] for i in members if name in runs[i].curves]
        if name == _VARIANCE:  # below -1, the value is useless, however low the figure
            curves = [Curve(curve.steps, np.maximum(curve.values, -1)) for curve in curves]
        lines.append(_joined(title, curves, _marks([runs[i] for i in members], pages)))
    return lines + _random_lines(runs, name, lines)


def _random_lines(runs: Sequence[TrainingRun], name: str, lines: Sequence[Series]) -> list[Series]:
    """A dashed line at the reward of random play, per game and settings."""
    ends = [float(end) for line in lines if len(line.x) for end in (line.x[0], line.x[-1])]
    found: dict[str, list[float]] = {}
    for run in runs:
        is_comparable = run.random_play is not None and (
            name == EVALUATED or (name == REWARD and run.random_play.is_like_training)
        )
        if run.random_play is not None and is_comparable and ends:
            own = run.about.get("settings")
            words = own.items() if isinstance(own, dict) else ()
            settings = plain(", ".join(f"{key}={value}" for key, value in words))
            found.setdefault(settings, []).append(run.random_play.mean_reward)
    return [
        Series(
            f"random ({settings})" if len(found) > 1 else "random",
            [min(ends), max(ends)],
            [fmean(rewards)] * 2,
            is_dashed=True,
        )
        for settings, rewards in found.items()
    ]


def _shown_replays(run: TrainingRun, pages: Pages) -> list[tuple[int, Path]]:
    """Steps and files of a run's replays that have a page."""
    return [each for each in (replays_of(run) if pages else ()) if each[1] in pages]


def _marks(runs: Sequence[TrainingRun], pages: Pages) -> list[Mark]:
    return [
        Mark(step, f"the agent of {plain(str(run.path))} at step {step:,}", f"#{replay_id(path)}")
        for run in runs
        for step, path in _shown_replays(run, pages)
    ]


def replay_id(path: Path) -> str:
    """Fragment of a report's links to a replay."""
    return "replay-" + re.sub(r"[^a-zA-Z0-9.-]", lambda found: f"_{ord(found[0]):x}_", str(path))


def _joined(title: str, curves: Sequence[Curve], marks: Sequence[Mark]) -> Series:
    """One curve, or the mean and range of several, where all have values."""
    if not curves:
        return Series(title, [], [])
    if len(curves) == 1:
        return Series(title, curves[0].steps, curves[0].values, marks=marks)
    begin = max(int(curve.steps[0]) for curve in curves)
    end = min(int(curve.steps[-1]) for curve in curves)
    if end < begin:
        return Series(title, [], [])
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    steps = steps[(steps >= begin) & (steps <= end)].astype(np.float64)
    if len(steps) > _MAX_POINTS:
        steps = np.linspace(begin, end, _MAX_POINTS)
    values = np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
    low, high = values.min(axis=0), values.max(axis=0)
    return Series(title, steps, values.mean(axis=0), low=low, high=high, marks=marks)


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
        svg_chart(_title(game, name), _lines(own, name), x_label="decisions")
        for game, own in _games(runs).items()
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
    settings, values = differing(runs)
    found = names or sorted({name for run in runs for name in run.curves})
    names = ("run", "game", "seed", *settings, "step", "elapsed_s", *found)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writerow({name: plain(name) for name in names})
    for run, own in zip(runs, values, strict=True):
        who = {"run": plain(str(run.path)), "game": plain(run.game), "seed": run.seed, **own}
        for point in _points(run, found):
            writer.writerow({**who, **point})
    return out.getvalue()


def _points(run: TrainingRun, names: Sequence[str]) -> Iterator[dict[str, float | int]]:
    curves: Mapping[str, Curve] = {"elapsed_s": run.clock, **run.curves}
    rows: dict[int, dict[str, float | int]] = {}
    for name in ("elapsed_s", *names):
        if name in curves:
            for step, value in zip(*(each.tolist() for each in curves[name]), strict=True):
                rows.setdefault(step, {"step": step})[name] = value
    yield from (rows[step] for step in sorted(rows))


# ------------------------------------------------------------------ page

STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --text: #1f2937; --faint: #e5e7eb; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181d; --text: #d7dce2; --faint: #333a44; }
}
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; padding: 0.5rem 0.75rem; background: var(--faint); border-radius: 6px; }
.small { display: flex; flex-wrap: wrap; gap: 0.5rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: 0.25rem 1rem 0.25rem 0; text-align: right; border-bottom: 1px solid var(--faint);}
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
.note { opacity: 0.75; max-width: 48rem; }
.replay { display: none; } .replay:target { display: block; }
a { color: inherit; }
"""


def replay_pages(
    runs: Sequence[TrainingRun], games: Sequence[str] = (), limits: PlayLimits = PLAY_LIMITS
) -> tuple[Pages, list[str]]:
    """Pages of the replays along the runs, and a sentence for each that cannot be shown.

    Args:
        games, limits: as for `replay_animation`; `timeout_s` covers all replays together.
    """
    found: list[tuple[int, Path]] = []
    pages, problems = {}, []
    for run in runs:
        try:
            found += replays_of(run)
        except CheckpointError as error:
            problems.append(str(error))
    begin = time.monotonic()
    with ProgressBar(len(found), "drawing replays") as bar:
        for i, (step, path) in enumerate(found):
            left = limits
            if limits.timeout_s is not None:
                left = limits._replace(timeout_s=begin + limits.timeout_s - time.monotonic())
                if left.timeout_s is not None and left.timeout_s <= 0:
                    problems.append(
                        f"{len(found) - i} of {len(found)} replays are not shown: drawing them "
                        f"takes longer than {limits.timeout_s:g} s: raise the limit, --timeout"
                    )
                    break
            try:
                drawn = replay_animation(path, games, left)
                about = [("trained for", f"{step:,} decisions"), *drawn.about]
                pages[path] = replace(drawn, about=about).html()
            except (EntityEnvError, GameFailed, OSError) as error:
                problems.append(f"{path} cannot be shown: {error}")
            bar.count()
    return pages, problems


def report_html(
    runs: Sequence[TrainingRun], names: Sequence[str] = (), pages: Pages = MappingProxyType({})
) -> str:
    """A self-contained HTML file: the curves of each game, and the table of all runs.

    Args:
        runs: in the order of the table.
        names: the curves; () = the mean reward, those that show whether a run learns, and the
            game's metrics.
        pages: opened by a click on a mark of the run's curve, see `replay_pages`.
    """
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Training runs</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        report_body(runs, names, pages),
    ]
    return "\n".join((*parts, "</body>\n</html>\n"))


def report_body(
    runs: Sequence[TrainingRun], names: Sequence[str] = (), pages: Pages = MappingProxyType({})
) -> str:
    """Content of `report_html`, to show with `STYLE`.

    Args:
        runs, names: as there.
        pages: as there; for "" only the link is made, to its `replay_id`.
    """
    parts = ["<h1>Training runs</h1>"]
    for game, own in _games(runs).items():
        parts += _section(game, own, names, pages)
    if (seeds := seed_table(runs)) is not None:
        parts += ["<h2>Over seeds</h2>", *_html_table(seeds)]
    parts += ["<h2>Runs</h2>", *_html_table(run_table(runs)), _note(_RUN_NOTE)]
    return "\n".join((*parts, *_hints(runs)))


def _hints(runs: Sequence[TrainingRun]) -> list[str]:
    """Reasons why runs do not learn, and commands to try."""
    parts = []
    for run in runs:
        if hints := hints_of(run.about):
            items = [f"<li>{escape(plain(str(hint)))}</li>" for hint in hints]
            parts += [f"<p>{escape(plain(str(run.path)))}</p>", "<ul>", *items, "</ul>"]
            if command := command_to_try(run.path, run.about, hints):
                parts.append(f"<pre>{escape(plain(command))}</pre>")
    return ['<h2 id="hints">Hints</h2>', *parts, _note(_HINTS)] if parts else []


def _section(
    game: str, runs: Sequence[TrainingRun], names: Sequence[str], pages: Pages
) -> list[str]:
    first, *others = names or (REWARD, *_telling(runs))
    parts = [
        f"<h2>{escape(game or 'unknown game')}</h2>",
        svg_chart(
            _title("", first),
            _lines(runs, first, pages),
            x_label="decisions",
            width=960,
            background="",
        ),
    ]
    if any(line.has_band for line in _lines(runs, first)):
        parts.append(_note(_BAND))
    if any(is_self_play(run) for run in runs):
        parts.append(_note(_SELF_PLAY))
    parts += _replays(runs, pages)
    width, height = _SMALL
    small = [
        svg_chart(
            _title("", name),
            _lines(runs, name),
            width=width,
            height=height,
            background="",
            has_legend=False,
        )
        for name in others
    ]
    return [*parts, *_teachers(runs), '<div class="small">', *small, "</div>"]


def _teachers(runs: Sequence[TrainingRun]) -> list[str]:
    """A chart of the agreement with a teacher and the score."""
    taught = [run for run in runs if AGREEMENT in run.curves]
    if not taught:
        return []
    name = EVALUATED if all(EVALUATED in run.curves for run in taught) else REWARD
    lines = []
    # The line of random play comes last.
    for agreement, score in zip(_lines(taught, AGREEMENT), _lines(taught, name), strict=False):
        lines.append(Series(f"agreement, {agreement.name}", agreement.x, agreement.y))
        if len(score.y):
            low, high = float(score.y.min()), float(score.y.max())
            share = (score.y - low) / ((high - low) or 1.0)
            words = f"{plain(name)} from {low:.3g} (0) to {high:.3g} (1), {score.name}"
            lines.append(Series(words, score.x, share))
    return [svg_chart(_TEACHER, lines, x_label="decisions", width=960, background="")]


def _replays(runs: Sequence[TrainingRun], pages: Pages) -> list[str]:
    """Links to the replays along the runs, and the replays, hidden until their link is clicked."""
    parts, shown = [], []
    for run in runs:
        found = _shown_replays(run, pages)
        links = [f'<a href="#{replay_id(path)}">{step:,}</a>' for step, path in found]
        if links:
            name = escape(plain(str(run.path)))
            parts.append(f"<p>Watch the agent of {name} at step {' · '.join(links)}</p>")
        shown += [
            f'<div class="replay" id="{replay_id(path)}">{as_iframe(pages[path])}</div>'
            for _, path in found
            if pages[path]
        ]
    return [*parts, *shown]


def is_self_play(run: TrainingRun) -> bool:
    """True if several agents of a game learn together."""
    num_agents = run.about.get("num_agents")
    return isinstance(num_agents, int) and num_agents > 1


def _telling(runs: Sequence[TrainingRun]) -> list[str]:
    known = {name for run in runs for name in run.curves}
    metrics = sorted(name for name in known if re.fullmatch(r"metrics/.*\.mean", name))
    return [*(name for name in _MORE if name in known), *metrics[:_MAX_METRICS]]


def _title(game: str, name: str) -> str:
    words = "mean episode reward" if name == REWARD else plain(name)
    words += " (-1 and less as -1)" if name == _VARIANCE else ""
    return f"{game}: {words}" if game else words


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _html_table(table: TextTable) -> Iterator[str]:
    yield '<div class="table"><table>'
    yield _html_row("th", (*table.labels, *table.settings, *table.columns))
    for names, values, texts in table.rows:
        yield _html_row("td", (*names, *values, *texts))
    yield "</table></div>"
    yield from map(_note, table.notes)


def _html_row(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"
