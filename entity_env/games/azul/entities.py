"""A position as entities, told from the seat of one player, and every legal move as one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from entity_env.authoring.entity_type import HIDDEN
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOURS,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    ROWS,
    column_of,
)
from entity_env.games.azul.engine.state import GameState, Player
from entity_env.games.azul.players.heuristics import pending_points, pending_wall

Five = tuple[int, int, int, int, int]
"""A number for each colour: blue, yellow, red, black, white."""


class Colour(Enum):
    """The colour of tiles."""

    BLUE = 0
    YELLOW = 1
    RED = 2
    BLACK = 3
    WHITE = 4


class Filling(Enum):
    """The colour of a pattern line, which may be empty."""

    EMPTY = -1
    BLUE = 0
    YELLOW = 1
    RED = 2
    BLACK = 3
    WHITE = 4


@dataclass(slots=True)
class Table:
    """What belongs to nobody, who asks for a move, and how he stands."""

    round: int
    num_players: int
    seat: int
    marker_in_centre: bool
    bag: Five
    lid: Five
    tiles: int
    lead: int
    my_row: int
    their_row: int


@dataclass(slots=True)
class Source:
    """A factory, or the centre, empty or not."""

    is_centre: bool
    tiles: Five
    total: int
    has_marker: bool


@dataclass(slots=True)
class Group:
    """The tiles of one colour at one source."""

    source: int
    colour: Colour
    count: int
    is_centre: bool
    brings_marker: bool
    rest: int


@dataclass(slots=True)
class Seat:
    """A player."""

    seat: int
    score: int
    floor: int
    floor_cost: int
    next_slot_cost: int
    holds_marker: bool
    starts_next: bool
    pending: int
    fullest_row: int


@dataclass(slots=True)
class Line:
    """A pattern line."""

    seat: int
    row: int
    colour: Filling
    count: int
    room: int


@dataclass(slots=True)
class WallRow:
    """A row of a wall."""

    seat: int
    row: int
    cells: Five
    has: Five


@dataclass(slots=True, eq=False)
class Option:
    """A legal move of the player who observes."""

    source: int
    colour: Colour
    count: int
    destination: int
    to_floor: bool
    placed: int
    overflow: int
    takes_marker: bool
    completes: bool
    points: int
    cost: int
    line: Five
    left: int
    is_fresh: bool
    row_tiles: int
    column_tiles: int
    colour_tiles: int
    fills_row: bool
    worth: float
    value: float
    ends_round: bool
    rest: int
    elsewhere: int
    exact: int
    enough: int
    again: float
    reply: float
    action_id: int = field(metadata=HIDDEN)


_COLOURS: Final = tuple(Colour)
_FILLINGS: Final = {filling.value: filling for filling in Filling}
_ONE_HOT: Final = {
    bits: tuple(bits >> i & 1 for i in range(NUM_COLOURS)) for bits in range(2**NUM_COLOURS)
}


def five(counts: list[int] | tuple[int, ...]) -> Five:
    """Counts by colour as a tuple."""
    blue, yellow, red, black, white = counts
    return blue, yellow, red, black, white


def table_of(state: GameState, player: int) -> Table:
    """What belongs to nobody; `seat` is how many play before this player in a round."""
    others = [state.players[i] for _, i in _order(state, player)[1:]]
    return Table(
        round=state.round,
        num_players=state.num_players,
        seat=(player - state.starting_player) % state.num_players,
        marker_in_centre=state.marker == NOBODY,
        bag=five(state.bag),
        lid=five(state.lid),
        tiles=sum(map(sum, state.factories)) + sum(state.centre),
        lead=standing_of(state.players[player]) - max(map(standing_of, others)),
        my_row=fullest_row(state.players[player]),
        their_row=max(map(fullest_row, others)),
    )


def standing_of(player: Player) -> int:
    """Points that a player would have if the round ended now, were they not cut at 0."""
    return player.score + pending_points(player) - FLOOR_COSTS[len(player.floor)]


def fullest_row(player: Player) -> int:
    """Tiles in the fullest row of a wall, those of full lines included."""
    wall = pending_wall(player)
    return max((wall & row).bit_count() for row in ROWS)


def sources_of(state: GameState) -> list[Source]:
    """All factories in order, then the centre."""
    factories = [Source(False, five(tiles), sum(tiles), False) for tiles in state.factories]
    centre = Source(True, five(state.centre), sum(state.centre), state.marker == NOBODY)
    return [*factories, centre]


def groups_of(state: GameState) -> list[Group]:
    """What can be taken: by source in order, and by colour."""
    groups = []
    sources = [*enumerate(state.factories), (CENTRE, state.centre)]
    for source, tiles in sources:
        is_centre = source == CENTRE
        for colour, count in enumerate(tiles):
            if count:
                marker = is_centre and state.marker == NOBODY
                rest = sum(tiles) - count
                groups.append(Group(source, _COLOURS[colour], count, is_centre, marker, rest))
    return groups


def seats_of(state: GameState, player: int) -> list[Seat]:
    """The players, the one who observes first."""
    return [
        _seat(state.players[i], seat, state.marker == i, state.starting_player_next_round == i)
        for seat, i in _order(state, player)
    ]


def _seat(player: Player, seat: int, holds_marker: bool, starts_next: bool) -> Seat:
    length = len(player.floor)
    cost = FLOOR_COSTS[length]
    return Seat(
        seat=seat,
        score=player.score,
        floor=length,
        floor_cost=cost,
        next_slot_cost=FLOOR_COSTS[min(FLOOR_SLOTS, length + 1)] - cost,
        holds_marker=holds_marker,
        starts_next=starts_next,
        pending=pending_points(player),
        fullest_row=fullest_row(player),
    )


def lines_of(state: GameState, player: int) -> list[Line]:
    """All pattern lines, from the top, player by player."""
    return [
        Line(seat, row, _FILLINGS[board.line_colours[row]], count, row + 1 - count)
        for seat, i in _order(state, player)
        for board in [state.players[i]]
        for row, count in enumerate(board.line_counts)
    ]


def walls_of(state: GameState, player: int) -> list[WallRow]:
    """All rows of the walls, from the top, player by player."""
    return [
        WallRow(seat, row, five(_ONE_HOT[cells]), five([cells >> at & 1 for at in _columns(row)]))
        for seat, i in _order(state, player)
        for row in range(NUM_LINES)
        for cells in [state.players[i].wall >> 5 * row & 31]
    ]


def _columns(row: int) -> list[int]:
    return [column_of(row, colour) for colour in range(NUM_COLOURS)]


def _order(state: GameState, player: int) -> list[tuple[int, int]]:
    """Seats counted from a player, and who sits there."""
    return [(seat, (player + seat) % state.num_players) for seat in range(state.num_players)]


ENTITIES: Final = (Table, Source, Group, Seat, Line, WallRow)
"""All of them but the options."""

MoveId = Enum(  # type: ignore[misc]
    "MoveId",
    {
        f"{colour}_from_{source}_to_{place}": (source_id * NUM_COLOURS + colour_id) * 6 + place_id
        for source_id, source in enumerate([*(f"factory_{i}" for i in range(9)), "centre"])
        for colour_id, colour in enumerate(COLOURS)
        for place_id, place in enumerate([*(f"line_{i}" for i in range(5)), "floor"])
    },
)
"""Every move as a member, whose value and place is its id."""
