"""Legal moves as entities, each with what a player of the board game would look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from entity_env.games.azul.engine.actions import Action, ActionEncoder
from entity_env.games.azul.engine.engine import destinations, legal_actions
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_CELLS,
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
from entity_env.games.azul.entities import Colour, Five, Option
from entity_env.games.azul.players.heuristics import (
    POINT,
    greedy_worth,
    pending_points,
    pending_wall,
)

_COLOURS: Final = tuple(Colour)
_NOTHING: Final = -(2**62)
_LINES: Final[tuple[Five, ...]] = (
    (1, 0, 0, 0, 0),
    (0, 1, 0, 0, 0),
    (0, 0, 1, 0, 0),
    (0, 0, 0, 1, 0),
    (0, 0, 0, 0, 1),
    (0, 0, 0, 0, 0),
)

Values = tuple[int, ...]
"""What the best move is worth by destination, in hundredths; `_NOTHING` where there is none."""


def options_of(state: GameState) -> list[Option]:
    """The legal moves in the order of their ids."""
    mine = _Eyes(state.players[state.current_player])
    theirs = _Eyes(state.players[(state.current_player + 1) % state.num_players])
    sources = _sources(state)
    look_on = cache(lambda source, colour: _look_on(state, sources, source, colour, mine, theirs))
    return [_option(state, sources, action, mine, look_on) for action in legal_actions(state)]


class _Eyes:
    """A board as `GreedyAgent` looks at it; what it found once it remembers.

    Args:
        player: whose board; it must not change meanwhile.
    """

    def __init__(self, player: Player) -> None:
        self.player = player
        self.wall = pending_wall(player)
        self.pending = pending_points(player)
        self.fits = destinations(player)
        self.worth: Callable[[int, int], int] = cache(lambda r, c: greedy_worth(player, r, c))
        self.points: Callable[[int, int], int] = cache(
            lambda row, colour: pending_points(player, row, colour) - self.pending
        )
        self.values: Callable[[int, int, bool], Values] = cache(self._values)

    def value(self, colour: int, count: int, takes_marker: bool, row: int) -> int:
        """What a move is worth, in hundredths of a point: as `heuristics.move_values`."""
        value = 0
        if row != FLOOR:
            room = row + 1 - self.player.line_counts[row]
            placed = min(count, room)
            count -= placed
            full = self.worth(row, colour)
            value = full if placed == room else full * placed // (2 * row + 2)
        return value - POINT * self.cost(takes_marker + count)

    def cost(self, count: int) -> int:
        """Points that so many more on the floor cost."""
        length = len(self.player.floor)
        return FLOOR_COSTS[min(FLOOR_SLOTS, length + count)] - FLOOR_COSTS[length]

    def best(self, sources: Sequence[Sequence[int]], marker: bool) -> Values:
        """The most that a move is worth, by destination; nothing for what cannot be."""
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
            self.value(colour, count, takes_marker, row) if fits >> row & 1 else _NOTHING
            for row in range(NUM_LINES + 1)
        )


def _sources(state: GameState) -> list[Sequence[int]]:
    """Tiles by colour of every source, by its number; those that are not in the game are empty."""
    missing = [(0,) * NUM_COLOURS] * (CENTRE - len(state.factories))
    return [*state.factories, *missing, state.centre]


def _look_on(
    state: GameState,
    sources: Sequence[Sequence[int]],
    source: int,
    colour: int,
    mine: _Eyes,
    theirs: _Eyes,
) -> tuple[Values, int] | None:
    """My best moves and the next player's best one once a group is taken; None: nothing is left."""
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
    mine: _Eyes,
    look_on: Callable[[int, int], tuple[Values, int] | None],
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
    seen = look_on(source, colour)
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
        cost=mine.cost(marker + count - placed),
        line=_LINES[row],
        left=room - placed,
        is_fresh=row != FLOOR and held == 0,
        row_tiles=cells[0],
        column_tiles=cells[1],
        colour_tiles=cells[2],
        fills_row=completes and cells[0] == NUM_COLOURS - 1,
        worth=0.0 if row == FLOOR else mine.worth(row, colour) / POINT,
        value=mine.value(colour, count, marker, row) / POINT,
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
    """The most of them, but for a line that is no longer as it was."""
    return max(value for i, value in enumerate(values) if i != row or row == FLOOR)
