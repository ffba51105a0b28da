"""What a block of a transformer does between its products, compiled, with its gradient.

Whoever needs it imports it when asked for: it imports numba. All arrays are contiguous float32
matrices and vectors that fit each other: nothing is checked. Each function reads its matrices once,
row by row, where torch would make several operations and as many matrices of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.attention import (
    ONE,
    ZERO,
    Floats,
    compiled,
)

Columns = tuple[Floats, Floats, Floats]
"""Three vectors, a number for each column of a matrix."""


def _row(*numbers: float) -> tuple[np.float32, ...]:
    return tuple(map(np.float32, numbers))


_HALF: Final = np.float32(0.5)
_EPS: Final = np.float32(1e-5)
"""Added to the variance, as torch does where it is told nothing else."""
# Fractions of polynomials in the square of x, so far fitted by least squares with weights that
# even out the largest error: x * _P / _Q is the share of a normal distribution that lies between 0
# and x, x * _R / _S how fast x times the share below x rises, less a half. In float32 the share is
# off by at most 2e-7, the slope by 4e-7. Beyond their ends both stay what they are there.
_SHARE_END: Final = np.float32(5.2)
_P: Final = _row(
    0.39894226108843883,
    0.03254353299285516,
    0.004608583518394535,
    0.0001568512989532325,
    6.407830541357241e-06,
    2.473201751628255e-08,
)
_Q: Final = _row(
    1.0,
    0.24824088268976308,
    0.027926107276662237,
    0.001817144632131288,
    7.049285858783431e-05,
    1.2588901432456091e-06,
)
_SLOPE_END: Final = np.float32(6.0)
_R: Final = _row(
    0.7978847439888055,
    -0.030767531396349555,
    0.014210826035160953,
    2.3741654461865807e-05,
    3.584928210729909e-05,
    1.909728451564895e-07,
)
_S: Final = _row(
    1.0,
    0.2947765180479285,
    0.04105572774697678,
    0.003528265992653023,
    0.0001933393886780935,
    8.889861735790543e-06,
)


@compiled
def _polynomial(u: np.float32, factors: tuple[np.float32, ...]) -> np.float32:
    a, b, c, d, e, f = factors
    return a + u * (b + u * (c + u * (d + u * (e + u * f))))


@compiled
def _share(x: np.float32) -> np.float32:
    """How much of a normal distribution lies below `x`."""
    near = min(max(x, -_SHARE_END), _SHARE_END)
    share = _HALF + near * _polynomial(near * near, _P) / _polynomial(near * near, _Q)
    return share if x > -_SHARE_END else ZERO  # exactly: it is multiplied by any x


@compiled
def _slope(x: np.float32) -> np.float32:
    """How fast `x` times `_share(x)` rises."""
    x = min(max(x, -_SLOPE_END), _SLOPE_END)
    return _HALF + x * _polynomial(x * x, _R) / _polynomial(x * x, _S)


@compiled
def normalize(x: Floats, weight: Floats, bias: Floats, out: Floats, stats: Floats) -> None:
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


@compiled
def normalize_backward(
    gradient: Floats, x: Floats, weight: Floats, stats: Floats, out: Floats, sums: Columns
) -> None:
    """Adds the gradient of `x` to `out`, and to the first two of `sums` those of weight and bias.

    To the third the column sums of `out` are added.
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


@compiled
def gelu(x: Floats) -> None:
    """Turns `x` into its exact GELU."""
    numbers = x.reshape(x.size)  # one long loop takes two thirds of the time of many short ones
    for i in range(len(numbers)):
        numbers[i] *= _share(numbers[i])


@compiled
def gelu_and_slope(x: Floats, out: Floats) -> None:
    """Writes the exact GELU of `x` to `out`, and its slope over `x`."""
    numbers, values = x.reshape(x.size), out.reshape(x.size)
    for i in range(len(numbers)):
        value = numbers[i]
        values[i] = value * _share(value)
        numbers[i] = _slope(value)


@compiled
def turned(weight: Floats) -> Floats:
    """The transposed matrix, contiguous."""
    num_rows, width = weight.shape
    out = np.empty((width, num_rows), dtype=np.float32)
    for r in range(num_rows):
        for c in range(width):
            out[c, r] = weight[r, c]
    return out


@compiled
def clear(out: Floats) -> None:
    """Writes zeros."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = ZERO


@compiled
def copy(out: Floats, x: Floats) -> None:
    """Writes `x` to `out`."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = x[r, c]


@compiled
def fill(out: Floats, row: Floats) -> None:
    """Writes the same numbers to every row."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = row[c]


@compiled
def fill_sum(out: Floats, x: Floats, row: Floats) -> None:
    """Writes `x` to `out`, with the same numbers added to every row."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = x[r, c] + row[c]


@compiled
def add_columns(a: Floats, sums: Floats) -> None:
    """Adds the column sums of a matrix to `sums`."""
    num_rows, width = a.shape
    total = np.zeros(width, dtype=np.float32)
    for r in range(num_rows):
        for c in range(width):
            total[c] += a[r, c]
    for c in range(width):
        sums[c] += total[c]


@compiled
def multiply(a: Floats, b: Floats, out: Floats, sums: Floats) -> None:
    """Writes the products of two matrices, number by number; adds their column sums to `sums`."""
    num_rows, width = a.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = a[r, c] * b[r, c]
    add_columns(out, sums)
