"""What moves and positions look worth, compiled; `heuristics` is the reference and explains."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import CENTRE, FLOOR, FLOOR_SLOTS, NOBODY
from entity_env.games.azul.kernels.engine import bits_of, fits_of, placement_points, seat, spread
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    FIELD,
    FITS,
    FLOOR_LENGTH,
    HOLDER,
    LINES,
    NUM_PLAYERS,
    SCORE,
    SOURCES,
    WALL,
    Words,
)
from entity_env.games.azul.players.heuristics import POINT, RUSH_STEP, RUSH_TOP, SHARE

GREEDY, RUSH = 0, 1
"""What a line may be worth."""

_COSTS: Final = POINT * np.array(rules.FLOOR_COSTS)
_ROWS: Final = np.array(rules.ROWS)
_COLUMNS: Final = np.array(rules.COLUMNS)
_COLOURS: Final = np.array(rules.COLOUR_CELLS)

Worths = NDArray[np.int64]
"""`(30,)` int64: what a line is worth when complete, by `6 * colour + row`."""


@compiled(inline=True)
def pending_points(words: Words, me: int, row: int, colour: int) -> int:
    """`heuristics.pending_points`; row 5 for no line more."""
    points = 0
    lines, wall = words[me + LINES], words[me + WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if i == row or line & 7 == i + 1:
            column = (colour if i == row else line >> 3) + i
            column -= 5 * (column >= 5)
            points += placement_points(wall, i, column)
            wall |= 1 << 5 * i + column
    return points


@compiled(inline=True)
def pending_wall(words: Words, me: int) -> int:
    """`heuristics.pending_wall`."""
    lines, wall = words[me + LINES], words[me + WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if line & 7 == i + 1:
            column = (line >> 3) + i
            wall |= 1 << 5 * i + column - 5 * (column >= 5)
    return int(wall)


@compiled(inline=True)
def greedy_worth(words: Words, me: int, row: int, colour: int, before: int, wall: int) -> int:
    """`heuristics.greedy_worth`, given the points and the wall that are pending anyway."""
    column = colour + row - 5 * (colour + row >= 5)
    share = rules.ROW_BONUS * (2 * bits_of(wall & _ROWS[row]) + 1)
    share += rules.COLUMN_BONUS * (2 * bits_of(wall & _COLUMNS[column]) + 1)
    share += rules.COLOUR_BONUS * (2 * bits_of(wall & _COLOURS[colour]) + 1)
    return POINT * (pending_points(words, me, row, colour) - before) + SHARE * share


@compiled(inline=True)
def write_worths(words: Words, idea: int, worths: Worths) -> None:
    """What lines are worth to the player whose turn it is, where tiles fit."""
    me = seat(words[CURRENT])
    before, wall = pending_points(words, me, 5, 0), pending_wall(words, me)
    fits = words[me + FITS]
    for colour in range(5):
        for row in range(5):
            at = 6 * colour + row
            if fits >> at & 1:
                if idea == RUSH:
                    worths[at] = RUSH_TOP - RUSH_STEP * row
                else:
                    worths[at] = greedy_worth(words, me, row, colour, before, wall)


@compiled(inline=True)
def move_value(words: Words, source: int, choice: int, worths: Worths) -> int:
    """What a legal move is worth; `choice` is `6 * colour + destination`."""
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
def best_move(words: Words, idea: int, worths: Worths) -> tuple[int, int]:
    """The legal move that is worth most, of equals the first: source and choice."""
    write_worths(words, idea, worths)
    fits = fits_of(words)
    best, best_source, best_choice = -(2**62), 0, 0
    for source in range(10):
        moves = fits & spread(words[SOURCES + source])
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            value = move_value(words, source, choice, worths)
            if value > best:
                best, best_source, best_choice = value, source, choice
    return best_source, best_choice


@compiled(inline=True)
def position_value(words: Words, player: int) -> int:
    """What a board is worth between two rounds."""
    me = seat(player)
    wall, lines = words[me + WALL], words[me + LINES]
    total = 0
    for i in range(5):
        total += rules.ROW_BONUS * bits_of(wall & _ROWS[i]) ** 2
        total += rules.COLUMN_BONUS * bits_of(wall & _COLUMNS[i]) ** 2
        total += rules.COLOUR_BONUS * bits_of(wall & _COLOURS[i]) ** 2
    value: int = POINT * words[me + SCORE] + SHARE * total
    if lines:
        before, pending = pending_points(words, me, 5, 0), pending_wall(words, me)
        for row in range(5):
            line = lines >> 6 * row & FIELD
            if line:
                worth = greedy_worth(words, me, row, line >> 3, before, pending)
                value += worth * (line & 7) // (2 * row + 2)
    return value


@compiled()
def choose(words: Words, idea: int) -> int:
    """The id of the best move."""
    source, choice = best_move(words, idea, np.zeros(30, np.int64))
    return 30 * source + choice


@compiled()
def position_values(words: Words) -> NDArray[np.int64]:
    """`position_value` of every player."""
    values = np.zeros(words[NUM_PLAYERS], np.int64)
    for player in range(len(values)):
        values[player] = position_value(words, player)
    return values
