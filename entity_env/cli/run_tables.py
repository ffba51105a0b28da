"""Finds training runs in folders, and compares them in tables as texts, JSON and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from entity_env.agents.intervals import Interval
from entity_env.agents.ppo.hints import command_to_try, hints_of
from entity_env.agents.training.tracking.rewards import MeanReward
from entity_env.agents.training.tracking.runs import TrainingRun, read_run
from entity_env.agents.training.tracking.seed_groups import SeedGroup, seed_groups
from entity_env.cli.display.console import plain
from entity_env.errors import CheckpointError, UsageError

_SEED_COLUMNS: Final = ("seeds", "steps", "mean", "IQM", "P(first > this)")
_SCORES: Final = "Over seeds: mean of the last evaluations"
_SCORES_OF_TRAINING: Final = f"{_SCORES}, or of training where a run has none,"
_SEED_NOTE: Final = " ± Student's 95 % interval; IQM, the interquartile mean [bootstrap interval]"
_FIRST: Final = "; P(first > this), the probability that a run of the first line is better"
_BIASED: Final = "* of finished episodes only: many that still run are longer than all of these"
SEARCH_DEPTH: Final = 3
"""Levels of subfolders in which runs are searched, such as those of a sweep or of seeds."""
_LONGEST: Final = 60


class FoundRuns(NamedTuple):
    """Training runs, and a sentence for each problem, such as a folder that is not a run.

    First runs with evaluations, by their last one, best first; then others by training reward.
    """

    runs: Sequence[TrainingRun]
    problems: Sequence[str]


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """The runs in these folders; if a folder is not a run, the runs in it and its subfolders."""
    found: dict[Path, TrainingRun] = {}
    problems: list[str] = []
    for folder in folders:
        try:
            runs = _runs_in(folder, problems)
        except (UsageError, CheckpointError, OSError) as error:
            problems.append(str(error))
            continue
        for run in runs:
            found.setdefault(run.path.resolve(), run)
    problems += [
        f"{run.path}: {run.num_broken} lines of its curves are damaged, and left out"
        for run in found.values()
        if run.num_broken
    ]

    def key(run: TrainingRun) -> tuple[bool, bool, float]:
        score = run.score
        mean = 0.0 if score is None else score.mean
        return score is None, run.final_evaluation is None, -mean

    return FoundRuns(sorted(found.values(), key=key), problems)


def _runs_in(folder: Path, problems: list[str], depth: int = SEARCH_DEPTH) -> list[TrainingRun]:
    try:
        return [read_run(folder)]
    except UsageError as error:
        if not folder.is_dir():
            raise
        runs = []
        for child in sorted(each for each in folder.iterdir() if each.is_dir() and depth):
            try:
                runs += _runs_in(child, problems, depth - 1)
            except (UsageError, OSError):
                continue
            except CheckpointError as damage:
                problems.append(str(damage))
        if not runs:
            raise error
        return runs


class TextTable(NamedTuple):
    """A table of runs, or of groups of runs, as text.

    Args:
        labels: titles of the columns that name a run or group.
        settings: names of the settings that differ.
        columns: titles of further columns.
        rows: labels, settings and columns of each run or group.
        notes: sentences about the table.
    """

    labels: Sequence[str]
    settings: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]]
    notes: Sequence[str] = ()


def run_table(runs: Sequence[TrainingRun]) -> TextTable:
    """The table of runs, in order."""
    names, settings = differing(runs)
    columns = ["steps", "time", "evaluation", "training", "random", "seed"]
    rows = []
    for run, own in zip(runs, settings, strict=True):
        evaluation, training = run.final_evaluation, run.final_reward
        trained = "-" if training is None else str(training)
        if training is not None and (training.is_biased or evaluation is not None):
            trained = f"{training.mean:.3f}{' *' if training.is_biased else ''}"
        figures = [
            f"{run.step:,}",
            str(timedelta(seconds=round(min(max(0.0, run.elapsed_s), 1e9)))),
            "-" if evaluation is None else _at_step(evaluation, run.step),
            trained,
            "-" if run.random_play is None else f"{run.random_play.mean_reward:.3f}",
            "-" if run.seed is None else str(run.seed),
        ]
        values = [own.get(name, "-") for name in names]
        rows.append(((plain(str(run.path)), plain(run.game) or "-"), values, figures))
    is_biased = any(run.final_reward and run.final_reward.is_biased for run in runs)
    return TextTable(("run", "game"), names, columns, rows, [_BIASED] if is_biased else [])


def _at_step(evaluation: MeanReward, step: int) -> str:
    """The evaluation, and its step if the run has continued since."""
    return str(evaluation) + (f" at {evaluation.step:,}" if evaluation.step < step else "")


def seed_table(runs: Sequence[TrainingRun]) -> TextTable | None:
    """The table of these runs over seeds; None unless some differ only in their seed."""
    groups = seed_groups(runs)
    if all(len(group.runs) < 2 for group in groups):
        return None
    names, settings = differing([group.runs[0] for group in groups])
    rows = []
    for group, own in zip(groups, settings, strict=True):
        better = improvement(group, groups)
        steps = sorted({run.step for run in group.runs})
        texts = [
            str(len(group.runs)),
            f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}",
            f"{group.mean.value:.3f}"
            + (f" ± {group.mean.half:.3f}" if group.mean.is_known else "")
            + (" *" if group.is_biased else ""),
            _bounded(group.iqm),
            "-" if better is None else _bounded(better, 2),
        ]
        values = [own.get(name, "-") for name in names]
        rows.append(((plain(group.runs[0].game) or "-",), values, texts))
    scores = _SCORES if all(group.is_evaluated for group in groups) else _SCORES_OF_TRAINING
    compared = _FIRST if any(texts[-1] != "-" for *_, texts in rows) else ""
    return TextTable(("game",), names, _SEED_COLUMNS, rows, [f"{scores}{_SEED_NOTE}{compared}."])


def improvement(group: SeedGroup, groups: Sequence[SeedGroup]) -> Interval | None:
    """Probability that the first group of its game is better; None for that group."""
    first = next(each for each in groups if each.runs[0].game == group.runs[0].game)
    return None if first is group else first.improvement_over(group)


def _bounded(interval: Interval, digits: int = 3) -> str:
    if not interval.is_known:
        return f"{interval.value:.{digits}f}"
    return f"{interval.value:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def differing(runs: Sequence[TrainingRun]) -> tuple[list[str], list[dict[str, str]]]:
    """Names of the settings that differ among runs of a game, and their values in each run.

    A setting that a run lacks, such as those of PPO in a clone, does not differ; but one of a
    network does if the run has a network of another kind.
    """
    settings = [run.settings() for run in runs]
    differing: dict[str, None] = {}
    for game in dict.fromkeys(run.game for run in runs):
        own = [each for run, each in zip(runs, settings, strict=True) if run.game == game and each]
        for name in dict.fromkeys(name for each in own for name in each):
            known = [each for each in own if name in each or _has_part(each, name)]
            if len({repr(each.get(name, ...)) for each in known}) > 1:
                differing[name] = None
    values = [
        {plain(name): setting_text(each[name]) for name in differing if name in each}
        for each in settings
    ]
    return list(map(plain, differing)), values


def _has_part(settings: Mapping[str, object], name: str) -> bool:
    """Whether there are settings of the part, such as the network, to which `name` belongs."""
    part, dot, _ = name.rpartition(".")
    return bool(dot) and any(each.startswith(f"{part}.") for each in settings)


def setting_text(value: object) -> str:
    """A value of a setting on one line, cut after 60 characters."""
    text = f"{value:.6g}" if isinstance(value, float) else plain(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# ------------------------------------------------------------------ JSON and CSV


def runs_json(runs: Sequence[TrainingRun]) -> dict[str, object]:
    """Settings and rewards of runs, and of their groups over seeds, as JSON."""
    groups = seed_groups(runs)
    _, settings = differing([group.runs[0] for group in groups])
    return {
        "runs": [
            {
                "run": str(run.path),
                "game": run.game,
                "seed": run.seed,
                "settings": {name: _number(value) for name, value in run.settings().items()},
                "steps": run.step,
                "elapsed_s": run.elapsed_s,
                "evaluation": _json(run.final_evaluation),
                "best_evaluation": _json(run.best_evaluation),
                "training": _json(run.final_reward),
                "hints": [hint.to_json() for hint in hints_of(run.about)],
                "to_try": command_to_try(run.path, run.about, hints_of(run.about)),
                "random": _json(_random(run)),
            }
            for run in runs
        ],
        "groups": [
            {
                "game": group.runs[0].game,
                "settings": own,
                "runs": [str(run.path) for run in group.runs],
                "seeds": [run.seed for run in group.runs],
                "scores_of": "evaluation" if group.is_evaluated else "training",
                "scores": group.scores,
                "mean": _json(group.mean),
                "iqm": _json(group.iqm),
                "first_is_better": _json(improvement(group, groups)),
            }
            for group, own in zip(groups, settings, strict=True)
        ],
    }


def runs_csv(runs: Sequence[TrainingRun]) -> str:
    """A line per run; missing values are empty."""
    names, settings = differing(runs)
    rewards = ("evaluation", "best_evaluation", "training", "random")
    columns = [
        *("run", "game", "seed", *names, "steps", "elapsed_s"),
        *(f"{kind}{part}" for kind in rewards for part in ("", "_ci95", "_episodes")),
        "training_is_biased",
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for run, own in zip(runs, settings, strict=True):
        found = (run.final_evaluation, run.best_evaluation, run.final_reward, _random(run))
        row: dict[str, object] = {"run": plain(str(run.path)), "game": plain(run.game), **own}
        row |= {"seed": run.seed, "steps": run.step, "elapsed_s": run.elapsed_s}
        for kind, reward in zip(rewards, found, strict=True):
            if reward is not None:
                row |= {kind: reward.mean, f"{kind}_episodes": reward.num_episodes}
                row[f"{kind}_ci95"] = "" if math.isnan(reward.ci95) else reward.ci95
        if run.final_reward is not None:
            row["training_is_biased"] = run.final_reward.is_biased
        writer.writerow(row)
    return out.getvalue()


def _random(run: TrainingRun) -> MeanReward | None:
    return None if run.random_play is None else run.random_play.reward


def _json(found: MeanReward | Interval | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {name: _number(value) for name, value in found._asdict().items()}


def _number(value: object) -> object:
    """The value; None for numbers that JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
