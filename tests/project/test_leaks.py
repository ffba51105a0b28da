"""The leak detection finds all leaks, without false alarms."""

import multiprocessing as mp
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.shared_memory import SharedMemory

import pytest

from tests.helpers.leaks import SHARED_MEMORY, holdings, leaked_since, processes_of_this_run

HOLD_A_SEGMENT = """
import sys
from multiprocessing.shared_memory import SharedMemory
segment = SharedMemory(create=True, size=8)
print(segment.name, flush=True)
sys.stdin.read()
segment.close()
segment.unlink()
"""
LIVE = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@contextmanager
def orphan(script: str, environment: str) -> Iterator[str]:
    """Runs a script in a process whose parent is gone; yields the first line of its output."""
    parent = (
        "import os, subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-c', sys.argv[1]], env={environment})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        process.wait()
        assert process.stdout is not None
        yield process.stdout.readline().strip()


def test_names_a_thread() -> None:
    before, stop = holdings(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="lingerer")
    thread.start()
    assert leaked_since(before, grace_s=0) == ["thread lingerer"]
    stop.set()
    thread.join()
    assert leaked_since(before) == []


def test_names_a_segment_of_shared_memory() -> None:
    before = holdings()
    segment = SharedMemory(create=True, size=8)
    assert leaked_since(before, grace_s=0) == [f"shared memory {segment.name}"]
    segment.close()
    assert leaked_since(before, grace_s=0) == [f"shared memory {segment.name}"]
    segment.unlink()
    assert leaked_since(before) == []


def test_leaves_the_segments_of_others_alone() -> None:
    before = holdings()
    with orphan(HOLD_A_SEGMENT, environment="{}") as name:  # neither our child nor marked by us
        assert (SHARED_MEMORY / name).exists()
        assert leaked_since(before) == []


def test_names_a_child_process() -> None:
    before = holdings()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert holdings().processes - before.processes == {child.pid}
    assert leaked_since(before) == []


@pytest.mark.slow
def test_names_an_orphan() -> None:
    before = holdings(orphans=True)
    with orphan(LIVE, environment="os.environ") as pid:
        assert holdings(orphans=True).processes - before.processes == {int(pid)}
    assert leaked_since(before, orphans=True) == []


@pytest.mark.parametrize("context", [mp.get_context("spawn"), mp.get_context("forkserver")])
def test_tells_a_worker_from_the_helpers_of_multiprocessing(
    context: SpawnContext | ForkServerContext,
) -> None:
    before = holdings()
    stop = context.Event()
    worker = context.Process(target=stop.wait)
    worker.start()
    assert holdings().processes - before.processes == {worker.pid}
    assert worker.pid in processes_of_this_run()
    stop.set()
    worker.join()
    worker.close()
    del worker, stop
    assert leaked_since(before) == []
