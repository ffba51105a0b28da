"""`Look`: how the observations of a game are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard, get_args

from entity_env.authoring.game_traceback import (
    file_of_error,
    is_a,
    line_of_error,
    name_of,
    require_error,
    text_of,
)
from entity_env.authoring.step_timeout import GameHangs, StepTimeout, require_timeout
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName, ObsSpace
from entity_env.core.validation import is_number
from entity_env.errors import EntityEnvError, SchemaError, UsageError, shown
from entity_env.views.scene import Scene, is_color, is_data_uri
from entity_env.views.seen import (
    Chosen,
    Place,
    SeenEntity,
    SeenObservation,
    Spot,
    first_enum,
    member_of,
)

if TYPE_CHECKING:
    from rich.text import Text

StyleShape: TypeAlias = Literal["circle", "square", "diamond", "triangle", "ground"]

PALETTE: Final = (
    *("#0072b2 #56b4e9", "#d55e00 #f5793a", "#009e73 #2fc99b", "#e69f00 #f2b430"),
    *("#56b4e9 #b3e0ff", "#cc79a7 #e39fc3", "#f0e442 #f7f08a", "#555555 #a9afb5"),
)
"""Colors that colorblind people can distinguish (Okabe and Ito 2008), lighter on dark pages, with
gray for black."""

COLOR_WORDS: Final = (*("blue", "red", "green", "orange", "cyan", "magenta", "yellow", "black"),)
"""Names of the colors of `PALETTE`."""

GROUND: Final = ("empty", "floor", "free", "ground")
"""Entity types drawn as ground cells."""

_SAME_COLOR: Final = {
    **{"pink": "magenta", "purple": "magenta", "violet": "magenta", "gold": "yellow"},
    **{"gray": "black", "grey": "black"},
}


@dataclass(frozen=True)
class Board:
    """The cells for entities with coordinates; y increases upward.

    Args:
        columns, rows: minimum size; None = as many as occur in the episode.
    """

    columns: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            is_whole = isinstance(size, int) and not isinstance(size, bool)
            if size is not None and (not is_whole or size < 1):
                raise SchemaError(f"Board: {name} must be 1 or more, or None: got {shown(size)}")


@dataclass(frozen=True)
class Style:
    """How the entities of one type are drawn.

    Args:
        shape: "circle", "square", "diamond", "triangle", or "ground", a cell below all others.
        color: a color or two as in `Scene`, or the name of a feature whose member, or rounded
            value, chooses a color from `PALETTE`; "" = by type.
        size: width in cells, or the name of a feature, in units of the coordinates.
        rotate: degrees clockwise; or the name of a feature: the direction in which the upper end of
            the shape points, in radians counterclockwise from the x axis.
        label: name of a feature whose value is written on the shape, and named first in words.
        bar: name of a feature drawn as a bar below the shape, full at the largest value of its
            type in the episode; or `health/max_health`, with the feature at which it is full.
        image: drawn instead of the shape, as returned by `data_uri`.
        glyph: character in the terminal.

    Raises:
        SchemaError: an unknown shape, an invalid color or image, or a size that is not above 0.
    """

    shape: StyleShape = "circle"
    color: str = ""
    size: float | str = 0.8
    rotate: float | str = 0.0
    label: str = ""
    bar: str = ""
    image: str = ""
    glyph: str = ""

    def __post_init__(self) -> None:
        if self.shape not in get_args(StyleShape):
            raise self._error("shape", f"one of {', '.join(get_args(StyleShape))}", self.shape)
        for name in ("color", "label", "bar", "image", "glyph"):
            if not isinstance(text := getattr(self, name), str):
                raise self._error(name, "a text", text)
        if self.color.startswith("#") and not is_color(self.color):
            raise self._error("color", "#rrggbb or the name of a feature", self.color)
        if not isinstance(self.size, str) and not (_is_number(self.size) and self.size > 0):
            raise self._error("size", "above 0 or the name of a feature", self.size)
        if not isinstance(self.rotate, str) and not _is_number(self.rotate):
            raise self._error("rotate", "a number of degrees or the name of a feature", self.rotate)
        if self.image and not is_data_uri(self.image):
            raise self._error("image", "as data_uri(path) returns", self.image)

    def _error(self, name: str, expected: str, value: object) -> SchemaError:
        return SchemaError(f"Style: {name} must be {expected}: got {shown(value)}")

    def features(self) -> list[str]:
        """Names of the features that the style reads."""
        color = "" if is_color(self.color) else self.color
        fields = (color, self.size, self.rotate, self.label, *self.bar.split("/"))
        return [name for name in fields if isinstance(name, str) and name]


@dataclass(frozen=True)
class Look:
    """How the observations of a game are drawn.

    A look reads only observations, not the game's state, so replay files can be drawn too.

    By default, entities with coordinates are on a board, with a shape and color per type, fainter
    if hidden; other entities and the global features are rows of tables. Without a style, the first
    Enum field of a type chooses the color. `styles` replaces the shapes; `draw` replaces
    everything.

    Args:
        board: board for entities with coordinates.
        styles: by the name or class of an entity type; "__global__" = the global features.
        at: names of the coordinate features, also nested as `pos.x`, `pos.y`.
        group: a feature with one board per value.
        size: width and height of the scenes that `draw` fills, or a function of the first
            observation; None = the size of the board.
        draw: fills the scene of one observation; replaces board, styles and tables.
        ground: draws, once, what all scenes of an episode share.
        draw_text: returns the observation as text for a terminal with the given number of columns;
            None = drawn from the styles.
        describe: returns an entity in a few words, or "" for the default. Default: the `__str__` of
            its class, if it has its own and `find_look` knows the game; else the type, the `label`
            of its style and its other features.
        flags: names of features, by type, that mark an entity if not 0: with a ring on the board,
            and `*` in the terminal. `find_look` adds the bools of a game.
        spots: where a choice points, given the observation, the action, the actor (None for a
            global action) and the choice (a label, the selected entity, or the numbers of a
            continuous action). It returns one place to mark it with a ring, several for an arrow,
            the same place twice for a ring (to stay), or [] for nowhere. Default: from the actor to
            the selected entity, or as `moves` or the name of a choice say, such as UP.
        legend: returns what `draw` shows, by name, each with a sample in a scene of 1 x 1; None =
            what the board shows.
        labels: choices in words, by action and label. `find_look` adds those of Enums with their
            own `__str__`.
        moves: how far choices move their actor, by action and label, in the coordinates of the
            game. `find_look` adds those of Enums whose values are pairs of numbers.
        hero: what a global choice that names a direction moves: a type, or `Thing.what.is_HERO`,
            the entity of a type whose feature is not 0. Default: the first type on the board, if it
            has one entity there.
        global_name: name of the global features; `find_look` takes it from the game.
        is_open: all agents may know each other's observations and actions, as in a board game: then
            every observation is drawn, and `agent_id` names its agent. Otherwise those of one agent
            are drawn, and a person does not see what others do in the same step.
        step_timeout_s: maximum seconds of a call of one of these functions before it counts as
            hanging; None = no limit. Commands set it. `StepTimeout` lists the hangs that can be
            interrupted.

    Raises:
        SchemaError: an argument of the wrong type, or a size that is not above 0.
    """

    board: Board | None = None
    styles: Mapping[str | type, Style] = field(default_factory=dict)
    at: tuple[str, str] = ("x", "y")
    group: str = ""
    size: tuple[float, float] | Callable[[SeenObservation], tuple[float, float]] | None = None
    draw: Callable[[SeenObservation, Scene], None] | None = None
    ground: Callable[[Scene], None] | None = None
    draw_text: Callable[[SeenObservation, int], Text | None] | None = None
    describe: Callable[[SeenEntity], str | None] | None = None
    is_open: bool = False
    name: str = "look"
    flags: Mapping[EntityName, Sequence[str]] = field(default_factory=dict)
    spots: (
        Callable[[SeenObservation, ActionName, SeenEntity | None, Chosen], Sequence[Place]] | None
    ) = None
    legend: Callable[[], Mapping[str, Scene]] | None = None
    labels: Mapping[ActionName, Mapping[str, str]] = field(default_factory=dict)
    moves: Mapping[ActionName, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    global_name: str = "Global"
    hero: str = ""
    step_timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name, expected, fits in _FIELDS:
            value = getattr(self, name)
            if not fits(value):
                where = "look" if name == "name" else self.name
                raise SchemaError(f"{where}: {name} must be {expected}, got {shown(value)}")
        require_timeout(self.step_timeout_s)

    def require_fits(self, obs_space: ObsSpace) -> None:
        """Raises SchemaError if the look names types or features that the space lacks."""
        features = {name: entity.features for name, entity in obs_space.entities.items()}
        features[GLOBAL_ENTITY] = obs_space.global_features
        known = {
            name: {*names, *(member_of(each)[0] for each in names)}
            for name, names in features.items()
        }
        for key, style in self.styles.items():
            name = key.__name__ if isinstance(key, type) else key
            if name not in features:
                types = ", ".join(obs_space.entities)
                raise SchemaError(f"{self.name}: a style for {name!r}; the types are {types}")
            for wanted in style.features():
                if wanted not in known[name]:
                    color = "; a color is #rrggbb" if wanted == style.color else ""
                    raise SchemaError(
                        f"{self.name}: the style of {name} reads the feature {wanted!r}; "
                        f"its features are {', '.join(features[name]) or 'none'}{color}"
                    )
        hero, _, feature = self.hero.partition(".")
        is_known = hero in obs_space.entities and feature in ("", *features[hero])
        if self.hero and not is_known:
            raise SchemaError(
                f"{self.name}: hero must be the name of a type, or TYPE.FEATURE, got "
                f"{shown(self.hero)}; the types are {', '.join(obs_space.entities)}"
            )
        if self.group and not any(self.group in names for names in known.values()):
            raise SchemaError(f"{self.name}: no entity has the feature {self.group!r} of group")
        if tuple(self.at) != ("x", "y") and not any(
            name.rpartition(".")[2] == self.at[0] for names in features.values() for name in names
        ):
            raise SchemaError(f"{self.name}: no entity has the feature {self.at[0]!r} of at")

    def coordinates(self, features: Sequence[str]) -> tuple[int, int] | None:
        """Columns of the first pair of coordinates, plain or nested (`pos.x`); None without one."""
        names = list(features)
        for i, name in enumerate(names):
            prefix, dot, last = name.rpartition(".")
            partner = f"{prefix}{dot}{self.at[1]}"
            if last == self.at[0] and partner in names:
                return i, names.index(partner)
        return (
            (names.index(self.at[0]), names.index(self.at[1])) if {*self.at} <= {*names} else None
        )

    def call(self, name: str, *args: object) -> Any:  # noqa: ANN401 - as the function returns
        """Calls one of the functions of the look, and returns its checked result.

        Raises:
            UsageError: it raises, hangs or returns something else; with the line of its file.
        """
        try:
            with self._timeout:
                found: object = getattr(self, name)(*args)
                return _RESULTS[name](found) if name in _RESULTS else found
        except BaseException as error:
            if is_a(error, GameHangs):
                if self.step_timeout_s is None:  # the limit of what draws
                    raise
                where = f"look {self.name}: {name} hangs at {line_of_error(error)}"
                raise UsageError(f"{where}: {error}") from error
            require_error(error, f"look {self.name}: {name}")
            words = text_of(error).removeprefix(f"{self.name}: ")
            if not is_a(error, EntityEnvError):
                words = f"{name_of(error)}: {words}"
            line = line_of(error, file_of_error(error) or "")
            raise UsageError(f"look {self.name}{line}: {name}: {words}") from error

    @cached_property
    def _timeout(self) -> StepTimeout:
        return StepTimeout(self.step_timeout_s)

    def tinted(self, kinds: Mapping[EntityName, Sequence[str]]) -> dict[EntityName, Sequence[str]]:
        """The types without a style whose first Enum chooses the color, with their features."""
        return {
            name: features
            for name, features in kinds.items()
            if self.style(name) is None
            and name.lower() not in GROUND
            and _is_tinted_by_enum(features)
        }

    def style(self, name: str) -> Style | None:
        """The style of an entity type, if any."""
        for key, style in self.styles.items():
            if name == (key.__name__ if isinstance(key, type) else key):
                return style
        return None


def _is_number(value: object) -> bool:
    is_one = is_number(value) and not isinstance(value, bool)
    return is_one and math.isfinite(float(value))  # type: ignore[arg-type]  # a number


def _texts_by(values: object, is_value: Callable[[object], bool]) -> bool:
    """Whether these are a dict of such values, by text."""
    return isinstance(values, Mapping) and all(
        isinstance(key, str) and is_value(values[key]) for key in values
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(values: object) -> bool:
    return isinstance(values, list | tuple | set | frozenset) and all(map(_is_text, values))


def _is_pair(value: object) -> TypeGuard[tuple[float, float]]:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))


def _is_size(value: object) -> TypeGuard[tuple[float, float]]:
    return _is_pair(value) and all(0 < each < 1e6 for each in value)


def _are_styles(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(key, str | type) and isinstance(values[key], Style) for key in values
    )


_SIZE: Final = "a width and a height above 0 and below 1e6"
_FIELDS: Final[Sequence[tuple[str, str, Callable[[object], bool]]]] = (
    *((name, "a text", _is_text) for name in ("name", "group", "hero", "global_name")),
    *(
        (name, "a function, or None", lambda value: value is None or callable(value))
        for name in ("draw", "ground", "draw_text", "describe", "spots", "legend")
    ),
    (
        "board",
        "a Board(columns, rows), or None",
        lambda value: value is None or isinstance(value, Board),
    ),
    ("styles", "a dict of Style(...), by names or classes of entity types", _are_styles),
    (
        "at",
        "the names of two features",
        lambda value: isinstance(value, list | tuple) and len(value) == 2 and _are_texts(value),
    ),
    (
        "size",
        f"{_SIZE}, a function that returns them, or None",
        lambda value: value is None or callable(value) or _is_size(value),
    ),
    ("is_open", "True or False", lambda value: isinstance(value, bool)),
    (
        "flags",
        "a dict of lists of features, by names of entity types",
        lambda value: _texts_by(value, _are_texts),
    ),
    (
        "labels",
        "a dict by actions, of dicts of texts by labels",
        lambda value: _texts_by(value, lambda each: _texts_by(each, _is_text)),
    ),
    (
        "moves",
        "a dict by actions, of dicts of pairs of numbers by labels",
        lambda value: _texts_by(value, lambda each: _texts_by(each, _is_pair)),
    ),
)
"""The fields of a look: what each must be, in words and as a function."""


def _result(expected: str, value: object) -> UsageError:
    return UsageError(f"expected {expected}, got {shown(value)}")


def _text_of_terminal(value: object) -> object:
    if value is not None:
        from rich.text import Text  # few programs draw in a terminal

        if not isinstance(value, Text):
            raise _result("a Text of rich, or None", value)
    return value


def _words(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise _result("a text, or None for the default", value)
    return str.__str__(str(value or ""))


def _size(value: object) -> tuple[float, float]:
    if not _is_size(value):
        raise _result(_SIZE, value)
    width, height = map(float, value)
    return width, height


def _samples(value: object) -> dict[str, Scene]:
    if not _texts_by(value, lambda each: isinstance(each, Scene)):
        raise _result("a dict of Scene(1, 1), by name", value)
    return dict(value)  # type: ignore[call-overload, no-any-return]  # a mapping


def _places(value: object) -> list[Place]:
    if not isinstance(value, list | tuple):
        raise _result(_PLACES, value)
    return [_place(each) for each in value]


_PLACES: Final = "a list of Spot(x, y, words), (x, y) or entities of the observation"


def _place(value: object) -> Place:
    if isinstance(value, SeenEntity):
        return value
    if isinstance(value, list | tuple) and len(value) in (2, 3) and _is_pair(value[:2]):
        x, y, *words = value
        return Spot(float(x), float(y), *map(str, words))
    raise _result(_PLACES, value)


_RESULTS: Final[Mapping[str, Callable[[object], object]]] = {
    "size": _size,
    "draw_text": _text_of_terminal,
    "describe": _words,
    "spots": _places,
    "legend": _samples,
}
"""Checks of results, by function; those of `draw` and `ground` do not matter."""


def _is_tinted_by_enum(features: Sequence[str]) -> bool:
    enum, _ = first_enum(features)
    return enum == "color" or (
        bool(enum) and "color" not in {member_of(each)[0] for each in features}
    )


def member_colors(
    kinds: Mapping[EntityName, Sequence[str]], plain: Collection[int], colors: Sequence[str]
) -> dict[EntityName, list[int]]:
    """Indices of colors for the members of each type's first Enum field.

    Equal fields of several types share colors. A member named like a color has that color; others
    get the remaining colors, those of other types last.

    Args:
        kinds: feature names of the types whose Enum chooses the color.
        plain: indices of the colors of other types.
        colors: names of the palette's colors; additional members repeat colors.
    """
    chosen: dict[tuple[str, ...], list[int]] = {}
    num_taken = 0
    found = {}
    for name, features in kinds.items():
        enum, members = first_enum(features)
        key = (enum, *members.values())
        if key not in chosen:
            words = [_SAME_COLOR.get(each.lower(), each.lower()) for each in members.values()]
            named = [colors.index(word) if word in colors else None for word in words]
            free = [i for i in range(len(colors)) if i not in named] or [*range(len(colors))]
            order = sorted(free, key=lambda color: color in plain)
            unnamed = [order[(num_taken + i) % len(order)] for i in range(named.count(None))]
            num_taken += len(unnamed)
            rest = iter(unnamed)
            chosen[key] = [next(rest) if each is None else each for each in named]
        found[name] = chosen[key]
    return found


def line_of(error: BaseException, file: str) -> str:
    """`, line 3`: the line of a file that raised an error, or ""."""
    line = error.lineno if is_a(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f", line {line}"
