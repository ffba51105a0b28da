"""enn-trainer on entity-gym's own games, started as its command line does.

Runs in the environment from `make interop`.
"""

# ruff: noqa: E402 - enn-trainer can be imported once torch_scatter can
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from tests.upstream.torch_scatter import provide_torch_scatter

provide_torch_scatter()

from enn_trainer import State, TrainConfig, init_train_state, train
from entity_gym.examples import ENV_REGISTRY
from hyperstate import StateManager
from torch.utils.tensorboard import SummaryWriter

from benchmarks.peers.train_run import Run
from benchmarks.peers.training import Task


class _TimedStateManager(StateManager):  # type: ignore[misc]  # hyperstate's own types do not check
    """Ends an update of the run at every step; without a folder it writes no checkpoint."""

    run: Run

    def step(self) -> None:
        super().step()
        self.run.end_update(self.run.num_steps)


def main(task: Task, seed: int, folder: Path, run: Run) -> None:
    """Trains without checkpoints; writes curves, as ours does."""
    torch.set_num_threads(1)
    state = _TimedStateManager(
        TrainConfig, State, init_train_state, overrides=_overrides(task, seed, folder)
    )
    state.run = run
    _count_episodes(run)
    train(state, ENV_REGISTRY[task.env_id])


def _count_episodes(run: Run) -> None:
    """Reads the number and mean reward of the episodes of each rollout from the written curves."""
    add_scalar = SummaryWriter.add_scalar
    means: list[float] = []

    def counted(writer: SummaryWriter, tag: str, value: Any, *arguments: Any) -> None:  # noqa: ANN401 - as theirs
        if tag == "episodic_reward.mean":
            means.append(float(value))
        elif tag == "episodic_reward.count":
            run.count_episodes(int(value), int(value) * means[-1] if value else 0.0)
        add_scalar(writer, tag, value, *arguments)

    SummaryWriter.add_scalar = counted  # type: ignore[assignment,method-assign]  # of this process only


def _overrides(task: Task, seed: int, folder: Path) -> list[str]:
    settings = {
        "env.id": task.env_id,
        "env.kwargs": json.dumps(dict(task.kwargs)),
        "rollout.processes": 1,
        "rollout.num_envs": task.num_envs,
        "rollout.steps": task.num_steps,
        "total_timesteps": task.total_steps,
        "net.d_model": task.d_model,
        "net.n_layer": task.n_layer,
        "optim.bs": task.minibatch_size,
        "optim.lr": task.learning_rate,
        "ppo.ent_coef": task.ent_coef,
        "ppo.vf_coef": task.vf_coef,
        "ppo.gamma": task.gamma,
        "seed": seed,
        "cuda": False,
        "data_dir": folder,
    }
    return [f"{name}={value}" for name, value in settings.items()]
