"""Our trainer with its defaults, and the number of environments that the command line uses."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.train_ours import train_on
from benchmarks.peers.train_run import Run
from benchmarks.peers.training import Task

_NUM_ENVS = 128


def main(task: Task, seed: int, folder: Path, run: Run) -> None:
    """Trains with default settings for the steps of the task."""
    train_on(task, _NUM_ENVS, seed, None, folder, run)
