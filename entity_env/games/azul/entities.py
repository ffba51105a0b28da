"""A position as entities, told from the seat of one player, and every legal move as one of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from entity_env.entity_type import HIDDEN
from entity_env.games.azul.actions import Action, ActionEncoder
from entity_env.games.azul.engine import legal_actions
from entity_env.games.azul.heuristics import pending_points
from entity_env.games.azul.rules import (
    CENTRE,
    COLOURS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    column_of,
)
from entity_env.games.azul.state import GameState, Player

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
    """What belongs to nobody, and who asks for a move."""

    round: int
    num_players: int
    seat: int
    marker_in_centre: bool
    bag: Five
    lid: Five


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
    return Table(
        round=state.round,
        num_players=state.num_players,
        seat=(player - state.starting_player) % state.num_players,
        marker_in_centre=state.marker == NOBODY,
        bag=five(state.bag),
        lid=five(state.lid),
    )


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


def options_of(state: GameState) -> list[Option]:
    """The legal moves in the order of their ids."""
    player = state.players[state.current_player]
    before = pending_points(player)
    points: dict[tuple[int, int], int] = {}
    options = []
    for action in legal_actions(state):
        _, colour, row = action
        line = row, colour
        if row != FLOOR and line not in points:
            points[line] = pending_points(player, row, colour) - before
        options.append(_option(state, player, action, points.get(line, 0)))
    return options


def _option(state: GameState, player: Player, action: Action, points: int) -> Option:
    source, colour, row = action
    count = (state.centre if source == CENTRE else state.factories[source])[colour]
    room = 0 if row == FLOOR else row + 1 - player.line_counts[row]
    placed = min(count, room)
    marker = source == CENTRE and state.marker == NOBODY
    completes = row != FLOOR and placed == room
    length = len(player.floor)
    after = min(FLOOR_SLOTS, length + marker + count - placed)
    return Option(
        source=source,
        colour=_COLOURS[colour],
        count=count,
        destination=row,
        to_floor=row == FLOOR,
        placed=placed,
        overflow=count - placed,
        takes_marker=marker,
        completes=completes,
        points=points if completes else 0,
        cost=FLOOR_COSTS[after] - FLOOR_COSTS[length],
        action_id=ActionEncoder.encode(action),
    )


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
