"""Entities of a position as rows of features, compiled; `games.azul.entities` is the reference."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import CENTRE, FLOOR_SLOTS, NOBODY
from entity_env.games.azul.kernels.engine import bits_of, num_factories_packed, seat
from entity_env.games.azul.kernels.heuristics import pending_points_call, pending_wall_call
from entity_env.games.azul.kernels.legal_moves import (
    Scratch,
    sum_of,
    write_options,
)
from entity_env.games.azul.kernels.packed_state import (
    BAG,
    CURRENT,
    FIELD,
    FLOOR_LENGTH,
    HOLDER,
    LID,
    LINES,
    NUM_PLAYERS,
    ROUND,
    SCORE,
    SOURCES,
    START,
    WALL,
    PackedState,
)

Rows = NDArray[np.float32]

_COSTS: Final = np.array(rules.FLOOR_COSTS)
_ROWS: Final = np.array(rules.ROWS)
_COLUMNS: Final = np.array(rules.COLUMNS)
_COLOURS: Final = np.array(rules.COLOUR_CELLS)
_NOTHING: Final = -(2**62)


class EntityRows(NamedTuple):
    """Rows of entities of many positions, one after another, by type; `(capacity, width)`."""

    table: Rows
    source: Rows
    group: Rows
    seat: Rows
    line: Rows
    wall_row: Rows
    option: Rows


@compiled()
def _standing(words: PackedState, player: int) -> int:
    """`entities.standing_of`."""
    me = seat(player)
    points = words[me + SCORE] + pending_points_call(words, me, 5, 0)
    return int(points - _COSTS[words[me + FLOOR_LENGTH]])


@compiled()
def _fullest_row(words: PackedState, player: int) -> int:
    wall = pending_wall_call(words, seat(player))
    most = 0
    for i in range(5):
        most = max(most, bits_of(wall & _ROWS[i]))
    return most


@compiled()
def _write_table(words: PackedState, player: int, out: Rows) -> None:
    num_players = words[NUM_PLAYERS]
    out[0] = words[ROUND]
    out[1] = num_players
    out[2] = (player - words[START] + num_players) % num_players
    out[3] = words[HOLDER] == NOBODY
    tiles = 0
    for source in range(10):
        tiles += sum_of(words[SOURCES + source])
    for colour in range(5):
        out[4 + colour] = words[BAG] >> 6 * colour & FIELD
        out[9 + colour] = words[LID] >> 6 * colour & FIELD
    best, row = _NOTHING, 0
    for other in range(num_players):
        if other != player:
            best = max(best, _standing(words, other))
            row = max(row, _fullest_row(words, other))
    out[14] = tiles
    out[15] = _standing(words, player) - best
    out[16] = _fullest_row(words, player)
    out[17] = row


@compiled()
def _write_source(words: PackedState, source: int, out: Rows) -> None:
    tiles = words[SOURCES + source]
    out[0] = source == CENTRE
    for colour in range(5):
        out[1 + colour] = tiles >> 6 * colour & FIELD
    out[6] = sum_of(tiles)
    out[7] = source == CENTRE and words[HOLDER] == NOBODY


@compiled()
def _write_group(words: PackedState, source: int, colour: int, out: Rows) -> None:
    tiles = words[SOURCES + source]
    count = tiles >> 6 * colour & FIELD
    for i in range(10):
        out[i] = 0
    out[0] = source
    out[1 + colour] = 1
    out[6] = count
    out[7] = source == CENTRE
    out[8] = source == CENTRE and words[HOLDER] == NOBODY
    out[9] = sum_of(tiles) - count


@compiled()
def _write_seat(words: PackedState, player: int, place: int, out: Rows) -> None:
    me = seat(player)
    length = words[me + FLOOR_LENGTH]
    cost = _COSTS[length]
    starts_next = words[START] if words[HOLDER] == NOBODY else words[HOLDER]
    out[0] = place
    out[1] = words[me + SCORE]
    out[2] = length
    out[3] = cost
    out[4] = _COSTS[min(FLOOR_SLOTS, length + 1)] - cost
    out[5] = words[HOLDER] == player
    out[6] = starts_next == player
    out[7] = pending_points_call(words, me, 5, 0)
    out[8] = _fullest_row(words, player)


@compiled()
def _write_line(words: PackedState, player: int, place: int, row: int, out: Rows) -> None:
    line = words[seat(player) + LINES] >> 6 * row & FIELD
    count = line & 7
    for i in range(10):
        out[i] = 0
    out[0] = place
    out[1] = row
    out[2 + (1 + (line >> 3) if count else 0)] = 1
    out[8] = count
    out[9] = row + 1 - count


@compiled()
def _write_wall_row(words: PackedState, player: int, place: int, row: int, out: Rows) -> None:
    cells = words[seat(player) + WALL] >> 5 * row & 31
    out[0] = place
    out[1] = row
    for i in range(5):
        column = i + row - 5 * (i + row >= 5)
        out[2 + i] = cells >> i & 1
        out[7 + i] = cells >> column & 1


@compiled()
def write_entities(
    words: PackedState, at: NDArray[np.int64], shown: EntityRows, scratch: Scratch
) -> tuple[int, int]:
    """Writes a position for the current player; returns the numbers of groups and options.

    `at`, `(3,)`, counts the positions, groups and options that `shown` already holds.
    """
    me, num_players, sources = words[CURRENT], words[NUM_PLAYERS], num_factories_packed(words) + 1
    first = at[0]
    _write_table(words, me, shown.table[first])
    for i in range(sources):
        source = CENTRE if i == sources - 1 else i
        _write_source(words, source, shown.source[first * sources + i])
    groups = 0
    for source in range(10):
        for colour in range(5):
            if words[SOURCES + source] >> 6 * colour & FIELD:
                _write_group(words, source, colour, shown.group[at[1] + groups])
                groups += 1
    for place in range(num_players):
        player = (me + place) % num_players
        board = first * num_players + place
        _write_seat(words, player, place, shown.seat[board])
        for row in range(5):
            _write_line(words, player, place, row, shown.line[5 * board + row])
            _write_wall_row(words, player, place, row, shown.wall_row[5 * board + row])
    options = write_options(words, scratch, shown.option[at[2] :])
    at[0] += 1
    at[1] += groups
    at[2] += options
    return groups, options
