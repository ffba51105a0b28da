"""What this test run holds: threads, processes and shared memory; and what a test left behind."""

import gc
import os
import threading
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 2.0  # a thread or process that has been told to end needs a moment to be gone

# Every process started from here on inherits the mark, also one whose parent dies before it.
MARK = "ENTITY_ENV_TEST_RUN"
os.environ[MARK] = str(os.getpid())


@dataclass(frozen=True)
class Holdings:
    """What is alive at one moment."""

    threads: AbstractSet[threading.Thread]
    processes: AbstractSet[int]
    segments: AbstractSet[str]


def holdings() -> Holdings:
    """Take stock; of processes and shared memory only where the system shows them as files."""
    segments = {path.name for path in SHARED_MEMORY.glob("*")}
    return Holdings(set(threading.enumerate()), processes_of_this_run(), segments)


def leaked_since(before: Holdings, grace_s: float = GRACE_S) -> list[str]:
    """Describe, a line each, what came after `before` and outlives `grace_s` seconds."""
    found = _newcomers(before)
    if found:
        gc.collect()  # multiprocessing's locks have no close(): their semaphores go with the object
    deadline = time.monotonic() + grace_s
    while found and time.monotonic() < deadline:
        time.sleep(0.01)  # a grandchild's end cannot be waited for, only looked for
        found = _newcomers(before)
    return found


def _newcomers(before: Holdings) -> list[str]:
    now = holdings()
    segments = now.segments - before.segments
    return [
        *(f"thread {thread.name}" for thread in now.threads - before.threads),
        *(f"process {pid}: {_command(pid)}" for pid in sorted(now.processes - before.processes)),
        *(f"shared memory {name}" for name in sorted(segments - _foreign(segments, now.processes))),
    ]


def processes_of_this_run() -> set[int]:
    """Return our descendants and marked orphans, less the helpers of multiprocessing."""
    stats = {int(name): _stat(name) for name in os.listdir(PROC) if name.isdecimal()}
    parents = {pid: parent for pid, (parent, _) in stats.items()}
    found = {pid for pid in parents if _descends(pid, parents) or _is_marked(pid, stats[pid][1])}
    return {pid for pid in found - {os.getpid()} if not _is_helper(pid, parents)}


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


@cache
def _is_marked(pid: int, start: str) -> bool:
    # Looked up once a process: this is half of what taking stock costs, and that is twice a test.
    return f"{MARK}={os.getpid()}\0" in _read(PROC / str(pid) / "environ")


def _is_helper(pid: int, parents: dict[int, int]) -> bool:
    """Tell whether it is our resource tracker or fork server, which live as long as we do.

    The fork server's children, which are workers, show its command line but not us as their parent.
    """
    helpers = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
    return parents[pid] == os.getpid() and any(name in _command(pid) for name in helpers)


def _foreign(segments: AbstractSet[str], ours: AbstractSet[int]) -> set[str]:
    """Return those segments that a process of somebody else has mapped: another test run, say."""
    if not segments:
        return set()
    theirs = {int(path.name) for path in PROC.glob("[0-9]*")} - ours - {os.getpid()}
    maps = "".join(_read(PROC / str(pid) / "maps") for pid in theirs)
    return {name for name in segments if f"{SHARED_MEMORY / name}\n" in maps}


def _stat(pid: str) -> tuple[int, str]:
    """Return the parent of a process, and when it was started."""
    # "pid (name) state parent ...", where the name may hold spaces and parentheses.
    fields = _read(f"{PROC}/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[1]), fields[19]) if fields else (0, "")


def _command(pid: int) -> str:
    return (
        _read(PROC / str(pid) / "cmdline").replace("\0", " ").strip() or "(ended, not waited for)"
    )


def _read(path: Path | str) -> str:
    """Read a file of /proc; one that is gone or not ours to read is empty."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""
