"""`entity-env train` and `entity-env export`: train an agent, and write it to one file."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from rich.console import Console

from entity_env.agents.ppo import PPOConfig, TrainProgress, TrainResult
from entity_env.agents.ppo.advice import PAGE
from entity_env.agents.ppo.config import RESTARTS
from entity_env.agents.ppo.presets import PRESETS, Preset, preset_for
from entity_env.agents.ppo.runs import REWARD, FinalReward, read_run
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX
from entity_env.agents.rogue_net.checkpoints.folder import (
    SUBFOLDER,
    find_checkpoint,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.config import POOLINGS, RelposEncodingConfig
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
    failures_option,
    game_argument,
    on_error_option,
    ray_option,
    set_option,
    step_timeout_option,
)
from entity_env.errors import CheckpointError, EntityEnvError, ReplayError, UsageError, shown
from entity_env.games.azul import AzulTables
from entity_env.replay.writer import settings_to_json
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError
from entity_env.vec.training_replays import KINDS, TrainingReplays
from entity_env.views.chart import Series, text_chart

if TYPE_CHECKING:
    from entity_env.agents.ppo.trainer import RunReplays
    from entity_env.cluster.learners import RunControl


_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 79


def preset_of(game: Game) -> Preset:
    """The default settings for a game."""
    is_own = is_batch(game) or has_self_play(game)
    name = game.name if is_own else None
    return preset_for(game.obs_space(), game.action_space(), game=name)


def _defaults(game: Game) -> dict[str, object]:
    """The settings of a game that have a default."""
    found = {name: parameter.default for name, parameter in game.parameters.items()}
    return {name: each for name, each in found.items() if each is not Parameter.empty}


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
            if name not in _KEPT:
                self.fail(f"{name!r} is none of {', '.join(_KEPT)}.", param, ctx)
        return names


_KEPT: Final = (*KINDS, "failed")
_INTEGER: Final = click.IntRange(max=2**31 - 1)
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
@click.option("--resume", is_flag=True, help="Continue the run in --out from its checkpoint.")
@click.option("--device", help="Device of torch.  [default: cpu]")
@click.option("--num-threads", type=click.IntRange(1, 1024), help="Number of threads of torch.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Defaults for a kind of environment.  [default: the one that suits the game]",
)
@ray_option
@click.option(
    "--num-learners",
    type=click.IntRange(1, 10**5),
    help="With --ray: processes that learn together, each with a share of the environments.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(0, 10**6),
    help="With --ray: how often they start again from the last checkpoint when one died.",
)
@step_timeout_option
@on_error_option
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
    type=click.IntRange(0, 10**6),
    default=0,
    help="Number of moments of the run at which an evaluation episode is played, always from the "
    "same start, and kept in OUT/replays.  [default: 0]",
)
@_training_options
@set_option
def train(
    game: str,
    steps: int | None,
    num_envs: int | None,
    num_workers: int | None,
    out: Path | None,
    resume: bool,
    preset: str | None,
    address: str | None,
    num_learners: int | None,
    max_failures: int | None,
    step_timeout_s: float | None,
    on_error: OnError,
    failures: Path | None,
    keep: tuple[str, ...] | None,
    moments: int,
    settings: Sequence[str],
    **options: object,
) -> None:
    """Train an agent for a game with PPO.

    Some games have other defaults than those in brackets. Ctrl-C, SIGTERM and SIGHUP save a
    checkpoint and stop; --resume continues with the same settings. Curves are written to
    curves.jsonl, and for TensorBoard where it is installed. Processes that torchrun starts learn
    together, and so do those of --ray.
    """
    launched = _Launched.found()
    if address is None and (num_learners or max_failures):
        raise UsageError("--num-learners and --max-failures are of --ray: name a cluster, or auto")
    chosen = load_game(game, settings)
    out = Path("runs", chosen.name) if out is None else out
    _require_text(out)
    own = preset_of(chosen) if preset is None else PRESETS[preset]
    env_words = [] if num_envs is None else ["--num-envs", str(num_envs)]
    num_envs = own.num_envs if num_envs is None else num_envs
    resume = resume or launched.has_checkpoint(out)
    start = _start(out) if resume else own.settings_for(num_envs * chosen.num_agents, steps)
    config = _config(start, {"total_steps": steps, **options})
    if not resume:
        _require_unused(out)
        if not launched.rank:
            words = f"settings for {own.kind}: {num_envs} environments, {config.summary()}"
            click.echo(words + (f", on {launched.size} ranks" if launched.size > 1 else ""))
    about = {"game": game, "num_envs": num_envs, **_about(chosen)}
    kept = _Kept.of(chosen, out, keep, failures, moments)
    run = _Run(
        chosen, num_envs, num_workers, step_timeout_s, on_error, config, out, resume, about, kept
    )
    if address is None:
        result, code = _train(run, launched)
    else:
        result, code = _train_on_ray(run, address, num_learners or 1, max_failures or 0)
    game_words = [game, *(word for setting in settings for word in ("--set", setting))]
    train_words = [*game_words, *env_words, "--out", str(out), "--resume"]
    if not launched.rank:
        play_words = shlex.join([*game_words, "--agent", str(out)])
        _report(result, shlex.join(train_words), play_words, out, Console())
    if code:
        raise SystemExit(code)


def _about(game: Game) -> dict[str, object]:
    """What `run.json` says of a game, besides its name."""
    return {"settings": {**_defaults(game), **game.settings}, "num_agents": game.num_agents}


class _Launched(NamedTuple):
    """Place among the processes that torchrun or Ray Train started, from its variables."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    restarts: int = 0

    @classmethod
    def found(cls) -> _Launched:
        """The place of this process; of the only one, if it was started by itself."""
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return cls()
        defaults = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", RESTARTS: "0"}
        texts = {name: os.environ.get(name, default) for name, default in defaults.items()}
        given = ", ".join(f"{name}={text}" for name, text in texts.items())
        if not all(text.isdecimal() for text in texts.values()):
            raise UsageError(f"the variables of a launcher must be integers, got {given}")
        values = cls(*map(int, texts.values()))
        if values.rank >= values.size:
            raise UsageError(f"RANK must be below WORLD_SIZE, got {given}")
        return values

    def has_checkpoint(self, out: Path) -> bool:
        """Whether the ranks were started again, and have something to go on from."""
        return self.restarts > 0 and (out / SUBFOLDER).exists()

    def share(self, num_envs: int) -> int:
        """The number of environments of this rank."""
        if num_envs < self.size:
            raise UsageError(
                f"--num-envs must be at least the number of ranks, {self.size}, got {num_envs}"
            )
        return num_envs // self.size + (self.rank < num_envs % self.size)


class _Kept(NamedTuple):
    """Which replays to keep: kinds of `TrainingReplays`, folder of failures, evaluations."""

    kinds: tuple[str, ...]
    failures: Path | None
    moments: int

    @classmethod
    def of(
        cls,
        game: Game,
        out: Path,
        keep: tuple[str, ...] | None,
        failures: Path | None,
        moments: int,
    ) -> _Kept:
        """What the options ask for; all that can be kept by default."""
        if is_batch(game) or has_self_play(game):
            if keep or failures is not None:
                raise UsageError(
                    f"{game.name} is trained in a batch environment, which keeps no actions: "
                    "leave out --keep and --failures"
                )
            return cls((), None, moments)
        names = _KEPT if keep is None else keep
        try:
            settings_to_json(game)
        except ReplayError:
            if keep or failures is not None or moments:
                raise
            return cls((), None, 0)
        if failures is None and "failed" in names:
            failures = out / "failures"
        return cls(tuple(name for name in names if name in KINDS), failures, moments)


class _Run(NamedTuple):
    """What the command line asks for."""

    game: Game
    num_envs: int
    num_workers: int | None
    step_timeout_s: float | None
    on_error: OnError
    config: PPOConfig
    out: Path
    resume: bool
    about: Mapping[str, object]
    kept: _Kept

    def train(
        self,
        vec: VecEnv | AzulTables,
        on_update: Callable[[TrainProgress], None],
        launched: _Launched,
        *,
        resume: bool,
    ) -> TrainResult:
        """Trains on environments."""
        from entity_env.agents.ppo import train as train_ppo

        return train_ppo(
            vec,
            self.config,
            out=self.out,
            resume=resume,
            on_update=on_update,
            about=self.about,
            replays=self.replays(launched, vec),
        )

    def make_env(self, launched: _Launched) -> AbstractContextManager[VecEnv | AzulTables]:
        """The environments of a rank."""
        num_envs, num_workers = launched.share(self.num_envs), self.num_workers
        if num_workers is None:
            # A batch environment steps faster than a worker can send its arrays.
            is_fast = is_batch(self.game) or has_self_play(self.game)
            num_workers = 0 if is_fast else default_workers(num_envs, launched.local_size)
        return make_training_env(
            self.game,
            num_envs,
            num_workers,
            self.step_timeout_s,
            self.on_error,
            self.kept.failures,
        )

    def replays(self, launched: _Launched, vec: VecEnv | AzulTables) -> RunReplays | None:
        """What keeps replays, on rank 0."""
        kinds, moments = self.kept.kinds, self.kept.moments
        if launched.rank or not (kinds or moments):
            return None
        of = vec if isinstance(vec, VecEnv) and kinds else None
        return TrainingReplays(
            self.game, self.out / "replays", of, keep=kinds, moments=moments, seed=self.config.seed
        )


def _train(run: _Run, launched: _Launched) -> tuple[TrainResult, int]:
    """Trains; returns the result and the exit code of the program."""
    title, config = f"training {run.game.name}", run.config
    with TrainDisplay(title, Console(quiet=launched.rank > 0)) as display:
        # Here, inside the display: importing torch takes seconds.
        from entity_env.agents.ppo import train as train_ppo  # noqa: F401 - says what is missing
        from entity_env.agents.ppo.peers import launched_group
        from entity_env.agents.ppo.signals import StoppedBySignal

        group = launched_group(launched.size, config)
        with game_errors(run.game), group, run.make_env(launched) as vec:
            if isinstance(vec, VecEnv):
                display.statistics = vec.statistics
            try:
                return run.train(vec, display, launched, resume=run.resume), 0
            except StoppedBySignal as stop:
                return stop.result, 128 + stop.signum


def _train_on_ray(
    run: _Run, address: str, num_learners: int, max_failures: int
) -> tuple[TrainResult, int]:
    """Trains in several processes of a Ray cluster; returns the same."""
    _Launched(size=num_learners).share(run.num_envs)  # refuses too few, before anything starts
    with TrainDisplay(f"training {run.game.name}", Console()) as display:
        from entity_env.agents.ppo.signals import StoppedBySignal
        from entity_env.cluster.learners import run_learners

        run = run._replace(out=run.out.resolve(), num_workers=run.num_workers or 0)
        with game_errors(run.game):
            try:
                result = run_learners(
                    partial(_learn, run, num_learners),
                    address=address,
                    num_learners=num_learners,
                    out=run.out,
                    max_failures=max_failures,
                    on_update=display,
                    use_gpu=run.config.device.startswith("cuda"),
                    timeout_s=run.config.peer_timeout_s,
                )
            except StoppedBySignal as stop:
                return stop.result, 128 + stop.signum
    return result, 0


def _learn(run: _Run, num_learners: int, control: RunControl) -> TrainResult:
    """Trains as one of the processes on a Ray cluster."""

    def on_update(progress: TrainProgress) -> None:
        control.report(progress)
        if control.stop_requested():
            raise KeyboardInterrupt

    launched = _Launched(control.rank, num_learners, restarts=control.restarts)
    resume = run.resume or launched.has_checkpoint(run.out)
    with run.make_env(launched) as vec:
        return run.train(vec, on_update, launched, resume=resume)


def _start(out: Path) -> dict[str, object]:
    """The settings of the run whose checkpoint is in `out`."""
    found = find_checkpoint(out)
    config = read_header(found).training.get("config", {})
    try:
        run = PPOConfig.from_json(config if isinstance(config, dict) else {})
    except UsageError as error:
        raise CheckpointError(f"{found} cannot be resumed: {error}") from error
    return {each.name: getattr(run, each.name) for each in fields(run)}


def _config(start: Mapping[str, Any], given: Mapping[str, Any]) -> PPOConfig:
    """The settings `start` with the given ones in their place."""
    changed = {name: value for name, value in given.items() if value is not None}
    sizes = {name: changed.pop(name) for name in _NET_OPTIONS if name in changed}
    config = PPOConfig(**start)
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


def _report(
    result: TrainResult, train_words: str, play_words: str, out: Path, console: Console
) -> None:
    progress, place = result.progress, shlex.quote(str(out))
    play = f"play: entity-env play {play_words}"
    if result.is_interrupted:
        resume = f"resume: entity-env train {train_words}"
        click.echo(f"saved at step {progress.step:,}; {resume}; {play}")
        return
    if console.is_terminal:  # a log has no use for drawings
        _show_curve(out, console)
    learnt = "no episode has ended yet"
    if math.isfinite(progress.mean_reward):
        reward = FinalReward.of(progress.mean_reward, progress.std_reward, progress.window)
        learnt = f"mean episode reward {reward} (95 %, {reward.num_episodes} episodes)"
    click.echo(
        f"trained {progress.step:,} steps in {progress.elapsed_s:.0f} s, {learnt}, saved in {out}"
    )
    for hint in result.hints:
        click.echo(f"hint: {hint}")
    if result.hints:
        click.echo(f"more: {PAGE}")
    click.echo(play)
    click.echo(f"curves: entity-env report {place} --out {shlex.quote(str(out / 'report.html'))}")
    click.echo(f"ship: entity-env export {place} {shlex.quote(out.name + SUFFIX)}")


def _show_curve(out: Path, console: Console) -> None:
    """Prints the learning curve, if there is one."""
    try:
        curve = read_run(out).curves.get(REWARD)
    except EntityEnvError as error:  # what was learnt is saved all the same
        click.echo(f"no learning curve: {error}", err=True)
        return
    if curve is not None and len(curve.steps) > 1:
        width = max(_MIN_WIDTH, min(_MAX_WIDTH, console.width - 1))
        is_ascii = console.options.ascii_only
        rows = text_chart(Series("", *curve), x_label="steps", width=width, is_ascii=is_ascii)
        click.echo("\n".join(("", "mean episode reward", *rows, "")))
