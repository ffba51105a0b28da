"""Drawing of `multi_snake`: snakes in their colors, with numbers on heads and food."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from entity_env.games.snake_look import cell_of, draw_body, draw_cells, draw_head, heading
from entity_env.views import Look, Scene, SeenEntity, SeenObservation

_COLORS: Final = (
    *("#0072b2 #56b4e9", "#c2410c #ffa94d", "#00785a #2fc99b", "#8a6500 #f2c94c"),
    *("#a0527d #e39fc3", "#555555 #adb5bd"),
)
_INK: Final = "#ffffff #16181a"
_MAX_TRIED: Final = 500
"""Maximum number of cells to try when looking for the order of a body."""

Cell = tuple[float, float]


def body_of(head: SeenEntity, segments: Sequence[SeenEntity]) -> list[SeenEntity]:
    """The segments in order from the head, or [] unless `_MAX_TRIED` tries find just one order.

    Observations do not say in which order segments follow each other, and a coiled body may fit
    several orders.
    """
    by_cell = {_cell(segment): segment for segment in segments}
    tried = iter(range(_MAX_TRIED))
    found = [*islice(_orders([_cell(head)], {*by_cell}, tried), 2)]
    is_known = len(found) == 1 and next(tried, None) is not None
    return [by_cell[cell] for cell in found[0][1:]] if is_known else []


def _cell(entity: SeenEntity) -> Cell:
    return float(entity.features[0]), float(entity.features[1])


def _orders(path: list[Cell], left: set[Cell], tried: Iterator[int]) -> Iterator[list[Cell]]:
    if not left:
        yield path
        return
    x, y = path[-1]
    for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
        if cell in left and next(tried, None) is not None:
            yield from _orders([*path, cell], left - {cell}, tried)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for food in seen["Food"]:
        x, y = cell_of(food, scene)
        _draw_food(scene, x, y, _color(food), food)
        scene.text(x, y, _number(food), _INK, size=0.4)
    for head in seen["Head"]:
        segments = [each for each in seen["Segment"] if each["color"] == head["color"]]
        body = body_of(head, segments)
        draw_body(scene, _color(head), head, body)
        for segment in segments if not body else ():
            x, y = cell_of(segment, scene)
            scene.rect(x - 0.4, y - 0.4, 0.8, 0.8, _color(head), radius=0.15, of=segment)
        draw_head(scene, _color(head), _INK, head, body)
        (x, y), (dx, dy) = cell_of(head, scene), heading(scene, head, body)
        scene.text(x - 0.16 * dx, y - 0.16 * dy, _number(head), _INK, size=0.4)


def _draw_food(scene: Scene, x: float, y: float, color: str, of: SeenEntity | None = None) -> None:
    corners = [(x, y - 0.44), (x + 0.44, y), (x, y + 0.44), (x - 0.44, y)]
    scene.polygon(corners, color, of=of)


def _number(entity: SeenEntity) -> str:
    return f"{entity.features[2] + 1:g}"


def _color(entity: SeenEntity) -> str:
    return _COLORS[int(entity.features[2]) % len(_COLORS)]


def _words(entity: SeenEntity) -> str:
    x, y = _cell(entity)
    return f"{entity.type.lower()} of snake {_number(entity)} at {x:g}, {y:g}"


def _legend() -> dict[str, Scene]:
    found = {name: Scene(1, 1) for name in ("Head", "Segment", "Food, only for its snake")}
    head, body, food = found.values()
    head.circle(0.5, 0.5, 0.44, _COLORS[0])
    for x in (0.3, 0.7):
        head.circle(x, 0.3, 0.1, _INK)
    body.rect(0, 0.17, 1, 0.66, _COLORS[0], radius=0.33)
    _draw_food(food, 0.5, 0.5, _COLORS[0])
    return found


look = Look(draw=_draw, ground=draw_cells, describe=_words, legend=_legend)
