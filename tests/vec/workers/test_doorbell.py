"""Doorbells: no ring is lost, whoever is gone is missed, and waiting costs nothing."""

from __future__ import annotations

import multiprocessing as mp
import os
import platform
import select
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from random import Random
from time import monotonic, process_time
from types import FrameType
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.errors import ClosedError, WorkerError
from entity_env.vec.workers import doorbell
from entity_env.vec.workers.doorbell import (
    NUM_BYTES,
    Doorbell,
    Path,
    Wake,
    default_path,
    wait_all,
    wait_any,
)
from entity_env.vec.workers.shared_memory import SharedBlock
from tests.helpers.children import WAIT_S, answer, dawdle, fork_and_hang, report_processor_time
from tests.helpers.descriptors import files_to_spare, num_files

Context = SpawnContext | ForkServerContext
FORKSERVER = mp.get_context("forkserver")
CONTEXTS: dict[str, Context] = {"spawn": mp.get_context("spawn"), "forkserver": FORKSERVER}
SHORT_S = 0.1
"""Long enough to notice that somebody did not wait, or used the processor meanwhile."""

Pair = tuple[Doorbell, Doorbell]
TraceFunction: TypeAlias = "Callable[[FrameType, str, object], TraceFunction | None]"
PATHS: list[Path] = ["spin", "kernel"] if default_path() == "spin" else ["kernel"]


@pytest.fixture(params=[*PATHS, "windows"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every way to wait; "windows" is the kernel path without `poll`."""
    if request.param == "windows":
        monkeypatch.delattr(select, "poll")
        return "kernel"
    chosen: Path = request.param
    return chosen


@contextmanager
def pairs(number: int, path: Path, num_spins: int = 1) -> Iterator[list[Pair]]:
    block = SharedBlock.create(number * NUM_BYTES)
    made = [
        Doorbell.pair(block, i * NUM_BYTES, path=path, num_spins=num_spins) for i in range(number)
    ]
    block.close()  # they need it no longer
    try:
        yield made
    finally:
        for pair in made:
            for end in pair:
                end.close()


@contextmanager
def workers(
    context: Context,
    number: int,
    target: Callable[..., None],
    *arguments: object,
    path: Path | None = None,
    num_spins: int = doorbell.NUM_SPINS,
) -> Iterator[tuple[list[Doorbell], list[BaseProcess]]]:
    """Processes that run `target(bell, *arguments)`; afterwards they must leave by themselves."""
    bells: list[Doorbell] = []
    processes: list[BaseProcess] = []
    with ExitStack() as stack:
        block = SharedBlock.create(number * NUM_BYTES)
        stack.callback(block.close)
        for i in range(number):
            ours, theirs = Doorbell.pair(block, i * NUM_BYTES, path=path, num_spins=num_spins)
            process = context.Process(target=target, args=(theirs, *arguments))
            process.start()
            theirs.close()
            stack.callback(process.join, WAIT_S)
            stack.callback(ours.close)
            bells.append(ours)
            processes.append(process)
        ring_all(bells)
        assert wait_all(bells, WAIT_S) is Wake.RUNG
        yield bells, processes


def ring_all(bells: Sequence[Doorbell]) -> None:
    for bell in bells:
        bell.ring()


def is_asleep(bell: Doorbell) -> bool:
    return bool(bell._words[bell._mine + doorbell._ASLEEP])


# One process: who is rung, and who is told what.


def test_takes_turns(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        assert worker.wait(0) is Wake.TIMED_OUT
        assert parent.wait(0) is Wake.RUNG  # it has asked nothing
        for number in range(1, 300):
            parent.ring()
            assert not parent.is_rung
            assert parent.wait(0) is Wake.TIMED_OUT
            assert worker.wait(0) is Wake.RUNG
            assert worker.wait() is Wake.RUNG  # until it answers
            parent.ring()  # asks nothing new
            assert parent.num_rings == number
            worker.ring()
            worker.ring()
            assert worker.num_rings == number
            assert worker.wait(0) is Wake.TIMED_OUT
            assert parent.wait() is Wake.RUNG
            assert parent.is_rung


ACTIONS = ["ring", "answer", "leave", "wait", "await"]


@pytest.mark.parametrize("path", PATHS)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=30))
def test_agrees_with_a_model(path: Path, actions: list[tuple[str, int]]) -> None:
    """In whatever order: each wait tells what the model says, alone and over several."""
    asked, has_left = [False] * 3, [False] * 3

    def expected(of: Sequence[int], enough: Callable[[Sequence[bool]], bool]) -> Wake:
        if enough([not asked[i] for i in of]):
            return Wake.RUNG
        return Wake.PEER_GONE if any(asked[i] and has_left[i] for i in of) else Wake.TIMED_OUT

    with pairs(3, path) as made:
        parents = [parent for parent, _ in made]
        for action, i in actions:
            parent, worker = made[i]
            if action == "ring":
                parent.ring()
                asked[i] = True
            elif action == "wait":
                assert parent.wait(0) is expected([i], all)
            elif has_left[i]:
                assert parent.is_peer_gone()
            elif action == "answer":
                worker.ring()
                asked[i] = False
            elif action == "await":
                assert worker.wait(0) is (Wake.RUNG if asked[i] else Wake.TIMED_OUT)
            else:
                worker.close()
                has_left[i] = True
            assert wait_any(parents, 0) is expected(range(3), any)
            assert wait_all(parents, 0) is expected(range(3), all)
            assert [parent.is_rung for parent in parents] == [not each for each in asked]
            assert [parent.is_peer_gone() for parent in parents] == has_left


def test_a_worker_notices_that_its_parent_is_gone(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        parent.ring()
        parent.close()
        assert worker.wait() is Wake.RUNG
        worker.ring()  # to nobody
        assert worker.wait() is Wake.PEER_GONE
        assert worker.is_peer_gone()


@pytest.mark.parametrize("path", PATHS)
def test_a_sentinel_tells_that_the_other_side_is_gone(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        sentinel, held_open = os.pipe()
        parent.watch(sentinel)
        parent.ring()
        assert parent.wait(0) is Wake.TIMED_OUT
        os.close(held_open)
        assert parent.wait() is Wake.PEER_GONE
        assert parent.is_peer_gone()
        worker.ring()
        assert parent.wait() is Wake.RUNG
        os.close(sentinel)


@pytest.mark.parametrize("timeout_s", [-1, 0, SHORT_S])
def test_times_out_in_time(path: Path, timeout_s: float) -> None:
    with pairs(2, path, doorbell.NUM_SPINS) as [(first, _), (second, _)]:
        ring_all([first, second])
        waits: list[Callable[[], Wake]] = [
            lambda: first.wait(timeout_s),
            lambda: wait_any([first, second], timeout_s),
            lambda: wait_all([first, second], timeout_s),
        ]
        for wait in waits:
            begin = monotonic()
            assert wait() is Wake.TIMED_OUT
            assert timeout_s <= monotonic() - begin < timeout_s + WAIT_S / 2


def test_sleeps_although_somebody_has_left(path: Path) -> None:
    with pairs(2, path) as [(pending, _), (answered, leaver)]:
        ring_all([pending, answered])
        leaver.ring()
        leaver.close()
        begin = process_time()
        assert wait_all([pending, answered], SHORT_S) is Wake.TIMED_OUT
        assert process_time() - begin < SHORT_S / 2


def test_the_socket_may_fill_up(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        worker._set_asleep(True)
        for _ in range(10_000):
            parent.ring()
        assert worker.wait(0) is Wake.RUNG
        worker.ring()
        assert worker.wait(0) is Wake.TIMED_OUT
        assert parent.wait(0) is Wake.RUNG
        parent.ring()
        assert worker.wait(0) is Wake.RUNG


# Interrupted: by whatever a signal handler raises.


class Interrupter:
    """Raises a KeyboardInterrupt before the n-th line of doorbell.py that runs within it."""

    def __init__(self, line: int) -> None:
        self.lines_to_go = line
        self._tracer_before = sys.gettrace()

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer_before)

    def _trace(self, frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename != doorbell.__file__:
            return None
        if event == "line":
            self.lines_to_go -= 1
            if self.lines_to_go == 0:
                raise KeyboardInterrupt
        return self._trace


def interruptions(call: Callable[[], object]) -> Iterator[None]:
    """Interrupts a call before its first line, then before its second, until it ends in peace."""
    for line in count(1):
        interrupter = Interrupter(line)
        try:
            with interrupter:
                call()
        except KeyboardInterrupt:
            yield
        else:
            assert interrupter.lines_to_go > 0
            assert line > 5
            return


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("wait", [lambda bells, s: bells[0].wait(s), wait_any, wait_all])
def test_an_interrupted_wait_may_be_repeated(
    path: Path, wait: Callable[[Sequence[Doorbell], float], Wake]
) -> None:
    with pairs(1, path) as [(parent, worker)]:
        bells = [parent]
        parent.ring()
        for _ in interruptions(lambda: wait(bells, 0)):
            assert wait(bells, 0) is Wake.TIMED_OUT
            worker.ring()
            assert wait(bells, 0) is Wake.RUNG
            assert is_asleep(parent) == (path == "kernel")
            parent.ring()
        worker.ring()
        for _ in interruptions(lambda: wait(bells, 0)):
            assert wait(bells, 0) is Wake.RUNG


@pytest.mark.parametrize("path", PATHS)
def test_an_interrupted_ring_rang_or_did_not(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        num_rings = 0
        worker._set_asleep(True)
        for _ in interruptions(parent.ring):
            assert parent.num_rings in (num_rings, num_rings + 1)
            if parent.num_rings > num_rings:  # then it has woken the worker as well
                assert select.select([worker._socket], [], [], 0)[0]
            parent.ring()
            num_rings = parent.num_rings
            assert worker.wait(0) is Wake.RUNG
            worker.ring()
            worker._set_asleep(True)
            assert parent.wait(0) is Wake.RUNG
            assert not worker.is_peer_gone()  # takes in what bytes there are


def test_a_lock_left_taken_does_no_harm() -> None:
    with pairs(1, "kernel") as [(parent, worker)]:
        parent._take(False)  # as if interrupted before giving it back
        parent.ring()
        parent.ring()
        assert worker.wait(0) is Wake.RUNG


# Made and closed.


def test_closed() -> None:
    with pairs(1, "kernel") as [(parent, worker)]:
        before = num_files()
        parent.close()
        parent.close()
        assert parent.is_closed
        assert not worker.is_closed
        assert num_files() == before - 1
        uses: list[Callable[[], object]] = [
            parent.ring,
            parent.wait,
            parent.is_peer_gone,
            parent.__reduce__,
            lambda: parent.is_rung,
            lambda: parent.num_rings,
            lambda: wait_all([parent]),
            lambda: wait_any([worker, parent]),
        ]
        for use in uses:
            with pytest.raises(ClosedError, match="the doorbell is closed"):
                use()


def test_a_forgotten_doorbell_gives_everything_back() -> None:
    before = num_files()
    Doorbell.pair(SharedBlock.create(NUM_BYTES), 0)
    assert num_files() == before


@pytest.mark.parametrize("offset", [-64, 8, 64, 1 << 60])
def test_has_its_place_in_the_block(offset: int) -> None:
    block = SharedBlock.create(NUM_BYTES + 63)
    with pytest.raises(ValueError, match=f"from a multiple of 64 on, .*; got byte {offset}"):
        Doorbell.pair(block, offset)
    block.close()


def test_refuses_what_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedBlock.create(NUM_BYTES)
    with pytest.raises(ValueError, match="num_spins must be at least 1, got 0"):
        Doorbell.pair(block, 0, num_spins=0)
    with pytest.raises(ValueError, match="at least one doorbell"):
        wait_any([])
    assert wait_all([]) is Wake.RUNG
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ValueError, match="needs x86-64"):
        Doorbell.pair(block, 0, path="spin")
    block.close()


@pytest.mark.parametrize(
    ("machine", "has_yield", "expected"),
    [
        ("x86_64", True, "spin"),
        ("AMD64", True, "spin"),
        ("AMD64", False, "kernel"),
        ("arm64", True, "kernel"),
        ("riscv64", True, "kernel"),
    ],
)
def test_spins_only_where_memory_is_ordered(
    machine: str, has_yield: bool, expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(os, "sched_yield", lambda: None, raising=False)
    if not has_yield:
        monkeypatch.delattr(os, "sched_yield")
    assert default_path() == expected


def test_says_that_too_many_files_are_open() -> None:
    block = SharedBlock.create(NUM_BYTES)
    before = num_files()
    with files_to_spare(1), pytest.raises(WorkerError, match=r"doorbell .*: .*ulimit -n"):
        Doorbell.pair(block, 0)
    assert num_files() == before
    block.close()


# Other processes.


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("path", PATHS)
def test_a_killed_worker_is_missed(context: Context, path: Path) -> None:
    with workers(context, 2, answer, 1, 0, path=path) as (bells, processes):
        processes[0].kill()
        processes[0].join()
        bells[1].ring()
        assert bells[1].wait(WAIT_S) is Wake.RUNG
        ring_all(bells)
        begin = monotonic()
        assert wait_all(bells, WAIT_S) is Wake.PEER_GONE
        assert monotonic() - begin < WAIT_S / 2  # it was noticed, not timed out
        assert [bell.is_peer_gone() for bell in bells] == [True, False]
        assert bells[1].wait(WAIT_S) is Wake.RUNG


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has pidfd")
def test_a_killed_worker_is_missed_although_its_fork_lives_on() -> None:
    with workers(FORKSERVER, 1, fork_and_hang) as ([bell], [process]):
        sentinel = os.pidfd_open(process.pid or 0)
        bell.ring()
        process.kill()
        assert bell.wait(SHORT_S) is Wake.TIMED_OUT
        bell.watch(sentinel)
        assert bell.wait(WAIT_S) is Wake.PEER_GONE
        os.close(sentinel)


@pytest.mark.parametrize("start_method", CONTEXTS)
def test_a_worker_leaves_when_its_parent_is_killed(start_method: str) -> None:
    script = f"from tests.helpers.children import start_a_worker; start_a_worker({start_method!r})"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "RUNG\n"
        parent.kill()
        begin = monotonic()
        assert parent.stdout.read() == ""  # all who had it are gone
        assert monotonic() - begin < WAIT_S / 2


@pytest.mark.parametrize("path", PATHS)
def test_waiting_takes_no_processor_time(path: Path) -> None:
    block = SharedBlock.create(NUM_BYTES + 8)
    used_s = block.array(NUM_BYTES, 1, np.float64)
    with (
        pairs(1, path) as [(silent, _)],
        workers(FORKSERVER, 1, report_processor_time, block, path=path) as ([bell], _),
    ):
        silent.ring()
        worker_before, before = float(used_s[0]), process_time()
        assert silent.wait(3 * SHORT_S) is Wake.TIMED_OUT
        used = process_time() - before
        bell.ring()
        assert bell.wait(WAIT_S) is Wake.RUNG
        assert used < SHORT_S
        assert used_s[0] - worker_before < SHORT_S
    block.close()


def play_ping_pong(path: Path, num_spins: int, longest_pause: int, num_rings: int) -> None:
    """Pauses of all lengths on both sides, so that rings meet the other one in every state."""
    random = Random(num_spins)
    bells_and_processes = workers(
        FORKSERVER, 2, answer, 7, longest_pause, path=path, num_spins=num_spins
    )
    with bells_and_processes as (bells, _):
        for _ in range(num_rings // 2):
            how = random.randrange(3)
            if how == 0:
                ring_all(bells)
            else:
                for bell in bells:
                    bell.ring()
            dawdle(random, longest_pause)
            while how == 1 and (missing := [bell for bell in bells if not bell.is_rung]):
                assert wait_any(missing, WAIT_S) is Wake.RUNG
            assert wait_all(bells, WAIT_S) is Wake.RUNG
        assert [bell.num_rings for bell in bells] == [1 + num_rings // 2] * 2


SPINS_AND_PAUSES: list[tuple[Path, int, int]] = [
    (path, num_spins, longest_pause)
    for path in PATHS
    for num_spins, longest_pause in [(1, 100), (20, 1000), (doorbell.NUM_SPINS, 0)]
    if path == "spin" or num_spins == 1
]


@pytest.mark.parametrize(("path", "num_spins", "longest_pause"), SPINS_AND_PAUSES)
def test_no_ring_is_lost(path: Path, num_spins: int, longest_pause: int) -> None:
    play_ping_pong(path, num_spins, longest_pause, 5_000)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "num_spins", "longest_pause"), SPINS_AND_PAUSES)
def test_no_ring_is_ever_lost(path: Path, num_spins: int, longest_pause: int) -> None:
    play_ping_pong(path, num_spins, longest_pause, 100_000)
