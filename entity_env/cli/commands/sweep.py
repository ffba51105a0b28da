"""`entity-env sweep`: train many agents with other settings, on a Ray cluster."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.presets import PRESETS
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.authoring.game import Game, Transport
from entity_env.authoring.identity import identity_of
from entity_env.cli.commands.train import preset_of
from entity_env.cli.display.console import Console, echo, plain_table
from entity_env.cli.load_game import load_game, make_training_env, tell_of_changes
from entity_env.cli.options import (
    COUNT,
    ENVS,
    SEED,
    WholeRange,
    game_argument,
    ray_option,
    require_writable,
    set_option,
    transport_option,
)
from entity_env.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from entity_env.cluster.sweep import Sweep, SweepTrial

_MAX_ROWS: Final = 20
_GAP: Final = 3
_BAR: Final = 20
_WIDTH: Final = 200
_LINE_INTERVAL_S: Final = 10.0
_FAILED: Final = 1


@click.command()
@game_argument
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="NAME=VALUES",
    help="A setting and its values, as learning_rate=3e-4:1e-2:log, gamma=0.9:0.999 or "
    "net.d_model=32,64. Names are those of PPOConfig, and net.NAME of its network. May be "
    "repeated.",
)
@click.option("--trials", "num_trials", type=COUNT, default=16, help="Number of training runs.")
@click.option(
    "--steps",
    type=WholeRange(min=1, max=10**15),
    help="Decisions of each.  [default: as train]",
)
@click.option("--num-envs", type=ENVS, help="Environments of each run.  [default: as train]")
@click.option(
    "--population",
    is_flag=True,
    help="Population based training: bad runs go on from the network of good ones, with settings "
    "near theirs. Otherwise bad runs are stopped early.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for all runs.  [default: runs/sweep-GAME]",
)
@click.option("--resume", is_flag=True, help="Continue the sweep in --out, with the same options.")
@click.option("--seed", type=SEED, default=1, help="Seed of the settings, and of every run.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Defaults for a kind of environment.  [default: the one that suits the game]",
)
@ray_option
@transport_option
@set_option
def sweep(
    game: str,
    varied: Sequence[str],
    num_trials: int,
    steps: int | None,
    num_envs: int | None,
    population: bool,
    out: Path | None,
    resume: bool,
    seed: int,
    preset: str | None,
    address: str | None,
    transport: Transport | None,
    settings: Sequence[str],
) -> None:
    """Train many agents with other settings, and see which of them matter.

    Runs as many trials at once as the Ray cluster has CPUs; without --ray on this machine. Ctrl-C
    stops, and --resume with the same options continues. The picture sweep.svg in the folder shows
    every setting against the reward.
    """
    chosen = load_game(game, settings).with_transport(transport)
    out = Path("runs", f"sweep-{chosen.name}") if out is None else out
    planned = _plan(chosen, varied, num_trials, steps, num_envs, preset, seed, population, out)
    require_writable(out)
    if resume:
        tell_of_changes(chosen, sorted(out.glob("trial-*"))[:1])
    from entity_env.cluster.sweep import run_sweep

    title = f"sweep of {chosen.name}"
    with _SweepDisplay(planned, title, Console()) as display:
        trials = run_sweep(
            planned, address=address or "local", resume=resume, on_change=display.show
        )
    game_words = [game, *(word for setting in settings for word in ("--set", setting))]
    _report(planned, trials, title, shlex.join(game_words))


def _plan(
    game: Game,
    varied: Sequence[str],
    num_trials: int,
    steps: int | None,
    num_envs: int | None,
    preset: str | None,
    seed: int,
    is_population: bool,
    out: Path,
) -> Sweep:
    """The sweep of the options."""
    from entity_env.cluster.search_range import SearchRange
    from entity_env.cluster.sweep import Sweep

    own = preset_of(game) if preset is None else PRESETS[preset]
    num_envs = own.num_envs if num_envs is None else num_envs
    start = own.settings_for(num_envs * game.num_agents, steps)
    config = PPOConfig(**{**start, "seed": seed})
    return Sweep(
        partial(make_training_env, game, num_envs),
        config,
        [SearchRange.parse(text, config) for text in varied],
        num_trials,
        out,
        seed=seed,
        is_population=is_population,
        identity=identity_of(game),
        environments=f"{num_envs} environments of {game.name} with {dict(game.settings)}",
    )


def _report(planned: Sweep, trials: Sequence[SweepTrial], title: str, game_words: str) -> None:
    """Prints the results, and writes the picture; exits where not all trials are over."""
    from entity_env.cluster.sweep_report import picture, ranked

    console = Console()
    if not console.is_terminal:  # a file has no width
        console.width = _WIDTH
    best = ranked(trials)[0]
    if math.isfinite(best.reward):
        console.print(_table(planned, trials))
        console.print()
        console.print(_bars(planned, trials))
        path = planned.out / "sweep.svg"
        path.write_text(picture(f"{title}: mean episode reward", planned.ranges, trials), "utf-8")
        echo(f"\npicture: {path}; curves: entity-env report {shlex.quote(str(planned.out))}")
        folder = planned.out / best.name
        if (folder / SUBFOLDER).is_dir():
            echo(f"best: entity-env play {game_words} --agent {shlex.quote(str(folder))}")
    failed = [each for each in trials if each.state == "failed"]
    if failed:
        text = f"{len(failed)} of {len(trials)} trials failed, {failed[0].name}: {failed[0].error}"
        echo(text, err=True)
    num_over = sum(each.is_over for each in trials)
    if num_over + len(failed) < len(trials):
        echo(
            f"stopped after {num_over} of {len(trials)} trials; the same command with --resume "
            "continues",
            err=True,
        )
        raise SystemExit(INTERRUPTED)
    if not num_over:
        raise SystemExit(_FAILED)


def _table(planned: Sweep, trials: Sequence[SweepTrial]) -> RenderableType:
    from entity_env.cluster.sweep_report import ranked, shown_value

    names = [each.name for each in planned.ranges]
    table = plain_table("trial", "reward", *names, "steps", "state", gap=_GAP)
    for each in ranked(trials)[:_MAX_ROWS]:
        table.add_row(
            each.name,
            f"{each.reward:.3f}" if math.isfinite(each.reward) else "-",
            *(shown_value(each.settings[name]) for name in names),
            f"{each.step:,}",
            each.state,
        )
    if len(trials) <= _MAX_ROWS:
        return table
    return Group(table, Text(f"and {len(trials) - _MAX_ROWS} more", style="dim"))


def _bars(planned: Sweep, trials: Sequence[SweepTrial]) -> Table:
    from entity_env.cluster.sweep_report import by_importance, symbol

    table = plain_table("what mattered", "", gap=_GAP)
    table.add_column()
    for found, weight in by_importance(planned.ranges, trials):
        if math.isfinite(weight):
            bar = "█" * round(abs(weight) * _BAR) or "▏"
            table.add_row(found.name, f"{symbol(found)} = {weight:+.2f}", bar)
        else:
            table.add_row(found.name, "-", "")
    return table


class _SweepDisplay:
    """Shows how far a sweep is: live on a terminal, line by line elsewhere."""

    def __init__(
        self,
        planned: Sweep,
        title: str,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned = planned
        self._title = title
        self._console = console
        self._clock = clock
        self._line = ""
        self._next_line_s = -math.inf
        self._live = Live(
            Text(f"{title}: starting Ray", style="dim"), console=console, refresh_per_second=4
        )

    def __enter__(self) -> _SweepDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, trials: Sequence[SweepTrial]) -> None:
        """Shows the state of all trials."""
        line = self._state(trials)
        if self._console.is_terminal:
            self._live.update(self._frame(trials, line))
        elif line != self._line and self._clock() >= self._next_line_s:
            self._line, self._next_line_s = line, self._clock() + _LINE_INTERVAL_S
            self._console.print(line, soft_wrap=True, highlight=False)

    def _state(self, trials: Sequence[SweepTrial]) -> str:
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
        line = f"{len(trials)} trials: {', '.join(counts)}"
        if not any(each.step for each in trials):
            return f"{line} (processes start: half a minute)"
        if not math.isfinite(best.reward):
            return line
        values = ", ".join(f"{name} {shown_value(x)}" for name, x in best.settings.items())
        return f"{line}; best reward {best.reward:.3f} ({values})"

    def _frame(self, trials: Sequence[SweepTrial], line: str) -> RenderableType:
        total = self._planned.config.total_steps
        shares = [1.0 if each.is_over else min(each.step / total, 1.0) for each in trials]
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self._title, style="bold"),
            ProgressBar(total=len(trials), completed=sum(shares), width=30),
            f"{sum(shares) / len(trials):4.0%}",
        )
        return Group(head, Text(line))
