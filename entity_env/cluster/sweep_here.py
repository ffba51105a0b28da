"""Sweeps in processes on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from entity_env.agents.ppo import Callback, PPOConfig
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.agents.training.tracking.follow import FollowedRun
from entity_env.agents.training.tracking.runs import CURVES_FILE, EVALUATED, REWARD, read_run
from entity_env.cluster.jobs import LOG, Job, run_jobs
from entity_env.cluster.sweep_plan import MakeEnv, Sweep, SweepTrial
from entity_env.interrupts import INTERRUPTED

FIRST_RUNG: Final = 5
"""Bad runs are first stopped after 1/FIRST_RUNG of the steps."""
REDUCTION: Final = 3
"""One in REDUCTION runs continues, to REDUCTION times as many steps."""


def run_here(
    sweep: Sweep,
    trials: Sequence[SweepTrial],
    num_jobs: int,
    on_change: Callable[[Sequence[SweepTrial]], None],
    save: Callable[[], None],
    *,
    stop_early: bool = False,
) -> None:
    """Runs the unfinished trials, each in a process; saves after every change of state."""
    halving = _Halving(sweep.config.total_steps) if stop_early else None
    if halving is not None:
        for trial in trials:
            for step, reward in _rewards(sweep.out / trial.name):
                halving.reach(trial.name, step, reward)  # before the sweep was interrupted
    save()
    jobs: list[tuple[SweepTrial, Job, FollowedRun]] = []
    for trial in trials:
        if not trial.is_over:
            folder = sweep.out / trial.name
            work = sweep.make_env, sweep.make_callbacks, sweep.config_of(trial), folder, sweep.about
            job = Job(trial.name, partial(_train, *work), folder / LOG)
            jobs.append((trial, job, FollowedRun(folder)))
    known = [job.state for _, job, _ in jobs]

    def update() -> None:
        for trial, job, followed in jobs:
            if job.state != "waiting":
                followed.read()
                trial.step = followed.step
                trial.reward = followed.figures.get(REWARD, math.nan)
                trial.evaluation = followed.figures.get(EVALUATED, math.nan)
                if halving is not None and halving.reach(trial.name, trial.step, trial.reward):
                    job.is_wanted = False
            # Stopped by a signal, not for its reward, so a resumed sweep continues it.
            is_paused = job.state == "stopped" and job.is_wanted
            trial.state = "running" if is_paused else job.state
            trial.error = job.error
        states = [job.state for _, job, _ in jobs]
        if states != known:
            known[:] = states
            save()
        on_change(trials)

    try:
        run_jobs([job for _, job, _ in jobs], num_jobs, update)
    finally:
        update()
        save()


class _Halving:
    """Decides which runs to stop: asynchronous successive halving, as on Ray.

    A run that reaches a rung continues if its reward is among the best third so far. Li et al., "A
    System for Massively Parallel Hyperparameter Tuning" (2018), algorithm 2.
    """

    def __init__(self, total_steps: int) -> None:
        self._rungs: dict[int, dict[str, float]] = {}
        rung = max(1, total_steps // FIRST_RUNG)
        while rung < total_steps:
            self._rungs[rung] = {}
            rung *= REDUCTION

    def reach(self, name: str, step: int, reward: float) -> bool:
        """Records a run's progress; True if it just reached a rung and is behind."""
        if not math.isfinite(reward):
            return False
        is_behind = False
        for rung, rewards in self._rungs.items():
            if step >= rung and name not in rewards:
                earlier = list(rewards.values())
                rewards[name] = reward
                cutoff = np.quantile(earlier, 1 - 1 / REDUCTION) if earlier else -math.inf
                is_behind |= bool(reward < cutoff)
        return is_behind


def _rewards(folder: Path) -> Iterable[tuple[int, float]]:
    if not (folder / CURVES_FILE).is_file():
        return ()
    curve = read_run(folder).curves.get(REWARD)
    return () if curve is None else zip(curve.steps, curve.values, strict=True)


def _train(
    make_env: MakeEnv,
    make_callbacks: Callable[[], Sequence[Callback]],
    config: PPOConfig,
    folder: Path,
    about: Mapping[str, object],
) -> None:
    """Trains or continues a run, in its own process."""
    from entity_env.agents.ppo import train

    with make_env() as vec:
        resume, callbacks = (folder / SUBFOLDER).is_dir(), make_callbacks()
        result = train(vec, config, out=folder, resume=resume, about=about, callbacks=callbacks)
    if result.is_interrupted:
        raise SystemExit(INTERRUPTED)
