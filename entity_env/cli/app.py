"""The program `entity-env`: its commands, and error reports."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

import click

from entity_env.authoring.game_traceback import exit_error, notes_of
from entity_env.authoring.load_module import nearest
from entity_env.cli.command import CommandParser, parser_of
from entity_env.cli.display.console import echo
from entity_env.cli.game_errors import AGAIN, GameFailed
from entity_env.cli.named import only_named_code
from entity_env.errors import EntityEnvError, TrainingDivergedError, UsageError
from entity_env.interrupts import INTERRUPTED, interruptible

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "bench": ("info", "Bench"),
    "capture-goal": ("capture_goal", "CaptureGoal"),
    "check": ("info", "Check"),
    "clone": ("clone", "Clone"),
    "collect": ("collect", "Collect"),
    "dataset": ("clone", "WriteDataset"),
    "doctor": ("info", "Doctor"),
    "draw": ("replay", "Draw"),
    "eval": ("eval", "Evaluate"),
    "export": ("runs", "Export"),
    "games": ("info", "ListGames"),
    "new": ("new", "NewGame"),
    "page": ("page", "WritePage"),
    "play": ("play", "Play"),
    "record": ("replay", "RecordEpisode"),
    "replay": ("replay", "ShowReplay"),
    "report": ("runs", "Report"),
    "reproduce": ("reproduce", "Reproduce"),
    "runs": ("runs", "ListRuns"),
    "sweep": ("sweep", "SweepCommand"),
    "train": ("train", "Train"),
    "verify": ("replay", "Verify"),
    "watch": ("runs", "Watch"),
}
"""Module in `commands` and class of each command, imported on use."""
_COPY: Final = re.compile(r"in (env|worker) \d")
_FAILED, _MISUSED = 1, 2


class _Log(logging.Handler):
    """Prints the library's warnings on stderr, with control characters escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            echo(self.format(record), err=True)
        except OSError:  # stderr is closed
            self.handleError(record)


_LOG: Final = _Log(logging.WARNING)


class _Program(click.Group):
    """Prints errors on stderr and chooses the exit code.

    2: an invalid command line, or an `EntityEnvError` other than `TrainingDivergedError`. 1:
    training diverged, a game's code raised an exception (its traceback is printed), or the machine
    failed (an unreadable file, a full disk, no memory). 130: Ctrl-C. All errors except tracebacks
    are one line, sometimes followed by a line that says what to type.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; for an unknown name `UsageError`, or None while a shell completes words."""
        if cmd_name in COMMANDS:
            return command_of(cmd_name)
        if not ctx.resilient_parsing:
            hint = nearest(cmd_name, COMMANDS) or "; entity-env --help lists the commands"
            raise UsageError(f"no command {cmd_name!r}{hint}")
        return None

    def main(self, *args: Any, **options: Any) -> NoReturn:  # noqa: ANN401 - as click's
        """Runs a command line and exits the process."""
        for stream in (sys.stdout, sys.stderr):  # file names need not be valid text
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        logging.lastResort = _LOG
        with interruptible():
            code = self._run(*args, **{**options, "standalone_mode": False})
        raise SystemExit(code)

    def _run(self, *args: Any, **options: Any) -> int:  # noqa: ANN401 - as click's
        try:
            with only_named_code():
                code = super().main(*args, **options)
            return code if isinstance(code, int) else 0
        except click.ClickException as error:
            return _refuse(error.format_message(), then=_next_step(error))
        except TrainingDivergedError as error:
            return _refuse(f"{error}{_notes(error)}", _FAILED)
        except EntityEnvError as error:
            return _refuse(f"{error}{_notes(error)}")
        except GameFailed as error:
            echo(*error.trace.rstrip().split("\n"), *notes_of(error), err=True)
            return _FAILED
        except (click.Abort, KeyboardInterrupt) as error:
            found = exit_error(error)
            return INTERRUPTED if found is None else _refuse(str(found))
        except SystemExit as error:
            if (found := exit_error(error)) is None:
                raise
            return _refuse(f"{found}{_notes(error)}")
        except OSError as error:
            _drop_output()
            place = f": {error.filename}" if error.filename else ""
            return _refuse(f"{error.strerror or error}{place}{_notes(error)}", _FAILED)
        except MemoryError as error:
            return _refuse(f"not enough memory: {error}", _FAILED)


@cache
def command_of(name: str) -> CommandParser:
    """The parser of a command."""
    module, command = COMMANDS[name]
    return parser_of(getattr(import_module(f"entity_env.cli.commands.{module}"), command), name)


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="entity-env", prog_name="entity-env")
@click.pass_context
def main(context: click.Context) -> None:
    """Play, train and evaluate games.

    GAME is the name of a game (see `entity-env games`), an environment (gymnasium:CartPole-v1,
    pettingzoo:connect_four_v3, kaggle:orbit_wars) or a Python file: my_game.py, or
    my_game.py:name if the file defines several games.
    """
    if context.invoked_subcommand is None:
        echo(*context.get_help().split("\n"))


def _refuse(message: str, code: int = _MISUSED, then: str = "") -> int:
    """Prints an error, and below it `then` (what to type next); returns the exit code."""
    for line in filter(None, (f"entity-env: {message}", then)):
        echo(" ".join(line.split()), err=True)
    return code


def _next_step(error: click.ClickException) -> str:
    """The line to print below an error: the usage, or where to find the options; "" for none."""
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return ""
    if isinstance(error, click.NoSuchOption):
        return "" if error.possibilities else f"{error.ctx.command_path} --help lists the options"
    is_wrong_value = isinstance(error, click.BadParameter | click.BadOptionUsage)
    if is_wrong_value and not isinstance(error, click.MissingParameter):
        return ""
    return error.ctx.get_usage().replace("Usage:", "usage:", 1)


def _notes(error: BaseException) -> str:
    """An error's notes, such as where a run was saved, except those that name an env or worker."""
    notes = [note for note in notes_of(error) if not _COPY.match(note)]
    return "".join(f"; {note}" if note.startswith(AGAIN) else f" ({note})" for note in notes)


def _drop_output() -> None:
    """Redirects stdout if it cannot be written: Python would report the error again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, AttributeError):  # a full disk; no stdout at all
        with contextlib.suppress(OSError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
