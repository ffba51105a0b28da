"""What is done with entities as they leave the network, compiled, with its gradient.

Whoever needs it imports it when asked for: it imports numba. All arrays are contiguous and fit each
other: nothing is checked.
"""

from __future__ import annotations

import numpy as np

from entity_env.agents.rogue_net.kernels.attention import (
    ONE,
    ZERO,
    Floats,
    Ints,
    compiled,
)


@compiled
def mean_rows(x: Floats, order: Ints, offsets: Ints, mean: Floats) -> None:
    """Writes the mean over the entities of each observation, 0 where none is.

    Args:
        x: `(num_entities, width)`.
        order, offsets: as in `Layout`.
        mean: `(num_rows, width)`.
    """
    num_rows, width = mean.shape
    for r in range(num_rows):
        for c in range(width):
            mean[r, c] = ZERO
        start, end = offsets[r], offsets[r + 1]
        for place in range(start, end):
            e = order[place]
            for c in range(width):
                mean[r, c] += x[e, c]
        share = ONE / np.float32(max(end - start, 1))
        for c in range(width):
            mean[r, c] *= share


@compiled
def mean_rows_backward(
    gradient: Floats, order: Ints, offsets: Ints, out: Floats, is_new: bool
) -> None:
    """The gradient of `mean_rows`.

    Args:
        gradient: `(num_rows, width)`.
        order, offsets: as in `Layout`.
        out: `(num_entities, width)`: written when new, else added to.
    """
    num_rows, width = gradient.shape
    own = np.empty(width, dtype=np.float32)
    for r in range(num_rows):
        start, end = offsets[r], offsets[r + 1]
        share = ONE / np.float32(max(end - start, 1))
        for c in range(width):
            own[c] = gradient[r, c] * share
        for place in range(start, end):
            e = order[place]
            if is_new:
                for c in range(width):
                    out[e, c] = own[c]
            else:
                for c in range(width):
                    out[e, c] += own[c]


@compiled
def add_rows(part: Floats, index: Ints, out: Floats) -> None:
    """Adds row `i` of a part to row `index[i]`."""
    width = out.shape[1]
    for i in range(len(index)):
        e = index[i]
        for c in range(width):
            out[e, c] += part[i, c]


@compiled
def compare(
    x: Floats, wanted: Floats, rows: Ints, actees: tuple[Ints, Ints], logits: Floats
) -> None:
    """Writes the product of every actor with every entity that it may select.

    Args:
        x: `(num_entities, width)`, what entities are.
        wanted: `(num_actors, width)`, what actors look for.
        rows: `(num_actors,)` observation of each actor.
        actees: packed index of every actee, and `(num_rows + 1,)` where those of each observation
            begin.
        logits: `(num_actors, max_actees)`; 0 where the observation has no more actees.
    """
    packed, offsets = actees
    num_actors, width = wanted.shape
    for a in range(num_actors):
        start = offsets[rows[a]]
        length = offsets[rows[a] + 1] - start
        for j in range(length):
            e = packed[start + j]
            logit = ZERO
            for c in range(width):
                logit += x[e, c] * wanted[a, c]
            logits[a, j] = logit
        for j in range(length, logits.shape[1]):
            logits[a, j] = ZERO


@compiled
def compare_backward(
    gradient: Floats,
    given: tuple[Floats, Floats],
    rows: Ints,
    actees: tuple[Ints, Ints],
    by: tuple[Floats, Floats],
) -> None:
    """Adds to the gradients `by` of what was `given` to `compare`: `x` and `wanted`."""
    packed, offsets = actees
    x, wanted = given
    by_x, by_wanted = by
    num_actors, width = wanted.shape
    for a in range(num_actors):
        start = offsets[rows[a]]
        for j in range(offsets[rows[a] + 1] - start):
            slope = gradient[a, j]
            if slope == ZERO:
                continue
            e = packed[start + j]
            for c in range(width):
                by_wanted[a, c] += slope * x[e, c]
                by_x[e, c] += slope * wanted[a, c]
