"""A position as entities, seen from the seat of one player, legal moves included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Final

from entity_env.authoring.entity_type import HIDDEN
from entity_env.games.azul.engine.actions import Action, ActionEncoder
from entity_env.games.azul.engine.engine import destinations, legal_actions
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
    COLOURS,
    COLUMNS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    ROWS,
    column_of,
)
from entity_env.games.azul.engine.state import GameState, Player
from entity_env.games.azul.players.heuristics import (
    POINT,
    BoardValues,
    greedy_worth,
    pending_points,
    pending_wall,
)

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
    """The table, and how the observer stands."""

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


def five(counts: list[int] | tuple[int, ...]) -> Five:
    """Counts by colour as a tuple."""
    blue, yellow, red, black, white = counts
    return blue, yellow, red, black, white


_BITS: Final = {bits: five([bits >> i & 1 for i in range(NUM_COLOURS)]) for bits in range(32)}


def table_of(state: GameState, player: int) -> Table:
    """The table; `seat` is the number of players before this one in a round."""
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
    """Points of a player if the round ended now, without the limit at 0."""
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
    """The groups that can be taken, by source in order and by colour."""
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
    """The players, the observer first."""
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
        WallRow(seat, row, _BITS[cells], five([cells >> at & 1 for at in _columns(row)]))
        for seat, i in _order(state, player)
        for row in range(NUM_LINES)
        for cells in [state.players[i].wall >> 5 * row & 31]
    ]


def _columns(row: int) -> list[int]:
    return [column_of(row, colour) for colour in range(NUM_COLOURS)]


def _order(state: GameState, player: int) -> list[tuple[int, int]]:
    """Seats counted from a player, with the index of the player there."""
    return [(seat, (player + seat) % state.num_players) for seat in range(state.num_players)]


ENTITIES: Final = (Table, Source, Group, Seat, Line, WallRow)
"""All entity types but the options."""

MoveId = Enum(  # type: ignore[misc]
    "MoveId",
    {
        f"{colour}_from_{source}_to_{place}": (source_id * NUM_COLOURS + colour_id) * 6 + place_id
        for source_id, source in enumerate([*(f"factory_{i}" for i in range(9)), "centre"])
        for colour_id, colour in enumerate(COLOURS)
        for place_id, place in enumerate([*(f"line_{i}" for i in range(5)), "floor"])
    },
)
"""Every move as a member; its value and index is its id."""


_NOTHING: Final = -(2**62)

Values = tuple[int, ...]
"""Values of the best moves by destination, in hundredths; `_NOTHING` where there is none."""


def options_of(state: GameState) -> list[Option]:
    """The legal moves in the order of their ids."""
    mine = _Board(state.players[state.current_player])
    theirs = _Board(state.players[(state.current_player + 1) % state.num_players])
    sources = _sources(state)
    ahead = cache(lambda source, colour: _look_ahead(state, sources, source, colour, mine, theirs))
    return [_option(state, sources, action, mine, ahead) for action in legal_actions(state)]


class _Board(BoardValues):
    """A board with its greedy values, each computed once."""

    def __init__(self, player: Player) -> None:
        super().__init__(player, greedy_worth)
        self.wall = pending_wall(player)
        self.pending = pending_points(player)
        self.fits = destinations(player)
        self.points: Callable[[int, int], int] = cache(
            lambda row, colour: pending_points(player, row, colour) - self.pending
        )
        self.values: Callable[[int, int, bool], Values] = cache(self._values)

    def best(self, sources: Sequence[Sequence[int]], marker: bool) -> Values:
        found = [
            self.values(colour, count, marker and source == CENTRE)
            for source, tiles in enumerate(sources)
            for colour, count in enumerate(tiles)
            if count
        ]
        return tuple(map(max, zip(*found, strict=True)))

    def _values(self, colour: int, count: int, takes_marker: bool) -> Values:
        fits = self.fits[colour]
        return tuple(
            self.move_value(colour, count, takes_marker, row) if fits >> row & 1 else _NOTHING
            for row in range(NUM_LINES + 1)
        )


def _sources(state: GameState) -> list[Sequence[int]]:
    """Tiles by colour of all ten sources; unused ones are empty."""
    missing = [(0,) * NUM_COLOURS] * (CENTRE - len(state.factories))
    return [*state.factories, *missing, state.centre]


def _look_ahead(
    state: GameState,
    sources: Sequence[Sequence[int]],
    source: int,
    colour: int,
    mine: _Board,
    theirs: _Board,
) -> tuple[Values, int] | None:
    """Values of the player's best moves and of the next player's best after a group is taken; None:
    nothing is left."""
    rest = [0 if i == colour else count for i, count in enumerate(sources[source])]
    after = list(sources)
    if source == CENTRE:
        after[CENTRE] = rest
    else:
        after[source] = [0] * NUM_COLOURS
        after[CENTRE] = [a + b for a, b in zip(sources[CENTRE], rest, strict=True)]
    if not any(map(any, after)):
        return None
    marker = state.marker == NOBODY and source != CENTRE
    return mine.best(after, marker), max(theirs.best(after, marker))


def _option(
    state: GameState,
    sources: Sequence[Sequence[int]],
    action: Action,
    mine: _Board,
    look_ahead: Callable[[int, int], tuple[Values, int] | None],
) -> Option:
    source, colour, row = action
    count = sources[source][colour]
    held = 0 if row == FLOOR else mine.player.line_counts[row]
    room = 0 if row == FLOOR else row + 1 - held
    placed = min(count, room)
    marker = source == CENTRE and state.marker == NOBODY
    completes = row != FLOOR and placed == room
    others = [tiles[colour] for i, tiles in enumerate(sources) if i != source and tiles[colour]]
    cells = _cells(mine.wall, row, colour)
    seen = look_ahead(source, colour)
    again, reply = (0, 0) if seen is None else (_most(seen[0], row), seen[1])
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
        points=mine.points(row, colour) if completes else 0,
        cost=mine.floor_cost(marker + count - placed),
        line=_BITS[1 << row & 31],
        left=room - placed,
        is_fresh=row != FLOOR and held == 0,
        row_tiles=cells[0],
        column_tiles=cells[1],
        colour_tiles=cells[2],
        fills_row=completes and cells[0] == NUM_COLOURS - 1,
        worth=0.0 if row == FLOOR else mine.worth(row, colour) / POINT,
        value=mine.move_value(colour, count, marker, row) / POINT,
        ends_round=seen is None,
        rest=sum(sources[source]) - count,
        elsewhere=sum(others),
        exact=others.count(room - placed),
        enough=sum(other >= room - placed for other in others) if room > placed else 0,
        again=again / POINT,
        reply=reply / POINT,
        action_id=ActionEncoder.encode(action),
    )


def _cells(wall: int, row: int, colour: int) -> tuple[int, int, int]:
    """Tiles in the row, the column and the colour of a cell of a wall; none for the floor."""
    if row == FLOOR:
        return 0, 0, 0
    column = column_of(row, colour)
    row_tiles, column_tiles, colour_tiles = (
        (wall & cells).bit_count() for cells in (ROWS[row], COLUMNS[column], COLOUR_CELLS[colour])
    )
    return row_tiles, column_tiles, colour_tiles


def _most(values: Values, row: int) -> int:
    """The highest value, without the line that the move has changed."""
    return max(value for i, value in enumerate(values) if i != row or row == FLOOR)
