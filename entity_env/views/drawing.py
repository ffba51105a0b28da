"""`Drawing`: a look applied to the observations of one episode."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Final

from entity_env.core.observation import SelectEntityActionMask
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.views.describe import (
    EntityRow,
    describe_number,
    entity_tables,
)
from entity_env.views.look import (
    COLOR_WORDS,
    GROUND,
    PALETTE,
    Board,
    Look,
    Style,
    StyleShape,
    member_colors,
)
from entity_env.views.parts.contrast import CELL, PAPER, outline_of
from entity_env.views.parts.styled import (
    DIM,
    HIDDEN,
    SHRUNK,
    draw_bar,
    draw_styled,
    number_of,
    stack_shift,
)
from entity_env.views.pixels import Extent, Pixels
from entity_env.views.scene import (
    INK,
    Point,
    Scene,
    Shape,
    clipped,
    faded,
    is_color,
    one_line,
)
from entity_env.views.seen import SeenEntity, SeenObservation, first_enum, member_of

_SHAPES: Final[tuple[StyleShape, ...]] = ("circle", "square", "diamond", "triangle")
_LOST: Final = "#868e96 #868e96"
"""Color of an entity whose feature chooses none."""
_MAX_CELLS: Final = 64
_SCALED_CELLS: Final = 16
_MAX_CHECKED: Final = 1000
"""Maximum number of cells drawn individually."""
_MAX_GROUPS: Final = 8

_GAP: Final = 0.3
_LINE: Final = 0.45
_TEXT: Final = 0.32
_CHAR: Final = 0.56 * _TEXT
"""Approximate width of lowercase letters and digits."""
_CAPITAL: Final = 1.35
"""Width of a capital letter, in characters."""
_MAX_CHARS: Final = 24
"""Maximum characters of a table cell or title."""
_TABLE_WIDTH: Final = 17.0
"""Minimum width for tables below a board, side by side."""
_BLOCK_ROWS: Final = 12
_MAX_ROWS: Final = 60
"""Maximum rows of a table; entities that act or can be selected come first."""
_HOVER: Final = "#ffffff00"
"""Fill of shapes that only respond to a pointer."""
_RING: Final = "#000000 #ffffff"
_FULL: Final = 0.95
"""Size of a shape that fills its cell, so others are drawn on it and not next to it."""
_MAX_STACK: Final = 4
"""Maximum entities drawn in one cell; if there are more, the last place has their number."""
_MAX_LINES: Final = 1000
"""Maximum relations drawn as lines; others are rows of a table."""
_THIN: Final = 0.05
_SAMPLE: Final = 0.7
"""Size of the samples in a legend."""
_MAX_SAMPLES: Final = 24
_LAYOUT: Final = ("size", "_scale", "_cells", "_boards", "_lefts", "_most", "_places_of_tables")
"""Cached properties that are recomputed when the drawing grows."""


@dataclass
class _Table:
    """Space for the rows of one type, in blocks side by side.

    If the columns of a block are too wide, they are split into parts below each other.
    """

    title: str
    columns: dict[str, float] = field(default_factory=dict)
    num_rows: int = 0
    num_chars: int = 0
    pixels: Pixels = field(default_factory=Pixels)

    def include(self, rows: Sequence[EntityRow]) -> None:
        self.pixels.include(rows)
        for row in rows:
            for name, text in row.cells.items():
                width = max(_num_chars(name), _num_chars(one_line(text)))
                self.columns[name] = max(self.columns.get(name, 0.0), width)
        self.num_rows = max(self.num_rows, min(len(rows), _MAX_ROWS))
        ends = [len(_end_of(row)) for row in rows]
        self.num_chars = max(self.num_chars, *ends, 0)

    def parts(self, most: float) -> list[list[str]]:
        """The columns of each part of a block, no wider than `most` if possible."""
        parts: list[list[str]] = [[]]
        start = wide = self.width(())
        for name, chars in self.columns.items():
            wide += chars * _CHAR + _GAP
            if parts[-1] and wide > most:
                parts.append([])
                wide = start + chars * _CHAR + _GAP
            parts[-1].append(name)
        return parts

    def width(self, columns: Sequence[str]) -> float:
        chars = sum(self.columns[name] for name in columns) + self.num_chars
        gaps = (len(columns) + bool(self.num_chars)) * _GAP
        return max(chars * _CHAR + gaps, (len(self.title) + 4) * _CHAR) + _GAP

    def blocks(self, most: float) -> int:
        width = max(map(self.width, self.parts(most)))
        wanted = math.ceil(self.num_rows / _BLOCK_ROWS)
        return max(1, min(int((most + _GAP) / (width + _GAP)), wanted))

    def size(self, most: float) -> Point:
        parts, num = self.parts(most), self.blocks(most)
        width = num * (max(map(self.width, parts)) + _GAP) - _GAP
        if (picture := self.pixels.size) is not None:
            return max(width, picture[0]), 1.2 * _LINE + picture[1] + _GAP
        rows = math.ceil(self.num_rows / num) + bool(self.columns)
        return width, _LINE * (1.2 + rows * len(parts)) + _GAP


@dataclass
class Drawing:
    """Scenes of one size for all included observations.

    Args:
        agent_names: in the legend, these replace `agent 0`, `agent 1` and so on.

    Raises:
        SchemaError: the look names a type or feature that the space lacks.
    """

    look: Look
    obs_space: ObsSpace
    agent_names: Sequence[str] = ()
    _styles: dict[EntityName, Style] = field(init=False)
    _at: dict[EntityName, tuple[int, int]] = field(init=False)
    _extents: tuple[Extent, Extent] = field(init=False)
    _has_board: bool = field(init=False, default=False)
    _palettes: dict[EntityName, Sequence[str]] = field(init=False, default_factory=dict)
    _groups: list[object] = field(init=False, default_factory=list)
    _tables: dict[EntityName, _Table] = field(init=False, default_factory=dict)
    _size: Point | None = field(init=False, default=None)
    _rank: dict[EntityName, int] = field(init=False)
    _examples: dict[tuple[EntityName, str], SeenEntity] = field(init=False, default_factory=dict)
    _most_of: dict[EntityName, float] = field(init=False, default_factory=dict)
    _flags: dict[str, None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        features = {name: entity.features for name, entity in self.obs_space.entities.items()}
        features[GLOBAL_ENTITY] = self.obs_space.global_features
        self.look.require_fits(self.obs_space)
        placed = {name: self.look.coordinates(names) for name, names in features.items()}
        self._at = {name: at for name, at in placed.items() if at is not None}
        self._styles = {
            name: self.look.style(name) or _default_style(name, i, names)
            for i, (name, names) in enumerate(features.items())
        }
        for i, (name, style) in enumerate(self._styles.items()):
            if not style.color:
                color = CELL if style.shape == "ground" else PALETTE[i % len(PALETTE)]
                self._styles[name] = replace(style, color=color)
        self._rank = {name: i for i, name in enumerate(self._styles)}
        self._tint(features)
        board = self.look.board or Board()
        sizes = (board.columns, board.rows)
        low_high = [(math.inf, -math.inf) if size is None else (0.0, size - 1.0) for size in sizes]
        columns, rows = (Extent(low, high) for low, high in low_high)
        self._extents = (columns, rows)

    def include(self, seen: SeenObservation) -> None:
        """Grows to fit the entities of an observation."""
        for name in _LAYOUT:
            self.__dict__.pop(name, None)
        if self.look.draw is not None and self.look.size is not None:
            if self._size is None:
                size = self.look.size
                self._size = self.look.call("size", seen) if callable(size) else size
            return
        for name, rows in self._rows(seen).items():
            title = self.look.global_name if name == GLOBAL_ENTITY else name
            self._tables.setdefault(name, _Table(title)).include(rows)
        for entity in self._drawn(seen):
            place = self.place_of(entity)
            if place is None:
                continue
            self._has_board = True
            for extent, value in zip(self._extents, place, strict=True):
                extent.include(value)
            bar = self._styles[entity.type].bar
            if bar and "/" not in bar:
                most = self._most_of.get(entity.type, 0.0)
                self._most_of[entity.type] = max(most, number_of(entity, bar))
            group = self._group(entity)
            if group is not None and group not in self._groups and len(self._groups) < _MAX_GROUPS:
                self._groups.append(group)
                self._groups.sort(key=lambda each: (isinstance(each, str), each))

    @cached_property
    def size(self) -> Point:
        if self._size is not None:
            return self._size
        width, height = self._boards
        if self.look.draw is not None or not self._tables:
            return width or 1.0, height or 1.0
        sizes = {name: self._tables[name].size(self._most) for name in self._tables}
        places = self._places_of_tables
        right = max(x + sizes[name][0] for name, (x, _) in places.items())
        below = max(y + sizes[name][1] for name, (_, y) in places.items())
        return max(width, right + _GAP), below

    def scene(self) -> Scene:
        return Scene(*self.size, look=self.look.name)

    def ground(self) -> Scene:
        """The shapes shared by all scenes."""
        scene = self.scene()
        if self.look.ground is not None:
            self.look.call("ground", scene)
            return scene
        scene.rect(0, 0, scene.width, scene.height, PAPER)
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
        placed = [e for e in entities if self.place_of(e) is not None]
        placed.sort(
            key=lambda e: (self._styles[e.type].shape == "ground", self._rank[e.type], e.index)
        )
        for entity in self._lines(seen).values():
            color = self._color_of(entity)
            color = color if entity.is_visible else faded(color, HIDDEN)
            ends = [self.on_scene(self.place_of(end) or (0, 0), end) for end in entity.ends]
            scene.line(ends, color, width=_THIN, of=entity)
        stacks = self._stacks(placed)
        for entity in reversed(placed):  # the first is drawn on top
            self._draw_entity(scene, entity, stacks.get(self._stack_of(entity), ()))
        for name, rows in self._rows(seen).items():
            if name in self._tables:
                self._draw_table(scene, name, rows)
        return scene

    def leaves_globals_out(self, seen: SeenObservation) -> bool:
        """Whether an observation has global features, but no table shows them."""
        has_table = self.look.draw is None and self.place_of(seen.globals) is None
        return len(seen.globals.features) > 0 and not has_table

    # ------------------------------------------------------------------ boards

    def _drawn(self, seen: SeenObservation) -> list[SeenEntity]:
        return [*seen.entities, seen.globals] if len(seen.globals.features) else seen.entities

    def _rows(self, seen: SeenObservation) -> dict[EntityName, list[EntityRow]]:
        lines = self._lines(seen)
        drawn = [
            entity
            for entity in self._drawn(seen)
            if len(entity.features) and self.place_of(entity) is None and entity.index not in lines
        ]
        asked = _asked_in(seen) if len(drawn) > _MAX_ROWS else set()
        drawn.sort(key=lambda e: (e.type != GLOBAL_ENTITY, bool(asked) and e.index not in asked))
        return entity_tables(drawn, self.look)

    def _lines(self, seen: SeenObservation) -> dict[int, SeenEntity]:
        """The relations between two places of the board, by index."""
        if not self.obs_space.relations:
            return {}
        placed = {e.index: place for e in seen.entities if (place := self.place_of(e)) is not None}
        found = [
            entity
            for entity in seen.entities
            if entity.index not in placed
            and len({placed[end.index] for end in entity.ends if end.index in placed}) == 2
        ]
        return {entity.index: entity for entity in found[:_MAX_LINES]}

    def _tint(self, features: Mapping[EntityName, Sequence[str]]) -> None:
        """Colors types without a style by their first Enum field."""
        by_enum = self.look.tinted(features)
        plain = {i % len(PALETTE) for i, name in enumerate(features) if name not in by_enum}
        found = member_colors(by_enum, plain, COLOR_WORDS)
        self._palettes = {name: [PALETTE[i] for i in indices] for name, indices in found.items()}
        for name, names in by_enum.items():
            self._styles[name] = replace(self._styles[name], color=first_enum(names)[0])

    def place_of(self, entity: SeenEntity) -> Point | None:
        """The coordinates of an entity; None if it has none."""
        at = self._at.get(entity.type)
        if at is None or not len(entity.features):
            return None
        x, y = float(entity.features[at[0]]), float(entity.features[at[1]])
        return (x, y) if math.isfinite(x) and math.isfinite(y) else None

    def _group(self, entity: SeenEntity) -> object:
        group = self.look.group
        has_group = group and any(group in (each, member_of(each)[0]) for each in entity.names)
        return entity[group] if has_group else None

    @cached_property
    def _scale(self) -> float:
        """Cells per unit of coordinates."""
        widest = max(extent.span for extent in self._extents)
        is_board = self.look.board is not None or all(e.is_whole for e in self._extents)
        if widest + 1 <= _MAX_CELLS and (is_board or widest < 1e-300):  # else it may be infinite
            return 1.0
        return (_MAX_CELLS if is_board else _SCALED_CELLS) / widest

    @cached_property
    def _cells(self) -> Point:
        if not self._has_board and self.look.board is None:
            return 0.0, 0.0
        columns, rows = (extent.span * self._scale + 1 for extent in self._extents)
        return columns, rows

    @cached_property
    def _boards(self) -> Point:
        columns, rows = self._cells
        number = len(self._groups) or 1
        return number * (columns + 1) - 1, rows + (1 if self._groups else 0)

    @cached_property
    def _lefts(self) -> list[float]:
        return [i * (self._cells[0] + 1) for i in range(len(self._groups) or 1)]

    def _draw_board(self, scene: Scene, left: float, title: object) -> None:
        columns, rows = self._cells
        top = 1.0 if self._groups else 0.0
        if self._groups:
            group = describe_number(title) if isinstance(title, float) else title
            scene.text(left + columns / 2, 0.5, f"{self.look.group} {group}", INK)
        is_checked = self._scale == 1 and columns * rows <= _MAX_CHECKED
        add = scene.cells if is_checked else scene.rect
        add(left, top, columns, rows, CELL)

    def _stack_of(self, entity: SeenEntity) -> object:
        """Key of the place that an entity shares with others; None if it fills its cell."""
        style = self._styles[entity.type]
        is_large = not isinstance(style.size, str) and style.size >= _FULL
        if style.shape == "ground" or is_large:
            return None
        return self.place_of(entity), self._group(entity)

    def _stacks(self, placed: Sequence[SeenEntity]) -> dict[object, list[SeenEntity]]:
        """The entities that share a place, in the order of the space."""
        found: dict[object, list[SeenEntity]] = {}
        for entity in placed:
            if (key := self._stack_of(entity)) is not None:
                found.setdefault(key, []).append(entity)
        return {key: stack for key, stack in found.items() if len(stack) > 1}

    def _draw_entity(
        self, scene: Scene, entity: SeenEntity, stack: Sequence[SeenEntity] = ()
    ) -> None:
        """Draws an entity, smaller if it shares its cell.

        Of more than `_MAX_STACK` in a cell, the last ones are replaced with their number.
        """
        place, group = self.place_of(entity), self._group(entity)
        if place is None or (self._groups and group is not None and group not in self._groups):
            return
        position = next((i for i, each in enumerate(stack) if each is entity), 0)
        dx, dy = stack_shift(position, len(stack))
        shrunk = SHRUNK if stack else 1.0
        is_everywhere = group is None and self._groups
        for each in self._groups if is_everywhere else [group]:
            x, y = self._on_board(place, each)
            if position < _MAX_STACK - (len(stack) > _MAX_STACK):
                self._draw_at(scene, entity, (x + dx, y + dy), shrunk)
            elif position == _MAX_STACK - 1:
                words = f"+{len(stack) - position}"
                scene.text(x + dx, y + dy, words, INK, size=0.35, of=entity)

    def _draw_at(self, scene: Scene, entity: SeenEntity, place: Point, shrunk: float) -> None:
        color, style = self._color_of(entity), self._styles[entity.type]
        self._examples.setdefault((entity.type, color), entity)
        draw_styled(scene, entity, style, place, color, scale=self._scale, shrunk=shrunk)
        if style.bar:
            draw_bar(scene, entity, style, place, self._most_of.get(entity.type, 0.0), shrunk)
        for flag in self.look.flags.get(entity.type, ()):
            if flag in entity.names and entity[flag]:
                self._flags.setdefault(flag)
                scene.circle(*place, 0.45 * shrunk, stroke=_RING, stroke_width=0.1 * shrunk)
                break

    def on_scene(self, place: Point, actor: SeenEntity | None = None) -> Point:
        """The point for coordinates of the game, on the board of an actor."""
        group = None if actor is None else self._group(actor)
        return self._on_board(place, group)

    def _on_board(self, place: Point, group: object) -> Point:
        left = self._lefts[self._groups.index(group)] if group in self._groups else 0.0
        columns, rows = self._extents
        x = (place[0] - columns.low) * self._scale + 0.5
        y = (rows.high - place[1]) * self._scale + 0.5 + (1 if self._groups else 0)
        return left + x, y

    def legend(self) -> list[tuple[str, list[Shape]]]:
        """Name and sample of what the pictures show, drawn in a unit square.

        Without `Look.legend`, it covers what has been drawn so far.
        """
        if self.look.legend is not None:
            samples: Mapping[str, Scene] = self.look.call("legend")
            return [(self._with_names(name), scene.shapes) for name, scene in samples.items()]
        found = []
        ranked = sorted(self._examples.items(), key=lambda each: self._order_in_legend(*each[0]))
        for (name, color), entity in ranked[:_MAX_SAMPLES]:
            style = self._styles[name]
            sample = replace(style, size=_SAMPLE, rotate=0.0, label="", bar="")
            scene = Scene(1, 1, look=self.look.name)
            visible = replace(entity, is_visible=True, index=-1)
            draw_styled(scene, visible, sample, (0.5, 0.5), color)
            title = self.look.global_name if name == GLOBAL_ENTITY else name
            by = "" if is_color(style.color) else _value_of(entity, style.color)
            found.append((one_line(f"{title} {by}"), scene.shapes))
        for flag in self._flags:
            scene = Scene(1, 1)
            scene.circle(0.5, 0.5, 0.45, stroke=_RING, stroke_width=0.1)
            found.append((one_line(flag), scene.shapes))
        return found

    def _with_names(self, text: str) -> str:
        names = {f"agent {i}": name for i, name in enumerate(self.agent_names)}
        return one_line(re.sub(r"\bagent \d+\b", lambda each: names.get(each[0], each[0]), text))

    def _order_in_legend(self, name: EntityName, color: str) -> tuple[int, int]:
        """Types in the order of the space, and members of an Enum in its order."""
        palette = [*self._palettes.get(name, PALETTE)]
        return self._rank[name], palette.index(color) if color in palette else 0

    def _color_of(self, entity: SeenEntity) -> str:
        palette = self._palettes.get(entity.type, PALETTE)
        return _color(self._styles[entity.type], entity, palette)

    # ------------------------------------------------------------------ tables

    @cached_property
    def _most(self) -> float:
        """Width for tables, unless a single column is wider."""
        return max(self._boards[0], _TABLE_WIDTH) - 2 * _GAP

    @cached_property
    def _places_of_tables(self) -> dict[EntityName, Point]:
        """Upper left corner of each table, wrapped into lines."""
        x, y, below = _GAP, self._boards[1] + _GAP, 0.0
        places = {}
        for name in sorted(
            self._tables, key=lambda each: (each != GLOBAL_ENTITY, self._rank[each])
        ):
            width, height = self._tables[name].size(self._most)
            if x > _GAP and x + width > self._most + _GAP:
                x, y, below = _GAP, y + below, 0.0
            places[name] = (x, y)
            x, below = x + width + 2 * _GAP, max(below, height)
        return places

    def _draw_table(self, scene: Scene, name: EntityName, rows: Sequence[EntityRow]) -> None:
        table, (left, top) = self._tables[name], self._places_of_tables[name]
        count = sum(row.count for row in rows)
        title = table.title if name == GLOBAL_ENTITY or count == 1 else f"{table.title} x{count}"
        scene.text(
            left, top + _LINE / 2, clipped(title, _MAX_CHARS), INK, size=_TEXT * 1.1, anchor="start"
        )
        shown, top = rows[:_MAX_ROWS], top + 1.2 * _LINE
        if table.pixels.draw(scene, rows, (left, top)):
            return
        parts, num_blocks = table.parts(self._most), table.blocks(self._most)
        per_block = max(1, math.ceil(table.num_rows / num_blocks))
        width = max(map(table.width, parts))
        for part in parts:
            for i in range(0, len(shown), per_block):
                x = left + i // per_block * (width + _GAP)
                self._draw_block(scene, table, part, shown[i : i + per_block], (x, top))
            top += _LINE * (per_block + bool(part))
        if len(rows) > _MAX_ROWS:
            words = f"and {len(rows) - _MAX_ROWS} more"
            scene.text(left, top + _GAP / 2, words, DIM, size=_TEXT, anchor="start")

    def _draw_block(
        self,
        scene: Scene,
        table: _Table,
        columns: Sequence[str],
        rows: Sequence[EntityRow],
        corner: Point,
    ) -> None:
        (left, y), width = corner, table.width(columns)
        widths = (table.columns[name] * _CHAR + _GAP for name in columns)
        rights = dict(zip(columns, [*accumulate(widths, initial=left)][1:], strict=True))
        for name, x in rights.items():
            scene.text(x, y + _LINE / 2, clipped(name, _MAX_CHARS), DIM, size=_TEXT, anchor="end")
        y += _LINE * bool(columns)
        for row in rows:
            entity = row.entity
            color = self._color_of(entity)
            outline, color = (
                outline_of(color),
                color if entity.is_visible else faded(color, HIDDEN),
            )
            scene.rect(left, y, width, _LINE, _HOVER, of=entity)
            scene.rect(left, y + 0.06, 0.12, _LINE - 0.12, color, stroke=outline, stroke_width=0.03)
            ink, middle = INK if entity.is_visible else DIM, y + _LINE / 2
            for name, x in rights.items():
                text = clipped(one_line(row.cells.get(name, "")), _MAX_CHARS)
                scene.text(x, middle, text, ink, size=_TEXT, anchor="end")
            if end := _end_of(row):
                scene.text(left + width - 0.1, middle, end, DIM, size=_TEXT, anchor="end")
            y += _LINE


def _num_chars(text: str) -> float:
    """Width of a text in a table, in lowercase letters."""
    return sum(_CAPITAL if char.isupper() else 1.0 for char in clipped(text, _MAX_CHARS))


def _end_of(row: EntityRow) -> str:
    words = ["" if row.count == 1 else f"x{row.count}", "" if row.entity.is_visible else "hidden"]
    return " ".join(filter(None, words))


def _asked_in(seen: SeenObservation) -> set[int]:
    """Indices of entities that act or can be selected; empty after the episode."""
    observation = seen.observation
    found: set[int] = set()
    for name, mask in () if observation.done else observation.actions.items():
        found.update(map(int, observation.actor_indices(name, seen.obs_space)))
        if isinstance(mask, SelectEntityActionMask):
            found.update(map(int, observation.actee_indices(name, seen.obs_space)))
    return found


def _default_style(name: EntityName, index: int, features: Sequence[str]) -> Style:
    if name.lower() in GROUND:
        return Style("ground")
    color = "color" if "color" in {member_of(each)[0] for each in features} else ""
    return Style(_SHAPES[index % len(_SHAPES)], color)


def _color(style: Style, entity: SeenEntity, palette: Sequence[str]) -> str:
    if style.color.startswith("#"):
        return style.color
    value = entity[style.color]
    if isinstance(value, str):  # for a Flag, the first member
        members = [member for f, member in map(member_of, entity.names) if f == style.color]
        value = members.index(value.partition("|")[0])
    if not isinstance(value, int | float) or not math.isfinite(value):
        return _LOST
    return palette[round(value) % len(palette)]


def _value_of(entity: SeenEntity, name: str) -> str:
    """`KNIGHT`, or `team 1`: the value of the feature that chooses a color."""
    value = entity[name]
    return f"{name} {describe_number(value)}" if isinstance(value, float) else str(value or "")
