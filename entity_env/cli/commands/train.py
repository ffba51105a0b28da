"""`entity-env train`: trains an agent with PPO."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar, Final

import click

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.config import COMPILE_MODES
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.config import RelposEncodingConfig, state_width
from entity_env.agents.training.presets import DEFAULT_OPPONENTS, PRESETS, Preset
from entity_env.agents.training.tracking.recorders import RECORDERS
from entity_env.agents.training.tracking.runs import DEFAULT_CONFIG
from entity_env.authoring.game import Game
from entity_env.authoring.identity import about_game
from entity_env.cli.command import CliOption, Section
from entity_env.cli.commands.seeds import read_seeds, train_seeds
from entity_env.cli.display.console import Console, echo
from entity_env.cli.evaluation import EvaluationPlan
from entity_env.cli.load_game import load_game, tell_of_changes
from entity_env.cli.opponents import against_bots, opponent_shares
from entity_env.cli.options import (
    CopyOptions,
    Folder,
    GameName,
    GameSettings,
    Jobs,
    PresetName,
    require_writable,
)
from entity_env.cli.run_settings import HELP, ConfigOption, GivenSettings, RunParser, given_settings
from entity_env.cli.run_summary import tell_of_run
from entity_env.cli.setting_docs import settings_table
from entity_env.cli.training import (
    COMPILE_VARIABLE,
    KeptReplays,
    Launched,
    Origin,
    PlannedRun,
    RayOptions,
    ReplayOptions,
    RunEnd,
    defaults_of,
    load_callback,
    train_run,
)
from entity_env.core.validation import OneOf
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.vec.game_training import preset_of

_OPPONENTS: Final = ", ".join(f"{name}={share:g}" for name, share in DEFAULT_OPPONENTS.items())

_RECORDS: Final = Section("Curves and replays")
_EPILOG: Final = """\b
--config FILE.toml; options and --set-train replace what it says:
  learning_rate = [[0, 0.003], [1, 0]]  # any field of PPOConfig; most
  gamma = 0.99                          # numbers may change over the run
  [net]
  kind = "mlp"                          # rogue_net, mlp or cnn,
  hidden = [64, 64]                     # and fields of its config
  [game]
  board_size = 6                        # as --set
  [run]
  game = "snake"                        # GAME, and other options by
  num_envs = 64                         # their names
"""


def read_duration(text: str) -> float:
    """Seconds from `90`, `30m`, `2h` or `1h30m`.

    Raises:
        ValueError: the text is not a duration.
    """
    number = r"(\d{1,9}(?:\.\d{1,6})?)"
    form = rf"(?:{number}d)?(?:{number}h)?(?:{number}m)?(?:{number}s?)?"
    match = re.fullmatch(form, text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a time such as 90, 30m, 2h or 1h30m")
    units = (86400, 3600, 60, 1)
    return sum(float(part) * unit for part, unit in zip(match.groups("0"), units, strict=True))


def _read_relpos(text: str) -> RelposEncodingConfig:
    """Relative positions from `x=10,y=10`: features, and the largest distance in cells of each."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and extent.isdecimal() for name, _, extent in pairs):
        raise ValueError(f"{text!r} is not of the form NAME=CELLS,NAME=CELLS")
    return RelposEncodingConfig([int(each) for *_, each in pairs], [name for name, *_ in pairs])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Length, folder and seeds of a run."""

    total_steps: Annotated[int | None, CliOption(name="--steps", of=PPOConfig)] = None
    """Number of decisions to train on."""
    max_train_time_s: Annotated[
        float | None, CliOption(name="--max-time", metavar="30m|2h|90", read=read_duration)
    ] = None
    """Time after which the run ends, with a checkpoint and an evaluation. Schedules, such as that
    of the step size, follow the time if it is ahead of --steps, so only entity-env reproduce
    repeats such a run. A resumed run gets the full time again."""
    out: Annotated[Folder | None, CliOption(default="runs/GAME")] = None
    """Folder for the checkpoint and the curves."""
    resume: bool = False
    """Continue the run in --out from its checkpoint, with its game, settings and options. Options
    that are given again replace the old ones."""
    seed: Annotated[int | None, CliOption(default="1", of=PPOConfig)] = None
    """Seed of the run."""
    seeds: Annotated[tuple[int, ...] | None, CliOption(metavar="1..5|1,3,7", read=read_seeds)] = (
        None
    )
    """Train once with each of these seeds, in OUT/seed-N, and compare the runs."""
    num_jobs: Jobs = None


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """The most common settings of the trainer, and access to all others."""

    preset: PresetName = None
    learning_rate: Annotated[float | None, CliOption(of=PPOConfig)] = None
    gamma: Annotated[float | None, CliOption(of=PPOConfig)] = None
    ent_coef: Annotated[float | None, CliOption(of=PPOConfig)] = None
    num_steps: Annotated[int | None, CliOption(of=PPOConfig)] = None
    relpos_encoding: Annotated[
        RelposEncodingConfig | None,
        CliOption(name="--relpos", metavar="NAME=CELLS,...", read=_read_relpos),
    ] = None
    """Relative positions in attention: the position features, and the largest distance along each
    in cells."""
    set_train: Annotated[tuple[str, ...], CliOption(metavar="NAME=VALUE")] = ()
    """Any setting of the trainer (clip_coef=0.1) or of the network (net.d_model=32), in TOML
    syntax. May be repeated. --set-train help lists them."""
    config: Annotated[str | None, CliOption(metavar="FILE.toml", kind=ConfigOption)] = None
    """Read settings from a file, see below, or from the run.json of an earlier run."""


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Device of torch, and when to compile its code."""

    device: Annotated[str | None, CliOption(default="cpu", of=PPOConfig)] = None
    """Device that torch uses, such as cpu or cuda."""
    compile: Annotated[
        str | int | None,
        CliOption(
            metavar="|".join((*COMPILE_MODES, "STEP")),
            default=f"background, or the value of {COMPILE_VARIABLE}",
            of=PPOConfig,
        ),
    ] = None
    """When to compile the network: wait = before training; background = in a child process while
    the run begins in torch, so a seed may not repeat it bit for bit; never = stay in torch; STEP =
    use torch up to that step, which repeats a run with this compiled_from_step."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent for a game with PPO.

    Defaults suit the game: --set-train help shows them. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint and stop, with exit code 130, 143 or 129; --resume --out FOLDER continues. Curves go
    to curves.jsonl, and to TensorBoard if it is installed. Processes started by torchrun or --ray
    train together.
    """

    PARSER: ClassVar = RunParser
    ATTRS: ClassVar = {"epilog": _EPILOG}

    game: GameName
    basics: Annotated[RunOptions, Section("Run")]
    learning: Annotated[LearningOptions, Section("Learning")]
    origin: Annotated[Origin, Section("Fine-tuning")]
    opponents: Annotated[
        tuple[str, ...],
        CliOption(name="--opponent", metavar="NAME[=SHARE]", default=_OPPONENTS),
        Section("Opponents"),
    ] = ()
    """Opponent in the other seats of a game for several agents, in a share of the environments; in
    the rest, the agent plays all seats. NAME is self (past selves), random, a checkpoint, a *.agent
    file, none (no opponent), or a bot, FILE.py:CLASS or one of the game's own (in all
    environments). May be repeated; without shares, the opponents divide half of the environments
    equally."""
    evaluation: Annotated[EvaluationPlan, Section("Evaluation and checkpoints")]
    recorders: Annotated[
        tuple[Annotated[str, OneOf(RECORDERS)], ...],
        CliOption(name="--record", default="tensorboard, if it is installed"),
        _RECORDS,
    ] = ()
    """Also record settings and curves there. May be repeated."""
    callbacks: Annotated[
        tuple[str, ...], CliOption(name="--callback", metavar="FILE.py:CLASS"), _RECORDS
    ] = ()
    """A subclass of Callback that sees the run and can stop it. May be repeated."""
    replays: Annotated[ReplayOptions, _RECORDS]
    copies: Annotated[CopyOptions, Section("Environments")]
    machine: Annotated[MachineOptions, Section("Machines")]
    ray: Annotated[RayOptions, Section("Machines")]
    end: Annotated[RunEnd, Section("Repeating a run")]
    settings: Annotated[GameSettings, Section("Game")]

    def run(self) -> None:
        context, basics = click.get_current_context(), self.basics
        game = load_game(self.game, self.settings.texts).with_transport(self.copies.transport)
        if HELP in self.learning.set_train:
            preset = self._preset(game)
            Console.for_tables().print(settings_table(PPOConfig(**preset.settings)))
            if preset.is_fitted:
                echo("rollouts, gamma and the network also depend on random play of the game")
            return
        out = require_text(basics.out or Path("runs", game.name))
        if basics.seeds is None:
            if basics.num_jobs is not None:
                raise UsageError("--jobs goes with --seeds: add seeds, such as --seeds 1..5")
            self._train(game, out, given_settings(context))
            return
        for option, value in (("--seed", basics.seed), ("--ray", self.ray.address)):
            if value is not None:
                raise UsageError(f"--seeds cannot be combined with {option}: leave out one of them")
        train_seeds(
            context,
            basics.seeds,
            basics.num_jobs,
            out,
            num_workers=self.copies.num_workers,
            resume=basics.resume,
        )

    def _preset(self, game: Game) -> Preset:
        name = self.learning.preset
        return preset_of(game) if name is None else PRESETS[name]

    def _train(self, game: Game, out: Path, given: GivenSettings) -> None:
        launched, copies, origin = Launched.found(), self.copies, self.origin
        resume, steps = self.basics.resume, self.basics.total_steps
        origin.require(resume)
        self.evaluation.require(game)
        _require_more_steps(out, steps if resume else None)
        resume = resume or launched.has_checkpoint(out)
        resumed = out if resume else None
        tell_of_changes(game, [] if launched.rank else [resumed or origin.init_from or ""])
        preset = self._preset(game)
        shares = opponent_shares(game, self.opponents, resumed)
        game, pooled = against_bots(game, shares)
        sizes = (steps or given.total_steps, copies.num_envs, self.learning.num_steps)
        known = PPOConfig(**given.applied({**preset.settings, **origin.network}))
        found = defaults_of(
            *(game, preset, sizes, copies, resumed),
            remembers=state_width(known.net) > 0,
            max_train_time_s=self.basics.max_train_time_s or known.max_train_time_s,
        )
        num_envs, start, _ = found
        compile_mode = os.environ.get(COMPILE_VARIABLE) or "background"
        default = origin.start(game, {"compile": compile_mode, **start})
        asked = PPOConfig(**given.applied(default))
        config = origin.checked(asked.changed(self._typed_settings()), resume)
        if resume:
            words = "; ".join([f"resuming {out}", *given.changes(start, config)])
        else:
            require_unused(out)
            words = f"{origin.aim} for {preset.kind}: {num_envs} environments, {config.summary()}"
        require_writable(out)
        against = [f"{name} in {share:.0%} of the environments" for name, share in shares.items()]
        against = [f"opponents: {', '.join(against)}"] if against else []
        reasons = [each.text for each in found.reasons if each.holds(config)]
        _announce(launched, words, [*reasons, *against, *origin.changes(game)])
        about: dict[str, object] = {"options": given.stored, "opponents": shares, "game": self.game}
        about |= {"num_envs": num_envs, "command": sys.argv, **about_game(game)}
        about |= {"defaults": reasons} if reasons else {}
        about |= {} if resume else {DEFAULT_CONFIG: PPOConfig(**default).to_json()}
        run = PlannedRun(
            game,
            num_envs,
            copies,
            config,
            out,
            resume,
            about,
            KeptReplays.of(game, out, self.replays),
            self.recorders,
            tuple(map(load_callback, self.callbacks)),
            pooled,
            origin,
            self.evaluation,
            self.end,
        )
        result, code = train_run(run, launched, self.ray)
        if not launched.rank:
            words = shlex.join([self.game, *self.settings.words, "--agent", str(out)])
            tell_of_run(result, words, out, Console())
        if code:
            raise SystemExit(code)

    def _typed_settings(self) -> dict[str, object]:
        parts = (self.basics, self.learning, self.origin, self.machine)
        values = {name: value for part in parts for name, value in vars(part).items()}
        known = {each.name for each in fields(PPOConfig)}
        found = {name: x for name, x in values.items() if name in known and x is not None}
        if self.learning.relpos_encoding is not None:
            found["net"] = {"relpos_encoding": self.learning.relpos_encoding}
        return found


def _require_more_steps(out: Path, steps: int | None) -> None:
    """Raises `UsageError` for fewer steps than the run in `out` has made.

    The number of steps that the run has planned is always allowed.
    """
    if steps is None:
        return
    training = read_header(find_checkpoint(out)).training
    config, made = training.get("config"), training.get("step")
    planned = config.get("total_steps") if isinstance(config, dict) else None
    if isinstance(made, int) and steps < made and steps != planned:
        raise UsageError(
            f"--steps counts all steps of a run: {out} has already made {made:,}, so nothing is "
            f"left of {steps:,}"
        )


def _announce(launched: Launched, settings: str, changes: Sequence[str]) -> None:
    """Prints the settings and changes, on rank 0."""
    if not launched.rank:
        on_ranks = f", on {launched.size} ranks" if launched.size > 1 else ""
        echo(settings + on_ranks, *changes)


def require_text(out: Path) -> Path:
    """The folder, if its name is valid UTF-8, which the TensorBoard writer needs."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out must be text in UTF-8, got {shown(str(out))}") from error
    return out


def require_unused(out: Path) -> None:
    """Checks that training in `out` overwrites no file."""
    try:
        require_place(out / SUBFOLDER)
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # the name is too long, or the folder unreadable
        raise UsageError(f"cannot train in {out}: {error}") from error
    try:
        found = find_checkpoint(out)
    except CheckpointError:
        return
    raise UsageError(
        f"{found} holds a trained agent: continue training with --resume, or choose another --out"
    )
