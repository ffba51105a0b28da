"""`Drawing`: a look, applied to the observations of one episode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from entity_env.core.spaces import GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.views.describe import describe_features, describe_number
from entity_env.views.look import PALETTE, Board, Look, Style, StyleShape
from entity_env.views.scene import Point, Scene, faded, one_line, rgba
from entity_env.views.seen import SeenEntity, SeenObservation, member_of

GROUND: Final = ("empty", "floor", "free", "ground")
"""Entity types with these names are drawn as cells of the ground."""
_SHAPES: Final[tuple[StyleShape, ...]] = ("circle", "square", "diamond", "triangle")
_HIDDEN: Final = 0.35
"""Opacity of entities that are hidden from the policy."""
_PAPER, _CELL, _INK, _DIM = "#f8f9fa", "#e9ecef", "#212529", "#868e96"
_MAX_CELLS: Final = 64
_SCALED_CELLS: Final = 16
_MAX_CHECKED: Final = 1000
"""Cells that are drawn one by one."""
_MAX_GROUPS: Final = 8

_MAX_CARDS: Final = 24
_CARDS_A_ROW: Final = 6
_CARD_WIDTH: Final = 3.0
_GAP: Final = 0.3
_LINE: Final = 0.45
_TEXT: Final = 0.32
_MAX_LINES: Final = 6
_MAX_CHARS: Final = 17
"""Characters of a text of that size on a card."""


@dataclass
class _Extent:
    """The range of the coordinates on one axis."""

    low: float = math.inf
    high: float = -math.inf
    is_whole: bool = True

    def include(self, value: float) -> None:
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.is_whole = self.is_whole and value == round(value)

    @property
    def span(self) -> float:
        return max(self.high - self.low, 0.0)


@dataclass
class Drawing:
    """Scenes of one size for all observations that were included.

    Args:
        look: how they are drawn.
        obs_space: of the game.

    Raises:
        SchemaError: the look names a type or feature that the space lacks.
    """

    look: Look
    obs_space: ObsSpace
    _styles: dict[EntityName, Style] = field(init=False)
    _at: dict[EntityName, tuple[int, int]] = field(init=False)
    _extents: tuple[_Extent, _Extent] = field(init=False)
    _has_board: bool = field(init=False, default=False)
    _groups: list[object] = field(init=False, default_factory=list)
    _num_cards: int = field(init=False, default=0)
    _num_lines: int = field(init=False, default=0)
    _size: Point | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        features = {name: entity.features for name, entity in self.obs_space.entities.items()}
        features[GLOBAL_ENTITY] = self.obs_space.global_features
        self.look.require_fits(self.obs_space)
        placed = {name: _coordinates(names, self.look.at) for name, names in features.items()}
        self._at = {name: at for name, at in placed.items() if at is not None}
        self._styles = {
            name: self.look.style(name) or _default_style(name, i, names)
            for i, (name, names) in enumerate(features.items())
        }
        for i, (name, style) in enumerate(self._styles.items()):
            if not style.color:
                color = _CELL if style.shape == "ground" else PALETTE[i % len(PALETTE)]
                self._styles[name] = replace(style, color=color)
        board = self.look.board or Board()
        sizes = (board.columns, board.rows)
        low_high = [(math.inf, -math.inf) if size is None else (0.0, size - 1.0) for size in sizes]
        columns, rows = (_Extent(low, high) for low, high in low_high)
        self._extents = (columns, rows)

    def include(self, seen: SeenObservation) -> None:
        """Grows until the entities of an observation have room."""
        if self.look.draw is not None and self.look.size is not None:
            if self._size is None:
                self._size = self._own_size(seen)
            return
        num_cards = 0
        for entity in self._drawn(seen):
            place = self._place(entity)
            if place is None:
                num_cards += 1
                self._num_lines = max(self._num_lines, len(_card_lines(entity)))
                continue
            self._has_board = True
            for extent, value in zip(self._extents, place, strict=True):
                extent.include(value)
            group = self._group(entity)
            if group is not None and group not in self._groups and len(self._groups) < _MAX_GROUPS:
                self._groups.append(group)
                self._groups.sort(key=lambda each: (isinstance(each, str), each))
        self._num_cards = max(self._num_cards, num_cards)

    @property
    def size(self) -> Point:
        """Width and height of the scenes."""
        if self._size is not None:
            return self._size
        width, height = self._boards
        if self.look.draw is not None or not self._num_cards:
            return width or 1.0, height or 1.0
        rows = math.ceil(min(self._num_cards, _MAX_CARDS) / self._cards_a_row)
        more = _LINE + _GAP if self._num_cards > _MAX_CARDS else 0.0
        cards = rows * (self._card_height + _GAP) + _GAP + more
        return max(width, self._cards_a_row * (_CARD_WIDTH + _GAP) + _GAP), height + cards

    def scene(self) -> Scene:
        """An empty scene."""
        return Scene(*self.size, look=self.look.name)

    def ground(self) -> Scene:
        """What all scenes have in common."""
        scene = self.scene()
        if self.look.ground is not None:
            self.look.call("ground", scene)
            return scene
        scene.rect(0, 0, scene.width, scene.height, _PAPER)
        if self.look.draw is None and self._has_board:
            for left, title in zip(self._lefts, self._groups or [""], strict=True):
                self._draw_board(scene, left, title)
        return scene

    def draw(self, seen: SeenObservation) -> Scene:
        """The shapes of an observation, without the ground."""
        scene = self.scene()
        if self.look.draw is not None:
            self.look.call("draw", seen, scene)
            return scene
        entities = self._drawn(seen)
        order = list(self._styles)
        placed = [e for e in entities if self._place(e) is not None]
        cards = [e for e in entities if self._place(e) is None]
        placed.sort(
            key=lambda e: (self._styles[e.type].shape == "ground", order.index(e.type), e.index)
        )
        for entity in reversed(placed):  # the first lies on top
            self._draw_entity(scene, entity)
        self._draw_cards(scene, cards)
        return scene

    def _own_size(self, seen: SeenObservation) -> Point | None:
        size = self.look.size
        return self.look.checked_size(self.look.call("size", seen) if callable(size) else size)

    # ------------------------------------------------------------------ boards

    def _drawn(self, seen: SeenObservation) -> list[SeenEntity]:
        """Its entities; its global features too, if they are a place or all there is."""
        has_globals = len(seen.globals.features) > 0
        if has_globals and (GLOBAL_ENTITY in self._at or not self.obs_space.entities):
            return [*seen.entities, seen.globals]
        return seen.entities

    def _place(self, entity: SeenEntity) -> Point | None:
        at = self._at.get(entity.type)
        if at is None:
            return None
        x, y = float(entity.features[at[0]]), float(entity.features[at[1]])
        return (x, y) if math.isfinite(x) and math.isfinite(y) else None

    def _group(self, entity: SeenEntity) -> object:
        group = self.look.group
        return entity[group] if group and _has_field(entity, group) else None

    @property
    def _scale(self) -> float:
        """Cells a unit of the coordinates."""
        widest = max(extent.span for extent in self._extents)
        is_board = self.look.board is not None or all(e.is_whole for e in self._extents)
        if widest + 1 <= _MAX_CELLS and (is_board or widest == 0):
            return 1.0
        return (_MAX_CELLS if is_board else _SCALED_CELLS) / widest

    @property
    def _cells(self) -> Point:
        if not self._has_board and self.look.board is None:
            return 0.0, 0.0
        columns, rows = (extent.span * self._scale + 1 for extent in self._extents)
        return columns, rows

    @property
    def _boards(self) -> Point:
        """Size of all boards, side by side."""
        columns, rows = self._cells
        number = len(self._groups) or 1
        return number * (columns + 1) - 1, rows + (1 if self._groups else 0)

    @property
    def _lefts(self) -> list[float]:
        return [i * (self._cells[0] + 1) for i in range(len(self._groups) or 1)]

    def _draw_board(self, scene: Scene, left: float, title: object) -> None:
        columns, rows = self._cells
        top = 1.0 if self._groups else 0.0
        if self._groups:
            group = describe_number(title) if isinstance(title, float) else title
            scene.text(left + columns / 2, 0.5, f"{self.look.group} {group}", _INK)
        is_checked = self._scale == 1 and columns * rows <= _MAX_CHECKED
        if not is_checked:
            scene.rect(left, top, columns, rows, _CELL)
            return
        for y in range(math.ceil(rows)):
            for x in range(math.ceil(columns)):
                if (x + y) % 2:
                    scene.rect(left + x, top + y, min(1, columns - x), min(1, rows - y), _CELL)

    def _draw_entity(self, scene: Scene, entity: SeenEntity) -> None:
        place, group = self._place(entity), self._group(entity)
        if place is None or (self._groups and group is not None and group not in self._groups):
            return
        lefts = self._lefts if group is None else [self._lefts[self._groups.index(group)]]
        columns, rows = self._extents
        x = (place[0] - columns.low) * self._scale + 0.5
        y = (rows.high - place[1]) * self._scale + 0.5 + (1 if self._groups else 0)
        for left in lefts:
            draw_styled(scene, entity, self._styles[entity.type], (left + x, y), self._scale)

    # ------------------------------------------------------------------ cards

    @property
    def _cards_a_row(self) -> int:
        fitting = int((self._boards[0] - _GAP) / (_CARD_WIDTH + _GAP))
        return (
            max(fitting, min(self._num_cards, _CARDS_A_ROW))
            if not self._has_board
            else max(fitting, 1)
        )

    @property
    def _card_height(self) -> float:
        return (self._num_lines + 1) * _LINE + 0.3

    def _draw_cards(self, scene: Scene, entities: Sequence[SeenEntity]) -> None:
        height = self._card_height
        top = self._boards[1] + _GAP
        for i, entity in enumerate(entities[:_MAX_CARDS]):
            row, column = divmod(i, self._cards_a_row)
            place = (_GAP + column * (_CARD_WIDTH + _GAP), top + row * (height + _GAP))
            self._draw_card(scene, entity, place, height)
        if len(entities) > _MAX_CARDS:
            words = f"and {len(entities) - _MAX_CARDS} more"
            scene.text(_GAP, scene.height - _LINE, words, _DIM, size=_TEXT, anchor="start")

    def _draw_card(self, scene: Scene, entity: SeenEntity, place: Point, height: float) -> None:
        opacity = 1.0 if entity.is_visible else _HIDDEN
        x, y = place
        color = faded(_color(self._styles[entity.type], entity), opacity)
        scene.rect(x, y, _CARD_WIDTH, height, "#ffffff", stroke="#ced4da", radius=0.1, of=entity)
        scene.rect(x, y, 0.15, height, color, radius=0.05)
        name = "all" if entity.type == GLOBAL_ENTITY else entity.type
        words = [name + ("" if entity.is_visible else " (hidden)"), *_card_lines(entity)]
        for i, text in enumerate(words):
            ink = faded(_INK if i == 0 else "#495057", 1 if entity.is_visible else 0.6)
            line = y + 0.15 + _LINE * (i + 0.5)
            scene.text(x + 0.3, line, clipped(text), ink, size=_TEXT, anchor="start")


def draw_styled(
    scene: Scene, entity: SeenEntity, style: Style, place: Point, scale: float = 1.0
) -> None:
    """Adds the shape of one entity around a place of the scene."""
    opacity = 1.0 if entity.is_visible else _HIDDEN
    color = faded(_color(style, entity), opacity) if opacity < 1 else _color(style, entity)
    stroke = faded("#000000", 0.3 * opacity)
    size = style.size if not isinstance(style.size, str) else _number(entity, style.size) * scale
    size = max(size, 0.05) if math.isfinite(size) else 0.8
    turn = style.rotate if not isinstance(style.rotate, str) else _heading(entity, style.rotate)
    (x, y), half = place, size / 2
    if style.image:
        scene.image(x - half, y - half, size, size, style.image, rotate=turn, of=entity)
    elif style.shape == "ground":
        scene.rect(x - 0.5, y - 0.5, 1, 1, faded(color, 0.6), of=entity)
    elif style.shape == "circle":
        scene.circle(x, y, half, color, stroke=stroke, of=entity)
    elif style.shape == "square":
        corner = (x - half, y - half, size, size)
        scene.rect(*corner, color, stroke=stroke, radius=size / 8, rotate=turn, of=entity)
    else:
        corners: list[Point] = [(0, -1), (1, 0), (0, 1), (-1, 0)]
        if style.shape == "triangle":
            corners = [(0, -4 / 3), (1, 2 / 3), (-1, 2 / 3)]  # around its mean
        around = [(x + dx * half, y + dy * half) for dx, dy in corners]
        scene.polygon(around, color, stroke=stroke, rotate=turn, of=entity)
    if style.label:
        value = entity[style.label]
        text = describe_number(value) if isinstance(value, float) else one_line(value)
        width = max(len(text), 2) * 0.6
        ink = "#ffffff" if _is_dark(color) and entity.is_visible else _INK
        scene.text(x, y, text, faded(ink, max(opacity, 0.6)), size=min(0.6 * size, size / width))


def clipped(text: str, most: int = _MAX_CHARS) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _default_style(name: EntityName, index: int, features: Sequence[str]) -> Style:
    if name.lower() in GROUND:
        return Style("ground")
    color = "color" if "color" in {member_of(each)[0] for each in features} else ""
    return Style(_SHAPES[index % len(_SHAPES)], color)


def _coordinates(features: Sequence[str], at: tuple[str, str]) -> tuple[int, int] | None:
    """Columns of the coordinates, or of the first pair such as `pos.x` and `pos.y`."""
    for i, name in enumerate(features):
        prefix, dot, last = name.rpartition(".")
        partner = f"{prefix}{dot}{at[1]}"
        if (name == at[0] or (at == ("x", "y") and last == "x")) and partner in features:
            return i, features.index(partner)
    names = list(features)
    return (names.index(at[0]), names.index(at[1])) if {*at} <= {*names} else None


def _has_field(entity: SeenEntity, name: str) -> bool:
    return any(name in (each, member_of(each)[0]) for each in entity.names)


def _color(style: Style, entity: SeenEntity) -> str:
    if style.color.startswith("#"):
        return style.color
    value = entity[style.color]
    if isinstance(value, str):
        members = [member for f, member in map(member_of, entity.names) if f == style.color]
        value = members.index(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return _DIM
    return PALETTE[round(value) % len(PALETTE)]


def _number(entity: SeenEntity, name: str) -> float:
    value = entity[name]
    return value if isinstance(value, float) else math.nan


def _heading(entity: SeenEntity, name: str) -> float:
    """Degrees clockwise from up, of a feature in radians counter-clockwise from x."""
    radians = _number(entity, name)
    return 90 - math.degrees(radians) if math.isfinite(radians) else 0.0


def _is_dark(color: str) -> bool:
    red, green, blue, _ = rgba(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140


def _card_lines(entity: SeenEntity) -> list[str]:
    """Its features in words, a line each; of many the first ones."""
    names, values = list(entity.names), entity.features
    lines: list[str] = []
    for i, name in enumerate(names):
        words = describe_features([name], [float(values[i])])
        if words and len(lines) == _MAX_LINES - 1 and len(names) - i > 1:
            return [*lines, f"and {len(names) - i} more"]
        lines += [words] if words else []
    return lines
