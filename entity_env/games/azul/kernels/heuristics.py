"""Values of moves and boards, compiled; see `players.heuristics`, the reference."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import CENTRE, FLOOR, FLOOR_SLOTS, NOBODY
from entity_env.games.azul.kernels.engine import (
    bits_of,
    colour_fields,
    fits_of,
    placement_points_packed,
    seat,
)
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    FIELD,
    FITS,
    FLOOR_LENGTH,
    HOLDER,
    LINES,
    SCORE,
    SOURCES,
    WALL,
    PackedState,
)
from entity_env.games.azul.players.heuristics import POINT, RUSH_STEP, RUSH_TOP, SHARE

GREEDY, RUSH = 0, 1
"""Values of a line, see `players.heuristics`."""

_COSTS: Final = POINT * np.array(rules.FLOOR_COSTS)
_ROWS: Final = np.array(rules.ROWS)
_COLUMNS: Final = np.array(rules.COLUMNS)
_COLOURS: Final = np.array(rules.COLOUR_CELLS)

Worths = NDArray[np.int64]
"""`(30,)` int64: the value of a complete line, by `6 * colour + row`."""


@compiled(inline=True)
def pending_points_packed(words: PackedState, me: int, row: int, colour: int) -> int:
    """`heuristics.pending_points`; row 5 for no line more."""
    points = 0
    lines, wall = words[me + LINES], words[me + WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if i == row or line & 7 == i + 1:
            column = (colour if i == row else line >> 3) + i
            column -= 5 * (column >= 5)
            points += placement_points_packed(wall, i, column)
            wall |= 1 << 5 * i + column
    return points


@compiled(inline=True)
def pending_wall_packed(words: PackedState, me: int) -> int:
    """`heuristics.pending_wall`."""
    lines, wall = words[me + LINES], words[me + WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if line & 7 == i + 1:
            column = (line >> 3) + i
            wall |= 1 << 5 * i + column - 5 * (column >= 5)
    return int(wall)


@compiled(inline=True)
def greedy_worth_packed(
    words: PackedState, me: int, row: int, colour: int, before: int, wall: int
) -> int:
    """`heuristics.greedy_worth`, given the pending points and wall."""
    column = colour + row - 5 * (colour + row >= 5)
    share = rules.ROW_BONUS * (2 * bits_of(wall & _ROWS[row]) + 1)
    share += rules.COLUMN_BONUS * (2 * bits_of(wall & _COLUMNS[column]) + 1)
    share += rules.COLOUR_BONUS * (2 * bits_of(wall & _COLOURS[colour]) + 1)
    return POINT * (pending_points_packed(words, me, row, colour) - before) + SHARE * share


@compiled(inline=True)
def write_worths(words: PackedState, idea: int, worths: Worths) -> None:
    """Values of lines for the current player, where tiles fit."""
    me = seat(words[CURRENT])
    before, wall = pending_points_packed(words, me, 5, 0), pending_wall_packed(words, me)
    fits = words[me + FITS]
    for colour in range(5):
        for row in range(5):
            at = 6 * colour + row
            if fits >> at & 1:
                if idea == RUSH:
                    worths[at] = RUSH_TOP - RUSH_STEP * row
                else:
                    worths[at] = greedy_worth_packed(words, me, row, colour, before, wall)


@compiled(inline=True)
def move_value(words: PackedState, source: int, choice: int, worths: Worths) -> int:
    """The value of a legal move; `choice` is `6 * colour + destination`."""
    me = seat(words[CURRENT])
    colour = choice // 6
    row = choice - 6 * colour
    count = words[SOURCES + source] >> 6 * colour & FIELD
    held = words[me + FLOOR_LENGTH]
    length = held + int(source == CENTRE and words[HOLDER] == NOBODY)
    value = 0
    if row != FLOOR:
        room = row + 1 - (words[me + LINES] >> 6 * row & 7)
        placed = min(count, room)
        count -= placed
        full = worths[choice]
        value = full if placed == room else full * placed // (2 * row + 2)
    cost: int = _COSTS[min(FLOOR_SLOTS, length + count)] - _COSTS[held]
    return value - cost


@compiled(inline=True)
def best_move(words: PackedState, idea: int, worths: Worths) -> tuple[int, int]:
    """The legal move of the highest value, of equals the first: source and choice."""
    write_worths(words, idea, worths)
    fits = fits_of(words)
    best, best_source, best_choice = -(2**62), 0, 0
    for source in range(10):
        moves = fits & colour_fields(words[SOURCES + source])
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            value = move_value(words, source, choice, worths)
            if value > best:
                best, best_source, best_choice = value, source, choice
    return best_source, best_choice


# Not inline: code that calls these in several places would take minutes to compile.


@compiled()
def pending_points_call(words: PackedState, me: int, row: int, colour: int) -> int:
    """`pending_points_packed` as a call."""
    return pending_points_packed(words, me, row, colour)


@compiled()
def pending_wall_call(words: PackedState, me: int) -> int:
    """`pending_wall_packed` as a call."""
    return pending_wall_packed(words, me)


@compiled()
def potential_packed(words: PackedState, player: int) -> int:
    """`heuristics.potential`."""
    me = seat(player)
    before, wall = pending_points_call(words, me, 5, 0), pending_wall_call(words, me)
    value = POINT * (words[me + SCORE] + before) - _COSTS[words[me + FLOOR_LENGTH]]
    for i in range(5):
        share = rules.ROW_BONUS * bits_of(wall & _ROWS[i]) ** 2
        share += rules.COLUMN_BONUS * bits_of(wall & _COLUMNS[i]) ** 2
        share += rules.COLOUR_BONUS * bits_of(wall & _COLOURS[i]) ** 2
        value += SHARE * share
        line = words[me + LINES] >> 6 * i & FIELD
        count = line & 7
        if 0 < count <= i:
            worth = greedy_worth_packed(words, me, i, line >> 3, before, wall)
            value += worth * count // (2 * i + 2)
    return int(value)


@compiled()
def best_action_id(words: PackedState, idea: int) -> int:
    """The id of the best move."""
    source, choice = best_move(words, idea, np.zeros(30, np.int64))
    return 30 * source + choice
