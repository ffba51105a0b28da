"""Drawing of `meteors`: a ship below stones with tails."""

from __future__ import annotations

from entity_env.games.meteor_shower.meteors import Steer
from entity_env.views import DECORATION, Chosen, Look, Scene, SeenEntity, SeenObservation, Style

_SKY, _GROUND = "#f1f5fb #14161c", "#868e96 #868e96"
_SHIP, _STONE, _TAIL = "#0072b2 #56b4e9", "#8a4b2a #e8a87c", "#d9480f #ff922b"


def _ground(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, _SKY)
    scene.line([(0, scene.height - 0.03), (scene.width, scene.height - 0.03)], _GROUND, width=0.06)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    for body in seen["Body"]:
        x, y = float(body.features[0]) + 0.5, scene.height - float(body.features[1]) - 0.5
        (_draw_ship if body["is_ship"] else _draw_stone)(scene, x, y, body)


def _draw_ship(scene: Scene, x: float, y: float, of: SeenEntity | None = None) -> None:
    hull = [(x, y - 0.42), (x + 0.4, y + 0.4), (x, y + 0.22), (x - 0.4, y + 0.4)]
    scene.polygon(hull, _SHIP, of=of)


def _draw_stone(scene: Scene, x: float, y: float, of: SeenEntity | None = None) -> None:
    scene.circle(x, y + 0.1, 0.34, _STONE, of=of)
    for side, top in ((-0.2, 0.38), (0, 0.55), (0.2, 0.38)):
        ends = [(x + side, y - 0.24), (x + side, y - top)]
        scene.line(ends, _TAIL, width=0.08, of=DECORATION)


def _legend() -> dict[str, Scene]:
    found = {"ship": Scene(1, 1), "meteor": Scene(1, 1)}
    _draw_ship(found["ship"], 0.5, 0.5)
    _draw_stone(found["meteor"], 0.5, 0.55)
    return found


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """The ship's cell, and the next one in the chosen direction, even past the border."""
    return [
        (float(ship.features[0]) + dx, 0.0)
        for ship in seen["Body"]
        if ship["is_ship"]
        for dx in (0, Steer[str(choice)].value)
    ]


def _words(entity: SeenEntity) -> str:
    return f"{'ship' if entity['is_ship'] else 'meteor'} at {entity['x']:g}, {entity['y']:g}"


look = Look(
    styles={"Body": Style(color="is_ship", glyph="●")},
    draw=_draw,
    ground=_ground,
    describe=_words,
    spots=_spots,
    legend=_legend,
)
