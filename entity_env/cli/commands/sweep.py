"""`entity-env sweep`: trains many agents with different settings, here or on a Ray cluster."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from rich.console import Group, RenderableType
from rich.text import Text

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.training.presets import PRESETS
from entity_env.authoring.game import Game
from entity_env.authoring.identity import about_game, identity_of
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import Console, echo, plain_table
from entity_env.cli.display.jobs_display import JobsDisplay
from entity_env.cli.evaluation import EvaluationPlan
from entity_env.cli.load_game import load_game, tell_of_changes
from entity_env.cli.options import (
    Count,
    Envs,
    Folder,
    GameName,
    GameSettings,
    Jobs,
    PresetName,
    RayAddress,
    SeedNumber,
    Steps,
    TransportChoice,
    require_writable,
)
from entity_env.cli.training import defaults_of
from entity_env.core.files import write_file
from entity_env.core.validation import Range, num_cores
from entity_env.errors import UsageError
from entity_env.interrupts import INTERRUPTED
from entity_env.vec.game_training import make_training_env, preset_of

if TYPE_CHECKING:
    from entity_env.cluster.sweep_plan import Sweep, SweepTrial

_MAX_ROWS: Final = 20
_GAP: Final = 3
_BAR: Final = 20
_FAILED: Final = 1


@dataclass(frozen=True, kw_only=True)
class SweepCommand:
    """Train many agents with different settings.

    Shows which settings matter, if there are 10 trials or more. Runs one training per core of this
    machine; with --ray, as many as the cluster has CPUs. Trials are compared by the last evaluation
    of their runs. Ctrl-C stops, and --resume with the same options continues. The picture sweep.svg
    in the folder plots the reward against every setting.
    """

    game: GameName
    varied: Annotated[tuple[str, ...], CliOption(name="--vary", metavar="NAME=VALUES")] = ()
    """A setting and its values, such as learning_rate=3e-4:1e-2:log, gamma=0.9:0.999 or
    net.d_model=32,64. train --set-train help lists the names. May be repeated."""
    num_trials: Annotated[Count, CliOption(name="--trials")] = 16
    """Number of combinations of settings to try."""
    repeats: Annotated[int, Range(1, 1000), CliOption(metavar="N")] = 1
    """Training runs per trial, with the seeds SEED to SEED+N-1."""
    steps: Annotated[Steps | None, CliOption(default="as train")] = None
    """Decisions per run."""
    num_envs: Annotated[Envs | None, CliOption(default="as train")] = None
    """Environments per run."""
    stop_early: bool = False
    """Stop a run at one fifth or three fifths of its steps, unless it is in the best third of the
    runs that got that far. Always on with --ray."""
    population: bool = False
    """With --ray: population-based training. Bad runs continue from the network of good runs, with
    settings near theirs, instead of stopping early."""
    out: Annotated[Folder | None, CliOption(default="runs/sweep-GAME")] = None
    """Folder for all runs."""
    resume: bool = False
    """Continue the sweep in --out, with the same options."""
    seed: SeedNumber = 1
    """Seed of the choice of settings and of every run."""
    preset: PresetName = None
    address: RayAddress = None
    num_jobs: Jobs = None
    transport: TransportChoice = None
    settings: GameSettings

    def run(self) -> None:
        if self.address is not None and self.num_jobs is not None:
            raise UsageError("--jobs is for this machine: a Ray cluster runs one training per CPU")
        game = load_game(self.game, self.settings.texts).with_transport(self.transport)
        out = self.out or Path("runs", f"sweep-{game.name}")
        planned = self._planned(game, out)
        require_writable(out)
        if self.resume:
            tell_of_changes(game, sorted(out.glob("trial-*"))[:1])
        from entity_env.cluster.sweep import run_sweep

        title = f"sweep of {game.name}"
        starting = "starting" if self.address is None else "starting Ray"
        with JobsDisplay(title, Console(), starting=starting) as display:
            total = planned.config.total_steps
            trials = run_sweep(
                planned,
                address=self.address,
                num_jobs=self.num_jobs or num_cores(),
                resume=self.resume,
                stop_early=self.stop_early,
                on_change=lambda trials: display.show(_share(trials, total), _state(trials)),
            )
        _report(planned, trials, title, shlex.join([self.game, *self.settings.words]))

    def _planned(self, game: Game, out: Path) -> Sweep:
        from entity_env.cluster.search_range import SearchRange
        from entity_env.cluster.sweep_plan import Sweep

        preset = preset_of(game) if self.preset is None else PRESETS[self.preset]
        num_envs, start, _ = defaults_of(game, preset, (self.steps, self.num_envs, None))
        config = PPOConfig(**{**start, "seed": self.seed})
        return Sweep(
            partial(make_training_env, game, num_envs),
            config,
            [SearchRange.parse(text, config) for text in self.varied],
            self.num_trials,
            out,
            seed=self.seed,
            is_population=self.population,
            identity=identity_of(game),
            environments=f"{num_envs} environments of {game.name} with {dict(game.settings)}",
            repeats=self.repeats,
            make_callbacks=partial(
                EvaluationPlan().callbacks,
                game,
                step_timeout_s=None,
                on_error="raise",
                num_workers=0,
            ),
            about={"game": self.game, "num_envs": num_envs, **about_game(game)},
        )


def _report(planned: Sweep, trials: Sequence[SweepTrial], title: str, game_words: str) -> None:
    """Prints the results and writes the picture.

    Exits with an error if runs are unfinished, or if all have failed.
    """
    from entity_env.cluster.sweep_report import picture, ranked

    console = Console.for_tables()
    best = ranked(trials)[0]
    if math.isfinite(best.score.value):
        console.print(_table(planned, trials))
        console.print()
        console.print(_bars(planned, trials))
        path = planned.out / "sweep.svg"
        text = picture(f"{title}: mean episode reward", planned.ranges, trials)
        write_file(path, text.encode())
        echo("", f"picture: {path}; curves: entity-env report {shlex.quote(str(planned.out))}")
        folder = planned.out / best.best.name
        if (folder / SUBFOLDER).is_dir():
            echo(f"best: entity-env play {game_words} --agent {shlex.quote(str(folder))}")
    failed = [each for each in trials if each.state == "failed"]
    if failed:
        text = f"{len(failed)} of {len(trials)} runs failed, {failed[0].name}: {failed[0].error}"
        echo(text, err=True)
    num_over = sum(each.is_over for each in trials)
    if num_over + len(failed) < len(trials):
        echo(
            f"stopped after {num_over} of {len(trials)} runs; the same command with --resume "
            "continues",
            err=True,
        )
        raise SystemExit(INTERRUPTED)
    if not num_over:
        raise SystemExit(_FAILED)


def _table(planned: Sweep, trials: Sequence[SweepTrial]) -> RenderableType:
    from entity_env.cluster.sweep_report import ranked, shown_value

    names = [each.name for each in planned.ranges]
    seeds = ["seeds"] if planned.repeats > 1 else []
    measure = "evaluation" if any(math.isfinite(each.evaluation) for each in trials) else "reward"
    table = plain_table("trial", measure, *seeds, *names, "steps", "state", gap=_GAP)
    results = ranked(trials)
    for each in results[:_MAX_ROWS]:
        score, steps = each.score, sorted({run.step for run in each.runs})
        interval = f" ± {score.half:.3f}" if score.is_known else ""
        num_scores = sum(math.isfinite(run.score) for run in each.runs)
        table.add_row(
            f"trial-{each.number:03}",
            f"{score.value:.3f}{interval}" if math.isfinite(score.value) else "-",
            *([str(num_scores)] if seeds else []),
            *(shown_value(each.settings[name]) for name in names),
            f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}",
            each.state,
        )
    if len(results) <= _MAX_ROWS:
        return table
    return Group(table, Text(f"and {len(results) - _MAX_ROWS} more", style="dim"))


def _bars(planned: Sweep, trials: Sequence[SweepTrial]) -> RenderableType:
    from entity_env.cluster.sweep_report import LEAST, by_importance, num_scored, weight_words

    count = num_scored(trials)
    if count < LEAST:
        have = "1 trial has" if count == 1 else f"{count} trials have"
        return Text(f"which settings mattered: needs results of {LEAST} trials or more, {have} one")
    table = plain_table(f"which settings mattered, in {count} trials", "", gap=_GAP)
    table.add_column()
    for found, weight in by_importance(planned.ranges, trials):
        if not weight.is_known:
            table.add_row(found.name, "-", "")
            continue
        bar = "█" * round(abs(weight.value) * _BAR) or "▏"
        may_be_chance = weight.low <= 0 <= weight.high
        table.add_row(
            found.name, weight_words(found, weight), "may be chance" if may_be_chance else bar
        )
    return table


def _share(trials: Sequence[SweepTrial], total: int) -> float:
    """Completed share of all runs, 0 to 1; a stopped or failed run counts as complete."""
    is_over = ("done", "stopped", "failed")
    shares = [1.0 if each.state in is_over else min(each.step / total, 1.0) for each in trials]
    return sum(shares) / len(shares)


def _state(trials: Sequence[SweepTrial]) -> str:
    from entity_env.cluster.sweep_report import ranked, shown_value

    states = [each.state for each in trials]
    counts = [
        f"{states.count(state)} {label}"
        for state, label in (
            ("done", "done"),
            ("running", "running"),
            ("stopped", "stopped early"),
            ("failed", "failed"),
        )
        if states.count(state) or state in ("done", "running")
    ]
    best = ranked(trials)[0]
    line = f"{len(trials)} runs: {', '.join(counts)}"
    if not any(each.step for each in trials):
        return f"{line} (processes start)"
    if not math.isfinite(best.score.value):
        return line
    values = ", ".join(f"{name} {shown_value(x)}" for name, x in best.settings.items())
    return f"{line}; best so far {best.score.value:.3f} ({values})"
