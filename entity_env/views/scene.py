"""`Scene`: the shapes of one picture."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from entity_env.core.files import read_file
from entity_env.core.validation import is_number
from entity_env.errors import SchemaError, UsageError, shown

if TYPE_CHECKING:
    from entity_env.views.seen import SeenEntity

Anchor: TypeAlias = Literal["start", "middle", "end"]
Point: TypeAlias = tuple[float, float]

INK: Final = "#212529 #e9ecef"
"""Color of text."""
DECORATION: Final = -2
"""`of` for a shape that means nothing and may be faint, such as a hint of an empty cell."""
BASELINE: Final = 0.35
"""Distance of a text's baseline below its point, in units of its size."""
_ANCHORS: Final = ("start", "middle", "end")
_ONE_COLOR: Final = "#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})"
_COLOR: Final = re.compile(f"{_ONE_COLOR}(?: {_ONE_COLOR})?")
_IMAGE: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")
_IMAGE_TYPES: Final = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif"} | {
    ".webp": "webp"
}
_MAX_IMAGE_BYTES: Final = 4_000_000
_FARTHEST: Final = 1e6


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape, in units of the game; x increases to the right and y downward.

    Args:
        kind: "rect", "circle", "polygon", "line", "text" or "image".
        points: points of a polygon or line; otherwise only the center.
        size: width and height of a rect or image, radius of a circle, height of a text.
        fill, stroke: colors as in `Scene`; "" = none.
        width: stroke width, half of it on each side of the outline.
        rotate: degrees clockwise around the center.
        radius: corner radius of a rect.
        text: the text; for an image its `data:` URI.
        anchor: the part of a text that is at its point.
        of: index of the entity it shows, for hovering and attention; -1 = none; or `DECORATION`.
    """

    kind: Literal["rect", "circle", "polygon", "line", "text", "image"]
    points: tuple[Point, ...]
    size: tuple[float, ...] = ()
    fill: str = ""
    stroke: str = ""
    width: float = 0.0
    rotate: float = 0.0
    radius: float = 0.0
    text: str = ""
    anchor: Anchor = "middle"
    of: int = -1

    @property
    def center(self) -> Point:
        """Center of rotation: the mean of the points."""
        xs, ys = zip(*self.points, strict=True)
        return sum(xs) / len(xs), sum(ys) / len(ys)


@dataclass
class Scene:
    """Shapes, in drawing order.

    Every method but `cells` adds one shape. Positions and sizes are in units of the game; x
    increases to the right and y downward. Colors are `#rgb`, `#rrggbb`, or with alpha `#rgba` and
    `#rrggbbaa`; "" = none. Two colors with a space between them are for light and dark pages; one
    color is for both. `rotate` is in degrees clockwise around the center. `of` is the entity shown,
    for hovering and attention, or `DECORATION`.

    Args:
        look: name of the look, for errors.

    Raises:
        SchemaError: a number that is not finite or beyond 1e6, a negative size or an unknown color;
            nothing is added.
    """

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)
    look: str = "look"

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "",
        *,
        stroke: str = "",
        stroke_width: float = 0.05,
        radius: float = 0.0,
        rotate: float = 0.0,
        of: SeenEntity | int | None = None,
    ) -> None:
        """A rectangle with its upper left corner at x, y; `radius` rounds its corners."""
        width, height = self._size("rect", "width", width), self._size("rect", "height", height)
        radius = min(self._size("rect", "radius", radius), width / 2, height / 2)
        corner = self._point("rect", (x, y))
        center = (corner[0] + width / 2, corner[1] + height / 2)
        self._add(
            "rect", (center,), (width, height), fill, stroke, stroke_width, rotate, of, radius
        )

    def circle(
        self,
        x: float,
        y: float,
        radius: float,
        fill: str = "",
        *,
        stroke: str = "",
        stroke_width: float = 0.05,
        of: SeenEntity | int | None = None,
    ) -> None:
        """A circle around x, y."""
        size = (self._size("circle", "radius", radius),)
        self._add(
            "circle", (self._point("circle", (x, y)),), size, fill, stroke, stroke_width, 0.0, of
        )

    def polygon(
        self,
        points: Iterable[Point],
        fill: str = "",
        *,
        stroke: str = "",
        stroke_width: float = 0.05,
        rotate: float = 0.0,
        of: SeenEntity | int | None = None,
    ) -> None:
        """A closed polygon of three or more points; its center is their mean."""
        corners = self._points("polygon", points, 3)
        self._add("polygon", corners, (), fill, stroke, stroke_width, rotate, of)

    def line(
        self,
        points: Iterable[Point],
        stroke: str,
        *,
        width: float = 0.05,
        of: SeenEntity | int | None = None,
    ) -> None:
        """Straight lines from each point to the next."""
        self._add("line", self._points("line", points, 2), (), "", stroke, width, 0.0, of)

    def cells(self, x: float, y: float, columns: float, rows: float, fill: str) -> None:
        """Every other cell of a board whose upper left corner is at x, y; one shape per cell."""
        columns = self._size("cells", "columns", columns)
        rows = self._size("cells", "rows", rows)
        for row in range(math.ceil(rows)):
            for column in range(math.ceil(columns)):
                if (column + row) % 2:
                    size = min(1, columns - column), min(1, rows - row)
                    self.rect(x + column, y + row, *size, fill)

    def text(
        self,
        x: float,
        y: float,
        text: object,
        fill: str = INK,
        *,
        size: float = 0.5,
        anchor: Anchor = "middle",
        rotate: float = 0.0,
        of: SeenEntity | int | None = None,
    ) -> None:
        """One line of text, `size` high, with its start, middle or end at x, y."""
        if anchor not in _ANCHORS:
            raise self._error("text", f"anchor must be {', '.join(_ANCHORS)}", anchor)
        place = self._point("text", (x, y))
        height = (self._size("text", "size", size),)
        self._add("text", (place,), height, fill, "", 0.0, rotate, of, 0.0, one_line(text), anchor)

    def image(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        uri: str,
        *,
        rotate: float = 0.0,
        of: SeenEntity | int | None = None,
    ) -> None:
        """An image, as returned by `data_uri`, with its upper left corner at x, y."""
        if not is_data_uri(uri):
            raise self._error("image", "uri must be a data: URI, as data_uri(path) returns", uri)
        width, height = self._size("image", "width", width), self._size("image", "height", height)
        corner = self._point("image", (x, y))
        center = (corner[0] + width / 2, corner[1] + height / 2)
        self._add("image", (center,), (width, height), "", "", 0.0, rotate, of, 0.0, uri)

    def _add(
        self,
        kind: Literal["rect", "circle", "polygon", "line", "text", "image"],
        points: tuple[Point, ...],
        size: tuple[float, ...],
        fill: str,
        stroke: str,
        width: float,
        rotate: float,
        of: SeenEntity | int | None,
        radius: float = 0.0,
        text: str = "",
        anchor: Anchor = "middle",
    ) -> None:
        for name, color in (("fill", fill), ("stroke", stroke)):
            if color and not is_color(color):
                raise self._error(
                    kind, f"{name} must be a color, #rrggbb or #rrggbbaa, or two", color
                )
        width = self._size(kind, "the width of the stroke", width) if stroke else 0.0
        angle = self._number(kind, "rotate", rotate) % 360
        index = -1 if of is None else of if isinstance(of, int) else of.index
        self.shapes.append(
            Shape(kind, points, size, fill, stroke, width, angle, radius, text, anchor, index)
        )

    def _points(self, kind: str, points: Iterable[Point], at_least: int) -> tuple[Point, ...]:
        found = tuple(self._point(kind, point) for point in points)
        if len(found) < at_least:
            raise self._error(kind, f"points must be {at_least} or more", found)
        return found

    def _point(self, kind: str, point: Sequence[float]) -> Point:
        try:
            x, y = point
        except (TypeError, ValueError):
            raise self._error(kind, "a point must be two numbers", point) from None
        return self._number(kind, "x", x), self._number(kind, "y", y)

    def _size(self, kind: str, name: str, value: float) -> float:
        number = self._number(kind, name, value)
        if number < 0:
            raise self._error(kind, f"{name} must be 0 or more", value)
        return number

    def _number(self, kind: str, name: str, value: float) -> float:
        if not is_number(value) or not abs(number := float(value)) <= _FARTHEST:
            raise self._error(
                kind, f"{name} must be a finite number, at most {_FARTHEST:.0f}", value
            )
        return number

    def _error(self, kind: str, expected: str, value: object) -> SchemaError:
        return SchemaError(f"{self.look}: Scene.{kind}: {expected}, got {shown(value)}")


def data_uri(path: str | PathLike[str]) -> str:
    """The `data:` URI of a PNG, JPEG, GIF or WebP file, for `Scene.image` and `Style.image`.

    Raises:
        UsageError: a missing file, another file type, or a file of more than 4 MB.
    """
    file = Path(path)
    kind = _IMAGE_TYPES.get(file.suffix.lower())
    if kind is None:
        raise UsageError(f"image {file}: expected a file .png, .jpg, .gif or .webp")
    try:
        content = read_file(file, _MAX_IMAGE_BYTES)
    except OSError as error:
        raise UsageError(f"image {file}: {error.strerror}") from error
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@lru_cache(maxsize=1024)
def is_color(text: object) -> bool:
    """Whether a text is a color as in `Scene`."""
    return isinstance(text, str) and _COLOR.fullmatch(text) is not None


def is_data_uri(text: object) -> bool:
    """Whether a text is a base64 `data:` URI of a PNG, JPEG, GIF or WebP image."""
    return isinstance(text, str) and _IMAGE.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def rgba(color: str, *, dark: bool = False) -> tuple[int, int, int, int]:
    """Red, green, blue and alpha of a color on a light or dark page, 0 to 255."""
    one = color.split(" ")[-1 if dark else 0]
    digits = one[1:] if len(one) > 5 else "".join(digit * 2 for digit in one[1:])
    red, green, blue, alpha = bytes.fromhex(digits.ljust(8, "f"))
    return red, green, blue, alpha


def turned(point: Point, center: Point, degrees: float) -> Point:
    """A point rotated clockwise around a center."""
    if not degrees:
        return point
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    dx, dy = point[0] - center[0], point[1] - center[1]
    return center[0] + dx * cos - dy * sin, center[1] + dx * sin + dy * cos


@lru_cache(maxsize=4096)
def faded(color: str, opacity: float) -> str:
    """A color with its alpha multiplied by a number from 0 to 1."""
    return " ".join(
        f"#{red:02x}{green:02x}{blue:02x}{round(alpha * opacity):02x}"
        for red, green, blue, alpha in map(rgba, color.split())
    )


def one_line(text: object) -> str:
    """A text in one line; a single space replaces spaces and unprintable characters."""
    words = str(text)
    if not words.isprintable():
        words = "".join(c if c.isprintable() else " " for c in words)
    return " ".join(words.split())


def clipped(text: str, most: int) -> str:
    """A text shortened to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
