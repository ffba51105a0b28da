"""How worker processes are started."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import types
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Final
from weakref import WeakSet

from entity_env.errors import UsageError
from entity_env.vec.workers.process import run_worker
from entity_env.vec.workers.protocol import SAFE_PATH, Setup
from entity_env.vec.workers.shared_memory import machine_error

_NUM_START_FILES: Final = 16
"""More file descriptors than it takes to start a process."""


def start_context(method: str | None) -> BaseContext:
    """How workers are started: forkserver where there is one, else spawn.

    Raises:
        ValueError: another method.
        UsageError: this process is a worker itself.
    """
    if multiprocessing.current_process().daemon:
        raise UsageError(
            "a worker process cannot have workers of its own: a module that makes a VecEnv with "
            'workers when it is imported must do so under `if __name__ == "__main__":`, and an '
            "environment that holds one needs num_workers=0"
        )
    available = [m for m in ("forkserver", "spawn") if m in multiprocessing.get_all_start_methods()]
    if method is not None and method not in available:
        raise ValueError(f"start_method must be one of {', '.join(available)}, got {method!r}")
    return multiprocessing.get_context(method or available[0])


def started(context: BaseContext, setup: Setup) -> BaseProcess:
    """A new process that serves.

    Raises:
        WorkerError: the machine lacks memory, processes or file descriptors.
    """
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
        target=run_worker, args=(setup,), name=f"entity_env worker {setup.index}", daemon=True
    )
    try:
        _require_files()
        with _without_main(), _safe_path(), _child_signal():
            process.start()
    except OSError as error:
        raise machine_error(f"start worker {setup.index}", error) from error
    _started.add(process)
    return process


_started: Final[WeakSet[BaseProcess]] = WeakSet()


def _disown() -> None:
    """In a fork of this process, whose multiprocessing would end the workers at its exit."""
    getattr(multiprocessing.process, "_children", set()).difference_update(_started)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def _require_files() -> None:
    """Fails as starting a process would, but before the fork server has been spoken to.

    That one dies of a client that runs out of file descriptors in the middle of a sentence.
    """
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(_NUM_START_FILES // 2):
            pipes.append(os.pipe())
    finally:
        for end in itertools.chain.from_iterable(pipes):
            os.close(end)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Keeps the current folder out of `sys.path` until a new interpreter is given that of this one.

    The fork server would import a json.py there in place of Python's own. A worker takes the
    variable back.
    """
    if SAFE_PATH in os.environ:
        yield
        return
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(SAFE_PATH, None)


@contextlib.contextmanager
def _child_signal() -> Iterator[None]:
    """Lets SIGCHLD through: a fork server that inherits it blocked never tells of a dead worker."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hides the script that runs from multiprocessing.

    It would run it once more in every worker, which fails without `if __name__ == "__main__"`.
    What workers run comes to them by cloudpickle, that of the script included.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
