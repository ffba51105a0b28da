"""Errors out of a game's own code, reported as its author wants them: with the game's frames."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from entity_env.authoring.game import Game
from entity_env.errors import CheckpointError, MissingExtraError, UsageError, WorkerError

_OF_THE_USER = (UsageError, CheckpointError, MissingExtraError)
"""These say what to type instead, wherever they were raised."""


class GameFailed(Exception):
    """A game's own code raised; `trace` is its traceback, from the game's first frame on."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace


@contextmanager
def failures_of(game: Game) -> Iterator[None]:
    """Turns what the game's code raises into `GameFailed`, and lets everything else pass.

    Raises:
        GameFailed: an error whose traceback goes through the file of the game's `play`.
    """
    try:
        yield
    except _OF_THE_USER:
        raise
    except WorkerError as error:
        raise GameFailed(_trace_of_worker(error, _file_of(game))) from error
    except Exception as error:
        trace = trace_from(error, _file_of(game))
        if trace is None:
            raise
        raise GameFailed(trace) from error


def trace_from(error: BaseException, file: str) -> str | None:
    """The traceback from the first frame in `file` on; None when there is no such frame."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    if trace is None:
        return None
    return "".join(traceback.format_exception(type(error), error, trace))


def _trace_of_worker(error: WorkerError, file: str) -> str:
    """The game's traceback as above, and the line that says which environment it was."""
    cause = error.__cause__
    trace = trace_from(cause, file) if isinstance(cause, Exception) else None
    message = str(error).partition("\n")[0]
    return f"{(trace or error.game_traceback).rstrip()}\n{message}\n"


def _file_of(game: Game) -> str:
    play = inspect.unwrap(game.play)
    try:
        return inspect.getfile(play)
    except TypeError:  # an instance with __call__
        return inspect.getfile(type(play))
