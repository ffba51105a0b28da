"""What tiles on a wall and on a floor are worth."""

from __future__ import annotations

from entity_env.games.azul.engine.rules import (
    COLOUR_BONUS,
    COLOUR_CELLS,
    COLUMN_BONUS,
    COLUMNS,
    FLOOR_COSTS,
    ROW_BONUS,
    ROWS,
)


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
    """The score after a tiling, never below 0.

    Args:
        score: before.
        gain: points for the tiles placed.
        floor_length: slots of the floor that are taken, the marker's included; 0 to 7.
    """
    return max(0, score + gain - FLOOR_COSTS[floor_length])
