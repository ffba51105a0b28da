"""Reads a state that `GameState.to_dict` wrote down, and checks that it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from entity_env.core.validation import is_index, is_integer
from entity_env.errors import SchemaError, shown
from entity_env.games.azul.engine.rules import (
    COLOURS,
    FLOOR_SLOTS,
    MARKER,
    MAX_PLAYERS,
    MIN_PLAYERS,
    NO_COLOUR,
    NOBODY,
    NUM_COLOURS,
    NUM_LINES,
    TILES_PER_COLOUR,
    TILES_PER_FACTORY,
    column_of,
    num_factories,
)
from entity_env.games.azul.engine.state import ENDS, GameState, Player, is_table_empty
from entity_env.games.azul.engine.tile_draws import Draw, RandomSource, checked_rng


def read_state(
    data: Mapping[str, object], *, rng: RandomSource | None, draw: Draw | None
) -> GameState:
    """See `GameState.from_dict`."""
    if not isinstance(data, Mapping):
        _fail("data", "must be a mapping", data)
    state = GameState()
    state.num_players = _index(data, "num_players", MIN_PLAYERS, MAX_PLAYERS)
    last = state.num_players - 1
    state.current_player = _index(data, "current_player", 0, last)
    state.starting_player = _index(data, "starting_player", 0, last)
    state.marker = _index(data, "marker", NOBODY, last)
    state.round = _index(data, "round", 1, 2**31)
    end = _value(data, "end")
    if end is not None and not (isinstance(end, str) and end in ENDS):
        _fail("end", f"must be None or one of {', '.join(ENDS)}", end)
    state.end = None if end is None else ENDS[ENDS.index(end)]
    factories = _items(data, "factories", num_factories(state.num_players))
    state.factories = [_factory(tiles, f"factories[{i}]") for i, tiles in enumerate(factories)]
    state.centre = _counts(_value(data, "centre"), "centre")
    state.bag = _counts(_value(data, "bag"), "bag")
    state.lid = _counts(_value(data, "lid"), "lid")
    players = _items(data, "players", state.num_players)
    state.players = [_player(player, f"players[{i}]") for i, player in enumerate(players)]
    state.rng = checked_rng(rng)
    state.draw = draw
    _check_tiles(state)
    return state


def _check_tiles(state: GameState) -> None:
    for colour, count in enumerate(count_tiles(state)):
        if count != TILES_PER_COLOUR:
            _fail("the state", f"must have {TILES_PER_COLOUR} {COLOURS[colour]} tiles", count)
    if is_table_empty(state) is (state.end is None):
        got = "neither" if state.end is None else "both"
        _fail("the state", "must have tiles on the table, or an end", got)
    for i, player in enumerate(state.players):
        if MARKER in player.floor and state.marker != i:
            _fail(
                f"players[{i}].floor", f"must not have the marker of player {state.marker}", MARKER
            )


def count_tiles(state: GameState) -> list[int]:
    """How many tiles of each colour there are, wherever they lie: 20 of each, always."""
    return [_count_colour(state, colour) for colour in range(NUM_COLOURS)]


def _count_colour(state: GameState, colour: int) -> int:
    count = state.bag[colour] + state.lid[colour] + state.centre[colour]
    count += sum(tiles[colour] for tiles in state.factories)
    for player in state.players:
        lines = zip(player.line_colours, player.line_counts, strict=True)
        count += sum(number for other, number in lines if other == colour)
        count += player.floor.count(colour)
        count += sum(player.wall >> 5 * row + column_of(row, colour) & 1 for row in range(5))
    return count


def _player(data: object, where: str) -> Player:
    if not isinstance(data, Mapping):
        _fail(where, "must be a mapping", data)
    player = Player()
    player.score = _index(data, "score", 0, 2**31, where)
    player.wall = _index(data, "wall", 0, 2**25 - 1, where)
    for row, line in enumerate(_items(data, "lines", NUM_LINES, where)):
        colour, count = _pair(line, f"{where}.lines[{row}]", row)
        player.line_colours[row], player.line_counts[row] = colour, count
        if count and player.wall >> 5 * row + column_of(row, colour) & 1:
            _fail(f"{where}.lines[{row}]", "must not have a colour of its wall row", line)
    floor = _value(data, "floor", where)
    if not isinstance(floor, Sequence) or len(floor) > FLOOR_SLOTS:
        _fail(f"{where}.floor", f"must be at most {FLOOR_SLOTS} tiles", floor)
    if not all(is_index(tile, MARKER + 1) for tile in floor) or list(floor).count(MARKER) > 1:
        _fail(f"{where}.floor", "must be colours, 0 to 4, and at most one marker, 5", floor)
    player.floor = [int(tile) for tile in floor]
    return player


def _pair(line: object, where: str, row: int) -> tuple[int, int]:
    if not isinstance(line, Sequence) or len(line) != 2:
        _fail(where, "must be a colour and a count", line)
    colour, count = line
    is_empty = colour == NO_COLOUR and count == 0
    if not is_empty and not (is_index(colour, NUM_COLOURS) and is_index(count, row + 2) and count):
        _fail(where, f"must be [-1, 0], or a colour and a count from 1 to {row + 1}", line)
    return int(colour), int(count)


def _factory(values: object, where: str) -> tuple[int, ...]:
    counts = _counts(values, where, TILES_PER_FACTORY)
    if sum(counts) > TILES_PER_FACTORY:
        _fail(where, f"must be at most {TILES_PER_FACTORY} tiles", values)
    return tuple(counts)


def _counts(values: object, where: str, most: int = TILES_PER_COLOUR) -> list[int]:
    if not isinstance(values, Sequence) or len(values) != NUM_COLOURS:
        _fail(where, f"must be {NUM_COLOURS} counts", values)
    if not all(is_index(count, most + 1) for count in values):
        _fail(where, f"must be counts from 0 to {most}", values)
    return [int(count) for count in values]


def _index(data: Mapping[str, object], name: str, least: int, most: int, where: str = "") -> int:
    value = _value(data, name, where)
    if not is_integer(value) or not least <= value <= most:
        _fail(f"{where}.{name}" if where else name, f"must be from {least} to {most}", value)
    return int(value)


def _items(data: Mapping[str, object], name: str, count: int, where: str = "") -> Sequence[object]:
    values = _value(data, name, where)
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != count:
        _fail(f"{where}.{name}" if where else name, f"must be {count} items", values)
    return values


def _value(data: Mapping[str, object], name: str, where: str = "") -> object:
    if name not in data:
        _fail(f"{where}.{name}" if where else name, "must be there", "nothing")
    return data[name]


def _fail(where: str, what: str, got: object) -> NoReturn:
    raise SchemaError(f"Azul: GameState.from_dict: {where} {what}, got {shown(got)}")
