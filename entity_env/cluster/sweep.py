"""Sweeps: many training runs of a game with varied settings, here or on Ray Tune."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from logging import CRITICAL, getLogger
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from entity_env.agents.ppo import Callback, PPOConfig, TrainProgress
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.training.tracking.runs import EVALUATED
from entity_env.authoring.game import Game
from entity_env.cluster.search_range import Settings, changed
from entity_env.cluster.session import Portable, connect
from entity_env.cluster.sweep_here import FIRST_RUNG, REDUCTION, run_here
from entity_env.cluster.sweep_plan import NUMBERS, MakeEnv, Sweep, SweepTrial
from entity_env.core.files import parse_json, read_file, write_file
from entity_env.errors import TrainingDivergedError, UsageError, shown
from entity_env.vec import VecEnv
from entity_env.vec.game_training import preset_of

STATE_FILE: Final = "sweep.json"
_MAX_BYTES: Final = 1 << 26
_TUNE: Final = "tune"
_NUM_REPORTS: Final = 20
_MAX_FAILURES: Final = 3
_QUIET: Final = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


def run_sweep(
    sweep: Sweep,
    *,
    address: str | None = None,
    num_jobs: int = 1,
    resume: bool = False,
    stop_early: bool = False,
    on_change: Callable[[Sequence[SweepTrial]], None] | None = None,
) -> list[SweepTrial]:
    """Runs the trials of a sweep; returns them in order.

    Every run trains in `out/trial-NUMBER`, or `out/trial-NUMBER-seed-SEED` if trials have several
    runs, with the checkpoint and curves of `train`. `out/sweep.json` holds the state of all runs.
    Ctrl-C ends the sweep; unfinished runs can be resumed.

    Args:
        address: of the Ray cluster, see `connect`; None = processes on this machine.
        num_jobs: number of processes on this machine.
        resume: continues the sweep in `out`: skips finished runs, and continues the others from
            their last checkpoint. On a Ray cluster, early stopping then ignores older reports.
        stop_early: stops runs that are not among the best third at one fifth and three fifths of
            their steps. Always on for a Ray cluster, except for a population.
        on_change: called with all runs after changes, and several times per second.

    Raises:
        UsageError: `out` holds another sweep, or no sweep to resume; no such cluster; a population
            without a cluster, or with `stop_early`.
    """
    if sweep.is_population and address is None:
        raise UsageError("a population runs on Ray: name a cluster, such as --ray local")
    if sweep.is_population and stop_early:
        raise UsageError(
            "a population does not stop runs early: bad runs continue from good networks"
        )
    trials = _resumed(sweep) if resume else _new_trials(sweep)
    on_change = on_change or (lambda _: None)
    if all(trial.is_over for trial in trials):
        return trials
    if address is None:
        sweep.out.mkdir(parents=True, exist_ok=True)
        save = partial(_save, sweep, trials)
        run_here(sweep, trials, num_jobs, on_change, save, stop_early=stop_early)
        return trials
    with connect(address), _quiet_tune():
        sweep.out.mkdir(parents=True, exist_ok=True)
        _save(sweep, trials)
        _tune(sweep, trials, on_change)
    return trials


# ------------------------------------------------------------------ one trial


def tune_trainable(
    game: Game | MakeEnv,
    config: PPOConfig,
    out: Path | None = None,
    *,
    make_callbacks: Callable[[], Sequence[Callback]] = tuple,
    about: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[dict[str, Any]], None]:
    """Returns a function for `ray.tune.Tuner` that trains with the settings of a trial.

    Tune's `config` has fields of `PPOConfig` and `net.FIELD` of its network. The function reports
    `reward` (mean episode reward), `evaluation` (mean reward of an `Evaluator`; NaN without one),
    `step` and `steps_per_s` about 20 times, each with a checkpoint, once the first episode has
    ended. It resumes from a checkpoint provided by Tune. A run that diverges reports a reward of
    NaN and, as `failed`, the reason.

    Args:
        game: its preset sets the number of environments. Or a function that makes environments,
            which the trial closes.
        config: all other settings.
        out: folder with a subfolder per trial, named after it, for checkpoint and curves. A trial
            without a checkpoint from Tune continues from the checkpoint there. None = a temporary
            folder.
        make_callbacks: returns the callbacks of a trial, such as an `Evaluator`.
        about: as for `train`.

    Example:
        >>> trial = tune_trainable(snake, PPOConfig(total_steps=100_000))  # doctest: +SKIP
        >>> space = {"learning_rate": tune.loguniform(3e-4, 1e-2)}  # doctest: +SKIP
        >>> tune.Tuner(trial, param_space=space).fit()  # doctest: +SKIP
    """
    make_env: MakeEnv
    make_env = partial(VecEnv, game, preset_of(game).num_envs) if isinstance(game, Game) else game
    # Ray pickles parts of the trial function separately; keep the game in one piece.
    sent = Portable((make_env, make_callbacks, dict(about), config, out))

    def trial(config: dict[str, Any]) -> None:
        _train_trial(*sent.value, config)

    return trial


def _train_trial(
    make_env: MakeEnv,
    make_callbacks: Callable[[], Sequence[Callback]],
    about: Mapping[str, object],
    config: PPOConfig,
    out: Path | None,
    given: Settings,
) -> None:
    from ray import tune

    from entity_env.agents.ppo import train

    # Save after every update: when an update ends, the update before it is on disk.
    config = replace(changed(config, given), checkpoint_interval_s=0.0)
    name = tune.get_context().get_trial_name()
    before = tune.get_checkpoint()
    with (
        tempfile.TemporaryDirectory() if out is None else nullcontext(str(out)) as parent,
        before.as_directory() if before else nullcontext(None) as resumed,
        make_env() as vec,
    ):
        folder = Path(parent, str(name))
        reports = _Reports(tune, folder / SUBFOLDER, config.total_steps)
        resume = resumed or (folder / SUBFOLDER).is_dir()
        try:
            result = train(
                *(vec, config),
                out=folder,
                resume=resume,
                on_update=reports,
                about=about,
                callbacks=make_callbacks(),
            )
        except TrainingDivergedError as error:
            tune.report({"reward": math.nan, "step": reports.last.step, "failed": str(error)})
            return
        reports.send(result.progress)


class _Reports:
    """Reports the progress of the previous update, whose checkpoint is on disk."""

    def __init__(self, tune: Any, checkpoint: Path, total: int) -> None:  # noqa: ANN401
        self._tune = tune
        self._checkpoint = checkpoint
        self._interval = max(1, total // _NUM_REPORTS)
        self._num_intervals = 0
        self.last = TrainProgress(step=0, total=total)
        self._evaluation = math.nan

    def __call__(self, progress: TrainProgress) -> None:
        last, self.last = self.last, progress
        self._evaluation = progress.metrics.get(EVALUATED, self._evaluation)
        is_due = last.step // self._interval > self._num_intervals
        if is_due and math.isfinite(last.mean_reward):
            self.send(last)

    def send(self, progress: TrainProgress) -> None:
        self._num_intervals = progress.step // self._interval
        metrics = {
            "reward": progress.mean_reward,
            "evaluation": self._evaluation,
            "step": progress.step,
            "steps_per_s": progress.steps_per_s,
        }
        checkpoint = self._tune.Checkpoint.from_directory(self._checkpoint)
        self._tune.report(metrics, checkpoint=checkpoint)


# ------------------------------------------------------------------ all trials


def _new_trials(sweep: Sweep) -> list[SweepTrial]:
    if (sweep.out / STATE_FILE).exists():
        raise UsageError(
            f"{sweep.out} already holds a sweep: continue it with --resume, or choose another --out"
        )
    if found := sorted(sweep.out.glob("trial-*")):
        raise UsageError(f"{found[0]} is in the way of a new sweep: choose another --out")
    return sweep.trials()


def read_trials(out: Path) -> tuple[Mapping[str, object], list[SweepTrial]]:
    """The plan and the trials of an earlier sweep.

    Raises:
        UsageError: there is none, or its file cannot be read.
    """
    path = out / STATE_FILE
    try:
        data = parse_json(read_file(path, _MAX_BYTES))
        match data:
            case {"sweep": dict(plan), "trials": list(rows)}:
                return plan, [SweepTrial.of_json(row) for row in rows]
        raise ValueError("it has no sweep with trials")
    except FileNotFoundError as error:
        raise UsageError(f"{out} holds no sweep to resume: leave out --resume") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _resumed(sweep: Sweep) -> list[SweepTrial]:
    plan, trials = read_trials(sweep.out)
    wanted = sweep.to_json()
    if differing := sorted(name for name in wanted if plan.get(name) != wanted[name]):
        name = differing[0]
        raise UsageError(
            f"the sweep in {sweep.out} differs in {name}: resume it with the same options "
            f"({shown(plan.get(name))}, now {wanted[name]})"
        )
    for trial in trials:
        if not trial.is_over:
            trial.state, trial.error = "waiting", ""
    return trials


def _save(sweep: Sweep, trials: Sequence[SweepTrial]) -> None:
    rows = [asdict(each) for each in trials]
    for row in rows:
        row |= {name: row[name] if math.isfinite(row[name]) else "nan" for name in NUMBERS}
    data = {"sweep": sweep.to_json(), "identity": sweep.identity, "trials": rows}
    text = json.dumps(data, indent=1) + "\n"
    write_file(sweep.out / STATE_FILE, text.encode())


def _tune(
    sweep: Sweep, trials: Sequence[SweepTrial], on_change: Callable[[Sequence[SweepTrial]], None]
) -> None:
    from ray import tune

    out = sweep.out.resolve()
    train = tune_trainable(
        *(sweep.make_env, sweep.config, out),
        make_callbacks=sweep.make_callbacks,
        about=sweep.about,
    )
    waiting = [each for each in trials if not each.is_over]

    def trial(config: dict[str, Any]) -> None:
        plan = config["plan"]
        seed = {} if plan["seed"] is None else {"seed": plan["seed"]}
        train({**plan["settings"], **seed})

    # A grid over one setting: each trial's settings were already sampled, with our seed.
    plans = [
        {"trial": each.number, "seed": each.seed, "settings": each.settings} for each in waiting
    ]
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1, "gpu": int(sweep.config.device.startswith("cuda"))}),
        param_space={"plan": tune.grid_search(plans)},
        tune_config=tune.TuneConfig(
            metric="reward",
            mode="max",
            scheduler=_scheduler(sweep),
            reuse_actors=True,  # a new process takes seconds to import torch
            trial_name_creator=_name_of,
            trial_dirname_creator=_name_of,
        ),
        run_config=tune.RunConfig(
            name=_TUNE,
            storage_path=str(out),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=_MAX_FAILURES),
            # In a population, other trials may continue from any checkpoint of a trial.
            checkpoint_config=tune.CheckpointConfig(None if sweep.is_population else 1),
            callbacks=[_observer(sweep, trials, on_change)],
        ),
    )
    shutil.rmtree(out / _TUNE, ignore_errors=True)
    try:
        tuner.fit()
    finally:
        shutil.rmtree(out / _TUNE, ignore_errors=True)  # removes copies of the checkpoints
        _save(sweep, trials)


def _name_of(trial: Any) -> str:  # noqa: ANN401 - of Tune
    plan = trial.config["plan"]
    return SweepTrial(plan["trial"], {}, seed=plan["seed"]).name


def _scheduler(sweep: Sweep) -> Any:  # noqa: ANN401 - of Tune
    from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

    steps = sweep.config.total_steps
    if not sweep.is_population:
        return ASHAScheduler(
            time_attr="step",
            max_t=steps,
            grace_period=max(1, steps // FIRST_RUNG),
            reduction_factor=REDUCTION,
        )
    rng = np.random.default_rng((sweep.seed, 1))

    def explore(config: dict[str, Any]) -> dict[str, Any]:
        plan = config["plan"]
        settings = {
            each.name: each.explored(plan["settings"][each.name], rng) for each in sweep.ranges
        }
        try:
            changed(sweep.config, settings)
        except UsageError:  # two settings that are incompatible
            return config
        return {**config, "plan": {**plan, "settings": settings}}

    return PopulationBasedTraining(
        time_attr="step",
        perturbation_interval=max(1, steps // 8),
        custom_explore_fn=explore,
        log_config=False,
        # Otherwise a trial could exploit the same step of a waiting trial repeatedly.
        synch=True,
    )


def _observer(
    sweep: Sweep, trials: Sequence[SweepTrial], on_change: Callable[[Sequence[SweepTrial]], None]
) -> Any:  # noqa: ANN401 - of Tune
    """Tune callback that updates the trials."""
    from ray import tune

    by_name = {each.name: each for each in trials}
    base: Any = tune.Callback

    class Observer(base):  # type: ignore[misc]
        def __reduce__(self) -> tuple[type, tuple[()]]:  # Tune stores it but never reads it
            return tune.Callback, ()

        def on_step_end(self, **info: Any) -> None:  # noqa: ANN401
            on_change(trials)

        def on_trial_start(self, **info: Any) -> None:  # noqa: ANN401
            by_name[str(info["trial"])].state = "running"

        def on_trial_result(self, **info: Any) -> None:  # noqa: ANN401
            trial, result = by_name[str(info["trial"])], info["result"]
            trial.settings = dict(info["trial"].config["plan"]["settings"])
            trial.step = result["step"]
            if math.isfinite(result["reward"]):
                trial.reward = result["reward"]
            if math.isfinite(result.get("evaluation", math.nan)):
                trial.evaluation = result["evaluation"]
            trial.error = result.get("failed", "")
            _save(sweep, trials)

        def on_trial_complete(self, **info: Any) -> None:  # noqa: ANN401
            trial = by_name[str(info["trial"])]
            is_done = trial.step >= sweep.config.total_steps
            trial.state = "failed" if trial.error else "done" if is_done else "stopped"
            _save(sweep, trials)

        def on_trial_error(self, **info: Any) -> None:  # noqa: ANN401
            trial = by_name[str(info["trial"])]
            trial.state, trial.error = "failed", _last_line(info["trial"])
            _save(sweep, trials)

    return Observer()


def _last_line(trial: Any) -> str:  # noqa: ANN401 - of Tune
    lines = [line.strip() for line in str(trial.get_error() or "").splitlines() if line.strip()]
    return lines[-1] if lines else "its process died"


@contextmanager
def _quiet_tune() -> Iterator[None]:
    """Keeps Tune from writing log files, logging and changing the current folder."""
    before = {name: os.environ.get(name) for name in _QUIET}
    loggers = {name: getLogger(name) for name in ("ray.tune", "ray.train", "ray.air")}
    levels = {name: logger.level for name, logger in loggers.items()}
    os.environ.update(_QUIET)
    for logger in loggers.values():
        logger.setLevel(CRITICAL)
    try:
        yield
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
