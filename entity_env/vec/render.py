"""A picture of a game from its schema alone: entities with features x and y on a grid."""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import ObsSpace
from entity_env.core.vec_obs import VecObs

_CELL = 16


def picture(batch: VecObs, obs_space: ObsSpace, row: int) -> NDArray[np.uint8]:
    """Draws one row of a batch, `(height, width, 3)` uint8, 16 pixels a cell, y upwards.

    Types of entities without features x and y are left out; each of the others has a colour of its
    own. Coordinates are rounded, and shifted so that none is negative.
    """
    layers = []
    for i, (name, entity) in enumerate(obs_space.entities.items()):
        features = list(entity.features)
        if "x" in features and "y" in features:
            xy = batch.features[name][row][:, [features.index("x"), features.index("y")]]
            layers.append((_colour(i, len(obs_space.entities)), np.rint(xy).astype(np.int64)))
    cells = np.concatenate([cells for _, cells in layers] or [np.zeros((0, 2), dtype=np.int64)])
    low = np.minimum(cells.min(axis=0, initial=0), 0)
    size = cells.max(axis=0, initial=0) - low + 1
    grid = np.zeros((int(size[1]), int(size[0]), 3), dtype=np.uint8)
    for colour, cells in layers:
        grid[size[1] - 1 - (cells[:, 1] - low[1]), cells[:, 0] - low[0]] = colour
    return grid.repeat(_CELL, axis=0).repeat(_CELL, axis=1)


def _colour(index: int, count: int) -> list[int]:
    red, green, blue = colorsys.hsv_to_rgb(index / max(count, 1), 0.6, 1.0)
    return [int(255 * red), int(255 * green), int(255 * blue)]
