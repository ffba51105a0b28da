"""Doorbell: how a parent and its workers wait for each other.

The parent rings, the worker does what it is asked for and rings back. Each side has a counter in
shared memory that it alone writes; the worker is asked while they differ, and has answered when
they are equal. A waiter looks at the other's counter a bounded number of times and gives the
processor away in between (`sched_yield`), because that is ten times faster than anything that
blocks. Then it goes to sleep in the kernel, on a socket, until the other side sends a byte or is
gone.

Why no ring is ever lost. The waiter says in shared memory that it sleeps, and looks at the counter
once more before it does; the ringer counts, and then looks whether the other one sleeps:

    waiter                         ringer
    asleep = 1                     counter += 1
    fence                          fence
    counter changed? go on         asleep? send a byte
    sleep until a byte comes

On x86-64 only one thing can go wrong: a read may overtake an earlier write of the same processor to
another place, so that both read old values, and the waiter sleeps on while the ringer sends
nothing. The fences rule that out: no read or write passes a locked instruction (Intel SDM, volume
3, "Loads and Stores Are Not Reordered with Locked Instructions"), and taking and giving back a lock
is made of those; Python has no fence of its own. So, of the two reads, the later one sees what the
other side wrote. Writes are seen in the order in which they were made, so who sees the counter sees
all that was written before it; and an aligned word is written as a whole. Should a lock ever be
built otherwise, a ring would be late but not lost: the first sleep is short, and when it ends no
write of before is still under way.

Other processors reorder more, and Windows has no `sched_yield`. There, on the "kernel" path, each
ring sends its number through the socket, and a waiter believes nothing else: the kernel orders what
was written before a send against what is read after the receipt.
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

    RUNG = "rung"
    TIMED_OUT = "timed out"
    PEER_GONE = "peer gone"
    """The other side has closed its end, or its process has died, and had not rung before."""


Path: TypeAlias = Literal["spin", "kernel"]
"""Look at shared memory for a moment before sleeping, or always go through the kernel."""

NUM_SPINS: Final = 1000
"""Looks before going to sleep: some 0.4 ms where a processor is free."""
NUM_BYTES: Final = 128
"""What a doorbell takes of a block: a cache line a side."""

_LINE: Final = 64
_PARENT: Final = 0
_WORKER: Final = _LINE // 8
_ASLEEP: Final = 1
"""Where the words are, in eights of bytes: counter, then whether its owner sleeps."""
_SPINS_A_ROUND: Final = 50
"""Looks at shared memory between two looks at the clock."""
_FIRST_SLEEP_S: Final[float] = 0.01
_LONGEST_SLEEP_S: Final = 1e6  # the system cannot count further
_NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)

_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


_RUNG: Final = Wake.RUNG


def default_path() -> Path:
    """The faster path of those that are right on this machine."""
    is_ordered = platform.machine().lower() in ("x86_64", "amd64") and sys.maxsize > 2**32
    return "spin" if is_ordered and hasattr(os, "sched_yield") else "kernel"


class _Words(Protocol):
    """Shared memory in eights of bytes."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...


class _ClosedWords:
    """What a closed doorbell has in place of memory, so that an open one need not ask."""

    def __getitem__(self, *_: object) -> NoReturn:
        raise ClosedError("the doorbell is closed")

    __setitem__: Callable[..., NoReturn] = __getitem__


class Doorbell:
    """One end of a doorbell: the parent's, or the worker's.

    They take turns: after `ring` one end waits until the other has rung back; to ring twice in
    between does no more. All that an end knows is in shared memory, so a wait that is interrupted
    (Ctrl-C) may be repeated, and after an interrupted `ring` tells `num_rings` whether it rang.

    An end belongs to one thread at a time. The worker's reaches it as an argument of its process,
    which is started with spawn or forkserver. The parent then closes its own copy of that end, or
    it would never learn here that the worker is gone.
    """

    def __init__(
        self, block: SharedBlock, offset: int, end: socket.socket, is_parent: bool, num_spins: int
    ) -> None:
        self._arguments = (block, offset, end, is_parent, num_spins)
        self._words: _Words = block.buffer[offset : offset + NUM_BYTES].cast("q")
        self._mine, self._theirs = (_PARENT, _WORKER) if is_parent else (_WORKER, _PARENT)
        # The parent's counter goes one ahead of the other, the worker's catches up with it.
        self._lead = int(is_parent)
        self._distance = 1 - self._lead
        num_rounds, rest = divmod(num_spins, _SPINS_A_ROUND)
        self._rounds = (_SPINS_A_ROUND,) * num_rounds + (rest,) * (rest > 0)
        """Spins, in rounds after each of which the clock is looked at; none on the kernel path."""
        lock = threading.Lock()
        self._take, self._give_back = lock.acquire, lock.release
        end.setblocking(False)
        self._socket = end
        self._handles: tuple[int, ...] = (end.fileno(),)
        """What becomes readable when the other side is gone; its socket comes first."""
        self._heard = bytearray(1)
        """The last byte that came: a receipt writes it in place, so that none is lost between."""
        self._release = weakref.finalize(self, end.close)

    @classmethod
    def pair(
        cls,
        block: SharedBlock,
        offset: int,
        *,
        path: Path | None = None,
        num_spins: int = NUM_SPINS,
    ) -> tuple[Doorbell, Doorbell]:
        """A new doorbell: the parent's end and the worker's.

        Args:
            block: where the two see each other's counters.
            offset: the first of `NUM_BYTES` bytes that nobody else uses; a multiple of 64.
            path: `default_path()` unless told.
            num_spins: looks before going to sleep, on the "spin" path; at least 1.

        Raises:
            ValueError: the place is not aligned, or not inside the block; no spins; a path that is
                wrong on this machine.
            WorkerError: there are no file descriptors left.
        """
        if offset < 0 or offset % _LINE or offset + NUM_BYTES > block.num_bytes:
            raise ValueError(
                f"a doorbell takes {NUM_BYTES} bytes from a multiple of {_LINE} on, within "
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
            words[side + _ASLEEP] = path == "kernel"  # for ever: every ring sends a byte
        try:
            ends = socket.socketpair()
        except OSError as error:
            raise machine_error("make a doorbell for a worker", error) from error
        spins = num_spins if path == "spin" else 0
        return cls(block, offset, ends[0], True, spins), cls(block, offset, ends[1], False, spins)

    @property
    def is_closed(self) -> bool:
        """`close` has been called."""
        return isinstance(self._words, _ClosedWords)

    @property
    def num_rings(self) -> int:
        """How often this end has rung."""
        return self._words[self._mine]

    @property
    def is_rung(self) -> bool:
        """The other end has rung, and this one not since; a parent that never rang is answered.

        On the "kernel" path as of the last wait.
        """
        goal = self._words[self._mine] + self._distance
        if self._rounds:
            return self._words[self._theirs] == goal
        return self._heard[0] == goal & 255

    def watch(self, sentinel: int) -> None:
        """Takes the other side for gone also when `sentinel` becomes readable.

        Otherwise a worker is not seen to die while a process that its game has forked lives on. A
        parent gives what `os.pidfd_open(process.pid)` returns, or else `process.sentinel`, and
        keeps it open as long as the doorbell. Windows needs no sentinel, and ignores it.
        """
        if sys.platform != "win32":
            self._handles = (*self._handles, sentinel)

    def ring(self) -> None:
        """Rings, and wakes the other side if it sleeps; that it is gone, only a wait tells.

        Raises:
            ClosedError: after `close`.
        """
        words = self._words
        count = words[self._theirs] + self._lead
        try:
            words[self._mine] = count
            self._take(False)  # the fence, without the price of a call
            self._give_back()
            if words[self._theirs + _ASLEEP]:
                self._wake()
        except BaseException:  # a signal handler's, between the count and the byte
            self._wake()
            raise

    def wait(self, timeout_s: float | None = None) -> Wake:
        """Waits until the other end has rung.

        Args:
            timeout_s: how long at most, in seconds; without limit when None.

        Raises:
            ClosedError: after `close`.
        """
        deadline = None if timeout_s is None else monotonic() + timeout_s
        if _is_rung_within_spins(self, deadline):
            return _RUNG
        return _sleep((self,), (self,), deadline)

    def is_peer_gone(self) -> bool:
        """The other side has closed its end, or its process has died; asks the kernel."""
        self._words[self._mine]
        return any(self._tells_the_end(handle) for handle in _readable(self._handles, 0.0))

    def close(self) -> None:
        """Closes this end, so that the other side takes it for gone; may be called twice."""
        self._words = _ClosedWords()
        self._handles = ()
        self._release()

    def __reduce__(self) -> tuple[type[Doorbell], tuple[object, ...]]:
        self._words[self._mine]
        return type(self), self._arguments

    def _fence(self) -> None:
        """Lets no read or write pass, on x86-64.

        Not a `with`: should an exception leave the lock taken, this gives it back and never hangs.
        """
        self._take(False)
        self._give_back()

    def _wake(self) -> None:
        try:
            self._socket.send(bytes((self._words[self._mine] & 255,)), _NO_SIGNAL)
        except BlockingIOError:
            pass  # full of bytes that wake it as well
        except ConnectionError:
            pass  # gone: waiting tells

    def _set_asleep(self, is_asleep: bool) -> None:
        if self._rounds:
            self._words[self._mine + _ASLEEP] = is_asleep

    def _tells_the_end(self, handle: int) -> bool:
        """Whether a readable handle says that the other side is gone; takes in what it sent."""
        is_over = self._receive()  # also when the sentinel is readable: it may have rung before
        return is_over or handle != self._handles[0]

    def _receive(self) -> bool:
        """Reads all bytes that have come; whether the other end of the socket is closed."""
        try:
            while self._socket.recv_into(self._heard):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass  # closed with bytes of ours unread
        return True


def wait_any(bells: Sequence[Doorbell], timeout_s: float | None = None) -> Wake:
    """Waits until at least one of several doorbells is rung; `is_rung` tells which.

    They must be of one path. `PEER_GONE` means that one of them never will be rung, and
    `is_peer_gone()` tells which; others may be rung all the same. While one of them is rung,
    nobody looks whether the others still live.

    Raises:
        ValueError: no bells.
        ClosedError: one of them is closed.
    """
    if not bells:
        raise ValueError("wait_any needs at least one doorbell, or it would wait for ever")
    deadline = None if timeout_s is None else monotonic() + timeout_s
    looks = [
        (bell._words, bell._theirs, bell._words[bell._mine] + bell._distance) for bell in bells
    ]
    for num_looks in bells[0]._rounds:
        for _ in range(num_looks):
            for words, theirs, goal in looks:
                if words[theirs] == goal:
                    return _RUNG
            _yield()
        if deadline is not None and monotonic() >= deadline:
            break
    return _sleep(bells, bells, deadline)


def wait_all(bells: Sequence[Doorbell], timeout_s: float | None = None) -> Wake:
    """Waits until all of several doorbells are rung, which none are at once; else as `wait_any`."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    for i, bell in enumerate(bells):
        words = bell._words  # a first look without the price of a call
        is_rung = bell._rounds and words[bell._theirs] == words[bell._mine] + bell._distance
        if not is_rung and not _is_rung_within_spins(bell, deadline):
            # Asleep on one, so that only that one wakes us; but all to come are seen to die.
            wake = _sleep((bell,), bells[i:], deadline)
            if wake is not _RUNG:
                return wake
    return _RUNG


def _is_rung_within_spins(bell: Doorbell, deadline: float | None) -> bool:
    words, theirs = bell._words, bell._theirs
    goal = words[bell._mine] + bell._distance
    for num_looks in bell._rounds:
        for _ in range(num_looks):
            if words[theirs] == goal:
                return True
            _yield()
        if deadline is not None and monotonic() >= deadline:
            break
    return False


def _sleep(bells: Sequence[Doorbell], watched: Iterable[Doorbell], deadline: float | None) -> Wake:
    """Sleeps until one of `bells` is rung, or the other side of one of `watched` is gone."""
    owners = {handle: bell for bell in watched for handle in bell._handles}
    longest_s = _FIRST_SLEEP_S
    is_lost = is_late = False
    try:
        for bell in bells:
            bell._set_asleep(True)
        bells[0]._fence()
        while not any(bell.is_rung for bell in bells):
            if is_lost:
                return Wake.PEER_GONE
            if is_late:
                return Wake.TIMED_OUT
            left_s = _LONGEST_SLEEP_S if deadline is None else max(0.0, deadline - monotonic())
            handles = _readable(owners, min(left_s, longest_s))
            gone = {owners[handle] for handle in handles if owners[handle]._tells_the_end(handle)}
            is_lost = not all(bell.is_rung for bell in gone)
            is_late = not handles and left_s <= 0.0
            # Those that have rung and then gone would be readable for ever.
            owners = {handle: bell for handle, bell in owners.items() if bell not in gone}
            longest_s = _LONGEST_SLEEP_S
        return _RUNG
    finally:
        for bell in bells:
            bell._set_asleep(False)


def _readable(handles: Iterable[int], timeout_s: float) -> list[int]:
    """Those handles that can be read, or whose other end is closed; sleeps for `timeout_s`."""
    if not hasattr(select, "poll"):  # Windows, where they are sockets, all of them
        return select.select(list(handles), (), (), timeout_s)[0]
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    return [handle for handle, _ in poller.poll(timeout_s * 1000)]
