"""Scores of tiles on a wall and on a floor."""

from hypothesis import given, strategies as st

from entity_env.games.azul.engine.rules import column_of
from entity_env.games.azul.kernels.engine import (
    bonus_points_packed,
    placement_points_packed,
    rows_of,
    tile_walls_packed,
)
from tests.games.azul.recorded_games import board, position, tables

WALLS = st.integers(0, 2**25 - 1)
FIVE = st.integers(0, 4)


def test_placements_are_the_recorded_ones() -> None:
    for wall, row, column, points in tables()["placement"]:
        assert placement_points_packed(wall, row, column) == points


def test_bonuses_are_the_recorded_ones() -> None:
    for wall, *counts, points in tables()["bonus"]:
        assert bonus_points_packed(wall) == points
        assert rows_of(wall) == counts[0]


def test_floors_are_the_recorded_ones() -> None:
    """Floors without a gain, and with the gain of a single tile on the wall."""
    for score, gain, floor_length, after in tables()["floor"]:
        if gain < 2:
            assert tiled(score, gain, floor_length) == after


def tiled(score: int, gain: int, floor_length: int) -> int:
    """The score after a tiling."""
    mine = board(score=score, lines=[(0, gain)], floor=[4] * floor_length)
    state = position([mine, board()])
    tile_walls_packed(state.words)
    return state.scores[0]


def test_the_wall_is_the_recorded_one() -> None:
    layout = tables()["wall_layout"]
    for row in range(5):
        for colour in range(5):
            assert layout[row][column_of(row, colour)] == colour


def test_points_are_clamped_once() -> None:
    assert tiled(0, 1, 7) == 0, "the floor takes the points of the same tiling"
    assert tiled(1, 1, 2) == 0
    assert tiled(2, 1, 2) == 1


@given(wall=WALLS, row=FIVE, column=FIVE)
def test_points_of_a_row_and_of_a_column_add_up(wall: int, row: int, column: int) -> None:
    """A tile scores the sum of its score with only its row and with only its column."""
    only_row = wall & 0b11111 << 5 * row
    only_column = wall & 0b00001_00001_00001_00001_00001 << column
    across = placement_points_packed(only_row, row, column)
    down = placement_points_packed(only_column, row, column)
    alone = (across == 1) + (down == 1)
    assert placement_points_packed(wall, row, column) == max(1, across + down - alone)


@given(wall=WALLS, row=FIVE, column=FIVE)
def test_points_know_no_direction(wall: int, row: int, column: int) -> None:
    def turned(cells: int) -> int:
        return sum(1 << 5 * (i % 5) + i // 5 for i in range(25) if cells >> i & 1)

    assert placement_points_packed(wall, row, column) == placement_points_packed(
        turned(wall), column, row
    )


@given(wall=WALLS)
def test_bonuses_count_what_is_complete(wall: int) -> None:
    cells = {divmod(i, 5) for i in range(25) if wall >> i & 1}
    rows = sum(all((row, column) in cells for column in range(5)) for row in range(5))
    columns = sum(all((row, column) in cells for row in range(5)) for column in range(5))
    colours = sum(
        all((row, (colour + row) % 5) in cells for row in range(5)) for colour in range(5)
    )
    assert rows_of(wall) == rows
    assert bonus_points_packed(wall) == 2 * rows + 7 * columns + 10 * colours


def test_a_full_wall_has_every_bonus() -> None:
    assert bonus_points_packed(2**25 - 1) == 5 * 2 + 5 * 7 + 5 * 10
