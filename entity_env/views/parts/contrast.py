"""Contrast of colors as in WCAG 2.2, and the shapes of a picture that lack it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from entity_env.lazy_imports import np
from entity_env.views.scene import DECORATION, Point, Shape, rgba, turned

PAPER: Final = "#f8f9fa #1a1b1e"
"""Background color of a picture whose look draws no ground."""
CELL: Final = "#e9ecef #25262b"
"""Color of every other cell."""
TEXT_CONTRAST: Final = 4.5
SHAPE_CONTRAST: Final = 3.0
_MARGIN: Final = 1.1
"""Factor by which outlines exceed the required contrast, because cells may be tinted."""
_NUM_SAMPLES: Final = 12
_CHAR: Final = 0.5
"""Approximate width of a character, in units of the text's size."""

Rgb: TypeAlias = tuple[float, float, float]


def contrast_of(one: Rgb, other: Rgb) -> float:
    """The contrast ratio of two colors, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Rgb) -> float:
    parts = [each / 255 for each in color]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@lru_cache(maxsize=1024)
def ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on a fill, for light and dark pages."""
    inks = [
        max(("#000000", "#ffffff"), key=lambda ink: contrast_of(rgba(ink)[:3], color))
        for color in (rgba(fill, dark=dark)[:3] for dark in (False, True))
    ]
    return inks[0] if inks[0] == inks[1] else " ".join(inks)


@lru_cache(maxsize=1024)
def outline_of(fill: str) -> str:
    """The fill's own hue, for an outline that is visible on the cells of light and dark pages."""
    return " ".join(_outline(fill, dark=dark) for dark in (False, True))


def _outline(fill: str, *, dark: bool) -> str:
    """Darker than the fill; on a dark page lighter, if the fill looks like the page."""
    red, green, blue, alpha = rgba(fill, dark=dark)
    cells = [rgba(each, dark=dark)[:3] for each in (PAPER, CELL)]
    enough = _MARGIN * SHAPE_CONTRAST

    def is_visible(found: Rgb) -> bool:
        return all(contrast_of(found, cell) >= enough for cell in cells)

    goal = 255 if dark and not (alpha == 255 and is_visible((red, green, blue))) else 0
    mixed = [red, green, blue]
    for step in range(6, 21):
        mixed = [round(each + (goal - each) * step / 20) for each in (red, green, blue)]
        if is_visible((mixed[0], mixed[1], mixed[2])) or (dark and not goal):
            break
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def contrast_failures(size: Point, shapes: Sequence[Shape], *, dark: bool = False) -> list[str]:
    """The shapes of one picture that are hard to see on a light or dark page.

    A text needs 4.5 to 1 against what is behind it; a shape needs 3 to 1, by its fill or its
    outline, in half of the places around it. These need no contrast: images, and whatever is on
    them; invisible shapes, which only respond to a pointer; shapes of `DECORATION`; and ground:
    rectangles without an outline that are as large as a cell or larger.

    Args:
        size: width and height, in units of the game.
        shapes: with the ground first, in drawing order.
    """
    found: dict[str, None] = {}
    centers = np.array([shape.center for shape in shapes]).reshape(-1, 2)
    # Texts and invisible shapes are behind nothing.
    reaches = np.array([_reach(each) if _is_solid(each) else -math.inf for each in shapes])
    for i, shape in enumerate(shapes):
        if _needs_contrast(shape):
            far = np.abs(centers[:i] - centers[i]).max(axis=1) - reaches[:i] - 1.5 * _reach(shape)
            near = [shapes[k] for k in np.flatnonzero(far <= 0.1).tolist()]
            ratios = [*_ratios(shape, size, near, dark=dark)]
            ratio = 21.0 if not ratios else sorted(ratios)[len(ratios) // 2]
            if shape.kind == "text":
                ratio = min(ratios, default=21.0)
            if ratio < (TEXT_CONTRAST if shape.kind == "text" else SHAPE_CONTRAST):
                colors = " and ".join(filter(None, (shape.fill, shape.stroke)))
                what = f"{shape.kind} {shape.text}".strip()
                page = "dark" if dark else "light"
                found.setdefault(f"{what} in {colors}: {ratio:.1f} to 1 on a {page} page")
    return [*found]


def _is_visible(shape: Shape) -> bool:
    return any(color and rgba(color)[3] for color in (shape.fill, shape.stroke))


def _is_solid(shape: Shape) -> bool:
    return shape.kind == "image" or (shape.kind != "text" and _is_visible(shape))


def _needs_contrast(shape: Shape) -> bool:
    if shape.kind == "image" or shape.of == DECORATION or (shape.kind == "text" and not shape.text):
        return False
    is_ground = shape.kind == "rect" and not shape.stroke and min(shape.size) >= 1
    return _is_visible(shape) and not is_ground


def _ratios(shape: Shape, size: Point, below: Sequence[Shape], *, dark: bool) -> Iterator[float]:
    """The contrast of a shape in several places around it, or on the line or text."""
    for x, y in _places_around(shape):
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            continue
        behind = _color_at((x, y), below, dark=dark)
        if behind is not None:
            colors = [color for color in (shape.fill, shape.stroke) if color]
            yield max(contrast_of(_over(color, behind, dark=dark), behind) for color in colors)


def _color_at(place: Point, shapes: Sequence[Shape], *, dark: bool) -> Rgb | None:
    """The color of a picture in one place; None on an image."""
    red, green, blue, _ = rgba("#ffffff #1a1b1e", dark=dark)
    color: Rgb | None = (red, green, blue)
    for shape in shapes:
        is_inside, is_on_stroke = _covers(shape, place)
        if is_inside and shape.kind == "image":
            color = None
        for paint, is_here in ((shape.fill, is_inside), (shape.stroke, is_on_stroke)):
            if paint and is_here:
                is_opaque = rgba(paint, dark=dark)[3] == 255
                color = _over(paint, color or (0, 0, 0), dark=dark) if color or is_opaque else None
    return color


def _over(paint: str, behind: Rgb, *, dark: bool) -> Rgb:
    red, green, blue, alpha = rgba(paint, dark=dark)
    part = alpha / 255
    mixed = [part * a + (1 - part) * b for a, b in zip((red, green, blue), behind, strict=True)]
    return mixed[0], mixed[1], mixed[2]


# ------------------------------------------------------------------ places


def _half_size(shape: Shape) -> Point:
    """Half of the width and height of the shape, not rotated, without its stroke."""
    (cx, cy), size = shape.center, shape.size
    match shape.kind:
        case "circle":
            return size[0], size[0]
        case "text":
            return _CHAR * size[0] * len(shape.text) / 2, size[0] / 2
        case "rect" | "image":
            return size[0] / 2, size[1] / 2
    return max(abs(x - cx) for x, _ in shape.points), max(abs(y - cy) for _, y in shape.points)


def _reach(shape: Shape) -> float:
    return math.hypot(*_half_size(shape)) + shape.width


def _places_around(shape: Shape) -> Iterator[Point]:
    """Places just outside a shape, on a line, or on a text."""
    (cx, cy), (half_width, half_height) = shape.center, _half_size(shape)
    if shape.kind == "line":
        for (x, y), (u, v) in pairwise(shape.points):
            yield from ((x + part * (u - x), y + part * (v - y)) for part in (0.25, 0.5, 0.75))
        return
    if shape.kind == "text":
        shift = {"start": half_width, "middle": 0.0, "end": -half_width}[shape.anchor]
        for part in (-0.7, 0.0, 0.7):
            yield turned((cx + shift + part * half_width, cy), shape.center, shape.rotate)
        return
    more = shape.width / 2 + 0.02
    corners = [
        (cx + sx * (half_width + more), cy + sy * (half_height + more))
        for sx, sy in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    if shape.kind == "polygon":
        corners = [
            (x + more * (x > cx) - more * (x < cx), y + more * (y > cy) - more * (y < cy))
            for x, y in shape.points
        ]
    if shape.kind == "circle":
        for i in range(_NUM_SAMPLES):
            angle = 2 * math.pi * i / _NUM_SAMPLES
            radius = half_width + more
            yield cx + radius * math.cos(angle), cy + radius * math.sin(angle)
        return
    for (x, y), (u, v) in pairwise([*corners, corners[0]]):
        for part in (0.2, 0.5, 0.8):
            place = (x + part * (u - x), y + part * (v - y))
            yield turned(place, shape.center, shape.rotate)


def _covers(shape: Shape, place: Point) -> tuple[bool, bool]:
    """Whether a place is inside of a shape, and whether it is on its stroke."""
    x, y = turned(place, shape.center, -shape.rotate)
    (cx, cy), (half_width, half_height) = shape.center, _half_size(shape)
    edge = shape.width / 2
    match shape.kind:
        case "circle":
            distance = math.hypot(x - cx, y - cy)
            return distance <= half_width, abs(distance - half_width) <= edge
        case "line":
            return False, _distance(shape.points, (x, y)) <= edge
        case "polygon":
            on_stroke = _distance([*shape.points, shape.points[0]], (x, y)) <= edge
            return _is_in_polygon(shape.points, (x, y)), on_stroke
    dx, dy = abs(x - cx) - half_width, abs(y - cy) - half_height
    return max(dx, dy) <= 0, -edge <= max(dx, dy) <= edge


def _distance(points: Sequence[Point], place: Point) -> float:
    """Distance of a place from the lines between points."""
    distances = []
    for (x, y), (u, v) in pairwise(points):
        length = (u - x) ** 2 + (v - y) ** 2
        along = ((place[0] - x) * (u - x) + (place[1] - y) * (v - y)) / length if length else 0.0
        part = min(max(along, 0.0), 1.0)
        distances.append(math.dist(place, (x + part * (u - x), y + part * (v - y))))
    return min(distances)


def _is_in_polygon(points: Sequence[Point], place: Point) -> bool:
    x, y = place
    crossings = [
        (u - a) * (y - b) / (v - b) + a > x
        for (a, b), (u, v) in pairwise([*points, points[0]])
        if (b > y) != (v > y)
    ]
    return sum(crossings) % 2 == 1
