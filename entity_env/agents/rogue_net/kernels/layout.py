"""Lays out a batch, compiled: one pass over its entities.

Whoever needs it imports it when asked for: it imports numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention import compiled

Int = NDArray[np.int64]


@compiled
def place_all(counts: Int, offsets: Int, rows: Int, places: Int, order: Int) -> None:
    """Writes the fields of a `Layout` of those names.

    Args:
        counts: `(num_types, num_rows)` int64, entities of each type in each observation.
        offsets: `(num_rows + 1,)` int64.
        rows, places, order: `(num_entities,)` int64.
    """
    num_types, num_rows = counts.shape
    offsets[0] = 0
    for r in range(num_rows):
        length = 0
        for kind in range(num_types):
            length += counts[kind, r]
        offsets[r + 1] = offsets[r] + length
    place = offsets[:-1].copy()
    packed = 0
    for kind in range(num_types):
        for r in range(num_rows):
            for _ in range(counts[kind, r]):
                rows[packed] = r
                places[packed] = place[r]
                order[place[r]] = packed
                place[r] += 1
                packed += 1
