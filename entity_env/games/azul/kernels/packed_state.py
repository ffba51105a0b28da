"""Packed state: a position as 48 integers.

| word | content |
| --- | --- |
| 0 to 5 | players, current, starting player, holder of the marker, round, end (0: goes on) |
| 6, 7 | bag, lid: tiles |
| 8 to 17 | sources: tiles; those that are not in the game stay 0 |
| 18 + 6 p | score of player p |
| 19 + 6 p | wall, 25 bits |
| 20 + 6 p | lines: 6 bits a line, its count and, 3 bits up, its colour |
| 21 + 6 p | floor: 3 bits a slot, a colour or 5 for the marker |
| 22 + 6 p | slots of the floor that are taken |
| 23 + 6 p | fits: bit `6 * colour + destination` is set where the player may put that colour |

Tiles are packed 6 bits a colour, blue lowest: a source adds to another by one addition, and its
colours, spread over their 6 bits, choose from `fits` the legal moves of that source, in the order
of their ids. The last six words are spare, so that positions side by side begin on cache lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from entity_env.games.azul.engine.rules import NUM_COLOURS

PackedState: TypeAlias = list[int]
"""`NUM_WORDS` integers, one position; machine code takes an array of int64."""

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
"""The lowest bit of each of five fields of 6 bits."""
FIELD: Final = 0b111111


def pack_tiles(counts: Sequence[int]) -> int:
    """Counts by colour in one number."""
    return sum(count << 6 * colour for colour, count in enumerate(counts))


def unpack_tiles(tiles: int) -> list[int]:
    """The counts by colour of a number."""
    return [int(tiles) >> 6 * colour & FIELD for colour in range(NUM_COLOURS)]
