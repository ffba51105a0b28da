"""GameOutput: shows the printed output of one copy of a game, out of many."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, Final, Self, TextIO, cast

_log: Final = logging.getLogger(__name__)


class GameOutput:
    """Standard output while environments are stepped: `with output(current): ...`.

    The output of the first environment that prints goes through; the output of the others is
    dropped. Standard error is not touched.

    Args:
        num_envs: number of copies in all processes; with a single copy everything goes through.
        says_so: True logs a warning when output is dropped for the first time.
    """

    def __init__(self, num_envs: int, *, says_so: bool) -> None:
        self._num_envs = num_envs
        self._is_on = num_envs > 1
        self._current: Sequence[int] | memoryview = [0]
        self._says_so = says_so
        self._first: int | None = None
        """Environment whose output goes through."""
        self._stream: TextIO = sys.stdout

    def __call__(self, current: Sequence[int] | memoryview) -> Self:
        """Returns itself, for environments of which `current[0]` is being stepped."""
        self._current = current
        return self

    def __enter__(self) -> None:
        if self._is_on and sys.stdout is not cast(TextIO, self):
            self._stream = sys.stdout
            sys.stdout = cast(TextIO, self)

    def __exit__(self, *_: object) -> None:
        if sys.stdout is cast(TextIO, self):
            sys.stdout = self._stream
        else:  # a suspended game redirects it, and will put this object back
            self._is_on = False

    def write(self, text: str) -> int:
        """Writes the text, or drops it."""
        env_id = self._current[0]
        if self._first is None:
            self._first = env_id
        if env_id == self._first or not self._is_on:
            return self._stream.write(text)
        if self._says_so:
            self._says_so = False
            _log.warning(
                "the game prints: of %d copies only the first one that does is shown; what is "
                "printed with file=sys.stderr is shown of all",
                self._num_envs,
            )
        return len(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any stream
        return getattr(self._stream, name)
