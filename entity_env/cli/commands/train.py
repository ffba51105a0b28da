"""`entity-env train` and `entity-env export`: train an agent, and write it to one file."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from entity_env.agents.ppo import PPOConfig, TrainResult
from entity_env.agents.ppo.config import control_settings, is_flat
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX, write_agent
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.authoring.game import Game
from entity_env.cli.display.train_dashboard import TrainDisplay
from entity_env.cli.load_game import (
    game_errors,
    has_self_play,
    is_batch,
    load_game,
    make_training_env,
)
from entity_env.cli.options import (
    ENVS,
    SEED,
    WORKERS,
    FiniteFloat,
    default_workers,
    game_argument,
    on_error_option,
    set_option,
    step_timeout_option,
)
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.games.azul import AzulTables
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError


@dataclass(frozen=True)
class TrainSettings:
    """Default settings of a training run."""

    config: PPOConfig = field(default_factory=PPOConfig)
    num_envs: int = 128


def _control(**settings: object) -> TrainSettings:
    """Settings of a task with observations of fixed size."""
    num_envs = 16
    return TrainSettings(PPOConfig(**(control_settings(num_envs) | settings)), num_envs)  # type: ignore[arg-type]


# Over a hundred tiles attend to each other, so the network is small. Episodes have about ten steps,
# so later rewards hardly count.
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
_OF_GAMES: Final[Mapping[str, TrainSettings]] = {
    "pixel:grid": _PIXEL,
    "pixel:maze": _PIXEL,
    # Late catches count as much as early ones.
    "pixel:catch": replace(_PIXEL, config=replace(_PIXEL.config, gamma=0.98)),
    "pixel": _PIXEL,
    "cartpole": _control(total_steps=100_000),
    # A push shows its effect within ten steps.
    "pendulum": _control(total_steps=150_000, gamma=0.9),
}

# Without blocks each legal move is scored from its own features, at ten times the speed; see the
# results in `examples/azul`. Games are short, and rewards immediate.
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
    """The default settings for a game."""
    if has_self_play(game):
        return _AZUL
    if is_batch(game):
        return _OF_GAMES.get(game.name, TrainSettings())
    return _control() if is_flat(game.obs_space(), game.action_space()) else TrainSettings()


_PPO_OPTIONS: Final = {
    "seed": "Seed of the run.",
    "learning_rate": "Learning rate of Adam at the start; annealed to 0.",
    "num_steps": "Steps of each environment in a rollout.",
    "minibatch_size": "Decisions in a minibatch.",
    "update_epochs": "Epochs over each rollout.",
    "gamma": "Discount factor, per decision.",
    "gae_lambda": "Lambda of generalized advantage estimation.",
    "ent_coef": "Entropy coefficient at the start; annealed to 0.",
}
_NET_OPTIONS: Final = {
    "d_model": "Size of an entity's embedding.",
    "n_layer": "Transformer blocks.",
    "n_head": "Attention heads per block.",
}
_DEFAULTS: Final = PPOConfig()


def _training_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds an option for each main setting; its value is None if it is not given."""
    for config, texts in ((_DEFAULTS.net, _NET_OPTIONS), (_DEFAULTS, _PPO_OPTIONS)):
        for name, text in reversed(texts.items()):
            default = getattr(config, name)
            number = FiniteFloat() if isinstance(default, float) else click.IntRange(max=2**31 - 1)
            kind = SEED if name == "seed" else number  # `PPOConfig` checks more
            text = f"{text}  [default: {default}]"
            command = click.option(f"--{name.replace('_', '-')}", type=kind, help=text)(command)
    return command


@click.command()
@game_argument
@click.option(
    "--steps",
    type=click.IntRange(min=1, max=10**15),
    help=f"Number of decisions to train on.  [default: {_DEFAULTS.total_steps:,}]",
)
@click.option(
    "--num-envs",
    type=ENVS,
    help=f"Number of environments.  [default: {TrainSettings().num_envs}]",
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
@click.option("--resume", is_flag=True, help="Continue the run in --out from its checkpoint.")
@click.option("--device", help="Device of torch.  [default: cpu]")
@click.option("--num-threads", type=click.IntRange(1, 1024), help="Number of threads of torch.")
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
    """Train an agent for a game with PPO.

    Some games have other defaults than those in brackets. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint and stop; --resume continues with the same settings. Curves are written for
    TensorBoard.
    """
    chosen = load_game(game, settings)
    out = Path("runs", chosen.name) if out is None else out
    _require_text(out)
    own = settings_of(chosen)
    start = _start(out) if resume else own.config.to_json()
    config = _config(start, {"total_steps": steps, **options})
    if not resume:
        _require_unused(out)
    env_words = [] if num_envs is None else ["--num-envs", str(num_envs)]
    num_envs = own.num_envs if num_envs is None else num_envs
    if num_workers is None:  # a batch environment steps faster than a worker can send its arrays
        is_fast = is_batch(chosen) or has_self_play(chosen)
        num_workers = 0 if is_fast else default_workers(num_envs)
    make = partial(make_training_env, chosen, num_envs, num_workers, step_timeout_s, on_error)
    result, code = _train(chosen, make, config, out, resume)
    game_words = [game, *(word for setting in settings for word in ("--set", setting))]
    train_words = [*game_words, *env_words, "--out", str(out), "--resume"]
    _report(result, shlex.join(train_words), shlex.join([*game_words, "--agent", str(out)]), out)
    if code:
        raise SystemExit(code)


def _train(
    game: Game,
    make: Callable[[], VecEnv | AzulTables],
    config: PPOConfig,
    out: Path,
    resume: bool,
) -> tuple[TrainResult, int]:
    """Trains; returns the result and the exit code of the program."""
    with TrainDisplay(f"training {game.name}", Console()) as display:
        # Here, inside the display: importing torch takes seconds.
        from entity_env.agents.ppo import train as train_ppo
        from entity_env.agents.ppo.signals import StoppedBySignal

        with game_errors(game), make() as vec:
            if isinstance(vec, VecEnv):
                display.statistics = vec.statistics
            try:
                return train_ppo(vec, config, out=out, resume=resume, on_update=display), 0
            except StoppedBySignal as stop:
                return stop.result, 128 + stop.signum


def _start(out: Path) -> Mapping[str, object]:
    """The settings of the run whose checkpoint is in `out`, as JSON."""
    found = find_checkpoint(out)
    config = read_header(found).training.get("config", {})
    try:
        return PPOConfig.from_json(config if isinstance(config, dict) else {}).to_json()
    except UsageError as error:
        raise CheckpointError(f"{found} cannot be resumed: {error}") from error


def _config(start: Mapping[str, object], given: Mapping[str, Any]) -> PPOConfig:
    """The settings `start` with the given ones in their place."""
    changed = {name: value for name, value in given.items() if value is not None}
    sizes = {name: changed.pop(name) for name in _NET_OPTIONS if name in changed}
    config = PPOConfig.from_json(start)
    net = config.net
    if sizes:  # those of a RogueNet, which then is wanted
        net = replace(net, **sizes) if isinstance(net, RogueNetConfig) else RogueNetConfig(**sizes)
    return replace(config, net=net, **changed)


def _require_text(out: Path) -> None:
    """Checks that the folder's name is valid UTF-8, which the TensorBoard writer needs."""
    try:
        str(out).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--out must be text in UTF-8, got {shown(str(out))}") from error


def _require_unused(out: Path) -> None:
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


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("agent", type=click.Path(path_type=Path))
def export(checkpoint: Path, agent: Path) -> None:
    """Write the network of CHECKPOINT to one file, AGENT, named *.agent.

    CHECKPOINT is the folder of a checkpoint or training run, of entity-env or enn-trainer, or a
    .roguenet archive. The exported agent needs only numpy to play.
    """
    if agent.suffix != SUFFIX:
        raise UsageError(f"the file must be called *{SUFFIX}, got {agent}")
    weights = read_network(checkpoint)
    try:
        write_agent(agent, weights)
    except OSError as error:
        raise UsageError(f"cannot write {agent}: {error}") from error
    num_parameters = sum(tensor.size for tensor in weights.tensors.values())
    entities = ", ".join(weights.obs_space.entities) or "no entities"
    actions = ", ".join(weights.action_space) or "none"
    size = agent.stat().st_size / 1024
    click.echo(f"{agent}: {num_parameters} numbers, {size:.0f} KiB")
    click.echo(f"sees {entities}; actions {actions}")
