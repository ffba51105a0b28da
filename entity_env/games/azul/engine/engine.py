"""The rules, written to be read: the reference that the compiled engine is compared with.

A move is `take`. The one that empties the table also ends the round: `tile_walls`, and then either
`finish_game` or `begin_round`; `apply_in_place` puts these together. Official rules of the base
game; where they are silent: a marker taken with a full floor costs nothing, if it was not taken the
old starter begins again, and a game in which no wall can ever change again is over.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from entity_env.core.validation import checked_index, is_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.azul.engine.actions import (
    ACTIONS,
    Action,
    ActionEncoder,
    IllegalAction,
)
from entity_env.games.azul.engine.rules import (
    CENTRE,
    FLOOR,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MARKER,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NO_COLOUR,
    NOBODY,
    NUM_COLOURS,
    NUM_DESTINATIONS,
    NUM_LINES,
    NUM_SOURCES,
    TILES_PER_COLOUR,
    TILES_PER_FACTORY,
    bonus_points,
    column_of,
    full_rows,
    num_factories,
    placement_points,
    score_after,
)
from entity_env.games.azul.engine.state import End, GameState, Player, is_table_empty
from entity_env.games.azul.engine.tile_draws import (
    Draw,
    RandomSource,
    checked_rng,
    deal_numbers,
    uniform_draw,
)

_EMPTY: Final = (0,) * NUM_COLOURS


def new_game(
    num_players: int,
    *,
    starting_player: int = 0,
    rng: RandomSource | None = None,
    draw: Draw | None = None,
) -> GameState:
    """Deals the first round.

    Args:
        num_players: 2 to 4.
        starting_player: the player that begins.
        rng: draws the tiles of all rounds; with a random seed if left out.
        draw: draws them instead, so that a recorded game can be replayed; see `Draw`.

    Raises:
        UsageError: an invalid number of players, starting player or source of numbers.
        SchemaError: `draw` returns a colour that is not in the bag.
    """
    check_seats(num_players, starting_player)
    state = GameState()
    state.num_players = int(num_players)
    state.current_player = state.starting_player = int(starting_player)
    state.marker = NOBODY
    state.round = 1
    state.end = None
    state.factories = [_EMPTY] * num_factories(state.num_players)
    state.centre = [0] * NUM_COLOURS
    state.bag = [TILES_PER_COLOUR] * NUM_COLOURS
    state.lid = [0] * NUM_COLOURS
    state.players = [Player() for _ in range(state.num_players)]
    state.rng = checked_rng(rng)
    state.draw = draw
    deal(state)
    return state


def check_seats(num_players: int, starting_player: int) -> None:
    """Checks arguments of `new_game`."""
    if not is_index(num_players, MAX_PLAYERS + 1) or num_players < MIN_PLAYERS:
        raise UsageError(f"Azul: num_players must be 2, 3 or 4, got {num_players!r}")
    checked_index("Azul: starting_player", starting_player, num_players)


# ------------------------------------------------------------------------------------ what is legal


def legal_actions(state: GameState) -> list[Action]:
    """The legal actions in ascending order of their ids; none when the game is over."""
    if state.end is not None:
        return []
    actions: list[Action] = []
    fits = destinations(state.players[state.current_player])
    for source, tiles in enumerate(state.factories):
        for colour in _colours_among(tiles):
            actions += _MOVES[source][colour][fits[colour]]
    for colour, count in enumerate(state.centre):
        if count:
            actions += _MOVES[CENTRE][colour][fits[colour]]
    return actions


def is_legal(state: GameState, action: Action) -> bool:
    """Whether an action is one of the `legal_actions`."""
    return action in legal_actions(state)


def destinations(player: Player) -> list[int]:
    """Where a player may put each colour: 6 bits, bit i for destination i."""
    fits = [1 << FLOOR] * NUM_COLOURS
    for row, count in enumerate(player.line_counts):
        if count == 0:
            for colour in _MISSING[row][player.wall >> 5 * row & 31]:
                fits[colour] |= 1 << row
        elif count <= row:
            fits[player.line_colours[row]] |= 1 << row
    return fits


@cache
def _colours_among(tiles: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(colour for colour, count in enumerate(tiles) if count)


_MISSING: Final = [
    [
        [colour for colour in range(NUM_COLOURS) if not cells >> column_of(row, colour) & 1]
        for cells in range(32)
    ]
    for row in range(NUM_LINES)
]
"""Colours that a row of the wall lacks, by row and its cells."""

_MOVES: Final = [
    [
        [
            [
                ACTIONS[6 * (5 * source + colour) + i]
                for i in range(NUM_DESTINATIONS)
                if fits >> i & 1
            ]
            for fits in range(64)
        ]
        for colour in range(NUM_COLOURS)
    ]
    for source in range(NUM_SOURCES)
]
"""Actions by source, colour and `destinations`."""


# ------------------------------------------------------------------------------------------- a move


def apply_action(state: GameState, action: Action) -> GameState:
    """The state after an action; the one given stays as it is.

    An action that ends a round tiles the walls, and deals the next round or ends the game.

    Raises:
        IllegalAction: the action is not legal, or the game is over.
        SchemaError: no action, a field that is no integer or out of range, or `draw` returns a
            colour that is not in the bag.
    """
    action = _checked(state, action)
    after = state.copy()
    apply_in_place(after, action, check=False)
    return after


def apply_in_place(state: GameState, action: Action, *, check: bool = True) -> None:
    """Applies an action to the state itself, which is about twice as fast.

    Args:
        state: changed; invalid afterwards if `draw` raises or returns a wrong colour.
        action: the move.
        check: False skips the check: the action must be legal.

    Raises:
        IllegalAction, SchemaError: as `apply_action` does, before anything changes.
    """
    if check:
        action = _checked(state, action)
    take(state, action)
    if not is_table_empty(state):
        state.current_player = (state.current_player + 1) % state.num_players
        return
    tile_walls(state)
    state.end = end_of_game(state)
    if state.end is None:
        begin_round(state)
    else:
        add_bonuses(state)


def _checked(state: GameState, action: Action) -> Action:
    """The action with fields that are plain integers: 2.0 is equal to 2, but no index."""
    checked = ActionEncoder.decode(ActionEncoder.encode(action))
    if not is_legal(state, checked):
        raise illegal(state, checked)
    return checked


def illegal(state: GameState, action: Action) -> IllegalAction:
    """The error for an action that is not legal, with the reason in terms of the board game."""
    player = state.current_player
    return IllegalAction(f"Azul: player {player} may not take {action}: {why_not(state, action)}")


def why_not(state: GameState, action: Action) -> str:
    """The reason why an action is not legal."""
    if state.end is not None:
        return f"the game is over ({state.end})"
    source, colour, row = action
    is_centre = source == CENTRE
    num_sources = len(state.factories)
    if not is_centre and source >= num_sources:
        return f"{state.num_players} players have factories 0 to {num_sources - 1}"
    if not (state.centre if is_centre else state.factories[source])[colour]:
        return "there is none"
    player = state.players[state.current_player]
    if player.line_counts[row] > row:
        return "the line is full"
    if player.line_counts[row]:
        return "the line has another colour"
    return "that row of the wall has the colour"


def take(state: GameState, action: Action) -> None:
    """Moves tiles from a source to a line and the floor, and the marker with the first from the
    centre; the turn does not pass on, and the round does not end. The action must be legal."""
    source, colour, destination = action
    player = state.players[state.current_player]
    centre = state.centre
    if source == CENTRE:
        count = centre[colour]
        centre[colour] = 0
        if state.marker == NOBODY:
            state.marker = state.current_player
            if len(player.floor) < FLOOR_SLOTS:
                player.floor.append(MARKER)
    else:
        tiles = state.factories[source]
        count = tiles[colour]
        state.factories[source] = _EMPTY
        for other in _colours_among(tiles):
            if other != colour:
                centre[other] += tiles[other]
    if destination != FLOOR:
        held = player.line_counts[destination]
        placed = min(count, destination + 1 - held)
        player.line_counts[destination] = held + placed
        player.line_colours[destination] = colour
        count -= placed
    if count:
        _drop(state, player, colour, count)


def _drop(state: GameState, player: Player, colour: int, count: int) -> None:
    """Tiles to the floor, and those beyond its slots to the lid."""
    dropped = min(count, FLOOR_SLOTS - len(player.floor))
    player.floor += [colour] * dropped
    state.lid[colour] += count - dropped


# ------------------------------------------------------------------------------- the end of a round


def tile_walls(state: GameState) -> list[tuple[int, int]]:
    """Moves the full lines of every player to the wall, scores, and clears the floors."""
    results = []
    for player in state.players:
        gain = _tile_wall(player, state.lid)
        results.append((gain, FLOOR_COSTS[len(player.floor)]))
        player.score = score_after(player.score, gain, len(player.floor))
        for colour in player.floor:
            if colour != MARKER:
                state.lid[colour] += 1
        player.floor.clear()
    return results


def _tile_wall(player: Player, lid: list[int]) -> int:
    """One tile of each full line to the wall, from the top, the others to the lid; the points."""
    gain = 0
    for row in range(NUM_LINES):
        if player.line_counts[row] == row + 1:
            colour = player.line_colours[row]
            column = column_of(row, colour)
            gain += placement_points(player.wall, row, column)
            player.wall |= 1 << 5 * row + column
            lid[colour] += row
            player.line_counts[row] = 0
            player.line_colours[row] = NO_COLOUR
    return gain


def end_of_game(state: GameState) -> End | None:
    """Whether the game is over right after a tiling, and why; None if it goes on."""
    if any(full_rows(player.wall) for player in state.players):
        return "row"
    colours = [colour for colour in range(NUM_COLOURS) if state.bag[colour] or state.lid[colour]]
    for player in state.players:
        fits = destinations(player)
        if any(fits[colour] != 1 << FLOOR for colour in colours):
            return None
    return "no_progress" if colours else "no_tiles"


def add_bonuses(state: GameState) -> None:
    """Adds the bonuses for rows, columns and colours of the final walls."""
    for player in state.players:
        player.score += bonus_points(player.wall)


def begin_round(state: GameState) -> None:
    """Deals, after a tiling; the holder of the marker begins; the marker returns to the centre."""
    state.starting_player = state.current_player = state.starting_player_next_round
    state.marker = NOBODY
    state.round += 1
    deal(state)


def deal(state: GameState) -> None:
    """Fills the factories tile by tile.

    The lid goes into the bag when a draw is needed and the bag is empty; when both are, the rest
    of the factories stays short.
    """
    num_tiles = TILES_PER_FACTORY * len(state.factories)
    draw = state.draw or uniform_draw(deal_numbers(state.rng, num_tiles))
    for i in range(len(state.factories)):
        tiles = [0] * NUM_COLOURS
        for _ in range(TILES_PER_FACTORY):
            if not any(state.bag):
                state.bag, state.lid = state.lid, state.bag
                if not any(state.bag):
                    break
            colour = draw(tuple(state.bag))
            if type(colour) is not int or not 0 <= colour < NUM_COLOURS or not state.bag[colour]:
                colour = _checked_colour(colour, state.bag)
            state.bag[colour] -= 1
            tiles[colour] += 1
        state.factories[i] = tuple(tiles)


def _checked_colour(colour: object, bag: list[int]) -> int:
    if is_index(colour, NUM_COLOURS) and bag[colour]:
        return int(colour)
    raise SchemaError(
        f"Azul: draw must return a colour that is in the bag, from 0 to {NUM_COLOURS - 1}: "
        f"got {colour!r}, the bag has {tuple(bag)} of each"
    )


# ------------------------------------------------------------------------------------------ results


def winners(state: GameState) -> list[int]:
    """The players with most points, and among those most full rows; more than one share the win.

    Before the end of the game: the leaders, without bonuses.
    """
    results = [(player.score, full_rows(player.wall)) for player in state.players]
    best = max(results)
    return [i for i, result in enumerate(results) if result == best]
