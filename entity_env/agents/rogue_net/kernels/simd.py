"""Rows of eight float32 that stay in registers, where the compiler by itself makes no vectors.

It imports numba: whoever needs it imports it when asked for. Functions that `numba.njit` compiles
call what is here. A pointer is an address in an array; like an index into the memory behind it,
it is not checked. `EIGHT` is what fits a vector register of common machines, `SIXTEEN` two of them:
while one waits for its sum, the other is at work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.extending import intrinsic, models, register_model
from numba.np import arrayobj

Untyped: TypeAlias = Any
"""What numba and llvmlite hand over: they ship no types."""
Writer: TypeAlias = Callable[[Untyped, Untyped, Untyped, Untyped], Untyped]
Typed: TypeAlias = tuple[Untyped, Writer]
"""The signature of a function, and what writes its instructions."""
Function = TypeVar("Function", bound=Callable[..., object])

_NUMBER: Final = ir.FloatType()
_INDEX: Final = ir.IntType(32)


class Row(types.Type):
    """The numba type of so many float32 in registers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.vector = ir.VectorType(_NUMBER, size)
        self.bits = ir.VectorType(_INDEX, size)
        super().__init__(name=f"{size} float32")


EIGHT: Final = Row(8)
SIXTEEN: Final = Row(16)


@register_model(Row)
class _RowModel(models.PrimitiveModel):
    def __init__(self, manager: Untyped, row: Row) -> None:
        super().__init__(manager, row, row.vector)  # type: ignore[no-untyped-call]  # numba's


def part(function: Function) -> Function:
    """A part of compiled functions, which nobody else calls.

    Unlike theirs, its sums stay in the order that they are written in: where the compiler may
    change it, it divides a whole row by what the row is only to be multiplied by.
    """
    compile_it: Untyped = njit
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, compile_it(nogil=True, error_model="numpy", **options)(function))


def inlined(function: Function) -> Function:
    """A part that is no call: its rows stay in registers."""
    compile_it: Untyped = njit
    return cast(Function, compile_it(nogil=True, error_model="numpy", inline="always")(function))


def _made(make: Callable[..., Typed]) -> Untyped:
    """A function for compiled code, by its types and instructions."""
    decorate: Untyped = intrinsic(prefer_literal=True)
    return decorate(make)


def _pick(row: Untyped, other: Untyped, lanes: list[int], builder: Untyped) -> Untyped:
    """Those lanes of two rows, one after the other."""
    kind = ir.VectorType(_INDEX, len(lanes))
    return builder.shuffle_vector(row, other, ir.Constant(kind, lanes))


def _fill(number: Untyped, row: Row, builder: Untyped) -> Untyped:
    """The number in all lanes."""
    first = ir.Constant(_INDEX, 0)
    one = builder.insert_element(ir.Constant(row.vector, ir.Undefined), number, first)
    return _pick(one, one, [0] * row.size, builder)


def _row_at(place: Untyped, row: Row, builder: Untyped) -> Untyped:
    return builder.bitcast(builder.gep(*place), row.vector.as_pointer())


def _make_pointer(_: Untyped, array: Untyped, index: Untyped) -> Typed:
    """`pointer(array, index)`: the address of that number of a flat array."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        make: Untyped = arrayobj.make_array
        data = make(signature.args[0])(context, builder, given[0]).data
        return builder.gep(data, [given[1]])

    address: Untyped = types.CPointer
    return address(array.dtype)(array, types.int64), write


def _make_past(_: Untyped, pointer: Untyped, count: Untyped) -> Typed:
    """`past(pointer, count)`: the address so many numbers further on."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return builder.gep(given[0], [given[1]])

    return pointer(pointer, types.int64), write


def _make_get(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
    """`get(pointer, index)`: the number there."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return builder.load(builder.gep(given[0], [given[1]]))

    return pointer.dtype(pointer, types.int64), write


def _make_load(row: Row) -> Callable[..., Typed]:
    def make(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
        """`load(pointer, index)`: the numbers from there on."""

        def write(
            context: Untyped, builder: Untyped, signature: Untyped, given: Untyped
        ) -> Untyped:
            place = given[0], [given[1]]
            return builder.load(_row_at(place, row, builder), align=4)

        return row(pointer, types.int64), write

    return make


def _make_store(_: Untyped, pointer: Untyped, index: Untyped, row: Untyped) -> Typed:
    """`store(pointer, index, row)`: writes the row there."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        place = given[0], [given[1]]
        builder.store(given[2], _row_at(place, row, builder), align=4)
        return context.get_dummy_value()

    return types.void(pointer, types.int64, row), write


def _make_spread(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
    """`spread(pointer, index)`: the number there in all of eight lanes."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _fill(builder.load(builder.gep(given[0], [given[1]])), EIGHT, builder)

    return EIGHT(pointer, types.int64), write


def _make_zeros(_: Untyped) -> Typed:
    """`zeros()`: eight of them."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return ir.Constant(EIGHT.vector, None)

    return EIGHT(), write


def _make_eight(_: Untyped, number: Untyped) -> Typed:
    """`eight(number)`: the number in all of eight lanes."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _fill(given[0], EIGHT, builder)

    return EIGHT(types.float32), write


def _make_alike(_: Untyped, number: Untyped, row: Untyped) -> Typed:
    """`alike(number, row)`: the number in as many lanes as the row has."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _fill(given[0], row, builder)

    return row(types.float32, row), write


def _make_fma(_: Untyped, a: Untyped, b: Untyped, c: Untyped) -> Typed:
    """`fma(a, b, c)`: `a * b + c`, rounded once where the machine can."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        kind = ir.FunctionType(a.vector, [a.vector] * 3)
        name = f"llvm.fmuladd.v{a.size}f32"
        return builder.call(builder.module.declare_intrinsic(name, fnty=kind), given)

    return a(a, a, a), write


def _make_of_two(combine: Callable[..., Untyped]) -> Callable[..., Typed]:
    """A function of two rows of one size, lane by lane."""

    def make(_: Untyped, a: Untyped, b: Untyped) -> Typed:
        def write(
            context: Untyped, builder: Untyped, signature: Untyped, given: Untyped
        ) -> Untyped:
            return combine(builder, *given)

        return a(a, b), write

    return make


def _greater(builder: Untyped, a: Untyped, b: Untyped) -> Untyped:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _less(builder: Untyped, a: Untyped, b: Untyped) -> Untyped:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _make_above(_: Untyped, row: Untyped, limit: Untyped, x: Untyped) -> Typed:
    """`above(row, limit, x)`: the row where x is not below the limit, else 0."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        is_above = builder.fcmp_unordered(">=", given[2], given[1])
        return builder.select(is_above, given[0], ir.Constant(row.vector, None))

    return row(row, row, row), write


def _make_raise(_: Untyped, row: Untyped, power: Untyped) -> Typed:
    """`raised(row, power)`: the row times 2 to the integer in the low bits of `power`."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        bits, power = (builder.bitcast(each, row.bits) for each in given)
        shift = ir.Constant(row.bits, [23] * row.size)
        return builder.bitcast(builder.add(bits, builder.shl(power, shift)), row.vector)

    return row(row, row), write


def _make_half(_: Untyped, row: Untyped, which: Untyped) -> Typed:
    """`half(row, which)`: the first (0) or last (1) eight lanes of sixteen."""
    first = 8 * which.literal_value

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _pick(given[0], given[0], list(range(first, first + 8)), builder)

    return EIGHT(row, which), write


def _make_twice(_: Untyped, row: Untyped) -> Typed:
    """`twice(row)`: eight lanes, and the same again."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _pick(given[0], given[0], [*range(8), *range(8)], builder)

    return SIXTEEN(row), write


def _make_swap(_: Untyped, row: Untyped, distance: Untyped) -> Typed:
    """`swap(row, distance)`: every lane gets what the one at that distance, 1, 2 or 4, has."""
    lanes = [lane ^ distance.literal_value for lane in range(row.size)]

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        return _pick(given[0], given[0], lanes, builder)

    return row(row, distance), write


def _across(distance: int) -> tuple[list[int], list[int]]:
    """Which lanes of two rows to take, so that blocks of that size are exchanged between them."""
    lanes = range(EIGHT.size)
    low = [lane + (8 - distance if lane & distance else 0) for lane in lanes]
    high = [lane + (8 if lane & distance else distance) for lane in lanes]
    return low, high


def _make_turn(_: Untyped, source: Untyped, places: Untyped, out: Untyped) -> Typed:
    """`turn(source, places, out)`: `out[8 * c + r] = source[places[r] + c]`, both below 8."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        rows = []
        for r in range(8):
            place = builder.load(builder.gep(given[1], [ir.Constant(_INDEX, r)]))
            rows.append(builder.load(_row_at((given[0], [place]), EIGHT, builder), align=4))
        for distance in (4, 2, 1):
            low, high = _across(distance)
            for r in range(8):
                if not r & distance:
                    pair = rows[r], rows[r + distance]
                    rows[r] = _pick(*pair, low, builder)
                    rows[r + distance] = _pick(*pair, high, builder)
        for c, row in enumerate(rows):
            place = given[2], [ir.Constant(_INDEX, 8 * c)]
            builder.store(row, _row_at(place, EIGHT, builder), align=4)
        return context.get_dummy_value()

    return types.void(source, places, out), write


def _make_fold(
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
    """`fold(a, b, c, d, e, f, g, h)`: the sum of each of eight rows of eight, lane after lane."""

    def write(context: Untyped, builder: Untyped, signature: Untyped, given: Untyped) -> Untyped:
        rows = list(given)
        for distance in (4, 2, 1):
            low, high = _across(distance)
            pairs = list(zip(rows[:distance], rows[distance:], strict=True))
            rows = [
                builder.fadd(_pick(*pair, low, builder), _pick(*pair, high, builder))
                for pair in pairs
            ]
        return rows[0]

    return EIGHT(a, b, c, d, e, f, g, h), write


def _make_fetch(is_written: bool) -> Callable[..., Typed]:
    def make(_: Untyped, pointer: Untyped, index: Untyped) -> Typed:
        """`fetch(pointer, index)`: asks memory for the numbers there, without waiting."""

        def write(
            context: Untyped, builder: Untyped, signature: Untyped, given: Untyped
        ) -> Untyped:
            place = builder.gep(given[0], [given[1]])
            place = builder.bitcast(place, ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [place.type, _INDEX, _INDEX, _INDEX])
            fetch = builder.module.declare_intrinsic("llvm.prefetch.p0", fnty=kind)
            # For all levels of the cache, and of data.
            how = (ir.Constant(_INDEX, each) for each in (int(is_written), 3, 1))
            builder.call(fetch, [place, *how])
            return context.get_dummy_value()

        return types.void(pointer, types.int64), write

    return make


pointer: Untyped = _made(_make_pointer)
past: Untyped = _made(_make_past)
get: Untyped = _made(_make_get)
load: Untyped = _made(_make_load(EIGHT))
load_two: Untyped = _made(_make_load(SIXTEEN))
store: Untyped = _made(_make_store)
spread: Untyped = _made(_make_spread)
zeros: Untyped = _made(_make_zeros)
eight: Untyped = _made(_make_eight)
alike: Untyped = _made(_make_alike)
fma: Untyped = _made(_make_fma)
add: Untyped = _made(_make_of_two(lambda builder, a, b: builder.fadd(a, b)))
subtract: Untyped = _made(_make_of_two(lambda builder, a, b: builder.fsub(a, b)))
multiply: Untyped = _made(_make_of_two(lambda builder, a, b: builder.fmul(a, b)))
divide: Untyped = _made(_make_of_two(lambda builder, a, b: builder.fdiv(a, b)))
largest: Untyped = _made(_make_of_two(_greater))
smallest: Untyped = _made(_make_of_two(_less))
above: Untyped = _made(_make_above)
raised: Untyped = _made(_make_raise)
half: Untyped = _made(_make_half)
twice: Untyped = _made(_make_twice)
swap: Untyped = _made(_make_swap)
turn: Untyped = _made(_make_turn)
fold: Untyped = _made(_make_fold)
fetch: Untyped = _made(_make_fetch(is_written=False))
fetch_to_write: Untyped = _made(_make_fetch(is_written=True))
