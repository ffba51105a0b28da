"""A transformer block without its attention, forward and backward.

Weights are `(num_outputs, num_inputs)` float32, as in torch's layers. Entities pass through all
steps slice by slice, to keep intermediate results in the cache.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.matmul import add_outer, add_product
from entity_env.agents.rogue_net.kernels.simd import ONE, ZERO, vectorized
from entity_env.core.ragged import Floats

Columns = tuple[Floats, Floats, Floats]
"""Three arrays with one number per column of a matrix."""


def _float32s(*numbers: float) -> tuple[np.float32, ...]:
    return tuple(map(np.float32, numbers))


_HALF: Final = np.float32(0.5)
_EPS: Final = np.float32(1e-5)
"""Added to the variance: torch's default."""
# Rational approximations in the square of x, fitted by least squares with weights that minimize the
# largest error: 1/2 + x * _P / _Q is the normal distribution function at x, 1/2 + x * _R / _S the
# derivative of GELU. Errors in float32 are at most 2e-7 and 4e-7. Beyond ±_CDF_END and ±_SLOPE_END,
# the functions are taken as constant.
_CDF_END: Final = np.float32(5.2)
_P: Final = _float32s(
    0.39894226, 0.032543533, 0.0046085836, 0.0001568513, 6.4078304e-06, 2.4732017e-08
)
_Q: Final = _float32s(1.0, 0.24824089, 0.027926108, 0.0018171447, 7.049286e-05, 1.2588902e-06)
_SLOPE_END: Final = np.float32(6.0)
_R: Final = _float32s(
    0.79788476, -0.030767532, 0.014210826, 2.3741655e-05, 3.5849283e-05, 1.9097284e-07
)
_S: Final = _float32s(1.0, 0.29477653, 0.041055728, 0.003528266, 0.0001933394, 8.889861e-06)


@vectorized
def _polynomial(u: np.float32, factors: tuple[np.float32, ...]) -> np.float32:
    a, b, c, d, e, f = factors
    return a + u * (b + u * (c + u * (d + u * (e + u * f))))


@vectorized
def _normal_cdf(x: np.float32) -> np.float32:
    near = min(max(x, -_CDF_END), _CDF_END)
    cdf = _HALF + near * _polynomial(near * near, _P) / _polynomial(near * near, _Q)
    return cdf if x > -_CDF_END else ZERO  # exactly 0: GELU multiplies it by x, however large


@vectorized
def _gelu_slope(x: np.float32) -> np.float32:
    x = min(max(x, -_SLOPE_END), _SLOPE_END)
    return _HALF + x * _polynomial(x * x, _R) / _polynomial(x * x, _S)


@vectorized
def layer_norm(x: Floats, weight: Floats, bias: Floats, out: Floats, stats: Floats) -> None:
    """Layer norm of each row of `x`; `stats` `(rows, 2)` gets mean and inverse deviation."""
    num_rows, width = x.shape
    share = ONE / np.float32(width)
    for r in range(num_rows):
        total = ZERO
        for c in range(width):
            total += x[r, c]
        mean = total * share
        squares = ZERO
        for c in range(width):
            squares += (x[r, c] - mean) * (x[r, c] - mean)
        scale = ONE / np.sqrt(squares * share + _EPS)
        stats[r, 0], stats[r, 1] = mean, scale
        for c in range(width):
            out[r, c] = (x[r, c] - mean) * scale * weight[c] + bias[c]


@vectorized
def layer_norm_backward(
    gradient: Floats, x: Floats, weight: Floats, stats: Floats, out: Floats, sums: Columns
) -> None:
    """Adds the gradient of `x` to `out`, those of weight and bias to the first two of `sums`.

    Adds the column sums of `out` to the third.
    """
    num_rows, width = x.shape
    share = ONE / np.float32(width)
    by_weight = np.zeros(width, dtype=np.float32)
    by_bias = np.zeros(width, dtype=np.float32)
    total = np.zeros(width, dtype=np.float32)
    for r in range(num_rows):
        mean, scale = stats[r, 0], stats[r, 1]
        direct, along = ZERO, ZERO
        for c in range(width):
            normal = (x[r, c] - mean) * scale
            given = gradient[r, c]
            by_weight[c] += given * normal
            by_bias[c] += given
            direct += given * weight[c]
            along += given * weight[c] * normal
        direct *= share
        along *= share
        for c in range(width):
            normal = (x[r, c] - mean) * scale
            out[r, c] += (gradient[r, c] * weight[c] - direct - normal * along) * scale
            total[c] += out[r, c]
    for c in range(width):
        sums[0][c] += by_weight[c]
        sums[1][c] += by_bias[c]
        sums[2][c] += total[c]


@vectorized
def apply_gelu(x: Floats) -> None:
    """Exact GELU, in place."""
    numbers = x.reshape(x.size)  # one long loop takes two thirds of the time of short loops
    for i in range(len(numbers)):
        numbers[i] *= _normal_cdf(numbers[i])


@vectorized
def gelu_with_slope(x: Floats, out: Floats) -> None:
    """Writes the exact GELU of `x` to `out`, and its derivative over `x`."""
    numbers, values = x.reshape(x.size), out.reshape(x.size)
    for i in range(len(numbers)):
        value = numbers[i]
        values[i] = value * _normal_cdf(value)
        numbers[i] = _gelu_slope(value)


# Loops instead of `out[:] = row`: numba's slice assignments made a block 10 % slower, and took 3 s
# each to compile, mostly for the text of an error that cannot occur here.
@vectorized
def transposed(weight: Floats) -> Floats:
    """The transposed matrix, contiguous."""
    num_rows, width = weight.shape
    out = np.empty((width, num_rows), dtype=np.float32)
    for r in range(num_rows):
        for c in range(width):
            out[c, r] = weight[r, c]
    return out


@vectorized
def set_zero(out: Floats) -> None:
    """`out = 0`."""
    numbers = out.reshape(out.size)
    for i in range(len(numbers)):
        numbers[i] = ZERO


@vectorized
def copy_rows(out: Floats, x: Floats) -> None:
    """`out = x`."""
    numbers, values = out.reshape(out.size), x.reshape(x.size)
    for i in range(len(numbers)):
        numbers[i] = values[i]


@vectorized
def broadcast_row(out: Floats, row: Floats) -> None:
    """`out = row`, for every row."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = row[c]


@vectorized
def broadcast_sum(out: Floats, x: Floats, row: Floats) -> None:
    """`out = x + row`."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = x[r, c] + row[c]


@vectorized
def add_columns(a: Floats, sums: Floats) -> None:
    """`sums += a.sum(axis=0)`."""
    num_rows, width = a.shape
    total = np.zeros(width, dtype=np.float32)
    fours = num_rows - num_rows % 4  # to read and write totals less often
    for r in range(0, fours, 4):
        for c in range(width):
            total[c] += (a[r, c] + a[r + 1, c]) + (a[r + 2, c] + a[r + 3, c])
    for r in range(fours, num_rows):
        for c in range(width):
            total[c] += a[r, c]
    for c in range(width):
        sums[c] += total[c]


@vectorized
def multiply_columns(a: Floats, b: Floats, sums: Floats) -> None:
    """`a *= b` and `sums += a.sum(axis=0)`."""
    numbers, factors = a.reshape(a.size), b.reshape(b.size)
    for i in range(len(numbers)):
        numbers[i] *= factors[i]
    add_columns(a, sums)


@vectorized
def to_qkv(
    x: Floats,
    norm: tuple[Floats, Floats],
    weights: tuple[Floats, Floats, Floats],
    biases: tuple[Floats, Floats, Floats],
    qkv: Floats,
    rows: int,
) -> None:
    """Layer norm, then query, key and value: `x` to `qkv`, `(num_entities, 3 * d_model)`.

    `norm` is weight and bias; processes `rows` entities at a time.
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
        layer_norm(x[at:end], norm[0], norm[1], own, stats)
        broadcast_row(qkv[at:end], bias)
        add_product(own, weight, qkv[at:end])


@vectorized
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
    """Writes a block's output to `out`, given its input `x` and attention's output `mixed`.

    `y` gets the states between attention and MLP. All four are `(num_entities, d_model)`.
    """
    width, inner = x.shape[1], len(biases[1])
    normal, stats = np.empty((rows, width), np.float32), np.empty((rows, 2), np.float32)
    hidden = np.empty((rows, inner), np.float32)
    project, rise, fall = transposed(weights[0]), transposed(weights[1]), transposed(weights[2])
    for at in range(0, len(x), rows):
        end = min(at + rows, len(x))
        size = end - at
        broadcast_sum(y[at:end], x[at:end], biases[0])
        add_product(mixed[at:end], project, y[at:end])
        layer_norm(y[at:end], norm[0], norm[1], normal[:size], stats)
        broadcast_row(hidden[:size], biases[1])
        add_product(normal[:size], rise, hidden[:size])
        apply_gelu(hidden[:size])
        broadcast_sum(out[at:end], y[at:end], biases[2])
        add_product(hidden[:size], fall, out[at:end])


@vectorized
def to_out_backward(
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
    """Backward of `to_out`: overwrites `by_mixed` and `by_x`, adds to the other gradients.

    Recomputes activations, which is faster than reading them.
    """
    width, inner = by_out.shape[1], len(rise_bias)
    normal, by_normal = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    stats = np.empty((rows, 2), np.float32)
    slope, hidden = np.empty((rows, inner), np.float32), np.empty((rows, inner), np.float32)
    rise = transposed(weights[1])
    for at in range(0, len(by_out), rows):
        end = min(at + rows, len(by_out))
        size = end - at
        part, y, own = by_x[at:end], given[1][at:end], normal[:size]
        copy_rows(part, by_out[at:end])
        rising, risen, back = slope[:size], hidden[:size], by_normal[:size]
        layer_norm(y, norm[0], norm[1], own, stats)
        broadcast_row(rising, rise_bias)
        add_product(own, rise, rising)
        gelu_with_slope(rising, risen)
        add_outer(part, risen, by_weights[2])
        add_columns(part, by_biases[2])
        set_zero(risen)
        add_product(part, weights[2], risen)
        multiply_columns(rising, risen, by_biases[1])
        add_outer(rising, own, by_weights[1])
        set_zero(back)
        add_product(rising, weights[1], back)
        layer_norm_backward(back, y, norm[0], stats, part, (*by_norm, by_biases[0]))
        add_outer(part, given[0][at:end], by_weights[0])
        set_zero(by_mixed[at:end])
        add_product(part, weights[0], by_mixed[at:end])


@vectorized
def to_qkv_backward(
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
    """Backward of `to_qkv`: adds to all gradients except the given `by_qkv`.

    `by_weight` `(3 * d_model, d_model)` and `by_bias` combine query, key and value.
    """
    width = x.shape[1]
    weight = np.empty((3 * width, width), np.float32)
    for i in range(3):
        copy_rows(weight[i * width : (i + 1) * width], weights[i])
    normal, by_normal = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    stats, total = np.empty((rows, 2), np.float32), np.zeros(width, np.float32)
    for at in range(0, len(x), rows):
        end = min(at + rows, len(x))
        part, own, back = by_qkv[at:end], normal[: end - at], by_normal[: end - at]
        layer_norm(x[at:end], norm[0], norm[1], own, stats)
        add_outer(part, own, by_weight)
        add_columns(part, by_bias)
        set_zero(back)
        add_product(part, weight, back)
        layer_norm_backward(back, x[at:end], norm[0], stats, by_x[at:end], (*by_norm, total))
