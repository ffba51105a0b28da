"""Interrupter: raises a KeyboardInterrupt before the n-th line, or instruction, of the library."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from greenlet import getcurrent, greenlet

import entity_env

TraceFunction: TypeAlias = "Callable[[FrameType, str, object], TraceFunction | None]"
PACKAGE = str(Path(entity_env.__file__).parent)


class Interrupter:
    """Watches the library, and the games of `told_games`, in the thread that enters it.

    A suspended game that was started inside is still watched afterwards, because greenlets keep the
    trace functions of their frames.

    Args:
        by_instruction: counts bytecode instructions instead of lines.
    """

    def __init__(self, *, by_instruction: bool = False) -> None:
        self._event = "opcode" if by_instruction else "line"
        self._by_instruction = by_instruction
        self._to_go = 0
        self._is_paused = False
        self.count = 0
        """Number of lines or instructions executed while armed."""
        self.place = ""
        """Location of the interrupt; empty before it."""
        self._tracer_before = sys.gettrace()
        self._hook_before = sys.unraisablehook

    def __enter__(self) -> Interrupter:
        # Python 3.12 and later trace instructions only if a frame requests it beforehand.
        sys._getframe().f_trace_opcodes = self._by_instruction
        sys.settrace(self._trace)
        # An interrupt in a finalizer is printed, and the call continues.
        sys.unraisablehook = lambda info: (
            None if info.exc_type is KeyboardInterrupt else self._hook_before(info)
        )
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer_before)
        sys.unraisablehook = self._hook_before

    def strike(self, call: Callable[[], object], number: int) -> bool:
        """Runs a call and raises before its n-th line; True if the call was long enough.

        Raises:
            Exception: raised by the call, other than the interrupt.
        """
        self.place, self.count, self._to_go = "", 0, number
        try:
            call()
        except KeyboardInterrupt:
            if not self.place:
                raise
        finally:
            self._to_go = 0
            sys.settrace(self._trace)  # Python disables a trace function that raises
        return bool(self.place)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Disarms: for checks between two interrupted calls."""
        before, self._is_paused = self._is_paused, True
        yield
        self._is_paused = before

    def _trace(self, frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if event == "call":
            name = frame.f_code.co_filename
            if not (name.startswith(PACKAGE) or name.endswith("told_games.py")):
                return None
            frame.f_trace_opcodes = self._by_instruction
        elif event == self._event and self._to_go and not self._is_paused:
            self.count += 1
            if self.count == self._to_go:
                code = frame.f_code
                self.place = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
                if self._by_instruction:
                    self.place += f" at {frame.f_lasti}"
                raise KeyboardInterrupt
        return self._trace


EARLIER: list[greenlet] = []
"""Games abandoned by earlier tests, suspended forever."""


def suspended_games() -> list[greenlet]:
    """Unfinished games of this test; fixtures check threads."""
    here = getcurrent()
    found = [each for each in gc.get_objects() if issubclass(type(each), greenlet)]
    return [each for each in found if each and each is not here and each not in EARLIER]
