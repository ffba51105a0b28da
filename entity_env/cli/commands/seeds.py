"""`train --seeds`: one run per seed, each in its own process and folder."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.training.tracking.follow import FollowedRun
from entity_env.agents.training.tracking.runs import EVALUATED, REWARD, read_about, read_run
from entity_env.cli.commands.runs import print_tables
from entity_env.cli.display.console import Console, echo, plain_table
from entity_env.cli.display.jobs_display import JobsDisplay
from entity_env.cli.options import require_writable
from entity_env.cli.run_settings import typed_words
from entity_env.cli.training import Launched
from entity_env.cluster.jobs import LOG, Job, run_jobs
from entity_env.core.validation import num_cores
from entity_env.errors import EntityEnvError, UsageError
from entity_env.interrupts import INTERRUPTED

_MAX_SEEDS: Final = 10_000
_NO_SEED: Final = 2**63
_FAILED: Final = 1
_OWN: Final = ("seeds", "num_jobs", "seed", "out", "resume")
"""Parameters that are not passed on to the runs as typed."""


def read_seeds(text: str) -> tuple[int, ...]:
    """Parses seeds such as `1..5` and `1,3,7`.

    Raises:
        ValueError: the text is not a list of seeds.
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,19})(?:\.\.(\d{1,19}))?\s*", part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of seeds, such as 1..5 or 1,3,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"{part.strip()!r} has no seeds: the first is above the last")
        if len(found) + last - first >= _MAX_SEEDS:
            raise ValueError(f"{text!r} is more than {_MAX_SEEDS:,} seeds")
        found += range(first, last + 1)
    if max(found) >= _NO_SEED:
        raise ValueError(f"seeds must be below {_NO_SEED}")
    if len(set(found)) < len(found):
        twice = next(seed for seed in found if found.count(seed) > 1)
        raise ValueError(f"{text!r} has seed {twice} twice")
    return tuple(found)


@dataclass
class _SeedRun:
    """The run of a seed, and its job."""

    seed: int
    folder: Path
    job: Job
    followed: FollowedRun
    total: int = 0

    def read(self) -> None:
        self.followed.read()
        if not self.total and self.followed.step:
            with suppress(UsageError):
                config = read_about(self.folder).get("config")
                total = config.get("total_steps") if isinstance(config, dict) else None
                self.total = total if isinstance(total, int) else 0

    @property
    def share(self) -> float:
        """Completed share of its steps, 0 to 1; 1 if the run is done or has failed."""
        if self.job.state in ("done", "failed"):
            return 1.0
        return min(1.0, self.followed.step / self.total) if self.total else 0.0


def train_seeds(
    context: click.Context,
    seeds: Sequence[int],
    num_jobs: int | None,
    out: Path,
    *,
    num_workers: int | None,
    resume: bool,
) -> None:
    """Trains once per seed, and compares the runs.

    Args:
        context: of the command line. Every run gets its words, except those of `_OWN`.
        num_jobs: simultaneous runs; None = one per core.
        out: parent folder.
        num_workers: per run; None = its share of the cores.
        resume: continue runs that have a checkpoint.
    """
    if Launched.found().size > 1:
        raise UsageError("--seeds starts its own processes: leave out torchrun")
    require_writable(out)
    num_jobs = min(num_jobs or num_cores(), len(seeds))
    words = typed_words(context, _OWN)
    if num_workers is None:
        share = num_cores() // num_jobs
        words = ["--num-workers", str(share if share > 1 else 0), *words]
    runs = [_planned(seed, out / f"seed-{seed}", words, resume) for seed in seeds]
    echo(f"{len(seeds)} seeds, {num_jobs} at once, in {out}")
    with JobsDisplay(f"training {len(seeds)} seeds", Console()) as display:

        def show() -> None:
            for run in runs:
                run.read()
            display.show(sum(run.share for run in runs) / len(runs), _line(runs), _table(runs))

        signum = run_jobs([run.job for run in runs], num_jobs, show)
    _report(runs, out, signum)


def _planned(seed: int, folder: Path, words: Sequence[str], resume: bool) -> _SeedRun:
    has_checkpoint = (folder / SUBFOLDER).exists()
    if has_checkpoint and not resume:
        raise UsageError(
            f"{folder} holds a trained agent: continue training with --resume, or choose another "
            "--out"
        )
    own = ["--seed", str(seed), "--out", str(folder)]
    own += ["--resume"] if has_checkpoint else []
    function = partial(_run_command, ["train", *own, *words])
    job = Job(f"seed {seed}", function, folder / LOG)
    return _SeedRun(seed, folder, job, FollowedRun(folder))


def _run_command(words: Sequence[str]) -> None:
    """Runs the program in its own process."""
    from entity_env.cli import main

    sys.argv = ["entity-env", *words]
    main(list(words), prog_name="entity-env")


def _line(runs: Sequence[_SeedRun]) -> str:
    states = [run.job.state for run in runs]
    shown = [
        f"{states.count(state)} {state}"
        for state in ("done", "running", "waiting", "stopped", "failed")
        if states.count(state)
    ]
    return ", ".join(shown)


def _table(runs: Sequence[_SeedRun]) -> Table:
    table = plain_table("seed", "steps", "reward", "evaluation", "", gap=3)
    for run in runs:
        figures = run.followed.figures
        rewards = (figures.get(name) for name in (REWARD, EVALUATED))
        numbers = ("-" if value is None else f"{value:.3f}" for value in rewards)
        state = f"{run.share:.0%}" if run.job.state == "running" else run.job.state
        table.add_row(str(run.seed), f"{run.followed.step:,}", *numbers, Text(state, style="dim"))
    return table


def _report(runs: Sequence[_SeedRun], out: Path, signum: int | None) -> None:
    """Prints the table over seeds and all problems; exits with an error unless all is done."""
    found = []
    for run in runs:
        with suppress(EntityEnvError):  # nothing was recorded
            found.append(read_run(run.folder))
    if any(run.score is not None for run in found):
        print_tables(found)
        place = shlex.quote(str(out))
        echo("", f"compare: entity-env runs {place}; curves: entity-env report {place}")
    failures: dict[str, list[_SeedRun]] = {}
    for run in runs:
        if run.job.state == "failed":
            failures.setdefault(run.job.error, []).append(run)
    for error, own in failures.items():
        names = ", ".join(str(run.seed) for run in own)
        which = f"seed {names}" if len(own) == 1 else f"seeds {names}"
        echo(f"entity-env: {which} failed: {error} (see {own[0].job.log})", err=True)
    num_left = sum(run.job.state in ("stopped", "waiting") for run in runs)
    if num_left:
        echo(
            f"stopped with {num_left} of {len(runs)} seeds unfinished; the same command with "
            "--resume continues",
            err=True,
        )
        raise SystemExit(INTERRUPTED if signum is None else 128 + signum)
    if failures:
        raise SystemExit(_FAILED)
