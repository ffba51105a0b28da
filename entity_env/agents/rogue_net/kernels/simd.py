"""SIMD vectors of 8 or 16 float32 for numba, which does not vectorize short loops.

The functions are LLVM intrinsics for code that `numba.njit` compiles. A pointer is an address in a
flat array. `F32X8` is one vector register of common machines; `F32X16` is two, so one can add while
the other waits for its sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.extending import intrinsic, models, register_model
from numba.np import arrayobj

from entity_env.core.numba_utils import compiled

Untyped: TypeAlias = Any
"""Values of numba and llvmlite, which ship no types."""
Typed: TypeAlias = tuple[Untyped, Callable[[Untyped, Untyped, Untyped, Untyped], Untyped]]
"""Signature of an intrinsic, and its code generator."""
Function = TypeVar("Function", bound=Callable[..., object])

LANES: Final = 8
ZERO: Final = np.float32(0.0)
ONE: Final = np.float32(1.0)
_NUMBER: Final = ir.FloatType()
_INDEX: Final = ir.IntType(32)

_ANY_ORDER: Final = frozenset({"reassoc", "contract", "nsz"})
vectorized = compiled(_ANY_ORDER)
"""`compiled`, with sums in any order, as vectors need; infinities and NaN keep their meaning."""
vectorized_inline = compiled(_ANY_ORDER, inline=True)
"""`vectorized`, and inlined into compiled callers, so constants are known."""


class F32Vector(types.Type):
    """Numba type of `size` float32 in registers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.vector = ir.VectorType(_NUMBER, size)
        self.bits = ir.VectorType(_INDEX, size)
        super().__init__(name=f"{size} float32")


F32X8: Final = F32Vector(8)
F32X16: Final = F32Vector(16)


@register_model(F32Vector)
class _F32VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Untyped, kind: F32Vector) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]  # numba's


def part(function: Function) -> Function:
    """Compiles a function that only compiled functions call.

    Sums keep their order, unlike with `vectorized`: with reordering, the compiler would divide a
    whole vector where the code multiplies by a reciprocal.
    """
    compile_it: Untyped = njit
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, compile_it(nogil=True, error_model="numpy", **options)(function))


def inlined(function: Function) -> Function:
    """Like `part`, but inlined: vectors stay in registers."""
    compile_it: Untyped = njit
    return cast(Function, compile_it(nogil=True, error_model="numpy", inline="always")(function))


def _intrinsic(make: Callable[..., Typed]) -> Untyped:
    decorate: Untyped = intrinsic(prefer_literal=True)
    return decorate(make)


def _typed(signature: Untyped, emit: Callable[[Untyped, Untyped], Untyped]) -> Typed:
    """An intrinsic; `emit(builder, arguments)` returns None for no result."""

    def generate(context: Untyped, builder: Untyped, _: Untyped, given: Untyped) -> Untyped:
        result = emit(builder, given)
        return context.get_dummy_value() if result is None else result

    return signature, generate


def _shuffle(builder: Untyped, a: Untyped, b: Untyped, lanes: list[int]) -> Untyped:
    """The given lanes of two concatenated vectors."""
    kind = ir.VectorType(_INDEX, len(lanes))
    return builder.shuffle_vector(a, b, ir.Constant(kind, lanes))


def _splat(builder: Untyped, number: Untyped, kind: F32Vector) -> Untyped:
    first = ir.Constant(_INDEX, 0)
    one = builder.insert_element(ir.Constant(kind.vector, ir.Undefined), number, first)
    return _shuffle(builder, one, one, [0] * kind.size)


def _vector_at(builder: Untyped, pointer: Untyped, index: Untyped, kind: F32Vector) -> Untyped:
    return builder.bitcast(builder.gep(pointer, [index]), kind.vector.as_pointer())


@_intrinsic
def pointer(_: Untyped, array: Untyped, index: Untyped) -> Typed:
    """`pointer(array, index)`: the address of an element in a flat array."""
    address, make = cast(Untyped, types.CPointer), cast(Untyped, arrayobj.make_array)

    def emit(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        data = make(signature.args[0])(context, builder, given[0]).data
        return builder.gep(data, [given[1]])

    return address(array.dtype)(array, types.int64), emit


@_intrinsic
def advance(_: Untyped, pointer: Untyped, count: Untyped) -> Typed:
    """`advance(pointer, count)`: the address `count` numbers later."""
    signature = pointer(pointer, types.int64)
    return _typed(signature, lambda builder, given: builder.gep(given[0], [given[1]]))


@_intrinsic
def get(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
    """`get(pointer, index)`: the number at the index."""
    signature = pointer.dtype(pointer, types.int64)
    return _typed(signature, lambda builder, given: builder.load(builder.gep(given[0], [given[1]])))


def _make_load(kind: F32Vector) -> Callable[..., Typed]:
    def make(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
        """`load(pointer, index)`: the vector that starts at the index."""
        return _typed(
            kind(pointer, types.int64),
            lambda builder, given: builder.load(
                _vector_at(builder, given[0], given[1], kind), align=4
            ),
        )

    return make


load: Untyped = _intrinsic(_make_load(F32X8))
load_16: Untyped = _intrinsic(_make_load(F32X16))


@_intrinsic
def store(_: Untyped, pointer: Untyped, index: Untyped, vector: Untyped) -> Typed:
    """`store(pointer, index, vector)`: writes the vector at the index."""

    def emit(builder: Untyped, given: Untyped) -> None:
        builder.store(given[2], _vector_at(builder, given[0], given[1], vector), align=4)

    return _typed(types.void(pointer, types.int64, vector), emit)


@_intrinsic
def load_splat(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
    """`load_splat(pointer, index)`: the number at the index, in all 8 lanes."""

    def emit(builder: Untyped, given: Untyped) -> Untyped:
        return _splat(builder, builder.load(builder.gep(given[0], [given[1]])), F32X8)

    return _typed(F32X8(pointer, types.int64), emit)


@_intrinsic
def zeros(_: Untyped) -> Typed:
    """`zeros()`: 8 zeros."""
    return _typed(F32X8(), lambda builder, given: ir.Constant(F32X8.vector, None))


@_intrinsic
def splat(_: Untyped, number: Untyped) -> Typed:
    """`splat(number)`: the number in all 8 lanes."""
    return _typed(F32X8(types.float32), lambda builder, given: _splat(builder, given[0], F32X8))


@_intrinsic
def splat_like(_: Untyped, number: Untyped, vector: Untyped) -> Typed:
    """`splat_like(number, vector)`: the number in all lanes of the vector's type."""
    signature = vector(types.float32, vector)
    return _typed(signature, lambda builder, given: _splat(builder, given[0], vector))


@_intrinsic
def fma(_: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Typed:
    """`fma(a, b, c)`: `a * b + c`, rounded once if the machine supports it."""

    def emit(builder: Untyped, given: Untyped) -> Untyped:
        kind = ir.FunctionType(a.vector, [a.vector] * 3)
        name = f"llvm.fmuladd.v{a.size}f32"
        return builder.call(builder.module.declare_intrinsic(name, fnty=kind), given)

    return _typed(a(a, a, a), emit)


def _make_elementwise(combine: Callable[..., Untyped]) -> Callable[..., Typed]:
    def make(_: Untyped, a: Untyped, b: Untyped) -> Typed:
        return _typed(a(a, b), lambda builder, given: combine(builder, *given))

    return make


def _make_selection(order: str) -> Callable[..., Typed]:
    return _make_elementwise(lambda b, x, y: b.select(b.fcmp_ordered(order, x, y), x, y))


add: Untyped = _intrinsic(_make_elementwise(lambda builder, a, b: builder.fadd(a, b)))
subtract: Untyped = _intrinsic(_make_elementwise(lambda builder, a, b: builder.fsub(a, b)))
multiply: Untyped = _intrinsic(_make_elementwise(lambda builder, a, b: builder.fmul(a, b)))
divide: Untyped = _intrinsic(_make_elementwise(lambda builder, a, b: builder.fdiv(a, b)))
maximum: Untyped = _intrinsic(_make_selection(">"))
minimum: Untyped = _intrinsic(_make_selection("<"))


@_intrinsic
def zero_below(_: Untyped, vector: Untyped, limit: Untyped, x: Untyped) -> Typed:
    """`zero_below(vector, limit, x)`: the vector, but 0 where x is below the limit."""

    def emit(builder: Untyped, given: Untyped) -> Untyped:
        is_above = builder.fcmp_unordered(">=", given[2], given[1])
        return builder.select(is_above, given[0], ir.Constant(vector.vector, None))

    return _typed(vector(vector, vector, vector), emit)


@_intrinsic
def scale_by_power(_: Untyped, vector: Untyped, power: Untyped) -> Typed:
    """`scale_by_power(vector, power)`: times 2 to the integer in the low bits of `power`."""

    def emit(builder: Untyped, given: Untyped) -> Untyped:
        bits, exponent = (builder.bitcast(each, vector.bits) for each in given)
        shift = ir.Constant(vector.bits, [23] * vector.size)
        return builder.bitcast(builder.add(bits, builder.shl(exponent, shift)), vector.vector)

    return _typed(vector(vector, vector), emit)


@_intrinsic
def half(_: Untyped, vector: Untyped, which: Untyped) -> Typed:
    """`half(vector, which)`: the first (0) or last (1) 8 of 16 lanes."""
    lanes = list(range(8 * which.literal_value, 8 * which.literal_value + 8))
    signature = F32X8(vector, which)
    return _typed(signature, lambda b, given: _shuffle(b, given[0], given[0], lanes))


@_intrinsic
def twice(_: Untyped, vector: Untyped) -> Typed:
    """`twice(vector)`: 8 lanes, repeated."""
    lanes = [*range(8), *range(8)]
    return _typed(F32X16(vector), lambda b, given: _shuffle(b, given[0], given[0], lanes))


@_intrinsic
def swap(_: Untyped, vector: Untyped, distance: Untyped) -> Typed:
    """`swap(vector, distance)`: exchanges lanes at distance 1, 2 or 4."""
    lanes = [lane ^ distance.literal_value for lane in range(vector.size)]
    signature = vector(vector, distance)
    return _typed(signature, lambda b, given: _shuffle(b, given[0], given[0], lanes))


def _exchanged(distance: int) -> tuple[list[int], list[int]]:
    """Lanes of two vectors after exchanging blocks of `distance` lanes."""
    lanes = range(8)
    low = [lane + (8 - distance if lane & distance else 0) for lane in lanes]
    high = [lane + (8 if lane & distance else distance) for lane in lanes]
    return low, high


@_intrinsic
def transpose(_: Untyped, source: Untyped, places: Untyped, out: Untyped) -> Typed:
    """`transpose(source, places, out)`: `out[8 * c + r] = source[places[r] + c]`; c, r < 8."""

    def emit(builder: Untyped, given: Untyped) -> None:
        rows = []
        for r in range(8):
            place = builder.load(builder.gep(given[1], [ir.Constant(_INDEX, r)]))
            rows.append(builder.load(_vector_at(builder, given[0], place, F32X8), align=4))
        for distance in (4, 2, 1):
            low, high = _exchanged(distance)
            for r in range(8):
                if not r & distance:
                    pair = rows[r], rows[r + distance]
                    rows[r] = _shuffle(builder, *pair, low)
                    rows[r + distance] = _shuffle(builder, *pair, high)
        for c, row in enumerate(rows):
            place = _vector_at(builder, given[2], ir.Constant(_INDEX, 8 * c), F32X8)
            builder.store(row, place, align=4)

    return _typed(types.void(source, places, out), emit)


@_intrinsic
def row_sums(
    _: Untyped,
    a: Untyped,
    b: Untyped,
    c: Untyped,
    d: Untyped,
    e: Untyped,
    f: Untyped,
    g: Untyped,
    h: Untyped,
) -> Typed:
    """`row_sums(a, b, c, d, e, f, g, h)`: the sum of each of 8 vectors, one per lane."""

    def emit(builder: Untyped, given: Untyped) -> Untyped:
        rows = list(given)
        for distance in (4, 2, 1):
            low, high = _exchanged(distance)
            pairs = list(zip(rows[:distance], rows[distance:], strict=True))
            rows = [
                builder.fadd(_shuffle(builder, *pair, low), _shuffle(builder, *pair, high))
                for pair in pairs
            ]
        return rows[0]

    return _typed(F32X8(a, b, c, d, e, f, g, h), emit)


def _make_prefetch(is_written: bool) -> Callable[..., Typed]:
    def make(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
        """`prefetch(pointer, index)`: starts loading the numbers at the index, without waiting."""

        def emit(builder: Untyped, given: Untyped) -> None:
            place = builder.gep(given[0], [given[1]])
            place = builder.bitcast(place, ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type, _INDEX, _INDEX, _INDEX])
            function = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
            # Read or write; to all cache levels; data rather than code.
            options = (ir.Constant(_INDEX, each) for each in (int(is_written), 3, 1))
            builder.call(function, [place, *options])

        return _typed(types.void(pointer, types.int64), emit)

    return make


prefetch: Untyped = _intrinsic(_make_prefetch(is_written=False))
prefetch_to_write: Untyped = _intrinsic(_make_prefetch(is_written=True))
