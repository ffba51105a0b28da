"""Drawing of `treasure_hunt`: the explorer with the remaining steps, treasures and traps."""

from __future__ import annotations

from entity_env.games.treasure_hunt import Explorer, Move
from entity_env.views import Chosen, Look, SeenEntity, SeenObservation, Style


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """From the explorer to the next cell."""
    if not seen.globals.names:
        return []
    (x, y), move = map(float, seen.globals.features[:2]), Move[str(choice)]
    return [(x, y), (x + move.dx, y + move.dy)]


def _words(entity: SeenEntity) -> str:
    x, y = entity.features[:2]
    return f"{entity.type} at {x:g}, {y:g}"


look = Look(
    styles={
        Explorer: Style(color="#0072b2 #56b4e9", size=0.9, label="steps_left", glyph="●"),
        "Treasure": Style("diamond", color="#8a6500 #f2c94c", glyph="◆"),
        "Trap": Style("triangle", color="#c92a2a #ff8787", glyph="▲"),
    },
    describe=_words,
    spots=_spots,
)
