"""Choosing for a whole batch, compiled.

Whoever needs it imports it when asked for: it imports numba. All arrays are contiguous and fit each
other: nothing is checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention import ZERO, Floats, Ints, compiled
from entity_env.agents.rogue_net.kernels.categorical import log_softmax, weigh

_SHORTEST: Final = np.float32(1e-30)
"""Of a race: a draw can be 0, and 0 / 0 would win every one."""


@compiled
def label_logits(x: Floats, packed: Ints, weight: Floats, bias: Floats, logits: Floats) -> None:
    """Writes what a linear layer gives for some entities.

    Args:
        x: `(num_entities, d_model)`.
        packed: `(num_actors,)` which of them.
        weight, bias: `(num_labels, d_model)` and `(num_labels,)`.
        logits: `(num_actors, num_labels)`.
    """
    num_actors, num_labels = logits.shape
    width = x.shape[1]
    for a in range(num_actors):
        e = packed[a]
        for j in range(num_labels):
            logit = bias[j]
            for c in range(width):
                logit += x[e, c] * weight[j, c]
            logits[a, j] = logit


@compiled
def choose(
    logits: Floats,
    allowed: NDArray[np.bool_],
    race: Floats,
    rows: Ints,
    samples: Ints,
    logprobs: Floats,
    entropy: Floats,
) -> None:
    """Draws a choice for every actor.

    Args:
        logits: `(num_actors, num_choices)`; is overwritten.
        allowed: the same shape; without rows, all choices are.
        race: the same shape, exponential draws: the smallest `draw / probability` wins.
        rows: `(num_actors,)` the observation of each actor.
        samples: `(num_actors,)`, written.
        logprobs, entropy: `(num_rows,)`, to which those of its actors are added.
    """
    num_actors, num_choices = logits.shape
    log_softmax(logits, allowed, logits)
    for a in range(num_actors):
        best, most = 0, np.float32(-1.0)
        for j in range(num_choices):
            score = np.exp(logits[a, j]) / max(race[a, j], _SHORTEST)
            if score > most:
                best, most = j, score
        samples[a] = best
    own, spread = np.empty(num_actors, np.float32), np.empty(num_actors, np.float32)
    weigh(logits, samples, own, spread)
    for a in range(num_actors):
        logprobs[rows[a]] += own[a]
        entropy[rows[a]] += spread[a]


@compiled
def mean_values(
    x: Floats, order: Ints, offsets: Ints, weight: Floats, bias: Floats, values: Floats
) -> None:
    """Writes what a linear layer gives for the mean of the entities of each observation.

    Args:
        x: `(num_entities, d_model)`.
        order, offsets: as in `Layout`.
        weight, bias: `(1, d_model)` and `(1,)`.
        values: `(num_rows,)`.
    """
    width = x.shape[1]
    for r in range(len(values)):
        total = ZERO
        for place in range(offsets[r], offsets[r + 1]):
            e = order[place]
            for c in range(width):
                total += x[e, c] * weight[0, c]
        values[r] = total / np.float32(max(offsets[r + 1] - offsets[r], 1)) + bias[0]
