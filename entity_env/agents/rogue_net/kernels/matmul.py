"""Matrix products for small networks, inside other compiled code.

BLAS libraries are fast for large matrices, which leave the cache between two products. These
functions process a few hundred rows at a time and keep inputs and outputs in the cache. Matrices
are float32.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import types
from numba.core import cgutils, registry
from numba.extending import intrinsic
from numba.np import arrayobj

from entity_env.agents.rogue_net.kernels.simd import vectorized, vectorized_inline
from entity_env.core.ragged import Floats

_LANES: Final = 8
"""Number of float32 per vector."""
_CODEGEN: Final[Any] = registry.cpu_target.target_context.codegen()
_IS_WIDE: Final = "+avx512f" in _CODEGEN.magic_tuple()[2]
"""True if registers hold two vectors, and there are twice as many registers."""
_ROWS: Final = 8 if _IS_WIDE else 4
_MOST: Final = 4 if _IS_WIDE else 2
"""Number of rows per tile, and of vectors per row: a tile's sums and factors just fit the
registers."""
_HALF: Final = _MOST // 2


_INDEX: Final = ir.IntType(64)


def _vector_at(builder: Any, place: Any, number: int, kind: Any) -> Any:  # noqa: ANN401 - numba's, untyped
    moved = builder.gep(place, [_INDEX(number * kind.count)])
    return builder.bitcast(moved, kind.as_pointer())


def _spread(builder: Any, number: Any, kind: Any) -> Any:  # noqa: ANN401 - numba's, untyped
    undefined, lane = ir.Constant(kind, ir.Undefined), ir.IntType(32)
    one = builder.insert_element(undefined, number, lane(0))
    lanes = ir.Constant(ir.VectorType(lane, kind.count), None)
    return builder.shuffle_vector(one, one, lanes)


def _make_tile(
    typing_context: Any,  # noqa: ANN401 - numba's, untyped; so are all below
    a: Any,  # noqa: ANN401
    i: Any,  # noqa: ANN401
    strides: Any,  # noqa: ANN401
    b: Any,  # noqa: ANN401
    j: Any,  # noqa: ANN401
    depth: Any,  # noqa: ANN401
    out: Any,  # noqa: ANN401
    o: Any,  # noqa: ANN401
    rows: Any,  # noqa: ANN401
    vectors: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """`_tile(a, i, (row, step), b, j, depth, out, o, rows, vectors)`: adds a tile of a product.

    Each matrix is followed by the flat index of the tile's start. Adds to `rows` rows of `vectors`
    vectors of `out` the sum over `k < depth` of column `k` of `a` times row `k` of `b`; rows and
    columns of `a` are `row` and `step` numbers apart. Every tile sums in the order of `k`.
    """
    make: Any = arrayobj.make_array
    room: Any = cgutils.alloca_once
    count: Any = cgutils.for_range
    is_joined = _IS_WIDE and vectors.literal_value % 2 == 0
    kind = ir.VectorType(ir.FloatType(), _LANES * (1 + is_joined))
    num_rows, across = range(rows.literal_value), range(vectors.literal_value // (1 + is_joined))

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        def begin(argument: int) -> tuple[Any, Any]:
            array = make(signature.args[argument])(context, builder, arguments[argument])
            place = builder.gep(array.data, [arguments[argument + 1]])
            return place, builder.extract_value(array.shape, 1)

        def rows_from(place: Any, stride: Any) -> list[Any]:  # noqa: ANN401
            return [builder.gep(place, [builder.mul(stride, _INDEX(r))]) for r in num_rows]

        (left, _), (right, width), (to, to_width) = begin(0), begin(3), begin(6)
        row, step = (builder.extract_value(arguments[2], at) for at in range(2))
        heads = rows_from(left, row)
        places = [
            _vector_at(builder, at, c, kind) for at in rows_from(to, to_width) for c in across
        ]
        sums = [room(builder, kind) for _ in places]  # LLVM keeps them in registers
        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(place, align=4), total)
        with count(builder, arguments[5]) as loop:
            line = builder.gep(right, [builder.mul(loop.index, width)])
            factors = [builder.load(_vector_at(builder, line, c, kind), align=4) for c in across]
            at = builder.mul(loop.index, step)
            loaded = [builder.load(builder.gep(head, [at])) for head in heads]
            numbers = [_spread(builder, number, kind) for number in loaded]
            pairs = ((number, factor) for number in numbers for factor in factors)
            for total, pair in zip(sums, pairs, strict=True):
                product = builder.fmul(*pair, flags=("contract",))
                added = builder.fadd(builder.load(total), product, flags=("contract",))
                builder.store(added, total)
        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(total), place, align=4)
        return context.get_dummy_value()

    return types.void(a, i, strides, b, j, depth, out, o, rows, vectors), write


_tile: Any = intrinsic(prefer_literal=True)(_make_tile)


@vectorized_inline  # makes a stride of 1 a constant, which doubles the speed
def _add_tiles(a: Floats, strides: tuple[int, int], b: Floats, depth: int, out: Floats) -> None:
    """Adds a product to `out`, except for the last columns that do not fill a vector.

    `strides` are the row and column strides of the left factor.
    """
    num_rows, width = out.shape
    last, end = width - width % _LANES, num_rows - num_rows % _ROWS
    c = 0
    while c < last:
        num_vectors = _MOST
        while c + num_vectors * _LANES > last:
            num_vectors //= 2
        for r in range(0, end, _ROWS):
            i, o = r * strides[0], r * width + c
            if num_vectors == _MOST:
                _tile(a, i, strides, b, c, depth, out, o, _ROWS, _MOST)
            elif num_vectors == _HALF:
                _tile(a, i, strides, b, c, depth, out, o, _ROWS, _HALF)
            else:
                _tile(a, i, strides, b, c, depth, out, o, _ROWS, 1)
        for r in range(end, num_rows):
            for left in range(c, c + num_vectors * _LANES, _LANES):
                _tile(a, r * strides[0], strides, b, left, depth, out, r * width + left, 1, 1)
        c += num_vectors * _LANES


@vectorized
def add_product(a: Floats, b: Floats, out: Floats) -> None:
    """Adds `a @ b` to `out`: `(n, depth)`, `(depth, width)`, `(n, width)`."""
    num_rows, width = out.shape
    depth = a.shape[1]
    _add_tiles(a, (depth, 1), b, depth, out)
    for c in range(width - width % _LANES, width):
        for r in range(num_rows):
            for k in range(depth):
                out[r, c] += a[r, k] * b[k, c]


@vectorized
def add_outer(a: Floats, b: Floats, out: Floats) -> None:
    """Adds `a.T @ b` to `out`: `(depth, n)`, `(depth, width)`, `(n, width)`."""
    num_rows, width = out.shape
    depth = len(a)
    _add_tiles(a, (1, a.shape[1]), b, depth, out)
    for c in range(width - width % _LANES, width):
        for r in range(num_rows):
            for k in range(depth):
                out[r, c] += a[k, r] * b[k, c]
