"""Attention among up to four entities, compiled, with its gradient.

It imports numba: whoever needs it imports it when asked for. Pointers and rows are those of
`attention_lanes_compiled`. What eight queries make of one key would leave half of a row empty: here
a row is what two queries make of four keys. Lists of places are four long, and say again where the
last entity is; shares of what is too many are 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.simd import (
    Untyped,
    add,
    divide,
    eight,
    fma,
    fold,
    get,
    inlined,
    largest,
    load,
    multiply,
    part,
    past,
    smallest,
    spread,
    store,
    subtract,
    swap,
    zeros,
)
from entity_env.agents.rogue_net.kernels.softmax import HIDDEN, ONE, ZERO, exp_row

FEW: Final = 4
"""Up to so many entities of an observation are taken four by four."""
_INFINITY: Final = np.float32(np.inf)


@part
def limit_few(
    entities: Untyped, length: int, visible: Untyped, limits: Untyped, real: Untyped
) -> None:
    """Writes bounds of the logits that each of four queries makes of four keys.

    `real` gets 1 for a query that there is, and 0 for one too many.
    """
    for i in range(FEW):
        for j in range(FEW):
            known = len(visible) > 0 and i < length and j < length
            limits[FEW * i + j] = _INFINITY if j < length else -_INFINITY
            if known and visible[get(entities, i)] and not visible[get(entities, j)]:
                limits[FEW * i + j] = HIDDEN
            real[FEW * i + j] = ONE if i < length else ZERO


@inlined
def _two_with_four(
    queries: Untyped, query_places: Untyped, keys: Untyped, places: Untyped, width: int, i: int
) -> Untyped:
    """The products of each of two queries with each of four keys."""
    one, two = past(queries, get(query_places, i)), past(queries, get(query_places, i + 1))
    p, q = past(keys, get(places, 0)), past(keys, get(places, 1))
    r, s = past(keys, get(places, 2)), past(keys, get(places, 3))
    a = b = c = d = e = f = g = h = zeros()
    for k in range(0, width, 8):
        row, more = load(one, k), load(two, k)
        key = load(p, k)
        a, e = fma(row, key, a), fma(more, key, e)
        key = load(q, k)
        b, f = fma(row, key, b), fma(more, key, f)
        key = load(r, k)
        c, g = fma(row, key, c), fma(more, key, g)
        key = load(s, k)
        d, h = fma(row, key, d), fma(more, key, h)
    return fold(a, b, c, d, e, f, g, h)


@part
def soften_few(
    queries: Untyped,
    keys: Untyped,
    places: Untyped,
    length: int,
    width: int,
    scale: np.float32,
    limits: Untyped,
    real: Untyped,
    shares: Untyped,
) -> None:
    """Writes the shares of four keys, query after query."""
    store(shares, 2 * FEW, zeros())
    for i in range(0, length, 2):
        products = _two_with_four(queries, places, keys, places, width, i)
        x = smallest(load(limits, FEW * i), multiply(products, eight(scale)))
        top = largest(x, swap(x, 1))
        x = exp_row(subtract(x, largest(top, swap(top, 2))))
        total = add(x, swap(x, 1))
        share = divide(x, add(total, swap(total, 2)))
        store(shares, FEW * i, multiply(share, load(real, FEW * i)))


@part
def soften_few_backward(
    given: Untyped,
    given_places: Untyped,
    values: Untyped,
    places: Untyped,
    length: int,
    width: int,
    scale: np.float32,
    shares: Untyped,
    block: Untyped,
) -> None:
    """Writes the gradients of products by those of the mixed values; they lie as the shares do."""
    store(block, 2 * FEW, zeros())
    for i in range(0, length, 2):
        slope = _two_with_four(given, given_places, values, places, width, i)
        share = load(shares, FEW * i)
        total = multiply(slope, share)
        total = add(total, swap(total, 1))
        total = add(total, swap(total, 2))
        slope = multiply(subtract(slope, total), share)
        store(block, FEW * i, multiply(slope, eight(scale)))


@inlined
def _mixed(weights: Untyped, along: int, p: Untyped, q: Untyped, r: Untyped, s: Untyped) -> Untyped:
    """The sum of four rows by weights, so far apart."""
    one = fma(spread(weights, 0), p, multiply(spread(weights, along), q))
    return add(one, fma(spread(weights, 2 * along), r, multiply(spread(weights, 3 * along), s)))


@part
def mix_few(
    weights: Untyped,
    across: int,
    along: int,
    source: Untyped,
    places: Untyped,
    out: Untyped,
    out_places: Untyped,
    width: int,
) -> None:
    """Writes four rows, each a sum of four of the source.

    The weight of row k in sum i lies at `i * across + k * along`.
    """
    for c in range(0, width, 8):
        here, there = past(source, c), past(out, c)
        p, q = load(here, get(places, 0)), load(here, get(places, 1))
        r, s = load(here, get(places, 2)), load(here, get(places, 3))
        for i in (3, 2, 1, 0):
            row = _mixed(past(weights, i * across), along, p, q, r, s)
            store(there, get(out_places, i), row)
