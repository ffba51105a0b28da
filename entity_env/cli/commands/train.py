"""`entity-env train` and `entity-env export`: train an agent, and write it to one file."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from entity_env.agents.ppo import PPOConfig, TrainResult
from entity_env.agents.ppo.config import COMPILE_MODES
from entity_env.agents.ppo.presets import DEFAULT_OPPONENTS, PRESETS, Preset, preset_for
from entity_env.agents.ppo.tracking.advice import PAGE
from entity_env.agents.ppo.tracking.recorders import RECORDERS
from entity_env.agents.ppo.tracking.runs import REWARD, MeanReward, read_about, read_run
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.config import POOLINGS, RelposEncodingConfig
from entity_env.authoring.game import Game, Transport
from entity_env.authoring.identity import about_game
from entity_env.cli.display.console import Console, echo
from entity_env.cli.evaluation import EvaluationPlan, best_words, evaluation_options
from entity_env.cli.load_game import (
    NAMED,
    has_self_play,
    load_game,
    tell_of_changes,
)
from entity_env.cli.opponents import take_opponents, told
from entity_env.cli.options import (
    ENVS,
    SEED,
    WORKERS,
    FiniteFloat,
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
from entity_env.cli.seeds import seeds_options
from entity_env.cli.training import (
    KEPT,
    KeptReplays,
    Launched,
    Origin,
    PlannedRun,
    RayOptions,
    ReplayOptions,
    changed_config,
    load_callback,
    settings_of_run,
    train_here,
    train_on_ray,
)
from entity_env.errors import CheckpointError, EntityEnvError, UsageError, shown
from entity_env.games.azul import azul
from entity_env.vec.options import OnError
from entity_env.views.chart import Series, text_chart

COMPILE_VARIABLE: Final = "ENTITY_ENV_COMPILE"
"""Variable of the environment with the default of --compile."""
_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 79


def preset_of(game: Game) -> Preset:
    """The default settings for a game."""
    own = NAMED.get(game.name)
    is_own = own is not None and own.play is game.play
    if game.play is azul.play:  # whose settings are those of its self-play environments
        is_own = has_self_play(game)
    name = game.name if is_own else None
    spaces = game.obs_space(), game.action_space()
    return preset_for(*spaces, game=name, num_agents=game.num_agents)


class _Relpos(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Relative positions: `x=10,y=10`, features and the largest distance along each in cells."""

    name = "relpos"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> RelposEncodingConfig:
        pairs = [pair.partition("=") for pair in str(value).split(",")]
        if not all(name and extent.isdecimal() for name, _, extent in pairs):
            self.fail(f"{value!r} is not of the form NAME=CELLS,NAME=CELLS.", param, ctx)
        return RelposEncodingConfig(
            extent=[int(extent) for _, _, extent in pairs],
            position_features=[name for name, _, _ in pairs],
        )


class _Keep(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Names of what to keep: `best,failed`; `none`."""

    name = "keep"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(name.strip() for name in str(value).split(",")) if value != "none" else ()
        for name in names:
            if name not in KEPT:
                self.fail(f"{name!r} is none of {', '.join(KEPT)}.", param, ctx)
        return names


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic in new releases alone
    """Seconds, of `90`, `30m`, `2h` and `1h30m`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = r"(\d{1,9}(?:\.\d{1,6})?)"
        form = rf"(?:{number}d)?(?:{number}h)?(?:{number}m)?(?:{number}s?)?"
        match = re.fullmatch(form, str(value))
        if match is None or not any(match.groups()):
            self.fail(f"{value!r} is not a time such as 90, 30m, 2h or 1h30m.", param, ctx)
        units = (86400, 3600, 60, 1)
        return sum(float(part) * unit for part, unit in zip(match.groups("0"), units, strict=True))


class _Compile(click.Choice):  # type: ignore[type-arg]  # generic in new releases alone
    """When to compile: a mode, or a number of steps."""

    name = "compile"

    def __init__(self) -> None:
        super().__init__(COMPILE_MODES)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        if str(value).isdecimal():
            return WholeRange(min=1, max=2**63 - 1).convert(value, param, ctx)
        mode: str = super().convert(value, param, ctx)
        return mode


_INTEGER: Final = WholeRange(max=2**31 - 1)
_PPO_OPTIONS: Final = {
    "seed": "Seed of the run.",
    "learning_rate": "Learning rate of Adam at the start; annealed to 0.",
    "warmup_steps": "Decisions over which the learning rate rises first.",
    "num_steps": "Steps of each environment in a rollout.",
    "minibatch_size": "Decisions in a minibatch.",
    "microbatch_size": "Decisions in memory at once: gradients of a minibatch are added up.",
    "update_epochs": "Epochs over each rollout.",
    "gamma": "Discount factor, per decision.",
    "gae_lambda": "Lambda of generalized advantage estimation.",
    "clip_coef": "How far the probability of an action may move.",
    "norm_returns": "Learn values in units of the deviation of returns.",
    "vf_coef": "Weight of the value's loss.",
    "ent_coef": "Entropy coefficient at the start; annealed to 0.",
    "weight_decay": "Weight decay of AdamW.",
    "max_grad_norm": "Longest gradient.",
    "target_kl": "Divergence that ends learning from a rollout early.",
}
_NET_OPTIONS: Final = {
    "d_model": "Size of an entity's embedding.",
    "n_layer": "Transformer blocks.",
    "n_head": "Attention heads per block.",
    "separate_value": "A network apart for the value.",
    "pooling": "Pool all entities instead of attention.",
    "dropout": "Share of activations zeroed while learning.",
    "relpos_encoding": "Relative positions in attention: features, and the largest distance along "
    "each in cells.",
}
_KINDS: Final[Mapping[str, Any]] = {
    "seed": SEED,
    "microbatch_size": _INTEGER,
    "target_kl": FiniteFloat(),
    "pooling": click.Choice([each for each in POOLINGS if each is not None]),
    "relpos_encoding": _Relpos(),
}
"""Of settings whose default does not say it; `PPOConfig` checks more."""
_DEFAULTS: Final = PPOConfig()
_OPPONENTS: Final = ", ".join(f"{name}={share:g}" for name, share in DEFAULT_OPPONENTS.items())


def _training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each main setting; its value is None if it is not given."""
    for config, texts in ((_DEFAULTS.net, _NET_OPTIONS), (_DEFAULTS, _PPO_OPTIONS)):
        for name, text in reversed(texts.items()):
            default = getattr(config, name)
            option = name.removesuffix("_encoding").replace("_", "-")
            kind = _KINDS.get(name) or (FiniteFloat() if type(default) is float else _INTEGER)
            text = f"{text}  [default: {'none' if default is None else default}]"
            if type(default) is bool:
                option_or_not = f"--{option}/--no-{option}"
                command = click.option(option_or_not, name, default=None, help=text)(command)
            else:
                metavar = "NAME=CELLS,..." if isinstance(kind, _Relpos) else None
                add = click.option(f"--{option}", name, type=kind, metavar=metavar, help=text)
                command = add(command)
    return command


_CONFIG_HELP: Final = """\b
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


def _packed(
    name: str, kind: type[RayOptions] | type[ReplayOptions]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Hands the options that are fields of a tuple to a command as one argument."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_packed(**options: object) -> object:
            own: dict[str, Any] = {each: options.pop(each) for each in kind._fields}
            return command(**{name: kind(**own)}, **options)

        return with_packed

    return decorate


@click.command(cls=RunCommand, epilog=_CONFIG_HELP)
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
    help=f"Number of decisions to train on.  [default: {_DEFAULTS.total_steps:,}]",
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
    help="Begin with the network of a run, a checkpoint or an .agent file, whose size it keeps.",
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
    type=_Duration(),
    metavar="30m|2h|90",
    help="Time after which the run ends, with a checkpoint; a resumed run has it anew.",
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
    type=_Compile(),
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
    type=_Keep(),
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
@_training_options
@set_option
@_packed("ray", RayOptions)
@_packed("replays", ReplayOptions)
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
    until: int | None,
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
    num_envs = own.num_envs if num_envs is None else num_envs
    _require_more_steps(out, steps if resume else None)
    resume = resume or launched.has_checkpoint(out)
    if not launched.rank:
        tell_of_changes(chosen, [out if resume else origin.path or ""])
    chosen, shares, pooled = take_opponents(chosen, options, out if resume else None)
    num_rows, total = num_envs * chosen.num_agents, steps or given.total_steps
    begin: dict[str, object] = {"compile": os.environ.get(COMPILE_VARIABLE) or "background"}
    start = settings_of_run(out) if resume else begin | own.settings_for(num_rows, total)
    asked = given.applied(origin.start(chosen, start))
    config = origin.checked(changed_config(asked, {"total_steps": steps, **options}))
    if resume:
        words = "; ".join([f"resuming {out}", *given.changes(start, config)])
    else:
        require_unused(out)
        words = f"settings for {own.kind}: {num_envs} environments, {config.summary()}"
    require_writable(out)
    _announce(launched, words, [*told(shares), *origin.changes(chosen)])
    about = {"options": given.stored, "opponents": shares, "game": game, "num_envs": num_envs}
    about["command"] = sys.argv  # of this process: on a cluster others train
    kept, watching = KeptReplays.of(chosen, out, replays), tuple(map(load_callback, callbacks))
    run = PlannedRun(
        *(chosen, num_envs, num_workers, step_timeout_s, on_error, config, out, resume),
        *(about | about_game(chosen), kept, tuple(record), watching, pooled, origin, evaluation),
        until=until,
    )
    _train_and_report(run, launched, ray, [game, *_repeated("--set", settings)])


def _train_and_report(
    run: PlannedRun, launched: Launched, ray: RayOptions, game_words: Sequence[str]
) -> None:
    """Trains, prints the result on rank 0, and exits where the run did not end by itself."""
    result, code = train_here(run, launched) if ray.address is None else train_on_ray(run, ray)
    if not launched.rank:
        words = shlex.join([*game_words, "--agent", str(run.out)])
        _report(result, words, run.out, Console())
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


def _report(result: TrainResult, play_words: str, out: Path, console: Console) -> None:
    progress, place = result.progress, shlex.quote(str(out))
    play = f"play: entity-env play {play_words}"
    resume = f"resume: entity-env train --resume --out {place}"
    if result.is_interrupted:
        echo(f"saved at step {progress.step:,}; {resume}; {play}")
        _tell_of_best(out)
        return
    if console.is_terminal:  # a log has no use for drawings
        _show_curve(out, console)
    learnt = "no episode has ended yet"
    if math.isfinite(progress.mean_reward):
        figures = progress.mean_reward, progress.std_reward, progress.window
        reward = MeanReward.of(*figures, unfinished=progress.unfinished)
        learnt = f"mean episode reward {reward.words}"
    echo(f"trained {progress.step:,} steps in {progress.elapsed_s:.0f} s, {learnt}, saved in {out}")
    _tell_of_evaluation(out, progress.step)
    if result.stop_reason:
        echo(f"stopped: {result.stop_reason}; {resume}")
    if late := _compiled_late(result, out):
        echo(late)
    for hint in result.hints:
        echo(f"hint: {hint}")
    if result.hints:
        echo(f"more: {PAGE}")
    echo(play)
    _tell_of_best(out)
    echo(f"curves: entity-env report {place} --out {shlex.quote(str(out / 'report.html'))}")
    echo(f"ship: entity-env export {place} {shlex.quote(out.name + SUFFIX)}")


def _compiled_late(result: TrainResult, out: Path) -> str:
    """Says that compiled code took over in the middle of a run; "" if it did not."""
    step = None
    with suppress(EntityEnvError):
        step = read_about(out).get("compiled_from_step")
    if not step and not result.progress.is_compiling:
        return ""
    ran = f"ran from step {step:,} on" if isinstance(step, int) else "was not ready yet"
    return (
        f"compiled code {ran}, so the same command may give another network: --compile wait "
        f"makes runs repeat bit by bit, and entity-env reproduce {shlex.quote(str(out))} repeats "
        "this one"
    )


def _tell_of_evaluation(out: Path, step: int) -> None:
    """Prints the evaluation at the end of a run, if there was one."""
    with suppress(EntityEnvError):  # `_show_curve` says that it cannot be read
        evaluation = read_run(out).final_evaluation
        if evaluation is not None and evaluation.step == step:
            echo(f"evaluation: mean reward {evaluation.words}")


def _tell_of_best(out: Path) -> None:
    if best := best_words(out):
        echo(best)


def _show_curve(out: Path, console: Console) -> None:
    """Prints the learning curve, if there is one."""
    try:
        curve = read_run(out).curves.get(REWARD)
    except EntityEnvError as error:  # what was learnt is saved all the same
        echo(f"no learning curve: {error}", err=True)
        return
    if curve is not None and len(curve.steps) > 1:
        width = max(_MIN_WIDTH, min(_MAX_WIDTH, console.width - 1))
        is_ascii = console.options.ascii_only
        rows = text_chart(Series("", *curve), x_label="steps", width=width, is_ascii=is_ascii)
        echo("\n".join(("", "mean episode reward", *rows, "")))
