"""The runs of a sweep in processes of this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from entity_env.agents.ppo import Callback, PPOConfig
from entity_env.agents.ppo.tracking.follow import FollowedRun
from entity_env.agents.ppo.tracking.runs import EVALUATED, REWARD
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER
from entity_env.cluster.jobs import LOG, Job, run_jobs
from entity_env.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from entity_env.cluster.sweep import MakeEnv, Sweep, SweepTrial


def run_here(
    sweep: Sweep,
    trials: Sequence[SweepTrial],
    num_jobs: int,
    on_change: Callable[[Sequence[SweepTrial]], None],
    save: Callable[[], None],
) -> None:
    """Runs the trials that are not over, each in a process; saves when a state has changed."""
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
            # Stopped by a signal: it goes on when the sweep does.
            trial.state = "running" if job.state == "stopped" else job.state
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


def _train(
    make_env: MakeEnv,
    make_callbacks: Callable[[], Sequence[Callback]],
    config: PPOConfig,
    folder: Path,
    about: Mapping[str, object],
) -> None:
    """Trains a run in a process of its own, or goes on with it."""
    from entity_env.agents.ppo import train

    with make_env() as vec:
        resume, callbacks = (folder / SUBFOLDER).is_dir(), make_callbacks()
        result = train(vec, config, out=folder, resume=resume, about=about, callbacks=callbacks)
    if result.is_interrupted:
        raise SystemExit(INTERRUPTED)
