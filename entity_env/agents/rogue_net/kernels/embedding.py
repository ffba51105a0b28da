"""The embedding of the entities of one type, forward and backward, in float32."""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.block import (
    add_columns,
    broadcast_row,
    layer_norm,
    layer_norm_backward,
    set_zero,
    transposed,
)
from entity_env.agents.rogue_net.kernels.matmul import add_outer, add_product
from entity_env.agents.rogue_net.kernels.simd import ZERO, vectorized
from entity_env.core.ragged import Floats

_CLIP: Final = np.float32(5.0)
_SLICE: Final = 96
"""Number of entities per pass, to keep them in the cache."""


@vectorized
def embed_rows(
    features: Floats,
    scale: tuple[Floats, Floats],
    linear: tuple[Floats, Floats],
    norm: tuple[Floats, Floats],
    kept: tuple[Floats, Floats, Floats],
    out: Floats,
) -> None:
    """Writes embeddings to `out`: normalize and clip, linear, ReLU, layer norm.

    `kept` gets the activations for the backward pass.
    """
    inputs, hidden, stats = kept
    num_rows, num_features = features.shape
    for r in range(num_rows):
        for k in range(num_features):
            value = (features[r, k] - scale[0][k]) / scale[1][k]
            if value > _CLIP:
                value = _CLIP
            elif value < -_CLIP:
                value = -_CLIP
            inputs[r, k] = value
    weight = transposed(linear[0])
    for at in range(0, num_rows, _SLICE):
        end = min(at + _SLICE, num_rows)
        part = hidden[at:end]
        broadcast_row(part, linear[1])
        add_product(inputs[at:end], weight, part)
        for r in range(end - at):
            for c in range(part.shape[1]):
                part[r, c] = ZERO if part[r, c] < ZERO else part[r, c]
        layer_norm(part, norm[0], norm[1], out[at:end], stats[at:end])


@vectorized
def embed_rows_backward(
    gradient: Floats,
    kept: tuple[Floats, Floats, Floats],
    norm_weight: Floats,
    by_linear: tuple[Floats, Floats],
    by_norm: tuple[Floats, Floats],
) -> None:
    """Adds the gradients of weights and biases; the gradient of the linear weight is transposed."""
    inputs, hidden, stats = kept
    num_rows, width = hidden.shape
    by_hidden = np.empty((_SLICE, width), dtype=np.float32)
    total = np.zeros(width, dtype=np.float32)
    for at in range(0, num_rows, _SLICE):
        end = min(at + _SLICE, num_rows)
        given, part = hidden[at:end], by_hidden[: end - at]
        set_zero(part)
        sums = (by_norm[0], by_norm[1], total)
        layer_norm_backward(gradient[at:end], given, norm_weight, stats[at:end], part, sums)
        for r in range(end - at):
            for c in range(width):
                part[r, c] = part[r, c] if given[r, c] > ZERO else ZERO
        add_columns(part, by_linear[1])
        add_outer(inputs[at:end], part, by_linear[0])
