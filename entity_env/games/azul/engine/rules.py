"""Numbers of the base game with the colored wall, and the codes used in this package.

| code | values |
| --- | --- |
| color | 0 to 4: blue, yellow, red, black, white |
| source | 0 to 8: a factory; 9: the center |
| destination | 0 to 4: a pattern line, with one more place than its number; 5: the floor |
| cell of a wall | bit `5 * row + column`; its color is `(column - row) % 5` |
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
"""Points lost by number of taken slots: the slots cost 1, 1, 2, 2, 2, 3 and 3."""

ROW_BONUS: Final = 2
COLUMN_BONUS: Final = 7
COLOUR_BONUS: Final = 10

MARKER: Final = 5
"""Start marker on a floor, as a color code."""
NOBODY: Final = -1
"""Holder of the start marker while it is in the center."""
NO_COLOUR: Final = -1
"""Color of an empty pattern line."""

ROWS: Final = tuple(0b11111 << 5 * row for row in range(5))
"""Cells of each row of a wall."""
COLUMNS: Final = tuple(0b00001_00001_00001_00001_00001 << column for column in range(5))
"""Cells of each column of a wall."""
COLOUR_CELLS: Final = tuple(
    sum(1 << 5 * row + (colour + row) % 5 for row in range(5)) for colour in range(5)
)
"""Cells of each color of a wall."""


def num_factories(num_players: int) -> int:
    """Number of factories: 5, 7 or 9."""
    return 2 * num_players + 1


def num_dealt(num_players: int) -> int:
    """Number of tiles in a full deal."""
    return TILES_PER_FACTORY * num_factories(num_players)


def column_of(row: int, colour: int) -> int:
    """Column of a color in a row of the wall."""
    return (colour + row) % 5
