"""Azul's table as a picture: factories and center on the left, the players' boards on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOURS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NUM_LINES,
    column_of,
    num_factories,
)
from entity_env.views import DECORATION, Scene, SeenEntity

Place = tuple[float, float]

_PITCH: Final = 0.8
"""Distance between the centers of neighboring tiles."""
_TILE: Final = 0.72
_WALL: Final = (4 * _PITCH + _TILE, 4 * _PITCH + _TILE)
_FACTORY: Final = 2.35
_RADIUS: Final = 1.08
_BOARD: Final = (9.3, 6.55)
_GAP: Final = 0.25
_EDGE: Final = 0.3

_PAPER, _FACE, _SLOT = "#f3efe6 #17181a", "#ffffff #2b2d31", "#eceff1 #3a3d42"
_DISH, _RIM = "#fffdf8 #2b2d31", "#8a7a5c #8d8570"
INK, DIM = "#212529 #f1f3f5", "#5c636a #b6bcc2"
_FILLS: Final = {
    "blue": "#1c6fb8 #4dabf7",
    "yellow": "#ffd43b #ffd43b",
    "red": "#cf2e2e #ff8787",
    "black": "#2b2f33 #050607",
    "white": "#ffffff #f1f3f5",
}
_OUTLINES: Final = {
    "blue": "#0b4a80 #4dabf7",
    "yellow": "#8a6500 #ffd43b",
    "red": "#8f1717 #ff8787",
    "black": "#000000 #adb5bd",
    "white": "#6c757d #f1f3f5",
}
_SIGNS: Final = {
    "blue": "#ffffff #0b2a45",
    "yellow": "#5c4400 #5c4400",
    "red": "#ffffff #4a0d0d",
    "black": "#ffffff #ffffff",
    "white": "#0b7285 #0b7285",
}
_HINTS: Final = {
    "blue": "#1c6fb880 #4dabf780",
    "yellow": "#8a650080 #ffd43b80",
    "red": "#cf2e2e80 #ff878780",
    "black": "#2b2f3380 #adb5bd80",
    "white": "#6c757d80 #f1f3f580",
}
_CLEAR: Final = "#ffffff00"
_BROKEN: Final = "#7a4a4a #d9a0a0"
SIDES: Final = (
    *("#0072b2 #56b4e9", "#c2410c #ffa94d"),
    *("#00785a #2fc99b", "#a0527d #e39fc3"),
)
"""Color of each player's board."""


@dataclass(frozen=True)
class TableLayout:
    """Where everything lies on a table for a number of players."""

    num_players: int

    @property
    def size(self) -> Place:
        columns = 1 if self.num_players == MIN_PLAYERS else 2
        width = self._boards_left + columns * (_BOARD[0] + _GAP) + _EDGE - _GAP
        return width, 2 * _EDGE + 2 * _BOARD[1] + _GAP

    @property
    def _columns(self) -> int:
        """Number of factories in a row."""
        return 3 if self.num_players == MAX_PLAYERS else 2

    @property
    def _boards_left(self) -> float:
        """Left edge of the boards."""
        return _EDGE + self._columns * _FACTORY + _GAP

    def factory(self, index: int) -> Place:
        """Center of a factory."""
        row, column = divmod(index, self._columns)
        return _EDGE + _FACTORY * (column + 0.5), _EDGE + _FACTORY * (row + 0.5)

    @property
    def centre(self) -> tuple[float, float, float, float]:
        """Left, top, width and height of the center."""
        rows = -(-num_factories(self.num_players) // self._columns)
        top = _EDGE + rows * _FACTORY + 0.1
        return _EDGE + 0.1, top, self._columns * _FACTORY - 0.2, self.size[1] - _EDGE - top

    def tiles(self, source: int, counts: Sequence[int]) -> Iterator[tuple[int, Place]]:
        """Color and place of each tile at a source, ordered by color."""
        colours = [colour for colour, count in enumerate(counts) for _ in range(count)]
        (x, y), columns, pitch = self.factory(source), 2, 0.9 * _PITCH
        if source == CENTRE:
            left, top, width, height = self.centre
            pitch = _PITCH
            while (columns := int((width - 0.4) / pitch)) * int((height - 1.4) / pitch) < len(
                colours
            ):
                pitch *= 0.9  # only with 3 players and more than 15 tiles in the center
            x, y = left + width / 2, top + 1.2 + pitch / 2
        for i, colour in enumerate(colours):
            row, column = divmod(i, columns)
            yield colour, (x + (column - (columns - 1) / 2) * pitch, y + (row - 0.5) * pitch)

    def board(self, player: int) -> Place:
        """Upper left corner of a player's board."""
        column, row = divmod(player, 2)
        return self._boards_left + column * (_BOARD[0] + _GAP), _EDGE + row * (_BOARD[1] + _GAP)

    def line(self, player: int, row: int, index: int) -> Place:
        """Center of a place in a pattern line, the first on the right."""
        left, top = self.board(player)
        return left + 4.4 - index * _PITCH, top + 1.35 + row * _PITCH

    def wall(self, player: int, row: int, column: int) -> Place:
        """Center of a cell of a wall."""
        left, top = self.board(player)
        return left + 5.5 + column * _PITCH, top + 1.35 + row * _PITCH

    def floor(self, player: int, slot: int) -> Place:
        """Center of a slot of a floor."""
        left, top = self.board(player)
        return left + 1.95 + slot * _PITCH, top + 5.5

    def destination(self, player: int, place: int, count: int) -> Place:
        """Where tiles would go: the next free place of a line or of the floor."""
        if place == FLOOR:
            return self.floor(player, min(count, FLOOR_SLOTS - 1))
        return self.line(player, place, min(count, place))


def layout_of(scene: Scene) -> TableLayout:
    """The layout whose size is the scene's."""
    counts = range(MIN_PLAYERS, MAX_PLAYERS + 1)
    return next(
        found for n in counts if (found := TableLayout(n)).size == (scene.width, scene.height)
    )


def draw_ground(scene: Scene) -> None:
    """All that never changes: factories, center, and empty boards."""
    layout = layout_of(scene)
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    for i in range(num_factories(layout.num_players)):
        x, y = layout.factory(i)
        scene.circle(x, y, _RADIUS, _DISH, stroke=_RIM, stroke_width=0.06)
        scene.text(x - 0.98, y - 0.9, i + 1, DIM, size=0.36)
    left, top, width, height = layout.centre
    scene.rect(left, top, width, height, _DISH, stroke=_RIM, stroke_width=0.06, radius=0.4)
    scene.text(left + 0.3, top + 0.45, "center", DIM, size=0.36, anchor="start")
    for player in range(layout.num_players):
        _draw_empty_board(layout, scene, player)


def _draw_empty_board(layout: TableLayout, scene: Scene, player: int) -> None:
    left, top = layout.board(player)
    scene.rect(left, top, *_BOARD, _FACE, stroke=SIDES[player], stroke_width=0.06, radius=0.2)
    x, y = layout.wall(player, 0, 0)
    scene.rect(x - _TILE / 2, y - _TILE / 2, *_WALL, _SLOT, radius=0.1, of=DECORATION)
    for row in range(NUM_LINES):
        for i in range(row + 1):
            _draw_slot(scene, *layout.line(player, row, i))
        x, y = layout.line(player, row, row)
        scene.text(x - 0.58, y, row + 1, DIM, size=0.36)
        for colour in range(NUM_LINES):
            x, y = layout.wall(player, row, column_of(row, colour))
            name = COLOURS[colour]
            _draw_sign(scene, x, y, name, _TILE, _HINTS[name], DECORATION)
    scene.text(left + 0.3, layout.floor(player, 0)[1], "floor", DIM, size=0.36, anchor="start")
    for slot in range(FLOOR_SLOTS):
        x, y = layout.floor(player, slot)
        _draw_slot(scene, x, y)
        cost = FLOOR_COSTS[slot] - FLOOR_COSTS[slot + 1]
        scene.text(x, y + 0.62, cost, DIM, size=0.32)


def _draw_slot(scene: Scene, x: float, y: float) -> None:
    corner = x - _TILE / 2, y - _TILE / 2
    scene.rect(*corner, _TILE, _TILE, _SLOT, radius=0.1, of=DECORATION)


def draw_clear(scene: Scene, first: Place, last: Place, of: SeenEntity) -> None:
    """An invisible shape for the pointer, over a row of tiles and the label on its left."""
    left, top = first[0] - 1.5 * _TILE, first[1] - _TILE / 2
    scene.rect(left, top, last[0] + _TILE / 2 - left, _TILE, _CLEAR, of=of)


def draw_tile(
    scene: Scene, x: float, y: float, colour: str, of: SeenEntity | None = None, side: float = _TILE
) -> None:
    """A tile with the sign of its color."""
    half = side / 2
    outline = _OUTLINES[colour]
    scene.rect(x - half, y - half, side, side, _FILLS[colour], stroke=outline, radius=0.1, of=of)
    _draw_sign(scene, x, y, colour, side, _SIGNS[colour])


def samples() -> dict[str, Scene]:
    """Every color of tiles, a tile on a floor, and the start marker."""
    found = {name: Scene(1, 1) for name in (*COLOURS, "on a floor", "start marker")}
    for colour in COLOURS:
        draw_tile(found[colour], 0.5, 0.5, colour)
    draw_broken(found["on a floor"], 0.5, 0.5)
    draw_marker(found["start marker"], 0.5, 0.5)
    return found


def draw_broken(scene: Scene, x: float, y: float) -> None:
    """A tile of unknown color on a floor."""
    half = _TILE / 2
    scene.rect(x - half, y - half, _TILE, _TILE, _BROKEN, radius=0.1)
    for side in (-1, 1):
        scene.line([(x - 0.2, y - side * 0.2), (x + 0.2, y + side * 0.2)], _FACE, width=0.08)


def draw_marker(scene: Scene, x: float, y: float, of: SeenEntity | None = None) -> None:
    """The start marker."""
    scene.circle(x, y, 0.34, _FACE, stroke=INK, stroke_width=0.06, of=of)
    scene.text(x, y, "1", INK, size=0.44)


def _draw_sign(
    scene: Scene,
    x: float,
    y: float,
    colour: str,
    side: float,
    fill: str,
    of: int = -1,
) -> None:
    """A circle, diamond, triangle, square or cross."""
    r = 0.24 * side
    if colour == "blue":
        scene.circle(x, y, r, fill, of=of)
    elif colour == "yellow":
        d = 1.25 * r
        scene.polygon([(x, y - d), (x + d, y), (x, y + d), (x - d, y)], fill, of=of)
    elif colour == "red":
        scene.polygon([(x, y - 1.2 * r), (x + 1.2 * r, y + r), (x - 1.2 * r, y + r)], fill, of=of)
    elif colour == "black":
        scene.rect(x - r, y - r, 2 * r, 2 * r, stroke=fill, stroke_width=0.14 * side, of=of)
    else:
        d = 0.95 * r
        ends = [(x - d, y - d), (x + d, y + d), (x, y), (x - d, y + d), (x + d, y - d)]
        scene.line(ends, fill, width=0.13 * side, of=of)
