"""`find_look`: the look of a game, imported only to draw it."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from enum import Enum, Flag
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

from entity_env.authoring.entity_type import declared_fields
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import (
    file_of_error,
    is_a,
    line_of_error,
    require_error,
    summary_of,
    text_of,
)
from entity_env.authoring.load_module import (
    import_named,
    import_watched,
    load_module,
    split_file_name,
    where_tried,
)
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import GameHangs, StepTimeout
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName
from entity_env.errors import EntityEnvError, UsageError
from entity_env.lazy_imports import np
from entity_env.views.look import Board, Look, line_of
from entity_env.views.seen import SeenEntity

_MAX_MOVE: Final = 8
"""Maximum distance of an Enum's value, in coordinates, that counts as a move."""
_FUNCTIONS: Final = ("draw", "ground", "draw_text")


def find_look(game: Game, name: str | None = None, *, step_timeout_s: float | None = None) -> Look:
    """The look of a game, with the board defined by its settings.

    The first found of: the named look; `Game.look`; `NAME_look.py` next to the file of the game's
    `play`, NAME.py; the default look.

    Args:
        game: its settings `board_size`, or `width` and `height`, give the size of the board, unless
            the look has a board.
        name: `FILE.py`, `FILE.py:name`, `module` or `module:name`. Without a name after the colon,
            the look is the module's `look`, or is made from its functions `draw`, `ground` and
            `draw_text`, and its `size`.
        step_timeout_s: as for `Look`; None = that of the look.

    Raises:
        UsageError: no such module, file or look, or it cannot be imported.
    """
    if name is not None or game.look is not None:
        # Code of the game names its own look, wherever it was loaded from.
        look = named_look(name) if name is not None else named_look(game.look or "", import_watched)
    else:
        beside = _beside(game)
        look = Look() if beside is None else _look_in(beside, "", beside.__name__)
    if step_timeout_s is not None:
        look = replace(look, step_timeout_s=step_timeout_s)
    if game.schema.globals is not None:
        own = (game.schema.globals.cls, game.schema.globals.name)
        names = {key: GLOBAL_ENTITY if key in own else key for key in look.styles}
        look = replace(look, styles={names[key]: style for key, style in look.styles.items()})
        look = replace(look, global_name=game.schema.globals.name)
    types = {kind.name: kind.cls for kind in game.schema.entities}
    if game.schema.globals is not None:
        types[GLOBAL_ENTITY] = game.schema.globals.cls
    bools = {name: found for name, cls in types.items() if (found := [*_bools_of(cls)])}
    look = replace(look, flags={**bools, **look.flags})
    look = with_words(look, game.schema)
    defaults = {key: parameter.default for key, parameter in game.parameters.items()}
    return look if look.board else replace(look, board=board_of({**defaults, **game.settings}))


def with_words(look: Look, schema: Schema) -> Look:
    """The look with the words and moves that the classes of a game define."""
    classes = {kind.name: kind.cls for kind in schema.entities}
    own = {name: cls for name, cls in classes.items() if _has_own_words(cls)}
    if own and look.describe is None:
        look = replace(look, describe=partial(_own_words, own))
    labels: dict[str, Mapping[str, str]] = {}
    moves: dict[str, Mapping[str, tuple[float, float]]] = {}
    for kind in schema.kinds:
        choices = getattr(kind, "choices", ())
        named = list(zip(getattr(kind.space, "index_to_label", ()), choices, strict=True))
        if choices and _has_own_words(type(choices[0])):
            limit = StepTimeout(look.step_timeout_s)
            labels[kind.name] = {label: _own_word(choice, limit) for label, choice in named}
        steps = {label: _move(getattr(choice, "value", None)) for label, choice in named}
        found = {label: step for label, step in steps.items() if step is not None}
        if found and len(found) == len(steps):
            moves[kind.name] = found
    return replace(look, labels={**labels, **look.labels}, moves={**moves, **look.moves})


def _has_own_words(cls: type) -> bool:
    """Whether a class, or a base class that is not of the standard library, has a `__str__`."""
    words = cls.__str__
    return isinstance(words, FunctionType) and words.__module__ not in ("enum", "dataclasses")


def _own_word(choice: object, limit: StepTimeout) -> str:
    """A choice as the `__str__` of its Enum says."""
    try:
        with limit:
            return str.__str__(str(choice))
    except BaseException as error:
        call = f"the __str__ of {type(choice).__name__}"
        where = f"at {line_of_error(error)}: "
        if is_a(error, GameHangs):
            raise UsageError(f"{call} hangs {where}{text_of(error)}") from error
        require_error(error, call)
        raise UsageError(f"{call} fails {where}{summary_of(error)}") from error


def _move(value: object) -> tuple[float, float] | None:
    """An Enum's value, if it is a pair of small numbers."""
    match value:
        case (float() | int() as x, float() | int() as y) if max(abs(x), abs(y)) <= _MAX_MOVE:
            return x, y
    return None


def _own_words(classes: Mapping[EntityName, type], entity: SeenEntity) -> str:
    """An entity as the `__str__` of its class says; "" if its features are not enough for it."""
    cls = classes.get(entity.type)
    if cls is None:
        return ""
    try:
        return str(_rebuilt(cls, entity))
    except Exception:  # the code of a game, given an incomplete instance
        return ""


def _rebuilt(cls: type, entity: SeenEntity, prefix: str = "") -> object:
    """An instance with the numbers, bools and Enums of an entity's features, and no other fields.

    Made without its constructor, which a game may use to count or register its entities.
    """
    made: object = object.__new__(cls)
    for name, kind in declared_fields(cls).items():
        feature, value = f"{prefix}{name}", None
        if entity.ends and feature in entity.names[:2]:
            value = _rebuilt(kind, entity.ends[entity.names.index(feature)])
        elif isinstance(kind, type) and is_dataclass(kind):
            value = _rebuilt(kind, entity, f"{feature}.")
        elif isinstance(kind, type) and issubclass(kind, Enum) and not issubclass(kind, Flag):
            value = kind[str(entity[feature])]
        elif isinstance(kind, type) and feature in entity.names:
            number = float(entity.features[entity.names.index(feature)])
            value = bool(number) if kind is bool else int(number) if kind is int else number
        else:
            continue
        object.__setattr__(made, name, value)
    return made


def _bools_of(cls: type, prefix: str = "") -> Iterator[str]:
    for name, kind in declared_fields(cls).items():
        if kind is bool or ("numpy" in sys.modules and kind is np.bool_):
            yield f"{prefix}{name}"
        elif isinstance(kind, type) and is_dataclass(kind):
            yield from _bools_of(kind, f"{prefix}{name}.")


def named_look(name: str, load: Callable[[str], ModuleType] = import_named) -> Look:
    """The look with a name, as for `find_look`; `load` imports a module by its dotted name."""
    if (file := split_file_name(name)) is not None:
        path, inner = file
        return _look_in(_load(path), inner or "", str(path))
    module, _, wanted = name.partition(":")
    try:
        found = load(module)
    except EntityEnvError as error:
        expected = "" if file_of_error(error) else "expected FILE.py, FILE.py:name or module:name: "
        raise UsageError(f"look {name}: {expected}{error}") from error
    except BaseException as error:
        require_error(error, f"look {name}")
        raise UsageError(f"look {name}: {summary_of(error)}") from error
    return _look_in(found, wanted, name)


def board_of(settings: Mapping[str, object]) -> Board | None:
    """The board given by `width` and `height`, or by `board_size`, or None."""
    columns, rows = (
        next(
            (size for key in keys if isinstance(size := settings.get(key), int) and size > 0), None
        )
        for keys in (("width", "board_size"), ("height", "board_size"))
    )
    return Board(columns, rows) if columns or rows else None


def _beside(game: Game) -> ModuleType | None:
    play = game.play
    play = inspect.unwrap(play.func if isinstance(play, partial) else play)
    try:
        file = Path(inspect.getfile(play if inspect.isroutine(play) else type(play)))
    except (TypeError, OSError):  # built-in, or defined interactively
        return None
    path = file.with_name(f"{file.stem}_look.py")
    if not path.is_file():
        return None
    package, dot, _ = play.__module__.rpartition(".")
    if not dot:
        return _load(path)
    return _load(path, partial(import_watched, f"{package}.{path.stem}"))


def _load(path: Path, load: Callable[[], ModuleType] | None = None) -> ModuleType:
    """The module of a file; `load` imports it, None = as `load_module` does."""
    if not path.is_file():
        raise UsageError(f"look {path}: there is no such file")
    try:
        return load_module(path) if load is None else load()
    except BaseException as error:
        require_error(error, f"look {path}")
        where = where_tried(error, path) if isinstance(error, ImportError) else ""
        words = f"{summary_of(error)}{where}"
        raise UsageError(f"look {path}{line_of(error, os.path.realpath(path))}: {words}") from error


def _look_in(module: ModuleType, wanted: str, where: str) -> Look:
    found = getattr(module, wanted or "look", None)
    if isinstance(found, Look):
        return found if found.name != "look" else replace(found, name=where)
    if wanted or found is not None:
        expected = f"expected a Look, {wanted or 'look'} = Look(...)"
        came = "got nothing of that name" if found is None else f"got {type(found).__name__}"
        raise UsageError(f"look {where}: {expected}: {came}")
    draw, ground, draw_text = (getattr(module, name, None) for name in _FUNCTIONS)
    if draw is None and draw_text is None:
        raise UsageError(
            f"look {where}: expected look = Look(...), or functions draw(seen, scene), "
            "ground(scene) and draw_text(seen, width): found none"
        )
    for name, function in zip(_FUNCTIONS, (draw, ground, draw_text), strict=True):
        if function is not None and not callable(function):
            raise UsageError(f"look {where}: {name} must be a function")
    size = getattr(module, "size", None)
    return Look(size=size, draw=draw, ground=ground, draw_text=draw_text, name=where)
