"""The numbers of the base game with the coloured wall, and the codes that everything here speaks.

| code | values |
| --- | --- |
| colour | 0 to 4: blue, yellow, red, black, white |
| source | 0 to 8: a factory; 9: the centre |
| destination | 0 to 4: a pattern line, of that many places and one more; 5: the floor |
| cell of a wall | bit `5 * row + column`; its colour is `(column - row) % 5` |
"""

from __future__ import annotations

from typing import Final

MIN_PLAYERS: Final = 2
MAX_PLAYERS: Final = 4

COLOURS: Final = ("blue", "yellow", "red", "black", "white")
NUM_COLOURS: Final = 5
TILES_PER_COLOUR: Final = 20
NUM_TILES: Final = NUM_COLOURS * TILES_PER_COLOUR

MAX_FACTORIES: Final = 9
TILES_PER_FACTORY: Final = 4
CENTRE: Final = 9
NUM_SOURCES: Final = 10

NUM_LINES: Final = 5
FLOOR: Final = 5
NUM_DESTINATIONS: Final = 6

FLOOR_SLOTS: Final = 7
FLOOR_COSTS: Final = (0, 1, 2, 4, 6, 8, 11, 14)
"""What a floor with so many slots taken costs: the slots cost 1, 1, 2, 2, 2, 3 and 3."""

ROW_BONUS: Final = 2
COLUMN_BONUS: Final = 7
COLOUR_BONUS: Final = 10

MARKER: Final = 5
"""The start marker where it lies on a floor, among colours."""
NOBODY: Final = -1
"""Who holds the start marker while it lies in the centre."""
NO_COLOUR: Final = -1
"""The colour of an empty pattern line."""

ROWS: Final = tuple(0b11111 << 5 * row for row in range(5))
"""Cells of each row of a wall."""
COLUMNS: Final = tuple(0b00001_00001_00001_00001_00001 << column for column in range(5))
"""Cells of each column of a wall."""
COLOUR_CELLS: Final = tuple(
    sum(1 << 5 * row + (colour + row) % 5 for row in range(5)) for colour in range(5)
)
"""Cells of each colour of a wall."""


def num_factories(num_players: int) -> int:
    """How many factories are dealt: 5, 7 or 9."""
    return 2 * num_players + 1


def column_of(row: int, colour: int) -> int:
    """The column where a row of the wall has a colour."""
    return (colour + row) % 5


def placement_points(wall: int, row: int, column: int) -> int:
    """Points for a tile, by the wall before it is placed.

    The lengths of the two runs that it becomes part of, each only if longer than 1; or else 1.
    """
    across = 1 + _reach(wall, row, column, 0, 1) + _reach(wall, row, column, 0, -1)
    down = 1 + _reach(wall, row, column, 1, 0) + _reach(wall, row, column, -1, 0)
    points = (across if across > 1 else 0) + (down if down > 1 else 0)
    return points or 1


def _reach(wall: int, row: int, column: int, down: int, right: int) -> int:
    """How many tiles follow one another in a direction."""
    count = 0
    row, column = row + down, column + right
    while 0 <= row < 5 and 0 <= column < 5 and wall >> 5 * row + column & 1:
        count += 1
        row, column = row + down, column + right
    return count


def full_rows(wall: int) -> int:
    """How many rows of a wall are full."""
    return sum(wall & cells == cells for cells in ROWS)


def bonus_counts(wall: int) -> tuple[int, int, int]:
    """How many rows, columns and colours of a wall are complete."""
    columns = sum(wall & cells == cells for cells in COLUMNS)
    colours = sum(wall & cells == cells for cells in COLOUR_CELLS)
    return full_rows(wall), columns, colours


def bonus_points(wall: int) -> int:
    """Points at the end of the game: 2 a full row, 7 a full column, 10 a complete colour."""
    rows, columns, colours = bonus_counts(wall)
    return ROW_BONUS * rows + COLUMN_BONUS * columns + COLOUR_BONUS * colours


def score_after(score: int, gain: int, floor_length: int) -> int:
    """The score after a tiling, never below 0."""
    return max(0, score + gain - FLOOR_COSTS[floor_length])
