"""Products of small matrices with rows anywhere in memory, for attention.

A matrix is a pointer and a list of places: the index of each row's first number. Rows are processed
in fours, so lists are padded with the place of the last row. Rows are stored in reverse order
within each four, so the result of the last row overwrites those of its padding.
"""

from __future__ import annotations

from entity_env.agents.rogue_net.kernels.simd import (
    Untyped,
    advance,
    fma,
    get,
    inlined,
    load,
    load_splat,
    multiply,
    part,
    prefetch,
    prefetch_to_write,
    splat,
    store,
    transpose,
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
    """Writes the scaled dot products of each row with 8 queries; `turned` has them transposed."""
    factor = splat(scale)
    for j in range(0, num_rows, 4):
        p, q = advance(source, get(places, j)), advance(source, get(places, j + 1))
        r, s = advance(source, get(places, j + 2)), advance(source, get(places, j + 3))
        a = b = c = d = zeros()
        for k in range(width):
            row = load(turned, 8 * k)
            a, b = fma(load_splat(p, k), row, a), fma(load_splat(q, k), row, b)
            c, d = fma(load_splat(r, k), row, c), fma(load_splat(s, k), row, d)
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
    """Like `_with_eight`, for 16 queries; loads each number of a row once for both halves."""
    factor = splat(scale)
    others, later = advance(turned, 8 * width), advance(out, 8 * num_rows)
    for j in range(0, num_rows, 4):
        p, q = advance(source, get(places, j)), advance(source, get(places, j + 1))
        r, s = advance(source, get(places, j + 2)), advance(source, get(places, j + 3))
        a = b = c = d = e = f = g = h = zeros()
        for k in range(width):
            row, more = load(turned, 8 * k), load(others, 8 * k)
            number = load_splat(p, k)
            a, e = fma(number, row, a), fma(number, more, e)
            number = load_splat(q, k)
            b, f = fma(number, row, b), fma(number, more, f)
            number = load_splat(r, k)
            c, g = fma(number, row, c), fma(number, more, g)
            number = load_splat(s, k)
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
    """Writes the scaled dot products of `length` queries with `length` rows.

    `out` gets one block per 8 queries: `num_rows` rows (`length` rounded up to a multiple of four)
    of 8 lanes, one per query. Padded lanes and rows are meaningless. `turned` is scratch space for
    16 queries.
    """
    for i in range(0, length, 16):
        block = advance(out, i * num_rows)
        for c in range(0, width, 8):
            transpose(advance(queries, c), advance(query_places, i), advance(turned, 8 * c))
        if i + 8 < length:
            others = advance(turned, 8 * width)
            for c in range(0, width, 8):
                transpose(advance(queries, c), advance(query_places, i + 8), advance(others, 8 * c))
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
    """Writes `num_rows` weighted sums of `length` rows of the source.

    The weight of row k in sum i is at `i * across + k * along + k // 8 * skip`.
    """
    for i in range(0, num_rows, 4):
        p, q = get(out_places, i), get(out_places, i + 1)
        r, s = get(out_places, i + 2), get(out_places, i + 3)
        for first in range(0, width, 16):
            here, there = advance(source, first), advance(out, first)
            a = b = c = d = e = f = g = h = zeros()
            if first + 8 < width:
                for k in range(length):
                    place = get(places, k)
                    row, more = load(here, place), load(here, place + 8)
                    weight = advance(weights, i * across + k * along + (k >> 3) * skip)
                    number = load_splat(weight, 0)
                    a, e = fma(number, row, a), fma(number, more, e)
                    number = load_splat(weight, across)
                    b, f = fma(number, row, b), fma(number, more, f)
                    number = load_splat(weight, 2 * across)
                    c, g = fma(number, row, c), fma(number, more, g)
                    number = load_splat(weight, 3 * across)
                    d, h = fma(number, row, d), fma(number, more, h)
                store(there, s + 8, h)
                store(there, r + 8, g)
                store(there, q + 8, f)
                store(there, p + 8, e)
            else:
                for k in range(length):
                    row = load(here, get(places, k))
                    weight = advance(weights, i * across + k * along + (k >> 3) * skip)
                    a, b = (
                        fma(load_splat(weight, 0), row, a),
                        fma(load_splat(weight, across), row, b),
                    )
                    c = fma(load_splat(weight, 2 * across), row, c)
                    d = fma(load_splat(weight, 3 * across), row, d)
            store(there, s, d)
            store(there, r, c)
            store(there, q, b)
            store(there, p, a)


@part
def prefetch_rows(source: Untyped, order: Untyped, num_rows: int, width: int, size: int) -> None:
    """Prefetches, for reading, `size` numbers of each row in `order`; rows are `width` apart."""
    for i in range(num_rows):
        start = get(order, i) * width
        for c in range(0, size, 16):
            prefetch(source, start + c)


@part
def prefetch_rows_to_write(
    source: Untyped, order: Untyped, num_rows: int, width: int, size: int
) -> None:
    """Prefetches, for writing, `size` numbers of each row in `order`; rows are `width` apart."""
    for i in range(num_rows):
        start = get(order, i) * width
        for c in range(0, size, 16):
            prefetch_to_write(source, start + c)
