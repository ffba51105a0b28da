"""`compare_runs` checks if a run reproduces another bit for bit; other functions compare games."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from entity_env.agents.rogue_net.checkpoints.agent_file import is_agent_file, read_agent
from entity_env.agents.rogue_net.checkpoints.folder import (
    find_checkpoint,
    network_digest,
    read_header,
)
from entity_env.agents.rogue_net.weights import facts_from_json
from entity_env.agents.training.tracking.runs import TrainingRun, read_about
from entity_env.authoring.game import Game
from entity_env.authoring.identity import changed_rules, identity_of, known_game
from entity_env.errors import CheckpointError, EntityEnvError, shown

_OF_THE_CLOCK: Final = ("charts/steps_per_s",)
"""Curves that depend on the machine's speed; not compared."""
_NOT_COMPARABLE: Final = "scores are not comparable"
_MAX_LISTED: Final = 5
_EVALUATED: Final = "evaluation/"
"""Prefix of evaluation curves; a run short of time has fewer evaluations, or fewer episodes."""
_OF_THE_MACHINE: Final = ("cpu", "num_cpus", "platform")
_OF_THE_RUN: Final = ("seed", "opponents", "num_threads", "num_ranks", "compiled_from_step")
_WITHOUT_EFFECT: Final = ("compile", "checkpoint_interval_s", "num_threads", "max_train_time_s")
"""Settings that change no number, or that other facts cover better."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of two runs.

    Args:
        num_curves: number of curves in at least one of the runs.
        num_steps: number of steps with a point in at least one of the runs.
        first_step: first step at which curves differ; None if they are equal.
        differing: name and both values of each curve that differs at this step; "none" where a run
            has no point.
        digests: SHA-256 of each network; "" if a run has none.
        causes: possible causes of differences, from `run.json` of both runs, one line each.
    """

    num_curves: int
    num_steps: int
    first_step: int | None
    differing: tuple[tuple[str, str, str], ...]
    digests: tuple[str, str]
    causes: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Curves and network are bitwise equal."""
        return self.first_step is None and self.digests[0] == self.digests[1]


def compare_runs(before: TrainingRun, after: TrainingRun, until: int | None = None) -> Comparison:
    """Compares the curves and networks of a run and its repetition.

    Compares evaluations only at steps where both runs have one, with equal numbers of episodes.

    Args:
        until: last step to compare; None = all.

    Raises:
        CheckpointError: a checkpoint cannot be read.
    """
    first, second = _points(before, until), _points(after, until)
    steps = sorted({step for step, _ in (*first, *second)})
    both = {key for key in first.keys() & second.keys() if _has_same_episodes(first, second, key)}
    names = {key for key in first.keys() | second.keys() if not key[1].startswith(_EVALUATED)}
    keys = sorted(key for key in names | both if first.get(key) != second.get(key))
    at = keys[0][0] if keys else None
    return Comparison(
        num_curves=len({name for _, name in (*first, *second)}),
        num_steps=len(steps),
        first_step=at,
        differing=tuple(
            (name, str(first.get((step, name), "none")), str(second.get((step, name), "none")))
            for step, name in keys
            if step == at
        ),
        digests=(_digest_of(before), _digest_of(after)),
        causes=tuple(_causes(before, after)),
    )


def _has_same_episodes(
    first: Mapping[tuple[int, str], float],
    second: Mapping[tuple[int, str], float],
    key: tuple[int, str],
) -> bool:
    """True unless a point is an evaluation with different numbers of episodes."""
    count = key[0], f"{_EVALUATED}num_episodes"
    return not key[1].startswith(_EVALUATED) or first.get(count) == second.get(count)


def since_run(path: Path, game: Game) -> str:
    """How a game has changed since a network was trained, in one line; "" if not, or unknown.

    Args:
        path: of a run, of a checkpoint, or of an `.agent` file.
        game: the current game.
    """
    known: Mapping[str, object] = {}
    with suppress(EntityEnvError, OSError, ValueError):  # not a path, or nothing of ours
        known = game_trained_on(path)
    name = str(known.get("name"))
    if not known or not f"{name}_".startswith(f"{game.name}_"):  # `against` adds to a name
        return ""
    words = changed_rules(known, identity_of(game))
    what = f"{path} was trained" if path.is_file() else f"the run {path}"
    return f"the game has changed since {what}: {words}; {_NOT_COMPARABLE}" if words else ""


def game_trained_on(path: Path) -> Mapping[str, object]:
    """Name and identity of the game of a run, a checkpoint or an `.agent` file; {} if unknown.

    Raises:
        CheckpointError: an `.agent` file is damaged.
        UsageError: a `run.json` cannot be read.
    """
    if is_agent_file(path):
        return read_agent(path).game
    about = read_about(path) or read_about(path.parent)
    if found := known_game(about):
        return found
    try:
        return facts_from_json(read_header(find_checkpoint(path)).training)[1]
    except CheckpointError:
        return {}


def mixed_rules(runs: Sequence[TrainingRun]) -> list[str]:
    """One line for every game whose rules differ among runs, naming the difference."""
    lines, by_game = [], dict[str, list[TrainingRun]]()
    for run in sorted(runs, key=lambda run: str(run.about.get("began"))):
        if isinstance(run.about.get("identity"), dict):
            by_game.setdefault(str(run.about.get("game_name")), []).append(run)
    for name, group in by_game.items():
        first, identity = group[0], _table(group[0], "identity")
        found = {run.name: changed_rules(identity, _table(run, "identity")) for run in group}
        if others := {run: words for run, words in found.items() if words}:
            words = f"{name}: the rules of {_listed(others)} differ from those of {first.name}"
            lines.append(f"{words}: {next(iter(others.values()))}; {_NOT_COMPARABLE}")
    return lines


def _listed(names: Collection[str]) -> str:
    shown_names = ", ".join(list(names)[:_MAX_LISTED])
    more = len(names) - _MAX_LISTED
    return f"{shown_names} and {more} more" if more > 0 else shown_names


def _points(run: TrainingRun, until: int | None) -> dict[tuple[int, str], float]:
    return {
        (step, name): value
        for name, curve in run.curves.items()
        if name not in _OF_THE_CLOCK
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True)
        if until is None or step <= until
    }


def _digest_of(run: TrainingRun) -> str:
    try:
        find_checkpoint(run.path)
    except CheckpointError:
        return ""
    return network_digest(run.path)


def _causes(before: TrainingRun, after: TrainingRun) -> Iterator[str]:
    for key, names in (("versions", None), ("machine", _OF_THE_MACHINE), ("identity", None)):
        old, new = _table(before, key), _table(after, key)
        for name in names or sorted(old.keys() | new.keys()):
            words = {"versions": name, "machine": name, "identity": f"{name} of the game"}[key]
            yield from _changed(words, old.get(name), new.get(name))
    for name in _OF_THE_RUN:
        if name in before.about:  # runs of earlier releases lack some names
            yield from _changed(name, before.about[name], after.about.get(name))
    settings = before.settings(), after.settings()
    for name in sorted(settings[0].keys() | settings[1].keys()):
        if name not in _WITHOUT_EFFECT:
            yield from _changed(name, settings[0].get(name), settings[1].get(name))
    resumed = before.about.get("resumed")
    if isinstance(resumed, list) and resumed:
        yield f"{before.name} was resumed, and its environments began new episodes then"


def _table(run: TrainingRun, key: str) -> Mapping[str, Any]:
    found = run.about.get(key)
    return found if isinstance(found, dict) else {}


def _changed(name: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{name}: {_word(old)}, now {_word(new)}"


def _word(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else shown(value)
