"""Drawing of `snake`: a snake with eyes, and an apple."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from entity_env.views import Look, Scene, SeenEntity, SeenObservation

_PAPER, _CELL = "#f8f9fa #1a1b1e", "#e9ecef #25262b"
_SNAKE, _HEAD, _EYE = "#2b8a3e #69db7c", "#1b5e28 #b2f2bb", "#ffffff #102a15"
_APPLE, _STEM = "#c92a2a #ff8787", "#5c4a1e #c9b27c"
_WIDTH: Final = 0.66
"""Width of a body in cells."""

Place = tuple[float, float]


def draw_cells(scene: Scene) -> None:
    """An empty board, as the default look has it."""
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    scene.cells(0, 0, scene.width, scene.height, _CELL)


def cell_of(entity: SeenEntity, scene: Scene) -> Place:
    """Center of an entity's cell."""
    x, y = map(float, entity.features[:2])
    return x + 0.5, scene.height - y - 0.5


def draw_body(scene: Scene, color: str, head: SeenEntity, body: Sequence[SeenEntity]) -> None:
    """A body from the segment behind the head to the tail, joined in this order."""
    x2, y2 = cell_of(head, scene)
    for segment in body:
        x1, y1 = cell_of(segment, scene)
        width, height = abs(x2 - x1) + _WIDTH, abs(y2 - y1) + _WIDTH
        corner = min(x1, x2) - _WIDTH / 2, min(y1, y2) - _WIDTH / 2
        scene.rect(*corner, width, height, color, radius=_WIDTH / 2, of=segment)
        x2, y2 = x1, y1


def heading(scene: Scene, head: SeenEntity, body: Sequence[SeenEntity]) -> Place:
    """Direction of the head: away from the segment behind it; upward without a segment."""
    if not body:
        return 0.0, -1.0
    (x, y), (behind_x, behind_y) = cell_of(head, scene), cell_of(body[0], scene)
    return x - behind_x, y - behind_y


def draw_head(
    scene: Scene, color: str, eye: str, head: SeenEntity, body: Sequence[SeenEntity]
) -> None:
    """A head with eyes in front."""
    (x, y), (dx, dy) = cell_of(head, scene), heading(scene, head, body)
    scene.circle(x, y, 0.44, color, of=head)
    for side in (-0.2, 0.2):
        scene.circle(x + 0.2 * dx - side * dy, y + 0.2 * dy + side * dx, 0.1, eye)


def _draw_apple(scene: Scene, x: float, y: float, of: SeenEntity | None = None) -> None:
    scene.circle(x, y + 0.06, 0.3, _APPLE, of=of)
    scene.line([(x, y - 0.22), (x + 0.12, y - 0.42)], _STEM, width=0.1)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for food in seen["Food"]:
        _draw_apple(scene, *cell_of(food, scene), food)
    body = seen["Segment"][::-1]
    for head in seen["Head"]:
        draw_body(scene, _SNAKE, head, body)
        draw_head(scene, _HEAD, _EYE, head, body)


def _words(entity: SeenEntity) -> str:
    x, y = entity.features
    return f"{entity.type.lower()} at {x:g}, {y:g}"


def _legend() -> dict[str, Scene]:
    found = {name: Scene(1, 1) for name in ("Head", "Segment", "Food")}
    found["Head"].circle(0.5, 0.5, 0.44, _HEAD)
    found["Segment"].rect(0, 0.17, 1, _WIDTH, _SNAKE, radius=_WIDTH / 2)
    _draw_apple(found["Food"], 0.5, 0.5)
    return found


look = Look(draw=_draw, ground=draw_cells, describe=_words, legend=_legend)
