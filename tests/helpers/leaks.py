"""Resources of this process, and leaks of a test: threads, child processes, shared memory.

Only resources created by this process count, so other programs and parallel test processes are
never blamed.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator, Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver, shared_memory
from pathlib import Path
from typing import Any

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 2.0  # a thread or process that is ending needs a moment

# Every process started from here on inherits the mark, even if its parent dies first.
MARK = "ENTITY_ENV_TEST_RUN"
os.environ[MARK] = str(os.getpid())

_created: set[str] = set()


@dataclass(frozen=True)
class Holdings:
    """Live resources at one moment."""

    threads: AbstractSet[threading.Thread]
    processes: AbstractSet[int]
    segments: AbstractSet[str]


def watch_segments() -> None:
    """Records the names of shared memory that this process creates from now on."""
    module: Any = getattr(shared_memory, "_posixshmem", None)
    if module is None or module.shm_open.__module__ == __name__:
        return
    opened = module.shm_open

    def shm_open(name: str, flags: int, mode: int = 0o777) -> int:
        handle: int = opened(name, flags, mode)
        if flags & os.O_CREAT:
            _created.add(name.lstrip("/"))
        return handle

    module.shm_open = shm_open


def holdings(*, orphans: bool = False) -> Holdings:
    """Lists live resources; processes and shared memory only if the system shows them as files.

    Args:
        orphans: include processes that outlived the child that started them. This reads all of
            /proc, which takes 4 ms; children alone take 0.1 ms.
    """
    processes = processes_of_this_run() if orphans else set(_children())
    _created.intersection_update(path.name for path in SHARED_MEMORY.glob("*"))
    return Holdings(set(threading.enumerate()), processes, set(_created))


def leaked_since(before: Holdings, grace_s: float = GRACE_S, *, orphans: bool = False) -> list[str]:
    """Describes resources that are newer than `before` and outlive `grace_s`, one per line."""
    found = _newcomers(before, orphans)
    if found:
        gc.collect()  # multiprocessing's locks have no close(): the object frees their semaphores
    deadline = time.monotonic() + grace_s
    while found and time.monotonic() < deadline:
        time.sleep(0.01)  # it is not possible to wait for a grandchild
        found = _newcomers(before, orphans)
    return found


def _newcomers(before: Holdings, orphans: bool) -> list[str]:
    now = holdings(orphans=orphans)
    return [
        *(f"thread {thread.name}" for thread in now.threads - before.threads),
        *(f"process {pid}: {_command(pid)}" for pid in sorted(now.processes - before.processes)),
        *(f"shared memory {name}" for name in sorted(now.segments - before.segments)),
    ]


def _children() -> Iterator[int]:
    """Children of this process and of its fork server, whose children are our workers."""
    server: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    for pid in filter(None, (os.getpid(), server)):
        for task in _listed(PROC / str(pid) / "task"):
            for child in _read(f"{PROC}/{pid}/task/{task}/children").split():
                if int(child) != server and not _is_helper(int(child), {int(child): pid}):
                    yield int(child)


def processes_of_this_run() -> set[int]:
    """Our descendants and marked orphans, without the helpers of multiprocessing."""
    stats = {int(name): _stat(name) for name in _listed(PROC) if name.isdecimal()}
    parents = {pid: parent for pid, (parent, _) in stats.items()}
    found = {pid for pid in parents if _descends(pid, parents) or _is_marked(pid, stats[pid][1])}
    return {pid for pid in found - {os.getpid()} if not _is_helper(pid, parents)}


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


@cache
def _is_marked(pid: int, start: str) -> bool:
    # Looked up once per process: this is half the cost of reading all of /proc.
    return f"{MARK}={os.getpid()}\0" in _read(PROC / str(pid) / "environ")


def _is_helper(pid: int, parents: dict[int, int]) -> bool:
    """Whether a process is our resource tracker or fork server, which live as long as we do.

    The fork server's children, which are workers, show its command line but not us as their parent.
    """
    helpers = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    return parents[pid] == os.getpid() and any(name in _command(pid) for name in helpers)


def _stat(pid: str) -> tuple[int, str]:
    """Parent and start time of a process."""
    # "pid (name) state parent ...", where the name may contain spaces and parentheses.
    fields = _read(f"{PROC}/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[1]), fields[19]) if fields else (0, "")


def _command(pid: int) -> str:
    return (
        _read(PROC / str(pid) / "cmdline").replace("\0", " ").strip() or "(ended, not waited for)"
    )


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # gone, or no /proc
        return []


def _read(path: Path | str) -> str:
    """Reads a file of /proc; empty if it is gone or not readable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
