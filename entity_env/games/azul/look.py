"""Azul drawn from observations, as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from rich.text import Text

from entity_env.games.azul.engine.actions import Action, ActionEncoder
from entity_env.games.azul.engine.rules import (
    COLOURS,
    FLOOR_COSTS,
    FLOOR_SLOTS,
    MARKER,
    NO_COLOUR,
    NOBODY,
    NUM_LINES,
    TILES_PER_COLOUR,
)
from entity_env.games.azul.engine.state import GameState, Player, count_tiles
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import end_of_game_packed
from entity_env.games.azul.kernels.packed_state import NUM_WORDS
from entity_env.games.azul.viewer import UNKNOWN, describe_move, draw_state
from entity_env.views import Look, Scene, SeenEntity, SeenObservation

_TILES: Final = dict(
    zip(COLOURS, ("#1c7ed6", "#fcc419", "#e03131", "#343a40", "#e3fafc"), strict=True)
)
_PAPER, _BOARD, _SLOT, _EDGE, _MINE = "#fdf8ef", "#ffffff", "#f1f3f5", "#dee2e6", "#1971c2"
_SOURCES_A_ROW: Final = 6
_SOURCE: Final = 2.75
_BOARD_SIZE: Final = (8.5, 8.7)
_COSTS: Final = np.diff(FLOOR_COSTS).tolist()


# ------------------------------------------------------------------ the position


def position_of(seen: SeenObservation, *, has_unknown: bool = False) -> GameState:
    """Position that a player sees, with all players in their original seats.

    One detail is not observed: which tiles lie on whose floor, if several floors hold tiles and
    their colors differ. The number of tiles on each floor is right, and all of them go to the lid,
    so nothing later depends on their colors.

    Args:
        seen: an observation of `azul` or `azul_by_id`, by the player to move, or after the last
            move.
        has_unknown: marks tiles of unknown color as `UNKNOWN`, for drawing; False gives them a
            possible color.
    """
    [table] = seen["Table"]
    state = GameState([0] * NUM_WORDS, np.random.default_rng(0))
    state.num_players = count = int(_number(table, "num_players"))
    state.current_player = seen.agent_id
    state.starting_player = (seen.agent_id - int(_number(table, "seat"))) % count
    state.round = int(_number(table, "round"))
    *factories, centre = (_counts(source, "tiles") for source in seen["Source"])
    state.factories = [tuple(tiles) for tiles in factories]
    state.centre, state.bag, state.lid = centre, _counts(table, "bag"), _counts(table, "lid")
    state.players = [Player() for _ in range(state.num_players)]
    state.marker = NOBODY
    for seat in seen["Seat"]:
        player = _player_of(seat, seen)
        state.players[player].score = int(_number(seat, "score"))
        if seat["holds_marker"]:
            state.marker = player
    for line in seen["Line"]:
        board, row = state.players[_player_of(line, seen)], int(_number(line, "row"))
        count = int(_number(line, "count"))
        board.set_line(row, _colour(line) if count else NO_COLOUR, count)
    for wall in seen["WallRow"]:
        cells = sum(1 << column for column, has in enumerate(_counts(wall, "cells")) if has)
        state.players[_player_of(wall, seen)].wall |= cells << 5 * int(_number(wall, "row"))
    _fill_floors(state, seen, has_unknown)
    if seen.observation.terminated:
        state.words[at.END] = end_of_game_packed(state.words)
    return state


def _fill_floors(state: GameState, seen: SeenObservation, has_unknown: bool) -> None:
    lengths = {_player_of(seat, seen): int(_number(seat, "floor")) for seat in seen["Seat"]}
    tiles = [
        colour
        for colour, count in enumerate(count_tiles(state))
        for _ in range(TILES_PER_COLOUR - count)
    ]
    if len(tiles) < sum(lengths.values()):  # a slot holds the marker, unless its floor was full
        state.players[state.marker].floor = (MARKER,)
    rooms = {i: length - len(state.players[i].floor) for i, length in lengths.items()}
    is_known = len(set(tiles)) == 1 or sum(map(bool, rooms.values())) == 1
    for i, room in rooms.items():
        taken, tiles = tiles[:room], tiles[room:]
        is_hidden = has_unknown and not is_known
        player = state.players[i]
        player.floor = (*player.floor, *([UNKNOWN] * room if is_hidden else taken))


def move_of(option: SeenEntity) -> int:
    """Move id of an option."""
    source, place = int(_number(option, "source")), int(_number(option, "destination"))
    return ActionEncoder.encode(Action(source, _colour(option), place))


def _player_of(entity: SeenEntity, seen: SeenObservation) -> int:
    """Player in a seat, counted from the observer."""
    players = int(_number(seen["Table"][0], "num_players"))
    return (seen.agent_id + int(_number(entity, "seat"))) % players


def _number(entity: SeenEntity, name: str) -> float:
    return float(entity.features[entity.names.index(name)])


def _counts(entity: SeenEntity, name: str) -> list[int]:
    first = next(i for i, each in enumerate(entity.names) if each.startswith(f"{name}."))
    return [int(value) for value in entity.features[first : first + len(COLOURS)]]


def _colour(entity: SeenEntity) -> int:
    return COLOURS.index(str(entity["colour"]).lower())


# ------------------------------------------------------------------ text


def _draw_text(seen: SeenObservation, width: int) -> Text | None:
    if not seen["Table"]:
        return None
    state = position_of(seen, has_unknown=True)
    names = seen.agent_names or None
    viewer = seen.viewer if seen.viewer < state.num_players else 0
    drawn = draw_state(state, colours=True, viewpoint=viewer, names=names, width=width)
    return Text.from_ansi(drawn)


def _describe(entity: SeenEntity) -> str:
    """An option in words: `2 red from factory 1 to line 3`."""
    return f"{_number(entity, 'count'):g} {describe_move(move_of(entity))}"


# ------------------------------------------------------------------ picture


def _size(seen: SeenObservation) -> tuple[float, float]:
    """Two boards side by side, with the factories above."""
    return 17.0, _top(seen) + _BOARD_SIZE[1] * math.ceil(len(seen["Seat"]) / 2)


def _ground(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, _PAPER)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for i, source in enumerate(seen["Source"]):
        row, column = divmod(i, _SOURCES_A_ROW)
        _draw_source(source, scene, 1.6 + _SOURCE * column, 1.6 + _SOURCE * row)
    for seat in seen["Seat"]:
        row, column = divmod(_player_of(seat, seen), 2)
        left, top = 0.3 + _BOARD_SIZE[0] * column, _top(seen) + _BOARD_SIZE[1] * row
        _draw_board(seat, seen, scene, left, top)


def _top(seen: SeenObservation) -> float:
    return 0.6 + _SOURCE * math.ceil(len(seen["Source"]) / _SOURCES_A_ROW)


def _draw_source(source: SeenEntity, scene: Scene, x: float, y: float) -> None:
    scene.circle(x, y, 1.2, "#e7f5ff" if source["is_centre"] else "#efe3cd", of=source)
    tiles = [
        colour
        for colour, count in zip(COLOURS, _counts(source, "tiles"), strict=True)
        for _ in range(count)
    ]
    columns = max(2, math.ceil(math.sqrt(len(tiles))))
    step = 1.5 / columns
    for i, colour in enumerate(tiles):
        row, column = divmod(i, columns)
        rows = math.ceil(len(tiles) / columns)
        place = x + (column - (columns - 1) / 2) * step, y + (row - (rows - 1) / 2) * step
        _draw_tile(scene, *place, colour, source, step * 0.9)
    if source["has_marker"]:
        scene.circle(x, y + 0.9, 0.25, "#ffffff", stroke="#888888", of=source)
        scene.text(x, y + 0.9, "1", size=0.35)


def _draw_board(
    seat: SeenEntity, seen: SeenObservation, scene: Scene, left: float, top: float
) -> None:
    player = _player_of(seat, seen)
    edge = _MINE if player == seen.agent_id else _EDGE
    scene.rect(left, top, 8.1, 8.3, _BOARD, stroke=edge, radius=0.2)
    name = seen.agent_names[player] if seen.agent_names else f"player {player + 1}"
    scene.text(left + 0.3, top + 0.6, name, anchor="start")
    scene.text(left + 7.8, top + 0.6, f"{seat['score']:g} points", anchor="end")
    for line, y in _rows(seat, seen, "Line", top):
        row, count = int(_number(line, "row")), int(_number(line, "count"))
        for i in range(row + 1):
            x = left + 3.55 - i * 0.76
            colour = COLOURS[_colour(line)] if i < count else None
            _draw_tile(scene, x, y, colour, line)
    for wall, y in _rows(seat, seen, "WallRow", top):
        row = int(_number(wall, "row"))
        for column, has_tile in enumerate(_counts(wall, "cells")):
            colour = COLOURS[(column - row) % NUM_LINES]
            _draw_tile(scene, left + 4.5 + column * 0.76, y, colour, wall, is_faint=not has_tile)
    for slot, cost in enumerate(_COSTS[:FLOOR_SLOTS]):
        is_taken = slot < _number(seat, "floor")
        x = left + 0.4 + slot * 0.85
        scene.rect(x, top + 6.7, 0.72, 0.72, "#ffa8a8" if is_taken else _SLOT, radius=0.1, of=seat)
        scene.text(x + 0.36, top + 7.75, -cost, "#868e96", size=0.35)
    if seat["holds_marker"]:
        scene.circle(left + 7.2, top + 7.06, 0.3, "#ffffff", stroke="#888888", of=seat)
        scene.text(left + 7.2, top + 7.06, "1", size=0.4)


def _rows(
    seat: SeenEntity, seen: SeenObservation, name: str, top: float
) -> Iterator[tuple[SeenEntity, float]]:
    """Lines or wall rows of a seat, with their heights."""
    for entity in seen[name]:
        if entity["seat"] == seat["seat"]:
            yield entity, top + 1.6 + _number(entity, "row") * 0.85


def _draw_tile(
    scene: Scene,
    x: float,
    y: float,
    colour: str | None,
    of: SeenEntity,
    side: float = 0.7,
    *,
    is_faint: bool = False,
) -> None:
    fill = _SLOT if colour is None else _TILES[colour] + ("38" if is_faint else "")
    stroke = "" if colour is None or is_faint else "#00000033"
    corner = x - side / 2, y - side / 2
    scene.rect(*corner, side, side, fill, stroke=stroke, radius=0.1, of=of)


look = Look(
    size=_size,
    draw=_draw,
    ground=_ground,
    draw_text=_draw_text,
    describe=_describe,
    is_open=True,
)
