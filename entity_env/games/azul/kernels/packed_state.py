"""Packed state: a position as 48 integers, for the compiled engine.

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

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.engine.engine import destinations
from entity_env.games.azul.engine.rules import (
    CENTRE,
    NO_COLOUR,
    NUM_COLOURS,
    NUM_LINES,
    num_factories,
)
from entity_env.games.azul.engine.state import ENDS, GameState, Player
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource

PackedState: TypeAlias = NDArray[np.int64]
"""`(NUM_WORDS,)` int64: one position."""

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


def pack_state(state: GameState) -> PackedState:
    """A state as a packed state."""
    words = np.zeros(NUM_WORDS, np.int64)
    words[:BAG] = (
        state.num_players,
        state.current_player,
        state.starting_player,
        state.marker,
        state.round,
        0 if state.end is None else 1 + ENDS.index(state.end),
    )
    words[BAG], words[LID] = pack_tiles(state.bag), pack_tiles(state.lid)
    for i, tiles in enumerate(state.factories):
        words[SOURCES + i] = pack_tiles(tiles)
    words[SOURCES + CENTRE] = pack_tiles(state.centre)
    for i, player in enumerate(state.players):
        at = PLAYERS + PLAYER_WORDS * i
        words[at : at + PLAYER_WORDS] = _pack_player(player)
    return words


def _pack_player(player: Player) -> tuple[int, ...]:
    lines = zip(player.line_counts, player.line_colours, strict=True)
    return (
        player.score,
        player.wall,
        sum((count | colour << 3) << 6 * row for row, (count, colour) in enumerate(lines) if count),
        sum(tile << 3 * slot for slot, tile in enumerate(player.floor)),
        len(player.floor),
        sum(bits << 6 * colour for colour, bits in enumerate(destinations(player))),
    )


def unpack_state(words: PackedState, rng: RandomSource, draw: Draw | None = None) -> GameState:
    """A packed state as a state, which shares no memory; `rng` and `draw` as for `new_game`."""
    values = words.tolist()
    state = GameState()
    state.num_players = values[NUM_PLAYERS]
    state.current_player = values[CURRENT]
    state.starting_player = values[START]
    state.marker = values[HOLDER]
    state.round = values[ROUND]
    state.end = ENDS[values[END] - 1] if values[END] else None
    state.bag = unpack_tiles(values[BAG])
    state.lid = unpack_tiles(values[LID])
    dealt = values[SOURCES : SOURCES + num_factories(state.num_players)]
    state.factories = [tuple(unpack_tiles(tiles)) for tiles in dealt]
    state.centre = unpack_tiles(values[SOURCES + CENTRE])
    starts = range(PLAYERS, PLAYERS + PLAYER_WORDS * state.num_players, PLAYER_WORDS)
    state.players = [_unpack_player(values[at : at + PLAYER_WORDS]) for at in starts]
    state.rng = rng
    state.draw = draw
    return state


def _unpack_player(values: Sequence[int]) -> Player:
    player = Player()
    lines = [values[LINES] >> 6 * row & FIELD for row in range(NUM_LINES)]
    player.score, player.wall = values[SCORE], values[WALL]
    player.line_counts = [line & 7 for line in lines]
    player.line_colours = [line >> 3 if line & 7 else NO_COLOUR for line in lines]
    player.floor = [values[FLOOR_TILES] >> 3 * slot & 7 for slot in range(values[FLOOR_LENGTH])]
    return player
