"""`entity-env train`: trains an agent for a game, with its progress in view."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from entity_env.agents.ppo import PPOConfig, TrainResult
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.authoring.game import Game
from entity_env.cli.display.train_dashboard import TrainDisplay
from entity_env.cli.error_messages import failures_of
from entity_env.cli.load_game import find_game
from entity_env.cli.make_vec_env import is_batch, is_tables, to_learn_from
from entity_env.cli.options import (
    ENVS,
    SEED,
    WORKERS,
    FiniteRange,
    default_workers,
    game_argument,
    on_error_option,
    set_option,
    step_timeout_option,
)
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.games.azul import AzulTables
from entity_env.vec import VecEnv
from entity_env.vec.in_process.base import OnError


@dataclass(frozen=True)
class TrainSettings:
    """What a training run begins with.

    Args:
        config: of the trainer.
        num_envs: copies of the game.
    """

    config: PPOConfig = field(default_factory=PPOConfig)
    num_envs: int = 128


# One entity of a few numbers needs but a small network. Returns of hundreds, or of minus hundreds,
# are far from the value of a new network: it has to move by more than a clipped loss lets it, and
# weighs little beside the policy.
_SMALL: Final = RogueNetConfig(d_model=32, n_layer=1, n_head=2)
# More than a hundred tiles attend to each other, so the network is as small as can be. Episodes of
# some ten steps: what comes later hardly counts.
_PIXEL: Final = TrainSettings(
    PPOConfig(
        total_steps=40_000,
        net=RogueNetConfig(d_model=16, n_layer=1, n_head=1),
        num_steps=16,
        minibatch_size=128,
        update_epochs=4,
        learning_rate=0.003,
        gamma=0.95,
    ),
    num_envs=32,
)
_OWN: Final[Mapping[str, TrainSettings]] = {
    "pixel:grid": _PIXEL,
    "pixel:maze": _PIXEL,
    # What is caught late counts as much.
    "pixel:catch": replace(_PIXEL, config=replace(_PIXEL.config, gamma=0.98)),
    "pixel": _PIXEL,
    "cartpole": TrainSettings(
        PPOConfig(
            total_steps=200_000,
            net=_SMALL,
            num_steps=32,
            minibatch_size=256,
            update_epochs=4,
            ent_coef=0.0,
            clip_vloss=False,
            vf_coef=0.05,
        ),
        num_envs=32,
    ),
    "pendulum": TrainSettings(
        PPOConfig(
            total_steps=300_000,
            net=_SMALL,
            num_steps=64,
            minibatch_size=256,
            update_epochs=6,
            learning_rate=0.002,
            gamma=0.9,
            ent_coef=0.0,
            clip_vloss=False,
            vf_coef=0.01,
        ),
        num_envs=16,
    ),
}

# Without blocks every option is weighed by what it tells of itself, at ten times the speed, and
# `examples/azul` has what that comes to. A game is short, and its rewards come as they are earned.
_AZUL: Final = TrainSettings(
    PPOConfig(
        total_steps=1_200_000,
        net=RogueNetConfig(d_model=64, n_layer=0, n_head=2, d_qk=32),
        learning_rate=0.003,
        gamma=0.995,
        gae_lambda=0.9,
        ent_coef=0.005,
        clip_vloss=False,
        max_grad_norm=1.0,
    ),
    num_envs=128,
)


def settings_of(game: Game) -> TrainSettings:
    """The settings of a game, or those of all games without any of their own."""
    if is_tables(game):
        return _AZUL
    return _OWN.get(game.name, TrainSettings()) if is_batch(game) else TrainSettings()


_Command = TypeVar("_Command", bound=Callable[..., Any])

_PPO_OPTIONS: Final = {
    "seed": "Makes the run repeat itself.",
    "learning_rate": "Step size of Adam at the start; falls to 0.",
    "num_steps": "Steps of every copy between two updates.",
    "minibatch_size": "Decisions in one step of the optimizer.",
    "update_epochs": "How often each rollout is learnt from.",
    "gamma": "Discount of the reward, a decision.",
    "gae_lambda": "Weight of longer returns in the advantage.",
    "ent_coef": "Reward for entropy at the start; falls to 0.",
}
_NET_OPTIONS: Final = {
    "d_model": "Numbers that describe an entity in the network.",
    "n_layer": "Blocks of the network.",
    "n_head": "Attention heads in each block.",
}
_DEFAULTS: Final = PPOConfig()


def _training_options(command: _Command) -> _Command:
    """Adds an option for each of the main settings; one that is not given is None."""
    for config, texts in ((_DEFAULTS.net, _NET_OPTIONS), (_DEFAULTS, _PPO_OPTIONS)):
        for name, text in reversed(texts.items()):
            default = getattr(config, name)
            option = click.option(
                f"--{name.replace('_', '-')}",
                type=_type_of(name, default),
                help=f"{text}  [{default}]",
            )
            command = option(command)
    return command


def _type_of(name: str, default: object) -> click.ParamType[Any]:
    """Of an option; what a setting may be within these bounds, `PPOConfig` knows."""
    if name == "seed":
        return SEED
    return FiniteRange() if isinstance(default, float) else click.IntRange(max=2**31 - 1)


@click.command()
@game_argument
@click.option(
    "--steps",
    type=click.IntRange(min=1, max=10**15),
    help=f"Decisions to learn from.  [{_DEFAULTS.total_steps:,}]",
)
@click.option(
    "--num-envs",
    type=ENVS,
    help=f"Copies of the game.  [{TrainSettings().num_envs}]",
)
@click.option(
    "--num-workers",
    type=WORKERS,
    help="Processes that play them; 0 = none.  [one a core; 0 for batch environments]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the checkpoint and the curves.  [runs/GAME]",
)
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in --out.")
@click.option("--device", help="Where torch computes.  [cpu]")
@click.option(
    "--num-threads", type=click.IntRange(1, 1024), help="Threads that torch computes with."
)
@step_timeout_option
@on_error_option
@_training_options
@set_option
def train(
    game: str,
    steps: int | None,
    num_envs: int | None,
    num_workers: int | None,
    out: Path | None,
    resume: bool,
    step_timeout_s: float | None,
    on_error: OnError,
    settings: Sequence[str],
    **options: object,
) -> None:
    """Train an agent for a game.

    What is not given is as in brackets, but for games that have settings of their own. Ctrl-C,
    SIGTERM and SIGHUP save and stop; --resume goes on with the same settings. Curves are written
    for TensorBoard.
    """
    chosen = find_game(game, settings)
    out = Path("runs", chosen.name) if out is None else out
    _require_text(out)
    own = settings_of(chosen)
    start = _start(out) if resume else own.config.to_json()
    config = _config(start, {"total_steps": steps, **options})
    if not resume:
        _require_unused(out)
    copies = [] if num_envs is None else ["--num-envs", str(num_envs)]
    num_envs = own.num_envs if num_envs is None else num_envs
    if num_workers is None:  # a batch steps faster than it is handed over
        is_fast = is_batch(chosen) or is_tables(chosen)
        num_workers = 0 if is_fast else default_workers(num_envs)
    copy = partial(to_learn_from, chosen, num_envs, num_workers, step_timeout_s, on_error)
    result, code = _train(chosen, copy, config, out, resume)
    game_words = [game, *(word for setting in settings for word in ("--set", setting))]
    train_words = [*game_words, *copies, "--out", str(out), "--resume"]
    _report(result, shlex.join(train_words), shlex.join([*game_words, "--agent", str(out)]), out)
    if code:
        raise SystemExit(code)


def _train(
    game: Game,
    copy: Callable[[], VecEnv | AzulTables],
    config: PPOConfig,
    out: Path,
    resume: bool,
) -> tuple[TrainResult, int]:
    """Trains; what that left, and the exit code of the program."""
    with TrainDisplay(f"training {game.name}", Console()) as display:
        # Here: they take torch a second.
        from entity_env.agents.ppo.signals import StoppedBySignal
        from entity_env.agents.ppo.trainer import train as train_ppo

        with failures_of(game), copy() as vec:
            if isinstance(vec, VecEnv):
                display.statistics = vec.statistics
            try:
                return train_ppo(vec, config, out=out, resume=resume, on_update=display), 0
            except StoppedBySignal as stop:
                return stop.result, 128 + stop.signum


def _start(out: Path) -> Mapping[str, object]:
    """The settings of the run whose checkpoint is in `out`.

    Raises:
        CheckpointError: there is none, or its settings are none of ours.
    """
    found = find_checkpoint(out)
    config = read_header(found).training.get("config", {})
    try:
        return PPOConfig.from_json(config if isinstance(config, dict) else {}).to_json()
    except UsageError as error:
        raise CheckpointError(f"{found} cannot be resumed: {error}") from error


def _config(start: Mapping[str, object], given: Mapping[str, Any]) -> PPOConfig:
    """The settings of a run: those it starts from, changed by those that were given.

    Raises:
        UsageError: a setting that cannot work.
    """
    changed = {name: value for name, value in given.items() if value is not None}
    sizes = {name: changed.pop(name) for name in _NET_OPTIONS if name in changed}
    config = PPOConfig.from_json(start)
    net: RogueNetConfig = replace(config.net, **sizes)
    return replace(config, net=net, **changed)


def _require_text(out: Path) -> None:
    """Checks that the folder's name is text, which the curves' writer needs.

    Raises:
        UsageError: it has bytes that are no UTF-8.
    """
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out must be text in UTF-8, got {shown(str(out))}") from error


def _require_unused(out: Path) -> None:
    """Checks that no training run would be overwritten, nor anything else.

    Raises:
        UsageError: there is a checkpoint in `out`, or something that is none in its place.
    """
    try:
        require_place(out / SUBFOLDER)
    except UsageError:
        raise
    except (OSError, ValueError) as error:  # a name that is too long, a folder one may not read
        raise UsageError(f"cannot train in {out}: {error}") from error
    try:
        found = find_checkpoint(out)
    except CheckpointError:
        return
    raise UsageError(
        f"{found} holds a trained agent: go on training it with --resume, or choose another --out"
    )


def _report(result: TrainResult, train_words: str, play_words: str, out: Path) -> None:
    progress = result.progress
    play = f"play: entity-env play {play_words}"
    if result.is_interrupted:
        resume = f"resume: entity-env train {train_words}"
        click.echo(f"saved at step {progress.step:,}; {resume}; {play}")
        return
    learnt = "no episode has ended yet"
    if math.isfinite(progress.mean_reward):
        learnt = f"mean episode reward {progress.mean_reward:.3f}"
    click.echo(
        f"trained {progress.step:,} steps in {progress.elapsed_s:.0f} s, {learnt}, saved in {out}"
    )
    click.echo(play)
    click.echo(f"curves: tensorboard --logdir {shlex.quote(str(out))}")
