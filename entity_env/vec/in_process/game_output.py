"""GameOutput: shows what one of many environments prints."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final, Self, TextIO, cast

_log: Final = logging.getLogger(__name__)


class GameOutput:
    """Standard output while environments are stepped: `with output(current): ...`.

    Passes only the output of the first environment of this process that prints. Does not affect
    standard error.

    Args:
        num_envs: number of environments in all processes; with 1, all output passes.
        says_so: logs a warning the first time output is dropped.
    """

    def __init__(self, num_envs: int, *, says_so: bool) -> None:
        self._num_envs = num_envs
        self._is_on = num_envs > 1
        self._current: Sequence[int] | memoryview = [0]
        self._says_so = says_so
        self._first: int | None = None
        """Environment whose output passes."""
        self._stream: TextIO = sys.stdout

    def __call__(self, current: Sequence[int] | memoryview) -> Self:
        """Returns itself; `current[0]` is the environment being stepped."""
        self._current = current
        return self

    def __enter__(self) -> None:
        if self._is_on and sys.stdout is not cast(TextIO, self):
            self._stream = sys.stdout
            sys.stdout = cast(TextIO, self)

    def __exit__(self, *_: object) -> None:
        if sys.stdout is cast(TextIO, self):
            sys.stdout = self._stream
        else:  # a suspended game has redirected stdout, and will restore this object
            self._is_on = False

    def write(self, text: str) -> int:
        env_id = self._current[0]
        if self._first is None:
            self._first = env_id
        if env_id == self._first or not self._is_on:
            return self._stream.write(text)
        if self._says_so:
            self._says_so = False
            _log.warning(
                "of %d environments, only the first one that prints is shown; print with "
                "file=sys.stderr to show the output of all",
                self._num_envs,
            )
        return len(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any stream
        return getattr(self._stream, name)
