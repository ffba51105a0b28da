"""Packed state: a position as 48 integers.

| word | content |
| --- | --- |
| 0 to 5 | num_players, current player, starting player, marker holder, round, end (0: not over) |
| 6, 7 | bag, lid: tiles |
| 8 to 17 | sources: tiles; unused sources stay 0 |
| 18 + 6 p | score of player p |
| 19 + 6 p | wall, 25 bits |
| 20 + 6 p | lines: 6 bits per line, the count in the lower 3, the color above |
| 21 + 6 p | floor: 3 bits per slot, a color or 5 for the marker |
| 22 + 6 p | number of taken floor slots |
| 23 + 6 p | fits: bit `6 * colour + destination` is set if the player may put that color there |

Tiles are packed with 6 bits per color, blue lowest, so one addition adds a source to another. The
legal moves from a source, in id order, are the bits of `fits` in the fields of the source's colors.
The last six words are padding: positions in an array begin on cache lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from entity_env.games.azul.engine.rules import NUM_COLOURS

PackedState: TypeAlias = list[int]
"""One position, `NUM_WORDS` integers; machine code takes an array of int64."""

NUM_PLAYERS: Final = 0
CURRENT: Final = 1
START: Final = 2
HOLDER: Final = 3
ROUND: Final = 4
END: Final = 5
BAG: Final = 6
LID: Final = 7
SOURCES: Final = 8
PLAYERS: Final = 18
PLAYER_WORDS: Final = 6
SCORE: Final = 0
WALL: Final = 1
LINES: Final = 2
FLOOR_TILES: Final = 3
FLOOR_LENGTH: Final = 4
FITS: Final = 5
NUM_WORDS: Final = 48

ONES: Final = 0b000001_000001_000001_000001_000001
"""The lowest bit of five fields of 6 bits."""
FIELD: Final = 0b111111


def pack_tiles(counts: Sequence[int]) -> int:
    """Packs counts by color into one number."""
    return sum(count << 6 * colour for colour, count in enumerate(counts))


def unpack_tiles(tiles: int) -> list[int]:
    """Counts by color of a packed number."""
    return [int(tiles) >> 6 * colour & FIELD for colour in range(NUM_COLOURS)]
