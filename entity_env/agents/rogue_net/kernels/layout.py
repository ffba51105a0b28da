"""Compiled loops over ragged rows: the layout of a batch, and copies of chosen rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.simd import vectorized
from entity_env.core.ragged import Ints


@vectorized
def place_all(counts: Ints, offsets: Ints, rows: Ints, places: Ints, order: Ints) -> None:
    """Writes fields of a `Layout`, given `(num_types, num_rows)` counts of entities."""
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


@vectorized
def take_sequences(
    values: NDArray[np.generic], offsets: Ints, index: Ints, out: NDArray[np.generic]
) -> None:
    """Copies the sequences with the indices `index` to `out`, one after another."""
    width = values.shape[1]
    at = 0
    for i in index:
        for j in range(offsets[i], offsets[i + 1]):
            for c in range(width):
                out[at, c] = values[j, c]
            at += 1
