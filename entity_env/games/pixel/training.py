"""Training settings of the pixel games: as batches, with the preset for screen tiles."""

from __future__ import annotations

from typing import Final

from entity_env.games.pixel.play import catch_batch, grid_batch, maze_batch, rom_batch
from entity_env.vec import GameTraining

_SCREEN: Final = {"preset": "screen"}

grid: Final = GameTraining(_SCREEN, grid_batch)
maze: Final = GameTraining(_SCREEN, maze_batch)
# A gamma close to 1: late catches count almost as much as early catches.
catch: Final = GameTraining({**_SCREEN, "gamma": 0.98}, catch_batch)
rom: Final = GameTraining(_SCREEN, rom_batch)
