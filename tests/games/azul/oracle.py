"""The rules of Azul, written for readability: the oracle with which the package is compared.

A move is `take`. The last move of a round is followed by `tile_walls`, and then by the bonuses or
the next deal; `play` combines these. The oracle shares names with the package, but no code of the
rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from entity_env.games.azul import ACTIONS, Action, End, GameState, RandomSource
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOUR_BONUS,
    COLUMN_BONUS,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MARKER,
    NO_COLOUR,
    NOBODY,
    ROW_BONUS,
    TILES_PER_COLOUR,
    TILES_PER_FACTORY,
)

FIVE = range(5)


@dataclass
class Board:
    """The board of a player; `wall` holds its cells as (row, column)."""

    score: int = 0
    lines: list[list[int]] = field(default_factory=lambda: [[NO_COLOUR, 0] for _ in FIVE])
    wall: set[tuple[int, int]] = field(default_factory=set)
    floor: list[int] = field(default_factory=list)

    def has(self, row: int, colour: int) -> bool:
        """Whether a row of the wall has a color."""
        return (row, column_of(row, colour)) in self.wall

    def fits(self, row: int, colour: int) -> bool:
        """Whether tiles of a color may go to a pattern line."""
        held, count = self.lines[row]
        return count <= row and held in (NO_COLOUR, colour) and not self.has(row, colour)

    def to_dict(self) -> dict[str, object]:
        cells = sum(1 << 5 * row + column for row, column in self.wall)
        return {"score": self.score, "lines": self.lines, "wall": cells, "floor": self.floor}


@dataclass
class Position:
    """A position; attributes as in `GameState`."""

    players: list[Board]
    current_player: int
    starting_player: int
    rng: RandomSource
    factories: list[list[int]]
    marker: int = NOBODY
    round: int = 1
    end: End | None = None
    centre: list[int] = field(default_factory=lambda: [0] * 5)
    bag: list[int] = field(default_factory=lambda: [TILES_PER_COLOUR] * 5)
    lid: list[int] = field(default_factory=lambda: [0] * 5)

    def to_dict(self) -> dict[str, object]:
        """Like `GameState.to_dict`."""
        return {
            "num_players": len(self.players),
            "current_player": self.current_player,
            "starting_player": self.starting_player,
            "marker": self.marker,
            "round": self.round,
            "end": self.end,
            "factories": self.factories,
            "centre": self.centre,
            "bag": self.bag,
            "lid": self.lid,
            "players": [player.to_dict() for player in self.players],
        }


def new_game(num_players: int, starting_player: int, rng: RandomSource) -> Position:
    """Deals the first round."""
    boards = [Board() for _ in range(num_players)]
    factories = [[0] * 5 for _ in range(2 * num_players + 1)]
    position = Position(boards, starting_player, starting_player, rng, factories)
    deal(position)
    return position


def of(state: GameState, rng: RandomSource) -> Position:
    """Converts a position of the package."""
    boards = [
        Board(
            player.score,
            [list(line) for line in zip(player.line_colours, player.line_counts, strict=True)],
            {divmod(cell, 5) for cell in range(25) if player.wall >> cell & 1},
            list(player.floor),
        )
        for player in state.players
    ]
    return Position(
        boards,
        state.current_player,
        state.starting_player,
        rng,
        [list(tiles) for tiles in state.factories],
        state.marker,
        state.round,
        state.end,
        *(list(tiles) for tiles in (state.centre, state.bag, state.lid)),
    )


def column_of(row: int, colour: int) -> int:
    """The column of a color in a row of the wall."""
    return (colour + row) % 5


def legal_actions(position: Position) -> list[Action]:
    """The legal actions in ascending order of their ids."""
    board = position.players[position.current_player]
    return [
        action
        for action in ACTIONS
        if position.end is None
        and tiles_of(position, action.source)[action.colour]
        and (action.destination == FLOOR or board.fits(action.destination, action.colour))
    ]


def tiles_of(position: Position, source: int) -> list[int]:
    """Tiles of a source, by color; none if the game has no such factory."""
    if source == CENTRE:
        return position.centre
    return position.factories[source] if source < len(position.factories) else [0] * 5


def play(position: Position, action: Action) -> None:
    """Makes a legal move."""
    take(position, action)
    if any(position.centre) or any(map(any, position.factories)):
        position.current_player = (position.current_player + 1) % len(position.players)
        return
    for board in position.players:
        tile_wall(board, position.lid)
    position.end = end_of_game(position)
    if position.end is not None:
        for board in position.players:
            board.score += bonus(board.wall)
        return
    if position.marker != NOBODY:
        position.starting_player = position.marker
    position.current_player, position.marker = position.starting_player, NOBODY
    position.round += 1
    deal(position)


def take(position: Position, action: Action) -> None:
    """Moves tiles from a source to a line and the floor, and the marker with the first tiles from
    the center."""
    source, colour, row = action
    board, tiles = position.players[position.current_player], tiles_of(position, source)
    count, tiles[colour] = tiles[colour], 0
    if source != CENTRE:
        position.centre = [a + b for a, b in zip(position.centre, tiles, strict=True)]
        tiles[:] = [0] * 5
    elif position.marker == NOBODY:
        position.marker = position.current_player
        board.floor += [MARKER][: FLOOR_SLOTS - len(board.floor)]
    if row != FLOOR:
        placed = min(count, row + 1 - board.lines[row][1])
        board.lines[row] = [colour, board.lines[row][1] + placed]
        count -= placed
    dropped = min(count, FLOOR_SLOTS - len(board.floor))
    board.floor += [colour] * dropped
    position.lid[colour] += count - dropped


def tile_wall(board: Board, lid: list[int]) -> None:
    """Moves full lines to the wall from the top, scores, and clears the floor."""
    gain = 0
    for row, (colour, count) in enumerate(board.lines):
        if count == row + 1:
            cell = (row, column_of(row, colour))
            gain += placement_points(board.wall, *cell)
            board.wall.add(cell)
            board.lines[row] = [NO_COLOUR, 0]
            lid[colour] += row
    board.score = max(0, board.score + gain - FLOOR_COSTS[len(board.floor)])
    for tile in board.floor:
        if tile != MARKER:
            lid[tile] += 1
    board.floor = []


def placement_points(wall: set[tuple[int, int]], row: int, column: int) -> int:
    """Points for a tile: the lengths of those of its two runs that are longer than 1, or else 1."""
    across = 1 + reach(wall, row, column, 0, 1) + reach(wall, row, column, 0, -1)
    down = 1 + reach(wall, row, column, 1, 0) + reach(wall, row, column, -1, 0)
    return (across if across > 1 else 0) + (down if down > 1 else 0) or 1


def reach(wall: set[tuple[int, int]], row: int, column: int, down: int, right: int) -> int:
    """Number of consecutive tiles in a direction."""
    count = 0
    while (row + down * (count + 1), column + right * (count + 1)) in wall:
        count += 1
    return count


def end_of_game(position: Position) -> End | None:
    """The reason why the game is over right after a tiling; None if it continues."""
    if any(rows_of(board.wall) for board in position.players):
        return "row"
    colours = [colour for colour in FIVE if position.bag[colour] or position.lid[colour]]
    if any(board.fits(row, c) for board in position.players for row in FIVE for c in colours):
        return None
    return "no_progress" if colours else "no_tiles"


def rows_of(wall: set[tuple[int, int]]) -> int:
    """Number of full rows."""
    return sum(all((row, column) in wall for column in FIVE) for row in FIVE)


def bonus(wall: set[tuple[int, int]]) -> int:
    """Points at the end of the game, for full rows and columns and complete colors."""
    columns = sum(all((row, column) in wall for row in FIVE) for column in FIVE)
    colours = sum(all((row, column_of(row, c)) in wall for row in FIVE) for c in FIVE)
    return ROW_BONUS * rows_of(wall) + COLUMN_BONUS * columns + COLOUR_BONUS * colours


def deal(position: Position) -> None:
    """Fills the factories tile by tile, four each. If the bag is empty at a draw, the lid goes into
    it; if both are empty, the remaining factories stay short."""
    numbers = iter(position.rng.random(TILES_PER_FACTORY * len(position.factories)).tolist())
    for factory in position.factories:
        for _ in range(TILES_PER_FACTORY):
            if not any(position.bag):
                position.bag, position.lid = position.lid, position.bag
            if any(position.bag):
                tiles = np.repeat(FIVE, position.bag)
                colour = int(tiles[int(next(numbers) * len(tiles))])
                position.bag[colour] -= 1
                factory[colour] += 1
