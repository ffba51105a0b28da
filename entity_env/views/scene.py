"""`Scene`: the shapes of one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Anchor: TypeAlias = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape, in units of the game; x grows to the right and y downwards.

    Args:
        kind: "rect", "circle", "polygon", "line", "text" or "image".
        points: of a polygon and a line; else the centre alone.
        size: width and height of a rect and an image, radius of a circle, height of a text.
        fill, stroke: colours, `#rgb`, `#rrggbb` or with alpha `#rrggbbaa`; "" = none.
        width: of the stroke.
        rotate: degrees clockwise around the centre.
        radius: of the corners of a rect.
        text: of a text; a `data:` URI of an image.
        anchor: which end of a text lies at its point.
        of: index of the entity it shows, for hovering and attention; -1 = none.
    """

    kind: Literal["rect", "circle", "polygon", "line", "text", "image"]
    points: Sequence[tuple[float, float]]
    size: tuple[float, ...] = ()
    fill: str = ""
    stroke: str = ""
    width: float = 0.05
    rotate: float = 0.0
    radius: float = 0.0
    text: str = ""
    anchor: Anchor = "middle"
    of: int = -1


@dataclass
class Scene:
    """Shapes, in the order in which they are drawn.

    Args:
        width, height: of the picture, in units of the game.
    """

    width: float
    height: float
    shapes: list[Shape] = field(default_factory=list)
