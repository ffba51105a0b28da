"""A pseudo terminal for tests: types input and reads a program's output."""

import os
import pty
import select
import termios
from types import TracebackType
from typing import Any


class Terminal:
    """A pseudo terminal; the other end is used by a program or an object under test."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.source = os.fdopen(os.dup(self.theirs), encoding="utf-8")
        self.out = os.fdopen(os.dup(self.theirs), "w", encoding="utf-8")
        self._mode = termios.tcgetattr(self.theirs)
        self._unread = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.source.close()
        self.out.close()
        os.close(self.theirs)
        os.close(self._ours)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is in its initial mode."""
        return self.mode == self._mode

    @property
    def mode(self) -> list[Any]:
        return termios.tcgetattr(self.theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def shown(self) -> str:
        """The output since the last call, without waiting."""
        text = b""
        while select.select([self._ours], [], [], 0)[0]:
            text += os.read(self._ours, 4096)
        unread, self._unread = self._unread, ""
        return unread + text.decode()

    def wait_for(self, text: str, limit_s: float = 30) -> str:
        """Waits for `text` and returns the output up to its end; the next call returns the rest."""
        while text not in self._unread:
            if not select.select([self._ours], [], [], limit_s)[0]:
                raise TimeoutError(f"waited for {text!r}, saw {self._unread!r}")
            self._unread += os.read(self._ours, 4096).decode(errors="replace")
        end = self._unread.index(text) + len(text)
        seen, self._unread = self._unread[:end], self._unread[end:]
        return seen
