"""Failures of games: which exceptions are failures, and their messages and tracebacks as text.

Games may define the exception classes, so reading any attribute may raise.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from entity_env.authoring.step_timeout import AgentHangs, GameHangs
from entity_env.errors import EntityEnvError, GameExit, UsageError, WorkerError, shown
from entity_env.lazy_imports import late_module

if TYPE_CHECKING:
    import difflib
    import traceback
else:  # needed only for errors, and a third of a game's import time
    difflib, traceback = late_module("difflib"), late_module("traceback")

E = TypeVar("E", bound=BaseException)

GENERATED: Final = "<features of "
"""Beginning of the file names of code that reads entities."""
MAX_MESSAGE: Final = 10_000
"""Longer exception messages lose their middle."""
MAX_TRACE: Final = 50_000
"""Longer tracebacks lose their beginning: the innermost frames stay."""
SEATS: Final = "agents: "
"""Start of a note that names the agents of a match, by seat."""
_MAX_FRAMES: Final = 500
"""Maximum frames of a traceback, counted from the innermost."""
_MAX_NOTES: Final = 20

_CALLS: Final = {"act", "act_async", "game_over", "seed"}
"""Attributes of an agent that games use, suggested for any name that it lacks."""
_RETURN: Final = "return from play instead"
_HEAD: Final = "Traceback (most recent call last):\n"
_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_GAMES: Final = os.path.join(_PACKAGE, "games")


def is_failure(error: BaseException) -> bool:
    """True for an exception raised by a game; False for its unwinding and interrupts by signals.

    `GameExit` and `GreenletExit` unwind a game. Every `Exception`, and `GameHangs`, is a failure.
    Any other exception, such as `SystemExit`, is a failure unless it, or one in its chain, comes
    from a signal handler. Python's default Ctrl-C handler leaves no frame in the traceback: while
    it is set, every `KeyboardInterrupt` counts as Ctrl-C, even if the game raised it. Worker
    processes set another handler.
    """
    if is_a(error, Exception) or is_a(error, GameHangs):
        return True
    return not _is_exit(error) and not any(map(_is_of_signal, chain_of(error)))


def _is_exit(error: BaseException) -> bool:
    """Whether the exception unwinds a closed or garbage-collected game."""
    greenlet = sys.modules.get("greenlet")  # not imported here: not every game is suspended
    return is_a(error, GameExit) or (greenlet is not None and is_a(error, greenlet.GreenletExit))


def is_a(error: BaseException, kind: type[E]) -> TypeGuard[E]:
    """`isinstance` without reading the exception's `__class__`, which may raise."""
    return issubclass(type(error), kind)


def reason_of(error: BaseException) -> str:
    """Reason of the `WorkerError` for a failed game."""
    if is_a(error, AgentHangs):
        return f"{error.agent} hangs: {error}"
    if is_a(error, GameHangs):
        return f"the game hangs: {error}"
    if is_a(error, SystemExit):
        code = _attribute(error, SystemExit, "code")
        return f"the game called sys.exit({'' if code is None else shown(code)}): {_RETURN}"
    return f"the game raised {summary_of(error)}"


def refuse_exit(error: BaseException, *, seed: int, episode: int, step: int) -> None:
    """Raises `WorkerError` for a failure that would end the program: a hang, `sys.exit()`.

    Returns for an interrupt, and for failures that the caller's `except Exception` would catch.
    """
    if not is_a(error, Exception) and is_failure(error):
        place = {"seed": seed, "episode": episode, "step": step}
        raise WorkerError(
            reason_of(error), **place, game_traceback=game_traceback(error)
        ) from error


def exit_error(error: BaseException, call: str = "") -> UsageError | None:
    """The error for `sys.exit()` in code of a user; None for anything else.

    Also for other exceptions that end a program, such as a KeyboardInterrupt without a Ctrl-C. Not
    for an `Exception`, an interrupt, the unwinding of a game, or an exit by this package.

    Args:
        call: what called the code, for the message.
    """
    if is_a(error, Exception) or not is_failure(error):
        return None
    *_, last = "", *(each.f_code.co_filename for each, _ in traceback.walk_tb(traceback_of(error)))
    if not last or _is_ours(last):
        return None
    what = f"{name_of(error)} was raised"
    if is_a(error, SystemExit):
        code = _attribute(error, SystemExit, "code")
        what = f"sys.exit({'' if code is None else shown(code)}) was called"
    start = f"{call}: " if call else ""
    return UsageError(f"{start}{what} at {line_of_error(error)}: it ends the program")


@contextmanager
def no_exits(call: str) -> Iterator[None]:
    """Context that raises `exit_error` for code of a user that ends the program."""
    try:
        yield
    except BaseException as error:
        require_error(error, call)
        raise


def require_error(error: BaseException, call: str) -> None:
    """Raises `exit_error`, if there is one, and anything else that is not an `Exception`."""
    if (found := exit_error(error, call)) is not None:
        raise found from error
    if not is_a(error, Exception):
        raise error


def game_traceback(error: BaseException) -> str:
    """The traceback of an error as text, from the game's first frame on, or whole if it has none.

    An `EntityEnvError` is formatted by `mistake_of`, a hang by `stack_of`.
    """
    if is_a(error, GameHangs):
        return stack_of(error)
    trace = traceback_of(error)
    if is_a(error, EntityEnvError):
        return mistake_of(error, trace)
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace_of(error, trace)


def mistake_of(error: BaseException, trace: TracebackType | None) -> str:
    """The traceback, as text, of an error that this package raised about a game's mistake.

    It has only the game's frames, from `trace` on. Causes without frames of the game are skipped.
    """
    try:
        report = traceback.TracebackException(type(error), error, trace)
        report.stack[:] = _of_game(report.stack)
        cause = report.__cause__
        while cause is not None and not _of_game(cause.stack):
            cause = cause.__cause__
        report.__cause__ = cause
        report.__suppress_context__ = True
        return shortened_trace("".join(report.format()))
    except BaseException as failure:  # raised by the cause
        _require_failure(failure)
        return trace_of(error, trace)


def _of_game(stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    return [frame for frame in stack if not _is_ours(frame.filename)]


def stack_of(hang: GameHangs) -> str:
    """The stack of a hanging game as text, from its first to its last frame."""
    if hang.stack:
        return hang.stack
    frames = traceback.extract_tb(traceback_of(hang))
    of_game = [i for i, frame in enumerate(frames) if not _is_ours(frame.filename)]
    shown = frames[of_game[0] : of_game[-1] + 1] if of_game else frames
    return f"{_HEAD}{''.join(traceback.format_list(shown))}".rstrip()


def stack_at(frame: FrameType | None) -> str:
    """The game's frames of a running stack as text, in the form of `stack_of`."""
    frames = [
        each
        for each in traceback.extract_stack(frame)
        if not _is_ours(each.filename) and each.filename != threading.__file__
    ]
    return f"{_HEAD}{''.join(traceback.format_list(frames))}".rstrip()


def line_of_error(error: BaseException) -> str:
    """The game's innermost line in a traceback, as "game.py:12 in play", or empty."""
    line = ""
    for frame, number in traceback.walk_tb(traceback_of(error)):
        if not _is_ours(frame.f_code.co_filename):
            line = _line(frame, number)
    return line


def file_of_error(error: BaseException) -> str | None:
    """The file with a syntax error, or of the user's outermost line in a traceback; else None."""
    if is_a(error, SyntaxError):
        return error.filename
    frames = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(traceback_of(error)))
    return next((file for file in frames if not _is_ours(file)), None)


def line_of_frame(frame: FrameType | None) -> str:
    """`line_of_error` for a running stack."""
    for outer, number in traceback.walk_stack(frame) if frame is not None else ():
        file = outer.f_code.co_filename
        if file == threading.__file__:  # the start of a game's thread
            break
        if not _is_ours(file):
            return _line(outer, number)
    return ""


def trace_of(error: BaseException, trace: TracebackType | None = None) -> str:
    """A traceback as text, at most `MAX_TRACE` characters."""
    trace = trace or traceback_of(error)
    try:
        if len(text_of(error)) <= MAX_MESSAGE:
            return shortened_trace(_formatted(error, trace))
    except BaseException as failure:  # raised by its text, its notes or its cause
        _require_failure(failure)
    frames = traceback.format_tb(trace, limit=-_MAX_FRAMES)
    return shortened_trace("".join([*frames, summary_of(error)]))


def summary_of(error: BaseException) -> str:
    """Class and message of an exception, as on the last line of a traceback."""
    return f"{name_of(error)}: {shortened(text_of(error))}"


def name_of(error: BaseException) -> str:
    """Class name of an exception, even if its metaclass overrides `__name__`."""
    return str(type.__dict__["__name__"].__get__(type(error)))


def _formatted(error: BaseException, trace: TracebackType | None) -> str:
    report = traceback.TracebackException(type(error), error, trace, limit=-_MAX_FRAMES)
    lines, last = list(report.format()), list(report.format_exception_only())
    message = f"{type(error).__name__}: {error}"
    if last[0] == f"{message}\n":  # Python 3.12 and later append suggestions themselves
        lines[-len(last)] = f"{message}{suggestion_of(error)}\n"
    return "".join(lines)


def suggestion_of(error: BaseException) -> str:
    """ ". Did you mean: 'entities'?" for a misspelled attribute, name or keyword, else "".

    Keywords are those of this package's functions. Python suggests names only when it prints
    uncaught errors, and keywords from 3.13 on.
    """
    if is_a(error, TypeError):
        return _keyword_meant(text_of(error))
    if not (is_a(error, AttributeError) or is_a(error, NameError)):
        return ""
    try:
        wanted, known = error.name or "", _known_names(error)
    except BaseException as failure:  # raised by the object, or by the exception's class
        _require_failure(failure)
        return ""
    is_public = not wanted.startswith("_")
    known = [each for each in known if not (is_public and each.startswith("_"))]
    close = difflib.get_close_matches(wanted, known, n=1)
    if not close and is_public and set(known) >= _CALLS:
        *most, last = sorted(_CALLS)
        return f". An agent has {', '.join(most)} and {last}"
    return f". Did you mean: {close[0]!r}?" if close else ""


def _keyword_meant(text: str) -> str:
    found = re.search(r"^([\w.]+)\(\) got an unexpected keyword argument '(\w+)'$", text)
    if found is None:
        return ""
    first, *rest = found[1].split(".")
    value = getattr(sys.modules.get("entity_env"), first, None)
    for name in rest:
        value = getattr(value, name, None)
    if not callable(value):
        return ""
    close = difflib.get_close_matches(found[2], inspect.signature(value).parameters, n=1)
    return f". Did you mean: {close[0]!r}?" if close else ""


def _known_names(error: AttributeError | NameError) -> list[str]:
    if is_a(error, AttributeError):
        return dir(error.obj)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [*frames[-1].f_locals, *frames[-1].f_globals, *dir(builtins)] if frames else []


def text_of(error: BaseException) -> str:
    """Message of an exception, even if its `__str__` fails."""
    try:
        return "".join([str(error), ""])  # an exact `str`: the game may return a subclass
    except BaseException as failure:
        _require_failure(failure)
        return f"(its message cannot be made: {name_of(failure)})"


def notes_of(error: BaseException) -> list[str]:
    """Those of the first `_MAX_NOTES` notes of an exception that are text, shortened."""
    try:
        notes = getattr(error, "__notes__", ())
    except BaseException as failure:
        _require_failure(failure)
        return []
    if not isinstance(notes, list | tuple):
        return []
    return [shortened(note) for note in notes[:_MAX_NOTES] if isinstance(note, str)]


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception, unless its class is frozen."""
    try:
        BaseException.add_note(error, note)
    except BaseException as failure:
        _require_failure(failure)


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an exception, bypassing its class."""
    trace: TracebackType | None = _attribute(error, BaseException, "__traceback__")
    return trace


def shortened(text: str) -> str:
    """A message, without its middle if it is longer than `MAX_MESSAGE` characters."""
    if len(text) <= MAX_MESSAGE:
        return text
    half = MAX_MESSAGE // 2
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"


def shortened_trace(text: object) -> str:
    """The last `MAX_TRACE` characters of a traceback; "" if it is not text."""
    if not isinstance(text, str):
        return ""
    text = text.rstrip()
    return text if len(text) <= MAX_TRACE else f"[…] {text[-MAX_TRACE:]}"


def _attribute(error: BaseException, kind: type[BaseException], name: str) -> Any:  # noqa: ANN401 - as the attribute
    """An attribute of a built-in class, which a game's class may override."""
    return vars(kind)[name].__get__(error)


def _require_failure(error: BaseException) -> None:
    if not is_failure(error):
        raise error


def require_mistake(error: BaseException) -> None:
    """Raises an interrupt, a hang or a lack of memory again: users' classes did not cause them."""
    if is_a(error, GameHangs) or is_a(error, MemoryError) or not is_failure(error):
        raise error


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, the members of its group, its causes and contexts."""
    pending: list[BaseException | None] = [error]
    seen = set[int]()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        pending += [_attribute(each, BaseException, name) for name in ("__cause__", "__context__")]
        if is_a(each, BaseExceptionGroup):
            pending += _attribute(each, BaseExceptionGroup, "exceptions")


def _is_of_signal(error: BaseException) -> bool:
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in codes for frame, _ in traceback.walk_tb(traceback_of(error))):
        return True
    return is_a(error, KeyboardInterrupt) and _code_of(signal.getsignal(signal.SIGINT)) is None


def _code_of(handler: object) -> CodeType | None:
    """Code of a signal handler; None if it is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # SIG_DFL, SIG_IGN, or None if Python did not set it
        return None
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _line(frame: FrameType, number: int) -> str:
    return f"{frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"


def _is_ours(file: str) -> bool:
    """Whether a file belongs to this package, except its games, or to Python's import system.

    Code that the package generates belongs to it, see `entity_type`.
    """
    if file.startswith(("<frozen importlib", GENERATED)) or file == importlib.__file__:
        return True
    return file.startswith(_PACKAGE) and not file.startswith(_GAMES)
