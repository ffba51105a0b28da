"""Probabilities of labels and entities, compiled, with their gradients.

Whoever needs it imports it when asked for: it imports numba. All matrices are contiguous, a row for
each actor and a column for each choice; they fit each other: nothing else is checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention import (
    ONE,
    ZERO,
    Floats,
    Ints,
    compiled,
    exponential,
)

_FORBIDDEN: Final = np.float32(-1e30)
"""Logit of what is not allowed, as in `torch_distributions`."""
_NEVER: Final = np.float32(-87.0)
"""Logarithm of what is taken for 0."""


@compiled
def _probabilities(logprobs: Floats) -> Floats:
    """Exponentials, all at once: those of a few choices alone would fill no vector."""
    probs = np.empty(logprobs.size, dtype=np.float32)
    flat = logprobs.reshape(-1)
    for i in range(len(flat)):
        probs[i] = flat[i]
    exponential(probs, np.empty(len(flat), dtype=np.int32), len(flat))
    return probs.reshape(logprobs.shape)


@compiled
def log_softmax(logits: Floats, allowed: NDArray[np.bool_], logprobs: Floats) -> None:
    """Writes log-probabilities; without rows of `allowed`, all choices are."""
    num_actors, num_choices = logits.shape
    is_masked = len(allowed) > 0
    for a in range(num_actors):
        largest = np.float32(-np.inf)
        for j in range(num_choices):
            logit = logits[a, j]
            if is_masked and not allowed[a, j]:
                logit = _FORBIDDEN
            logprobs[a, j] = logit
            largest = max(largest, logit)
        for j in range(num_choices):
            logprobs[a, j] -= largest
    probs = _probabilities(logprobs)
    for a in range(num_actors):
        total = ZERO
        for j in range(num_choices):
            total += probs[a, j]
        shift = np.log(total)
        for j in range(num_choices):
            logprobs[a, j] -= shift


@compiled
def log_softmax_backward(
    gradient: Floats, allowed: NDArray[np.bool_], logprobs: Floats, by_logits: Floats
) -> None:
    """Writes the gradient of the logits: 0 where not allowed."""
    num_actors, num_choices = logprobs.shape
    probs = _probabilities(logprobs)
    for a in range(num_actors):
        total = ZERO
        for j in range(num_choices):
            total += gradient[a, j]
        for j in range(num_choices):
            by_logits[a, j] = gradient[a, j] - probs[a, j] * total
    if len(allowed) > 0:
        for a in range(num_actors):
            for j in range(num_choices):
                by_logits[a, j] = by_logits[a, j] if allowed[a, j] else ZERO


@compiled
def weigh(logprobs: Floats, samples: Ints, chosen: Floats, entropy: Floats) -> bool:
    """Writes the log-probability of each sample, and the entropy; False where a sample is none."""
    num_actors, num_choices = logprobs.shape
    probs = _probabilities(logprobs)
    for a in range(num_actors):
        if samples[a] < 0 or samples[a] >= num_choices:
            return False
        chosen[a] = logprobs[a, samples[a]]
        total = ZERO
        for j in range(num_choices):
            total -= ZERO if logprobs[a, j] < _NEVER else probs[a, j] * logprobs[a, j]
        entropy[a] = total
    return True


@compiled
def weigh_backward(
    by_chosen: Floats, by_entropy: Floats, logprobs: Floats, samples: Ints, by_logprobs: Floats
) -> None:
    """Writes the gradient of the log-probabilities."""
    num_actors, num_choices = logprobs.shape
    probs = _probabilities(logprobs)
    for a in range(num_actors):
        for j in range(num_choices):
            slope = ZERO if logprobs[a, j] < _NEVER else probs[a, j] * (ONE + logprobs[a, j])
            by_logprobs[a, j] = -by_entropy[a] * slope
        by_logprobs[a, samples[a]] += by_chosen[a]
