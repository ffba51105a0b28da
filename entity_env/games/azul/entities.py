"""A position as entities, seen from the seat of one player, legal moves included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Final, NamedTuple, TypeAlias

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
    pending_points,
    pending_wall,
)

Five = tuple[int, int, int, int, int]
"""A number for each colour, blue, yellow, red, black, white; or for each line, from the top."""
_Counts: TypeAlias = tuple[int, ...]


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
    floor: int
    next_floor: int
    my_room: Five
    my_points: Five
    next_room: Five
    next_points: Five


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
    line_points: int
    ends_round: bool
    rest: int
    elsewhere: int
    exact: int
    enough: int
    groups: int
    centre: Five
    my_lines: Five
    next_lines: Five
    my_drop: int
    next_drop: int
    next_held: int
    next_room: int
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
    mine, following, *_ = others = [state.players[i] for _, i in _order(state, player)]
    others = others[1:]
    return Table(
        round=state.round,
        num_players=state.num_players,
        seat=(player - state.starting_player) % state.num_players,
        marker_in_centre=state.marker == NOBODY,
        bag=five(state.bag),
        lid=five(state.lid),
        tiles=sum(map(sum, state.factories)) + sum(state.centre),
        lead=standing_of(mine) - max(map(standing_of, others)),
        my_row=fullest_row(mine),
        their_row=max(map(fullest_row, others)),
        floor=len(mine.floor),
        next_floor=len(following.floor),
        my_room=_room(mine),
        my_points=_begun_points(mine),
        next_room=_room(following),
        next_points=_begun_points(following),
    )


def _room(player: Player) -> Five:
    """The room of each pattern line."""
    return five([row + 1 - count for row, count in enumerate(player.line_counts)])


def _begun_points(player: Player) -> Five:
    """What each line that is begun, but not full, would bring by the next tiling if it were."""
    pending = pending_points(player)
    return five(
        [
            pending_points(player, row, player.line_colours[row]) - pending
            if 0 < count <= row
            else 0
            for row, count in enumerate(player.line_counts)
        ]
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


def options_of(state: GameState) -> list[Option]:
    """The legal moves in the order of their ids."""
    mine = _Board(state.players[state.current_player])
    theirs = _Board(state.players[(state.current_player + 1) % state.num_players])
    sources = _sources(state)
    left = cache(lambda source, colour: _left(sources, source, colour))
    return [
        _option(state, sources, left(action.source, action.colour), action, mine, theirs)
        for action in legal_actions(state)
    ]


class _Board:
    """A board, its full lines as if they were on the wall; points are computed once."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.wall = pending_wall(player)
        self.fits = destinations(player)
        self.room = _room(player)
        pending = pending_points(player)
        self.points: Callable[[int, int], int] = cache(
            lambda row, colour: pending_points(player, row, colour) - pending
        )
        self.completed: Callable[[_Counts], Five] = cache(self._completed)
        self.drops: Callable[[_Counts, int], int] = cache(self._drops)

    def floor_cost(self, count: int) -> int:
        """Points that so many more tiles on the floor cost."""
        length = len(self.player.floor)
        return FLOOR_COSTS[min(FLOOR_SLOTS, length + count)] - FLOOR_COSTS[length]

    def begun(self, colour: int) -> tuple[int, int]:
        """Tiles and room of all lines that are begun with a colour, but not full."""
        counts, colours = self.player.line_counts, self.player.line_colours
        rows = [row for row in range(NUM_LINES) if colours[row] == colour and self.room[row]]
        return sum(counts[row] for row in rows), sum(self.room[row] for row in rows)

    def _completed(self, most: _Counts) -> Five:
        """`_Left.most` by colour to, for each line, how many of the colours can complete it."""
        return five(
            [
                sum(
                    self.fits[colour] >> row & 1 and count >= self.room[row]
                    for colour, count in enumerate(most)
                )
                for row in range(NUM_LINES)
            ]
        )

    def _drops(self, least: _Counts, but: int) -> int:
        """The fewest tiles of a group for which no line has room, one line left out."""
        return min(
            (
                max(0, count - self._most_room(colour, but))
                for colour, count in enumerate(least)
                if count
            ),
            default=0,
        )

    def _most_room(self, colour: int, but: int) -> int:
        fits = self.fits[colour]
        return max(
            (room for row, room in enumerate(self.room) if row != but and fits >> row & 1),
            default=0,
        )


class _Left(NamedTuple):
    """What is on offer once a group is taken: the number of groups, the tiles of the centre, and
    for each colour the tiles of the largest and of the smallest group, 0 if there is none."""

    groups: int
    centre: Five
    most: _Counts
    least: _Counts


def _sources(state: GameState) -> list[Sequence[int]]:
    """Tiles by colour of all ten sources; unused ones are empty."""
    missing = [(0,) * NUM_COLOURS] * (CENTRE - len(state.factories))
    return [*state.factories, *missing, state.centre]


def _left(sources: Sequence[Sequence[int]], source: int, colour: int) -> _Left:
    after = list(sources)
    after[source] = [0 if i == colour else count for i, count in enumerate(sources[source])]
    if source != CENTRE:
        after[CENTRE] = [a + b for a, b in zip(sources[CENTRE], after[source], strict=True)]
        after[source] = (0,) * NUM_COLOURS
    groups = [[count for count in counts if count] for counts in zip(*after, strict=True)]
    return _Left(
        groups=sum(map(len, groups)),
        centre=five(list(after[CENTRE])),
        most=tuple(max(counts, default=0) for counts in groups),
        least=tuple(min(counts, default=0) for counts in groups),
    )


def _option(
    state: GameState,
    sources: Sequence[Sequence[int]],
    after: _Left,
    action: Action,
    mine: _Board,
    theirs: _Board,
) -> Option:
    source, colour, row = action
    count = sources[source][colour]
    room = 0 if row == FLOOR else mine.room[row]
    placed = min(count, room)
    marker = source == CENTRE and state.marker == NOBODY
    completes = row != FLOOR and placed == room
    others = [tiles[colour] for i, tiles in enumerate(sources) if i != source and tiles[colour]]
    cells = _cells(mine.wall, row, colour)
    line_points = 0 if row == FLOOR else mine.points(row, colour)
    completed = [0 if i == row else count for i, count in enumerate(mine.completed(after.most))]
    next_held, next_room = theirs.begun(colour)
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
        points=line_points if completes else 0,
        cost=mine.floor_cost(marker + count - placed),
        line=_BITS[1 << row & 31],
        left=room - placed,
        is_fresh=row != FLOOR and room == row + 1,
        row_tiles=cells[0],
        column_tiles=cells[1],
        colour_tiles=cells[2],
        fills_row=completes and cells[0] == NUM_COLOURS - 1,
        line_points=line_points,
        ends_round=not after.groups,
        rest=sum(sources[source]) - count,
        elsewhere=sum(others),
        exact=others.count(room - placed),
        enough=sum(other >= room - placed for other in others) if room > placed else 0,
        groups=after.groups,
        centre=after.centre,
        my_lines=five(completed),
        next_lines=theirs.completed(after.most),
        my_drop=mine.drops(after.least, row),
        next_drop=theirs.drops(after.least, FLOOR),
        next_held=next_held,
        next_room=next_room,
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
