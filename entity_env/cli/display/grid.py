"""Grid: draws entities that have x and y features as symbols on a board, y upwards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.text import Text

from entity_env.agents.human.describe import SeenEntity, member_of
from entity_env.authoring.schema import Schema
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName

MAX_COLUMNS: Final = 40
MAX_ROWS: Final = 24
_GLYPHS: Final = "●■◆▲★○□◇△☆"
_COLORS: Final = (
    "bright_green",
    "bright_red",
    "bright_yellow",
    "bright_blue",
    "bright_magenta",
    "bright_cyan",
)
_GROUND: Final = ("empty", "floor", "free", "ground")
"""Entity types with these names are drawn as empty cells."""


@dataclass(frozen=True)
class EntityStyle:
    """How entities of one type are drawn.

    Args:
        label: name of the type.
        glyph: one character.
        color: a colour of rich.
        x, y: columns of the coordinates; None without coordinates.
        tint: column of a `color` feature, which overrides `color`.
        members: column and letter of each member of a one-hot feature; replaces the glyph.
    """

    label: str
    glyph: str
    color: str
    x: int | None
    y: int | None
    tint: int | None
    members: Mapping[int, str]

    @property
    def has_place(self) -> bool:
        return self.x is not None and self.y is not None

    def place(self, entity: SeenEntity) -> tuple[float, float]:
        return float(entity.features[self.x or 0]), float(entity.features[self.y or 0])

    def symbol(self, entity: SeenEntity) -> Text:
        letters = [letter for i, letter in self.members.items() if entity.features[i]]
        color = self.color
        if self.tint is not None:
            color = _COLORS[int(entity.features[self.tint]) % len(_COLORS)]
        return Text(letters[0] if letters else self.glyph, style=f"bold {color}")


def entity_styles(schema: Schema, *, ascii_only: bool = False) -> dict[EntityName, EntityStyle]:
    """The style of every type, from its feature names; global features are `GLOBAL_ENTITY`."""
    kinds = {kind.name: kind for kind in schema.entities}
    if schema.globals is not None:
        kinds = {GLOBAL_ENTITY: schema.globals, **kinds}
    glyphs = _letters(kind.name for kind in kinds.values()) if ascii_only else _GLYPHS
    ground = "." if ascii_only else Grid.empty
    found = {}
    num_placed = 0
    for key, kind in kinds.items():
        x, y = _coordinates(kind.features)
        is_ground = kind.name.lower() in _GROUND
        found[key] = EntityStyle(
            kind.name,
            ground if is_ground else glyphs[num_placed % len(glyphs)],
            "bright_black" if is_ground else _COLORS[num_placed % len(_COLORS)],
            x,
            y,
            kind.features.index("color") if "color" in kind.features else None,
            _members(kind.features),
        )
        num_placed += x is not None and not is_ground
    return found


@dataclass
class Grid:
    """A board that covers all places seen in an episode, and grows with them.

    Args:
        columns, rows: size of the board, if the game has such settings.
        empty: character of an empty cell.
    """

    columns: int | None = None
    rows: int | None = None
    empty: str = "·"
    _low: list[float] = field(init=False)
    _high: list[float] = field(init=False)
    _is_whole: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        sizes = (self.columns, self.rows)
        self._low = [math.inf if size is None else 0.0 for size in sizes]
        self._high = [-math.inf if size is None else size - 1.0 for size in sizes]

    def draw(
        self, entities: Iterable[SeenEntity], styles: Mapping[EntityName, EntityStyle]
    ) -> Text:
        """The board with these entities; of several in one cell the first is drawn."""
        placed = [(styles[e.type].place(e), styles[e.type].symbol(e)) for e in entities]
        for place, _ in placed:
            self._grow(place)
        if any(low > high for low, high in zip(self._low, self._high, strict=True)):
            return Text("nothing visible", style="dim")
        columns, rows = (self._num_cells(axis) for axis in (0, 1))
        symbols: dict[tuple[int, int], Text] = {}
        for (x, y), symbol in placed:
            symbols.setdefault((self._cell(x, 0, columns), self._cell(y, 1, rows)), symbol)
        empty = Text(self.empty, style="dim")
        return Text("\n").join(
            Text(" ").join(symbols.get((column, row), empty) for column in range(columns))
            for row in reversed(range(rows))
        )

    def _grow(self, place: tuple[float, float]) -> None:
        if not all(map(math.isfinite, place)):
            return
        for axis, value in enumerate(place):
            self._low[axis] = min(self._low[axis], value)
            self._high[axis] = max(self._high[axis], value)
        self._is_whole = self._is_whole and all(value == round(value) for value in place)

    def _num_cells(self, axis: int) -> int:
        most = (MAX_COLUMNS, MAX_ROWS)[axis]
        span = self._high[axis] - self._low[axis]
        return int(min(span + 1, most)) if self._is_whole else most // 2

    def _cell(self, value: float, axis: int, num_cells: int) -> int:
        span = self._high[axis] - self._low[axis]
        if span == 0 or not math.isfinite(value):
            return 0
        return round((value - self._low[axis]) / span * (num_cells - 1))


def _coordinates(features: Sequence[str]) -> tuple[int | None, int | None]:
    """Columns of `x` and `y`, or of the first pair such as `pos.x` and `pos.y`."""
    for i, name in enumerate(features):
        prefix, _, last = name.rpartition(".")
        partner = f"{prefix}.y" if prefix else "y"
        if last == "x" and partner in features:
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
