"""Output of a command on a terminal, as SVG: the command runs on a separate pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_TOKEN: Final = re.compile(
    r"\x1b\[(?P<numbers>[?\d;]*)(?P<code>[A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|(?P<control>[\r\n])|(?P<text>[^\x1b\r\n]+)|\x1b."
)
_STYLE: Final = re.compile(r"\x1b\[[\d;]*m")
_SETTLED_S: Final = 0.05
"""After this time without output, a frame is complete: programs write each frame at once."""
_LIMIT_S: Final = 600.0
_COLUMNS: Final = (60, 110)
"""Minimum and maximum number of columns of a picture; longer lines are wrapped."""
_SCALE: Final = 0.6
"""Pixels per unit: text is 12 pixels high in all pictures that fit a page."""
_FORMAT: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><style>
.{unique_id}-matrix,.{unique_id}-title{{font-family:ui-monospace,"Cascadia Mono",Menlo,Consolas,\
"DejaVu Sans Mono",monospace;font-size:{char_height}px}}
{styles}
</style>{chrome}<g transform="translate({terminal_x},{terminal_y})">{backgrounds}\
<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""
"""Template for rich, whose own loads a font from another host; this one loads nothing."""


class Screen:
    """The lines on a terminal, with their styles as escape sequences.

    Supports what our programs and rich write: whole lines, moving up, and erasing.
    """

    def __init__(self) -> None:
        self._lines = [""]
        self._row = 0
        self._is_start = True

    def feed(self, output: str) -> None:
        """Shows output that ends between two escape sequences."""
        for token in _TOKEN.finditer(output):
            if text := token["text"]:
                self._write(text)
            elif token["control"] == "\r":
                self._is_start = True
            elif token["control"]:
                self._row += 1
                self._is_start = True
                if self._row == len(self._lines):
                    self._lines.append("")
            elif code := token["code"]:
                self._escape(code, token["numbers"], token[0])

    def _write(self, text: str) -> None:
        kept = "" if self._is_start else self._lines[self._row]
        self._lines[self._row] = kept + text
        self._is_start = False

    def _escape(self, code: str, numbers: str, sequence: str) -> None:
        if code == "m":
            self._write(sequence)
        elif code == "A":
            self._row = max(self._row - int(numbers or 1), 0)
        elif code == "K" and (numbers == "2" or self._is_start):
            self._lines[self._row] = ""
        elif code == "J":
            del self._lines[self._row + (not self._is_start) :]
            self._lines += [""] * (self._row + 1 - len(self._lines))

    @property
    def styled(self) -> str:
        """The text with its styles, without empty lines at the end."""
        return "\n".join(self._lines).rstrip()

    @property
    def plain(self) -> str:
        """The text alone."""
        return _STYLE.sub("", self.styled)


def screen_of(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str],
    *,
    shows: str,
    size: tuple[int, int],
) -> str:
    """The first screen that matches a pattern, with its styles; then the command is ended.

    Args:
        words: the command.
        folder, variables: where it runs.
        shows: a regular expression; "" = the screen at the end.
        size: columns and rows.

    Raises:
        RuntimeError: no screen matches, or the system has no pseudo-terminals.
    """
    ours, theirs = _pseudo_terminal(*size)
    process = subprocess.Popen(
        words, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    screen, found = Screen(), ""
    try:
        for output in _frames(ours):
            screen.feed(output)
            if shows and re.search(shows, screen.plain):
                found = screen.styled
                break
    finally:
        if process.poll() is None and shows:
            process.terminate()
        os.close(ours)
        process.wait(_LIMIT_S)
    if not shows:
        return screen.styled
    if not found:
        raise RuntimeError(f"{' '.join(words)} never showed {shows!r}, at last:\n{screen.plain}")
    return found


def _pseudo_terminal(num_columns: int, num_rows: int) -> tuple[int, int]:
    """Descriptors of both ends of a pseudo-terminal, the command's last."""
    if sys.platform == "win32":
        raise RuntimeError("pictures of a terminal need a pseudo-terminal, which Windows lacks")
    else:  # type checkers skip this branch for Windows
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", num_rows, num_columns, 0, 0))
        return ours, theirs


def _frames(terminal: int) -> Iterator[str]:
    """The output, in parts that end when the command pauses, so each has whole frames.

    It ends with the command, or after a limit.
    """
    deadline, output = time.monotonic() + _LIMIT_S, b""
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], _SETTLED_S)[0]:
            try:
                more = os.read(terminal, 1 << 16)
            except OSError:  # how Linux reports the end
                more = b""
            if more:
                output += more
                continue
            yield output.decode(errors="replace")
            return
        if output:
            yield output.decode(errors="replace")
            output = b""


def svg_of(screen: str, title: str) -> str:
    """A screen as SVG, readable on light and dark pages.

    Args:
        screen: text with escape sequences.
        title: the command, above it.
    """
    lines = [Text.from_ansi(line) for line in screen.split("\n")]
    wanted = max(cell_len(title) + 14, *(line.cell_len for line in lines))
    width = min(max(wanted, _COLUMNS[0]), _COLUMNS[1])
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(line, highlight=False)
    svg = console.export_svg(title=title, code_format=_FORMAT, unique_id="t")
    svg = re.sub(r' clip-path="[^"]*"', "", svg)
    wide = round(_SCALE * float(svg.partition('viewBox="0 0 ')[2].partition(" ")[0]))
    return svg.replace("<svg ", f'<svg width="{wide}" ', 1)
