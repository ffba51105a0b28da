"""The page of a report: results, curves, and what was run, for people who were not there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from entity_env.agents.ppo.advice import PAGE
from entity_env.agents.ppo.hints import command_to_try, hints_of
from entity_env.agents.training.tracking.runs import AGREEMENT, EVALUATED, REWARD, TrainingRun
from entity_env.cli.display.console import plain
from entity_env.cli.report.curve_words import LAST_METRIC, METRIC, CurveWords
from entity_env.cli.report.figures import figure
from entity_env.cli.report.groups import (
    LEAST_FOR_BAND,
    RunGroup,
    curve_lines,
    game_runs,
    run_groups,
)
from entity_env.cli.report.replays import Pages, ShownReplay, shown_replays
from entity_env.cli.report.run_facts import RunFact, run_facts
from entity_env.cli.report.shared_names import shared_runs, without_folders
from entity_env.cli.run_tables import TextTable, run_table, seed_table
from entity_env.views.chart import COLOURS, DARK_COLOURS, Series

_MORE: Final = (
    *("episode/mean_length", "losses/entropy", "losses/explained_variance", "losses/value_loss"),
    *("losses/approx_kl", "losses/clip_fraction", "charts/steps_per_s", "evaluation/win_rate"),
)
"""Curves of a page in addition to the reward and the game's metrics."""
_MAX_METRICS: Final = 12
_MOST_COMPARED: Final = 4
"""Maximum number of groups whose settings get their own table; with more groups, settings are
columns of the table of runs."""
_TEACHER: Final = CurveWords("agreement with the teacher, and the score as a share of its range")
_RUN_NOTE: Final = (
    "Evaluation: mean reward of the last one, ± half of its 95 % confidence interval within that "
    "run; other seeds may differ by more. Training: mean over the last episodes that ended. "
    "Random: mean reward of random play."
)
_LINE: Final = "Line: mean over the last episodes of training, with the 95 % interval of that mean."
_DOTS: Final = "Dots: evaluations, with 95 % intervals where they are known."
_BAND: Final = (
    "Runs that differ only in their seed are thin lines. Their mean is the thick line, up to the "
    f"step that all of them have reached; from {LEAST_FOR_BAND} runs on, the band is Student's "
    "95 % interval of the mean. Dots are means over these runs, too."
)
_WATCH: Final = "Watch an agent after this many decisions of training:"
_SELF_PLAY: Final = (
    "Its agents play against each other, so the mean reward says little about how well they "
    "do: what one of them wins, another one may lose. entity-env eval plays against other agents."
)
_NORMAL: Final = (
    f"Normal curves, and remedies for others: {PAGE}, section “Then: the curves” "
    "(#then-the-curves)."
)
_HINTS: Final = (
    "Why a run may not learn, from its figures so far, and settings to try. The rules are "
    f"explained in {PAGE} (#the-hints)."
)


@cache
def report_style() -> str:
    """The style of a report."""
    dark = "".join(
        f'  [{name}="{light}"] {{ {name}: {dark}; }}\n'
        for light, dark in zip(COLOURS, DARK_COLOURS, strict=True)
        for name in ("stroke", "fill")
    )
    text = Path(__file__).with_name("report.css").read_text("utf-8")
    return text.replace("  /* colors of lines */\n", dark)


def report_html(
    runs: Sequence[TrainingRun], names: Sequence[str] = (), pages: Pages = MappingProxyType({})
) -> str:
    """A self-contained HTML file: curves of each game, tables, and facts of all runs.

    Contains no absolute path.

    Args:
        runs: in the order of the table.
        names: the curves; () = the mean reward, those that show whether a run learns, and the
            game's metrics.
        pages: opened by a click on a mark of the run's curve, see `replay_pages`.
    """
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(_headline(shared_runs(runs)))}</title>",
        f"<style>{report_style()}</style>\n</head>\n<body>\n<main>",
        report_body(runs, names, pages),
    ]
    return "\n".join((*parts, "</main>\n</body>\n</html>\n"))


def report_body(
    runs: Sequence[TrainingRun], names: Sequence[str] = (), pages: Pages = MappingProxyType({})
) -> str:
    """Content of `report_html`, to show with `report_style` in a `main` element.

    Args:
        runs, names: as there.
        pages: as there; for "" only the link is made, to its `replay_id`.
    """
    shared = shared_runs(runs)
    replays = {
        run.path: shown_replays(original, str(run.path), pages)
        for original, run in zip(runs, shared, strict=True)
    }
    parts = [f"<h1>{escape(_headline(shared))}</h1>"]
    games = game_runs(shared)
    groups = {game: run_groups(own) for game, own in games.items()}
    for game, own in games.items():
        parts += _section(game, own, groups[game], names, replays)
    parts.append(_note(_NORMAL))
    if (seeds := seed_table(shared)) is not None:
        parts += ["<h2>Results over seeds</h2>", *_html_table("Results over seeds", seeds)]
    table, compared = run_table(shared), [*_comparisons(groups)]
    if compared and max(map(len, groups.values())) <= _MOST_COMPARED:  # they have their own table
        rows = [(labels, (), texts) for labels, _, texts in table.rows]
        table = table._replace(settings=(), rows=rows)
    parts += ["<h2>Runs</h2>", *_html_table("Runs", table), _note(_RUN_NOTE), *compared]
    parts += [f"<h2>How {'it was' if len(runs) == 1 else 'they were'} made</h2>"]
    parts += _all_facts(chain(*groups.values()))
    return "\n".join((*parts, *_hints(shared)))


def _headline(runs: Sequence[TrainingRun]) -> str:
    what = "1 training run" if len(runs) == 1 else f"{len(runs)} training runs"
    games = [game for game in game_runs(runs) if game]
    return f"{what} of {', '.join(games)}" if 0 < len(games) <= 3 else what


def _section(
    game: str,
    runs: Sequence[TrainingRun],
    groups: Sequence[RunGroup],
    names: Sequence[str],
    replays: Mapping[Path, Sequence[ShownReplay]],
) -> list[str]:
    first, *others = names or (REWARD, *_telling(runs))
    # In self-play, training and evaluations have different opponents.
    is_joint = not names and not any(map(is_self_play, runs))
    lines = curve_lines(groups, first, dots=EVALUATED if is_joint else "")
    if not names and not is_joint and any(EVALUATED in run.curves for run in runs):
        others = [EVALUATED, *others]
    found = ([replays[run.path] for run in group.runs if replays[run.path]] for group in groups)
    marks = [[each.mark for each in own[0]] if own else [] for own in found]
    notes = [_LINE] if first == REWARD and any(len(group.runs) == 1 for group in groups) else []
    if any(line.dots is not None for line in lines):
        notes.append(_DOTS)
    if any(line.members for line in lines):
        notes.append(_BAND)
    if any(map(is_self_play, runs)):
        notes.append(_SELF_PLAY)
    parts = [
        f"<h2>{escape(game or 'unknown game')}</h2>",
        figure(first, lines, marks=marks, is_large=True),
        *([_note(" ".join(notes))] if notes else ()),
        *_replays([each for run in runs for each in replays[run.path]]),
        *_teachers(runs),
    ]
    small = [figure(name, curve_lines(groups, name)) for name in others]
    return [*parts, '<div class="small">', *small, "</div>"] if small else parts


def _teachers(runs: Sequence[TrainingRun]) -> list[str]:
    """A chart of the agreement with a teacher and the score."""
    taught = [run for run in runs if AGREEMENT in run.curves]
    lines = []
    for group in run_groups(taught):
        agreement, score = group.line(AGREEMENT), group.line(REWARD)
        lines.append(Series(f"agreement, {agreement.name}", agreement.x, agreement.y))
        if len(score.y):
            low, high = float(score.y.min()), float(score.y.max())
            share = (score.y - low) / ((high - low) or 1.0)
            words = f"mean episode reward from {low:.3g} (0) to {high:.3g} (1), {score.name}"
            lines.append(Series(words, score.x, share))
    return [figure(AGREEMENT, lines, words=_TEACHER, is_large=True)] if lines else []


def _replays(replays: Sequence[ShownReplay]) -> list[str]:
    """Links to the replays along the runs, and the replays, hidden until their link is clicked."""
    if not replays:
        return []
    parts = [f"<p>{_WATCH}</p>", '<ul class="replays">']
    for name in dict.fromkeys(each.name for each in replays):
        links = [
            f'<a href="#{each.id}" aria-label="{escape(each.title)}">{each.step:,}</a>'
            for each in replays
            if each.name == name
        ]
        parts.append(f"<li>{escape(name)}: {' · '.join(links)}</li>")
    shown = [
        f'<div class="replay" id="{each.id}">{each.iframe()}</div>' for each in replays if each.page
    ]
    return [*parts, "</ul>", *shown]


def is_self_play(run: TrainingRun) -> bool:
    """True if several agents of a game learn together."""
    num_agents = run.about.get("num_agents")
    return isinstance(num_agents, int) and num_agents > 1


def _telling(runs: Sequence[TrainingRun]) -> list[str]:
    known = {name for run in runs for name in run.curves}
    metrics = sorted(
        name
        for name in known
        if re.fullmatch(r"metrics/.*\.mean", name) and not _is_repeated(name, runs)
    )
    return [*(name for name in _MORE if name in known), *metrics[:_MAX_METRICS]]


def _is_repeated(name: str, runs: Sequence[TrainingRun]) -> bool:
    """True for a metric at the end of episodes that has the same curve as the metric itself.

    That is so if the game records it only there.
    """
    other = name.replace(LAST_METRIC, METRIC, 1)
    pairs = [(run.curves.get(name), run.curves.get(other)) for run in runs]
    return other != name and all(
        one is two or (one and two and all(map(np.array_equal, one, two))) for one, two in pairs
    )


# ------------------------------------------------------------------ tables and facts


def _comparisons(groups_of: Mapping[str, Sequence[RunGroup]]) -> Iterator[str]:
    """A table of the settings that differ, for each game with a few groups of runs."""
    for game, groups in groups_of.items():
        names = list(dict.fromkeys(name for group in groups for name in group.settings))
        if names and len(groups) <= _MOST_COMPARED:
            title = f"Settings that differ in {game or 'unknown game'}"
            labels = [group.label for group in groups]
            rows = [
                ((name,), (), [group.settings.get(name, "-") for group in groups]) for name in names
            ]
            yield f"<h2>{escape(title)}</h2>"
            yield from _html_table(title, TextTable(("setting",), (), labels, rows))


def _all_facts(groups: Iterable[RunGroup]) -> Iterator[str]:
    for group in groups:
        yield f"<h3>{escape(_group_title(group))}</h3>"
        yield "<dl>"
        for fact in run_facts(group.runs):
            yield f"<dt>{escape(fact.label)}</dt>"
            yield from (f"<dd>{each}</dd>" for each in _values(fact))
        yield "</dl>"


def _group_title(group: RunGroup) -> str:
    game = plain(group.runs[0].game)
    return f"{game}: {group.label}" if game else group.label


def _values(fact: RunFact) -> Iterable[str]:
    for value in fact.values:
        text = escape(value)
        yield f"<code>{text}</code>" if fact.is_code else text


def _hints(runs: Sequence[TrainingRun]) -> list[str]:
    """Reasons why runs do not learn, and commands to try."""
    parts = []
    for run in runs:
        if hints := hints_of(run.about):
            items = [f"<li>{escape(plain(str(hint)))}</li>" for hint in hints]
            parts += [f"<p>{escape(plain(str(run.path)))}</p>", "<ul>", *items, "</ul>"]
            if command := command_to_try(run.path, run.about, hints):
                parts.append(f'<pre tabindex="0">{escape(plain(command))}</pre>')
    return ['<h2 id="hints">Hints</h2>', *parts, _note(_HINTS)] if parts else []


def _note(text: str) -> str:
    text = text.replace(" %", "\N{NO-BREAK SPACE}%")
    return f'<p class="note">{escape(text)}</p>'


def _html_table(title: str, table: TextTable) -> Iterator[str]:
    """A table that scrolls; on a phone, each row is a list with the names of the columns."""
    labels = (*table.labels, *table.settings, *table.columns)
    yield f'<div class="table" role="region" aria-label="{escape(title)}" tabindex="0"><table>'
    heads = "".join(f'<th scope="col">{escape(label)}</th>' for label in labels)
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for names, values, texts in table.rows:
        cells = (*names, *map(without_folders, values), *texts)
        yield "<tr>" + "".join(map(_cell, labels, cells)) + "</tr>"
    yield "</tbody></table></div>"
    yield from map(_note, table.notes)


def _cell(label: str, text: str) -> str:
    return f'<td data-label="{escape(label)}">{escape(text)}</td>'
