"""A trainer that trains on request: `python -m benchmarks.peers.train_run MODULE TASK SEED`.

Each line on stdin is a number of decisions. The trainer makes as many updates as they need, answers
with one line of JSON and waits. The first update needs no request; its answer says that everything
is set up.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import IO

from benchmarks.peers.serve import private_stdout
from benchmarks.peers.training import TASKS


class Run:
    """Callbacks of a trainer: measure the requested pieces and wait for the next request.

    Args:
        answers: file for the answers.
        num_steps: decisions per update of the task; the first update counts as that many.
    """

    def __init__(self, answers: IO[str], num_steps: int) -> None:
        self._answers = answers
        self.num_steps = self._steps_left = num_steps
        self._is_first = True
        self._begin()

    def count_episodes(self, number: int, reward: float) -> None:
        """Counts finished episodes and adds up their rewards."""
        self._episodes += number
        self._reward += reward

    def end_update(self, num_steps: int) -> None:
        """Ends an update; at the end of a piece it answers and blocks until the next request."""
        self._steps_left -= num_steps
        if self._steps_left > 0 and not self._is_first:
            return
        self._is_first = False
        piece = {
            "wall_s": perf_counter() - self._wall_s,
            "cpu_s": process_time() - self._cpu_s,
            "episodes": self._episodes,
            "reward": self._reward,
        }
        self._answers.write(json.dumps(piece) + "\n")
        self._answers.flush()
        line = sys.stdin.readline()
        if not line:
            os._exit(0)  # skip the rest of the run, such as a last checkpoint
        self._steps_left += int(line)
        self._begin()

    def _begin(self) -> None:
        self._episodes, self._reward = 0, 0.0
        self._wall_s, self._cpu_s = perf_counter(), process_time()


def main() -> None:
    """Trains until the benchmark closes the pipe."""
    module, task, seed = sys.argv[1:]
    run = Run(private_stdout(), TASKS[task].steps_per_update)
    with tempfile.TemporaryDirectory() as folder:
        train = importlib.import_module(f"{__package__}.{module}").main
        train(TASKS[task], int(seed), Path(folder), run)


if __name__ == "__main__":
    main()
