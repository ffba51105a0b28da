"""Other programs in process groups: waits end when a program exits, and its group ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import IO, Any, Final, NamedTuple, NoReturn, TypeAlias

Started: TypeAlias = "Callable[[subprocess.Popen[bytes]], None]"
"""Called with a process when it starts, for example to end it early."""

_POLL_S: Final = 0.1
"""Interval at which waits for a pipe look whether the process at its other end still runs."""
_REST_S: Final = 1.0
"""Time to read what an ended group has left in its pipes."""
_PARENT_POLL_S: Final = 1.0


class EndedProcess(NamedTuple):
    """How a program ended.

    Args:
        code: its exit code; negative = the number of the signal that ended it.
        output: what it wrote to standard output.
        errors: what it wrote to standard error.
    """

    code: int
    output: bytes
    errors: bytes


def start_group(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - of `Popen`
    """Starts a program as the leader of a process group, which `kill_group` ends.

    Ctrl-C in a terminal does not reach the group: this process has to end it.
    """
    return subprocess.Popen(command, start_new_session=sys.platform != "win32", **options)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a program of `start_group` and all processes of its group, also after it has exited."""
    kill_group_of(process.pid, has_ended=process.returncode is not None)
    process.kill()


def kill_group_of(leader: int, *, has_ended: bool) -> None:
    """Kills the process group of a leader, which this system may know no more.

    Args:
        has_ended: the leader has ended, and its parent has waited for it. Its number then stays
            reserved while the group has members: a process with that number is a new one.
    """
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            if has_ended:
                with suppress(ProcessLookupError):
                    os.kill(leader, 0)
                    return
            os.killpg(leader, signal.SIGKILL)


def lead_group() -> None:
    """Makes this process the leader of a new process group, in the same terminal."""
    if sys.platform != "win32":
        with suppress(PermissionError):  # it leads a session
            os.setpgid(0, 0)


def exit_group() -> NoReturn:
    """Ends this process at once and, if it leads a process group, all others of the group."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def run_group(
    command: Sequence[str],
    data: bytes = b"",
    timeout_s: float | None = None,
    *,
    env: Mapping[str, str] | None = None,
    started: Started | None = None,
) -> EndedProcess | None:
    """Runs a program until it exits, and then kills what is left of its group.

    A process that the program has started and that keeps its pipes open does not delay the result.

    Args:
        data: standard input.
        timeout_s: None = no limit.
        env: environment variables; None = those of this process.

    Returns:
        None if the program took too long.
    """
    pipe = subprocess.PIPE
    deadline = None if timeout_s is None else monotonic() + timeout_s
    outputs: tuple[bytes, bytes] | None = None
    with (
        _file_of(data) as file,  # with a pipe, `communicate` cannot continue after a timeout
        start_group(command, stdin=file, stdout=pipe, stderr=pipe, env=env) as process,
    ):
        try:
            if started is not None:
                started(process)
            while outputs is None and process.poll() is None:
                if deadline is not None and monotonic() > deadline:
                    return None
                with suppress(subprocess.TimeoutExpired):
                    outputs = process.communicate(timeout=_POLL_S)
        finally:
            kill_group(process)
        if outputs is None:  # others kept its pipes open
            try:
                outputs = process.communicate(timeout=_REST_S)
            except subprocess.TimeoutExpired as expired:  # and still do, in another group
                outputs = expired.output or b"", expired.stderr or b""
    return EndedProcess(process.returncode, *outputs)


@contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes]]:
    """A temporary file with this content."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def exit_with_parent(parent: int) -> None:
    """Starts a thread that ends this process, and its group, soon after the process `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            sleep(_PARENT_POLL_S)
        exit_group()

    if sys.platform != "win32":
        threading.Thread(target=watch, name="parent", daemon=True).start()
