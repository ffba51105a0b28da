"""The softmax of attention, and its gradient, on SIMD vectors.

The logits of 8 queries are one vector per key: softmax sums over vectors and never within a vector.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.simd import (
    ONE,
    ZERO,
    Untyped,
    add,
    divide,
    fma,
    get,
    half,
    inlined,
    load,
    load_16,
    maximum,
    minimum,
    multiply,
    part,
    pointer,
    scale_by_power,
    splat,
    splat_like,
    store,
    subtract,
    twice,
    zero_below,
    zeros,
)

HIDDEN: Final = np.float32(-1e30)
"""Logit of an entity hidden from attention."""
INFINITY: Final = np.float32(np.inf)
# exp(x) = 2**n * p(x - n log 2) with n = round(x / log 2); log 2 in two parts to keep its
# precision, and p as in Moshier, "Methods and Programs for Mathematical Functions" (1989).
_LOG2_E: Final = np.float32(1.44269504)
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
_P0: Final = np.float32(1.9875691500e-4)
_P1: Final = np.float32(1.3981999507e-3)
_P2: Final = np.float32(8.3334519073e-3)
_P3: Final = np.float32(4.1665795894e-2)
_P4: Final = np.float32(1.6666665459e-1)
_P5: Final = np.float32(5.0000001201e-1)
_LOWEST: Final = np.float32(-86.0)
"""Exponentials of lower numbers become 0, because products with subnormal numbers are slow."""
_TO_INTEGER: Final = np.float32(1.5 * 2**23)
"""Added to a float32, leaves the nearest integer in the low bits."""


@inlined
def exp_row(given: Untyped) -> Untyped:
    """Exponentials of numbers up to 0; 0 below -86."""
    x = maximum(splat_like(_LOWEST, given), given)
    power = fma(x, splat_like(_LOG2_E, x), splat_like(_TO_INTEGER, x))
    n = subtract(power, splat_like(_TO_INTEGER, x))
    x = fma(n, splat_like(-_LN2_LOW, x), fma(n, splat_like(-_LN2_HIGH, x), x))
    square = multiply(x, x)
    a = fma(splat_like(_P0, x), x, splat_like(_P1, x))
    b = fma(splat_like(_P2, x), x, splat_like(_P3, x))
    c = fma(splat_like(_P4, x), x, splat_like(_P5, x))
    p = fma(fma(a, square, b), square, c)
    exponential = scale_by_power(add(fma(p, square, x), splat_like(ONE, x)), power)
    return zero_below(exponential, splat_like(_LOWEST, x), given)


@part
def softmax(block: Untyped, length: int, num_rows: int) -> None:
    """Softmax in place, of logits of 8 queries and `length` keys; 0 for padding to `num_rows`."""
    for j in range(length, num_rows):
        store(block, 8 * j, splat(-INFINITY))
    top = load_16(block, 0)
    for j in range(16, 8 * num_rows, 16):
        top = maximum(top, load_16(block, j))
    top = twice(maximum(half(top, 0), half(top, 1)))
    total = splat_like(ZERO, top)
    for j in range(0, 8 * num_rows, 16):
        row = exp_row(subtract(load_16(block, j), top))
        store(block, j, row)
        total = add(total, row)
    factor = twice(divide(splat(ONE), add(half(total, 0), half(total, 1))))
    for j in range(0, 8 * num_rows, 16):
        store(block, j, multiply(load_16(block, j), factor))


@part
def softmax_backward(
    block: Untyped, shares: Untyped, scale: np.float32, length: int, num_rows: int
) -> None:
    """Converts the shares' gradients, in `block`, to those of the unscaled logits, in place."""
    for j in range(length, num_rows):
        store(block, 8 * j, zeros())
    total = twice(zeros())
    for j in range(0, 8 * num_rows, 16):
        total = fma(load_16(block, j), load_16(shares, j), total)
    total = twice(add(half(total, 0), half(total, 1)))
    factor = splat_like(scale, total)
    for j in range(0, 8 * num_rows, 16):
        slope = multiply(subtract(load_16(block, j), total), load_16(shares, j))
        store(block, j, multiply(slope, factor))


@part
def mask_hidden(
    block: Untyped, entities: Untyped, first: int, length: int, visible: Untyped, limits: Untyped
) -> None:
    """For the visible ones among 8 queries, limits the logits of hidden entities to `HIDDEN`."""
    for k in range(8):
        query = get(entities, min(first + k, length - 1))
        limits[k] = HIDDEN if visible[query] else INFINITY
    limit = load(pointer(limits, 0), 0)
    for j in range(length):
        if not visible[get(entities, j)]:
            store(block, 8 * j, minimum(limit, load(block, 8 * j)))
