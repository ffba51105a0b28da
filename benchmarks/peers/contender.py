"""Contender: starts a process to measure, and sends it commands; it sleeps between rounds."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.environment import ROOT

_ANSWER_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 10.0


class Contender:
    """A process that makes environments and steps them on request.

    Args:
        make: `module:function` in this package, which returns a `Stepper`.
        arguments: of that function.
        python: interpreter; default: the current one.
        tree: the repository, or another version of it.

    Raises:
        SystemExit: the process ended or did not answer within 120 s, here or in a later call;
            the message includes its stderr.
    """

    def __init__(
        self, make: str, *arguments: int, python: Path | None = None, tree: Path = ROOT
    ) -> None:
        self._name = " ".join([make, *map(str, arguments)])
        # Not the terminal: workers of some peers print long tracebacks when they are closed.
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close
        self._process = subprocess.Popen(
            [
                str(python or sys.executable),
                *("-m", "benchmarks.peers.serve", f"{__package__}.{make}"),
                *map(str, arguments),
            ],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self.start_s = self._answer()["start_s"]
        """Seconds to make the `Stepper` and its first batch, after the imports."""

    def round(self, duration_s: float) -> dict[str, float]:
        """Returns the result of `Stepper.round`, in µs per environment and step.

        `us` is the total; each activity in `Stepper.totals` has an entry, too.
        """
        return self._ask(f"round {duration_s}")

    def num_bytes(self) -> float:
        """Memory of the process and its workers."""
        return self._ask("memory")["bytes"]

    def close(self) -> None:
        """Ends the process and its workers; may be called twice."""
        try:
            self._process.communicate(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._stderr.close()

    def _ask(self, line: str) -> dict[str, float]:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # `_answer` reports that it has ended
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        stdout = self._process.stdout
        is_told = stdout is not None and select.select([stdout], [], [], _ANSWER_TIMEOUT_S)[0]
        line = stdout.readline() if stdout is not None and is_told else ""
        if not line:
            self._process.kill()
            self._stderr.seek(0)
            raise SystemExit(f"{self._stderr.read()}\nthe contender {self._name} has failed")
        answer: dict[str, float] = json.loads(line)
        return answer
