"""Ctrl-C, held back to where stopping leaves everything whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class HeldInterrupt:
    """While open, holds the first Ctrl-C back until `check`; the second one strikes at once.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._is_open = False
        self._previous: signal._HANDLER = signal.SIG_DFL

    def __enter__(self) -> HeldInterrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._hold)
            self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_open:
            signal.signal(signal.SIGINT, self._previous)
            self._is_open = False

    def check(self) -> None:
        """Raises the interrupt that came meanwhile.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._is_pending:
            raise KeyboardInterrupt
        self._is_pending = True
