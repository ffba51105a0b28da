"""The embedding of the entities of one type, compiled, with its gradient.

It imports numba: whoever needs it imports it when asked for. All arrays are contiguous float32
matrices and vectors that fit each other: nothing is checked.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.attention_compiled import ONE, ZERO, Floats, compiled

_CLIP: Final = np.float32(5.0)
_EPS: Final = np.float32(1e-5)


@compiled
def embed(
    features: Floats,
    scale: tuple[Floats, Floats],
    linear: tuple[Floats, Floats],
    norm: tuple[Floats, Floats],
    kept: tuple[Floats, Floats, Floats],
    out: Floats,
) -> None:
    """Normalizes features, then linear, ReLU, layer norm.

    Args:
        features: `(num_entities, num_features)`.
        scale: mean and deviation of each feature.
        linear, norm: weight and bias.
        kept: gets the normalized features, `(num_entities, d_model)` what ReLU gave, and
            `(num_entities, 2)` mean and inverse deviation of each row of that.
        out: `(num_entities, d_model)`.
    """
    inputs, hidden, stats = kept
    num_rows, num_features = features.shape
    width = out.shape[1]
    weight = np.empty((num_features, width), dtype=np.float32)
    for k in range(num_features):
        for c in range(width):
            weight[k, c] = linear[0][c, k]
    share = ONE / np.float32(width)
    for r in range(num_rows):
        for c in range(width):
            hidden[r, c] = linear[1][c]
        for k in range(num_features):
            value = (features[r, k] - scale[0][k]) / scale[1][k]
            if value > _CLIP:
                value = _CLIP
            elif value < -_CLIP:
                value = -_CLIP
            inputs[r, k] = value
            for c in range(width):
                hidden[r, c] += value * weight[k, c]
        total = ZERO
        for c in range(width):
            hidden[r, c] = ZERO if hidden[r, c] < ZERO else hidden[r, c]
            total += hidden[r, c]
        mean = total * share
        squares = ZERO
        for c in range(width):
            squares += (hidden[r, c] - mean) * (hidden[r, c] - mean)
        spread = ONE / np.sqrt(squares * share + _EPS)
        stats[r, 0], stats[r, 1] = mean, spread
        for c in range(width):
            out[r, c] = (hidden[r, c] - mean) * spread * norm[0][c] + norm[1][c]


@compiled
def embed_backward(
    gradient: Floats,
    kept: tuple[Floats, Floats, Floats],
    norm_weight: Floats,
    by_linear: tuple[Floats, Floats],
    by_norm: tuple[Floats, Floats],
) -> None:
    """Adds the gradients of weights and biases; that of the linear weight is transposed."""
    inputs, hidden, stats = kept
    num_rows, num_features = inputs.shape
    width = gradient.shape[1]
    share = ONE / np.float32(width)
    by_hidden = np.empty(width, dtype=np.float32)
    by_weight, by_bias = by_linear
    by_norm_weight, by_norm_bias = by_norm
    for r in range(num_rows):
        mean, spread = stats[r, 0], stats[r, 1]
        direct, along = ZERO, ZERO
        for c in range(width):
            normal = (hidden[r, c] - mean) * spread
            given = gradient[r, c]
            by_norm_weight[c] += given * normal
            by_norm_bias[c] += given
            direct += given * norm_weight[c]
            along += given * norm_weight[c] * normal
        direct *= share
        along *= share
        for c in range(width):
            normal = (hidden[r, c] - mean) * spread
            slope = (gradient[r, c] * norm_weight[c] - direct - normal * along) * spread
            by_hidden[c] = slope if hidden[r, c] > ZERO else ZERO
            by_bias[c] += by_hidden[c]
        for k in range(num_features):
            for c in range(width):
                by_weight[k, c] += inputs[r, k] * by_hidden[c]
