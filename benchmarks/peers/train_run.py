"""A trainer that waits for its turn: `python -m benchmarks.peers.train_run MODULE TASK SEED`.

Trains from beginning to end, but only while it is asked to: every line on stdin is a number of
updates, and is answered by one line of JSON when they are done. The first update is not asked for:
its answer says that everything is set up.
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
    """

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self._updates_left = 1
        self._begin()

    def count_episodes(self, number: int, reward: float) -> None:
        """Counts episodes that ended, and the sum of their rewards."""
        self._episodes += number
        self._reward += reward

    def end_update(self) -> None:
        """Ends an update, and maybe a piece: then it returns when the next one is asked for."""
        self._updates_left -= 1
        if self._updates_left:
            return
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
        self._updates_left = int(line)
        self._begin()

    def _begin(self) -> None:
        self._episodes, self._reward = 0, 0.0
        self._wall_s, self._cpu_s = perf_counter(), process_time()


def main() -> None:
    """Trains until the benchmark closes the pipe."""
    module, task, seed = sys.argv[1:]
    run = Run(private_stdout())
    with tempfile.TemporaryDirectory() as folder:
        train = importlib.import_module(f"{__package__}.{module}").main
        train(TASKS[task], int(seed), Path(folder), run)


if __name__ == "__main__":
    main()
