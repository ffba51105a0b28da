"""Our trainer with its own defaults, and as many environments as its command line takes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.train_ours import train_on
from benchmarks.peers.train_run import Run
from benchmarks.peers.training import Task
from entity_env.agents.ppo import PPOConfig

_NUM_ENVS = 128


def main(task: Task, seed: int, folder: Path, run: Run) -> None:
    """Trains with default settings for as many steps as the task has."""
    config = PPOConfig(
        total_steps=task.num_updates * task.steps_per_update,
        seed=seed,
        checkpoint_interval_s=1e9,
    )
    if config.num_steps * _NUM_ENVS != task.steps_per_update:
        raise SystemExit("the pieces of a run are counted in rollouts of the task's size")
    train_on(task, _NUM_ENVS, config, folder, run)
