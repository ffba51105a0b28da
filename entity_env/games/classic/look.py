"""Drawings of the classic games, whose entities have no grid positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import atan2, cos, degrees, sin, tan
from typing import Final, TypeAlias

from rich.text import Text

from entity_env.games.classic.pendulum import MAX_TORQUE
from entity_env.views import Chosen, Look, Scene, SeenEntity, SeenObservation, describe_entity

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
        rows([*map(float, entity.features)], sheet)
        return Text(f"{sheet}\n\n{describe_entity(entity, seen.obs_space)}")

    return draw_text


# ------------------------------------------------------------------ pictures

_PAPER, _GROUND, _INK = "#f8f9fa #202124", "#868e96 #868e96", "#343a40 #ced4da"
_WOOD, _RED, _BLUE = "#9c6b3f #d9a066", "#d6336c #ff8fb1", "#0072b2 #56b4e9"
_METRE: Final = 4.0
_TRACK: Final = 2.4
"""Half of the track, in meters."""
_POLE: Final = 1.0
_ARROW: Final = 2.2
"""Length of the arrow for a push."""


def _ground_cart_pole(scene: Scene) -> None:
    """The track between the places where the episode ends, with its middle."""
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    scene.line([(0, 6.5), (scene.width, 6.5)], _GROUND, width=0.15)
    for x in (0.1, scene.width - 0.1):
        scene.line([(x, 5.6), (x, 6.5)], _RED, width=0.2)
    scene.line([(scene.width / 2, 6.5), (scene.width / 2, 6.8)], _GROUND, width=0.15)


def _cart(seen: SeenObservation) -> tuple[float, float]:
    return _TRACK * _METRE + float(seen.entities[0].features[0]) * _METRE, 5.85


def _draw_cart_pole_scene(seen: SeenObservation, scene: Scene) -> None:
    for cart in seen.entities:
        x, y = _cart(seen)
        angle = float(cart.features[2])
        top = x + _POLE * _METRE * sin(angle), 5.4 - _POLE * _METRE * cos(angle)
        scene.rect(x - 1, y - 0.55, 2, 1.1, _INK, radius=0.2, of=cart)
        scene.line([(x, 5.4), top], _WOOD, width=0.4, of=cart)
        scene.circle(x, 5.4, 0.2, _PAPER, of=cart)


def _spots_cart_pole(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """An arrow from the cart past the side to which it is pushed."""
    x, y = _cart(seen)
    side = 1 if choice == "RIGHT" else -1
    return [(x, y), (x + side * (1 + _ARROW), y)]


def _hill(position: float) -> tuple[float, float]:
    return (position + 1.2) * 10, 8.5 - 6 * (sin(3 * position) + 1) / 2


def _ground_mountain_car(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    scene.line([_hill(-1.2 + i * 1.8 / 60) for i in range(61)], _GROUND, width=0.15)
    x, y = _hill(0.5)
    scene.line([(x, y), (x, y - 2)], _INK, width=0.1)
    scene.polygon([(x, y - 2), (x - 1, y - 1.6), (x, y - 1.2)], _RED)


def _car(seen: SeenObservation) -> tuple[float, float, float]:
    """Center of the car, and the slope of the hill below it, in radians."""
    position = float(seen.entities[0].features[0])
    x, y = _hill(position)
    slope = atan2(-9 * cos(3 * position), 10)
    return x + 0.5 * sin(slope), y - 0.5 * cos(slope), slope


def _draw_mountain_car_scene(seen: SeenObservation, scene: Scene) -> None:
    for car in seen.entities:
        x, y, slope = _car(seen)
        scene.rect(x - 0.6, y - 0.4, 1.2, 0.45, _BLUE, radius=0.15, rotate=degrees(slope), of=car)
        for side in (-0.35, 0.35):
            wheel = (
                x + side * cos(slope) - 0.2 * sin(slope),
                y + side * sin(slope) + 0.2 * cos(slope),
            )
            scene.circle(*wheel, 0.22, _INK, stroke=_PAPER, of=car)


def _spots_mountain_car(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """An arrow along the hill, or a ring for no drive."""
    x, y, slope = _car(seen)
    side = {"LEFT": -1, "RIGHT": 1}.get(str(choice), 0)
    ends = (0.0, side * (0.7 + _ARROW))
    return [(x + end * cos(slope), y + end * sin(slope)) for end in ends]


def _ground_pendulum(scene: Scene) -> None:
    """The circle of the rod's end, and its target."""
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    scene.circle(scene.width / 2, scene.height / 2, 5, stroke=_GROUND, stroke_width=0.05)
    scene.line([(scene.width / 2, 0.2), (scene.width / 2, 1.0)], _GROUND, width=0.15)


def _draw_pendulum_scene(seen: SeenObservation, scene: Scene) -> None:
    middle = scene.width / 2
    for rod in seen.entities:
        up, left, _ = map(float, rod.features)
        end = middle - 5 * left, middle - 5 * up
        scene.line([(middle, middle), end], _WOOD, width=0.8, of=rod)
        scene.circle(*end, 0.6, _RED, of=rod)
    scene.circle(middle, middle, 0.3, _INK, stroke=_PAPER, stroke_width=0.1)


def _spots_pendulum(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """An arrow as long as the torque, or a ring if there is hardly any."""
    up, left, _ = map(float, seen.entities[0].features)
    x, y = 6 - 5 * left, 6 - 5 * up
    torque = 0.0 if isinstance(choice, str | SeenEntity) else choice[0] / MAX_TORQUE
    if abs(torque) < 0.02:
        return [(x, y)]
    side = 1 if torque > 0 else -1
    ends = (side * 0.7, side * 0.7 + _ARROW * torque)
    return [(x - end * up, y + end * left) for end in ends]


def _legend_of(*names: str) -> Callable[[], dict[str, Scene]]:
    """Samples by name."""

    def legend() -> dict[str, Scene]:
        found = {name: Scene(1, 1) for name in names}
        for name, scene in found.items():
            _SAMPLES[name](scene)
        return found

    return legend


_SAMPLES: Final[dict[str, Callable[[Scene], None]]] = {
    "cart": lambda scene: scene.rect(0, 0.25, 1, 0.5, _INK, radius=0.1),
    "pole": lambda scene: scene.line([(0.3, 0.95), (0.7, 0.05)], _WOOD, width=0.18),
    "end of the track": lambda scene: scene.line([(0.5, 0.1), (0.5, 0.9)], _RED, width=0.2),
    "car": lambda scene: scene.rect(0, 0.3, 1, 0.4, _BLUE, radius=0.12),
    "goal": lambda scene: scene.polygon([(0.9, 0.1), (0.1, 0.5), (0.9, 0.9)], _RED),
    "rod": lambda scene: scene.line([(0.1, 0.9), (0.9, 0.1)], _WOOD, width=0.2),
    "its free end": lambda scene: scene.circle(0.5, 0.5, 0.4, _RED),
    "upright": lambda scene: scene.line([(0.5, 0.1), (0.5, 0.9)], _GROUND, width=0.15),
}

cartpole = Look(
    size=(2 * _TRACK * _METRE, 7.0),
    draw=_draw_cart_pole_scene,
    ground=_ground_cart_pole,
    draw_text=_in_text(_draw_cart_pole, 33, 8),
    spots=_spots_cart_pole,
    legend=_legend_of("cart", "pole", "end of the track"),
)
mountain_car = Look(
    size=(18.0, 9.0),
    draw=_draw_mountain_car_scene,
    ground=_ground_mountain_car,
    draw_text=_in_text(_draw_mountain_car, 33, 9),
    spots=_spots_mountain_car,
    legend=_legend_of("car", "goal"),
)
pendulum = Look(
    size=(12.0, 12.0),
    draw=_draw_pendulum_scene,
    ground=_ground_pendulum,
    draw_text=_in_text(_draw_pendulum, 25, 13),
    spots=_spots_pendulum,
    legend=_legend_of("rod", "its free end", "upright"),
)
