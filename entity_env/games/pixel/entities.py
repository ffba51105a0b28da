"""Observation and action space of the pixel games. Importing this does not import torch.

Entities and features:
    Tile: row, column, its position on the screen, (0, 0) at the top left; shade_0 to shade_3,
        pixels of each shade, 64 in total; distance from the same tile of the goal, an integer. All
        tiles of the screen, row by row.
    Global: dist, distance of the screen from the goal, from 0 to 1; match, consecutive matches
        divided by match_k; time, steps so far divided by max_steps.
Actions:
    Press: A, B, START, UP, DOWN, LEFT or RIGHT, one choice per step: the button that is held.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from entity_env import ActionName, ActionSpace, Entity, GlobalCategorical, ObsSpace
from entity_env.games.pixel.worlds.world import Button


@dataclass(slots=True)
class Tile:
    """8 x 8 pixels of the screen."""

    row: int
    column: int
    shade_0: int
    shade_1: int
    shade_2: int
    shade_3: int
    distance: int


@dataclass(slots=True)
class Screen:
    """Features of the whole screen and of the episode."""

    dist: float
    match: float
    time: float


NUM_TILE: Final = len(fields(Tile))
NUM_SCREEN: Final = len(fields(Screen))
"""Numbers of features."""
PRESS: Final = GlobalCategorical(Button, name="Press")


def obs_space() -> ObsSpace:
    """Observation space of all pixel games."""
    return ObsSpace(
        global_features=tuple(field.name for field in fields(Screen)),
        entities={Tile.__name__: Entity(tuple(field.name for field in fields(Tile)))},
    )


def action_space() -> dict[ActionName, ActionSpace]:
    """Action space of all pixel games."""
    return {PRESS.name: PRESS.space}
