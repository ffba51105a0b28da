"""Drawings of the classic games, whose entities have no grid positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, sin, tan
from typing import Final, TypeAlias

from rich.text import Text

from entity_env.views import Look, Scene, SeenObservation, describe_entity

Rows: TypeAlias = Callable[[Sequence[float], "Sheet"], None]
"""Draws an entity's features on a sheet."""

_ASPECT: Final = 2
"""Height of a character divided by its width."""


class Sheet:
    """A rectangle of characters; drawing outside has no effect.

    Args:
        columns, rows: size; row 0 is the lowest.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._cells = [[" "] * columns for _ in range(rows)]

    def put(self, column: float, row: float, characters: str) -> None:
        first = round(column) - len(characters) // 2
        for i, character in enumerate(characters, first):
            if 0 <= i < self.columns and 0 <= round(row) < self.rows:
                self._cells[round(row)][i] = character

    def __str__(self) -> str:
        return "\n".join("".join(cells) for cells in reversed(self._cells))


def _draw_cart_pole(features: Sequence[float], sheet: Sheet) -> None:
    position, _, angle, _ = features
    sheet.put(sheet.columns // 2, 0, "─" * sheet.columns)
    cart = _column(position, -2.4, 2.4, sheet)
    sheet.put(cart, 1, "▟███▙")
    leaning = "|" if abs(angle) < 0.03 else "/" if angle > 0 else "\\"
    for height in range(1, sheet.rows - 1):
        sheet.put(cart + _ASPECT * height * tan(angle), 1 + height, leaning)


def _draw_mountain_car(features: Sequence[float], sheet: Sheet) -> None:
    def row(position: float) -> float:
        return (sin(3 * position) + 1) / 2 * (sheet.rows - 2)

    for column in range(sheet.columns):
        position = -1.2 + column / (sheet.columns - 1) * 1.8
        sheet.put(column, row(position), "─")
    sheet.put(_column(0.5, -1.2, 0.6, sheet), row(0.5) + 1, "⚑")
    sheet.put(_column(features[0], -1.2, 0.6, sheet), row(features[0]) + 1, "●")


def _draw_pendulum(features: Sequence[float], sheet: Sheet) -> None:
    """The rod from its pivot in the middle; positive angles turn left."""
    up, left, _ = features
    middle, pivot = (sheet.columns - 1) / 2, (sheet.rows - 1) / 2
    for part in range(1, sheet.rows):
        length = part / (sheet.rows - 1) * pivot
        character = "●" if part == sheet.rows - 1 else "█"
        sheet.put(middle - _ASPECT * left * length, pivot + up * length, character)
    sheet.put(middle, pivot, "◉")


def _column(value: float, low: float, high: float, sheet: Sheet) -> float:
    return (value - low) / (high - low) * (sheet.columns - 1)


def _in_text(rows: Rows, columns: int, lines: int) -> Callable[[SeenObservation, int], Text | None]:
    """`draw_text` of a look: the picture above the features."""

    def draw_text(seen: SeenObservation, width: int) -> Text | None:
        if not seen.entities:
            return None
        [entity] = seen.entities
        sheet = Sheet(columns, lines)
        rows(entity.features.tolist(), sheet)
        return Text(f"{sheet}\n\n{describe_entity(entity, seen.obs_space)}")

    return draw_text


# ------------------------------------------------------------------ pictures

_WOOD, _DARK, _RED, _GREY = "#b08968", "#343a40", "#e03131", "#adb5bd"
_METRE: Final = 4.0
_TRACK: Final = 2.4
"""Half of the track, in meters."""
_POLE: Final = 1.0


def _ground_cart_pole(scene: Scene) -> None:
    scene.line([(0, 6.5), (scene.width, 6.5)], _GREY, width=0.15)


def _draw_cart_pole_scene(seen: SeenObservation, scene: Scene) -> None:
    for cart in seen.entities:
        position, _, angle, _ = cart.features.tolist()
        x = scene.width / 2 + position * _METRE
        top = x + _POLE * _METRE * sin(angle), 5.4 - _POLE * _METRE * cos(angle)
        scene.rect(x - 1, 5.3, 2, 1.1, _DARK, radius=0.2, of=cart)
        scene.line([(x, 5.4), top], _WOOD, width=0.4, of=cart)


def _hill(position: float) -> tuple[float, float]:
    return (position + 1.2) * 10, 8.5 - 6 * (sin(3 * position) + 1) / 2


def _ground_mountain_car(scene: Scene) -> None:
    scene.line([_hill(-1.2 + i * 1.8 / 60) for i in range(61)], _GREY, width=0.15)
    x, y = _hill(0.5)
    scene.line([(x, y), (x, y - 2)], _DARK, width=0.1)
    scene.polygon([(x, y - 2), (x - 1, y - 1.6), (x, y - 1.2)], _RED)


def _draw_mountain_car_scene(seen: SeenObservation, scene: Scene) -> None:
    for car in seen.entities:
        x, y = _hill(float(car.features[0]))
        scene.circle(x, y - 0.4, 0.4, _DARK, of=car)


def _draw_pendulum_scene(seen: SeenObservation, scene: Scene) -> None:
    middle = scene.width / 2
    for rod in seen.entities:
        up, left, _ = rod.features.tolist()
        end = middle - 5 * left, middle - 5 * up
        scene.line([(middle, middle), end], _WOOD, width=0.8, of=rod)
        scene.circle(*end, 0.6, _RED, of=rod)
    scene.circle(middle, middle, 0.3, _DARK)


cartpole = Look(
    size=(2 * _TRACK * _METRE, 7.0),
    draw=_draw_cart_pole_scene,
    ground=_ground_cart_pole,
    draw_text=_in_text(_draw_cart_pole, 33, 8),
)
mountain_car = Look(
    size=(18.0, 9.0),
    draw=_draw_mountain_car_scene,
    ground=_ground_mountain_car,
    draw_text=_in_text(_draw_mountain_car, 33, 9),
)
pendulum = Look(
    size=(12.0, 12.0), draw=_draw_pendulum_scene, draw_text=_in_text(_draw_pendulum, 25, 13)
)
