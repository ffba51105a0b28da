"""Products of small matrices whose rows lie anywhere, for compiled attention.

It imports numba: whoever needs it imports it when asked for. Matrices are pointers as in
`attention_lanes_compiled`; where the rows of one begin is told by a list of places, which counts
float32 from the pointer on. Rows are taken four at a time: lists are as long, and say again where
the last row is, which is written last.
"""

from __future__ import annotations

from entity_env.agents.rogue_net.kernels.simd import (
    Untyped,
    eight,
    fetch,
    fetch_to_write,
    fma,
    get,
    inlined,
    load,
    multiply,
    part,
    past,
    spread,
    store,
    turn,
    zeros,
)


@part
def _with_eight(
    source: Untyped,
    places: Untyped,
    turned: Untyped,
    width: int,
    scale: Untyped,
    out: Untyped,
    num_rows: int,
) -> None:
    """Writes the products of every row with eight others, which are turned."""
    factor = eight(scale)
    for j in range(0, num_rows, 4):
        p, q = past(source, get(places, j)), past(source, get(places, j + 1))
        r, s = past(source, get(places, j + 2)), past(source, get(places, j + 3))
        a = b = c = d = zeros()
        for k in range(width):
            row = load(turned, 8 * k)
            a, b = fma(spread(p, k), row, a), fma(spread(q, k), row, b)
            c, d = fma(spread(r, k), row, c), fma(spread(s, k), row, d)
        store(out, 8 * j, multiply(a, factor))
        store(out, 8 * j + 8, multiply(b, factor))
        store(out, 8 * j + 16, multiply(c, factor))
        store(out, 8 * j + 24, multiply(d, factor))


@part
def _with_sixteen(
    source: Untyped,
    places: Untyped,
    turned: Untyped,
    width: int,
    scale: Untyped,
    out: Untyped,
    num_rows: int,
) -> None:
    """As `_with_eight` twice: each number is read once for both."""
    factor = eight(scale)
    others, later = past(turned, 8 * width), past(out, 8 * num_rows)
    for j in range(0, num_rows, 4):
        p, q = past(source, get(places, j)), past(source, get(places, j + 1))
        r, s = past(source, get(places, j + 2)), past(source, get(places, j + 3))
        a = b = c = d = e = f = g = h = zeros()
        for k in range(width):
            row, more = load(turned, 8 * k), load(others, 8 * k)
            number = spread(p, k)
            a, e = fma(number, row, a), fma(number, more, e)
            number = spread(q, k)
            b, f = fma(number, row, b), fma(number, more, f)
            number = spread(r, k)
            c, g = fma(number, row, c), fma(number, more, g)
            number = spread(s, k)
            d, h = fma(number, row, d), fma(number, more, h)
        store(out, 8 * j, multiply(a, factor))
        store(out, 8 * j + 8, multiply(b, factor))
        store(out, 8 * j + 16, multiply(c, factor))
        store(out, 8 * j + 24, multiply(d, factor))
        store(later, 8 * j, multiply(e, factor))
        store(later, 8 * j + 8, multiply(f, factor))
        store(later, 8 * j + 16, multiply(g, factor))
        store(later, 8 * j + 24, multiply(h, factor))


@inlined
def multiply_rows(
    queries: Untyped,
    query_places: Untyped,
    source: Untyped,
    places: Untyped,
    turned: Untyped,
    width: int,
    scale: Untyped,
    out: Untyped,
    length: int,
    num_rows: int,
) -> None:
    """Writes the scaled products of each of `length` queries with each of as many rows.

    `out` gets a block for every eight queries, of `num_rows` (`length` rounded up to fours) times
    eight lanes; lanes and rows that are too many tell of nothing. `turned` is room for 16 queries.
    """
    for i in range(0, length, 16):
        block = past(out, i * num_rows)
        for c in range(0, width, 8):
            turn(past(queries, c), past(query_places, i), past(turned, 8 * c))
        if i + 8 < length:
            others = past(turned, 8 * width)
            for c in range(0, width, 8):
                turn(past(queries, c), past(query_places, i + 8), past(others, 8 * c))
            _with_sixteen(source, places, turned, width, scale, block, num_rows)
        else:
            _with_eight(source, places, turned, width, scale, block, num_rows)


@part
def mix_rows(
    weights: Untyped,
    across: int,
    along: int,
    skip: int,
    source: Untyped,
    places: Untyped,
    length: int,
    out: Untyped,
    out_places: Untyped,
    num_rows: int,
    width: int,
) -> None:
    """Writes rows that are each a sum of `length` rows of the source, by weights.

    The weight of row k in sum i lies at `i * across + k * along + k // 8 * skip`.
    """
    for i in range(0, num_rows, 4):
        p, q = get(out_places, i), get(out_places, i + 1)
        r, s = get(out_places, i + 2), get(out_places, i + 3)
        for first in range(0, width, 16):
            here, there = past(source, first), past(out, first)
            a = b = c = d = e = f = g = h = zeros()
            if first + 8 < width:
                for k in range(length):
                    place = get(places, k)
                    row, more = load(here, place), load(here, place + 8)
                    weight = past(weights, i * across + k * along + (k >> 3) * skip)
                    number = spread(weight, 0)
                    a, e = fma(number, row, a), fma(number, more, e)
                    number = spread(weight, across)
                    b, f = fma(number, row, b), fma(number, more, f)
                    number = spread(weight, 2 * across)
                    c, g = fma(number, row, c), fma(number, more, g)
                    number = spread(weight, 3 * across)
                    d, h = fma(number, row, d), fma(number, more, h)
                store(there, s + 8, h)
                store(there, r + 8, g)
                store(there, q + 8, f)
                store(there, p + 8, e)
            else:
                for k in range(length):
                    row = load(here, get(places, k))
                    weight = past(weights, i * across + k * along + (k >> 3) * skip)
                    a, b = fma(spread(weight, 0), row, a), fma(spread(weight, across), row, b)
                    c = fma(spread(weight, 2 * across), row, c)
                    d = fma(spread(weight, 3 * across), row, d)
            store(there, s, d)
            store(there, r, c)
            store(there, q, b)
            store(there, p, a)


@part
def fetch_rows(source: Untyped, order: Untyped, num_rows: int, width: int, size: int) -> None:
    """Asks memory for `size` numbers of some rows of `width` that are read soon."""
    for i in range(num_rows):
        start = get(order, i) * width
        for c in range(0, size, 16):
            fetch(source, start + c)


@part
def fetch_rows_to_write(
    source: Untyped, order: Untyped, num_rows: int, width: int, size: int
) -> None:
    """Asks memory for `size` numbers of some rows of `width` that are written soon."""
    for i in range(num_rows):
        start = get(order, i) * width
        for c in range(0, size, 16):
            fetch_to_write(source, start + c)
