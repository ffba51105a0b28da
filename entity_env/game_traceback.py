"""The part of a traceback that a game's author wants to see."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from entity_env.step_timeout import GameHangs

_HEAD: Final = "Traceback (most recent call last):\n"
_PACKAGE: Final = str(Path(__file__).parent)
_GAMES: Final = str(Path(__file__).parent / "games")


def game_traceback(error: BaseException) -> str:
    """The traceback of an error from the game's own first frame on, as text; all of it if there
    is no such frame."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    shown = trace or error.__traceback__
    return "".join(traceback.format_exception(type(error), error, shown)).rstrip()


def stack_of(hang: GameHangs) -> str:
    """Where a game hangs, from its first frame to its last one, as text."""
    if hang.stack:
        return hang.stack
    frames = traceback.extract_tb(hang.__traceback__)
    of_game = [i for i, frame in enumerate(frames) if not _is_ours(frame.filename)]
    shown = frames[of_game[0] : of_game[-1] + 1] if of_game else frames
    return f"{_HEAD}{''.join(traceback.format_list(shown))}".rstrip()


def stack_at(frame: FrameType | None) -> str:
    """The same of a stack that goes on."""
    frames = [
        each
        for each in traceback.extract_stack(frame)
        if not _is_ours(each.filename) and each.filename != threading.__file__
    ]
    return f"{_HEAD}{''.join(traceback.format_list(frames))}".rstrip()


def line_of_error(error: BaseException) -> str:
    """The game's innermost line in a traceback, as "game.py:12 in play"; empty if there is none."""
    line = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not _is_ours(frame.f_code.co_filename):
            line = _line(frame, number)
    return line


def line_of_frame(frame: FrameType | None) -> str:
    """The same of a stack, from its innermost frame outwards."""
    for outer, number in traceback.walk_stack(frame) if frame is not None else ():
        file = outer.f_code.co_filename
        if file == threading.__file__:  # where a game's thread begins
            break
        if not _is_ours(file):
            return _line(outer, number)
    return ""


def _line(frame: FrameType, number: int) -> str:
    return f"{frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_GAMES)
