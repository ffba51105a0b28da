"""Ctrl-C in the program `entity-env`: while it starts, and while it imports what a command needs.

The package imports this module first, which changes the handler of SIGINT if, and only if, the
process runs the program. `interruptible` runs a command.
"""

from __future__ import annotations

import os
import signal
import sys


def _end_at_once() -> None:
    """Lets Ctrl-C end the process without a traceback, if it runs `entity-env`.

    Its imports take most of a second, in which nothing begins that needs to be cleaned up. The
    signal itself ends the process: also in long calls of C, and shells see that it was Ctrl-C.
    """
    # Ignored by background jobs of a shell, and handled by programs that embed this one.
    if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _is_program() -> bool:
    """Whether this process was started as `entity-env` or `python -m entity_env`."""
    if not sys.argv:
        return False
    if sys.argv[0] == "-m":  # while Python imports the package whose `__main__` it will run
        return sys.orig_argv[-len(sys.argv)] == "entity_env"
    return os.path.basename(sys.argv[0]).startswith("entity-env")


_end_at_once()

# ruff: noqa: E402 - after the handler: these take longer than all above
import contextlib
import threading
import time
from _thread import start_new_thread
from collections.abc import Iterator
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as a shell also reports it for a process that SIGINT has ended."""

_POLL_S: Final = 0.02
_LONGEST_IMPORT_S: Final = 10.0
"""An import that takes longer is of a script that does its work when it is imported."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Context in which Ctrl-C raises `KeyboardInterrupt`; one that leaves it is a `SystemExit`."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    is_handled = is_main and before in (signal.SIG_DFL, signal.default_int_handler)
    handler = _Handler()
    if is_handled:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
        if handler.waits_until_s is not None:  # the program ended before it was raised again
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # reported at the exit
            sys.stdout.flush()
        if is_handled:
            signal.signal(signal.SIGINT, before)
        handler.waits_until_s = None


class _Handler:
    """Raises `KeyboardInterrupt`, but after an import rather than inside it.

    There it could be swallowed, turned into another error, or printed by importlib. A second Ctrl-C
    does not wait.
    """

    def __init__(self) -> None:
        self.waits_until_s: float | None = None
        """When to raise even inside an import; None = there is no interrupt."""
        self._is_repeated = False
        """The next signal is sent by this object, not by the user."""

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
        else:  # to the main thread, which may wait in a system call by now
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
