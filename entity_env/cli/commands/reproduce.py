"""`entity-env reproduce`: repeats a training run, and compares bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

import click

from entity_env.agents.rogue_net.checkpoints.folder import find_checkpoint, read_header
from entity_env.agents.training.tracking.comparison import Comparison, compare_runs
from entity_env.agents.training.tracking.runs import RUN_FILE, TrainingRun, read_run
from entity_env.agents.training.tracking.time_limit import TIME_FRACTION
from entity_env.cli.command import Argument, CliOption, parser_of
from entity_env.cli.commands.train import Train
from entity_env.cli.display.console import echo
from entity_env.cli.options import Folder
from entity_env.errors import CheckpointError, UsageError

_MAX_SHOWN: Final = 5
_NUM_DIGITS: Final = 16
_DIFFERENT: Final = 1


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Repeat a training run and compare it bit for bit.

    RUN is the folder of a training run. The new run takes its settings, seed, threads and the step
    at which compiled code took over from RUN's run.json, and ends at the step that RUN has reached.
    If RUN had --max-time, the schedules follow the times recorded in its curves.

    Then curves and networks are compared: exit code 0 if they are equal, 1 if they differ. The
    command prints the first step that differs, and what else differs between the runs: versions,
    processor, threads or the game's source.

    Code and paths in run.json are used only if you have named them here before; otherwise add GAME,
    and options such as --callback, as for train. Options also replace what RUN says.
    """

    ATTRS: ClassVar = {"context_settings": {"ignore_unknown_options": True}}

    folder: Annotated[Path, Argument("RUN")]
    words: Annotated[
        tuple[str, ...], click.UNPROCESSED, Argument("[GAME] [OPTIONS OF TRAIN]...")
    ] = ()
    out: Annotated[Folder | None, CliOption(default="RUN-again")] = None
    """Folder for the new run."""

    def run(self) -> None:
        before = _read(self.folder)
        out = self.out or self.folder.with_name(f"{self.folder.name}-again")
        step = _step_of(before)
        arguments = [*_typed(before, step), "--out", str(out), *self.words]
        context = click.get_current_context()
        train = parser_of(Train, "train")
        with train.make_context("train", arguments, parent=context) as inner:
            train.invoke(inner)
        found = compare_runs(before, read_run(out), step)
        echo(*_lines(found, before.name, out.name))
        raise SystemExit(0 if found.is_equal else _DIFFERENT)


def _read(run: Path) -> TrainingRun:
    """Reads a run that can be repeated.

    Raises:
        UsageError: the folder is not a run of `train`, or the run has nothing to compare.
    """
    found = read_run(run)
    if not isinstance(found.about.get("config"), dict) or not (run / RUN_FILE).is_file():
        raise UsageError(f"{run} has no {RUN_FILE} with its settings: it cannot be repeated")
    if "imitates" in found.about:
        raise UsageError(f"{run} was made by clone, and reproduce is for runs of train")
    if not found.step:
        raise UsageError(f"{run} has no curves to compare with: no update has ended")
    return found


def _step_of(run: TrainingRun) -> int:
    """Step of the last checkpoint, as curves may go beyond it; without one, of the curves' end."""
    with suppress(CheckpointError):
        step = read_header(find_checkpoint(run.path)).training.get("step")
        if type(step) is int and step > 0:
            return step
    return run.step


def _typed(run: TrainingRun, step: int) -> Iterator[str]:
    """Options of `train` that repeat a run up to a step; later ones take precedence."""
    yield from ("--config", str(run.path / RUN_FILE), "--until", str(step))
    yield from ("--set-train", "max_train_time_s=none")
    if TIME_FRACTION in run.curves:
        yield from ("--time-of", str(run.path))
    about = run.about
    threads, compiled = about.get("num_threads"), about.get("compiled_from_step", "")
    if type(threads) is int:
        yield from ("--set-train", f"num_threads={threads}")
    if compiled is None:
        yield from ("--compile", "never")
    elif type(compiled) is int:
        yield from ("--compile", str(compiled) if compiled else "wait")


def _lines(found: Comparison, old: str, new: str) -> Iterator[str]:
    compared = f"{found.num_curves} curves at {found.num_steps} steps"
    if found.is_equal:
        yield f"equal, bit for bit: {compared}, and the network, {found.digests[0][:_NUM_DIGITS]}"
        return
    if found.first_step is None:
        yield f"different: {compared} are equal, the network is not"
    else:
        count = len(found.differing)
        yield f"different: curves from step {found.first_step:,} on, {count} of {found.num_curves}"
        for name, first, second in found.differing[:_MAX_SHOWN]:
            yield f"  {name}: {first} in {old}, {second} in {new}"
    if found.digests[0] != found.digests[1]:
        first, second = (each[:_NUM_DIGITS] or "none" for each in found.digests)
        yield f"network: {first} in {old}, {second} in {new}"
    for cause in found.causes:
        yield f"differs: {cause}"
    if not found.causes:
        yield (
            "run.json shows no cause. The game may not repeat for a seed, which entity-env check "
            "finds out, and training on a GPU may not repeat"
        )
