"""Painter: frames one in place of the other on a terminal, one below the other elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, RenderableType


class Painter:
    """Shows frames at a pace.

    Between two frames nothing else may be left on a terminal: what draws there must erase itself.

    Args:
        console: where to paint.
        fps: frames a second on a terminal; None = no pause at all.
        wait: waits for so many seconds.
    """

    def __init__(
        self, console: Console, *, fps: float | None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._console = console
        self._interval_s = 1 / fps if fps and console.is_terminal else 0.0
        self._wait = wait
        self._num_lines = 0
        self._next_s = 0.0

    def paint(self, frame: RenderableType, *, is_paced: bool = True, longer_s: float = 0.0) -> None:
        """Shows a frame, after the last paced one had its time.

        Args:
            frame: what to show.
            is_paced: it waits for the last frame, and the next one waits for it.
            longer_s: seconds that it stays longer than others.
        """
        if is_paced and self._interval_s:
            self._keep_pace(longer_s)
        if not self._console.is_terminal:
            self._console.print(frame)
            self._console.print()
            return
        lines = self._lines(frame)
        back = f"\r\x1b[{self._num_lines}A" if self._num_lines else ""
        text = "".join(f"{line}\x1b[K\n" for line in lines)
        # One write: a terminal that draws between two of them would flicker.
        self._console.file.write(f"\x1b[?25l{back}{text}\x1b[J")
        self._console.file.flush()
        self._num_lines = len(lines)

    def close(self) -> None:
        """Shows the cursor again and leaves the last frame; may be called twice."""
        if self._console.is_terminal:
            self._console.show_cursor(True)
        self._num_lines = 0

    def _lines(self, frame: RenderableType) -> list[str]:
        with self._console.capture() as capture:
            self._console.print(frame)
        # A frame higher than the screen could not be painted over.
        return capture.get().splitlines()[: max(1, self._console.height - 2)]

    def _keep_pace(self, longer_s: float) -> None:
        remaining_s = self._next_s - time.monotonic()
        if remaining_s > 0:
            self._wait(remaining_s)
        self._next_s = max(self._next_s, time.monotonic()) + self._interval_s + longer_s
