"""What a block of a transformer does between its products, compiled, with its gradient.

Whoever needs it imports it when asked for: it imports numba. All arrays are contiguous float32
matrices and vectors that fit each other: nothing is checked. Each function reads its matrices once,
row by row, where torch would make several operations and as many matrices of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.attention_compiled import (
    ONE,
    ZERO,
    Floats,
    compiled,
    exponential,
)

_HALF: Final = np.float32(0.5)
_EPS: Final = np.float32(1e-5)
"""Added to the variance, as torch does where it is told nothing else."""
# The error function as in Abramowitz & Stegun, "Handbook of Mathematical Functions" (1964),
# formula 7.1.26: off by at most 1.5e-7. Its argument is x / sqrt(2).
_P: Final = np.float32(0.3275911 * 0.5**0.5)
_A1: Final = np.float32(0.254829592)
_A2: Final = np.float32(-0.284496736)
_A3: Final = np.float32(1.421413741)
_A4: Final = np.float32(-1.453152027)
_A5: Final = np.float32(1.061405429)
_ONE_BY_SQRT_2PI: Final = np.float32(0.3989422804)


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
    gradient: Floats,
    x: Floats,
    weight: Floats,
    stats: Floats,
    out: Floats,
    sums: Floats,
) -> None:
    """Adds the gradient of `x` to `out`.

    `sums` `(3, width)` gets the gradients of weight and bias, and the column sums of `out`.
    """
    num_rows, width = x.shape
    share = ONE / np.float32(width)
    by_weight, by_bias, total = np.zeros((3, width), dtype=np.float32)
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
    sums[0] = by_weight
    sums[1] = by_bias
    sums[2] = total


@compiled
def gelu(x: Floats, bias: Floats, out: Floats) -> None:
    """Writes the exact GELU of `x + bias` to `out`, and its slope over `x`."""
    num_rows, width = x.shape
    bell = np.empty(width, dtype=np.float32)
    power = np.empty(width, dtype=np.int32)
    for r in range(num_rows):
        for c in range(width):
            x[r, c] += bias[c]
            bell[c] = -_HALF * x[r, c] * x[r, c]
        exponential(bell, power, width)
        for c in range(width):
            value = x[r, c]
            t = ONE / (ONE + _P * abs(value))
            tail = _HALF * bell[c] * t * (_A1 + t * (_A2 + t * (_A3 + t * (_A4 + t * _A5))))
            below = tail if value < ZERO else ONE - tail
            out[r, c] = value * below
            x[r, c] = below + value * _ONE_BY_SQRT_2PI * bell[c]


@compiled
def multiply(a: Floats, b: Floats, out: Floats, sums: Floats) -> None:
    """Writes the products of two matrices, number by number, and their column sums."""
    num_rows, width = a.shape
    total = np.zeros(width, dtype=np.float32)
    for r in range(num_rows):
        for c in range(width):
            out[r, c] = a[r, c] * b[r, c]
            total[c] += out[r, c]
    sums[:] = total


@compiled
def add(out: Floats, bias: Floats, other: Floats) -> None:
    """Adds the bias and another matrix to `out`."""
    num_rows, width = out.shape
    for r in range(num_rows):
        for c in range(width):
            out[r, c] += bias[c] + other[r, c]


@compiled
def sum_columns(a: Floats, sums: Floats) -> None:
    """Writes the column sums of a matrix."""
    num_rows, width = a.shape
    total = np.zeros(width, dtype=np.float32)
    for r in range(num_rows):
        for c in range(width):
            total[c] += a[r, c]
    sums[:] = total
