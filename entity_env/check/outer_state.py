"""`OuterState`: state that outlives an episode, so episodes of one seed may differ."""

from __future__ import annotations

import hashlib
import pickle
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from inspect import unwrap
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Final

import numpy as np

from entity_env.authoring.game import Game

_LEFT_OVER: Final = "left over from the last episode"
_MAX_BYTES: Final = 2**24
"""Of a larger pickled variable, only the attributes are compared."""


class OuterState:
    """Global random generators, and the variables of a game that outlive an episode.

    The variables are those of its modules, classes and functions, and its settings. All are
    compared with their state when this object was made. For an object that cannot be pickled or is
    large, its attributes are compared, except those that cannot be pickled or are large.
    """

    def __init__(self, game: Game) -> None:
        self._game = game
        self._before = _digests(game)
        self._generators = _generators()
        self.draw = ""
        """The first use of a global generator, as a sentence, or ""."""
        self.clock = ""
        """The first read of a clock, as a sentence, or ""."""

    @property
    def read(self) -> str:
        """`draw` or `clock`."""
        return self.draw or self.clock

    def look(self, line: str) -> None:
        """Sets `draw` if a global generator has changed; `line` is the current line of the game."""
        if self.draw:
            return
        for name, (state, instead) in _generators().items():
            if state != self._generators[name][0]:
                before = f" before {line}" if line else ""
                self.draw = (
                    f"play draws from the module {name}{before}, and all copies and episodes share "
                    f"its numbers: draw from rng = {instead}"
                )

    def cause(self, how: str = _LEFT_OVER) -> str:
        """Why episodes of one seed differ, to append to a sentence; `how` describes a variable."""
        return self.known_cause(how) or (
            "; the episode may also depend on a generator made without the seed, the clock, id() "
            f"or hash(), or state that is {how}"
        )

    def known_cause(self, how: str = _LEFT_OVER) -> str:
        """`cause` without guesses; may be empty."""
        if self.read:
            return f"; {self.read}"
        now = _digests(self._game)
        changed = [name for name, digest in now.items() if self._before.get(name) != digest]
        if not changed:
            return ""
        return f"; {how}: {', '.join(changed)}, which play has changed: create it in play"


def _generators() -> Mapping[str, tuple[object, str]]:
    """State of the global generators, and what to use instead."""
    state = np.random.get_state(legacy=False)["state"]
    return {
        "random": (random.getstate(), "random.Random(seed)"),
        "numpy.random": (pickle.dumps(state), "np.random.default_rng(seed)"),
    }


def _digests(game: Game) -> dict[str, bytes]:
    """Hashes of the variables that outlive an episode, or of their attributes, by readable name."""
    digests: dict[str, bytes] = {}
    for name, value in _variables(game):
        if digest := _digest(value):
            digests[name] = digest
            continue
        attributes: dict[str, object] = {}
        with suppress(Exception):  # raised by a class of the game
            attributes = dict(vars(value))
        for attribute, part in attributes.items():  # for example, of an object with a lock
            if digest := _digest(part):
                digests[f"{attribute!r} of {name}"] = digest
    return digests


def _digest(value: object) -> bytes:
    """A hash of a variable; empty if it is large or cannot be pickled."""
    sink = _HashingFile()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns about pickling itertools iterators
            pickle.Pickler(sink, protocol=5).dump(value)
    except Exception:  # raised by a class of the game
        return b""
    return sink.hash.digest()


class _HashingFile:
    def __init__(self) -> None:
        self.hash = hashlib.blake2b()
        self._num_bytes = 0

    def write(self, data: bytes) -> int:
        size = memoryview(data).nbytes
        self._num_bytes += size
        if self._num_bytes > _MAX_BYTES:
            raise OverflowError("too large to be compared")
        self.hash.update(data)
        return size


def _variables(game: Game) -> Iterator[tuple[str, object]]:
    play: object = game.play
    if isinstance(play, partial):
        yield "an argument of functools.partial", (play.args, play.keywords)
        play = play.func
    if isinstance(play, MethodType):
        yield f"the {type(play.__self__).__name__} that play is a method of", play.__self__
        play = play.__func__
    elif not isinstance(play, FunctionType):
        yield f"the {type(play).__name__} that is called as play", play
        play = getattr(type(play), "__call__", None)  # noqa: B004 - the function itself
    yield "a setting", dict(game.settings)
    play = unwrap(play) if callable(play) else None
    if not isinstance(play, FunctionType):
        return
    yield from _of_function(play, "play")
    file = play.__globals__.get("__file__")
    yield from _of_module(play.__globals__, Path(file).parent if file else None, set())


def _of_module(
    names: Mapping[str, object], folder: Path | None, seen: set[int]
) -> Iterator[tuple[str, object]]:
    if id(names) in seen:
        return
    seen.add(id(names))
    module = str(names.get("__name__", ""))
    where = Path(str(names.get("__file__") or module)).name
    for name, value in list(names.items()):
        if not name.startswith("__"):
            with suppress(Exception):  # a proxy may raise for any attribute
                yield from _of_name(name, value, module, where, folder, seen)


def _of_name(
    name: str, value: object, module: str, where: str, folder: Path | None, seen: set[int]
) -> Iterator[tuple[str, object]]:
    if isinstance(value, ModuleType):
        file = Path(getattr(value, "__file__", None) or "")
        if folder in (file.parent, file.parent.parent):  # a module or package next to the game
            yield from _of_module(vars(value), folder, seen)
    elif isinstance(value, type):
        if value.__module__ == module:
            yield from _of_class(value, f"{name} in {where}")
    elif isinstance(value, FunctionType):
        if value.__module__ == module:
            yield from _of_function(value, f"{name} in {where}")
    elif not callable(value):  # compiled functions are slow to pickle
        yield f"{name!r} in {where}", value


def _of_class(cls: type, where: str) -> Iterator[tuple[str, object]]:
    for name, value in list(vars(cls).items()):
        if not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
            yield f"{name!r} of {where}", value


def _of_function(function: FunctionType, where: str) -> Iterator[tuple[str, object]]:
    yield f"a default argument of {where}", (function.__defaults__, function.__kwdefaults__)
    yield f"an attribute of {where}", vars(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            yield f"{name!r} around {where}", cell.cell_contents
