"""Messages and tracebacks of exceptions in games, as texts of bounded length."""

from __future__ import annotations

import builtins
import difflib
import importlib
import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from entity_env.authoring.step_timeout import GameHangs
from entity_env.errors import EntityEnvError

MAX_MESSAGE: Final = 10_000
"""Characters of an exception's message; longer ones lose their middle."""
MAX_TRACE: Final = 50_000
"""Characters of a traceback; longer ones lose their beginning: the innermost frames stay."""
_MAX_FRAMES: Final = 500
"""Frames of a traceback, the innermost ones."""
_MAX_NOTES: Final = 20

_HEAD: Final = "Traceback (most recent call last):\n"
_PACKAGE: Final = str(Path(__file__).parents[1])
_GAMES: Final = str(Path(__file__).parents[1] / "games")


def game_traceback(error: BaseException) -> str:
    """The traceback of an error from the game's own first frame on, as text; all of it if there
    is no such frame. Of a mistake that this package found: see `mistake_of`."""
    if isinstance(error, EntityEnvError):
        return mistake_of(error, error.__traceback__)
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace_of(error, trace)


def mistake_of(error: EntityEnvError, trace: TracebackType | None) -> str:
    """The traceback of a mistake that this package found in a game, as text: the game's frames from
    `trace` on, without ours, and what it was raised from only if that has frames of the game."""
    report = traceback.TracebackException(type(error), error, trace)
    report.stack[:] = _of_game(report.stack)
    cause = report.__cause__
    while cause is not None and not _of_game(cause.stack):
        cause = cause.__cause__
    report.__cause__ = cause
    report.__suppress_context__ = True
    return shortened_trace("".join(report.format()))


def _of_game(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    return [frame for frame in stack if not _is_ours(frame.filename)]


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


def file_of_error(error: BaseException) -> str | None:
    """The file of a user's outermost line in a traceback, or of a syntax error; None without."""
    if isinstance(error, SyntaxError):
        return error.filename
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((file for file in frames if not _is_ours(file)), None)


def line_of_frame(frame: FrameType | None) -> str:
    """The same of a stack, from its innermost frame outwards."""
    for outer, number in traceback.walk_stack(frame) if frame is not None else ():
        file = outer.f_code.co_filename
        if file == threading.__file__:  # where a game's thread begins
            break
        if not _is_ours(file):
            return _line(outer, number)
    return ""


def trace_of(error: BaseException, trace: TracebackType | None = None) -> str:
    """A traceback as text, at most `MAX_TRACE` characters."""
    trace = trace or error.__traceback__
    try:
        if len(str(error)) <= MAX_MESSAGE:
            return shortened_trace(_formatted(error, trace))
    except Exception:  # of the game's exception: its text, its notes, what it was raised from
        pass
    frames = traceback.format_tb(trace, limit=-_MAX_FRAMES)
    summary = f"{type(error).__name__}: {shortened(text_of(error))}"
    return shortened_trace("".join([*frames, summary]))


def _formatted(error: BaseException, trace: TracebackType | None) -> str:
    report = traceback.TracebackException(type(error), error, trace, limit=-_MAX_FRAMES)
    lines, last = list(report.format()), list(report.format_exception_only())
    message = f"{type(error).__name__}: {error}"
    if last[0] == f"{message}\n":  # Python 3.12 and later have added its suggestion
        lines[-len(last)] = f"{message}{suggestion_of(error)}\n"
    return "".join(lines)


def suggestion_of(error: BaseException) -> str:
    """ ". Did you mean: 'entities'?" for a misspelled attribute or name, else "".

    Python 3.11 suggests names only for uncaught errors, when it prints them.
    """
    if not isinstance(error, AttributeError | NameError) or not isinstance(error.name, str):
        return ""
    if isinstance(error, AttributeError):
        known = dir(error.obj)
    else:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        known = [*frames[-1].f_locals, *frames[-1].f_globals, *dir(builtins)] if frames else []
    is_public = not error.name.startswith("_")
    known = [each for each in known if not (is_public and each.startswith("_"))]
    close = difflib.get_close_matches(error.name, known, n=1)
    return f". Did you mean: {close[0]!r}?" if close else ""


def text_of(error: BaseException) -> str:
    """The message of an exception, whatever its `__str__` does."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its message cannot be made: {type(failure).__name__})"


def notes_of(error: BaseException) -> list[str]:
    """The notes of an exception, as far as they are text."""
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, list | tuple):
        return []
    return [shortened(note) for note in notes[:_MAX_NOTES] if isinstance(note, str)]


def shortened(text: str) -> str:
    """A message of at most `MAX_MESSAGE` characters, without its middle if it is longer."""
    if len(text) <= MAX_MESSAGE:
        return text
    half = MAX_MESSAGE // 2
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"


def shortened_trace(text: object) -> str:
    """A traceback of at most `MAX_TRACE` characters, without its beginning if it is longer."""
    if not isinstance(text, str):
        return ""
    text = text.rstrip()
    return text if len(text) <= MAX_TRACE else f"[…] {text[-MAX_TRACE:]}"


def _line(frame: FrameType, number: int) -> str:
    return f"{frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"


def _is_ours(file: str) -> bool:
    """Whether a file is of this package, or of Python's own imports."""
    if file.startswith("<frozen importlib") or file == importlib.__file__:
        return True
    return file.startswith(_PACKAGE) and not file.startswith(_GAMES)
