"""Heuristic values of moves and boards, for agents and for search.

The unit is a hundredth of a point, so that everything is an integer and the compiled twin,
`kernels.heuristics`, computes the same numbers.

The value of a move is that of its tiles on a line, less the cost of the floor. Tiles that complete
a line have the value of the line, others half of their share of it. Two values of a line:

greedy: the points that it adds to the next tiling, and its share of rows, columns and colours: the
    k-th tile of five counts `(2 k - 1) / 25` of the bonus.
rush: 6 points for the uppermost, one less for each below: the game ends when a row is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, TypeAlias

from entity_env.games.azul.engine.actions import Action
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_BONUS,
    COLOUR_CELLS,
    COLUMN_BONUS,
    COLUMNS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    NOBODY,
    NUM_LINES,
    ROW_BONUS,
    ROWS,
    column_of,
    placement_points,
)
from entity_env.games.azul.engine.state import GameState, Player

POINT: Final = 100
"""One point, in the unit of values."""
SHARE: Final = POINT // 25
RUSH_TOP: Final = 600
RUSH_STEP: Final = 100

Worth: TypeAlias = Callable[[Player, int, int], int]
"""The value of a complete line: player, row and colour to hundredths."""


def pending_points(player: Player, row: int = NUM_LINES, colour: int = 0) -> int:
    """Points for the tiles that a player would place if the round ended now, without the floor.

    A line `row` of this colour counts as complete, too, if `row` is below 5.
    """
    points, wall = 0, player.wall
    for i in range(NUM_LINES):
        if i == row or player.line_counts[i] == i + 1:
            column = column_of(i, colour if i == row else player.line_colours[i])
            points += placement_points(wall, i, column)
            wall |= 1 << 5 * i + column
    return points


def greedy_worth(player: Player, row: int, colour: int) -> int:
    """The greedy value of a line, see the module."""
    column, wall = column_of(row, colour), pending_wall(player)
    share = ROW_BONUS * _next_share(wall & ROWS[row])
    share += COLUMN_BONUS * _next_share(wall & COLUMNS[column])
    share += COLOUR_BONUS * _next_share(wall & COLOUR_CELLS[colour])
    points = pending_points(player, row, colour) - pending_points(player)
    return POINT * points + SHARE * share


def rush_worth(player: Player, row: int, colour: int) -> int:
    """The rush value of a line, see the module."""
    return RUSH_TOP - RUSH_STEP * row


def pending_wall(player: Player) -> int:
    """The wall as it would be if the round ended now."""
    wall = player.wall
    for row in range(NUM_LINES):
        if player.line_counts[row] == row + 1:
            wall |= 1 << 5 * row + column_of(row, player.line_colours[row])
    return wall


def _next_share(cells: int) -> int:
    """`2 k - 1`, when the next tile is the k-th of five."""
    return 2 * cells.bit_count() + 1


class BoardValues:
    """Values of lines and moves for one board, each computed once; the board must not change."""

    def __init__(self, player: Player, worth: Worth) -> None:
        self.player = player
        self.worth: Callable[[int, int], int] = cache(lambda row, c: worth(player, row, c))

    def move_value(self, colour: int, count: int, takes_marker: bool, row: int) -> int:
        """The value of a move to a row, in hundredths of a point."""
        value = 0
        if row != FLOOR:
            room = row + 1 - self.player.line_counts[row]
            placed = min(count, room)
            count -= placed
            full = self.worth(row, colour)
            value = full if placed == room else full * placed // (2 * row + 2)
        return value - POINT * self.floor_cost(takes_marker + count)

    def floor_cost(self, count: int) -> int:
        """Points that so many more on the floor cost."""
        length = len(self.player.floor)
        return FLOOR_COSTS[min(FLOOR_SLOTS, length + count)] - FLOOR_COSTS[length]


def move_values(state: GameState, actions: Sequence[Action], worth: Worth) -> list[int]:
    """Values of legal actions of the current player."""
    board = BoardValues(state.players[state.current_player], worth)
    values = []
    for source, colour, row in actions:
        count = (state.centre if source == CENTRE else state.factories[source])[colour]
        takes_marker = source == CENTRE and state.marker == NOBODY
        values.append(board.move_value(colour, count, takes_marker, row))
    return values


def best_action(state: GameState, actions: Sequence[Action], worth: Worth) -> Action:
    """The legal action of the highest value; of equals the first."""
    values = move_values(state, actions, worth)
    return actions[values.index(max(values))]


def potential(player: Player) -> int:
    """The value of a board: score, pending points less the floor, shares of the final bonuses and
    of started lines."""
    wall = pending_wall(player)
    points = player.score + pending_points(player) - FLOOR_COSTS[len(player.floor)]
    value = POINT * points
    for bonus, groups in (
        (ROW_BONUS, ROWS),
        (COLUMN_BONUS, COLUMNS),
        (COLOUR_BONUS, COLOUR_CELLS),
    ):
        value += SHARE * bonus * sum((wall & cells).bit_count() ** 2 for cells in groups)
    for row, count in enumerate(player.line_counts):
        if 0 < count <= row:
            value += greedy_worth(player, row, player.line_colours[row]) * count // (2 * row + 2)
    return value


def leader_margins(values: Sequence[int]) -> list[int]:
    """Each value less the highest of the others."""
    return [
        value - max(other for j, other in enumerate(values) if j != i)
        for i, value in enumerate(values)
    ]
