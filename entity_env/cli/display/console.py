"""Console output: frames that replace each other, a progress bar, plain tables."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from typing import Final, Self

import click
from rich import console as rich_console
from rich.console import ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar as LiveBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from entity_env.authoring.local_run import Turn

_PATIENCE_S: Final = 1.0
_REFRESH_S: Final = 0.1
_LINE_S: Final = 10.0
"""Seconds between two lines of progress, without a terminal."""
_FILE_WIDTH: Final = 200
_CONTROLS: Final = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1, such as ESC and CSI
    "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidi
    "\U000e0000-\U000e007f\ud800-\udfff]"  # tags, halves of surrogate pairs
)


def printable(text: str) -> str:
    r"""Makes untrusted text safe for a terminal: control characters become escapes like `\x1b`.

    Keeps line breaks; tabs become spaces.
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text).expandtabs()


def plain(text: str) -> str:
    r"""`printable`, and on one line: a line break, such as one in a file's name, becomes `\n`."""
    return printable(text).replace("\n", "\\n")


def echo(*lines: str, err: bool = False) -> None:
    """Prints lines to stdout or stderr, each `plain`."""
    click.echo("\n".join(map(plain, lines)), err=err)


class Console(rich_console.Console):
    """rich's console, with `printable` texts: only styles become escape sequences."""

    @classmethod
    def for_tables(cls) -> Console:
        """A console for stdout; wide if that is not a terminal, because a file has no width."""
        console = cls()
        if not console.is_terminal:
            console.width = _FILE_WIDTH
        return console

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


class OutputClosed(SystemExit):
    """The reader of stdout has exited, as `head` does; not a mistake of a game that draws."""


class LiveDisplay:
    """Shows frames at a steady pace; on a terminal, each frame replaces the last.

    rich's `Live` keeps the cursor in the frame's last line; here it is below the frame, for input.
    Whatever writes there must erase its text before the next frame. `fps` applies only to
    terminals; None = no pauses.
    """

    def __init__(
        self,
        console: rich_console.Console,
        *,
        fps: float | None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._console = console
        self._interval_s = 1 / fps if fps and console.is_terminal else 0.0
        self._wait = wait
        self._num_lines = 0
        self._next_s = 0.0

    def show(self, frame: RenderableType, *, is_paced: bool = True, extra_s: float = 0.0) -> None:
        """Shows a frame; a paced frame first waits until the time of the previous one is over.

        The time of a paced frame is one interval plus `extra_s`.
        """
        if is_paced and self._interval_s:
            self._keep_pace(extra_s)
        if not self._console.is_terminal:
            try:
                self._console.print(frame)
                self._console.print()
            except SystemExit as error:  # rich's, for a broken pipe
                raise OutputClosed(error.code) from error
            return
        lines = self._lines(frame)
        back = f"\r\x1b[{self._num_lines}A" if self._num_lines else ""
        text = "".join(f"{line}\x1b[K\n" for line in lines)
        # In one write: a terminal that draws between two writes would flicker.
        self._console.file.write(f"\x1b[?25l{back}{text}\x1b[J")
        self._console.file.flush()
        self._num_lines = len(lines)

    def close(self) -> None:
        """Shows the cursor, and leaves the last frame; may be called twice."""
        if self._console.is_terminal:
            self._console.show_cursor(True)
        self._num_lines = 0

    def _lines(self, frame: RenderableType) -> list[str]:
        with self._console.capture() as capture:
            self._console.print(frame)
        # The cursor cannot return to the start of a frame higher than the screen.
        return capture.get().splitlines()[: max(1, self._console.height - 2)]

    def _keep_pace(self, extra_s: float) -> None:
        remaining_s = self._next_s - time.monotonic()
        if remaining_s > 0:
            self._wait(remaining_s)
        self._next_s = max(self._next_s, time.monotonic()) + self._interval_s + extra_s


class _PatientBar:
    """A progress line on stderr, if the work takes over a second and stderr is a terminal."""

    def __init__(
        self, *columns: str | ProgressColumn, total: int | None = None, auto_refresh: bool = True
    ) -> None:
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, auto_refresh=auto_refresh)
        self._task = self._bar.add_task("", total=total)
        self._next_s = time.monotonic() + _PATIENCE_S if console.is_terminal else math.inf
        """Time of the next drawing, by `time.monotonic`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar.live.is_started:
            self._bar.stop()


class ProgressBar(_PatientBar):
    """Counts up to `total`; without a terminal, a line every ten seconds on stderr.

    Args:
        what: what it counts.
        max_steps: the step limit of an episode, for the lines; None = no limit.
    """

    def __init__(
        self,
        total: int,
        what: str = "playing",
        *,
        max_steps: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        columns = what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        super().__init__(*columns, "{task.description}", total=total)
        self._what, self._total, self._clock = what, total, clock
        self._limit = "" if max_steps is None else f" of at most {max_steps:,} (--max-steps)"
        self._start_s = clock()
        self._next_line_s = math.inf if self._bar.console.is_terminal else clock() + _LINE_S
        self._next_at_s = clock() + _LINE_S
        self._num_done = 0
        self._place = ""
        self._seen: set[int] = set()
        """Episodes that `watch` has counted."""

    def count(self, done: object = None) -> None:
        self._num_done += 1
        self._bar.advance(self._task)
        if time.monotonic() > self._next_s:
            self._bar.start()
            self._next_s = math.inf
        self._show()

    def at(self, episode: int, step: int) -> None:
        """Shows the step of an episode, if it takes long."""
        now_s = self._clock()
        if now_s >= self._next_at_s:
            self._next_at_s = now_s + (_LINE_S if self._next_line_s < math.inf else 1)
            self._place = f"episode {episode} is at step {step:,}{self._limit}"
            if time.monotonic() > self._next_s:
                self._bar.start()
                self._next_s = math.inf
            self._bar.update(self._task, description=self._place)
            self._show()

    def watch(self, turn: Turn) -> None:
        """A watcher of `Game.run` that counts its episodes."""
        if turn.episode is None:
            self.at(turn.number, turn.step)
        elif turn.number not in self._seen:
            self._seen.add(turn.number)
            self.count()

    def _show(self) -> None:
        """Prints a line, if one is due."""
        now_s = self._clock()
        if now_s < self._next_line_s:
            return
        self._next_line_s = now_s + _LINE_S
        place = f"; {self._place}" if self._place else ""
        seconds = f"after {now_s - self._start_s:.0f} s"
        echo(f"{self._what}: {self._num_done} of {self._total} {seconds}{place}", err=True)
        self._place = ""


def cut_words(num_cut: int, num_episodes: int, max_steps: int | None) -> str:
    """Says how many episodes did not end within the step limit."""
    which = "the episode" if num_episodes == 1 else f"{num_cut} of {num_episodes} episodes"
    what = "counts as truncated, with its" if num_cut == 1 else "count as truncated, with their"
    steps = f"{max_steps or 0:,} steps"
    return f"{which} did not end in {steps} and {what} score until then (--max-steps)"


class StageDisplay(_PatientBar):
    """The current stage of some work and its seconds; drawn in `show`, not by a thread."""

    def __init__(self) -> None:
        columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
        super().__init__(*columns, auto_refresh=False)

    def show(self, stage: str) -> None:
        """Draws the stage, at most ten times per second."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _REFRESH_S
        self._bar.start()
        self._bar.update(self._task, description=stage, refresh=True)


class RunDisplay:
    """Progress of training, live on a terminal and line by line elsewhere; a context manager.

    Args:
        title: in bold, next to the bar.
        start: shown first.
        interval_s: seconds between two lines.
        clock: returns seconds.
    """

    def __init__(
        self,
        title: str,
        console: rich_console.Console,
        start: RenderableType,
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._title = title
        self._console = console
        self._clock = clock
        self._interval_s = interval_s
        self._next_line_s = -math.inf
        self._live = Live(start, console=console, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _head(self, share: float, *words: str) -> RenderableType:
        """The title, a bar of the completed share (0 to 1), and words."""
        head = Table.grid(padding=(0, 2))
        bar = LiveBar(total=1.0, completed=share, width=30)
        head.add_row(Text(self._title, style="bold"), bar, f"{share:4.0%}", *words)
        return head

    def _is_due(self) -> bool:
        """True if it is time for the next line; restarts the interval."""
        if self._clock() < self._next_line_s:
            return False
        self._next_line_s = self._clock() + self._interval_s
        return True

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)


def plain_table(label: str | None = None, *numbers: str, gap: int = 2) -> Table:
    """A table without borders: a column of labels, then right-aligned columns."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    if label is not None:
        table.add_column(label, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table
