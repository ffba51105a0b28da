"""Azul drawn from observations, as text and as a picture."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from entity_env.games.azul.engine.actions import Action, ActionEncoder
from entity_env.games.azul.engine.rules import (
    CENTRE,
    COLOURS,
    FLOOR_SLOTS,
    MARKER,
    MIN_PLAYERS,
    NO_COLOUR,
    NOBODY,
    NUM_LINES,
    TILES_PER_COLOUR,
)
from entity_env.games.azul.engine.state import GameState, Player, count_tiles
from entity_env.games.azul.entities import MoveId
from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import end_of_game_packed
from entity_env.games.azul.kernels.packed_state import NUM_WORDS
from entity_env.games.azul.picture import (
    INK,
    SIDES,
    TableLayout,
    draw_broken,
    draw_clear,
    draw_ground,
    draw_marker,
    draw_tile,
    layout_of,
    samples,
)
from entity_env.games.azul.viewer import UNKNOWN, describe_move, draw_state
from entity_env.views import Chosen, Look, Scene, SeenEntity, SeenObservation, Spot

if TYPE_CHECKING:
    from rich.text import Text

_MAX_NAME: Final = 16


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
    from rich.text import Text  # pages have no rich, and draw only pictures

    return Text.from_ansi(drawn)


# ------------------------------------------------------------------ words


def _describe(entity: SeenEntity) -> str:
    """Name of an entity, such as `2 red from factory 1 to line 3`; "" = its features."""
    match entity.type:
        case "Option":
            return f"{_number(entity, 'count'):g} {describe_move(move_of(entity))}"
        case "Group":
            source = int(_number(entity, "source"))
            return _group_words(source, _colour(entity), int(_number(entity, "count")))
        case "Line" if count := int(_number(entity, "count")):
            row = int(_number(entity, "row")) + 1
            return f"line {row}: {count} of {row} {COLOURS[_colour(entity)]}"
        case "Line":
            return f"line {_number(entity, 'row') + 1:g}: empty"
        case "WallRow":
            row = int(_number(entity, "row"))
            has = [
                COLOURS[(i - row) % NUM_LINES] for i, n in enumerate(_counts(entity, "cells")) if n
            ]
            return f"row {row + 1} of the wall: {', '.join(has) or 'empty'}"
        case "Seat":
            floor, score = _number(entity, "floor"), _number(entity, "score")
            marker = ", the start marker" if entity["holds_marker"] else ""
            return f"{score:g} points, {floor:g} on the floor{marker}"
    return ""


def _group_words(source: int, colour: int, count: int) -> str:
    place = "the center" if source == CENTRE else f"factory {source + 1}"
    return f"{count} {COLOURS[colour]} from {place}"


# ------------------------------------------------------------------ picture


def _layout(seen: SeenObservation) -> TableLayout:
    tables = seen["Table"]
    return TableLayout(int(_number(tables[0], "num_players")) if tables else MIN_PLAYERS)


def _size(seen: SeenObservation) -> tuple[float, float]:
    return _layout(seen).size


def _draw(seen: SeenObservation, scene: Scene) -> None:
    layout = layout_of(scene)
    groups = {(_number(group, "source"), _colour(group)): group for group in seen["Group"]}
    for i, source in enumerate(seen["Source"]):
        number = CENTRE if source["is_centre"] else i
        for colour, place in layout.tiles(number, _counts(source, "tiles")):
            draw_tile(scene, *place, COLOURS[colour], groups.get((number, colour)))
        if source["has_marker"]:
            left, top, width, _ = layout.centre
            draw_marker(scene, left + width - 0.55, top + 0.5, source)
    for seat in seen["Seat"]:
        _draw_seat(seat, seen, scene, layout)
    for line in seen["Line"]:
        row, player = int(_number(line, "row")), _player_of(line, seen)
        draw_clear(scene, layout.line(player, row, row), layout.line(player, row, 0), line)
        for i in range(int(_number(line, "count"))):
            draw_tile(scene, *layout.line(player, row, i), COLOURS[_colour(line)], line)
    for wall in seen["WallRow"]:
        row, player = int(_number(wall, "row")), _player_of(wall, seen)
        draw_clear(scene, layout.wall(player, row, 0), layout.wall(player, row, 4), wall)
        for column, has_tile in enumerate(_counts(wall, "cells")):
            if has_tile:
                name = COLOURS[(column - row) % NUM_LINES]
                draw_tile(scene, *layout.wall(player, row, column), name)


def _draw_seat(seat: SeenEntity, seen: SeenObservation, scene: Scene, layout: TableLayout) -> None:
    player = _player_of(seat, seen)
    left, top = layout.board(player)
    name = seen.agent_names[player] if seen.agent_names else f"agent {player}"
    name = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
    if player == seen.agent_id and not seen.observation.done:
        corners = [(left + 0.3, top + 0.3), (left + 0.65, top + 0.5), (left + 0.3, top + 0.7)]
        scene.polygon(corners, SIDES[player])
    scene.text(left + 0.8, top + 0.5, name, INK, anchor="start", of=seat)
    scene.text(left + 9.0, top + 0.5, f"{_number(seat, 'score'):g} points", INK, anchor="end")
    draw_clear(scene, layout.floor(player, 0), layout.floor(player, FLOOR_SLOTS - 1), seat)
    for slot in range(int(_number(seat, "floor"))):
        draw_broken(scene, *layout.floor(player, slot))
    if seat["holds_marker"]:
        draw_marker(scene, left + 8.7, layout.floor(player, 0)[1])


# ------------------------------------------------------------------ choices


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[Spot]:
    """From the tiles that are taken to the place where they go."""
    if not isinstance(choice, str | SeenEntity):
        return []
    move = MoveId[choice].value if isinstance(choice, str) else move_of(choice)
    source, colour, place = ActionEncoder.decode(move)
    groups, places = _places(seen)
    return [groups[source, colour], places[place]] if (source, colour) in groups else []


@lru_cache(maxsize=2)
def _places(seen: SeenObservation) -> tuple[dict[tuple[int, int], Spot], list[Spot]]:
    """Spots of the tiles of each source and color, and of the observer's lines and floor."""
    if not seen["Table"]:
        return {}, []
    layout = _layout(seen)
    groups: dict[tuple[int, int], Spot] = {}
    for i, source in enumerate(seen["Source"]):
        number, counts = CENTRE if source["is_centre"] else i, _counts(source, "tiles")
        for colour, place in layout.tiles(number, counts):
            words = _group_words(number, colour, counts[colour])
            groups.setdefault((number, colour), Spot(*place, words))
    lines = {_number(e, "row"): _number(e, "count") for e in seen["Line"] if not e["seat"]}
    [on_floor] = [_number(seat, "floor") for seat in seen["Seat"] if not seat["seat"]]
    counts = [*(int(lines[row]) for row in range(NUM_LINES)), int(on_floor)]
    names = [*(f"line {row + 1}" for row in range(NUM_LINES)), "the floor"]
    places = [
        Spot(*layout.destination(seen.agent_id, place, count), name)
        for place, (count, name) in enumerate(zip(counts, names, strict=True))
    ]
    return groups, places


look = Look(
    size=_size,
    draw=_draw,
    ground=draw_ground,
    draw_text=_draw_text,
    describe=_describe,
    spots=_spots,
    legend=samples,
    labels={"MoveId": {move.name: describe_move(move.value) for move in MoveId}},
    is_open=True,
)
