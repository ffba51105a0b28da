"""What an exception says, as text of bounded length; of its traceback the part of the game."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

MAX_MESSAGE: Final = 10_000
"""Characters of an exception's message; longer ones lose their middle."""
MAX_TRACE: Final = 50_000
"""Characters of a traceback; longer ones lose their beginning: the innermost frames stay."""
_MAX_FRAMES: Final = 500
"""Frames of a traceback, the innermost ones."""
_MAX_NOTES: Final = 20

_PACKAGE: Final = str(Path(__file__).parents[1])
_GAMES: Final = str(Path(__file__).parents[1] / "games")


def game_traceback(error: BaseException) -> str:
    """The traceback of an error from the game's own first frame on, as text; all of it if there
    is no such frame."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace_of(error, trace)


def trace_of(error: BaseException, trace: TracebackType | None = None) -> str:
    """A traceback as text, at most `MAX_TRACE` characters.

    Args:
        error: the exception.
        trace: where its traceback begins; all of it when None.
    """
    trace = trace or error.__traceback__
    try:
        if len(str(error)) <= MAX_MESSAGE:
            lines = traceback.format_exception(type(error), error, trace, limit=-_MAX_FRAMES)
            return shortened_trace("".join(lines))
    except Exception:  # of the game's exception: its text, its notes, what it was raised from
        pass
    frames = traceback.format_tb(trace, limit=-_MAX_FRAMES)
    summary = f"{type(error).__name__}: {shortened(text_of(error))}"
    return shortened_trace("".join([*frames, summary]))


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


def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE) and not file.startswith(_GAMES)
