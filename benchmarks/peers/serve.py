"""The contender's end of the pipe: `python -m benchmarks.peers.serve MODULE:FUNCTION ARGUMENTS`.

Makes a `Stepper`, says how long that and the first batch took, and then does one thing a line:
`round SECONDS` measures, `memory` adds up what all processes of the contender occupy. Every answer
is one line of JSON.
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
    # No goodbye to the contender: some of them print, wait or raise when they are closed.


def private_stdout() -> IO[str]:
    """Keeps stdout for answers alone, whatever a contender or its children print."""
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
