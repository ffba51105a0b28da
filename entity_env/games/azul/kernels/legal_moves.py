"""Features of legal moves, compiled; `games.azul.legal_moves` is the reference."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import CENTRE, FLOOR, FLOOR_SLOTS, NOBODY
from entity_env.games.azul.kernels.engine import bits_of, colour_fields, fits_of, seat
from entity_env.games.azul.kernels.heuristics import (
    GREEDY,
    Worths,
    move_value,
    pending_points_call,
    pending_wall_call,
    write_worths,
)
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    FIELD,
    FLOOR_LENGTH,
    HOLDER,
    LINES,
    NUM_PLAYERS,
    NUM_WORDS,
    SOURCES,
    PackedState,
)
from entity_env.games.azul.players.heuristics import POINT

Rows = NDArray[np.float32]

_SOURCE, _COLOUR, _COUNT, _DESTINATION, _TO_FLOOR, _PLACED, _OVERFLOW = 0, 1, 6, 7, 8, 9, 10
_TAKES_MARKER, _COMPLETES, _POINTS, _COST, _LINE, _LEFT, _IS_FRESH = 11, 12, 13, 14, 15, 20, 21
_ROW_TILES, _COLUMN_TILES, _COLOUR_TILES, _FILLS_ROW, _WORTH, _VALUE = 22, 23, 24, 25, 26, 27
_ENDS_ROUND, _REST, _ELSEWHERE, _EXACT, _ENOUGH, _AGAIN, _REPLY = 28, 29, 30, 31, 32, 33, 34
"""Columns of the features, the first one of colours and of lines."""

_COSTS: Final = np.array(rules.FLOOR_COSTS)
_ROWS: Final = np.array(rules.ROWS)
_COLUMNS: Final = np.array(rules.COLUMNS)
_COLOURS: Final = np.array(rules.COLOUR_CELLS)
_NOTHING: Final = -(2**62)


class Scratch(NamedTuple):
    """Working memory.

    Args:
        words: `(48,)`, the position after a move.
        mine, theirs: `(30,)`, values of lines for the player, and for the next one.
        again: `(6,)`, the value of the best move that is left, by destination.
    """

    words: PackedState
    mine: Worths
    theirs: Worths
    again: NDArray[np.int64]


def new_scratch() -> Scratch:
    """Working memory for `write_options`."""
    return Scratch(
        np.zeros(NUM_WORDS, np.int64),
        np.zeros(30, np.int64),
        np.zeros(30, np.int64),
        np.zeros(6, np.int64),
    )


@compiled()
def sum_of(tiles: int) -> int:
    """The number of tiles."""
    total = 0
    for colour in range(5):
        total += tiles >> 6 * colour & FIELD
    return total


@compiled()
def _best_by_destination(words: PackedState, worths: Worths, best: NDArray[np.int64]) -> None:
    """The value of the best move of the current player, by destination."""
    for i in range(6):
        best[i] = _NOTHING
    fits = fits_of(words)
    for source in range(10):
        moves = fits & colour_fields(words[SOURCES + source])
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            destination = choice % 6
            best[destination] = max(best[destination], move_value(words, source, choice, worths))


@compiled()
def _most(best: NDArray[np.int64], but: int) -> int:
    """The highest of six values, one place left out."""
    most = _NOTHING
    for i in range(6):
        if i != but:
            most = max(most, best[i])
    return most


@compiled()
def _look_ahead(words: PackedState, source: int, colour: int, scratch: Scratch) -> tuple[bool, int]:
    """After a group is taken: whether nothing is left, and the value of the next player's move.

    Writes the values of the player's own next moves to `scratch.again`.
    """
    after = scratch.words
    me = words[CURRENT]
    for i in range(NUM_WORDS):
        after[i] = words[i]
    tiles = words[SOURCES + source]
    rest = tiles - (tiles & FIELD << 6 * colour)
    if source == CENTRE:
        after[SOURCES + CENTRE] = rest
        if words[HOLDER] == NOBODY:
            after[HOLDER] = me
    else:
        after[SOURCES + source] = 0
        after[SOURCES + CENTRE] += rest
    left = 0
    for i in range(10):
        left |= int(after[SOURCES + i])
    if left == 0:
        for i in range(6):
            scratch.again[i] = 0
        return True, 0
    following = me + 1
    after[CURRENT] = 0 if following == words[NUM_PLAYERS] else following
    _best_by_destination(after, scratch.theirs, scratch.again)
    reply = _most(scratch.again, 6)
    after[CURRENT] = me
    _best_by_destination(after, scratch.mine, scratch.again)
    return False, reply


@compiled()
def _write_option(
    words: PackedState, source: int, choice: int, scratch: Scratch, out: Rows
) -> None:
    """All features but those of `_look_ahead` and `_write_others`."""
    colour = choice // 6
    row = choice - 6 * colour
    me = seat(words[CURRENT])
    tiles = words[SOURCES + source]
    count = tiles >> 6 * colour & FIELD
    held = 0 if row == FLOOR else words[me + LINES] >> 6 * row & 7
    room = 0 if row == FLOOR else row + 1 - held
    placed = min(count, room)
    marker = source == CENTRE and words[HOLDER] == NOBODY
    completes = row != FLOOR and placed == room
    length = words[me + FLOOR_LENGTH]
    after = min(FLOOR_SLOTS, length + marker + count - placed)
    for i in range(_REPLY + 1):
        out[i] = 0
    out[_SOURCE] = source
    out[_COLOUR + colour] = 1
    out[_COUNT] = count
    out[_DESTINATION] = row
    out[_TO_FLOOR] = row == FLOOR
    out[_PLACED] = placed
    out[_OVERFLOW] = count - placed
    out[_TAKES_MARKER] = marker
    out[_COMPLETES] = completes
    out[_COST] = _COSTS[after] - _COSTS[length]
    out[_LEFT] = room - placed
    out[_REST] = sum_of(tiles) - count
    out[_VALUE] = move_value(words, source, choice, scratch.mine) / POINT
    if row == FLOOR:
        return
    wall = pending_wall_call(words, me)
    column = colour + row - 5 * (colour + row >= 5)
    if completes:
        out[_POINTS] = pending_points_call(words, me, row, colour) - pending_points_call(
            words, me, 5, 0
        )
    out[_LINE + row] = 1
    out[_IS_FRESH] = held == 0
    out[_ROW_TILES] = bits_of(wall & _ROWS[row])
    out[_COLUMN_TILES] = bits_of(wall & _COLUMNS[column])
    out[_COLOUR_TILES] = bits_of(wall & _COLOURS[colour])
    out[_FILLS_ROW] = completes and out[_ROW_TILES] == 4
    out[_WORTH] = scratch.mine[choice] / POINT


@compiled()
def _write_others(words: PackedState, source: int, choice: int, out: Rows) -> None:
    """Features of the other groups of the colour."""
    colour = choice // 6
    left, total, exact, enough = out[_LEFT], 0, 0, 0
    for i in range(10):
        count = words[SOURCES + i] >> 6 * colour & FIELD
        if i != source and count:
            total += count
            exact += count == left
            enough += left > 0 and count >= left
    out[_ELSEWHERE] = total
    out[_EXACT] = exact
    out[_ENOUGH] = enough


@compiled()
def write_options(words: PackedState, scratch: Scratch, out: Rows) -> int:
    """Writes the legal moves in the order of their ids; returns their number."""
    me = words[CURRENT]
    following = me + 1
    words[CURRENT] = 0 if following == words[NUM_PLAYERS] else following
    write_worths(words, GREEDY, scratch.theirs)
    words[CURRENT] = me
    write_worths(words, GREEDY, scratch.mine)
    fits = fits_of(words)
    at = 0
    for source in range(10):
        moves = fits & colour_fields(words[SOURCES + source])
        last, is_last, reply = -1, False, 0
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            colour = choice // 6
            if colour != last:
                last = colour
                is_last, reply = _look_ahead(words, source, colour, scratch)
            one = out[at]
            at += 1
            _write_option(words, source, choice, scratch, one)
            _write_others(words, source, choice, one)
            row = choice - 6 * colour
            one[_ENDS_ROUND] = is_last
            one[_AGAIN] = _most(scratch.again, 6 if row == FLOOR else row) / POINT
            one[_REPLY] = reply / POINT
    return at
