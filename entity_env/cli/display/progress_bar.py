"""ProgressBar: how much of something long has been done."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

_PATIENCE_S: Final = 1.0


class ProgressBar:
    """Shows a bar on stderr when it takes more than a moment, and stderr is a terminal.

    Args:
        total: how many there are to do.
    """

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            "playing",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("playing", total=total)
        self._start_s = time.monotonic() + _PATIENCE_S if console.is_terminal else math.inf

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def count(self, done: object = None) -> None:
        """One more is done."""
        self._bar.advance(self._task)
        if time.monotonic() > self._start_s:
            self._bar.start()
            self._start_s = math.inf
