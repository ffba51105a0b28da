"""`Look`: how the observations of a game are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rich.text import Text

from entity_env.views.scene import Scene
from entity_env.views.seen import SeenObservation


@dataclass(frozen=True)
class Board:
    """The cells that entities with coordinates lie on; y grows upwards.

    Args:
        columns, rows: None = as many as are seen in the episode.
    """

    columns: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class Style:
    """How the entities of one type are drawn.

    Args:
        shape: the name of a shape.
        color: `#rrggbb`, or the name of a feature that chooses one of a palette; "" = by the type.
        size: of a cell; a number, or the name of a feature.
        rotate: degrees clockwise, or the name of a feature in radians, as games have it.
        label: the name of a feature that is written on it.
        glyph: in the terminal.
    """

    shape: Literal["circle", "square", "diamond", "triangle", "ground"] = "circle"
    color: str = ""
    size: float | str = 0.8
    rotate: float | str = 0.0
    label: str = ""
    glyph: str = ""


@dataclass(frozen=True)
class Look:
    """How the observations of a game are drawn: never from its state, so files can be drawn too.

    Args:
        board: where entities with coordinates lie.
        styles: by the name or class of an entity type.
        at: names of the features that are coordinates.
        group: a feature with a board for each value.
        size: width and height of the scenes that `draw` fills; None with `draw` = by `board`.
        draw: fills the scene of one observation; replaces the styles.
        ground: fills what all scenes of an episode have in common, drawn once.
        draw_text: the observation in a terminal of so many columns; None = from the styles.
    """

    board: Board | None = None
    styles: Mapping[str | type, Style] = field(default_factory=dict)
    at: tuple[str, str] = ("x", "y")
    group: str = ""
    size: tuple[float, float] | None = None
    draw: Callable[[SeenObservation, Scene], None] | None = None
    ground: Callable[[Scene], None] | None = None
    draw_text: Callable[[SeenObservation, int], Text | None] | None = None
