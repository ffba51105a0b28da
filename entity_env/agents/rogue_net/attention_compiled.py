"""Attention within each observation, compiled: entities stay packed, nothing is padded or moved.

It imports numba: whoever needs it imports it when asked for.
A batched product of matrices of five rows spends its time on everything but the product: here all
of attention, softmax included, is one loop over observations. Rows of numbers are handled by vector
instructions that the functions at the head write down; left to itself the compiler made none,
which took five times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., object])
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LARGEST_HEAD: Final = 64
"""Numbers that a head may compare entities by."""
LANES: Final = 8
"""Numbers that are summed side by side."""
ONE: Final = np.float32(1.0)
ZERO: Final = np.float32(0.0)
HIDDEN: Final = np.float32(-1e9)
"""Logit of what an entity must not attend to."""
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

_carray: Any = numpy_support.carray


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


def _vector(context: Any, builder: Any, kind: Any, place: Any, width: int) -> Any:  # noqa: ANN401 - numba's, untyped
    """The pointer to `width` numbers of a flat array, from an index on; `place` is both."""
    array, index = place
    make: Any = arrayobj.make_array
    first = builder.gep(make(kind)(context, builder, array).data, [index])
    return builder.bitcast(first, ir.VectorType(ir.FloatType(), width).as_pointer())


def _make_dot(typing_context: Any, a: Any, i: Any, b: Any, j: Any, width: Any) -> Any:  # noqa: ANN401
    """`_dot(a, i, b, j, width)`: the sum of `a[i + k] * b[j + k]` for `k` below the width."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        size, (kind, _, other, *_) = width.literal_value, signature.args
        x = builder.load(_vector(context, builder, kind, arguments[:2], size), align=4)
        y = builder.load(_vector(context, builder, other, arguments[2:4], size), align=4)
        number = ir.FloatType()
        total = builder.module.declare_intrinsic(
            f"llvm.vector.reduce.fadd.v{size}f32",
            fnty=ir.FunctionType(number, [number, x.type]),
        )
        product = builder.fmul(x, y)
        return builder.call(total, [ir.Constant(number, 0.0), product], fastmath=("reassoc",))

    return types.float32(a, i, b, j, width), write


def _make_add(
    typing_context: Any,  # noqa: ANN401
    out: Any,  # noqa: ANN401
    i: Any,  # noqa: ANN401
    factor: Any,  # noqa: ANN401
    a: Any,  # noqa: ANN401
    j: Any,  # noqa: ANN401
    width: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """`_add(out, i, factor, a, j, width)`: adds `factor * a[j + k]` to `out[i + k]`."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        size, (kind, _, _, other, *_) = width.literal_value, signature.args
        to = _vector(context, builder, kind, arguments[:2], size)
        x = builder.load(_vector(context, builder, other, arguments[3:5], size), align=4)
        index = ir.IntType(32)
        one = builder.insert_element(
            ir.Constant(x.type, ir.Undefined), arguments[2], ir.Constant(index, 0)
        )
        many = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(index, size), None))
        product = builder.fmul(x, many, flags=("contract",))
        old = builder.load(to, align=4)
        builder.store(builder.fadd(old, product, flags=("contract",)), to, align=4)
        return context.get_dummy_value()

    return types.void(out, i, factor, a, j, width), write


def _make_set(typing_context: Any, out: Any, i: Any, a: Any, j: Any, width: Any) -> Any:  # noqa: ANN401
    """`_set(out, i, a, j, width)`: copies `a[j + k]` to `out[i + k]`."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        size, (kind, _, other, *_) = width.literal_value, signature.args
        x = builder.load(_vector(context, builder, other, arguments[2:4], size), align=4)
        builder.store(x, _vector(context, builder, kind, arguments[:2], size), align=4)
        return context.get_dummy_value()

    return types.void(out, i, a, j, width), write


def _make_stack(typing_context: Any) -> Any:  # noqa: ANN401 - numba's, untyped
    """`_stack()`: room for some float32 that the compiler may keep in registers."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        make: Any = cgutils.alloca_once
        return make(builder, ir.FloatType(), size=LARGEST_HEAD)

    pointer: Any = types.CPointer
    return pointer(types.float32)(), write


_dot: Any = intrinsic(prefer_literal=True)(_make_dot)
_add: Any = intrinsic(prefer_literal=True)(_make_add)
_set: Any = intrinsic(prefer_literal=True)(_make_set)
_stack: Any = intrinsic(_make_stack)


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


@compiled
def _soften(row: Floats, power: NDArray[np.int32], length: int, largest: np.float32) -> np.float32:
    """Turns the first logits of a row into `exp(logit - largest)`; returns their sum."""
    for j in range(length):
        row[j] -= largest
    exponential(row, power, length)
    total = ZERO
    for j in range(length):
        total += row[j]
    return total


def _forward(d_head: int) -> Callable[..., None]:
    """Attention for heads of that size, which the machine code knows as a constant."""

    def forward(
        qkv: Floats,
        order: Ints,
        offsets: Ints,
        visible: NDArray[np.bool_],
        n_head: int,
        mixed: Floats,
        shares: Floats,
        max_length: int,
    ) -> None:
        d_model = n_head * d_head
        scale = np.float32(1.0 / math.sqrt(d_head))
        query, sums = _carray(_stack(), d_head), _carray(_stack(), d_head)
        zeros = np.zeros(d_head, dtype=np.float32)
        row = np.empty(max_length, dtype=np.float32)
        power = np.empty(max_length, dtype=np.int32)
        hides = len(visible) > 0
        at = 0
        for r in range(len(offsets) - 1):
            start, length = offsets[r], offsets[r + 1] - offsets[r]
            for h in range(n_head):
                key, value = d_model + h * d_head, 2 * d_model + h * d_head
                for i in range(length):
                    e = order[start + i]
                    _set(query, 0, qkv, e * 3 * d_model + h * d_head, d_head)
                    _set(sums, 0, zeros, 0, d_head)
                    sees_all = not hides or not visible[e]
                    largest = np.float32(-np.inf)
                    for j in range(length):
                        f = order[start + j]
                        logit = _dot(query, 0, qkv, f * 3 * d_model + key, d_head) * scale
                        row[j] = logit if sees_all or visible[f] else HIDDEN
                        largest = max(largest, row[j])
                    total = ONE / _soften(row, power, length, largest)
                    for j in range(length):
                        share = row[j] * total
                        shares[at + j] = share
                        f = order[start + j]
                        _add(sums, 0, share, qkv, f * 3 * d_model + value, d_head)
                    _set(mixed, e * d_model + h * d_head, sums, 0, d_head)
                    at += length

    return forward


def _backward(d_head: int) -> Callable[..., None]:
    """The gradient of `_forward`."""

    def backward(
        qkv: Floats,
        order: Ints,
        offsets: Ints,
        n_head: int,
        shares: Floats,
        gradient: Floats,
        moved: Floats,
        max_length: int,
    ) -> None:
        d_model = n_head * d_head
        scale = np.float32(1.0 / math.sqrt(d_head))
        query, given = _carray(_stack(), d_head), _carray(_stack(), d_head)
        sums = _carray(_stack(), d_head)
        zeros = np.zeros(d_head, dtype=np.float32)
        row = np.empty(max_length, dtype=np.float32)
        moved[:] = ZERO
        at = 0
        for r in range(len(offsets) - 1):
            start, length = offsets[r], offsets[r + 1] - offsets[r]
            for h in range(n_head):
                key, value = d_model + h * d_head, 2 * d_model + h * d_head
                for i in range(length):
                    e = order[start + i]
                    _set(query, 0, qkv, e * 3 * d_model + h * d_head, d_head)
                    _set(given, 0, gradient, e * d_model + h * d_head, d_head)
                    _set(sums, 0, zeros, 0, d_head)
                    total = ZERO
                    for j in range(length):
                        place = order[start + j] * 3 * d_model + value
                        share = shares[at + j]
                        row[j] = _dot(given, 0, qkv, place, d_head)
                        total += row[j] * share
                        _add(moved, place, share, given, 0, d_head)
                    for j in range(length):
                        place = order[start + j] * 3 * d_model + key
                        slope = (row[j] - total) * shares[at + j] * scale
                        _add(sums, 0, slope, qkv, place, d_head)
                        _add(moved, place, slope, query, 0, d_head)
                    _set(moved, e * 3 * d_model + h * d_head, sums, 0, d_head)
                    at += length

    return backward


@cache
def kernels(d_head: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Attention and its gradient for heads of that size.

    All arrays are flat, of float32 and int64, and as long as they must be: nothing is checked.

    forward(qkv, order, offsets, visible, n_head, mixed, shares, max_length)
        Reads `(num_entities, 3 * n_head * d_head)` queries, keys and values, and the fields of
        `Packed`; writes `(num_entities, n_head * d_head)` mixed values and the shares.
    backward(qkv, order, offsets, n_head, shares, gradient, moved, max_length)
        Reads the gradient of the mixed values; writes that of `qkv` to `moved`.
    """
    return compiled(_forward(d_head)), compiled(_backward(d_head))


@compiled
def sum_rows(x: Floats, order: Ints, offsets: Ints, total: Floats, width: int) -> None:
    """Sums what belongs to the entities of each observation.

    Args:
        x: `(num_entities * width,)`.
        order, offsets: as in `Packed`.
        total: `(num_rows * width,)`, where the sums are written.
        width: numbers of one entity.
    """
    total[:] = ZERO
    blocks = width // LANES
    for r in range(len(offsets) - 1):
        at = r * width
        for place in range(offsets[r], offsets[r + 1]):
            start = order[place] * width
            for block in range(blocks):
                _add(total, at + block * LANES, ONE, x, start + block * LANES, LANES)
            for i in range(blocks * LANES, width):
                total[at + i] += x[start + i]
