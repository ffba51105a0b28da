"""Keyboard: single keys from a terminal, lines from any other stream.

Not `click.getchar`: it reads only standard input or /dev/tty, drops keys typed before the call,
merges fast keys into one, and fails if a terminal disappears.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

try:
    import termios
    import tty
except ImportError:  # no such terminals on this system: lines only
    _HAS_TERMIOS = False
else:
    _HAS_TERMIOS = True

_ESCAPE: Final = "\x1b"
_ESCAPE_WAIT_S: Final = 0.05
"""A terminal sends all bytes of an arrow key at once; a person needs longer for the next key."""
_ARROWS: Final = {"A": "up", "B": "down", "C": "right", "D": "left"}
_ENTER: Final = ("\n", "\r")
_END: Final = ("\x03", "\x04")  # Ctrl-C and Ctrl-D, if the terminal sends them as keys


class Keyboard:
    """Reads keys and lines from a terminal, bypassing its buffer, or lines from any stream.

    Does not close the source.
    """

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self.is_terminal = _HAS_TERMIOS and source.isatty()
        """True if single keys can be read; otherwise only lines."""

    @contextmanager
    def single_keys(self) -> Iterator[None]:
        """Context in which a terminal sends single keys without echo; restores its mode.

        Ctrl-C still interrupts.
        """
        descriptor = self._source.fileno()
        before = termios.tcgetattr(descriptor)
        try:
            # Not FLUSH, the default of tty: it drops keys typed before.
            tty.setcbreak(descriptor, termios.TCSADRAIN)
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    @contextmanager
    def whole_lines(self) -> Iterator[None]:
        """Context in which a terminal sends lines and echoes them; restores its mode."""
        if not self.is_terminal:
            yield
            return
        descriptor = self._source.fileno()
        before = termios.tcgetattr(descriptor)
        mode = [*before[:3], before[3] | termios.ICANON | termios.ECHO, *before[4:]]
        try:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def drop_typed(self) -> None:
        """Discards unread input of a terminal."""
        if self.is_terminal:
            termios.tcflush(self._source.fileno(), termios.TCIFLUSH)

    def key(self) -> str:
        """Waits for a key: a character, or `up`, `down`, `left`, `right`, `enter`.

        Returns "" at the end of input and for Ctrl-D. Call it within `single_keys`.
        """
        char = self._char()
        if char in _END:
            return ""
        if char in _ENTER:
            return "enter"
        if char != _ESCAPE or not self.has_key(_ESCAPE_WAIT_S):
            return char
        sequence = self._char()
        if sequence not in ("[", "O"):
            return sequence
        sequence = ""
        while not sequence or not (sequence[-1].isalpha() or sequence[-1] == "~"):
            char = self._char()
            if not char:
                return ""  # the terminal is closed
            sequence += char
        return _ARROWS.get(sequence, _ESCAPE)

    def has_key(self, wait_s: float) -> bool:
        """Whether a key can be read, after waiting at most `wait_s` seconds."""
        return bool(select.select([self._source.fileno()], [], [], wait_s)[0])

    def line(self) -> str | None:
        """Waits for a line and strips it; None = end of input."""
        text = self._terminal_line() if self.is_terminal else self._source.readline()
        return text.strip() if text else None

    def _terminal_line(self) -> str:
        text = byte = self._byte()
        while byte not in (b"", b"\n"):
            byte = self._byte()
            text += byte
        return text.decode(errors="replace")

    def _char(self) -> str:
        """One UTF-8 character; "" at the end of input."""
        data = b""
        while True:
            byte = self._byte()
            data += byte
            try:
                return data.decode()
            except UnicodeDecodeError:
                if not byte or len(data) == 4:
                    return data.decode(errors="replace")

    def _byte(self) -> bytes:
        try:
            return os.read(self._source.fileno(), 1)
        except OSError:  # the terminal is closed
            return b""
