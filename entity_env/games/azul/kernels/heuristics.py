"""Heuristic values of moves and boards, for agents and for search, in hundredths of a point.

A move is worth its tiles on a line minus the floor cost. Tiles that complete a line have the full
value of the line, other tiles half of their share of it. A line has two values:

- greedy: the points that it adds to the next tiling, plus its share of the row, column and color
  bonuses: the k-th tile of five counts `(2 k - 1) / 25` of the bonus.
- rush: 6 points for the top line, one less for each line below. This soon fills a row, which ends
  the game.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
    COLUMNS,
    FLOOR,
    FLOOR_SLOTS,
    NOBODY,
    ROWS,
)
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    colour_fields,
    fits_of,
    placement_points_packed,
    seat,
)
from entity_env.games.azul.kernels.kernel import bits_of, kernel, new_ints
from entity_env.games.azul.kernels.packed_state import FIELD, PackedState

POINT: Final = 100
"""Value of one point."""
SHARE: Final = POINT // 25
RUSH_TOP: Final = 600
RUSH_STEP: Final = 100

GREEDY, RUSH = 0, 1
"""Kinds of line values; see the module docstring."""

_COSTS: Final = tuple(POINT * cost for cost in rules.FLOOR_COSTS)

Worths: TypeAlias = list[int]
"""Values of complete lines by `6 * colour + row`; length 30."""


@kernel(inline=True)
def pending_points_packed(words: PackedState, me: int, row: int, colour: int) -> int:
    """Points of the tiles that a player would place if the round ended now, ignoring the floor.

    If `row` is below 5, that line counts as full of `colour`.
    """
    points = 0
    lines, wall = words[me + at.LINES], words[me + at.WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if i == row or line & 7 == i + 1:
            column = (colour if i == row else line >> 3) + i
            column -= 5 * (column >= 5)
            points += placement_points_packed(wall, i, column)
            wall |= 1 << 5 * i + column
    return points


@kernel(inline=True)
def pending_wall_packed(words: PackedState, me: int) -> int:
    """The wall if the round ended now."""
    lines, wall = words[me + at.LINES], words[me + at.WALL]
    for i in range(5):
        line = lines >> 6 * i & FIELD
        if line & 7 == i + 1:
            column = (line >> 3) + i
            wall |= 1 << 5 * i + column - 5 * (column >= 5)
    return int(wall)


@kernel(inline=True)
def greedy_worth_packed(
    words: PackedState, me: int, row: int, colour: int, before: int, wall: int
) -> int:
    """Greedy value of a line, given the pending points and wall."""
    column = colour + row - 5 * (colour + row >= 5)
    share = rules.ROW_BONUS * (2 * bits_of(wall & ROWS[row]) + 1)
    share += rules.COLUMN_BONUS * (2 * bits_of(wall & COLUMNS[column]) + 1)
    share += rules.COLOUR_BONUS * (2 * bits_of(wall & COLOUR_CELLS[colour]) + 1)
    return POINT * (pending_points_packed(words, me, row, colour) - before) + SHARE * share


@kernel(inline=True)
def write_worths(words: PackedState, idea: int, worths: Worths) -> None:
    """Writes the values of lines open to the current player."""
    me = seat(words[at.CURRENT])
    before, wall = pending_points_packed(words, me, 5, 0), pending_wall_packed(words, me)
    fits = words[me + at.FITS]
    for colour in range(5):
        for row in range(5):
            choice = 6 * colour + row
            if fits >> choice & 1:
                if idea == RUSH:
                    worths[choice] = RUSH_TOP - RUSH_STEP * row
                else:
                    worths[choice] = greedy_worth_packed(words, me, row, colour, before, wall)


@kernel(inline=True)
def move_value(words: PackedState, source: int, choice: int, worths: Worths) -> int:
    """Value of a legal move; `choice` is `6 * colour + destination`."""
    me = seat(words[at.CURRENT])
    colour = choice // 6
    row = choice - 6 * colour
    count = words[at.SOURCES + source] >> 6 * colour & FIELD
    held = words[me + at.FLOOR_LENGTH]
    length = held + int(source == CENTRE and words[at.HOLDER] == NOBODY)
    value = 0
    if row != FLOOR:
        room = row + 1 - (words[me + at.LINES] >> 6 * row & 7)
        placed = min(count, room)
        count -= placed
        full = worths[choice]
        value = full if placed == room else full * placed // (2 * row + 2)
    cost: int = _COSTS[min(FLOOR_SLOTS, length + count)] - _COSTS[held]
    return value - cost


@kernel(inline=True)
def best_move(words: PackedState, idea: int, worths: Worths) -> tuple[int, int]:
    """Source and choice of the legal move with the highest value, the first of equals."""
    write_worths(words, idea, worths)
    fits = fits_of(words)
    best, best_source, best_choice = -(2**62), 0, 0
    for source in range(10):
        moves = fits & colour_fields(words[at.SOURCES + source])
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            value = move_value(words, source, choice, worths)
            if value > best:
                best, best_source, best_choice = value, source, choice
    return best_source, best_choice


# Not inlined: code with several of these calls would take minutes to compile.


@kernel()
def pending_points_call(words: PackedState, me: int, row: int, colour: int) -> int:
    """`pending_points_packed` as a call."""
    return pending_points_packed(words, me, row, colour)


@kernel()
def pending_wall_call(words: PackedState, me: int) -> int:
    """`pending_wall_packed` as a call."""
    return pending_wall_packed(words, me)


@kernel()
def potential_packed(words: PackedState, player: int) -> int:
    """Value of a board: score, pending points minus the floor cost, shares of the final bonuses and
    of started lines."""
    me = seat(player)
    before, wall = pending_points_call(words, me, 5, 0), pending_wall_call(words, me)
    value = POINT * (words[me + at.SCORE] + before) - _COSTS[words[me + at.FLOOR_LENGTH]]
    for i in range(5):
        share = rules.ROW_BONUS * bits_of(wall & ROWS[i]) ** 2
        share += rules.COLUMN_BONUS * bits_of(wall & COLUMNS[i]) ** 2
        share += rules.COLOUR_BONUS * bits_of(wall & COLOUR_CELLS[i]) ** 2
        value += SHARE * share
        line = words[me + at.LINES] >> 6 * i & FIELD
        count = line & 7
        if 0 < count <= i:
            worth = greedy_worth_packed(words, me, i, line >> 3, before, wall)
            value += worth * count // (2 * i + 2)
    return int(value)


@kernel()
def best_action_id(words: PackedState, idea: int) -> int:
    """Id of the best move."""
    source, choice = best_move(words, idea, new_ints(30))
    return 30 * source + choice
