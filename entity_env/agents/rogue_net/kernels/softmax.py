"""Exponentials and the softmax of attention, compiled, with its gradient.

It imports numba: whoever needs it imports it when asked for. Pointers and rows are those of
`attention_lanes_compiled`. What eight queries make of one key is a row, of each key after another:
softmax sums from row to row and never inside of one.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.simd import (
    Function,
    Untyped,
    above,
    add,
    alike,
    divide,
    eight,
    fma,
    get,
    half,
    inlined,
    largest,
    load,
    load_two,
    multiply,
    part,
    pointer,
    raised,
    smallest,
    store,
    subtract,
    twice,
    zeros,
)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LANES: Final = 8
"""Numbers that are summed side by side."""
ONE: Final = np.float32(1.0)
ZERO: Final = np.float32(0.0)
HIDDEN: Final = np.float32(-1e9)
"""Logit of what an entity must not attend to."""
_INFINITY: Final = np.float32(np.inf)
# exp(x) = 2**n * p(x - n log 2) with n = round(x / log 2); log 2 in two parts, so that nothing is
# lost, and p as in Moshier, "Methods and Programs for Mathematical Functions" (1989).
_LOG2_E: Final = np.float32(1.44269504)
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(-2.12194440e-4)
_P0: Final = np.float32(1.9875691500e-4)
_P1: Final = np.float32(1.3981999507e-3)
_P2: Final = np.float32(8.3334519073e-3)
_P3: Final = np.float32(4.1665795894e-2)
_P4: Final = np.float32(1.6666665459e-1)
_P5: Final = np.float32(5.0000001201e-1)
_HALF: Final = np.float32(0.5)
_SMALLEST: Final = np.float32(-87.0)
"""Below it, exp is no normal float32 any more."""
_EXPONENT: Final = np.int32(127)
_SHIFT: Final = np.int32(23)
_LOWEST: Final = np.float32(-86.0)
"""Shares below its exponential are 0: products with them would soon be slow, no normal float32."""
_TO_INTEGER: Final = np.float32(1.5 * 2**23)
"""Added to a float32, it leaves the nearest integer in the low bits."""


def compiled(function: Function) -> Function:
    """The function as machine code, which is kept on disk where there is room for it."""
    compile_it: Any = njit
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        # Sums in any order, as vectors need them; infinities and NaN keep their meaning.
        "fastmath": {"reassoc", "contract", "nsz"},
    }
    try:
        return cast(Function, compile_it(**options, cache=True)(function))
    except RuntimeError:  # nowhere to keep it: a read-only installation, and no home either
        return cast(Function, compile_it(**options)(function))


@compiled
def exponential(row: Floats, power: NDArray[np.int32], length: int) -> None:
    """Turns the first numbers of a row, none above 0, into their exponentials.

    `power` is room for as many.
    """
    for j in range(length):
        x = max(row[j], _SMALLEST)
        n = np.floor(x * _LOG2_E + _HALF)
        power[j] = (np.int32(n) + _EXPONENT) << _SHIFT
        x = x - n * _LN2_HIGH - n * _LN2_LOW
        p = ((((_P0 * x + _P1) * x + _P2) * x + _P3) * x + _P4) * x + _P5
        row[j] = p * x * x + x + ONE
    factor = power.view(np.float32)
    for j in range(length):
        row[j] *= factor[j]


@inlined
def exp_row(given: Untyped) -> Untyped:
    """The exponentials of a row, none above 0; 0 of what is below -86."""
    x = largest(alike(_LOWEST, given), given)
    power = fma(x, alike(_LOG2_E, x), alike(_TO_INTEGER, x))
    n = subtract(power, alike(_TO_INTEGER, x))
    x = fma(n, alike(-_LN2_LOW, x), fma(n, alike(-_LN2_HIGH, x), x))
    square = multiply(x, x)
    a = fma(alike(_P0, x), x, alike(_P1, x))
    b = fma(alike(_P2, x), x, alike(_P3, x))
    c = fma(alike(_P4, x), x, alike(_P5, x))
    p = fma(fma(a, square, b), square, c)
    exponential = raised(add(fma(p, square, x), alike(ONE, x)), power)
    return above(exponential, alike(_LOWEST, x), given)


@part
def soften(block: Untyped, length: int, num_rows: int) -> None:
    """Turns the logits that eight queries make of `length` keys into shares."""
    for j in range(length, num_rows):
        store(block, 8 * j, eight(-_INFINITY))
    top = load_two(block, 0)
    for j in range(16, 8 * num_rows, 16):
        top = largest(top, load_two(block, j))
    top = twice(largest(half(top, 0), half(top, 1)))
    total = alike(ZERO, top)
    for j in range(0, 8 * num_rows, 16):
        row = exp_row(subtract(load_two(block, j), top))
        store(block, j, row)
        total = add(total, row)
    factor = twice(divide(eight(ONE), add(half(total, 0), half(total, 1))))
    for j in range(0, 8 * num_rows, 16):
        store(block, j, multiply(load_two(block, j), factor))


@part
def soften_backward(
    block: Untyped, shares: Untyped, scale: np.float32, length: int, num_rows: int
) -> None:
    """Turns gradients of shares into those of products; they lie as in `soften`."""
    for j in range(length, num_rows):
        store(block, 8 * j, zeros())
    total = twice(zeros())
    for j in range(0, 8 * num_rows, 16):
        total = fma(load_two(block, j), load_two(shares, j), total)
    total = twice(add(half(total, 0), half(total, 1)))
    factor = alike(scale, total)
    for j in range(0, 8 * num_rows, 16):
        slope = multiply(subtract(load_two(block, j), total), load_two(shares, j))
        store(block, j, multiply(slope, factor))


@part
def hide(
    block: Untyped, entities: Untyped, first: int, length: int, visible: Untyped, limits: Untyped
) -> None:
    """Bounds the logits of hidden entities for the visible among eight queries."""
    for k in range(8):
        query = get(entities, min(first + k, length - 1))
        limits[k] = HIDDEN if visible[query] else _INFINITY
    limit = load(pointer(limits, 0), 0)
    for j in range(length):
        if not visible[get(entities, j)]:
            store(block, 8 * j, smallest(limit, load(block, 8 * j)))
