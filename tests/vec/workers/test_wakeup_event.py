"""Wake-up events: no notification is lost, dead peers are detected, waiting costs nothing."""

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
from entity_env.vec.workers import wakeup_event
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.wakeup_event import (
    NUM_BYTES,
    Path,
    Wake,
    WakeUpEvent,
    default_path,
    wait_all,
    wait_any,
)
from tests.helpers.children import WAIT_S, answer, dawdle, fork_and_hang, report_processor_time
from tests.helpers.descriptors import files_to_spare, num_files

Context = SpawnContext | ForkServerContext
FORKSERVER = mp.get_context("forkserver")
CONTEXTS: dict[str, Context] = {"spawn": mp.get_context("spawn"), "forkserver": FORKSERVER}
SHORT_S = 0.1
"""Long enough to notice a wait that returns early or uses the processor."""

Pair = tuple[WakeUpEvent, WakeUpEvent]
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
        WakeUpEvent.pair(block, i * NUM_BYTES, path=path, num_spins=num_spins)
        for i in range(number)
    ]
    block.close()  # no longer needed
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
    num_spins: int = wakeup_event.NUM_SPINS,
) -> Iterator[tuple[list[WakeUpEvent], list[BaseProcess]]]:
    """Processes that run `target(event, *arguments)`; they must exit by themselves."""
    events: list[WakeUpEvent] = []
    processes: list[BaseProcess] = []
    with ExitStack() as stack:
        block = SharedBlock.create(number * NUM_BYTES)
        stack.callback(block.close)
        for i in range(number):
            ours, theirs = WakeUpEvent.pair(block, i * NUM_BYTES, path=path, num_spins=num_spins)
            process = context.Process(target=target, args=(theirs, *arguments))
            process.start()
            theirs.close()
            stack.callback(process.join, WAIT_S)
            stack.callback(ours.close)
            events.append(ours)
            processes.append(process)
        ring_all(events)
        assert wait_all(events, WAIT_S) is Wake.NOTIFIED
        yield events, processes


def ring_all(events: Sequence[WakeUpEvent]) -> None:
    for event in events:
        event.notify()


def is_asleep(event: WakeUpEvent) -> bool:
    return bool(event._words[event._mine + wakeup_event._ASLEEP])


# One process: notifications and return values.


def test_takes_turns(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        assert worker.wait(0) is Wake.TIMED_OUT
        assert parent.wait(0) is Wake.NOTIFIED  # it has not asked
        for number in range(1, 300):
            parent.notify()
            assert not parent.is_notified
            assert parent.wait(0) is Wake.TIMED_OUT
            assert worker.wait(0) is Wake.NOTIFIED
            assert worker.wait() is Wake.NOTIFIED  # until it answers
            parent.notify()  # not a new request
            assert parent.num_notifications == number
            worker.notify()
            worker.notify()
            assert worker.num_notifications == number
            assert worker.wait(0) is Wake.TIMED_OUT
            assert parent.wait() is Wake.NOTIFIED
            assert parent.is_notified


ACTIONS = ["ring", "answer", "leave", "wait", "await"]


@pytest.mark.parametrize("path", PATHS)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=30))
def test_agrees_with_a_model(path: Path, actions: list[tuple[str, int]]) -> None:
    """In any order, each wait equals the model, for one event and for several."""
    asked, has_left = [False] * 3, [False] * 3

    def expected(of: Sequence[int], enough: Callable[[Sequence[bool]], bool]) -> Wake:
        if enough([not asked[i] for i in of]):
            return Wake.NOTIFIED
        return Wake.PEER_GONE if any(asked[i] and has_left[i] for i in of) else Wake.TIMED_OUT

    with pairs(3, path) as made:
        parents = [parent for parent, _ in made]
        for action, i in actions:
            parent, worker = made[i]
            if action == "ring":
                parent.notify()
                asked[i] = True
            elif action == "wait":
                assert parent.wait(0) is expected([i], all)
            elif has_left[i]:
                assert parent.is_peer_gone()
            elif action == "answer":
                worker.notify()
                asked[i] = False
            elif action == "await":
                assert worker.wait(0) is (Wake.NOTIFIED if asked[i] else Wake.TIMED_OUT)
            else:
                worker.close()
                has_left[i] = True
            assert wait_any(parents, 0) is expected(range(3), any)
            assert wait_all(parents, 0) is expected(range(3), all)
            assert [parent.is_notified for parent in parents] == [not each for each in asked]
            assert [parent.is_peer_gone() for parent in parents] == has_left


def test_a_worker_notices_that_its_parent_is_gone(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        parent.notify()
        parent.close()
        assert worker.wait() is Wake.NOTIFIED
        worker.notify()  # no receiver
        assert worker.wait() is Wake.PEER_GONE
        assert worker.is_peer_gone()


@pytest.mark.parametrize("path", PATHS)
def test_a_sentinel_tells_that_the_other_side_is_gone(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        sentinel, held_open = os.pipe()
        parent.watch(sentinel)
        parent.notify()
        assert parent.wait(0) is Wake.TIMED_OUT
        os.close(held_open)
        assert parent.wait() is Wake.PEER_GONE
        assert parent.is_peer_gone()
        worker.notify()
        assert parent.wait() is Wake.NOTIFIED
        os.close(sentinel)


@pytest.mark.parametrize("timeout_s", [-1, 0, SHORT_S])
def test_times_out_in_time(path: Path, timeout_s: float) -> None:
    with pairs(2, path, wakeup_event.NUM_SPINS) as [(first, _), (second, _)]:
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
        leaver.notify()
        leaver.close()
        begin = process_time()
        assert wait_all([pending, answered], SHORT_S) is Wake.TIMED_OUT
        assert process_time() - begin < SHORT_S / 2


def test_the_socket_may_fill_up(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        worker._set_asleep(True)
        for _ in range(10_000):
            parent.notify()
        assert worker.wait(0) is Wake.NOTIFIED
        worker.notify()
        assert worker.wait(0) is Wake.TIMED_OUT
        assert parent.wait(0) is Wake.NOTIFIED
        parent.notify()
        assert worker.wait(0) is Wake.NOTIFIED


# Interrupted: by an exception from a signal handler.


class Interrupter:
    """Raises a KeyboardInterrupt before the n-th executed line of wakeup_event.py."""

    def __init__(self, line: int) -> None:
        self.lines_to_go = line
        self._tracer_before = sys.gettrace()

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer_before)

    def _trace(self, frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename != wakeup_event.__file__:
            return None
        if event == "line":
            self.lines_to_go -= 1
            if self.lines_to_go == 0:
                raise KeyboardInterrupt
        return self._trace


def interruptions(call: Callable[[], object]) -> Iterator[None]:
    """Interrupts a call before its first line, then its second, until it completes."""
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
@pytest.mark.parametrize("wait", [lambda events, s: events[0].wait(s), wait_any, wait_all])
def test_an_interrupted_wait_may_be_repeated(
    path: Path, wait: Callable[[Sequence[WakeUpEvent], float], Wake]
) -> None:
    with pairs(1, path) as [(parent, worker)]:
        events = [parent]
        parent.notify()
        for _ in interruptions(lambda: wait(events, 0)):
            assert wait(events, 0) is Wake.TIMED_OUT
            worker.notify()
            assert wait(events, 0) is Wake.NOTIFIED
            assert is_asleep(parent) == (path == "kernel")
            parent.notify()
        worker.notify()
        for _ in interruptions(lambda: wait(events, 0)):
            assert wait(events, 0) is Wake.NOTIFIED


@pytest.mark.parametrize("path", PATHS)
def test_an_interrupted_ring_rang_or_did_not(path: Path) -> None:
    with pairs(1, path) as [(parent, worker)]:
        num_notifications = 0
        worker._set_asleep(True)
        for _ in interruptions(parent.notify):
            assert parent.num_notifications in (num_notifications, num_notifications + 1)
            if parent.num_notifications > num_notifications:  # then it has also woken the worker
                assert select.select([worker._socket], [], [], 0)[0]
            parent.notify()
            num_notifications = parent.num_notifications
            assert worker.wait(0) is Wake.NOTIFIED
            worker.notify()
            worker._set_asleep(True)
            assert parent.wait(0) is Wake.NOTIFIED
            assert not worker.is_peer_gone()  # reads the available bytes


def test_a_lock_left_taken_does_no_harm() -> None:
    with pairs(1, "kernel") as [(parent, worker)]:
        parent._take(False)  # as if interrupted before returning it
        parent.notify()
        parent.notify()
        assert worker.wait(0) is Wake.NOTIFIED


# Construction and closing.


def test_closed() -> None:
    with pairs(1, "kernel") as [(parent, worker)]:
        before = num_files()
        parent.close()
        parent.close()
        assert parent.is_closed
        assert not worker.is_closed
        assert num_files() == before - 1
        uses: list[Callable[[], object]] = [
            parent.notify,
            parent.wait,
            parent.is_peer_gone,
            parent.__reduce__,
            lambda: parent.is_notified,
            lambda: parent.num_notifications,
            lambda: wait_all([parent]),
            lambda: wait_any([worker, parent]),
        ]
        for use in uses:
            with pytest.raises(ClosedError, match="the wake-up event is closed"):
                use()


def test_a_forgotten_doorbell_gives_everything_back() -> None:
    before = num_files()
    WakeUpEvent.pair(SharedBlock.create(NUM_BYTES), 0)
    assert num_files() == before


@pytest.mark.parametrize("offset", [-64, 8, 64, 1 << 60])
def test_has_its_place_in_the_block(offset: int) -> None:
    block = SharedBlock.create(NUM_BYTES + 63)
    with pytest.raises(ValueError, match=f"from a multiple of 64 on, .*; got byte {offset}"):
        WakeUpEvent.pair(block, offset)
    block.close()


def test_refuses_what_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SharedBlock.create(NUM_BYTES)
    with pytest.raises(ValueError, match="num_spins must be at least 1, got 0"):
        WakeUpEvent.pair(block, 0, num_spins=0)
    with pytest.raises(ValueError, match="at least one wake-up event"):
        wait_any([])
    assert wait_all([]) is Wake.NOTIFIED
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ValueError, match="needs x86-64"):
        WakeUpEvent.pair(block, 0, path="spin")
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
    with files_to_spare(1), pytest.raises(WorkerError, match=r"wake-up event .*: .*ulimit -n"):
        WakeUpEvent.pair(block, 0)
    assert num_files() == before
    block.close()


# Other processes.


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
@pytest.mark.parametrize("path", PATHS)
def test_a_killed_worker_is_missed(context: Context, path: Path) -> None:
    with workers(context, 2, answer, 1, 0, path=path) as (events, processes):
        processes[0].kill()
        processes[0].join()
        events[1].notify()
        assert events[1].wait(WAIT_S) is Wake.NOTIFIED
        ring_all(events)
        begin = monotonic()
        assert wait_all(events, WAIT_S) is Wake.PEER_GONE
        assert monotonic() - begin < WAIT_S / 2  # detected, not timed out
        assert [event.is_peer_gone() for event in events] == [True, False]
        assert events[1].wait(WAIT_S) is Wake.NOTIFIED


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has pidfd")
def test_a_killed_worker_is_missed_although_its_fork_lives_on() -> None:
    assert hasattr(os, "pidfd_open")
    with workers(FORKSERVER, 1, fork_and_hang) as ([event], [process]):
        sentinel = os.pidfd_open(process.pid or 0)
        event.notify()
        process.kill()
        assert event.wait(SHORT_S) is Wake.TIMED_OUT
        event.watch(sentinel)
        assert event.wait(WAIT_S) is Wake.PEER_GONE
        os.close(sentinel)


@pytest.mark.slow
@pytest.mark.parametrize("start_method", CONTEXTS)
def test_a_worker_leaves_when_its_parent_is_killed(start_method: str) -> None:
    script = f"from tests.helpers.children import start_a_worker; start_a_worker({start_method!r})"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "NOTIFIED\n"
        parent.kill()
        begin = monotonic()
        assert parent.stdout.read() == ""  # all holders are gone
        assert monotonic() - begin < WAIT_S / 2


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_waiting_takes_no_processor_time(path: Path) -> None:
    block = SharedBlock.create(NUM_BYTES + 8)
    used_s = block.array(NUM_BYTES, 1, np.float64)
    with (
        pairs(1, path) as [(silent, _)],
        workers(FORKSERVER, 1, report_processor_time, block, path=path) as ([event], _),
    ):
        silent.notify()
        worker_before, before = float(used_s[0]), process_time()
        assert silent.wait(3 * SHORT_S) is Wake.TIMED_OUT
        used = process_time() - before
        event.notify()
        assert event.wait(WAIT_S) is Wake.NOTIFIED
        assert used < SHORT_S
        assert used_s[0] - worker_before < SHORT_S
    block.close()


def play_ping_pong(path: Path, num_spins: int, longest_pause: int, num_notifications: int) -> None:
    """Random pauses on both sides, so that notifications arrive in every state of the peer."""
    random = Random(num_spins)
    events_and_processes = workers(
        FORKSERVER, 2, answer, 7, longest_pause, path=path, num_spins=num_spins
    )
    with events_and_processes as (events, _):
        for _ in range(num_notifications // 2):
            how = random.randrange(3)
            if how == 0:
                ring_all(events)
            else:
                for event in events:
                    event.notify()
            dawdle(random, longest_pause)
            while how == 1 and (missing := [event for event in events if not event.is_notified]):
                assert wait_any(missing, WAIT_S) is Wake.NOTIFIED
            assert wait_all(events, WAIT_S) is Wake.NOTIFIED
        assert [event.num_notifications for event in events] == [1 + num_notifications // 2] * 2


SPINS_AND_PAUSES: list[tuple[Path, int, int]] = [
    (path, num_spins, longest_pause)
    for path in PATHS
    for num_spins, longest_pause in [(1, 100), (20, 1000), (wakeup_event.NUM_SPINS, 0)]
    if path == "spin" or num_spins == 1
]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "num_spins", "longest_pause"), SPINS_AND_PAUSES)
def test_no_ring_is_lost(path: Path, num_spins: int, longest_pause: int) -> None:
    play_ping_pong(path, num_spins, longest_pause, 5_000)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "num_spins", "longest_pause"), SPINS_AND_PAUSES)
def test_no_ring_is_ever_lost(path: Path, num_spins: int, longest_pause: int) -> None:
    play_ping_pong(path, num_spins, longest_pause, 100_000)
