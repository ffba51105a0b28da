"""Facts of runs from `run.json`: what was run, where and when. Old runs show what they have."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.training.tracking.runs import (
    DEFAULT_CONFIG,
    Setting,
    TrainingRun,
    eval_opponent,
)
from entity_env.cli.display.console import plain
from entity_env.cli.report.shared_names import shared_command, without_folders
from entity_env.cli.run_tables import setting_text

_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d([+-]\d{4})")
_NUM_DIGITS: Final = 12
"""Digits of a digest that are shown."""
_MOST_VALUES: Final = 8


class RunFact(NamedTuple):
    """A fact of some runs.

    Args:
        values: different values, in the order of the runs.
        is_code: commands.
    """

    label: str
    values: Sequence[str]
    is_code: bool = False


def run_facts(runs: Sequence[TrainingRun]) -> list[RunFact]:
    """Facts of runs that differ only in their seed, without facts that are unknown."""
    facts = [
        RunFact("Command", _distinct(runs, _command), is_code=True),
        RunFact("Game", _distinct(runs, _game)),
        RunFact("Trainer settings", _changes(runs[0])),
        RunFact("Opponents", _distinct(runs, _opponents)),
        RunFact("Started from", _distinct(runs, _origin)),
        RunFact("Environments", _distinct(runs, _environments)),
        RunFact("Seeds" if len(runs) > 1 else "Seed", _seeds(runs)),
        RunFact("Steps", _span(f"{run.step:,}" for run in runs)),
        RunFact("Duration", _span(_time(run) for run in _by_time(runs))),
        RunFact("Date", _dates(runs)),
        RunFact("Machine", _distinct(runs, _machine)),
        RunFact("Versions", _distinct(runs, _versions)),
    ]
    return [fact for fact in facts if fact.values]


def _distinct(runs: Sequence[TrainingRun], fact: Callable[[TrainingRun], str]) -> list[str]:
    found = list(dict.fromkeys(filter(None, map(fact, runs))))
    more = len(found) - _MOST_VALUES
    return found if more <= 1 else [*found[:_MOST_VALUES], f"and {more} more"]


def _command(run: TrainingRun) -> str:
    return shared_command(run.about.get("command"))


def _game(run: TrainingRun) -> str:
    settings, identity = _table(run, "settings"), _table(run, "identity")
    words = [f"{name}={without_folders(setting_text(value))}" for name, value in settings.items()]
    parts = [run.game, *map(plain, words)]
    if identity.get("version") not in (None, ""):
        parts.append(f"version {identity['version']}")
    for name, begin in (("package", ""), ("git", "commit "), ("sha256", "source ")):
        if isinstance(value := identity.get(name), str):
            parts.append(f"{begin}{value[:_NUM_DIGITS] if name == 'sha256' else value}")
    return ", ".join(plain(each) for each in parts if each)


def _changes(run: TrainingRun) -> list[str]:
    """Settings of the trainer that differ from their defaults, with these defaults."""
    config, default = _table(run, "config"), _table(run, DEFAULT_CONFIG)
    if not config:
        return []
    where = "" if default else " of PPOConfig"  # an older run, or one without a preset
    own, usual = (_settings(run, each) for each in (config, default or PPOConfig().to_json()))
    found = [
        f"{plain(name)} = {setting_text(own[name])} (default{where}: {setting_text(usual[name])})"
        for name in own
        if name in usual and own[name] != usual[name]
    ]
    if own.keys() - usual.keys():  # another network
        found += [f"{plain(name)} = {setting_text(own[name])}" for name in own if name not in usual]
    return found or [f"the defaults{where}"]


def _settings(run: TrainingRun, config: Mapping[str, Any]) -> dict[str, Setting]:
    return replace(run, about={"config": config}).settings()


def _opponents(run: TrainingRun) -> str:
    shares = _table(run, "opponents")
    parts = [
        f"{without_folders(name)} in {share:.0%} of the environments"
        for name, share in shares.items()
        if isinstance(share, int | float)
    ]
    if isinstance(other := eval_opponent(run.about), str):
        parts.append(f"{without_folders(other)} in evaluations")
    return ", ".join(parts)


def _origin(run: TrainingRun) -> str:
    path = _table(run, "init_from").get("path")
    return without_folders(path) if isinstance(path, str) else ""


def _environments(run: TrainingRun) -> str:
    parts = []
    for name, words in (("num_envs", "environment"), ("num_workers", "worker"), ("num_ranks", "")):
        number = run.about.get(name)
        if type(number) is int and (words or number > 1):
            words = words or "rank"
            parts.append(f"{number:,} {words}{'s' * (number != 1)}")
    return ", ".join(parts)


def _seeds(runs: Sequence[TrainingRun]) -> list[str]:
    seeds = [str(run.seed) for run in runs if run.seed is not None]
    return [", ".join(dict.fromkeys(seeds))] if seeds else []


def _by_time(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    return sorted(runs, key=lambda run: run.elapsed_s)


def _time(run: TrainingRun) -> str:
    return str(timedelta(seconds=round(min(max(0.0, run.elapsed_s), 1e9))))


def _span(texts: Iterable[str]) -> list[str]:
    """One text, or the first and the last of several."""
    found = list(dict.fromkeys(texts))
    return [found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"]


def _dates(runs: Sequence[TrainingRun]) -> list[str]:
    """Start of the first run, and end of the last."""
    began, ended = (
        sorted(filter(None, (_date(run.about.get(name)) for run in runs)))
        for name in ("began", "ended")
    )
    parts = [" to ".join([*began[:1], *ended[-1:]])] if began else []
    resumed = [run.about.get("resumed") for run in runs]
    number = sum(len(each) for each in resumed if isinstance(each, list))
    if number:
        parts.append("resumed once" if number == 1 else f"resumed {number} times")
    return [", ".join(parts)] if parts else []


def _date(value: object) -> str:
    found = _DATE.fullmatch(value) if isinstance(value, str) else None
    return f"{found[1]} {found[2]} {found[3]}" if found else ""


def _machine(run: TrainingRun) -> str:
    """Processor, cores and system; not the name of the machine."""
    found = _table(run, "machine")
    cores = found.get("num_cpus")
    number = f"{cores} core{'s' * (cores != 1)}" if type(cores) is int else ""
    parts = [found.get("cpu"), number, found.get("platform")]
    return ", ".join(plain(each) for each in parts if isinstance(each, str) and each)


def _versions(run: TrainingRun) -> str:
    found = _table(run, "versions")
    return ", ".join(plain(f"{name} {value}") for name, value in found.items())


def _table(run: TrainingRun, name: str) -> Mapping[str, Any]:
    found = run.about.get(name)
    return found if isinstance(found, dict) else {}
