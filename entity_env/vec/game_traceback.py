"""The part of a traceback that a game's author wants to see."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

_PACKAGE: Final = str(Path(__file__).parents[1])
_GAMES: Final = str(Path(__file__).parents[1] / "games")


def game_traceback(error: BaseException) -> str:
    """The traceback of an error from the game's own first frame on, as text; all of it if there
    is no such frame."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    shown = trace or error.__traceback__
    return "".join(traceback.format_exception(type(error), error, shown)).rstrip()


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_GAMES)
