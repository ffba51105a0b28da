"""Entities of a position as feature rows, in the field order of `azul.entities`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
    COLUMNS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    NOBODY,
    ROWS,
)
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    colour_fields,
    fits_of,
    num_factories_packed,
    num_tiles,
    seat,
)
from entity_env.games.azul.kernels.heuristics import Worths, pending_points_call, pending_wall_call
from entity_env.games.azul.kernels.kernel import bits_of, kernel
from entity_env.games.azul.kernels.packed_state import FIELD, PackedState

Rows: TypeAlias = Any
"""Rows of float32, or lists."""

_SOURCE, _COLOUR, _COUNT, _DESTINATION, _TO_FLOOR, _PLACED, _OVERFLOW = 0, 1, 6, 7, 8, 9, 10
_TAKES_MARKER, _COMPLETES, _POINTS, _COST, _LINE, _LEFT, _IS_FRESH = 11, 12, 13, 14, 15, 20, 21
_ROW_TILES, _COLUMN_TILES, _COLOUR_TILES, _FILLS_ROW, _LINE_POINTS = 22, 23, 24, 25, 26
_ENDS_ROUND, _REST, _ELSEWHERE, _EXACT, _ENOUGH, _GROUPS, _CENTRE = 27, 28, 29, 30, 31, 32, 33
_MY_LINES, _NEXT_LINES, _MY_DROP, _NEXT_DROP, _NEXT_HELD, _NEXT_ROOM = 38, 43, 48, 49, 50, 51
"""Feature columns; of a feature with several columns, the first."""

_NOTHING: Final = -(2**62)


class Scratch(NamedTuple):
    """Working memory.

    Args:
        sources: `(10,)`, sources after a group was taken.
        most, least: `(5,)`, largest and smallest group of each color after that, or 0.
        points: `(30,)`, points that full lines would bring the player.
        group: `(52,)`, features shared by all moves of a group.
    """

    sources: PackedState
    most: list[int]
    least: list[int]
    points: Worths
    group: list[int]


SCRATCH_SIZES: Final = (10, 5, 5, 30, 52)
"""Array sizes of a `Scratch`."""


@kernel()
def _write_points(words: PackedState, me: int, points: Worths) -> None:
    """Writes, for each color that fits a line, the points of that line if the round ended now and
    the line were full."""
    before = pending_points_call(words, me, 5, 0)
    fits = words[me + at.FITS]
    for colour in range(5):
        for row in range(5):
            choice = 6 * colour + row
            points[choice] = 0
            if fits >> choice & 1:
                points[choice] = pending_points_call(words, me, row, colour) - before


@kernel()
def _take_group(words: PackedState, source: int, colour: int, scratch: Scratch) -> int:
    """Writes the sources, and the largest and smallest groups, after a group is taken.

    Returns the number of groups left.
    """
    after, most, least = scratch.sources, scratch.most, scratch.least
    tiles = words[at.SOURCES + source]
    rest = tiles - (tiles & FIELD << 6 * colour)
    for i in range(10):
        after[i] = words[at.SOURCES + i]
    after[source] = 0
    after[CENTRE] += rest
    if source == CENTRE:
        after[CENTRE] = rest
    groups = 0
    for i in range(5):
        most[i] = least[i] = 0
        for place in range(10):
            count = after[place] >> 6 * i & FIELD
            if count:
                groups += 1
                most[i] = max(most[i], count)
                least[i] = count if least[i] == 0 else min(least[i], count)
    return groups


@kernel()
def _write_completed(words: PackedState, me: int, most: list[int], first: int, out: Rows) -> None:
    """Writes, per line, how many colors have a group that completes it."""
    fits, lines = words[me + at.FITS], words[me + at.LINES]
    for row in range(5):
        room = row + 1 - (lines >> 6 * row & 7)
        count = 0
        for colour in range(5):
            count += fits >> 6 * colour + row & 1 and most[colour] >= room
        out[first + row] = count


@kernel()
def _least_drop(words: PackedState, me: int, least: list[int], but: int) -> int:
    """Tiles without room in a player's lines, except `but`, if the best-fitting group is taken."""
    fits, lines = words[me + at.FITS], words[me + at.LINES]
    fewest = -1
    for colour in range(5):
        room = 0
        for row in range(5):
            if row != but and fits >> 6 * colour + row & 1:
                room = max(room, row + 1 - (lines >> 6 * row & 7))
        if least[colour]:
            drop = max(0, least[colour] - room)
            fewest = drop if fewest < 0 else min(fewest, drop)
    return max(0, fewest)


@kernel()
def _write_option(
    words: PackedState, source: int, choice: int, scratch: Scratch, out: Rows
) -> None:
    """Writes all features except those of `_write_others` and `_write_left`."""
    colour = choice // 6
    row = choice - 6 * colour
    me = seat(words[at.CURRENT])
    tiles = words[at.SOURCES + source]
    count = tiles >> 6 * colour & FIELD
    held = 0 if row == FLOOR else words[me + at.LINES] >> 6 * row & 7
    room = 0 if row == FLOOR else row + 1 - held
    placed = min(count, room)
    marker = source == CENTRE and words[at.HOLDER] == NOBODY
    completes = row != FLOOR and placed == room
    length = words[me + at.FLOOR_LENGTH]
    after = min(FLOOR_SLOTS, length + marker + count - placed)
    for i in range(_ENDS_ROUND):
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
    out[_COST] = FLOOR_COSTS[after] - FLOOR_COSTS[length]
    out[_LEFT] = room - placed
    out[_REST] = num_tiles(tiles) - count
    if row == FLOOR:
        return
    wall = pending_wall_call(words, me)
    column = colour + row - 5 * (colour + row >= 5)
    if completes:
        out[_POINTS] = scratch.points[choice]
    out[_LINE + row] = 1
    out[_IS_FRESH] = held == 0
    out[_ROW_TILES] = bits_of(wall & ROWS[row])
    out[_COLUMN_TILES] = bits_of(wall & COLUMNS[column])
    out[_COLOUR_TILES] = bits_of(wall & COLOUR_CELLS[colour])
    out[_FILLS_ROW] = completes and out[_ROW_TILES] == 4
    out[_LINE_POINTS] = scratch.points[choice]


@kernel()
def _write_others(words: PackedState, source: int, choice: int, out: Rows) -> None:
    """Writes the features of other groups of the color."""
    colour = choice // 6
    left, total, exact, enough = out[_LEFT], 0, 0, 0
    for i in range(10):
        count = words[at.SOURCES + i] >> 6 * colour & FIELD
        if i != source and count:
            total += count
            exact += count == left
            enough += left > 0 and count >= left
    out[_ELSEWHERE] = total
    out[_EXACT] = exact
    out[_ENOUGH] = enough


@kernel()
def _write_group_left(
    words: PackedState, me: int, rival: int, colour: int, groups: int, scratch: Scratch
) -> None:
    """Writes features of what is left once a group is taken, and of the next player's lines."""
    out = scratch.group
    out[_GROUPS] = groups
    out[_ENDS_ROUND] = int(groups == 0)
    _write_completed(words, me, scratch.most, _MY_LINES, out)
    _write_completed(words, rival, scratch.most, _NEXT_LINES, out)
    out[_NEXT_DROP] = _least_drop(words, rival, scratch.least, FLOOR)
    out[_NEXT_HELD] = out[_NEXT_ROOM] = 0
    for i in range(5):
        out[_CENTRE + i] = scratch.sources[CENTRE] >> 6 * i & FIELD
        line = words[rival + at.LINES] >> 6 * i & FIELD
        held = line & 7
        if 0 < held <= i and line >> 3 == colour:
            out[_NEXT_HELD] += held
            out[_NEXT_ROOM] += i + 1 - held


@kernel()
def _write_left(words: PackedState, me: int, choice: int, scratch: Scratch, out: Rows) -> None:
    """Writes the features of the group, and of all lines except the destination."""
    row = choice % 6
    out[_ENDS_ROUND] = scratch.group[_ENDS_ROUND]
    for i in range(_GROUPS, _NEXT_ROOM + 1):
        out[i] = scratch.group[i]
    if row != FLOOR:
        out[_MY_LINES + row] = 0
    out[_MY_DROP] = _least_drop(words, me, scratch.least, row)


@kernel()
def write_options(words: PackedState, scratch: Scratch, out: Rows) -> int:
    """Writes the legal moves in id order; returns their number."""
    player, num_players = words[at.CURRENT], words[at.NUM_PLAYERS]
    me, rival = seat(player), seat((player + 1) % num_players)
    _write_points(words, me, scratch.points)
    fits = fits_of(words)
    count = 0
    for source in range(10):
        moves = fits & colour_fields(words[at.SOURCES + source])
        last = -1
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            colour = choice // 6
            if colour != last:
                last = colour
                groups = _take_group(words, source, colour, scratch)
                _write_group_left(words, me, rival, colour, groups, scratch)
            one = out[count]
            count += 1
            _write_option(words, source, choice, scratch, one)
            _write_others(words, source, choice, one)
            _write_left(words, me, choice, scratch, one)
    return count


class EntityRows(NamedTuple):
    """Rows of many positions by type, one position after another; `(capacity, width)`."""

    table: Rows
    source: Rows
    group: Rows
    seat: Rows
    line: Rows
    wall_row: Rows
    option: Rows


@kernel()
def _standing(words: PackedState, player: int) -> int:
    """Points if the round ended now, without the limit at 0."""
    me = seat(player)
    points = words[me + at.SCORE] + pending_points_call(words, me, 5, 0)
    return int(points - FLOOR_COSTS[words[me + at.FLOOR_LENGTH]])


@kernel()
def _fullest_row(words: PackedState, player: int) -> int:
    wall = pending_wall_call(words, seat(player))
    most = 0
    for i in range(5):
        most = max(most, bits_of(wall & ROWS[i]))
    return most


@kernel()
def _write_lines(words: PackedState, me: int, first: int, out: Rows) -> None:
    """Writes the room of each line, and the points that started lines would bring."""
    before = pending_points_call(words, me, 5, 0)
    for row in range(5):
        line = words[me + at.LINES] >> 6 * row & FIELD
        held = line & 7
        out[first + row] = row + 1 - held
        out[first + 5 + row] = 0
        if 0 < held <= row:
            out[first + 5 + row] = pending_points_call(words, me, row, line >> 3) - before


@kernel()
def _write_table(words: PackedState, player: int, out: Rows) -> None:
    num_players = words[at.NUM_PLAYERS]
    out[0] = words[at.ROUND]
    out[1] = num_players
    out[2] = (player - words[at.START] + num_players) % num_players
    out[3] = words[at.HOLDER] == NOBODY
    tiles = 0
    for source in range(10):
        tiles += num_tiles(words[at.SOURCES + source])
    for colour in range(5):
        out[4 + colour] = words[at.BAG] >> 6 * colour & FIELD
        out[9 + colour] = words[at.LID] >> 6 * colour & FIELD
    best, row = _NOTHING, 0
    for other in range(num_players):
        if other != player:
            best = max(best, _standing(words, other))
            row = max(row, _fullest_row(words, other))
    out[14] = tiles
    out[15] = _standing(words, player) - best
    out[16] = _fullest_row(words, player)
    out[17] = row
    me, rival = seat(player), seat((player + 1) % num_players)
    out[18] = words[me + at.FLOOR_LENGTH]
    out[19] = words[rival + at.FLOOR_LENGTH]
    _write_lines(words, me, 20, out)
    _write_lines(words, rival, 30, out)


@kernel()
def _write_source(words: PackedState, source: int, out: Rows) -> None:
    tiles = words[at.SOURCES + source]
    out[0] = source == CENTRE
    for colour in range(5):
        out[1 + colour] = tiles >> 6 * colour & FIELD
    out[6] = num_tiles(tiles)
    out[7] = source == CENTRE and words[at.HOLDER] == NOBODY


@kernel()
def _write_group(words: PackedState, source: int, colour: int, out: Rows) -> None:
    tiles = words[at.SOURCES + source]
    count = tiles >> 6 * colour & FIELD
    for i in range(10):
        out[i] = 0
    out[0] = source
    out[1 + colour] = 1
    out[6] = count
    out[7] = source == CENTRE
    out[8] = source == CENTRE and words[at.HOLDER] == NOBODY
    out[9] = num_tiles(tiles) - count


@kernel()
def _write_seat(words: PackedState, player: int, place: int, out: Rows) -> None:
    me = seat(player)
    length = words[me + at.FLOOR_LENGTH]
    cost = FLOOR_COSTS[length]
    starts_next = words[at.START] if words[at.HOLDER] == NOBODY else words[at.HOLDER]
    out[0] = place
    out[1] = words[me + at.SCORE]
    out[2] = length
    out[3] = cost
    out[4] = FLOOR_COSTS[min(FLOOR_SLOTS, length + 1)] - cost
    out[5] = words[at.HOLDER] == player
    out[6] = starts_next == player
    out[7] = pending_points_call(words, me, 5, 0)
    out[8] = _fullest_row(words, player)


@kernel()
def _write_line(words: PackedState, player: int, place: int, row: int, out: Rows) -> None:
    line = words[seat(player) + at.LINES] >> 6 * row & FIELD
    count = line & 7
    for i in range(10):
        out[i] = 0
    out[0] = place
    out[1] = row
    out[2 + (1 + (line >> 3) if count else 0)] = 1
    out[8] = count
    out[9] = row + 1 - count


@kernel()
def _write_wall_row(words: PackedState, player: int, place: int, row: int, out: Rows) -> None:
    cells = words[seat(player) + at.WALL] >> 5 * row & 31
    out[0] = place
    out[1] = row
    for i in range(5):
        column = i + row - 5 * (i + row >= 5)
        out[2 + i] = cells >> i & 1
        out[7 + i] = cells >> column & 1


@kernel()
def write_table(
    words: PackedState, player: int, first: int, first_group: int, shown: EntityRows
) -> int:
    """Writes what a player sees of a position, without options; returns the number of groups.

    `shown` already holds `first` positions, and `first_group` groups.
    """
    num_players, sources = words[at.NUM_PLAYERS], num_factories_packed(words) + 1
    _write_table(words, player, shown.table[first])
    for i in range(sources):
        source = CENTRE if i == sources - 1 else i
        _write_source(words, source, shown.source[first * sources + i])
    groups = 0
    for source in range(10):
        for colour in range(5):
            if words[at.SOURCES + source] >> 6 * colour & FIELD:
                _write_group(words, source, colour, shown.group[first_group + groups])
                groups += 1
    for place in range(num_players):
        other = (player + place) % num_players
        board = first * num_players + place
        _write_seat(words, other, place, shown.seat[board])
        for row in range(5):
            _write_line(words, other, place, row, shown.line[5 * board + row])
            _write_wall_row(words, other, place, row, shown.wall_row[5 * board + row])
    return groups


@kernel()
def write_entities(
    words: PackedState, filled: list[int], shown: EntityRows, scratch: Scratch
) -> tuple[int, int]:
    """Writes a position for the current player; returns the numbers of groups and options.

    `filled`, `(3,)`: positions, groups and options that `shown` already holds.
    """
    groups = write_table(words, words[at.CURRENT], filled[0], filled[1], shown)
    options = write_options(words, scratch, shown.option[filled[2] :])
    filled[0] += 1
    filled[1] += groups
    filled[2] += options
    return groups, options
