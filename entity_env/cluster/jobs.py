"""Jobs: functions in processes on this machine, a limited number at a time."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

import cloudpickle

from entity_env.agents.training.process import HeldInterrupt
from entity_env.cluster.child import SIZE_BYTES
from entity_env.cluster.session import Portable
from entity_env.core.files import read_file
from entity_env.errors import UsageError
from entity_env.interrupts import INTERRUPTED
from entity_env.processes import kill_group, start_group

LOG: Final = "output.txt"
"""File in a run's folder with the output of its process on this machine."""
_CHILD: Final = (
    "import sys; sys.path += sys.argv[1:]; from entity_env.cluster.child import main; main()"
)
_POLL_S: Final = 0.1
_STOPPED: Final = (INTERRUPTED, 128 + 1, 128 + 15)
"""Exit codes after SIGINT, SIGHUP and SIGTERM."""
_MAX_LOG_BYTES: Final = 1 << 28
_ERROR: Final = re.compile(r"entity-env: (.*)|([\w.]*(?:Error|Exception|Exit)\b.*)")


@dataclass(eq=False)
class Job:
    """A function that runs in its own process.

    Args:
        function: takes no arguments and saves its own results; sent by cloudpickle. Ctrl-C raises
            `KeyboardInterrupt` or `SystemExit` in it.
        log: file for stdout and stderr.
        state: "stopped" means stopped early, by a signal or by `is_wanted`.
        error: why it failed, in one line.
        is_wanted: set to False to stop only this job, as by Ctrl-C.
    """

    name: str
    function: Callable[[], object]
    log: Path
    state: Literal["waiting", "running", "done", "failed", "stopped"] = "waiting"
    error: str = ""
    is_wanted: bool = True


def run_jobs(
    jobs: Sequence[Job], num_at_once: int, on_change: Callable[[], None] = lambda: None
) -> int | None:
    """Runs jobs until all have ended; a failure does not affect other jobs.

    After Ctrl-C, SIGTERM or SIGHUP, all running jobs save their work and stop, and no others start;
    a second Ctrl-C kills them. Jobs also stop when this process dies.

    Args:
        jobs: those in state "waiting" are run, in order.
        on_change: called several times per second; `Job.state` may have changed.

    Returns:
        The signal that stopped the jobs, or None.

    Raises:
        KeyboardInterrupt: a second Ctrl-C.
        UsageError: a log cannot be written.
    """
    waiting = deque(job for job in jobs if job.state == "waiting")
    running: dict[Job, subprocess.Popen[bytes]] = {}
    is_stopping = False
    with HeldInterrupt() as interrupt:
        try:
            while running or (waiting and not is_stopping):
                while waiting and len(running) < num_at_once and not is_stopping:
                    job = waiting.popleft()
                    running[job] = _started(job)
                time.sleep(_POLL_S)
                for job, process in list(running.items()):
                    if process.poll() is not None:
                        kill_group(process)
                        del running[job]
                        _end(job, process, was_stopped=is_stopping)
                on_change()
                for job, process in running.items():
                    if not job.is_wanted:
                        _close(process.stdin)
                try:
                    interrupt.check()
                except KeyboardInterrupt:
                    if is_stopping:
                        raise
                    is_stopping = True
                    for process in running.values():
                        _close(process.stdin)
        finally:
            for job, process in running.items():
                kill_group(process)
                process.wait()
                _close(process.stdin)
                job.state = "stopped"
    return interrupt.signum


def _started(job: Job) -> subprocess.Popen[bytes]:
    payload: bytes = cloudpickle.dumps(Portable(job.function))
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "ab") as log:
            process = start_group(  # so Ctrl-C reaches only the parent, which stops every job once
                # -P: do not import from the current folder.
                [sys.executable, "-P", "-c", _CHILD, *sys.path],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    except OSError as error:
        raise UsageError(f"cannot write {job.log}: {error.strerror}") from error
    job.state = "running"
    if process.stdin is not None:
        with suppress(OSError):  # it has died; `poll` notices
            process.stdin.write(len(payload).to_bytes(SIZE_BYTES, "big") + payload)
            process.stdin.flush()
    return process


def _end(job: Job, process: subprocess.Popen[bytes], *, was_stopped: bool) -> None:
    _close(process.stdin)
    code = process.returncode
    if code == 0:
        job.state = "done"
    elif was_stopped or code in _STOPPED:
        job.state = "stopped"
    else:
        job.state, job.error = "failed", _reason(job.log, code)


def _close(stdin: IO[bytes] | None) -> None:
    if stdin is not None:
        with suppress(OSError):
            stdin.close()


def _reason(log: Path, code: int) -> str:
    """The signal that killed the process, else the log's last error line, last line, or `code`."""
    if code < 0:
        return f"its process was killed by signal {-code}"
    try:
        text = read_file(log, _MAX_LOG_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        text = ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if found := _ERROR.match(line):
            return found[1] or found[2]
    return lines[-1] if lines else f"exit code {code}"
