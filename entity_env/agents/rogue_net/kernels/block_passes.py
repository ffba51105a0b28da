"""A block of a transformer, forward and back, compiled: everything but the attention itself.

Whoever needs it imports it when asked for: it imports numba. Some entities are taken through all
steps at a time, as many as the cache holds with what is made of them. All arrays are contiguous
float32 matrices and vectors that fit each other: nothing is checked. Weights are those of torch's
layers: a row for each number that comes out.
"""

from __future__ import annotations

import numpy as np

from entity_env.agents.rogue_net.kernels.attention import Floats, compiled
from entity_env.agents.rogue_net.kernels.block import (
    add_columns,
    clear,
    copy,
    fill,
    fill_sum,
    gelu,
    gelu_and_slope,
    multiply,
    normalize,
    normalize_backward,
    turned,
)
from entity_env.agents.rogue_net.kernels.matmul import add_outer, add_product


@compiled
def to_qkv(
    x: Floats,
    norm: tuple[Floats, Floats],
    weights: tuple[Floats, Floats, Floats],
    biases: tuple[Floats, Floats, Floats],
    qkv: Floats,
    rows: int,
) -> None:
    """Normalizes entities and works out queries, keys and values.

    Args:
        x: `(num_entities, d_model)`.
        norm: weight and bias of the layer norm.
        weights, biases: of query, key and value.
        qkv: written: `(num_entities, 3 * d_model)`.
        rows: how many are taken at a time.
    """
    num_entities, width = x.shape
    normal, stats = np.empty((rows, width), np.float32), np.empty((rows, 2), np.float32)
    weight = np.empty((width, 3 * width), np.float32)
    bias = np.empty(3 * width, np.float32)
    for i in range(3):
        for c in range(width):
            bias[i * width + c] = biases[i][c]
            for k in range(width):
                weight[k, i * width + c] = weights[i][c, k]
    for at in range(0, num_entities, rows):
        end = min(at + rows, num_entities)
        own = normal[: end - at]
        normalize(x[at:end], norm[0], norm[1], own, stats)
        fill(qkv[at:end], bias)
        add_product(own, weight, qkv[at:end])


@compiled
def to_out(
    x: Floats,
    mixed: Floats,
    norm: tuple[Floats, Floats],
    weights: tuple[Floats, Floats, Floats],
    biases: tuple[Floats, Floats, Floats],
    y: Floats,
    out: Floats,
    rows: int,
) -> None:
    """From mixed values to the end of the block.

    Args:
        x: `(num_entities, d_model)`, what the block was given.
        mixed: `(num_entities, d_model)`, what attention made.
        norm: weight and bias of the layer norm before the perceptron.
        weights, biases: of the projection, and of the two layers of the perceptron.
        y: written: `(num_entities, d_model)`, what the perceptron adds to.
        out: written: `(num_entities, d_model)`.
        rows: how many are taken at a time.
    """
    width, inner = x.shape[1], len(biases[1])
    normal, stats = np.empty((rows, width), np.float32), np.empty((rows, 2), np.float32)
    hidden = np.empty((rows, inner), np.float32)
    project, rise, fall = turned(weights[0]), turned(weights[1]), turned(weights[2])
    for at in range(0, len(x), rows):
        end = min(at + rows, len(x))
        size = end - at
        fill_sum(y[at:end], x[at:end], biases[0])
        add_product(mixed[at:end], project, y[at:end])
        normalize(y[at:end], norm[0], norm[1], normal[:size], stats)
        fill(hidden[:size], biases[1])
        add_product(normal[:size], rise, hidden[:size])
        gelu(hidden[:size])
        fill_sum(out[at:end], y[at:end], biases[2])
        add_product(hidden[:size], fall, out[at:end])


@compiled
def back_to_mixed(
    by_out: Floats,
    given: tuple[Floats, Floats],
    norm: tuple[Floats, Floats],
    weights: tuple[Floats, Floats, Floats],
    rise_bias: Floats,
    by_norm: tuple[Floats, Floats],
    by_weights: tuple[Floats, Floats, Floats],
    by_biases: tuple[Floats, Floats, Floats],
    by_mixed: Floats,
    by_x: Floats,
    rows: int,
) -> None:
    """The gradient of `to_out`; what lay between is worked out again, which is sooner than to read.

    Args:
        by_out: gradient of `out`.
        given: `mixed` and `y`.
        norm, weights: as for `to_out`.
        rise_bias: of the first layer of the perceptron.
        by_norm, by_weights, by_biases: gradients, which are added to.
        by_mixed: written: gradient of `mixed`.
        by_x: written: gradient of `x`, as far as it does not go through attention.
        rows: how many are taken at a time.
    """
    width, inner = by_out.shape[1], len(rise_bias)
    normal, by_normal = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    stats = np.empty((rows, 2), np.float32)
    slope, hidden = np.empty((rows, inner), np.float32), np.empty((rows, inner), np.float32)
    rise = turned(weights[1])
    for at in range(0, len(by_out), rows):
        end = min(at + rows, len(by_out))
        size = end - at
        part, y, own = by_x[at:end], given[1][at:end], normal[:size]
        copy(part, by_out[at:end])
        rising, risen, back = slope[:size], hidden[:size], by_normal[:size]
        normalize(y, norm[0], norm[1], own, stats)
        fill(rising, rise_bias)
        add_product(own, rise, rising)
        gelu_and_slope(rising, risen)
        add_outer(part, risen, by_weights[2])
        add_columns(part, by_biases[2])
        clear(risen)
        add_product(part, weights[2], risen)
        multiply(risen, rising, rising, by_biases[1])
        add_outer(rising, own, by_weights[1])
        clear(back)
        add_product(rising, weights[1], back)
        normalize_backward(back, y, norm[0], stats, part, (*by_norm, by_biases[0]))
        add_outer(part, given[0][at:end], by_weights[0])
        clear(by_mixed[at:end])
        add_product(part, weights[0], by_mixed[at:end])


@compiled
def back_to_x(
    by_qkv: Floats,
    x: Floats,
    norm: tuple[Floats, Floats],
    weights: tuple[Floats, Floats, Floats],
    by_norm: tuple[Floats, Floats],
    by_weight: Floats,
    by_bias: Floats,
    by_x: Floats,
    rows: int,
) -> None:
    """The gradient of `to_qkv`.

    Args:
        by_qkv: gradient of queries, keys and values.
        x, norm, weights: as for `to_qkv`.
        by_norm: gradients of weight and bias of the layer norm, which are added to.
        by_weight, by_bias: `(3 * d_model, d_model)` and `(3 * d_model,)`, so.
        by_x: gradient of `x`, so.
        rows: how many are taken at a time.
    """
    width = x.shape[1]
    weight = np.empty((3 * width, width), np.float32)
    for i in range(3):
        for c in range(width):
            for k in range(width):
                weight[i * width + c, k] = weights[i][c, k]
    normal, by_normal = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    stats, total = np.empty((rows, 2), np.float32), np.zeros(width, np.float32)
    for at in range(0, len(x), rows):
        end = min(at + rows, len(x))
        part, own, back = by_qkv[at:end], normal[: end - at], by_normal[: end - at]
        normalize(x[at:end], norm[0], norm[1], own, stats)
        add_outer(part, own, by_weight)
        add_columns(part, by_bias)
        clear(back)
        add_product(part, weight, back)
        normalize_backward(back, x[at:end], norm[0], stats, by_x[at:end], (*by_norm, total))
