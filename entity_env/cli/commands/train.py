"""`entity-env train` and `entity-env export`: train an agent, and write it to one file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from entity_env.agents.ppo.config import COMPILE_MODES
from entity_env.agents.ppo.presets import DEFAULT_OPPONENTS, PRESETS
from entity_env.agents.ppo.tracking.recorders import RECORDERS
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.authoring.game import Transport
from entity_env.authoring.identity import about_game
from entity_env.cli.display.console import Console, echo
from entity_env.cli.evaluation import EvaluationPlan, evaluation_options
from entity_env.cli.load_game import load_game, tell_of_changes
from entity_env.cli.opponents import take_opponents, told
from entity_env.cli.options import (
    ENVS,
    WORKERS,
    WholeRange,
    failures_option,
    game_argument,
    on_error_option,
    ray_option,
    require_writable,
    set_option,
    step_timeout_option,
    transport_option,
)
from entity_env.cli.run_settings import GivenSettings, RunCommand
from entity_env.cli.run_summary import tell_of_run
from entity_env.cli.seeds import seeds_options
from entity_env.cli.train_options import (
    CONFIG_HELP,
    DEFAULTS,
    Compile,
    Duration,
    Keep,
    packed,
    training_options,
)
from entity_env.cli.training import (
    COMPILE_VARIABLE,
    KeptReplays,
    Launched,
    Origin,
    PlannedRun,
    RayOptions,
    ReplayOptions,
    RunEnd,
    changed_config,
    defaults_of,
    load_callback,
    preset_of,
    train_here,
    train_on_ray,
)
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.vec.options import OnError

_OPPONENTS: Final = ", ".join(f"{name}={share:g}" for name, share in DEFAULT_OPPONENTS.items())


@click.command(cls=RunCommand, epilog=CONFIG_HELP)
@game_argument
@seeds_options
@click.option(
    "--config",
    expose_value=False,  # read by `RunCommand`
    metavar="FILE.toml",
    help="Settings from a file, see below; or the run.json of an earlier run.",
)
@click.option(
    "--set-train",
    multiple=True,
    expose_value=False,
    metavar="NAME=VALUE",
    help="Any setting of the trainer, such as clip_coef=0.1, or of the network, net.d_model=32, as "
    "TOML writes it. May be repeated.",
)
@click.option(
    "--steps",
    type=WholeRange(min=1, max=10**15),
    help=f"Number of decisions to train on.  [default: {DEFAULTS.total_steps:,}]",
)
@click.option(
    "--num-envs",
    type=ENVS,
    help=f"Number of environments.  [default: {PRESETS['entities'].num_envs}]",
)
@click.option(
    "--num-workers",
    type=WORKERS,
    help="Number of worker processes; 0 = none.  [default: one per core; 0 for batch environments]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the checkpoint and the curves.  [default: runs/GAME]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the run in --out from its checkpoint, with its game, settings and options; "
    "those that are given again replace them.",
)
@click.option(
    "--init-from",
    type=click.Path(path_type=Path),
    help="Begin with the network of a run, a checkpoint or an .agent file, whose size it keeps, "
    "with smaller --learning-rate and --ent-coef. It is evaluated first, and OUT/best is never "
    "worse.",
)
@click.option(
    "--adapt",
    is_flag=True,
    help="With --init-from: the game has changed. What is new begins untrained, what is gone is "
    "left out.",
)
@click.option(
    "--max-time",
    "max_train_time_s",
    type=Duration(),
    metavar="30m|2h|90",
    help="Time after which the run ends, with a checkpoint and an evaluation. What changes over "
    "the run, such as the step size, follows the time where that is ahead of --steps, so a seed "
    "does not repeat such a run; entity-env reproduce does. A resumed run has the time anew.",
)
@click.option(
    "--time-of",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Follow the time that a run with --max-time took, update by update, as reproduce does.",
)
@click.option(
    "--record",
    multiple=True,
    type=click.Choice(list(RECORDERS)),
    help="Record settings and curves there, too. May be repeated.  [default: tensorboard, where it "
    "is installed]",
)
@click.option("--device", help="Device of torch.  [default: cpu]")
@click.option(
    "--compile",
    type=Compile(),
    metavar="|".join((*COMPILE_MODES, "STEP")),
    help="The first run compiles the network: wait for it, or let a child process do it and begin "
    "in torch, where a seed no longer repeats a run bit for bit; never = all of the run in torch; "
    "STEP = in torch up to that step, which repeats a run whose compiled_from_step it is.  "
    f"[default: background, or what {COMPILE_VARIABLE} says]",
)
@click.option("--num-threads", type=WholeRange(1, 1024), help="Number of threads of torch.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Defaults for a kind of environment.  [default: the one that suits the game]",
)
@ray_option
@click.option(
    "--num-learners",
    type=WholeRange(1, 10**5),
    help="With --ray: processes that learn together, each with a share of the environments.",
)
@click.option(
    "--max-failures",
    type=WholeRange(0, 10**6),
    help="With --ray: how often they start again from the last checkpoint when one died.",
)
@click.option(
    "--callback",
    "callbacks",
    multiple=True,
    metavar="FILE.py:CLASS",
    help="A class derived from Callback, which sees the run and can stop it. May be repeated.",
)
@step_timeout_option
@on_error_option
@transport_option
@failures_option
@click.option(
    "--keep",
    type=Keep(),
    metavar="best,worst,failed",
    help="Replays to keep: the best and the worst episode in OUT/replays, failed ones in "
    "--failures, OUT/failures if it is not given; none = none of them.  [default: all that the "
    "game allows]",
)
@click.option(
    "--replays",
    "moments",
    type=WholeRange(0, 10**6),
    default=0,
    help="Number of moments of the run at which an evaluation episode is played, always from the "
    "same start, and kept in OUT/replays.  [default: 0]",
)
@click.option(
    "--opponent",
    "opponents",
    multiple=True,
    metavar="NAME[=SHARE]",
    help="What plays the other seats of a game for several agents, in a share of the environments; "
    "in the rest the agent plays all seats. NAME: self = past selves, random, a checkpoint or a "
    "file *.agent; none = no opponent; FILE.py:CLASS, a bot that plays in all of them. Repeatable. "
    "Without shares half of the environments, divided equally.  "
    f"[default: {_OPPONENTS}]",
)
@click.option(
    "--until",
    type=WholeRange(min=1),
    metavar="STEP",
    help="End after the update that reaches this step; what changes over the run follows --steps.",
)
@evaluation_options
@training_options
@set_option
@packed("ray", RayOptions)
@packed("end", RunEnd)
@packed("replays", ReplayOptions)
def train(
    game: str,
    steps: int | None,
    num_envs: int | None,
    num_workers: int | None,
    out: Path | None,
    resume: bool,
    preset: str | None,
    ray: RayOptions,
    step_timeout_s: float | None,
    on_error: OnError,
    transport: Transport | None,
    replays: ReplayOptions,
    settings: Sequence[str],
    record: Sequence[str],
    callbacks: Sequence[str],
    end: RunEnd,
    given: GivenSettings,
    **options: object,
) -> None:
    """Train an agent for a game with PPO.

    Some games have other defaults than those in brackets. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint and stop, with exit code 130, 143 or 129; --resume --out FOLDER continues. Curves go
    to curves.jsonl, and TensorBoard if installed. Processes of torchrun and --ray learn together.
    """
    launched = Launched.found()
    ray.require_address()
    origin = Origin.of(options, resume)
    chosen = load_game(game, settings).with_transport(transport)
    out = require_text(out or Path("runs", chosen.name))
    evaluation = EvaluationPlan.of(options, chosen)
    own = preset_of(chosen) if preset is None else PRESETS[preset]
    _require_more_steps(out, steps if resume else None)
    resume = resume or launched.has_checkpoint(out)
    resumed = out if resume else None
    if not launched.rank:
        tell_of_changes(chosen, [resumed or origin.path or ""])
    chosen, shares, pooled = take_opponents(chosen, options, resumed)
    sizes = (steps or given.total_steps, num_envs, options.get("num_steps"))
    num_envs, start, reasons = defaults_of(chosen, own, sizes, step_timeout_s, on_error, resumed)
    compiled = {"compile": os.environ.get(COMPILE_VARIABLE) or "background"}
    asked = given.applied(origin.start(chosen, compiled | start))
    config = origin.checked(changed_config(asked, {"total_steps": steps, **options}), resume)
    if resume:
        words = "; ".join([f"resuming {out}", *given.changes(start, config)])
    else:
        require_unused(out)
        words = f"{origin.aim} for {own.kind}: {num_envs} environments, {config.summary()}"
    require_writable(out)
    _announce(launched, words, [*reasons, *told(shares), *origin.changes(chosen)])
    about = {"options": given.stored, "opponents": shares, "game": game, "num_envs": num_envs}
    about |= {"command": sys.argv} | ({"defaults": list(reasons)} if reasons else {})
    kept, watching = KeptReplays.of(chosen, out, replays), tuple(map(load_callback, callbacks))
    run = PlannedRun(
        *(chosen, num_envs, num_workers, step_timeout_s, on_error, config, out, resume),
        *(about | about_game(chosen), kept, tuple(record), watching, pooled, origin, evaluation),
        end=end,
    )
    _train_and_report(run, launched, ray, [game, *_repeated("--set", settings)])


def _train_and_report(
    run: PlannedRun, launched: Launched, ray: RayOptions, game_words: Sequence[str]
) -> None:
    """Trains, prints the result on rank 0, and exits where the run did not end by itself."""
    result, code = train_here(run, launched) if ray.address is None else train_on_ray(run, ray)
    if not launched.rank:
        words = shlex.join([*game_words, "--agent", str(run.out)])
        tell_of_run(result, words, run.out, Console())
    if code:
        raise SystemExit(code)


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    """An option for each of its values, as it is typed."""
    return [word for value in values for word in (option, value)]


def _require_more_steps(out: Path, steps: int | None) -> None:
    """Raises a `UsageError` for fewer steps than the run in `out` has made and was to make."""
    if steps is None:
        return
    training = read_header(find_checkpoint(out)).training
    config, made = training.get("config"), training.get("step")
    planned = config.get("total_steps") if isinstance(config, dict) else None
    if isinstance(made, int) and steps < made and steps != planned:
        raise UsageError(
            f"--steps counts all steps of a run: {out} has made {made:,}, so that nothing would be "
            f"left of {steps:,}"
        )


def _announce(launched: Launched, settings: str, changes: Sequence[str]) -> None:
    """Prints what begins, on rank 0."""
    if not launched.rank:
        on_ranks = f", on {launched.size} ranks" if launched.size > 1 else ""
        echo("\n".join([settings + on_ranks, *changes]))


def require_text(out: Path) -> Path:
    """The folder, whose name must be valid UTF-8, which the TensorBoard writer needs."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out must be text in UTF-8, got {shown(str(out))}") from error
    return out


def require_unused(out: Path) -> None:
    """Checks that training in `out` overwrites no checkpoint, nor any other file."""
    try:
        require_place(out / SUBFOLDER)
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # the name is too long, the folder cannot be read
        raise UsageError(f"cannot train in {out}: {error}") from error
    try:
        found = find_checkpoint(out)
    except CheckpointError:
        return
    raise UsageError(
        f"{found} holds a trained agent: go on training it with --resume, or choose another --out"
    )
