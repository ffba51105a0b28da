"""WakeUpEvent: lets a parent and its worker wait for each other, like a two-sided futex.

The parent notifies; the worker executes the command and notifies back. Each side has a counter in
shared memory that only it writes. The worker has work to do while the counters differ. A waiter
reads the other side's counter a bounded number of times and yields the processor in between
(`sched_yield`), which is ten times faster than anything that blocks. Then it sleeps in the kernel,
on a socket, until the other side sends a byte or is gone.

No notification is lost: the waiter sets a flag in shared memory before it sleeps and then reads the
counter once more, while the notifier increments its counter and then reads the flag:

    waiter                         notifier
    asleep = 1                     counter += 1
    fence                          fence
    counter changed? return        asleep? send a byte
    sleep until a byte comes

On x86-64 only one thing can go wrong: a read may overtake an earlier write of the same processor to
another address. Then both sides read old values, and the waiter keeps sleeping while the notifier
sends nothing. The fences rule that out. No read or write passes a locked instruction (Intel SDM,
volume 3, "Loads and Stores Are Not Reordered with Locked Instructions"), and acquiring and
releasing a lock uses such instructions; Python has no fence. So the later of the two reads sees the
other side's write. Writes become visible in program order, so a side that sees the counter sees
everything written before it. An aligned word is written as a whole. If locks were ever implemented
differently, a notification would be late but not lost: the first sleep is short, and when it ends
all earlier writes are visible.

Other processors reorder more, and Windows has no `sched_yield`. There, on the "kernel" path, each
notification sends its number through the socket, and a waiter reads nothing else: the kernel orders
writes before a send against reads after the receipt.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from time import monotonic
from typing import Final, Literal, NoReturn, Protocol, TypeAlias

from entity_env.errors import ClosedError
from entity_env.vec.workers.shared_memory import SharedBlock, machine_error


class Wake(Enum):
    """Why a wait ended."""

    NOTIFIED = "notified"
    TIMED_OUT = "timed out"
    PEER_GONE = "peer gone"
    """The other side has closed its end, or its process has died, without a prior notification."""


Path: TypeAlias = Literal["spin", "kernel"]
"""Poll shared memory for a moment before sleeping, or always go through the kernel."""

NUM_SPINS: Final = 1000
"""Number of reads before going to sleep: about 0.4 ms on a free processor."""
NUM_BYTES: Final = 128
"""Size of a wake-up event in a block: a cache line per side."""

_LINE: Final = 64
_PARENT: Final = 0
_WORKER: Final = _LINE // 8
_ASLEEP: Final = 1
"""Indices of 8-byte words: the counter, then whether its owner sleeps."""
_SPINS_A_ROUND: Final = 50
"""Number of reads of shared memory between two clock readings."""
_FIRST_SLEEP_S: Final[float] = 0.01
_LONGEST_SLEEP_S: Final = 1e6 if hasattr(select, "poll") else 0.5
"""Limit of the system's timeouts; without `poll` (Windows), Ctrl-C does not end a longer sleep."""
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)

_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


_NOTIFIED: Final = Wake.NOTIFIED


def default_path() -> Path:
    """The fastest path that is correct on this machine."""
    is_ordered = platform.machine().lower() in ("x86_64", "amd64") and sys.maxsize > 2**32
    return "spin" if is_ordered and hasattr(os, "sched_yield") else "kernel"


class _Words(Protocol):
    """Shared memory as 8-byte words."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...


class _ClosedWords:
    """Memory of a closed wake-up event; an open event needs no check."""

    def __getitem__(self, *_: object) -> NoReturn:
        raise ClosedError("the wake-up event is closed")

    __setitem__: Callable[..., NoReturn] = __getitem__


class WakeUpEvent:
    """One end of a wake-up event: the parent's, or the worker's.

    The ends take turns: after `notify`, an end waits until the other has notified back; a second
    `notify` in between has no effect. All state is in shared memory, so an interrupted wait
    (Ctrl-C) may be repeated. After an interrupted `notify`, `num_notifications` shows whether it
    took effect.

    An end belongs to one thread at a time. The worker gets its end as an argument of its process,
    which is started with spawn or forkserver. The parent must then close its copy of that end;
    otherwise it would not detect that the worker is gone.
    """

    def __init__(
        self, block: SharedBlock, offset: int, end: socket.socket, is_parent: bool, num_spins: int
    ) -> None:
        self._arguments = (block, offset, end, is_parent, num_spins)
        self._words: _Words = block.buffer[offset : offset + NUM_BYTES].cast("q")
        self._mine, self._theirs = (_PARENT, _WORKER) if is_parent else (_WORKER, _PARENT)
        # The parent's counter moves one ahead of the worker's, which then catches up.
        self._lead = int(is_parent)
        self._distance = 1 - self._lead
        num_rounds, rest = divmod(num_spins, _SPINS_A_ROUND)
        self._rounds = (_SPINS_A_ROUND,) * num_rounds + (rest,) * (rest > 0)
        """Number of reads of each round, which ends with a clock reading; empty on the kernel path.
        """
        lock = threading.Lock()
        self._take, self._give_back = lock.acquire, lock.release
        end.setblocking(False)
        self._socket = end
        self._handles: tuple[int, ...] = (end.fileno(),)
        """Descriptors that are readable when the other side is gone, the socket first."""
        self._heard = bytearray(1)
        """Last byte received, written in place, so an interrupt loses none."""
        self._release = weakref.finalize(self, end.close)

    @classmethod
    def pair(
        cls,
        block: SharedBlock,
        offset: int,
        *,
        path: Path | None = None,
        num_spins: int = NUM_SPINS,
    ) -> tuple[WakeUpEvent, WakeUpEvent]:
        """New wake-up event: the parent's end and the worker's."""
        if offset < 0 or offset % _LINE or offset + NUM_BYTES > block.num_bytes:
            raise ValueError(
                f"a wake-up event takes {NUM_BYTES} bytes from a multiple of {_LINE} on, within "
                f"{block.num_bytes} bytes; got byte {offset}"
            )
        if num_spins < 1:
            raise ValueError(f'num_spins must be at least 1, got {num_spins}; or use path="kernel"')
        path = path or default_path()
        if path == "spin" and default_path() != "spin":
            raise ValueError(f'path="spin" needs x86-64 and sched_yield: {platform.platform()}')
        words = block.buffer[offset : offset + NUM_BYTES].cast("q")
        for side in (_PARENT, _WORKER):
            words[side] = 0
            words[side + _ASLEEP] = path == "kernel"  # always set: every notification sends a byte
        try:
            ends = socket.socketpair()
        except OSError as error:
            raise machine_error("make a wake-up event for a worker", error) from error
        spins = num_spins if path == "spin" else 0
        return cls(block, offset, ends[0], True, spins), cls(block, offset, ends[1], False, spins)

    @property
    def is_closed(self) -> bool:
        return isinstance(self._words, _ClosedWords)

    @property
    def num_notifications(self) -> int:
        return self._words[self._mine]

    @property
    def is_notified(self) -> bool:
        """True if the other end has notified and this end has not since.

        Also True for the parent's end before its first `notify`. On the "kernel" path, as of the
        last wait.
        """
        goal = self._words[self._mine] + self._distance
        if self._rounds:
            return self._words[self._theirs] == goal
        return self._heard[0] == goal & 255

    def watch(self, sentinel: int) -> None:
        """Also treats the other side as gone when `sentinel` becomes readable.

        Otherwise the death of a worker goes unnoticed while a process forked by its game lives. The
        parent passes `os.pidfd_open(process.pid)`, or else `process.sentinel`, and keeps it open as
        long as the wake-up event. Windows needs no sentinel and ignores it.
        """
        if sys.platform != "win32":
            self._handles = (*self._handles, sentinel)

    def notify(self) -> None:
        """Notifies the other side and wakes it if asleep; `wait` detects whether it is gone."""
        words = self._words
        count = words[self._theirs] + self._lead
        try:
            words[self._mine] = count
            self._take(False)  # the fence, without a function call
            self._give_back()
            if words[self._theirs + _ASLEEP]:
                self._wake()
        except BaseException:  # from a signal handler, between the count and the byte
            self._wake()
            raise

    def wait(self, timeout_s: float | None = None) -> Wake:
        deadline = None if timeout_s is None else monotonic() + timeout_s
        if _is_notified_within_spins(self, deadline):
            return _NOTIFIED
        return _sleep((self,), (self,), deadline)

    def is_peer_gone(self) -> bool:
        """True if the other side has closed its end or its process has died; asks the kernel."""
        self._words[self._mine]
        return any(self._shows_end(handle) for handle in _readable(self._handles, 0.0))

    def close(self) -> None:
        """Closes this end; the other side then treats it as gone. May be called twice."""
        self._words = _ClosedWords()
        self._handles = ()
        self._release()

    def __reduce__(self) -> tuple[type[WakeUpEvent], tuple[object, ...]]:
        self._words[self._mine]
        return type(self), self._arguments

    def _fence(self) -> None:
        """Memory fence on x86-64.

        Not a `with`: if an exception has left the lock taken, this releases it and never hangs.
        """
        self._take(False)
        self._give_back()

    def _wake(self) -> None:
        try:
            self._socket.send(bytes((self._words[self._mine] & 255,)), _NO_SIGNAL)
        except BlockingIOError:
            pass  # the socket is full, and any byte in it wakes the other side
        except ConnectionError:
            pass  # gone: the next wait reports it

    def _set_asleep(self, is_asleep: bool) -> None:
        if self._rounds:
            self._words[self._mine + _ASLEEP] = is_asleep

    def _shows_end(self, handle: int) -> bool:
        """True if a readable handle means that the other side is gone; first empties the socket."""
        is_over = self._receive()  # also for the sentinel: the other side may have notified before
        return is_over or handle != self._handles[0]

    def _receive(self) -> bool:
        """Reads all bytes; returns True if the other end of the socket is closed."""
        try:
            while self._socket.recv_into(self._heard):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass  # closed with unread bytes of ours
        return True


def wait_any(events: Sequence[WakeUpEvent], timeout_s: float | None = None) -> Wake:
    """Waits until at least one of several events is notified; check `is_notified` for which.

    All events must use the same path. `PEER_GONE` means that one event will never be notified;
    check `is_peer_gone()` for which; others may be notified. While an event is notified, the peers
    of the others are not checked.
    """
    if not events:
        raise ValueError("wait_any needs at least one wake-up event, or it would never return")
    deadline = None if timeout_s is None else monotonic() + timeout_s
    goals = [(e._words, e._theirs, e._words[e._mine] + e._distance) for e in events]
    for num_reads in events[0]._rounds:
        for _ in range(num_reads):
            for words, theirs, goal in goals:
                if words[theirs] == goal:
                    return _NOTIFIED
            _yield()
        if deadline is not None and monotonic() >= deadline:
            break
    return _sleep(events, events, deadline)


def wait_all(events: Sequence[WakeUpEvent], timeout_s: float | None = None) -> Wake:
    """Waits until all of several events are notified, at once for none; else like `wait_any`."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    for i, event in enumerate(events):
        words = event._words  # a first read without a function call
        is_notified = event._rounds and words[event._theirs] == words[event._mine] + event._distance
        if not is_notified and not _is_notified_within_spins(event, deadline):
            # Only this event wakes the sleep, but the loss of any later event's peer ends it too.
            wake = _sleep((event,), events[i:], deadline)
            if wake is not _NOTIFIED:
                return wake
    return _NOTIFIED


def _is_notified_within_spins(event: WakeUpEvent, deadline: float | None) -> bool:
    words, theirs = event._words, event._theirs
    goal = words[event._mine] + event._distance
    for num_reads in event._rounds:
        for _ in range(num_reads):
            if words[theirs] == goal:
                return True
            _yield()
        if deadline is not None and monotonic() >= deadline:
            break
    return False


def _sleep(
    events: Sequence[WakeUpEvent], watched: Iterable[WakeUpEvent], deadline: float | None
) -> Wake:
    """Sleeps until one of `events` is notified, or the peer of one of `watched` is gone."""
    owners = {handle: event for event in watched for handle in event._handles}
    longest_s = _FIRST_SLEEP_S
    is_lost = is_late = False
    try:
        for event in events:
            event._set_asleep(True)
        events[0]._fence()
        while not any(event.is_notified for event in events):
            if is_lost:
                return Wake.PEER_GONE
            if is_late:
                return Wake.TIMED_OUT
            left_s = _LONGEST_SLEEP_S if deadline is None else max(0.0, deadline - monotonic())
            handles = _readable(owners, min(left_s, longest_s))
            gone = {owners[handle] for handle in handles if owners[handle]._shows_end(handle)}
            is_lost = not all(event.is_notified for event in gone)
            is_late = not handles and left_s <= 0.0
            # Events that notified and then lost their peer would always be readable.
            owners = {handle: event for handle, event in owners.items() if event not in gone}
            longest_s = _LONGEST_SLEEP_S
        return _NOTIFIED
    finally:
        for event in events:
            event._set_asleep(False)


def _readable(handles: Iterable[int], timeout_s: float) -> list[int]:
    """Handles that are readable or closed at the other end, after at most `timeout_s`."""
    if sys.platform == "win32" or not hasattr(select, "poll"):  # on Windows all of them are sockets
        return select.select(list(handles), (), (), timeout_s)[0]
    else:
        poller = select.poll()
        for handle in handles:
            poller.register(handle, select.POLLIN)
        return [handle for handle, _ in poller.poll(timeout_s * 1000)]
