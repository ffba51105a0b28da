"""`draw_styled`: one entity as a shape."""

from __future__ import annotations

import math
from typing import Final

from entity_env.views.describe import describe_number
from entity_env.views.look import Style
from entity_env.views.parts.contrast import PAPER, ink_on, outline_of
from entity_env.views.scene import INK, Point, Scene, faded, one_line
from entity_env.views.seen import SeenEntity

HIDDEN: Final = 0.3
"""Opacity of hidden entities, except for their outlines."""
DIM: Final = "#5c636a #a6adb4"
SHRUNK: Final = 0.52
_FAN: Final = 0.46
"""Entities that share a cell: factor of their size, and their distance."""


def draw_styled(
    scene: Scene,
    entity: SeenEntity,
    style: Style,
    place: Point,
    color: str,
    *,
    scale: float = 1.0,
    shrunk: float = 1.0,
) -> None:
    """Adds the shape of one entity.

    Args:
        place: its center, in units of the scene.
        scale: cells per unit of a size that a feature gives.
        shrunk: factor of the size.
    """
    stroke = outline_of(color)
    fill = color if entity.is_visible else faded(color, HIDDEN)
    size = style.size if not isinstance(style.size, str) else number_of(entity, style.size) * scale
    size = max(size * shrunk, 0.05) if math.isfinite(size) else 0.8
    turn = style.rotate if not isinstance(style.rotate, str) else _heading(entity, style.rotate)
    (x, y), half = place, size / 2
    if style.image:
        scene.image(x - half, y - half, size, size, style.image, rotate=turn, of=entity)
    elif style.shape == "ground":
        scene.rect(x - 0.5, y - 0.5, 1, 1, faded(fill, 0.6), of=entity)
    elif style.shape == "circle":
        scene.circle(x, y, half, fill, stroke=stroke, of=entity)
    elif style.shape == "square":
        corner = (x - half, y - half, size, size)
        scene.rect(*corner, fill, stroke=stroke, radius=size / 8, rotate=turn, of=entity)
    else:
        corners: list[Point] = [(0, -1), (1, 0), (0, 1), (-1, 0)]
        if style.shape == "triangle":
            corners = [(0, -4 / 3), (1, 2 / 3), (-1, 2 / 3)]  # centered on the mean
        around = [(x + dx * half, y + dy * half) for dx, dy in corners]
        scene.polygon(around, fill, stroke=stroke, rotate=turn, of=entity)
    if style.label:
        value = entity[style.label]
        text = describe_number(value) if isinstance(value, float) else one_line(value)
        width = max(len(text), 2) * 0.6
        ink = ink_on(color) if entity.is_visible else INK
        scene.text(x, y, text, ink, size=min(0.6 * size, size / width))


def draw_bar(
    scene: Scene, entity: SeenEntity, style: Style, place: Point, most: float, shrunk: float
) -> None:
    """Adds the bar of a style, full where its feature is `most` or, with two, equals the second."""
    name, _, limit = style.bar.partition("/")
    most = number_of(entity, limit) if limit else most
    share = number_of(entity, name) / most if most > 0 else 0.0
    width, height = 0.8 * shrunk, 0.12 * shrunk
    corner = (place[0] - width / 2, place[1] + 0.36 * shrunk)
    scene.rect(*corner, width, height, PAPER, stroke=DIM, stroke_width=0.02, of=entity)
    if share > 0:  # False for nan
        scene.rect(*corner, min(share, 1.0) * width, height, INK, of=entity)


def stack_shift(position: int, num: int) -> Point:
    """Offset of an entity in a stack of `num` from the center of their cell."""
    if num < 2:
        return 0.0, 0.0
    column, row = position % 2, position // 2 % 2
    return (column - 0.5) * _FAN, 0.0 if num == 2 else (row - 0.5) * _FAN


def number_of(entity: SeenEntity, name: str) -> float:
    """A feature; nan if it is not a number."""
    value = entity[name]
    return value if isinstance(value, float) else math.nan


def _heading(entity: SeenEntity, name: str) -> float:
    """Degrees clockwise from up, from radians counterclockwise from x."""
    radians = number_of(entity, name)
    return 90 - math.degrees(radians) if math.isfinite(radians) else 0.0
