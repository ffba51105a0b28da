"""Keyboard: single keys from a terminal, lines from any other stream.

`click.getchar` does not suffice: it reads only standard input or /dev/tty, drops keys typed before
the call, merges fast keys, and fails if a terminal disappears.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TextIO


class _Console(Protocol):
    """The console of Windows, which `msvcrt` reads."""

    def getwch(self) -> str: ...
    def kbhit(self) -> bool: ...


_console: _Console | None = None
_HAS_TERMIOS = False
if sys.platform == "win32":
    import msvcrt

    _console = msvcrt
else:
    try:
        import termios
        import tty
    except ImportError:  # a system without such terminals: only lines are read
        pass
    else:
        _HAS_TERMIOS = True

_ESCAPE: Final = "\x1b"
_ESCAPE_WAIT_S: Final = 0.05
"""A terminal sends all bytes of an arrow key at once; a person's next key takes longer."""
_ARROWS: Final = {"A": "up", "B": "down", "C": "right", "D": "left"}
_ENTER: Final = ("\n", "\r")
_END: Final = ("\x03", "\x04")  # Ctrl-C and Ctrl-D, if they arrive as keys
_CONSOLE_ARROWS: Final = {"H": "up", "P": "down", "M": "right", "K": "left"}
_CONSOLE_END: Final = ("\x04", "\x1a")  # Ctrl-D and Ctrl-Z
_POLL_S: Final = 0.01
"""Polling interval of a console."""


class Keyboard:
    """Reads keys and lines from a terminal, or lines from any stream, which it does not close."""

    def __init__(self, source: TextIO) -> None:
        self._source = source
        self._console = _console if source is sys.stdin and source.isatty() else None
        self.is_terminal = self._console is not None or (_HAS_TERMIOS and source.isatty())
        """True if single keys can be read."""

    @contextmanager
    def single_keys(self) -> Iterator[None]:
        """Context in which a terminal sends single keys without echo; Ctrl-C still interrupts."""
        if sys.platform == "win32" or self._console is not None:
            yield  # no mode to switch
        else:
            descriptor = self._source.fileno()
            before = termios.tcgetattr(descriptor)
            try:
                # Not FLUSH, the default of tty: it drops the keys typed before.
                tty.setcbreak(descriptor, termios.TCSADRAIN)
                yield
            finally:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    @contextmanager
    def whole_lines(self) -> Iterator[None]:
        """Context in which a terminal reads lines with echo."""
        if sys.platform == "win32" or self._console is not None or not self.is_terminal:
            yield
        else:
            descriptor = self._source.fileno()
            before = termios.tcgetattr(descriptor)
            mode = [*before[:3], before[3] | termios.ICANON | termios.ECHO, *before[4:]]
            try:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, mode)
                yield
            finally:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def drop_typed(self) -> None:
        """Drops what was typed but not read, on a terminal."""
        if self._console is not None:
            while self._console.kbhit():
                self._console.getwch()
        elif sys.platform != "win32" and self.is_terminal:
            termios.tcflush(self._source.fileno(), termios.TCIFLUSH)

    def key(self) -> str:
        """Waits for a key: a character, or `up`, `down`, `left`, `right`, `enter`.

        Returns "" at the end of input, for Ctrl-D (on a Windows console also for Ctrl-Z), and for a
        Ctrl-C that arrives as a key. On a Windows console, Ctrl-C raises `KeyboardInterrupt`. Call
        `key` within `single_keys`.
        """
        if self._console is not None:
            return _console_key(self._console)
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
        """True if a key can be read within `wait_s` seconds."""
        if self._console is not None:
            end = time.monotonic() + wait_s
            while not (has_key := self._console.kbhit()) and time.monotonic() < end:
                time.sleep(_POLL_S)
            return has_key
        return bool(select.select([self._source.fileno()], [], [], wait_s)[0])

    def line(self) -> str | None:
        """Waits for a line and returns it without outer whitespace; None = end of input."""
        is_posix = self.is_terminal and self._console is None
        text = self._terminal_line() if is_posix else self._source.readline()
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


def _console_key(console: _Console) -> str:
    char = console.getwch()
    if char == "\x03":
        raise KeyboardInterrupt
    if char in ("\x00", "\xe0") and console.kbhit():  # \xe0 alone is the letter à
        return _CONSOLE_ARROWS.get(console.getwch(), _ESCAPE)
    if char in _CONSOLE_END:
        return ""
    return "enter" if char in _ENTER else char
