"""Tiles: the screen as a grid of 8 x 8 pixels, each with a histogram and a distance."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from entity_env.errors import SchemaError
from entity_env.games.pixel.reward.reward import NUM_SHADES, Goal

TILE: Final = 8
"""Pixels along each side of a tile."""


def grid_shape(height: int, width: int) -> tuple[int, int]:
    """Rows and columns of tiles of a screen."""
    if height % TILE or width % TILE or not height or not width:
        raise SchemaError(
            f"a screen is shown as tiles of {TILE} x {TILE}, so its sides must be multiples of "
            f"{TILE}: got {height} x {width}"
        )
    return height // TILE, width // TILE


def places(height: int, width: int) -> Tensor:
    """Row and column of every tile, (T, 2) float32, row after row from the top left."""
    rows, columns = grid_shape(height, width)
    tiles = torch.arange(rows * columns)
    return torch.stack((tiles // columns, tiles % columns), 1).to(torch.float32)


def measure_tiles(frames: Tensor, goal: Goal) -> Tensor:
    """Histogram of shades, and distance from the goal's tile, of every tile."""
    # The larger minus the smaller, since bytes would wrap below 0.
    apart = torch.maximum(frames, goal.pixels).sub_(torch.minimum(frames, goal.pixels))
    if goal.metric == "squared":
        apart.mul_(apart)
    counts = [_tile_sums((frames == shade).view(torch.uint8)) for shade in range(NUM_SHADES)]
    return torch.stack((*counts, _tile_sums(apart)), 2)


def _tile_sums(pixels: Tensor) -> Tensor:
    """Sums of the tiles, (N, T) int32, of pixels (N, H, W) uint8 of at most 9."""
    num, height, width = pixels.shape
    # A column of a tile adds up to at most 8 * 9, so bytes hold it.
    columns = pixels.view(num, height // TILE, TILE, width).sum(2, dtype=torch.uint8)
    sums = columns.view(num, height // TILE, width // TILE, TILE).sum(3, dtype=torch.int32)
    return sums.flatten(1)
