"""Heads of the network during play: logits, draws and values of a batch."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.simd import ZERO, vectorized
from entity_env.core.ragged import Floats, Ints

_FORBIDDEN: Final = np.float32(-1e30)
"""Logit of a choice that is not allowed, as in `torch_net.distributions`."""
_NEVER: Final = np.float32(-87.0)
"""Choices with a lower log-probability do not count in the entropy."""
_SHORTEST: Final = np.float32(1e-30)
"""Lower bound of the exponential draws in `draw_categorical`, since 0 / 0 is NaN."""


@vectorized
def label_logits(x: Floats, packed: Ints, weight: Floats, bias: Floats, logits: Floats) -> None:
    """Writes the output of a linear layer for the entities with the indices `packed`."""
    num_actors, num_labels = logits.shape
    width = x.shape[1]
    for a in range(num_actors):
        e = packed[a]
        for j in range(num_labels):
            logit = bias[j]
            for c in range(width):
                logit += x[e, c] * weight[j, c]
            logits[a, j] = logit


@vectorized
def actee_logits(
    x: Floats, queries: Floats, rows: Ints, packed: Ints, offsets: Ints, logits: Floats
) -> None:
    """Writes the dot product of every actor's query with each actee of its row; 0 in padding."""
    num_actors, width = queries.shape
    for a in range(num_actors):
        start = offsets[rows[a]]
        length = offsets[rows[a] + 1] - start
        for j in range(length):
            e = packed[start + j]
            logit = ZERO
            for c in range(width):
                logit += x[e, c] * queries[a, c]
            logits[a, j] = logit
        for j in range(length, logits.shape[1]):
            logits[a, j] = ZERO


@vectorized
def draw_categorical(
    logits: Floats,
    allowed: NDArray[np.bool_],
    race: Floats,
    rows: Ints,
    samples: Ints,
    logprobs: Floats,
    entropy: Floats,
) -> None:
    """Draws a choice for every actor by an exponential race; an empty `allowed` allows everything.

    `race` has an exponential draw for every choice: the largest probability / draw wins.
    Overwrites `logits` with log-probabilities. Adds the log-probabilities of the samples and the
    entropies to the actors' rows of `logprobs` and `entropy`.
    """
    num_actors, num_choices = logits.shape
    for a in range(num_actors):
        top = np.float32(-np.inf)
        for j in range(num_choices):
            if len(allowed) > 0 and not allowed[a, j]:
                logits[a, j] = _FORBIDDEN
            top = max(top, logits[a, j])
        total = ZERO
        for j in range(num_choices):
            total += np.exp(logits[a, j] - top)
        shift = np.log(total)
        best, most, own_entropy = 0, np.float32(-1.0), ZERO
        for j in range(num_choices):
            logprob = logits[a, j] - top - shift
            prob = np.exp(logprob)
            own_entropy -= ZERO if logprob < _NEVER else prob * logprob
            logits[a, j] = logprob
            score = prob / max(race[a, j], _SHORTEST)
            if score > most:
                best, most = j, score
        samples[a] = best
        logprobs[rows[a]] += logits[a, best]
        entropy[rows[a]] += own_entropy


@vectorized
def mean_values(
    x: Floats, order: Ints, offsets: Ints, weight: Floats, bias: Floats, values: Floats
) -> None:
    """Writes a linear layer's single output for the mean of each observation's entities."""
    width = x.shape[1]
    for r in range(len(values)):
        total = ZERO
        for place in range(offsets[r], offsets[r + 1]):
            e = order[place]
            for c in range(width):
                total += x[e, c] * weight[0, c]
        values[r] = total / np.float32(max(offsets[r + 1] - offsets[r], 1)) + bias[0]
