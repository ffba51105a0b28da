"""Frames of a game: its variables, its outermost function, and reads of the clock."""

from __future__ import annotations

import io
import sys
import sysconfig
import traceback
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from inspect import unwrap
from numbers import Real
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, TypeAlias

from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import line_of_frame
from entity_env.errors import SchemaError

Place: TypeAlias = tuple[Hashable, ...]
"""Name of a local variable, then names of attributes, keys and positions."""

_SCORES: Final = ("score", "reward", "point", "return", "total", "gold", "money", "profit")
_MAX_NUMBERS: Final = 400
_MAX_ITEMS: Final = 16
_MAX_DEPTH: Final = 3
_STANDARD: Final = sysconfig.get_paths()["stdlib"]


def frame_of_play(game: Game, frame: FrameType) -> FrameType:
    """The frame of `play`, without decorators, in a call's stack; else the game's outermost."""
    play = game.play.func if isinstance(game.play, partial) else game.play
    code = getattr(unwrap(play), "__code__", None)
    for outer, _ in traceback.walk_stack(frame):
        if outer.f_code is Game.start.__code__:
            break
        frame = outer
        if outer.f_code is code:
            break
    return frame


class ScoreVariables:
    """Variables of `play` that have held an agent's score at every observation so far."""

    def __init__(self) -> None:
        self._places: list[Place] | None = None

    def see(self, frame: FrameType, score: float) -> None:
        """Keeps the variables with this value."""
        names = frame.f_locals
        if self._places is None:
            self._places = [place for place, value in _numbers(names) if value == score]
        else:
            self._places = [each for each in self._places if _value(names, each) == score]

    def lost_points(self, frame: FrameType, last: float) -> str:
        """A sentence about points that `game_over` without an observation loses; empty if none.

        Args:
            last: the score of the last observation.
        """
        known = {_words(each): _value(frame.f_locals, each) for each in self._places or ()}
        changed = {name: value for name, value in known.items() if value not in (None, last)}
        likely = [name for name in changed if any(word in name.lower() for word in _SCORES)]
        if likely or (changed and len(changed) == len(known)):
            name = min(likely or changed, key=len)
            return (
                f"{name} is {changed[name]} at game_over, but the last observation had the score "
                f"{last:g}, so points are lost: agent.game_over(Obs({name})) counts them"
            )
        return ""


def _numbers(names: Mapping[str, object]) -> Iterator[tuple[Place, Real]]:
    """Numbers in variables, and in the lists and objects that they hold."""
    todo: list[tuple[Place, object]] = [((name,), value) for name, value in names.items()]
    seen: set[int] = set()
    for count, (place, value) in enumerate(todo):
        if count >= _MAX_NUMBERS:
            return
        if isinstance(value, bool):
            continue
        if isinstance(value, Real):
            yield place, value
        elif len(place) < _MAX_DEPTH and id(value) not in seen:
            seen.add(id(value))
            todo += [((*place, key), part) for key, part in _parts(value)]


def _parts(value: object) -> Iterator[tuple[Hashable, object]]:
    if isinstance(value, str | bytes | ModuleType | type) or callable(value):
        return
    if isinstance(value, list | tuple):
        yield from enumerate(value[:_MAX_ITEMS])
    elif isinstance(value, dict):
        if len(value) <= _MAX_ITEMS:
            yield from value.items()
    else:
        yield from ((f".{name}", part) for name, part in _attributes(value).items())


def _attributes(value: object) -> dict[str, object]:
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with_slot = object()
            part = getattr(value, name, with_slot)
            if part is not with_slot:
                found[name] = part
    return found


def _value(names: Mapping[str, object], place: Place) -> Any:  # noqa: ANN401 - None if missing
    value: Any = names.get(str(place[0]))
    for key in place[1:]:
        try:
            is_name = isinstance(key, str) and key.startswith(".") and not isinstance(value, dict)
            value = getattr(value, str(key)[1:]) if is_name else value[key]
        except (AttributeError, IndexError, KeyError, TypeError):
            return None
    return value


def _words(place: Place) -> str:
    first, *rest = place
    parts = [key if str(key).startswith(".") else f"[{key!r}]" for key in rest]
    return f"{first}{''.join(map(str, parts))}"


class NoInput(io.TextIOBase):
    """Standard input of a game."""

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # never returns
        if sys.stdout is not None:
            sys.stdout.write("\n")  # after the prompt of `input`
        raise SchemaError(
            "play reads from the terminal: ask with agent.act(obs, ...), and a person answers with "
            "--agent human"
        )

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()


# ------------------------------------------------------------------ the clock

_CLOCKS: Final = {
    "time": (
        *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
        *("process_time", "process_time_ns", "localtime", "gmtime", "ctime"),
    ),
    "datetime": ("now", "utcnow", "today"),
    "date": ("today",),
    "posix": ("urandom",),
    "nt": ("urandom",),
    "pygame.time": ("get_ticks",),
}
"""Compiled functions that read the clock or the system's entropy, by module or class."""


_READERS: Final = ("datetime", "_pydatetime", "random", "secrets", "uuid")
"""Modules of the standard library whose functions return what they read."""


class ClockWatch:
    """Finds calls in which a game reads the clock, `os.urandom`, `uuid` or `secrets`.

    Calls count if a function in the folder of the game makes them, also through one of `_READERS`.
    """

    def __init__(self, game: Game) -> None:
        play = game.play.func if isinstance(game.play, partial) else game.play
        code = getattr(unwrap(play), "__code__", None)
        self._folder = "" if code is None else str(Path(code.co_filename).parent)
        self.found = ""
        """The first such call, as a sentence."""
        self._is_free = sys.getprofile() is None

    def start(self) -> None:
        """Called when code of the game runs."""
        if self._folder and self._is_free and not self.found:
            sys.setprofile(self._see)

    def stop(self) -> None:
        """Called when code of the game stops."""
        if self._is_free:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, called: Any) -> None:  # noqa: ANN401 - a function
        if event != "c_call" or self.found:
            return
        name = getattr(called, "__name__", "")
        owner = getattr(called, "__module__", None) or getattr(called, "__self__", None)
        where = owner if isinstance(owner, str) else getattr(owner, "__name__", "")
        if name not in _CLOCKS.get(where, ()):
            return
        caller: FrameType | None = frame
        inner = ""
        while caller is not None and caller.f_code.co_filename.startswith(_STANDARD):
            module = Path(caller.f_code.co_filename).stem
            if module not in _READERS:  # such as asyncio, which waits
                return
            inner = f"{module}.{caller.f_code.co_name}"
            caller = caller.f_back
        if caller is not None and str(Path(caller.f_code.co_filename).parent) == self._folder:
            if inner.startswith("random."):
                inner = "the system's entropy, as a generator without a seed"
            what = inner or ("os." if where in ("posix", "nt") else f"{where}.") + name
            self.found = (
                f"play reads {what} ({line_of_frame(caller)}), which no seed repeats: let only the "
                "seed, the settings and the actions decide what happens"
            )
