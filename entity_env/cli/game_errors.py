"""Errors of games, bots and files that a user named: their display, and how to repeat them."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import click

from entity_env.agents import ScriptedAgent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import (
    SEATS,
    add_note,
    exit_error,
    is_a,
    line_of_error,
    mistake_of,
    notes_of,
    summary_of,
    text_of,
    trace_of,
    traceback_of,
)
from entity_env.authoring.load_module import where_tried
from entity_env.errors import (
    AnswerError,
    CheckpointError,
    EntityEnvError,
    MissingExtraError,
    ReplayError,
    UsageError,
    WorkerError,
)

_PLACE: Final = re.compile(r"\bseed (\d+), episode \d|\bepisode \d+ \(seed (\d+)\)")
"""Place in errors of games that are played, trained on, or checked."""
AGAIN: Final = "play this episode again: "
"""Start of a note with a command."""


class GameFailed(Exception):
    """A game's own code raised; `trace` is its traceback from the game's first frame."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace


@contextmanager
def game_errors(game: Game, callbacks: Iterable[type] = ()) -> Iterator[None]:
    """Raises `GameFailed` for errors that pass through the file of the game or of `callbacks`.

    Also for every `WorkerError`, and for errors of bots, whose traceback starts in the bot. Errors
    in a command or file, illegal answers of bots, and errors without a frame in those files pass
    unchanged. Raises `UsageError` if code of a user
    ends the program.
    """
    try:
        yield
    except (UsageError, CheckpointError, MissingExtraError, AnswerError, ReplayError):
        raise
    except WorkerError as error:
        cause = error.__cause__
        trace = (
            trace_from(cause, _file_of(game))
            if cause is not None and is_a(cause, Exception)
            else None
        )
        env = str(error).partition("\n")[0]
        where = "\n".join((env, *notes_of(error)))
        raise GameFailed(f"{(trace or error.game_traceback).rstrip()}\n{where}\n") from error
    except Exception as error:
        trace = _trace_from_bot(error) or trace_from(error, _file_of(game))
        for each in callbacks:
            trace = trace or trace_from(error, inspect.getfile(each))
        if trace is None:
            raise
        raise GameFailed(trace) from error
    except BaseException as error:
        if (found := exit_error(error)) is None:
            raise
        raise found from error


@contextmanager
def episode_named(context: click.Context) -> Iterator[None]:
    """Adds to a game's error the command that repeats its episode.

    The command is `entity-env play` with the episode's seed, and those given options that `play`
    also has.
    """
    try:
        yield
    except (UsageError, MissingExtraError, CheckpointError):  # not the episode's fault
        raise
    except (EntityEnvError, GameFailed) as error:
        text = "\n".join([str(error), *notes_of(error)])
        root = context.find_root().command
        place = _PLACE.search(text)
        play = root.get_command(context, "play") if isinstance(root, click.Group) else None
        if place is not None and play is not None:
            seed, seats = place[1] or place[2], re.search(f"^{SEATS}(.*)$", text, re.MULTILINE)
            given = {"agents": shlex.split(seats[1])} if seats is not None else {}
            words = _words(click.Context(play), {**context.params, **given})
            command = shlex.join(["entity-env", "play", *words, "--episode-seed", seed])
            add_note(error, f"{AGAIN}{command}")
        raise


def _words(context: click.Context, values: Mapping[str, Any]) -> Iterator[str]:
    """Arguments and options with these values, by parameter name, except the episodes to play."""
    for param in context.command.params:
        value: Any = values.get(param.name or "")
        is_default = value is None or value == param.get_default(context)
        if is_default or param.name in ("episodes", "episode_seed"):
            continue
        if not isinstance(param, click.Option):
            yield str(value)
        elif param.is_flag:
            yield (param.opts if value else param.secondary_opts)[0]
        else:
            for each in value if param.multiple else [value]:
                yield from (param.opts[-1], str(each))


def _trace_from_bot(error: BaseException) -> str | None:
    """The traceback from the call of a scripted agent, if any."""
    file = inspect.getfile(ScriptedAgent)
    trace = _first_frame(error, file)
    while trace is not None and trace.tb_frame.f_code.co_filename == file:
        trace = trace.tb_next
    if trace is None:
        return None
    return trace_of(error, trace)


def trace_from(error: BaseException, file: str) -> str | None:
    """The traceback from the first frame in `file`, if any.

    An `EntityEnvError` keeps only the game's frames.
    """
    trace = _first_frame(error, file)
    if trace is None:
        return None
    return mistake_of(error, trace) if is_a(error, EntityEnvError) else trace_of(error, trace)


def _first_frame(error: BaseException, file: str) -> TracebackType | None:
    trace = traceback_of(error)
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace


def _file_of(game: Game) -> str:
    play = inspect.unwrap(game.play)
    try:
        return inspect.getfile(play)
    except TypeError:  # an instance with __call__
        return inspect.getfile(type(play))


def load_error(path: Path, error: BaseException) -> BaseException:
    """The error to raise for a file or package that raised `error` while loading."""
    # Not Path.resolve, which raises for circular links.
    file = os.path.realpath(path / "__init__.py" if path.is_dir() else path)
    match error:
        case SyntaxError(filename=str(filename)) if Path(filename).is_file():
            return UsageError(
                f"{path if filename == file else filename}, line {error.lineno}: {error.msg}"
                + (f": {error.text.strip()}" if error.text and error.text.strip() else "")
            )
        case UsageError() | OSError() if _first_frame(error, file) is None:
            return error
        case EntityEnvError():
            trace = _first_frame(error, file)
            return UsageError(f"{path}, line {trace.tb_lineno if trace else None}: {error}")
        case ImportError():
            where = f" ({line_of_error(error)}){where_tried(error, path)}"
            return UsageError(f"{path}: {text_of(error)}{where}")
        case Exception():
            return GameFailed(trace_from(error, file) or f"{path}: {summary_of(error)}\n")
        case SystemExit():
            return UsageError(f"{path} ends the program when it is loaded: sys.exit({error.code})")
    return error
