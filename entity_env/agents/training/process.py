"""Process-wide changes during training: signals, the garbage collector, glibc's malloc."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from entity_env.agents.training.tracking.progress import TrainResult

RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"
"""Environment variable in which torchrun counts restarts."""
# Option numbers from glibc's malloc.h; then the largest block to take from the heap, and the
# largest amount of freed memory to keep, in bytes.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_LARGEST_BLOCK: Final = 2**25
_KEPT: Final = 2**30
_MANY_OBJECTS: Final = 20_000
"""Number of net new objects that triggers the garbage collector."""
_HELD: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    if hasattr(signal, name)
)
"""Signals of Ctrl-C, of schedulers and services, and of a closed terminal or console."""


class StoppedBySignal(SystemExit):
    """SIGTERM or SIGHUP ended a training run, after a checkpoint.

    Args:
        signum: number of the signal; the exit code is 128 + `signum`, as in a shell.
        result: result of the run.
    """

    def __init__(self, signum: int, result: TrainResult) -> None:
        super().__init__(128 + signum)
        self.signum = signum
        self.result = result


class HeldInterrupt:
    """Context that defers signals until `check`; a Ctrl-C after a deferred signal raises at once.

    With `is_ending`, `check` is no longer called, so a Ctrl-C after any signal raises at once.

    Signals that were ignored before, as by `nohup`, stay ignored, except Ctrl-C. Does nothing in
    any thread except the main one, because Python handles signals only there.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first signal."""
        self.is_ending = False
        """True if the run is ending, so a Ctrl-C after any signal raises immediately."""
        self._is_pending = False
        self._previous: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> HeldInterrupt:
        if threading.current_thread() is threading.main_thread():
            for signum in _HELD:
                previous = signal.getsignal(signum)
                is_ignored = previous == signal.SIG_IGN and signum != signal.SIGINT
                # None: a handler not set from Python, which cannot be restored.
                if previous is not None and not is_ignored:
                    self._previous[signum] = previous
                    signal.signal(signum, self._hold)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._previous:
            signum, previous = self._previous.popitem()
            signal.signal(signum, previous)

    def check(self) -> None:
        """Raises `KeyboardInterrupt` for a deferred signal, once."""
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    @property
    def ends_program(self) -> bool:
        """True if the first signal was not Ctrl-C."""
        return self.signum is not None and self.signum != signal.SIGINT

    def deliver(self, result: TrainResult, cause: BaseException | None) -> None:
        """Passes SIGTERM or SIGHUP on, after everything is saved and the context is closed.

        Calls the program's handler. Without one, raises `StoppedBySignal`, from `cause` if an error
        followed the signal. Does nothing after Ctrl-C.
        """
        if self.signum is None or not self.ends_program:
            return
        if signal.getsignal(self.signum) == signal.SIG_DFL:
            raise StoppedBySignal(self.signum, result) from cause
        signal.raise_signal(self.signum)

    def _hold(self, signum: int, frame: FrameType | None) -> None:
        is_second = self._is_pending or (self.is_ending and self.signum is not None)
        if is_second and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self._is_pending = True
        self.signum = self.signum or signum


@cache
def tune_malloc() -> None:
    """Lets glibc keep up to 1 GiB of freed memory; does nothing with other C libraries.

    Every operation on a batch allocates and frees tensors of several MiB. By default glibc returns
    such blocks to the system, which clears every page of the next block: this took more than half
    of a forward pass over 6,000 entities. Applies to the process until it exits.
    """
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _KEPT)


@contextmanager
def freeze_gc() -> Iterator[Callable[[], None]]:
    """Context with a function that calls `gc.freeze` and makes collections rare; undone on exit.

    Thousands of environments and compiled functions are hundreds of thousands of objects; scanning
    them took a quarter of the training time of one-step games. The observations of a step are
    thousands of new objects, none of them garbage yet; a collection after every 700 new objects
    took a tenth of the training time. Does nothing in a process with frozen objects; a larger
    threshold, or 0, stays.
    """
    is_ours, before = not gc.get_freeze_count(), gc.get_threshold()

    def freeze() -> None:
        if is_ours:
            gc.collect()
            gc.freeze()
            if 0 < before[0] < _MANY_OBJECTS:
                gc.set_threshold(_MANY_OBJECTS, *before[1:])

    try:
        yield freeze
    finally:
        if is_ours:
            gc.unfreeze()
            gc.set_threshold(*before)
