"""A trainer that waits for its turn: `python -m benchmarks.peers.train_run MODULE TASK SEED`.

Trains from beginning to end, but only while it is asked to: every line on stdin is a number of
decisions, and is answered by one line of JSON after the update that reaches it. The first update is
not asked for: its answer says that everything is set up.
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
    """What a trainer calls as it goes on.

    Args:
        answers: where pieces are answered.
        num_steps: decisions of an update of the task, which the first one counts as.
    """

    def __init__(self, answers: IO[str], num_steps: int) -> None:
        self._answers = answers
        self.num_steps = self._steps_left = num_steps
        self._is_first = True
        self._begin()

    def count_episodes(self, number: int, reward: float) -> None:
        """Counts episodes that ended, and the sum of their rewards."""
        self._episodes += number
        self._reward += reward

    def end_update(self, num_steps: int) -> None:
        """Ends an update, and maybe a piece: then it returns when the next one is asked for."""
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
            os._exit(0)  # nobody waits for what is not asked for, such as a last checkpoint
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
