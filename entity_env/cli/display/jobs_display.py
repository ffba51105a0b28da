"""JobsDisplay: how far several training runs are, live on a terminal, line by line elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from entity_env.cli.display.console import Console

_LINE_INTERVAL_S: Final = 10.0


class JobsDisplay:
    """Shows a bar over all runs, a line about them, and more on a terminal; in a `with` block."""

    def __init__(
        self,
        title: str,
        console: Console,
        *,
        starting: str = "starting",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._console = console
        self._clock = clock
        self._line = ""
        self._next_line_s = -math.inf
        self._live = Live(
            Text(f"{title}: {starting}", style="dim"), console=console, refresh_per_second=4
        )

    def __enter__(self) -> JobsDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, share: float, line: str, more: RenderableType = "") -> None:
        """Shows the share of the work that is done, from 0 to 1, and what there is to say."""
        if self._console.is_terminal:
            head = Table.grid(padding=(0, 2))
            bar = ProgressBar(total=1.0, completed=share, width=30)
            head.add_row(Text(self._title, style="bold"), bar, f"{share:4.0%}")
            self._live.update(Group(head, Text(line), *([more] if more else [])))
        elif line != self._line and self._clock() >= self._next_line_s:
            self._line, self._next_line_s = line, self._clock() + _LINE_INTERVAL_S
            self._console.print(line, soft_wrap=True, highlight=False)
