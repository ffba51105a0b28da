"""`with_moved`: an observation in which entities are elsewhere, to see what a network would do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from entity_env.authoring.local_run import Turn
from entity_env.core.observation import PlainObservation
from entity_env.views.drawing import Drawing
from entity_env.views.scene import Point
from entity_env.views.seen import SeenObservation

_LEAST: Final = 1e-6


def with_moved(turn: Turn, places: Mapping[int, Point], drawing: Drawing) -> Turn:
    """A turn whose observation has entities at other places.

    Coordinates that are whole numbers stay whole. Entities stay where they are if they have no
    coordinates, or if their picture does not follow them.

    Args:
        turn: with a `PlainObservation`, which is not changed.
        places: in units of the scene, by the index of the entity.
        drawing: has included all observations of the episode.
    """
    if not places or not isinstance(turn.observation, PlainObservation):
        return turn
    observation = copy.copy(turn.observation)
    rows = {name: [[*row] for row in table] for name, table in turn.observation.features.items()}
    object.__setattr__(observation, "features", rows)
    moved = replace(turn, observation=observation)
    index = 0
    for name, space in drawing.obs_space.entities.items():
        columns = drawing.look.coordinates(space.features)
        for row in rows.get(name, ()):
            if index in places and columns is not None:
                _move(row, columns, places[index], partial(_center, moved, index, drawing))
            index += 1
    return moved


def _move(
    row: list[float],
    columns: tuple[int, int],
    place: Point,
    center: Callable[[], Point | None],
) -> None:
    """Changes the coordinates in a row until the entity is drawn at a place.

    A picture moves in proportion to coordinates, so three pictures tell how far.
    """
    start, first, second = row.copy(), *columns
    at = center()
    steps = []
    for column in columns:
        row[column] += 1
        now = center()
        row[column] -= 1
        if at is None or now is None:
            return
        steps.append((now[0] - at[0], now[1] - at[1]))
    (a, c), (b, d) = steps
    area = a * d - b * c
    if at is None or abs(area) < _LEAST:
        return
    x, y = place[0] - at[0], place[1] - at[1]
    row[first] += (d * x - b * y) / area
    row[second] += (a * y - c * x) / area
    if all(start[column].is_integer() for column in columns):
        for column in columns:
            row[column] = float(round(row[column]))


def _center(turn: Turn, index: int, drawing: Drawing) -> Point | None:
    seen = SeenObservation(turn.observation, drawing.obs_space, turn.agent_id)
    shapes = drawing.draw(seen).shapes
    return next((shape.center for shape in shapes if shape.of == index), None)
