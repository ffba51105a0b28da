"""The loss of PPO, compiled, with its gradient.

Whoever needs it imports it when asked for: it imports numba.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention import ONE, ZERO, Floats, Ints, compiled

_HALF: Final = np.float32(0.5)
_SMALL: Final = 1e-8
"""Added to the deviation of advantages."""


@compiled
def mean_and_scale(numbers: Floats, index: Ints, is_used: bool) -> tuple[np.float32, np.float32]:
    """Mean and inverse deviation of some numbers; 0 and 1 where they are not used."""
    count = len(index)
    if not is_used or count < 2:
        return ZERO, ONE
    total = 0.0
    for i in index:
        total += numbers[i]
    mean = total / count
    squares = 0.0
    for i in index:
        squares += (numbers[i] - mean) ** 2
    return np.float32(mean), np.float32(1.0 / (np.sqrt(squares / (count - 1)) + _SMALL))


@compiled
def _error(
    value: np.float32, old: np.float32, target: np.float32, clip: np.float32, is_clipped: bool
) -> tuple[np.float32, np.float32]:
    """The larger error of a value, as it is or near the old one, and how it moves with it."""
    free = value - target
    if not is_clipped:
        return free, ONE
    moved = value - old
    near = min(max(moved, -clip), clip)
    held, inside = old + near - target, ONE if near == moved else ZERO
    if held * held > free * free:
        return held, inside
    # Where both are the same each has half of the gradient, as in torch.
    return free, _HALF + _HALF * inside if held * held == free * free else ONE


@compiled
def ppo_loss(
    new: tuple[Floats, Floats, Floats],
    old: tuple[Floats, Floats, Floats, Floats],
    index: Ints,
    clip: np.float32,
    flags: tuple[bool, bool],
    by: tuple[Floats, Floats],
    figures: Floats,
) -> None:
    """Writes figures of a minibatch, and the gradients of its first two.

    Args:
        new: `(num_decisions,)` log-probabilities, entropy and values as they are now.
        old: of all decisions, log-probabilities and values as they were, advantages and returns.
        index: `(num_decisions,)` which of all they are.
        clip: how far ratio and value may move.
        flags: whether advantages are normalized, and values clipped.
        by: gets the gradients of the loss of the policy by the log-probabilities and of that of
            the values by the values.
        figures: gets loss of the policy, loss of the values, entropy, divergence, clipped share.
    """
    logprobs, entropy, values = new
    old_logprobs, old_values, advantages, returns = old
    mean, scale = mean_and_scale(advantages, index, flags[0])
    share = ONE / np.float32(len(index))
    policy, value, surprise, divergence, clipped = 0.0, 0.0, 0.0, 0.0, 0
    for k in range(len(index)):
        i = index[k]
        logratio = logprobs[k] - old_logprobs[i]
        ratio = np.exp(logratio)
        advantage = (advantages[i] - mean) * scale
        near = min(max(ratio, ONE - clip), ONE + clip)
        free, held = -advantage * ratio, -advantage * near
        policy += held if held > free else free
        # Where both are the same each has half of the gradient, as in torch.
        own = ONE if free > held else (_HALF if free == held else ZERO)
        if near == ratio:
            own = ONE
        by[0][k] = own * free * share

        error, slope = _error(values[k], old_values[i], returns[i], clip, flags[1])
        value += float(error * error)
        by[1][k] = slope * error * share

        surprise += entropy[k]
        divergence += ratio - ONE - logratio
        clipped += abs(ratio - ONE) > clip
    figures[0] = policy * share
    figures[1] = 0.5 * value * share
    figures[2] = surprise * share
    figures[3] = divergence * share
    figures[4] = clipped * share


@compiled
def take_sequences(
    values: NDArray[np.generic], offsets: Ints, index: Ints, out: NDArray[np.generic]
) -> None:
    """Copies sequences one after another; nothing is checked.

    Args:
        values: `(num_values, width)`.
        offsets: `(num_sequences + 1,)` where each sequence begins.
        index: `(num_taken,)` sequences.
        out: `(num_values_taken, width)`, is written.
    """
    width = values.shape[1]
    at = 0
    for i in index:
        for j in range(offsets[i], offsets[i + 1]):
            for c in range(width):
                out[at, c] = values[j, c]
            at += 1
