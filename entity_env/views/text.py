"""What was observed as text for a terminal: a board of cells, legend, lists, probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
from rich.text import Text

from entity_env.authoring.local_run import Turn
from entity_env.core.action_request import Question, questions
from entity_env.core.observation import Action
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError
from entity_env.views.describe import describe_entity, describe_features, describe_number
from entity_env.views.drawing import GROUND
from entity_env.views.look import Look, Style
from entity_env.views.scene import one_line
from entity_env.views.seen import SeenEntity, SeenObservation, member_of

MAX_COLUMNS: Final = 40
MAX_ROWS: Final = 24
_GLYPHS: Final = "●■◆▲★○□◇△☆"
_SHAPES: Final = {"square": "■", "diamond": "◆", "triangle": "▲"}
_EMPTY: Final = "·"
_COLORS: Final = (
    "bright_green",
    "bright_red",
    "bright_yellow",
    "bright_blue",
    "bright_magenta",
    "bright_cyan",
)
_MAX_LISTED: Final = 20
"""Entities without coordinates that are listed; the rest is counted."""
_MAX_ACTORS: Final = 2
_MAX_CHOICES: Final = 5
_BAR: Final = 10
"""Characters of a probability of 1."""


# ------------------------------------------------------------------ styles


@dataclass(frozen=True)
class EntityStyle:
    """How entities of one type are drawn; `x`, `y`, `digit` and `tints` are columns of features."""

    label: str
    glyph: str
    color: str
    x: int | None
    y: int | None
    tints: Sequence[int] = ()
    """Of the feature that chooses a colour: a number, or the members of a one-hot feature."""
    members: Mapping[int, str] = field(default_factory=dict)
    """Column and letter of each member of a one-hot feature; replaces the glyph."""
    digit: int | None = None
    """Of a number that replaces the glyph, if it has one digit."""

    @property
    def has_place(self) -> bool:
        """Whether the type has coordinates."""
        return self.x is not None and self.y is not None

    def place(self, entity: SeenEntity) -> tuple[float, float]:
        """The coordinates of an entity."""
        return float(entity.features[self.x or 0]), float(entity.features[self.y or 0])

    def symbol(self, entity: SeenEntity) -> Text:
        """One character in the colour of the entity, dim if it is hidden from the policy."""
        features = entity.features
        letters = [letter for i, letter in self.members.items() if features[i]]
        if self.digit is not None and features[self.digit] in range(10):
            letters = [describe_number(features[self.digit])]
        color = self.color
        if self.tints:
            tint = (
                features[self.tints[0]] if len(self.tints) == 1 else features[self.tints].argmax()
            )
            color = _COLORS[int(tint) % len(_COLORS)]
        weight = "bold" if entity.is_visible else "dim"
        return Text(letters[0] if letters else self.glyph, style=f"{weight} {color}")


def entity_styles(
    obs_space: ObsSpace, look: Look | None = None, *, ascii_only: bool = False, label: str = ""
) -> dict[EntityName, EntityStyle]:
    """The style of every type, by its look or its feature names.

    Args:
        obs_space: of the game.
        look: of the game; None = without one.
        ascii_only: use no other characters.
        label: name of the global features, whose style is that of `GLOBAL_ENTITY`; "" = "Global".
    """
    look = look or Look()
    kinds = {name: tuple(entity.features) for name, entity in obs_space.entities.items()}
    if obs_space.global_features:
        kinds = {GLOBAL_ENTITY: tuple(obs_space.global_features), **kinds}
    labels = {key: one_line((label or "Global") if key == GLOBAL_ENTITY else key) for key in kinds}
    places = {key: _coordinates(features, look.at) for key, features in kinds.items()}
    placed = [key for key, (x, _) in places.items() if x is not None]
    letters = dict(zip(placed, _letters(labels[key] for key in placed), strict=True))
    found = {}
    num_placed = 0
    for key, features in kinds.items():
        x, y = places[key]
        style = look.style(key) or Style()
        is_ground = style.shape == "ground" or labels[key].lower() in GROUND
        glyph = style.glyph[:1] or _SHAPES.get(style.shape, _GLYPHS[num_placed % len(_GLYPHS)])
        if ascii_only and not (style.glyph and glyph.isascii()):
            glyph = letters.get(key, "?")
        tint = "" if style.color.startswith("#") else style.color or "color"
        color = style.color if style.color.startswith("#") else _COLORS[num_placed % len(_COLORS)]
        found[key] = EntityStyle(
            labels[key],
            ("." if ascii_only else _EMPTY) if is_ground and not style.glyph else glyph,
            "bright_black" if is_ground and not style.color else color,
            x,
            y,
            _columns(features, tint),
            _members(features) if not style.glyph else {},
            features.index(style.label) if style.label in features else None,
        )
        num_placed += x is not None and not is_ground
    return found


def _columns(features: Sequence[str], name: str) -> list[int]:
    """The column of a feature, or those of the members of a one-hot feature."""
    if name in features:
        return [features.index(name)]
    return [i for i, each in enumerate(features) if name and member_of(each)[0] == name]


def _coordinates(features: Sequence[str], at: tuple[str, str]) -> tuple[int | None, int | None]:
    """Columns of `x` and `y`, or of the first pair such as `pos.x` and `pos.y`."""
    for i, name in enumerate(features):
        prefix, dot, last = name.rpartition(".")
        partner = f"{prefix}{dot}{at[1]}"
        if last == at[0] and partner in features:
            return i, features.index(partner)
    return None, None


def _members(features: Sequence[str]) -> dict[int, str]:
    """Column and letter of each member of the first one-hot feature."""
    found = [(i, *member_of(name)) for i, name in enumerate(features)]
    fields = [field for _, field, member in found if member]
    members = {i: member for i, field, member in found if member and field == fields[0]}
    return dict(zip(members, _letters(members.values()), strict=True))


def _letters(names: Iterable[str]) -> list[str]:
    """An upper-case letter for each name: its first letter that is not taken, else any other."""
    letters: list[str] = []
    for name in names:
        own = [char for char in name.upper() if char.isalnum()]
        spare = [*own, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
        letters.append(next((char for char in spare if char not in letters), "?"))
    return letters


# ------------------------------------------------------------------ the board


@dataclass
class Grid:
    """A board that covers all places seen in an episode, and grows with them.

    Args:
        columns, rows: its size; None = as much as is seen.
        empty: the character of an empty cell.
    """

    columns: int | None = None
    rows: int | None = None
    empty: str = _EMPTY
    _low: list[float] = field(init=False)
    _high: list[float] = field(init=False)
    _is_whole: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        sizes = (self.columns, self.rows)
        self._low = [math.inf if size is None else 0.0 for size in sizes]
        self._high = [-math.inf if size is None else size - 1.0 for size in sizes]

    def cover(
        self, entities: Iterable[SeenEntity], styles: Mapping[EntityName, EntityStyle]
    ) -> None:
        """Makes the board cover the places of these entities."""
        for entity in entities:
            place = styles[entity.type].place(entity)
            if not all(map(math.isfinite, place)):
                continue
            for axis, value in enumerate(place):
                self._low[axis] = min(self._low[axis], value)
                self._high[axis] = max(self._high[axis], value)
            self._is_whole = self._is_whole and all(value == round(value) for value in place)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the whole board; of one with fractional places the most drawn."""
        if any(low > high for low, high in zip(self._low, self._high, strict=True)):
            return 0, 0
        spans = [int(high - low) + 1 for low, high in zip(self._low, self._high, strict=True)]
        return (spans[0], spans[1]) if self._is_whole else (MAX_COLUMNS // 2, MAX_ROWS // 2)

    def draw(
        self,
        entities: Iterable[SeenEntity],
        styles: Mapping[EntityName, EntityStyle],
        limit: tuple[int, int] = (MAX_COLUMNS, MAX_ROWS),
        acting: Sequence[SeenEntity] = (),
    ) -> Text:
        """The board with these entities; of several in one cell the first is drawn.

        Args:
            entities: with coordinates.
            styles: by type.
            limit: columns and rows at most. A larger board of whole places is scrolled so that the
                acting entities are in the middle; without any, the board is scaled down.
            acting: the entities that act.

        Returns:
            One line a row; a last line names the part or the size of a board that is larger.
        """
        placed = list(entities)
        self.cover(placed, styles)
        size = self.size
        if not all(size):
            return Text("nothing visible", style="dim")
        shown = min(size[0], limit[0]), min(size[1], limit[1])
        is_scrolled = self._is_whole and size != shown and bool(acting)
        first = [0, 0]
        if is_scrolled:
            places = np.array([styles[e.type].place(e) for e in acting])
            middle = np.nan_to_num(places.mean(axis=0) - self._low)
            first = [
                int(min(max(middle[axis] - shown[axis] // 2, 0), size[axis] - shown[axis]))
                for axis in (0, 1)
            ]
        symbols: dict[tuple[int, ...], Text] = {}
        for entity in placed:
            style = styles[entity.type]
            cells = size if is_scrolled else shown
            cell = [
                self._cell(value, axis, cells[axis])
                for axis, value in enumerate(style.place(entity))
            ]
            symbols.setdefault((cell[0] - first[0], cell[1] - first[1]), style.symbol(entity))
        empty = Text(self.empty, style="dim")
        board = Text("\n").join(
            Text(" ").join(symbols.get((column, row), empty) for column in range(shown[0]))
            for row in reversed(range(shown[1]))
        )
        if size != shown and self._is_whole:
            board.append(f"\n{self._part(first, shown, size, is_scrolled)}", style="dim")
        return board

    def _part(
        self, first: Sequence[int], shown: Sequence[int], size: Sequence[int], is_scrolled: bool
    ) -> str:
        if not is_scrolled:
            return f"{size[0]} x {size[1]}, scaled"
        return " ".join(
            f"{name} {low + start:g}..{low + start + count - 1:g}"
            for name, low, start, count in zip("xy", self._low, first, shown, strict=True)
        )

    def _cell(self, value: float, axis: int, num_cells: int) -> int:
        span = self._high[axis] - self._low[axis]
        if span == 0 or not math.isfinite(value):
            return 0
        return round((value - self._low[axis]) / span * (num_cells - 1))


# ------------------------------------------------------------------ beside it


def legend(
    entities: Sequence[SeenEntity],
    styles: Mapping[EntityName, EntityStyle],
    *,
    ascii_only: bool = False,
) -> Iterator[Text]:
    """A line for every type with a place: its symbols, its name, and how many there are."""
    times = "x" if ascii_only else "×"
    for key, style in styles.items():
        if style.has_place:
            count = sum(entity.type == key for entity in entities)
            glyphs = " ".join(style.members.values()) or style.glyph
            symbols = Text(glyphs, "" if style.members and style.tints else f"bold {style.color}")
            yield Text.assemble(symbols, f" {style.label}", (f" {times}{count}", "dim"))


def listed(
    entities: Sequence[SeenEntity], styles: Mapping[EntityName, EntityStyle], obs_space: ObsSpace
) -> Iterator[Text]:
    """A line for every entity without coordinates, and for the global features."""
    lines = [
        _line(entity, styles, obs_space)
        for entity in entities
        if len(entity.features)
        and (entity.type == GLOBAL_ENTITY or not styles[entity.type].has_place)
    ]
    yield from map(Text, lines[:_MAX_LISTED])
    if len(lines) > _MAX_LISTED:
        yield Text(f"and {len(lines) - _MAX_LISTED} more", style="dim")


def _line(entity: SeenEntity, styles: Mapping[EntityName, EntityStyle], obs_space: ObsSpace) -> str:
    if entity.type == GLOBAL_ENTITY:
        features = describe_features(obs_space.global_features, entity.features)
        return f"{styles[GLOBAL_ENTITY].label} {features}"
    return describe_entity(entity, obs_space) + ("" if entity.is_visible else "  (hidden)")


# ------------------------------------------------------------------ what an agent thinks


def thoughts_of(
    turn: Turn,
    obs_space: ObsSpace,
    action_space: Mapping[ActionName, ActionSpace],
    look: Look | None = None,
    *,
    ascii_only: bool = False,
) -> Iterator[Text]:
    """The value, and a bar for each of the most probable choices of the first actors.

    Args:
        turn: a decision; without `thoughts` there is nothing.
        obs_space, action_space: of the game.
        look: of the game, for the words of selected entities.
        ascii_only: use no other characters.
    """
    if turn.thoughts is None:
        return
    if turn.thoughts.value is not None:
        yield Text.assemble("value ", (describe_number(turn.thoughts.value), "bold"))
    try:
        asked = questions(turn.observation, obs_space, action_space)
    except SchemaError:
        return  # the final observation of some agents asks for nothing
    full = "#" if ascii_only else "█"
    for question in asked:
        given = turn.thoughts.probabilities.get(question.name)
        if given is None:
            continue
        words = _choices(question, turn, obs_space, look)
        chosen = _chosen(question, turn.actions.get(question.name))
        for actor, row in islice(enumerate(np.asarray(given)), _MAX_ACTORS):
            best = np.argsort(-row, kind="stable")[:_MAX_CHOICES].tolist()
            if len(question.actors) > 1:
                name = one_line(question.name)
                yield Text(f"{name} {actor + 1} of {len(question.actors)}", style="dim")
            for choice in best:
                style = "bold cyan" if chosen[actor : actor + 1] == [choice] else ""
                bar = (full * round(float(row[choice]) * _BAR)).ljust(_BAR)
                yield Text(f"{row[choice]:4.0%} {bar} {one_line(words[choice])}", style=style)


def _choices(
    question: Question, turn: Turn, obs_space: ObsSpace, look: Look | None
) -> Sequence[str]:
    if not isinstance(question.space, SelectEntityActionSpace):
        return question.choices
    describe = entity_words(obs_space, look)
    seen = {e.id: e for e in SeenObservation(turn.observation, obs_space, turn.agent_id).entities}
    return [describe(seen[actee]) for actee in question.actees]


def _chosen(question: Question, action: Action | None) -> list[int]:
    return [] if action is None else question.chosen(action)


def entity_words(obs_space: ObsSpace, look: Look | None) -> Callable[[SeenEntity], str]:
    """Words for an entity that an action selects: those of the look, else its features."""
    if look is not None and look.describe is not None:
        return lambda entity: str(look.call("describe", entity))
    return lambda entity: describe_entity(entity, obs_space)
