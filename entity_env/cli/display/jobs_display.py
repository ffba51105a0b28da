"""JobsDisplay: progress of several training runs, live on a terminal, elsewhere as lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from entity_env.cli.display.console import Console, RunDisplay

_LINE_INTERVAL_S: Final = 10.0


class JobsDisplay(RunDisplay):
    """Shows a bar and a line for all runs, and more on a terminal."""

    def __init__(
        self,
        title: str,
        console: Console,
        *,
        starting: str = "starting",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        start = Text(f"{title}: {starting}", style="dim")
        super().__init__(title, console, start, _LINE_INTERVAL_S, clock)
        self._line = ""

    def show(self, share: float, line: str, more: RenderableType = "") -> None:
        """Shows the completed share (0 to 1), and text."""
        if self._console.is_terminal:
            self._live.update(Group(self._head(share), Text(line), *([more] if more else [])))
        elif line != self._line and self._is_due():
            self._line = line
            self._print(line)
