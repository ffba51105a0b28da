"""Observations of `AzulEnv` and `AzulBatch`; see `features`."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from entity_env.games.azul.engine.rules import CENTRE, FLOOR_SLOTS, NOBODY, NUM_LINES
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import num_factories_packed, seat
from entity_env.games.azul.kernels.kernel import kernel
from entity_env.games.azul.kernels.packed_state import FIELD, PackedState

Row: TypeAlias = Any
"""`(OBS_SIZE,)` float32, or a list."""

FACTORIES: Final = 0
CENTRE_TILES: Final = 45
MARKER_IN_CENTRE: Final = 50
BAG_TILES: Final = 51
LID_TILES: Final = 56
SEATS: Final = 61
SEAT_SIZE: Final = 59
LINES: Final = 1
WALL: Final = 31
FLOOR: Final = 56
HOLDS_MARKER: Final = 57
SCORE: Final = 58
TURN: Final = 297
BEGAN: Final = 301
ROUND: Final = 305
OBS_SIZE: Final = 306

SCORE_SCALE: Final = 100
ROUND_SCALE: Final = 20

# Tables: a division takes as long as ten loads.
_PER_FACTORY: Final = tuple(i / 4 for i in range(5))
_PER_COLOUR: Final = tuple(i / 20 for i in range(21))
_PER_FLOOR: Final = tuple(i / FLOOR_SLOTS for i in range(FLOOR_SLOTS + 1))
_FILLED: Final = tuple(count / (row + 1) for row in range(5) for count in range(6))


@kernel(inline=True)
def write_observation(words: PackedState, player: int, row: Row) -> None:
    """Encodes a position into a row of zeros."""
    for factory in range(num_factories_packed(words)):
        tiles = words[at.SOURCES + factory]
        for colour in range(5):
            row[5 * factory + colour] = _PER_FACTORY[tiles >> 6 * colour & FIELD]
    centre, bag, lid = words[at.SOURCES + CENTRE], words[at.BAG], words[at.LID]
    for colour in range(5):
        row[CENTRE_TILES + colour] = _PER_COLOUR[centre >> 6 * colour & FIELD]
        row[BAG_TILES + colour] = _PER_COLOUR[bag >> 6 * colour & FIELD]
        row[LID_TILES + colour] = _PER_COLOUR[lid >> 6 * colour & FIELD]
    num_players = words[at.NUM_PLAYERS]
    if words[at.HOLDER] == NOBODY:
        row[MARKER_IN_CENTRE] = 1.0
    for other in range(num_players):
        first = SEATS + SEAT_SIZE * _relative(other, player, num_players)
        _write_player(words, seat(other), words[at.HOLDER] == other, row, first)
    row[TURN + _relative(words[at.CURRENT], player, num_players)] = 1.0
    row[BEGAN + _relative(words[at.START], player, num_players)] = 1.0
    row[ROUND] = words[at.ROUND] / ROUND_SCALE


@kernel(inline=True)
def _relative(other: int, player: int, num_players: int) -> int:
    distance = other - player
    return distance + num_players if distance < 0 else distance


@kernel(inline=True)
def _write_player(words: PackedState, me: int, holds_marker: bool, row: Row, first: int) -> None:
    row[first] = 1.0
    lines, wall = words[me + at.LINES], words[me + at.WALL]
    for i in range(NUM_LINES):
        line = lines >> 6 * i & FIELD
        if line:
            row[first + LINES + 6 * i + (line >> 3)] = 1.0
            row[first + LINES + 6 * i + 5] = _FILLED[6 * i + (line & 7)]
    for cell in range(25):
        row[first + WALL + cell] = wall >> cell & 1
    row[first + FLOOR] = _PER_FLOOR[words[me + at.FLOOR_LENGTH]]
    row[first + HOLDS_MARKER] = holds_marker
    row[first + SCORE] = words[me + at.SCORE] / SCORE_SCALE
