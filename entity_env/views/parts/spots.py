"""`Pointer`: where the choices of an observation point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from entity_env.views.look import GROUND
from entity_env.views.seen import Chosen, Place, SeenEntity, Spot

if TYPE_CHECKING:
    from entity_env.core.spaces import ActionName
    from entity_env.views.drawing import Drawing
    from entity_env.views.scene import Point, Scene, Shape
    from entity_env.views.seen import SeenObservation

_MARK, _HALO = "#000000 #ffffff", "#ffffff #000000"
_RING: Final = 0.46
_LINE: Final = 0.09
_TIP: Final = 0.35
_NEAR: Final = 0.01
"""Radius of a ring, width of lines, and length of the tip of an arrow, in cells."""
_UP, _DOWN, _LEFT, _RIGHT, _HERE = (0, 1), (0, -1), (-1, 0), (1, 0), (0, 0)
_DIRECTIONS: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(("up", "north", "n"), _UP),
    **dict.fromkeys(("down", "south", "s"), _DOWN),
    **dict.fromkeys(("left", "west", "w"), _LEFT),
    **dict.fromkeys(("right", "east", "e"), _RIGHT),
    **dict.fromkeys(("upleft", "leftup", "northwest", "nw"), (-1, 1)),
    **dict.fromkeys(("upright", "rightup", "northeast", "ne"), (1, 1)),
    **dict.fromkeys(("downleft", "leftdown", "southwest", "sw"), (-1, -1)),
    **dict.fromkeys(("downright", "rightdown", "southeast", "se"), (1, -1)),
    **dict.fromkeys(("stay", "wait", "noop", "none", "pass", "idle", "nothing"), _HERE),
}


class Pointer:
    """Finds where the choices of one observation point.

    Args:
        drawing: includes the observation.
        shapes: the observation's, as drawn.
    """

    def __init__(self, drawing: Drawing, seen: SeenObservation, shapes: Sequence[Shape]) -> None:
        self.drawing = drawing
        self.seen = seen
        self.look = drawing.look
        self._centers: dict[int, Point] = {}
        for shape in shapes:
            if shape.of >= 0 and shape.of not in self._centers:
                self._centers[shape.of] = shape.center

    def path(
        self, action: ActionName, actor: SeenEntity | None, choice: Chosen
    ) -> tuple[Spot, ...]:
        """The spots of a choice, in units of the scene; empty if it points nowhere.

        Args:
            actor: who chooses; None for a global action.
            choice: its label, the selected entity, or numbers, which point nowhere by default.

        Raises:
            UsageError: the look's `spots` raised, or returned something else.
        """
        places: Sequence[Place]
        if self.look.spots is None:
            places = self._default(action, actor, choice)
        else:
            places = self.look.call("spots", self.seen, action, actor, choice)
        spots = [self._spot(place, actor) for place in places]
        if not spots or spots[-1] is None:  # an entity that is not drawn
            return ()
        return tuple(spot for spot in spots if spot is not None)

    def _spot(self, place: Place, actor: SeenEntity | None) -> Spot | None:
        if isinstance(place, SeenEntity):
            center = self._centers.get(place.index)
            return None if center is None else Spot(*center)
        (x, y, *words) = place
        center = self.drawing.on_scene((x, y), actor) if self._has_cells else (x, y)
        return Spot(*center, *map(str, words))

    @property
    def _has_cells(self) -> bool:
        """Whether the picture has the cells of a board, and spots the coordinates of the game."""
        return self.look.draw is None or self.look.size is None

    # ------------------------------------------------------------------ without `Look.spots`

    def _default(
        self, action: ActionName, actor: SeenEntity | None, choice: Chosen
    ) -> Sequence[Place]:
        if not isinstance(choice, str):
            if not isinstance(choice, SeenEntity):
                return []
            return [choice] if actor is None else [actor, choice]
        step = self._step(action, choice)
        mover = self._lone_entity if actor is None else actor
        if step is None or mover is None or not self._has_cells:
            return []
        place = self.drawing.place_of(mover)
        if place is None:
            return []
        # The place itself, since several entities in a cell are drawn next to each other.
        return (
            [mover, mover] if not any(step) else [mover, (place[0] + step[0], place[1] + step[1])]
        )

    def _step(self, action: ActionName, label: str) -> tuple[float, float] | None:
        moves = self.look.moves.get(action)
        if moves is not None and label in moves:
            return moves[label]
        plain = label.lower().replace("-", "_").replace(" ", "_")
        plain = plain.removeprefix("move_").removeprefix("go_")
        return _DIRECTIONS.get(plain.replace("_", ""))

    @cached_property
    def _lone_entity(self) -> SeenEntity | None:
        """The hero of the look; else the only entity of the first type on the board, except ground.

        None if there are several: an arrow from another entity would be wrong.
        """
        if self.look.hero:
            kind, _, feature = self.look.hero.partition(".")
            found = [e for e in self.seen[kind] if not feature or e[feature]]
            return found[0] if len(found) == 1 else None
        for name in self.seen.obs_space.entities:
            placed = [e for e in self.seen[name] if self.drawing.place_of(e) is not None]
            if placed and name.lower() not in GROUND:
                return placed[0] if len(placed) == 1 else None
        return None


def box_at(shapes: Sequence[Shape], point: Point) -> Shape | None:
    """The upright rectangle of an entity whose center is a point, such as a row of a table."""
    boxes = (s for s in reversed(shapes) if s.kind == "rect" and not s.rotate and s.of >= 0)
    return next((box for box in boxes if math.dist(box.center, point) < _NEAR), None)


def draw_mark(scene: Scene, path: Sequence[Point], shapes: Sequence[Shape] = ()) -> None:
    """Adds the mark of a chosen move: an arrow along the path, or a ring around a single place or a
    place that the path has twice at its end; a frame if that is a rectangle of the `shapes`."""
    if not path:
        return
    end, before = path[-1], path[-2] if len(path) > 1 else path[-1]
    length = math.dist(before, end)
    if not length and (box := box_at(shapes, end)) is not None:
        width, height = box.size
        line = min(_LINE, min(box.size) / 10)
        for color, stroke in ((_HALO, 2 * line), (_MARK, line)):
            corner = end[0] - width / 2, end[1] - height / 2
            scene.rect(*corner, width, height, stroke=color, stroke_width=stroke)
        return
    if not length:
        for color, width in ((_HALO, 2 * _LINE), (_MARK, _LINE)):
            scene.circle(*end, _RING, stroke=color, stroke_width=width)
        return
    ahead = (end[0] - before[0]) / length, (end[1] - before[1]) / length
    tip = min(_TIP, length / 2)
    neck = end[0] - tip * ahead[0], end[1] - tip * ahead[1]
    side = -ahead[1] * tip / 2, ahead[0] * tip / 2
    corners = [end, *((neck[0] + k * side[0], neck[1] + k * side[1]) for k in (1, -1))]
    for color, more in ((_HALO, _LINE), (_MARK, 0.0)):
        scene.line([*path[:-1], neck], color, width=_LINE + more)
        scene.polygon(corners, color, stroke=color, stroke_width=more or 0.02)
