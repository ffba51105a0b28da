"""Entities of a position as one player sees it, including the legal moves.

`kernels.entities` computes their feature rows, in the field order of the classes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_type_hints

from entity_env import HIDDEN
from entity_env.games.azul.engine.engine import legal_ids
from entity_env.games.azul.engine.rules import COLOURS, NUM_COLOURS, num_factories
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.kernels.entities import (
    SCRATCH_SIZES,
    EntityRows,
    Scratch,
    write_options,
    write_table,
)

Five = tuple[int, int, int, int, int]
"""By color (blue, yellow, red, black, white), or by line from the top."""


class Colour(Enum):
    """Color of tiles."""

    BLUE = 0
    YELLOW = 1
    RED = 2
    BLACK = 3
    WHITE = 4


class Filling(Enum):
    """Color of a pattern line, which may be empty."""

    EMPTY = -1
    BLUE = 0
    YELLOW = 1
    RED = 2
    BLACK = 3
    WHITE = 4


@dataclass(slots=True)
class Table:
    """The table, and the standing of the observer."""

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
    """A factory or the center, empty or not."""

    is_centre: bool
    tiles: Five
    total: int
    has_marker: bool


@dataclass(slots=True)
class Group:
    """The tiles of one color at one source."""

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
    """A legal move of the observer."""

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
    action_id: int = field(default=-1, metadata=HIDDEN)


ENTITIES: Final = (Table, Source, Group, Seat, Line, WallRow)
"""All types except the options."""

MoveId = Enum(  # type: ignore[misc]
    "MoveId",
    {
        f"{colour}_from_{source}_to_{place}": (source_id * NUM_COLOURS + colour_id) * 6 + place_id
        for source_id, source in enumerate([*(f"factory_{i}" for i in range(9)), "centre"])
        for colour_id, colour in enumerate(COLOURS)
        for place_id, place in enumerate([*(f"line_{i}" for i in range(5)), "floor"])
    },
)
"""All moves; value and index of a member are its id."""


Shown = TypeVar("Shown")

_MEMBERS: Final[Mapping[object, tuple[Enum, ...]]] = {
    kind: tuple(kind) for kind in (Colour, Filling)
}
_WIDTHS: Final[Mapping[object, int]] = {Five: 5, Colour: 5, Filling: 6}


class _Reader(Generic[Shown]):
    def __init__(self, entity: type[Shown]) -> None:
        self._entity: Final = entity
        types = get_type_hints(entity)
        shown = [each for each in fields(cast(Any, entity)) if each.metadata != HIDDEN]
        ends, at = [], 0
        for each in shown:
            at += _WIDTHS.get(types[each.name], 1)
            ends.append(at)
        self._places: Final = [
            (types[each.name], start, end)
            for each, start, end in zip(shown, [0, *ends], ends, strict=False)
        ]
        self.width: Final = at

    def empty(self, count: int) -> list[list[int]]:
        return [[0] * self.width for _ in range(count)]

    def read(self, rows: Sequence[Sequence[int]]) -> list[Shown]:
        return [self._entity(*self._values(row)) for row in rows]

    def _values(self, row: Sequence[int]) -> Iterator[object]:
        for kind, start, end in self._places:
            if kind is int:
                yield row[start]
            elif kind is bool:
                yield bool(row[start])
            elif kind in _MEMBERS:
                yield _MEMBERS[kind][row.index(1, start) - start]
            else:
                yield tuple(row[start:end])


class Entities(NamedTuple):
    """One player's view of a position, without the options.

    Attributes:
        table: a single one.
        sources: all factories in order, then the center.
        groups: what can be taken, ordered by source and color.
        seats: players, the observer first.
        lines, walls: rows from the top, player by player.
    """

    table: list[Table]
    sources: list[Source]
    groups: list[Group]
    seats: list[Seat]
    lines: list[Line]
    walls: list[WallRow]


_READERS: Final[tuple[_Reader[Any], ...]] = (
    *(_Reader(Table), _Reader(Source), _Reader(Group)),
    *(_Reader(Seat), _Reader(Line), _Reader(WallRow)),
)
_OPTIONS: Final = _Reader(Option)


def entities_of(state: GameState, player: int) -> Entities:
    """One player's view of a position, without the options."""
    players = state.num_players
    sources = num_factories(players) + 1
    counts = (1, sources, NUM_COLOURS * sources, players, 5 * players, 5 * players)
    rows = [reader.empty(count) for reader, count in zip(_READERS, counts, strict=True)]
    num_groups = write_table(state.words, player, 0, 0, EntityRows(*[*rows, []]))
    del rows[2][num_groups:]
    read: list[Any] = [reader.read(each) for reader, each in zip(_READERS, rows, strict=True)]
    return Entities(*read)


def options_of(state: GameState) -> list[Option]:
    """Legal moves in id order."""
    ids = legal_ids(state)
    rows = _OPTIONS.empty(len(ids))
    write_options(state.words, Scratch(*([0] * size for size in SCRATCH_SIZES)), rows)
    options = _OPTIONS.read(rows)
    for option, action_id in zip(options, ids, strict=True):
        option.action_id = action_id
    return options
