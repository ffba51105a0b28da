"""A training run as planned by the command line: ranks, environments, replays, settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from entity_env.agents.ppo import Callback, PPOConfig, TrainProgress, TrainResult, TrainState
from entity_env.agents.rogue_net import RogueNetConfig, read_network
from entity_env.agents.rogue_net.adapt import renamed
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER, find_checkpoint, read_header
from entity_env.agents.rogue_net.config import require_same_net
from entity_env.agents.rogue_net.transfer import require_transferable
from entity_env.agents.rogue_net.weights import Weights
from entity_env.agents.training.presets import (
    PROBE_ENVS,
    Defaults,
    GameFigures,
    Preset,
)
from entity_env.agents.training.process import RESTARTS
from entity_env.agents.training.schedule import values_of
from entity_env.agents.training.tracking.recorders import RECORDERS
from entity_env.agents.training.tracking.runs import RUN_FILE, read_run
from entity_env.agents.training.tracking.time_limit import TIME_FRACTION
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import no_exits, summary_of
from entity_env.authoring.load_module import load_module, split_file_name
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import Console
from entity_env.cli.display.train_dashboard import TrainDisplay
from entity_env.cli.evaluation import EvaluationPlan
from entity_env.cli.game_errors import game_errors, load_error
from entity_env.cli.load_game import nearest
from entity_env.cli.named import remember
from entity_env.cli.opponents import make_pool
from entity_env.cli.options import (
    CopyOptions,
    Failures,
    RayAddress,
    Renames,
    Steps,
    default_workers,
    names_of,
)
from entity_env.core.validation import Range, num_cores
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import CheckpointError, ReplayError, UsageError, shown
from entity_env.interrupts import INTERRUPTED
from entity_env.replay.training_replays import KINDS, TrainingReplays
from entity_env.replay.writer import settings_to_json
from entity_env.vec import VecEnv
from entity_env.vec.game_training import is_batch, is_trained_in_arrays, make_training_env
from entity_env.vec.options import OnError

if TYPE_CHECKING:
    from entity_env.agents.training.network import MakePolicy
    from entity_env.cluster.learners import RunControl

COMPILE_VARIABLE: Final = "ENTITY_ENV_COMPILE"
"""Environment variable with the default of --compile."""
KEPT: Final = (*KINDS, "failed")
"""Kinds of replays that a run can keep."""


def load_callback(name: str) -> type[Callback]:
    """The subclass of `Callback` that `FILE.py:CLASS` names; raises if there is none."""
    path, wanted = split_file_name(name) or (Path(), None)
    if wanted is None:
        raise UsageError(f"--callback needs FILE.py:CLASS, got {shown(name)}")
    remember(path)
    try:
        module = load_module(path)
    except BaseException as error:
        raise load_error(path, error) from error
    classes = {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Callback) and each is not Callback
    }
    if wanted not in classes:
        hint = nearest(wanted, classes) or (f"; it has {', '.join(classes)}" if classes else "")
        raise UsageError(f"{path} has no class {wanted!r} that derives from Callback{hint}")
    return classes[wanted]


class _RememberRun(Callback):
    """Records a run's folder as created here, so what its `run.json` names counts as named."""

    def __init__(self) -> None:
        self._file: Path | None = None

    def on_start(self, state: TrainState) -> None:
        if state.out is not None and not state.rank:
            self._file = state.out / RUN_FILE
            remember(self._file)

    def finish(self) -> None:
        """Call it when `train` returns: the file has changed, it now says how the run ended."""
        if self._file is not None:
            remember(self._file)


class _StopAtStep(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_start(self, state: TrainState) -> None:
        state.stop_at(self._step)

    def on_update(self, state: TrainState) -> None:
        if self._step <= state.progress.step < state.progress.total:
            state.stop(f"step {self._step:,} is reached")


class _TimeOf(Callback):
    """Lets a run follow the time of another run, update by update."""

    def __init__(self, path: Path) -> None:
        curve = read_run(path).curves.get(TIME_FRACTION)
        self._left = iter([] if curve is None else curve.values.tolist())

    def on_start(self, state: TrainState) -> None:
        self.on_update(state)

    def on_update(self, state: TrainState) -> None:
        fraction = next(self._left, None)
        if fraction is not None:
            state.set_time_fraction(fraction)


def _made(callback: type[Callback]) -> Callback:
    try:
        with no_exits(f"--callback {callback.__name__}: its constructor"):
            return callback()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"--callback {callback.__name__}: its constructor, called with nothing, raised "
            + summary_of(error)
        ) from error


class Launched(NamedTuple):
    """Place among the processes that torchrun or Ray Train started, from environment variables."""

    rank: int = 0
    size: int = 1
    local_size: int = 1
    restarts: int = 0

    @classmethod
    def found(cls) -> Launched:
        """The place of this process, also if it is the only one."""
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
        """True if the ranks were restarted, and can continue from a checkpoint."""
        return self.restarts > 0 and (out / SUBFOLDER).exists()

    def share(self, num_envs: int) -> int:
        if num_envs < self.size:
            raise UsageError(
                f"--num-envs must be at least the number of ranks, {self.size}, got {num_envs}"
            )
        return num_envs // self.size + (self.rank < num_envs % self.size)


def _kept_names(text: str) -> tuple[str, ...]:
    """Kinds of replays to keep: `best,failed`; `none`."""
    names = tuple(name.strip() for name in text.split(",")) if text != "none" else ()
    for name in names:
        if name not in KEPT:
            raise ValueError(f"{name!r} is not one of {', '.join(KEPT)}")
    return names


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The replays that a run keeps."""

    keep: Annotated[
        tuple[str, ...] | None,
        CliOption(
            metavar="best,worst,failed", default="all that the game allows", read=_kept_names
        ),
    ] = None
    """Replays to keep: the best and the worst episode in OUT/replays, failed episodes in --failures
    (by default OUT/failures). none keeps no replays."""
    failures: Failures = None
    moments: Annotated[int, Range(0, 10**6), CliOption(name="--replays")] = 0
    """Number of times in the run that an evaluation episode, always from the same start, is played
    and kept in OUT/replays."""


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """An earlier end of a run, and the times of another run for its schedules."""

    until: Annotated[Steps | None, CliOption(metavar="STEP")] = None
    """End at this step, with an update. Schedules still follow --steps."""
    time_of: Annotated[Path | None, CliOption(metavar="RUN")] = None
    """Follow the times of RUN, a run with --max-time, update by update, as reproduce does."""


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """A Ray cluster to train on."""

    address: RayAddress = None
    num_learners: Annotated[int | None, Range(1, 10**5)] = None
    """With --ray: processes that train together, each with a share of the environments."""
    max_failures: Annotated[int | None, Range(0, 10**6)] = None
    """With --ray: how often training restarts from the last checkpoint after a process dies."""

    def __post_init__(self) -> None:
        if self.address is None and (self.num_learners or self.max_failures):
            raise UsageError(
                "--num-learners and --max-failures go with --ray: add --ray ADDRESS, or --ray auto"
            )


class KeptReplays(NamedTuple):
    """Replays to keep: kinds for `TrainingReplays`, folder of failures, number of moments."""

    kinds: tuple[str, ...]
    failures: Path | None
    moments: int

    @classmethod
    def of(cls, game: Game, out: Path, options: ReplayOptions) -> KeptReplays:
        """As requested; by default, everything that can be kept."""
        keep, failures, moments = options.keep, options.failures, options.moments
        if is_trained_in_arrays(game):
            if keep or failures is not None:
                raise UsageError(
                    f"{game.name} is trained in a batch environment, which keeps no actions: "
                    "leave out --keep and --failures"
                )
            return cls((), None, moments)
        names = KEPT if keep is None else keep
        try:
            settings_to_json(game)
        except ReplayError:
            if keep or failures is not None or moments:
                raise
            return cls((), None, 0)
        if failures is None and "failed" in names:
            failures = out / "failures"
        return cls(tuple(name for name in names if name in KINDS), failures, moments)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The starting point of a new run: a trained network, or none."""

    init_from: Path | None = None
    """Start from the network of a run, a checkpoint or a *.agent file. Its size is kept, and the
    defaults of --learning-rate and --ent-coef are smaller. OUT/best is never worse than this
    network."""
    adapt: bool = False
    """With --init-from, if the game has changed: new parts start untrained, removed parts are
    dropped."""
    rename: Renames = ()
    stay_close: Annotated[
        float | None, CliOption(default="0.2, falling to 0 by half of the run", of=PPOConfig)
    ] = None
    """With --init-from: weight of the divergence from that network."""

    def require(self, resume: bool) -> None:
        """Raises `UsageError` for options that exclude each other."""
        if self.init_from is None and self.adapt:
            raise UsageError("--adapt goes with --init-from: name the run to start from")
        if self.init_from is None and self.rename:
            raise UsageError("--rename goes with --init-from: name the run to start from")
        if self.init_from is not None and resume:
            raise UsageError(
                "--init-from begins a new run, --resume continues the run in --out: leave out "
                "one of them"
            )

    @property
    def aim(self) -> str:
        return "settings" if self.init_from is None else "fine-tuning settings"

    @cached_property
    def _weights(self) -> Weights:
        weights, names = read_network(self.init_from or ""), names_of(self.rename)
        return renamed(weights, names) if names else weights

    def changes(self, game: Game) -> list[str]:
        """Additions and removals in the game since the network was trained, one sentence each.

        Raises:
            CheckpointError: there is no network, or it does not fit the game.
        """
        if self.init_from is None:
            return []
        spaces = game.obs_space(), game.action_space()
        found = require_transferable(
            self._weights, spaces, adapt=self.adapt, where=str(self.init_from)
        )
        return [f"from {self.init_from}: {sentence}" for sentence in found]

    @property
    def network(self) -> dict[str, Any]:
        """The setting "net" of the network to start from, if any."""
        return {} if self.init_from is None else {"net": self._weights.config}

    def start(self, game: Game, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings, adjusted for fine-tuning if there is a network to start from.

        Raises:
            CheckpointError: as in `changes`.
        """
        if self.init_from is None:
            return start
        self.changes(game)  # check first
        tuned = PPOConfig(**start).for_fine_tuning()
        changed = {
            name: getattr(tuned, name) for name in ("learning_rate", "ent_coef", "stay_close")
        }
        return {**start, **changed, **self.network}

    def checked(self, config: PPOConfig, resume: bool) -> PPOConfig:
        """The settings, unchanged.

        Raises:
            CheckpointError: they require another network than that of --init-from.
            UsageError: a new run has no network to stay close to.
        """
        if self.init_from is None and not resume and any(values_of(config.stay_close)):
            raise UsageError("--stay-close goes with --init-from: name the run to stay close to")
        if self.init_from is not None:
            require_same_net(self._weights.config, config.net, str(self.init_from))
        return config

    def make_policy(self, config: PPOConfig) -> MakePolicy | None:
        """A function that makes the network; None = an untrained one, by the settings."""
        if self.init_from is None:
            return None
        # Here, inside the display: importing torch takes seconds.
        from entity_env.agents.rogue_net import initialized_from

        net = config.net
        if isinstance(net, RogueNetConfig):
            net = replace(net, value_scale=config.norm_returns)
        names = names_of(self.rename)
        return initialized_from(self.init_from, adapt=self.adapt, names=names, net=net)

    def resolved(self) -> Origin:
        """With absolute paths, for other working folders."""
        return self if self.init_from is None else replace(self, init_from=self.init_from.resolve())


def defaults_of(
    game: Game,
    preset: Preset,
    sizes: tuple[int | None, int | None, object],
    copies: CopyOptions | None = None,
    resumed: Path | None = None,
    *,
    remembers: bool = False,
    max_train_time_s: float | None = None,
) -> Defaults:
    """Defaults of a run; may first play the game at random.

    Args:
        game: to train on.
        sizes: decisions of the run, environments and steps of a rollout, as far as given.
        copies: of the run; a game that may crash its process is tried in a worker. None = without
            limits, in this process.
        resumed: folder of the resumed run, which keeps its settings.
        remembers: the network has a memory.
        max_train_time_s: of the run; several rollouts are planned to fit.
    """
    total_steps, num_envs, num_steps = sizes
    if resumed is not None:
        return Defaults(num_envs or preset.num_envs, dict(settings_of_run(resumed)))
    seen = most_steps = None
    if preset.is_fitted or max_train_time_s is not None:
        is_array = is_trained_in_arrays(game)
        timeout_s = None if copies is None else copies.step_timeout_s(is_batch=is_array)
        on_error: OnError = "raise" if copies is None else copies.on_error
        is_risky = timeout_s is not None or on_error == "restart"
        make = make_training_env(game, PROBE_ENVS, int(is_risky), timeout_s, on_error)
        # A game that fails will do so in training, too, which keeps a replay.
        with suppress(Exception), make as vec:
            seen = GameFigures.of(vec, max_train_time_s=max_train_time_s)
            workers = 0 if copies is None else copies.num_workers
            if workers is None:
                workers = 0 if is_array else num_cores()
            most_steps = seen.steps_within(max_train_time_s, workers)
    return preset.defaults_for(
        game.num_agents,
        total_steps,
        seen,
        num_envs=num_envs,
        num_steps=num_steps if isinstance(num_steps, int) else None,
        remembers=remembers,
        most_steps=most_steps,
    )


class PlannedRun(NamedTuple):
    """A run as requested by the command line."""

    game: Game
    num_envs: int
    copies: CopyOptions
    config: PPOConfig
    out: Path
    resume: bool
    about: Mapping[str, object]
    kept: KeptReplays
    recorders: tuple[str, ...] = ()
    own_callbacks: tuple[type[Callback], ...] = ()
    opponents: Mapping[str, float] = {}
    origin: Origin = Origin()
    evaluation: EvaluationPlan = EvaluationPlan()
    end: RunEnd = RunEnd()

    def train(
        self,
        vec: VecEnv,
        on_update: Callable[[TrainProgress], None],
        launched: Launched,
        *,
        resume: bool,
    ) -> TrainResult:
        from entity_env.agents.ppo import train as train_ppo

        callbacks = self.callbacks(launched, vec)
        envs: VecEnvironment = vec
        if self.opponents:
            pool = make_pool(self.game, vec, self.opponents, self.config.seed)
            envs = pool.vec
            callbacks.append(pool)
        remembering = _RememberRun()  # last: others add to run.json when they start
        try:
            return train_ppo(
                envs,
                self.config,
                policy=None if resume else self.origin.make_policy(self.config),
                out=self.out,
                resume=resume,
                on_update=on_update,
                about=self.about,
                callbacks=[*callbacks, remembering],
                recorders=[RECORDERS[name]() for name in self.recorders],
            )
        finally:
            remembering.finish()

    def make_env(self, launched: Launched) -> AbstractContextManager[VecEnv]:
        num_envs, num_workers = launched.share(self.num_envs), self.copies.num_workers
        is_array = is_trained_in_arrays(self.game)
        if num_workers is None:
            # A batch environment steps faster than a worker can send arrays.
            num_workers = 0 if is_array else default_workers(num_envs, launched.local_size)
        return make_training_env(
            self.game,
            num_envs,
            num_workers,
            self.copies.step_timeout_s(is_batch=is_array),
            self.copies.on_error,
            self.kept.failures,
        )

    def callbacks(self, launched: Launched, vec: VecEnv) -> list[Callback]:
        found = list(map(_made, self.own_callbacks))
        if self.end.until is not None:
            found.append(_StopAtStep(self.end.until))
        if self.end.time_of is not None:
            found.append(_TimeOf(self.end.time_of))
        kinds, moments = self.kept.kinds, self.kept.moments
        if not launched.rank and (kinds or moments):
            of = vec if kinds else None
            folder, seed = self.out / "replays", self.config.seed
            found.append(
                TrainingReplays(self.game, folder, of, keep=kinds, moments=moments, seed=seed)
            )
        found += self.evaluation.callbacks(
            self.game,
            step_timeout_s=self.copies.step_timeout_s(is_batch=is_batch(self.game)),
            on_error=self.copies.on_error,
            num_workers=vec.num_workers,
            has_replays=bool(kinds),
            at_start=self.origin.init_from is not None,
        )
        return found


def train_run(run: PlannedRun, launched: Launched, ray: RayOptions) -> tuple[TrainResult, int]:
    """Trains in this process or on a Ray cluster; returns the result and the exit code."""
    title = f"training {run.game.name}"
    with TrainDisplay(title, Console(quiet=launched.rank > 0)) as display:
        # Here, inside the display: importing torch takes seconds.
        from entity_env.agents.training.process import StoppedBySignal

        try:
            with game_errors(run.game, run.own_callbacks):
                if ray.address is None:
                    result = _train_here(run, launched, display)
                else:
                    result = _train_on_ray(run, ray, display)
        except StoppedBySignal as stop:
            return stop.result, 128 + stop.signum
    return result, INTERRUPTED if result.is_interrupted else 0


def _train_here(run: PlannedRun, launched: Launched, display: TrainDisplay) -> TrainResult:
    from entity_env.agents.ppo import train as train_ppo  # noqa: F401 - says what is missing
    from entity_env.agents.training.peers import launched_group

    with launched_group(launched.size, run.config.peer_timeout_s), run.make_env(launched) as vec:
        display.statistics = lambda: vec.statistics().describe(caller="learning")
        return run.train(vec, display, launched, resume=run.resume)


def _train_on_ray(run: PlannedRun, ray: RayOptions, display: TrainDisplay) -> TrainResult:
    from entity_env.cluster.learners import run_learners

    num_learners = ray.num_learners or 1
    Launched(size=num_learners).share(run.num_envs)  # refuses too few environments early
    copies = replace(run.copies, num_workers=run.copies.num_workers or 0)
    run = run._replace(out=run.out.resolve(), copies=copies, origin=run.origin.resolved())
    return run_learners(
        partial(_learn, run, num_learners),
        address=ray.address or "auto",
        num_learners=num_learners,
        out=run.out,
        max_failures=ray.max_failures or 0,
        on_update=display,
        use_gpu=run.config.device.startswith("cuda"),
        timeout_s=run.config.peer_timeout_s,
    )


def _learn(run: PlannedRun, num_learners: int, control: RunControl) -> TrainResult:
    """Trains as one process of a Ray cluster."""

    def on_update(progress: TrainProgress) -> None:
        control.report(progress)
        if control.stop_requested():
            raise KeyboardInterrupt

    launched = Launched(control.rank, num_learners, restarts=control.restarts)
    resume = run.resume or launched.has_checkpoint(run.out)
    with run.make_env(launched) as vec:
        return run.train(vec, on_update, launched, resume=resume)


def settings_of_run(out: Path) -> dict[str, object]:
    """The settings of the run in `out`, from its checkpoint."""
    found = find_checkpoint(out)
    config = read_header(found).training.get("config", {})
    try:
        run = PPOConfig.from_json(config if isinstance(config, dict) else {})
    except UsageError as error:
        raise CheckpointError(f"{found} cannot be resumed: {error}") from error
    return {each.name: getattr(run, each.name) for each in fields(run)}
