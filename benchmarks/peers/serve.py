"""The contender's end of the pipe: `python -m benchmarks.peers.serve MODULE:FUNCTION ARGUMENTS`.

Makes a `Stepper`, reports the time for that and the first batch, and then reads one command per
line: `round SECONDS` measures, `memory` returns the memory of all processes of the contender. Every
answer is one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from time import perf_counter
from typing import IO

from benchmarks.peers.memory import tree_bytes
from benchmarks.peers.stepper import Stepper


def main() -> None:
    """Serves until the benchmark closes the pipe."""
    answers = private_stdout()
    module, _, function = sys.argv[1].partition(":")
    make = getattr(importlib.import_module(module), function)
    begin = perf_counter()
    stepper: Stepper = make(*map(int, sys.argv[2:]))
    _answer(answers, {"start_s": perf_counter() - begin})
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "round":
            _answer(answers, stepper.round(float(arguments[0])))
        else:
            _answer(answers, {"bytes": tree_bytes(os.getpid())})
    # The contender is not closed: some print, wait or raise when closed.


def private_stdout() -> IO[str]:
    """Returns stdout for answers, and discards the output of the contender and its children."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return answers


def _answer(answers: IO[str], message: dict[str, float]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
