"""Start of worker processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.process
import os
import signal
import sys
import sysconfig
import types
from collections.abc import Iterator
from multiprocessing import resource_tracker
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
    """Context of a start method; None = forkserver if available, otherwise spawn.

    Raises `UsageError` for any other method, and in a worker.
    """
    if multiprocessing.current_process().daemon:
        raise UsageError(
            "a worker process cannot have workers itself: a module that makes a VecEnv with "
            'workers when it is imported must do so under `if __name__ == "__main__":`, and an '
            "environment that holds one needs num_workers=0"
        )
    available = [m for m in ("forkserver", "spawn") if m in multiprocessing.get_all_start_methods()]
    if method is not None and method not in available:
        raise UsageError(f"start_method must be one of {', '.join(available)}, got {method!r}")
    return multiprocessing.get_context(method or available[0])


def started(context: BaseContext, setup: Setup) -> BaseProcess:
    """Starts a worker process; raises `WorkerError` if the machine lacks memory or descriptors."""
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
        target=run_worker, args=(setup,), name=f"entity_env worker {setup.index}", daemon=True
    )
    try:
        _require_files()
        with _without_main(), _safe_path(), _python_first(), _child_signals():
            process.start()
    except OSError as error:
        raise machine_error(f"start worker {setup.index}", error) from error
    _started.add(process)
    return process


_started: Final[WeakSet[BaseProcess]] = WeakSet()


def _disown() -> None:
    """Makes a fork of this process forget the workers, or it would end them when it exits."""
    getattr(multiprocessing.process, "_children", set()).difference_update(_started)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


def _require_files() -> None:
    """Raises an `OSError` for missing file descriptors before anything is sent to the fork server.

    The fork server dies if its client runs out of file descriptors during a request.
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
    """Keeps the current folder out of `sys.path` while a new interpreter starts.

    Otherwise the fork server would import a json.py there instead of Python's. Workers remove
    `SAFE_PATH` from their environment.
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
def _python_first() -> Iterator[None]:
    """Moves Python's own modules to the front of `sys.path` while a process starts and inherits it.

    Otherwise it would import a game named random.py instead of Python's module. The worker restores
    the parent's path before it loads the game.
    """
    path, own = sys.path.copy(), sysconfig.get_path("stdlib")
    sys.path.sort(key=lambda folder: not folder.startswith(own) or "site-packages" in folder)
    try:
        yield
    finally:
        sys.path[:] = path


@contextlib.contextmanager
def _child_signals() -> Iterator[None]:
    """Sets the signals that are blocked in a fork server, and in a worker until it runs.

    SIGCHLD is unblocked, because without it a fork server never reports a dead worker. SIGINT is
    blocked if this program has replaced Python's handler, because otherwise Ctrl-C would print
    tracebacks of processes that are still importing. With Python's handler, SIGINT does not change,
    because other children of the fork server may rely on it.
    """
    if sys.platform == "win32":
        yield
    else:
        resource_tracker.ensure_running()  # it unblocks SIGINT after its start
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Hides the running script from multiprocessing.

    Multiprocessing would rerun the script in every worker, which fails without
    `if __name__ == "__main__"`. Cloudpickle sends the source, even if the script defines it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
