"""Drawings of games of planets and fleets: the player's side is blue, rivals are orange."""

from __future__ import annotations

import math
from typing import Final

from entity_env.core.spaces import ActionName
from entity_env.views import DECORATION, Chosen, Look, Scene, SeenEntity, SeenObservation

_COLORS: Final = {
    "MINE": "#0072b2 #56b4e9",
    "ENEMY": "#c2410c #ffa94d",
    "NEUTRAL": "#5c636a #adb5bd",
}
_INK: Final = "#ffffff #16181a"
_WORDS: Final = "#212529 #e9ecef"
_SUN: Final = "#f2c94c #f2c94c"
_SUN_RADIUS: Final = 10.0


def _number(entity: SeenEntity, name: str) -> float:
    return float(entity.features[entity.names.index(name)])


def _spots(
    seen: SeenObservation, action: ActionName, actor: SeenEntity | None, choice: Chosen
) -> list[SeenEntity]:
    """From a planet to the target of its fleet."""
    return [actor, choice] if actor is not None and isinstance(choice, SeenEntity) else []


def _draw(seen: SeenObservation, scene: Scene, unit: float) -> None:
    """Draws planets and fleets in a square scene; `unit` is the radius of the smallest planet."""
    middle = scene.width / 2
    for fleet in seen["Fleet"]:
        x, y = middle + _number(fleet, "x"), middle - _number(fleet, "y")
        size = unit * min(0.3 + 0.1 * _number(fleet, "log_ships"), 1.0)
        color = _COLORS[str(fleet["owner"])]
        if "angle" in fleet.names:
            angle = _number(fleet, "angle")
            corners = [(angle + turn, size * far) for turn, far in ((0, 1.6), (2.5, 1), (-2.5, 1))]
            points = [(x + far * math.cos(a), y - far * math.sin(a)) for a, far in corners]
            scene.polygon(points, color, of=fleet)
        else:
            scene.circle(x, y, size / 2, color, of=fleet)
    for planet in seen["Planet"]:
        x, y = middle + _number(planet, "x"), middle - _number(planet, "y")
        radius = _number(planet, "radius") if "radius" in planet.names else unit
        scene.circle(x, y, radius, _COLORS[str(planet["owner"])], of=planet)
        scene.text(x, y, f"{_number(planet, 'ships'):.0f}", _INK, size=min(radius, 1.6 * unit))


def _draw_orbits(seen: SeenObservation, scene: Scene) -> None:
    scene.circle(scene.width / 2, scene.height / 2, _SUN_RADIUS, _SUN, of=DECORATION)
    _draw(seen, scene, 1.0)


def _draw_map(seen: SeenObservation, scene: Scene) -> None:
    _draw(seen, scene, 0.6)


def _words(entity: SeenEntity) -> str:
    """A planet or fleet in a few words."""
    owner = str(entity["owner"]).lower()
    place = f"at {_number(entity, 'x'):.0f}, {_number(entity, 'y'):.0f}"
    return f"{owner} {entity.type} {place} with {_number(entity, 'ships'):.0f} ships"


orbit_wars: Final = Look(
    size=(104, 104), draw=_draw_orbits, spots=_spots, describe=_words, name="orbit_wars"
)
planet_wars: Final = Look(
    size=(34, 34), draw=_draw_map, spots=_spots, describe=_words, name="planet_wars"
)
