"""Drawing of `rock_paper_scissors`: a card for each agent, and the three throws below."""

from __future__ import annotations

from math import cos, pi, sin
from typing import Final

from entity_env.games.rock_paper_scissors import Throw
from entity_env.views import Chosen, Look, Scene, SeenEntity, SeenObservation

_PAPER, _INK, _DIM = "#f8f9fa #202124", "#212529 #f1f3f5", "#5c636a #adb5bd"
_FACE, _EDGE, _BACK = "#ffffff #2b2f33", "#6c757d #868e96", "#dee2e6 #343a40"
_SIDES: Final = ("#0072b2 #56b4e9", "#c2410c #ffa94d")
_COLORS: Final = {
    "ROCK": "#6b5b4b #c9b7a3",
    "PAPER": "#3b6ea5 #8ec5ff",
    "SCISSORS": "#a61e4d #faa2c1",
}
_SIZE: Final = (9.0, 7.0)
_MAX_NAME: Final = 16
_WIDEST, _CHAR = 3.7, 0.55
"""Maximum width of a card's text, and approximate width of a character in units of its size."""


def _ground(scene: Scene) -> None:
    scene.rect(0, 0, scene.width, scene.height, _PAPER)
    for throw in Throw:
        x, y = _place(throw.name)
        scene.rect(x - 1.3, y - 0.9, 2.6, 1.8, _FACE, stroke=_EDGE, radius=0.2)
        draw_throw(scene, throw.name, x, y - 0.2, 0.5)
        scene.text(x, y + 0.6, throw.name, _INK, size=0.32)


def _place(throw: str) -> tuple[float, float]:
    """Center of a throw in the lower row."""
    return 1.6 + 2.9 * [each.name for each in Throw].index(throw), 5.95


def _draw(seen: SeenObservation, scene: Scene) -> None:
    mine, theirs = [*seen["Player"], None][0], [*seen["Opponent"], None][0]
    lefts = (0.3, 4.65) if seen.agent_id == seen.viewer else (4.65, 0.3)
    for left, agent, card in zip(
        lefts, (seen.agent_id, 1 - seen.agent_id), (mine, theirs), strict=True
    ):
        _draw_card(seen, scene, left, agent, card)


def _draw_card(
    seen: SeenObservation, scene: Scene, left: float, agent: int, card: SeenEntity | None
) -> None:
    """The card of an agent, face down if the observing agent cannot see it."""
    is_open = card is not None and card.is_visible
    fill, side = _FACE if is_open else _BACK, _SIDES[agent]
    scene.rect(left, 0.3, 4.05, 4.4, fill, stroke=side, stroke_width=0.1, radius=0.3, of=card)
    x = left + 2.025
    scene.text(x, 0.85, _name(seen, agent), _INK, size=0.42)
    strength = "" if card is None else str(card["strength"] or "")
    if not strength:
        scene.text(x, 2.4, "?", _INK, size=1.6)
        scene.text(x, 4.2, "strength unknown", _DIM, size=0.36)
        return
    draw_throw(scene, strength, x, 2.3, 1.0, card)
    scene.text(x, 3.7, strength, _INK, size=0.42, of=card)
    words = "wins 2 instead of 1" if is_open else f"hidden from {_name(seen, seen.agent_id)}"
    size = min(0.34, _WIDEST / (_CHAR * len(words)))
    scene.text(x, 4.25, words, _DIM, size=size, of=card)


def _name(seen: SeenObservation, agent: int) -> str:
    name = seen.agent_names[agent] if seen.agent_names else f"agent {agent}"
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def draw_throw(
    scene: Scene, throw: str, x: float, y: float, r: float, of: SeenEntity | None = None
) -> None:
    """A stone, a sheet of paper or scissors, within a circle of radius `r`."""
    color = _COLORS[throw]
    if throw == "ROCK":
        sizes = (1, 0.85, 1, 0.8, 0.95, 0.85, 0.9, 0.8)
        turns = [(r * size, i * pi / 4) for i, size in enumerate(sizes)]
        scene.polygon([(x + d * cos(a), y + 0.8 * d * sin(a)) for d, a in turns], color, of=of)
    elif throw == "PAPER":
        left, right, top, low = x - 0.65 * r, x + 0.65 * r, y - 0.85 * r, y + 0.85 * r
        fold = [(right - 0.4 * r, top), (right, top + 0.4 * r)]
        corners = [(left, top), *fold, (right, low), (left, low)]
        scene.polygon(corners, stroke=color, stroke_width=0.14 * r, of=of)
        for i in range(3):
            height = y + (0.42 * i - 0.25) * r
            ends = [(x - 0.35 * r, height), (x + 0.35 * r, height)]
            scene.line(ends, color, width=0.1 * r, of=of)
    else:
        for side in (-1, 1):
            blade = [(x + side * 0.28 * r, y + 0.34 * r), (x - side * 0.5 * r, y - 0.9 * r)]
            scene.line(blade, color, width=0.16 * r, of=of)
            handle = x + side * 0.42 * r, y + 0.58 * r
            scene.circle(*handle, 0.28 * r, stroke=color, stroke_width=0.15 * r, of=of)


def _legend() -> dict[str, Scene]:
    found = {"open to the agent": Scene(1, 1), "hidden from the agent": Scene(1, 1)}
    for scene, fill in zip(found.values(), (_FACE, _BACK), strict=True):
        scene.rect(0.15, 0.05, 0.7, 0.9, fill, stroke=_EDGE, radius=0.1)
    return found


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    return [_place(str(choice))]


def _words(entity: SeenEntity) -> str:
    return f"{entity.type}: {entity['strength']}"


look = Look(size=_SIZE, draw=_draw, ground=_ground, describe=_words, spots=_spots, legend=_legend)
