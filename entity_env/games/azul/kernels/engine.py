"""Rules on the packed state, changed in place; see `packed_state`.

`make_move` calls `take_packed`, then `pass_turn`, or `end_round` after the last tile. If the game
continues, `deal_packed` starts the next round.

These are the official rules of the base game. Where they are silent: a marker taken with a full
floor costs nothing; if no player took it, the previous starter starts again; a game in which no
wall can ever change again is over. Tests compare them with the readable version in
`tests/games/azul/oracle.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from entity_env.games.azul.engine import rules
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MARKER,
    NOBODY,
)
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.kernel import bits_of, kernel
from entity_env.games.azul.kernels.packed_state import FIELD, NUM_WORDS, ONES, PackedState

Mask: TypeAlias = Any
"""Legal actions, `(300,)` bool or a list."""

_LINE_FITS: Final = ONES * 31
"""The bits of `fits` that stand for lines."""
_FIRST_COLUMN: Final = rules.COLUMNS[0]

MAX_LEGAL: Final = 246
"""Upper bound on the number of legal moves: 41 groups, 6 destinations each."""

ROW, NO_PROGRESS, NO_TILES = 1, 2, 3
"""Values of `END`: index into `state.ENDS`, plus 1."""


def _run_through(cells: int, place: int) -> int:
    """Length of the run through a cell in a row or column of five, once that cell is filled."""
    up = cells >> place + 1
    down = [cells >> i & 1 for i in range(place - 1, -1, -1)]
    return (~up & up + 1).bit_length() + (*down, 0).index(0)


def _open_to(row: int, cells: int) -> int:
    """Bits that an empty line adds to `fits`, for a row and its cells."""
    missing = [c for c in range(5) if not cells >> rules.column_of(row, c) & 1]
    return sum(1 << 6 * colour + row for colour in missing)


_RUNS: Final = tuple(_run_through(cells, place) for cells in range(32) for place in range(5))
_OPEN: Final = tuple(_open_to(row, cells) for row in range(5) for cells in range(32))


@kernel(inline=True)
def seat(player: int) -> int:
    """Index of a player's first word."""
    return at.PLAYERS + at.PLAYER_WORDS * player


@kernel(inline=True)
def num_factories_packed(words: PackedState) -> int:
    """As `rules.num_factories`."""
    count: int = 2 * words[at.NUM_PLAYERS] + 1
    return count


@kernel(inline=True)
def colour_fields(tiles: int) -> int:
    """All 6 bits of every color that is present."""
    some = tiles | tiles >> 1
    some |= some >> 2
    return ((some | tiles >> 4) & ONES) * FIELD


@kernel(inline=True)
def fits_of(words: PackedState) -> int:
    """`fits` of the current player; 0 when the game is over."""
    fits: int = 0 if words[at.END] else words[seat(words[at.CURRENT]) + at.FITS]
    return fits


@kernel(inline=True)
def write_fits(words: PackedState, me: int) -> None:
    """Recomputes `fits` from a board's lines and wall."""
    fits = ONES << FLOOR
    for row in range(5):
        line = words[me + at.LINES] >> 6 * row & FIELD
        if line & 7 == 0:
            fits |= _OPEN[32 * row + (words[me + at.WALL] >> 5 * row & 31)]
        elif line & 7 <= row:
            fits |= 1 << 6 * (line >> 3) + row
    words[me + at.FITS] = fits


@kernel(inline=True)
def is_legal_packed(words: PackedState, source: int, choice: int) -> bool:
    """Whether a move is legal; `choice` is `6 * colour + destination`."""
    return (fits_of(words) & colour_fields(words[at.SOURCES + source])) >> choice & 1 == 1


@kernel(inline=True)
def write_mask(words: PackedState, mask: Mask) -> None:
    """Marks the legal actions in an all-False mask of 300."""
    fits = fits_of(words)
    for source in range(10):
        moves = fits & colour_fields(words[at.SOURCES + source])
        first = 30 * source
        while moves:
            mask[first + bits_of((moves & -moves) - 1)] = True
            moves &= moves - 1


@kernel(inline=True)
def write_ids(words: PackedState, ids: list[int]) -> int:
    """Writes the legal ids in ascending order; returns their number."""
    fits = fits_of(words)
    count = 0
    for source in range(10):
        moves = fits & colour_fields(words[at.SOURCES + source])
        while moves:
            ids[count] = 30 * source + bits_of((moves & -moves) - 1)
            count += 1
            moves &= moves - 1
    return count


@kernel(inline=True)
def take_packed(words: PackedState, source: int, choice: int) -> bool:
    """Makes a legal move without passing the turn; True if the table is empty afterward."""
    colour = choice // 6
    destination = choice - 6 * colour
    me = seat(words[at.CURRENT])
    tiles = words[at.SOURCES + source]
    count = tiles >> 6 * colour & FIELD
    rest = tiles - (count << 6 * colour)
    if source == CENTRE:
        words[at.SOURCES + CENTRE] = rest
        if words[at.HOLDER] == NOBODY:
            words[at.HOLDER] = words[at.CURRENT]
            _drop(words, me, MARKER, 1)
    else:
        words[at.SOURCES + source] = 0
        words[at.SOURCES + CENTRE] += rest
    if destination != FLOOR:
        count -= _fill(words, me, destination, colour, count)
    if count:
        words[at.LID] += (count - _drop(words, me, colour, count)) << 6 * colour
    left = 0
    for i in range(10):
        left |= int(words[at.SOURCES + i])
    return left == 0


@kernel(inline=True)
def _fill(words: PackedState, me: int, row: int, colour: int, count: int) -> int:
    """Adds tiles to a pattern line; returns how many it took."""
    held = words[me + at.LINES] >> 6 * row & 7
    room = row + 1 - held
    placed: int = min(count, room)
    line = (held + placed) | colour << 3
    words[me + at.LINES] = words[me + at.LINES] & ~(FIELD << 6 * row) | line << 6 * row
    fits = words[me + at.FITS] & ~(ONES << row)
    words[me + at.FITS] = fits | int(placed < room) << 6 * colour + row
    return placed


@kernel(inline=True)
def _drop(words: PackedState, me: int, tile: int, count: int) -> int:
    """Adds tiles to the floor; returns how many it took."""
    length = words[me + at.FLOOR_LENGTH]
    dropped: int = min(count, FLOOR_SLOTS - length)
    slots = 0o1111111 & ((1 << 3 * dropped) - 1)
    words[me + at.FLOOR_TILES] |= tile * slots << 3 * length
    words[me + at.FLOOR_LENGTH] = length + dropped
    return dropped


@kernel(inline=True)
def pass_turn(words: PackedState) -> None:
    """Passes the turn to the next player."""
    after = words[at.CURRENT] + 1
    words[at.CURRENT] = 0 if after == words[at.NUM_PLAYERS] else after


@kernel(inline=True)
def tile_walls_packed(words: PackedState) -> None:
    """Moves full lines to the walls, scores, and clears the floors."""
    for player in range(words[at.NUM_PLAYERS]):
        me = seat(player)
        gain = _tile_wall(words, me)
        cost = FLOOR_COSTS[words[me + at.FLOOR_LENGTH]]
        words[me + at.SCORE] = max(0, words[me + at.SCORE] + gain - cost)
        floor = words[me + at.FLOOR_TILES]
        for slot in range(words[me + at.FLOOR_LENGTH]):
            tile = floor >> 3 * slot & 7
            if tile != MARKER:
                words[at.LID] += 1 << 6 * tile
        words[me + at.FLOOR_TILES] = 0
        words[me + at.FLOOR_LENGTH] = 0


@kernel(inline=True)
def _tile_wall(words: PackedState, me: int) -> int:
    """Moves one tile per full line to the wall, the others to the lid; returns the points."""
    gain = 0
    lines, wall, fits = words[me + at.LINES], words[me + at.WALL], words[me + at.FITS]
    for row in range(5):
        line = lines >> 6 * row & FIELD
        if line & 7 == row + 1:
            colour = line >> 3
            column = colour + row - 5 * (colour + row >= 5)
            gain += placement_points_packed(wall, row, column)
            wall |= 1 << 5 * row + column
            fits |= _OPEN[32 * row + (wall >> 5 * row & 31)]
            lines &= ~(FIELD << 6 * row)
            words[at.LID] += row << 6 * colour
    words[me + at.LINES], words[me + at.WALL], words[me + at.FITS] = lines, wall, fits
    return gain


@kernel(inline=True)
def placement_points_packed(wall: int, row: int, column: int) -> int:
    """Points for placing a tile; `wall` is the wall before."""
    # Gather the bits of the column, which are 5 apart: bit 5 i times bit 16 - 4 i is bit 16 + i.
    cells = ((wall >> column & _FIRST_COLUMN) * 0b1_0001_0001_0001_0001) >> 16 & 31
    across = _RUNS[5 * (wall >> 5 * row & 31) + column]
    down = _RUNS[5 * cells + row]
    points: int = across * (across > 1) + down * (down > 1)
    return max(1, points)


@kernel(inline=True)
def rows_of(wall: int) -> int:
    """Number of full rows."""
    return bits_of(wall & wall >> 1 & wall >> 2 & wall >> 3 & wall >> 4 & _FIRST_COLUMN)


@kernel(inline=True)
def bonus_points_packed(wall: int) -> int:
    """Points for full rows, full columns and complete colors."""
    columns = bits_of(wall & wall >> 5 & wall >> 10 & wall >> 15 & wall >> 20 & 31)
    colours = 0
    for colour in range(5):
        colours += wall & COLOUR_CELLS[colour] == COLOUR_CELLS[colour]
    return (
        rules.ROW_BONUS * rows_of(wall)
        + rules.COLUMN_BONUS * columns
        + rules.COLOUR_BONUS * colours
    )


@kernel(inline=True)
def end_of_game_packed(words: PackedState) -> int:
    """`END` after a tiling; 0 if the game continues."""
    rows = fits = 0
    for player in range(words[at.NUM_PLAYERS]):
        rows += rows_of(words[seat(player) + at.WALL])
        fits |= words[seat(player) + at.FITS]
    if rows:
        return ROW
    colours = colour_fields(words[at.BAG] | words[at.LID])
    if fits & _LINE_FITS & colours:
        return 0
    return NO_PROGRESS if colours else NO_TILES


@kernel(inline=True)
def end_round(words: PackedState) -> bool:
    """Ends a round after the last move, without a deal; True if the game is over."""
    tile_walls_packed(words)
    words[at.END] = end_of_game_packed(words)
    if words[at.END]:
        for player in range(words[at.NUM_PLAYERS]):
            words[seat(player) + at.SCORE] += bonus_points_packed(words[seat(player) + at.WALL])
        return True
    if words[at.HOLDER] != NOBODY:
        words[at.START] = words[at.HOLDER]
    words[at.CURRENT] = words[at.START]
    words[at.HOLDER] = NOBODY
    words[at.ROUND] += 1
    return False


@kernel(inline=True)
def make_move(words: PackedState, source: int, choice: int) -> bool:
    """Makes a legal move; True if the round ended. Then deal if `END` is 0."""
    if take_packed(words, source, choice):
        end_round(words)
        return True
    pass_turn(words)
    return False


@kernel(inline=True)
def start_game(words: PackedState, num_players: int, starting_player: int) -> None:
    """Sets up a game before its first deal."""
    for i in range(NUM_WORDS):
        words[i] = 0
    words[at.NUM_PLAYERS] = num_players
    words[at.CURRENT] = words[at.START] = starting_player
    words[at.HOLDER] = NOBODY
    words[at.ROUND] = 1
    words[at.BAG] = rules.TILES_PER_COLOUR * ONES
    for player in range(num_players):
        words[seat(player) + at.FITS] = ONES * FIELD


@kernel(inline=True)
def refill_bag(words: PackedState) -> int:
    """Moves the lid into an empty bag; returns the number of tiles in the bag."""
    if words[at.BAG] == 0:
        words[at.BAG] = words[at.LID]
        words[at.LID] = 0
    return num_tiles(words[at.BAG])


@kernel(inline=True)
def deal_packed(words: PackedState, uniforms: Sequence[float]) -> None:
    """Fills the factories, 4 tiles each; tile k uses `uniforms[k]`, 0 or more and below 1."""
    left = num_tiles(words[at.BAG])
    k = 0
    for factory in range(num_factories_packed(words)):
        tiles = 0
        for _ in range(rules.TILES_PER_FACTORY):
            if left == 0:
                left = refill_bag(words)
                if left == 0:
                    break
            tile = 1 << 6 * colour_at(words[at.BAG], int(uniforms[k] * left))
            words[at.BAG] -= tile
            tiles += tile
            left -= 1
            k += 1
        words[at.SOURCES + factory] = tiles


@kernel(inline=True)
def colour_at(bag: int, place: int) -> int:
    """Color of the tile at an index of a bag whose tiles are sorted by color."""
    end = bag & FIELD
    colour = int(place >= end)
    for i in range(1, 4):
        end += bag >> 6 * i & FIELD
        colour += place >= end
    return colour


@kernel(inline=True)
def num_tiles(tiles: int) -> int:
    """Number of packed tiles."""
    total = 0
    for colour in range(5):
        total += tiles >> 6 * colour & FIELD
    return total
