"""Plays a game in a new process, in which everything that a page lacks raises an error.

Imports only modules that every game needs: the others in the process are needed by this game.
"""

from __future__ import annotations

import _thread
import errno
import importlib.util
import os
import pickle
import random
import subprocess  # noqa: F401 - before `sys.platform` changes, so it reports what it does
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from itertools import chain
from pathlib import Path
from tempfile import gettempdir
from types import FrameType
from typing import Any, Final, NamedTuple

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import chain_of, summary_of, traceback_of
from entity_env.authoring.load_module import load_module
from entity_env.authoring.local_run import Turn, Watch
from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace

PACKAGE: Final = __name__.partition(".")[0]
PACKAGE_FOLDER: Final = str(Path(__file__).resolve().parents[1])
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_DEVICES: Final = frozenset(f"/dev/{name}" for name in ("null", "random", "urandom", "zero"))
_IMPORTING: Final = "<frozen importlib._bootstrap"
_PLATFORM: Final = "emscripten"
"""`sys.platform` in Pyodide."""
_SEEKING: Final = importlib.util.find_spec.__code__.co_filename
_MAX_DRAWN: Final = 200
_PROCESSES: Final = ("multiprocessing", "_multiprocessing")
"""Modules without which the standard library does not do."""
_NO_SHELL: Final = 2
"""Result of `os.system` in Pyodide."""

LACKING: Final = frozenset(
    {
        *("_multiprocessing", "_posixshmem", "curses", "dbm", "ensurepip", "grp", "idlelib"),
        *("multiprocessing.forkserver", "multiprocessing.resource_tracker"),
        *("multiprocessing.shared_memory", "multiprocessing.synchronize", "nis", "ossaudiodev"),
        *("pwd", "readline", "resource", "spwd", "syslog", "tkinter", "turtle", "turtledemo"),
        "venv",
        # removed from Python since 3.11
        *("aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt"),
        *("distutils", "imghdr", "imp", "lib2to3", "mailcap", "msilib", "nntplib", "pipes"),
        *("smtpd", "sndhdr", "sunau", "telnetlib", "uu", "xdrlib"),
    }
)
"""Modules of the standard library of Python 3.11 or later that Pyodide 314 cannot import."""


class Lack(NamedTuple):
    """Something that a game used and a page lacks.

    Args:
        kind: what it is: "package", "python", "outside", "compiled", "file", or a value of
            `_EVENTS`.
        name: the module or file.
        file, line: the innermost line of the game; "" and 0 if it was used outside the game.
        via: the module that used it for the game, or "".
    """

    kind: str
    name: str
    file: str
    line: int
    via: str

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for what is one obstacle: a package, or what a line uses."""
        if self.kind == "package":
            return self.kind, self.name
        return self.kind, self.name, self.file, str(self.line)


class TrialJob(NamedTuple):
    """A game to play.

    Args:
        file: of its module; "" for a module of this package.
        module, name: where the game is defined.
        settings: of the game, as JSON.
        folder: the folder of the game.
        roots: files and folders that belong to the game.
        available: names of packages that the page has.
        play: pickled function without arguments that plays the game; empty = random agents play it.
        is_blocked: raise an error for what a page lacks.
        allowed: `Lack.key` of exceptions.
        episodes, num_decisions, time_s: when to stop.
    """

    file: str
    module: str
    name: str
    settings: Mapping[str, Any]
    folder: str
    roots: Sequence[str]
    available: frozenset[str] = frozenset()
    play: bytes = b""
    is_blocked: bool = True
    allowed: frozenset[tuple[str, ...]] = frozenset()
    episodes: int = 1
    num_decisions: int = 1000
    time_s: float = 10.0


class Trial(NamedTuple):
    """A game that was played.

    Args:
        error: class and message of the exception that ended it, or "".
        file, line: the game's innermost line in its traceback, or "" and 0.
        fatal: what the error is about.
        others: what else was refused, and the game did without.
        files: files of the game that were imported, read or listed.
        modules: modules of this package.
        packages: modules of available packages.
    """

    error: str
    file: str
    line: int
    fatal: list[Lack]
    others: list[Lack]
    files: list[str]
    modules: list[str]
    packages: list[str]


def main() -> None:
    """Runs in the new process: reads the job from standard input, writes the `Trial`."""
    job: TrialJob = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    for name in [each for each in sys.modules if each.partition(".")[0] in LACKING]:
        del sys.modules[name]
    border = Border(job)
    error: BaseException | None = None
    try:
        with border:
            _try(job)
    except _Enough:
        pass
    except BaseException as raised:
        error = raised
    trial = _trial(border, error)
    from entity_env.replay.new_process import send_result

    send_result(trial)
    os._exit(0)  # threads of the game may still run


def _try(job: TrialJob) -> None:
    if job.file:
        if job.is_blocked:  # as in the page
            os.chdir(job.folder)
            os.system = lambda command: _NO_SHELL
        module = load_module(Path(job.file), first=True)
    else:
        module = import_module(job.module)
    if job.play:
        pickle.loads(job.play)()  # noqa: S301 - from our own process
        return
    game: Game = getattr(module, job.name).with_settings(**job.settings)
    limit = _Limit(job.num_decisions, time.monotonic() + job.time_s)
    visitors = [_Visitor(limit, i) for i in range(game.num_agents)]
    game.run(*visitors, episodes=job.episodes, watch=_drawing(game))


def _trial(border: Border, error: BaseException | None) -> Trial:
    causes = [] if error is None else list(chain_of(error))
    fatal = [lack for lack, raised in border.found if any(raised is each for each in causes)]
    others = [lack for lack, raised in border.found if all(raised is not each for each in causes)]
    text = "" if error is None else summary_of(error)
    file, line = ("", 0) if error is None else _line_of(border, error)
    imported = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
    files = {os.path.realpath(each) for each in imported if each.endswith(".py")} | border.read
    modules = [
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == PACKAGE
        and name != __name__
        and not isinstance(getattr(module, "__loader__", None), ExtensionFileLoader)
    ]
    own = sorted(filter(border.is_own, files))
    packages = sorted({name.partition(".")[0] for name in sys.modules} & border.available)
    return Trial(text, file, line, fatal, others, own, modules, packages)


def _line_of(border: Border, error: BaseException) -> tuple[str, int]:
    found = ("", 0)
    if isinstance(error, SyntaxError) and border.is_own(error.filename or ""):
        found = error.filename or "", error.lineno or 0
    trace = traceback_of(error)
    while trace is not None:
        if border.is_own(trace.tb_frame.f_code.co_filename):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


# ------------------------------------------------------------------ who plays


class _Enough(BaseException):
    """Ends a game; `except Exception` in it does not catch this."""


class _Limit:
    def __init__(self, num_decisions: int, until_s: float) -> None:
        self._num_left = num_decisions
        self._until_s = until_s

    def count(self) -> None:
        self._num_left -= 1
        if self._num_left < 0 or time.monotonic() > self._until_s:
            raise _Enough


class _Visitor(PolicyAgent):
    """Random legal actions without numpy."""

    _takes_plain = True

    def __init__(self, limit: _Limit, seed: int) -> None:
        super().__init__()
        self._limit = limit
        self._rng = random.Random(seed)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        self._limit.count()
        return choose_in_order(self.questions(observation), self._values)

    def _values(self, question: Question) -> list[Any]:
        space, count = question.space, len(question.actors)
        if isinstance(space, ContinuousActionSpace):
            bounds = list(zip(space.low, space.high, strict=True))
            return [[self._rng.uniform(*each) for each in bounds] for _ in range(count)]
        return [self._rng.choice(question.legal(i)) for i in range(count)]


def _drawing(game: Game) -> Watch:
    """A watcher that draws the first observations."""
    from entity_env.views.drawing import Drawing
    from entity_env.views.load_look import find_look
    from entity_env.views.seen import SeenObservation

    drawing, obs_space = Drawing(find_look(game), game.obs_space()), game.obs_space()

    class Draw:
        takes_plain = True
        num_left = _MAX_DRAWN

        def __call__(self, turn: Turn) -> None:
            self.num_left -= 1
            if self.num_left >= 0:
                seen = SeenObservation(turn.observation, obs_space, turn.agent_id)
                drawing.include(seen)
                drawing.draw(seen)

    return Draw()


# ------------------------------------------------------------------ what is used

_EVENTS: Final[Mapping[str, tuple[str, BaseException]]] = {
    **dict.fromkeys(
        ("socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto"),
        ("network", OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))),
    ),
    **dict.fromkeys(
        (
            *("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile"),
            *("pty.spawn", "subprocess.Popen"),
        ),
        ("process", OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))),
    ),
    "ctypes.dlopen": ("library", OSError("could not load dynamic lib")),
    "builtins.input": ("input", EOFError("EOF when reading a line")),
}
"""Audit events of what a page lacks: the kind, and a copy of the error that it raises there."""
_STARTS: Final = (
    *((_thread, name) for name in ("start_new_thread", "start_new", "start_joinable_thread")),
    *((threading, name) for name in ("_start_new_thread", "_start_joinable_thread")),
)
"""Functions that start threads, if they exist."""


class Border:
    """Context in which a page's lacks raise errors, found by imports and audit events.

    Attributes:
        found: what was refused, each with its error.
        read: files of the game that were read or listed.
    """

    def __init__(self, job: TrialJob) -> None:
        self.found: list[tuple[Lack, BaseException]] = []
        self.read: set[str] = set()
        self._job, self.available = job, job.available
        self._written: set[str] = set()
        self._is_active = False
        self._is_own: dict[str, bool] = {}
        self._finders, self._platform = [*sys.meta_path], sys.platform
        places = sysconfig.get_paths()
        self._python = [os.path.realpath(places[name]) for name in ("stdlib", "platstdlib")]
        self._temporary = gettempdir()  # here, because it opens files with a lock held
        self._others = [*self._python, *([PACKAGE_FOLDER] if job.file else [])]
        """Folders that may lie in the game's folder without belonging to the game."""

    def __enter__(self) -> None:
        self._is_active = True
        sys.meta_path[:] = [self]
        if self._job.is_blocked:
            sys.platform = _PLATFORM
        sys.addaudithook(self._hook)
        for module, name in _STARTS:  # Python 3.11 has no audit event for it
            if (start := getattr(module, name, None)) is not None:
                setattr(module, name, partial(self._start, start))

    def __exit__(self, *_: object) -> None:
        sys.meta_path[:] = self._finders
        sys.platform = self._platform
        self._is_active = False  # an audit hook stays for the life of the process

    def is_own(self, file: str) -> bool:
        """Whether a file belongs to the game."""
        known = self._is_own.get(file)
        if known is None:
            path = "" if file.startswith("<") else os.path.realpath(file)  # "<frozen importlib>"
            known = any(path == root or _is_below(path, root) for root in self._job.roots)
            known = known and not any(_is_below(path, each) for each in self._others)
            self._is_own[file] = known
        return known

    # -------------------------------------------------------------- imports

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """The spec of a module; refuses one that a page lacks. See `sys.meta_path`."""
        top = name.partition(".")[0]
        spec = self._spec(name, path)
        if spec is None or not (self._is_active and self._job.is_blocked):
            return spec
        kind = "" if top in self._job.available else self._kind_of(name, spec)
        if not kind:
            return spec
        importer = _importer()
        is_sought = importer == _SEEKING  # by `find_spec`, and not imported
        does_without = self._is_of_library(importer) and not name.startswith(_PROCESSES)
        if is_sought or (kind == "python" and does_without):
            return None
        missing = ModuleNotFoundError(f"No module named {name!r}", name=name)
        if top == PACKAGE:
            raise missing  # compiled, with a fallback
        self._meet(kind, top if kind == "package" else name, missing)
        return spec

    def _spec(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        for finder in self._finders:
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
        return None

    def _kind_of(self, name: str, spec: ModuleSpec) -> str:
        """`Lack.kind` of a module; "" if a page has it."""
        top, places = name.partition(".")[0], [*_places(spec)]
        if top == PACKAGE or any(map(self.is_own, places)):
            return "compiled" if isinstance(spec.loader, ExtensionFileLoader) else ""
        if name in LACKING or top in LACKING:
            return "python"
        if top in sys.stdlib_module_names:
            return ""
        is_installed = bool(_INSTALLED & set(Path(next(iter(places), "")).parts))
        return "package" if is_installed else "outside"

    def find_distributions(self, *args: object, **options: object) -> Iterable[object]:
        """Installed packages, for `importlib.metadata`."""
        found = [getattr(each, "find_distributions", None) for each in self._finders]
        return chain.from_iterable(find(*args, **options) for find in found if find is not None)

    def invalidate_caches(self) -> None:
        """See `importlib.invalidate_caches`."""
        for finder in self._finders:
            if hasattr(finder, "invalidate_caches"):
                finder.invalidate_caches()

    # -------------------------------------------------------------- files and the system

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not (self._is_active and self._job.is_blocked):
            return
        if event == "open":
            self._opened(*args)
        elif event == "sqlite3.connect" and args[0] != ":memory:":
            self._opened(args[0], "", os.O_RDWR)
        elif event in ("os.listdir", "os.scandir"):
            self._listed("." if args[0] is None else args[0])
        elif event in _EVENTS and not (event == "ctypes.dlopen" and not args[0]):
            kind, error = _EVENTS[event]
            name = args[0] if kind == "library" else ""
            self._meet(kind, str(name), type(error)(*error.args))

    def _start(self, start: Callable[..., object], *args: object, **options: object) -> object:
        if self._is_active and self._job.is_blocked:
            self._meet("thread", "", RuntimeError("can't start new thread"))
        return start(*args, **options)

    def _opened(self, given: object, mode: str | None, flags: int) -> None:
        file = _path_of(given)
        if file is None or _is_importing(sys._getframe(2)):
            return
        is_written = bool(flags & (os.O_WRONLY | os.O_RDWR))
        is_new = flags & os.O_WRONLY or flags & os.O_TRUNC or not os.path.exists(file)
        if self.is_own(file):
            if is_written and is_new:
                self._written.add(file)
            elif file not in self._written:
                self.read.add(os.path.realpath(file))
        elif file == self._temporary:  # to make a file without a name
            return
        elif _is_below(file, self._temporary) and (is_written or file in self._written):
            self._written.add(file)
        elif (is_written or os.path.exists(file)) and not self._is_of_python(file):
            text = os.strerror(errno.ENOENT)
            self._meet("file", file, FileNotFoundError(errno.ENOENT, text, file))

    def _listed(self, given: object) -> None:
        folder = _path_of(given)
        if folder is None or not os.path.isdir(folder) or _is_importing(sys._getframe(2)):
            return
        if self.is_own(folder):
            if os.path.realpath(folder) not in self._job.roots:  # the rest may be private
                self._is_active = False
                found = [
                    os.path.join(os.path.realpath(folder), each) for each in os.listdir(folder)
                ]
                self._is_active = True
                self.read.update(filter(os.path.isfile, found))
        elif not self._is_of_python(folder):
            text = os.strerror(errno.ENOENT)
            self._meet("file", folder, FileNotFoundError(errno.ENOENT, text, folder))

    def _is_of_python(self, file: str) -> bool:
        """Whether a file comes with Python, this package, or an installed package."""
        path = os.path.realpath(file)
        is_installed = bool(_INSTALLED & set(Path(path).parts))
        places = (*self._python, PACKAGE_FOLDER)
        return path in _DEVICES or is_installed or any(_is_below(path, each) for each in places)

    # -------------------------------------------------------------- who used it

    def _meet(self, kind: str, name: str, error: BaseException) -> None:
        """Records what a page lacks, and raises the error, unless it is allowed.

        Ignores what packages do that the page has, except imports, and what allowed packages do.
        """
        place = self._place(is_import=kind in ("package", "python", "outside", "compiled"))
        if place is not None and (lack := Lack(kind, name, *place)).key not in self._job.allowed:
            self.found.append((lack, error))
            raise error

    def _place(self, *, is_import: bool) -> tuple[str, int, str] | None:
        """Innermost line of the game, and the module that acts for it; None = to be ignored."""
        via = ""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if self.is_own(file):
                return file, frame.f_lineno, via
            module = str(frame.f_globals.get("__name__", ""))
            top = module.partition(".")[0]
            if top in self._job.available:
                if not is_import:
                    return None
                via = via or top
            elif top == PACKAGE:
                if module != __name__:
                    via = via or module
            elif not (file.startswith("<") or self._is_of_library(file)):
                return None
            frame = frame.f_back
        return "", 0, via

    def _is_of_library(self, file: str) -> bool:
        return file.startswith("<frozen ") or any(
            _is_below(os.path.realpath(file), each) for each in self._python
        )


def _places(spec: ModuleSpec) -> Iterable[str]:
    if spec.has_location and spec.origin:
        return [spec.origin]
    return [str(each) for each in spec.submodule_search_locations or ()]


def _path_of(given: object) -> str | None:
    """The absolute path of what was opened; None for a descriptor."""
    try:
        return os.path.abspath(os.fsdecode(given))  # type: ignore[arg-type]  # TypeError if not a path
    except (TypeError, ValueError):
        return None


def _is_importing(frame: FrameType | None) -> bool:
    """Whether Python itself opens or lists, to import a module."""
    return frame is not None and frame.f_code.co_filename.startswith(_IMPORTING)


def _importer() -> str:
    """File of the code that imports."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        _is_importing(frame) or frame.f_code.co_filename == importlib.__file__
    ):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def _is_below(path: str, folder: str) -> bool:
    """Whether a file is in a folder, but not in packages installed there."""
    prefix = folder.rstrip(os.sep) + os.sep
    return path.startswith(prefix) and not _INSTALLED & set(path[len(prefix) :].split(os.sep))
