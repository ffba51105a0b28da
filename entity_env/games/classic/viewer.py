"""Terminal pictures of the classic games, whose entities have no position on a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sin, tan
from typing import Final, TypeAlias

from rich.text import Text

from entity_env.core.spaces import EntityName, ObsSpace
from entity_env.views.seen import SeenEntity

Draw: TypeAlias = Callable[[Sequence[float], "Sheet"], None]
"""Draws the features of an entity on a sheet."""

_ASPECT: Final = 2
"""Height of a character over its width."""
_ASCII: Final = str.maketrans("─▟█▙●◉⚑", "-[#]oOF")


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


def draw_entity(
    entities: Iterable[SeenEntity], space: ObsSpace, *, ascii_only: bool = False
) -> Text | None:
    """A picture of the first entity that there is one for, else None."""
    for entity in entities:
        features = space.entities.get(entity.type)
        found = features and _PICTURES.get((entity.type, tuple(features.features)))
        if found:
            draw, sheet = found[0], Sheet(*found[1])
            draw(entity.features.tolist(), sheet)
            return Text(str(sheet).translate(_ASCII) if ascii_only else str(sheet))
    return None


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


_PICTURES: Final[Mapping[tuple[EntityName, tuple[str, ...]], tuple[Draw, tuple[int, int]]]] = {
    ("CartPole", ("position", "velocity", "angle", "angular_velocity")): (_draw_cart_pole, (33, 8)),
    ("MountainCar", ("position", "velocity")): (_draw_mountain_car, (33, 9)),
    ("Pendulum", ("cos", "sin", "angular_velocity")): (_draw_pendulum, (25, 13)),
}
"""How an entity of a type and features is drawn, and on how many columns and rows."""
