"""Attention among up to four entities, forward and backward.

A vector of 8 queries and one key would be at least half empty; here a vector holds the logits of
two queries and four keys. Lists of places are padded to four with the last entity; shares of
padding are 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.agents.rogue_net.kernels.simd import (
    ONE,
    ZERO,
    Untyped,
    add,
    advance,
    divide,
    fma,
    get,
    inlined,
    load,
    load_splat,
    maximum,
    minimum,
    multiply,
    part,
    row_sums,
    splat,
    store,
    subtract,
    swap,
    zeros,
)
from entity_env.agents.rogue_net.kernels.softmax import HIDDEN, INFINITY, exp_row

FEW: Final = 4
"""Maximum number of entities of an observation that is computed here."""


@part
def limit_few(
    entities: Untyped, length: int, visible: Untyped, limits: Untyped, real: Untyped
) -> None:
    """Writes upper bounds of the logits of four queries and four keys to `limits`.

    `real` gets 1 for each logit of a query, and 0 for those of padding.
    """
    for i in range(FEW):
        for j in range(FEW):
            known = len(visible) > 0 and i < length and j < length
            limits[FEW * i + j] = INFINITY if j < length else -INFINITY
            if known and visible[get(entities, i)] and not visible[get(entities, j)]:
                limits[FEW * i + j] = HIDDEN
            real[FEW * i + j] = ONE if i < length else ZERO


@inlined
def _two_with_four(
    queries: Untyped, query_places: Untyped, keys: Untyped, places: Untyped, width: int, i: int
) -> Untyped:
    """The dot products of two queries with four keys."""
    one, two = advance(queries, get(query_places, i)), advance(queries, get(query_places, i + 1))
    p, q = advance(keys, get(places, 0)), advance(keys, get(places, 1))
    r, s = advance(keys, get(places, 2)), advance(keys, get(places, 3))
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
    return row_sums(a, b, c, d, e, f, g, h)


@part
def softmax_few(
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
    """Writes the shares (attention weights) of four keys for each of four queries."""
    store(shares, 2 * FEW, zeros())
    for i in range(0, length, 2):
        products = _two_with_four(queries, places, keys, places, width, i)
        x = minimum(load(limits, FEW * i), multiply(products, splat(scale)))
        top = maximum(x, swap(x, 1))
        x = exp_row(subtract(x, maximum(top, swap(top, 2))))
        total = add(x, swap(x, 1))
        share = divide(x, add(total, swap(total, 2)))
        store(shares, FEW * i, multiply(share, load(real, FEW * i)))


@part
def softmax_few_backward(
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
    """Writes the gradients of the dot products of queries and keys, in the layout of the shares."""
    store(block, 2 * FEW, zeros())
    for i in range(0, length, 2):
        slope = _two_with_four(given, given_places, values, places, width, i)
        share = load(shares, FEW * i)
        total = multiply(slope, share)
        total = add(total, swap(total, 1))
        total = add(total, swap(total, 2))
        slope = multiply(subtract(slope, total), share)
        store(block, FEW * i, multiply(slope, splat(scale)))


@inlined
def _mixed(weights: Untyped, along: int, p: Untyped, q: Untyped, r: Untyped, s: Untyped) -> Untyped:
    """The weighted sum of four rows, with weights `along` numbers apart."""
    one = fma(load_splat(weights, 0), p, multiply(load_splat(weights, along), q))
    return add(
        one, fma(load_splat(weights, 2 * along), r, multiply(load_splat(weights, 3 * along), s))
    )


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
    """Writes four rows, each a weighted sum of four rows of the source.

    The weight of row k in sum i is at `i * across + k * along`.
    """
    for c in range(0, width, 8):
        here, there = advance(source, c), advance(out, c)
        p, q = load(here, get(places, 0)), load(here, get(places, 1))
        r, s = load(here, get(places, 2)), load(here, get(places, 3))
        for i in (3, 2, 1, 0):
            row = _mixed(advance(weights, i * across), along, p, q, r, s)
            store(there, get(out_places, i), row)
