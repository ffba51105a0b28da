"""Drawings of what an agent observed: shapes, looks, and their output as text, pages and pictures.

Agents and replays, which know how an episode went, do not belong here, nor do helpers only for
terminal commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.views.animation import Animation as Animation
    from entity_env.views.describe import describe_entity as describe_entity
    from entity_env.views.load_look import find_look as find_look
    from entity_env.views.look import Board as Board, Look as Look, Style as Style
    from entity_env.views.scene import (
        DECORATION as DECORATION,
        Scene as Scene,
        data_uri as data_uri,
    )
    from entity_env.views.seen import (
        Chosen as Chosen,
        SeenEntity as SeenEntity,
        SeenObservation as SeenObservation,
        Spot as Spot,
    )

# Imported on first use: shipped games and agents need only the text for entities.
_LATE = {
    "Animation": "animation",
    "describe_entity": "describe",
    "find_look": "load_look",
    **dict.fromkeys(("Board", "Look", "Style"), "look"),
    **dict.fromkeys(("DECORATION", "Scene", "data_uri"), "scene"),
    **dict.fromkeys(("Chosen", "SeenEntity", "SeenObservation", "Spot"), "seen"),
}

__all__ = list(_LATE)
__getattr__ = late_names(__name__, _LATE)
