"""Trainee: the benchmark's end of the pipe to a trainer, which trains on request."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environment import ROOT
from benchmarks.peers.training import Task

_INTEROP = ROOT / ".venv-interop"
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@dataclass(frozen=True)
class Piece:
    """Measurements of a number of updates.

    Args:
        steps_per_s: decisions per second, including playing and learning but not checkpoints.
        cpu_s: processor time.
        mean_reward: of the episodes that ended in the piece; NaN without episodes.
    """

    steps_per_s: float
    cpu_s: float
    mean_reward: float


class Trainee:
    """A process that trains on request and sleeps between requests.

    Args:
        module: of this package; its `main` trains.
        name: of the task.
        task: the task.
        seed: of the run.

    Raises:
        SystemExit: the process failed, here or in a later call. Includes its stderr.
    """

    def __init__(self, module: str, name: str, task: Task, seed: int) -> None:
        self._name = f"{module} {name}"
        self._task = task
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close
        self._process = subprocess.Popen(
            [
                str(interop_python()),
                *("-m", "benchmarks.peers.train_run"),
                *(module, name, str(seed)),
            ],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self.first = self._answer(1)
        """The first update, which includes set-up and compilation."""

    def piece(self, num_updates: int) -> Piece:
        """Trains for `num_updates` updates."""
        if self._process.stdin is not None:
            self._process.stdin.write(f"{num_updates * self._task.steps_per_update}\n")
            self._process.stdin.flush()
        return self._answer(num_updates)

    def close(self) -> None:
        """Ends the process; may be called twice."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _answer(self, num_updates: int) -> Piece:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            self._stderr.seek(0)
            raise SystemExit(f"{self._stderr.read()}\n{self._name} has failed")
        told: dict[str, float] = json.loads(line)
        return Piece(
            steps_per_s=num_updates * self._task.steps_per_update / told["wall_s"],
            cpu_s=told["cpu_s"],
            mean_reward=told["reward"] / told["episodes"] if told["episodes"] else float("nan"),
        )


def interop_python() -> Path:
    """The interpreter of the environment with enn-trainer.

    Raises:
        SystemExit: the environment does not exist yet.
    """
    python = _INTEROP / "bin" / "python"
    if not (_INTEROP / ".installed").exists():
        raise SystemExit("enn-trainer is not installed here yet: run `make interop` first")
    return python
