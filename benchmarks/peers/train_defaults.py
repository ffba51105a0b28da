"""Our trainer with its own defaults, and as many environments as its command line takes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.train_ours import train_on
from benchmarks.peers.train_run import Run
from benchmarks.peers.training import Task

_NUM_ENVS = 128


def main(task: Task, seed: int, folder: Path, run: Run) -> None:
    """Trains with default settings for as many steps as the task has."""
    train_on(task, _NUM_ENVS, seed, None, folder, run)
