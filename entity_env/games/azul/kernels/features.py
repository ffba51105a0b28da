"""What `FeatureExtractor` encodes, compiled, from words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul import features
from entity_env.games.azul.engine.rules import CENTRE, FLOOR_SLOTS, NOBODY, NUM_LINES
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import num_factories_packed, seat
from entity_env.games.azul.kernels.packed_state import FIELD, PackedState

Row = NDArray[np.float32]
"""`(OBS_SIZE,)` float32."""


def _table(values: Iterable[float]) -> Row:
    """Rounded as the reference does: divided in float64 first."""
    return np.array(list(values), np.float32)


# Tables, since a division takes as long as ten loads.
_PER_FACTORY: Final = _table(i / 4 for i in range(5))
_PER_COLOUR: Final = _table(i / 20 for i in range(21))
_PER_FLOOR: Final = _table(i / FLOOR_SLOTS for i in range(FLOOR_SLOTS + 1))
_FILLED: Final = _table(count / (row + 1) for row in range(5) for count in range(6))
_ONE: Final = np.float32(1)


@compiled(inline=True)
def write_observation(words: PackedState, player: int, row: Row) -> None:
    """Encodes a position into a row that is 0 everywhere."""
    for factory in range(num_factories_packed(words)):
        tiles = words[at.SOURCES + factory]
        for colour in range(5):
            row[5 * factory + colour] = _PER_FACTORY[tiles >> 6 * colour & FIELD]
    centre, bag, lid = words[at.SOURCES + CENTRE], words[at.BAG], words[at.LID]
    for colour in range(5):
        row[features.CENTRE_TILES + colour] = _PER_COLOUR[centre >> 6 * colour & FIELD]
        row[features.BAG_TILES + colour] = _PER_COLOUR[bag >> 6 * colour & FIELD]
        row[features.LID_TILES + colour] = _PER_COLOUR[lid >> 6 * colour & FIELD]
    num_players = words[at.NUM_PLAYERS]
    if words[at.HOLDER] == NOBODY:
        row[features.MARKER_IN_CENTRE] = _ONE
    for other in range(num_players):
        first = features.SEATS + features.SEAT_SIZE * _relative(other, player, num_players)
        _write_player(words, seat(other), words[at.HOLDER] == other, row, first)
    row[features.TURN + _relative(words[at.CURRENT], player, num_players)] = _ONE
    row[features.BEGAN + _relative(words[at.START], player, num_players)] = _ONE
    row[features.ROUND] = np.float32(words[at.ROUND] / features.ROUND_SCALE)


@compiled(inline=True)
def _relative(other: int, player: int, num_players: int) -> int:
    """The seat of another, seen by a player."""
    distance = other - player
    return distance + num_players if distance < 0 else distance


@compiled(inline=True)
def _write_player(words: PackedState, me: int, holds_marker: bool, row: Row, first: int) -> None:
    row[first] = _ONE
    lines, wall = words[me + at.LINES], words[me + at.WALL]
    for i in range(NUM_LINES):
        line = lines >> 6 * i & FIELD
        if line:
            row[first + features.LINES + 6 * i + (line >> 3)] = _ONE
            row[first + features.LINES + 6 * i + 5] = _FILLED[6 * i + (line & 7)]
    for cell in range(25):
        row[first + features.WALL + cell] = np.float32(wall >> cell & 1)
    row[first + features.FLOOR] = _PER_FLOOR[words[me + at.FLOOR_LENGTH]]
    row[first + features.HOLDS_MARKER] = np.float32(holds_marker)
    row[first + features.SCORE] = np.float32(words[me + at.SCORE] / features.SCORE_SCALE)
