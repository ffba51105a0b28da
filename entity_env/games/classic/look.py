"""How the classic games are drawn, whose entities have no position on a grid: text and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, sin, tan
from typing import Final, TypeAlias

from rich.text import Text

from entity_env.views import Look, Scene, SeenObservation
from entity_env.views.describe import describe_entity

Rows: TypeAlias = Callable[[Sequence[float], "Sheet"], None]
"""Draws the features of an entity on a sheet."""

_ASPECT: Final = 2
"""Height of a character over its width."""


class Sheet:
    """A rectangle of characters; what is drawn outside of it is dropped.

    Args:
        columns, rows: size; row 0 is the lowest.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._cells = [[" "] * columns for _ in range(rows)]

    def put(self, column: float, row: float, characters: str) -> None:
        """Writes characters, centred at a column."""
        first = round(column) - len(characters) // 2
        for i, character in enumerate(characters, first):
            if 0 <= i < self.columns and 0 <= round(row) < self.rows:
                self._cells[round(row)][i] = character

    def __str__(self) -> str:
        return "\n".join("".join(cells) for cells in reversed(self._cells))


def _draw_cart_pole(features: Sequence[float], sheet: Sheet) -> None:
    """The track from -2.4 to 2.4, the cart, and the pole."""
    position, _, angle, _ = features
    sheet.put(sheet.columns // 2, 0, "─" * sheet.columns)
    cart = _column(position, -2.4, 2.4, sheet)
    sheet.put(cart, 1, "▟███▙")
    leaning = "|" if abs(angle) < 0.03 else "/" if angle > 0 else "\\"
    for height in range(1, sheet.rows - 1):
        sheet.put(cart + _ASPECT * height * tan(angle), 1 + height, leaning)


def _draw_mountain_car(features: Sequence[float], sheet: Sheet) -> None:
    """The valley, the flag at 0.5, and the car."""

    def row(position: float) -> float:
        return (sin(3 * position) + 1) / 2 * (sheet.rows - 2)

    for column in range(sheet.columns):
        position = -1.2 + column / (sheet.columns - 1) * 1.8
        sheet.put(column, row(position), "─")
    sheet.put(_column(0.5, -1.2, 0.6, sheet), row(0.5) + 1, "⚑")
    sheet.put(_column(features[0], -1.2, 0.6, sheet), row(features[0]) + 1, "●")


def _draw_pendulum(features: Sequence[float], sheet: Sheet) -> None:
    """The rod from its pivot in the middle; angles turn to the left."""
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
    """The `draw_text` of a look: the picture, and the features below it."""

    def draw_text(seen: SeenObservation, width: int) -> Text | None:
        if not seen.entities:
            return None
        [entity] = seen.entities
        sheet = Sheet(columns, lines)
        rows(entity.features.tolist(), sheet)
        return Text(f"{sheet}\n\n{describe_entity(entity, seen.obs_space)}")

    return draw_text


# ------------------------------------------------------------------ as pictures

_WOOD, _DARK, _RED, _GREY = "#b08968", "#343a40", "#e03131", "#adb5bd"
_TRACK: Final = 2.4
"""Half of the length of the track."""
_POLE: Final = 1.0


def _ground_cart_pole(scene: Scene) -> None:
    scene.line([(0, 1.6), (scene.width, 1.6)], _GREY)


def _draw_cart_pole_scene(seen: SeenObservation, scene: Scene) -> None:
    for cart in seen.entities:
        position, _, angle, _ = cart.features.tolist()
        x = scene.width / 2 + position
        scene.rect(x - 0.25, 1.3, 0.5, 0.3, _DARK, radius=0.05, of=cart)
        top = x + _POLE * sin(angle), 1.3 - _POLE * cos(angle)
        scene.line([(x, 1.3), top], _WOOD, width=0.1, of=cart)


def _hill(position: float) -> tuple[float, float]:
    return position + 1.2, 1.5 - (sin(3 * position) + 1) / 2


def _ground_mountain_car(scene: Scene) -> None:
    scene.line([_hill(-1.2 + i * 1.8 / 60) for i in range(61)], _GREY, width=0.02)
    x, y = _hill(0.5)
    scene.line([(x, y), (x, y - 0.25)], _DARK, width=0.015)
    scene.polygon([(x, y - 0.25), (x - 0.12, y - 0.2), (x, y - 0.15)], _RED)


def _draw_mountain_car_scene(seen: SeenObservation, scene: Scene) -> None:
    for car in seen.entities:
        x, y = _hill(float(car.features[0]))
        scene.circle(x, y - 0.05, 0.05, _DARK, of=car)


def _draw_pendulum_scene(seen: SeenObservation, scene: Scene) -> None:
    middle = scene.width / 2
    for rod in seen.entities:
        up, left, _ = rod.features.tolist()
        end = middle - left, middle - up
        scene.line([(middle, middle), end], _WOOD, width=0.16, of=rod)
        scene.circle(*end, 0.12, _RED, of=rod)
    scene.circle(middle, middle, 0.06, _DARK)


cartpole = Look(
    size=(2 * _TRACK, 2.0),
    draw=_draw_cart_pole_scene,
    ground=_ground_cart_pole,
    draw_text=_in_text(_draw_cart_pole, 33, 8),
)
mountain_car = Look(
    size=(1.8, 1.6),
    draw=_draw_mountain_car_scene,
    ground=_ground_mountain_car,
    draw_text=_in_text(_draw_mountain_car, 33, 9),
)
pendulum = Look(
    size=(2.6, 2.6), draw=_draw_pendulum_scene, draw_text=_in_text(_draw_pendulum, 25, 13)
)
