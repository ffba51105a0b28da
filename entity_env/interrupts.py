"""Ctrl-C handling of the program `entity-env`, also while it starts and imports.

The package imports this module first, but only the program changes the SIGINT handler.
"""

from __future__ import annotations

import os
import signal
import sys


def _end_at_once() -> None:
    """Makes Ctrl-C end the process without a traceback, if it is the program `entity-env`.

    Imports take most of a second and need no cleanup. The system's default handler ends the process
    even in long C calls, and shells can tell that it was Ctrl-C.
    """
    # Keep any other handler: background jobs of a shell ignore SIGINT, and a program that embeds
    # this package may handle it.
    if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_program() -> bool:
    if not sys.argv:
        return False
    if sys.argv[0] == "-m":  # while Python imports the package whose `__main__` it is about to run
        return sys.orig_argv[-len(sys.argv)] == "entity_env"
    return os.path.basename(sys.argv[0]).startswith("entity-env")


_end_at_once()

# ruff: noqa: E402 - these imports are slow
import contextlib
import threading
import time
from _thread import start_new_thread
from collections.abc import Iterator
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C; shells also report it for a process ended by SIGINT."""

_POLL_S: Final = 0.02
_LONGEST_IMPORT_S: Final = 10.0
"""Longest delay of an interrupt. An import that takes longer is probably a script at work."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Context in which Ctrl-C raises `KeyboardInterrupt`; leaving it becomes `SystemExit(130)`.

    Keeps a SIGINT handler that another program has set, and installs none outside the main thread.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    is_handled = is_main and before in (signal.SIG_DFL, signal.default_int_handler)
    handler = _Handler()
    if is_handled:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
        if handler.waits_until_s is not None:  # the program ended before the signal was repeated
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # reported at exit
            sys.stdout.flush()
        if is_handled:
            signal.signal(signal.SIGINT, before)
        handler.waits_until_s = None


class _Handler:
    """Signal handler that raises `KeyboardInterrupt`, but waits for the end of an import.

    An import could swallow it, turn it into another error, or print it. The delay is at most
    `_LONGEST_IMPORT_S`; a second Ctrl-C ends it.
    """

    def __init__(self) -> None:
        self.waits_until_s: float | None = None
        """`time.monotonic()` at which to raise even inside an import; None = nothing is pending."""
        self._is_repeated = False
        """The next signal comes from this object, not from the user."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.waits_until_s is None:
            self.waits_until_s = now_s + _LONGEST_IMPORT_S
        elif not self._is_repeated:
            self.waits_until_s = now_s
        self._is_repeated = False
        if _is_importing(frame) and now_s < self.waits_until_s:
            start_new_thread(self._repeat, ())
            return
        self.waits_until_s = None
        raise KeyboardInterrupt

    def _repeat(self) -> None:
        time.sleep(_POLL_S)
        if self.waits_until_s is None:
            return
        self._is_repeated = True
        if sys.platform == "win32":
            signal.raise_signal(signal.SIGINT)
        else:  # to the main thread, which may be blocked in a system call
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
