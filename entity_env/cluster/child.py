"""Process of a job (see `jobs`): reads a function, calls it, and ends with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
from _thread import interrupt_main
from typing import Final

import cloudpickle

from entity_env.errors import EntityEnvError
from entity_env.interrupts import INTERRUPTED, interruptible

SIZE_BYTES: Final = 8
"""Size of the number on stdin that precedes the pickled function and gives its length."""


def main() -> None:
    """Calls the function from stdin; stops it like Ctrl-C when the parent closes stdin."""
    lifeline = os.dup(0)
    with open(os.devnull, "rb") as nothing:  # games and workers must not read the lifeline
        os.dup2(nothing.fileno(), 0)
    size = int.from_bytes(_read(lifeline, SIZE_BYTES), "big")
    payload = _read(lifeline, size)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start ignoring it
    threading.Thread(target=_stop_at_end, args=(lifeline,), daemon=True, name="lifeline").start()
    with interruptible():
        try:
            cloudpickle.loads(payload).value()
        except EntityEnvError as error:
            message = " ".join(str(error).split())
            raise SystemExit(f"entity-env: {message}") from None


def _read(file: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = os.read(file, min(size, 1 << 20))
        if not part:
            raise SystemExit(INTERRUPTED)  # the parent is gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _stop_at_end(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    if sys.platform == "win32":
        interrupt_main()
    else:  # also interrupts system calls
        os.kill(os.getpid(), signal.SIGINT)
