"""Gathering and pooling of encoded entities, forward and backward."""

from __future__ import annotations

import numpy as np

from entity_env.agents.rogue_net.kernels.simd import ONE, vectorized
from entity_env.core.ragged import Floats, Ints


@vectorized
def add_rows(given: Floats, index: Ints, out: Floats) -> None:
    """Adds row `i` of `given` to row `index[i]` of `out`."""
    for i in range(len(index)):
        e = index[i]
        for c in range(out.shape[1]):
            out[e, c] += given[i, c]


@vectorized
def mean_rows(x: Floats, order: Ints, offsets: Ints, out: Floats) -> None:
    """Adds the mean over the entities of each observation to its row of `out`."""
    for r in range(len(out)):
        share = ONE / np.float32(max(offsets[r + 1] - offsets[r], 1))
        for place in range(offsets[r], offsets[r + 1]):
            e = order[place]
            for c in range(out.shape[1]):
                out[r, c] += x[e, c] * share


@vectorized
def mean_rows_backward(
    given: Floats, order: Ints, offsets: Ints, is_new: bool, out: Floats
) -> None:
    """Adds the gradient of every entity to `out`; with `is_new`, overwrites it."""
    for r in range(len(given)):
        share = ONE / np.float32(max(offsets[r + 1] - offsets[r], 1))
        for place in range(offsets[r], offsets[r + 1]):
            e = order[place]
            for c in range(out.shape[1]):
                part = given[r, c] * share
                out[e, c] = part if is_new else out[e, c] + part
