"""Operations on SIMD vectors equal those of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import pytest

pytest.importorskip("numba")

from numba import njit

from entity_env.agents.rogue_net.kernels import simd
from entity_env.agents.rogue_net.kernels.softmax import exp_row

Function = TypeVar("Function", bound=Callable[..., None])
RNG = np.random.default_rng(0)
load, load_16, store, pointer = simd.load, simd.load_16, simd.store, simd.pointer


def compiled(function: Function) -> Function:
    """The function as machine code."""
    compile_it: Any = njit
    return cast(Function, compile_it(function))


def numbers(size: int) -> Any:  # noqa: ANN401 - an array, for untyped compiled code
    return RNG.normal(size=size).astype(np.float32)


def of_two(function: Any) -> Any:  # noqa: ANN401 - numba's, untyped
    """The result for two rows of 16 and for two rows of 8."""

    @compiled
    def apply(a: Any, b: Any, out: Any) -> None:  # noqa: ANN401 - compiled
        x, y, to = pointer(a, 0), pointer(b, 0), pointer(out, 0)
        store(to, 0, function(load_16(x, 0), load_16(y, 0)))
        store(to, 16, function(load(x, 16), load(y, 16)))

    return apply


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (simd.add, np.add),
        (simd.subtract, np.subtract),
        (simd.multiply, np.multiply),
        (simd.divide, np.divide),
        (simd.maximum, np.maximum),
        (simd.minimum, np.minimum),
    ],
    ids=["add", "subtract", "multiply", "divide", "maximum", "minimum"],
)
def test_rows_are_combined_lane_by_lane(function: Any, wanted: Any) -> None:  # noqa: ANN401 - numba's
    a, b, out = numbers(24), numbers(24), np.zeros(24, dtype=np.float32)
    of_two(function)(a, b, out)
    np.testing.assert_array_equal(out, wanted(a, b))


@pytest.mark.parametrize("function", [simd.maximum, simd.minimum])
def test_no_number_stays_none_where_it_is_second(function: Any) -> None:  # noqa: ANN401 - numba's
    a, b, out = numbers(24), np.full(24, np.nan, dtype=np.float32), np.zeros(24, dtype=np.float32)
    of_two(function)(a, b, out)
    assert np.isnan(out).all()


def test_eight_rows_are_turned_wherever_they_lie() -> None:
    @compiled
    def turned(source: Any, places: Any, out: Any) -> None:  # noqa: ANN401 - compiled
        simd.transpose(pointer(source, 1), pointer(places, 0), pointer(out, 0))

    source, places = numbers(100), np.array([3, 80, 11, 11, 0, 64, 40, 23])
    out = np.zeros(64, dtype=np.float32)
    turned(source, places, out)
    wanted = np.stack([source[1 + place : 9 + place] for place in places])
    np.testing.assert_array_equal(out.reshape(8, 8), wanted.T)


def test_eight_rows_are_summed() -> None:
    @compiled
    def sums(x: Any, out: Any) -> None:  # noqa: ANN401 - compiled
        p = pointer(x, 0)
        a, b, c, d = load(p, 0), load(p, 8), load(p, 16), load(p, 24)
        e, f, g, h = load(p, 32), load(p, 40), load(p, 48), load(p, 56)
        store(pointer(out, 0), 0, simd.row_sums(a, b, c, d, e, f, g, h))

    x, out = RNG.integers(-99, 99, 64).astype(np.float32), np.zeros(8, dtype=np.float32)
    sums(x, out)
    np.testing.assert_array_equal(out, x.reshape(8, 8).sum(1))


def test_lanes_are_moved_and_filled() -> None:
    @compiled
    def moved(x: Any, out: Any) -> None:  # noqa: ANN401 - compiled
        source, to = pointer(x, 0), pointer(out, 0)
        row, two = load(source, 0), load_16(source, 0)
        store(to, 0, simd.swap(row, 1))
        store(to, 8, simd.swap(row, 2))
        store(to, 16, simd.swap(row, 4))
        store(to, 24, simd.half(two, 0))
        store(to, 32, simd.half(two, 1))
        store(to, 40, simd.twice(row))
        store(to, 56, simd.load_splat(simd.advance(source, 2), 1))
        store(to, 64, simd.splat(x[4]))
        store(to, 72, simd.splat_like(x[5], row))
        store(to, 80, simd.zeros())
        store(to, 88, simd.splat_like(simd.get(source, 6), two))

    x, out = numbers(16), np.ones(104, dtype=np.float32)
    moved(x, out)
    lane = np.arange(8)
    wanted = [x[lane ^ 1], x[lane ^ 2], x[lane ^ 4], x[:8], x[8:], x[:8], x[:8]]
    wanted += [np.full(8, number) for number in (x[3], x[4], x[5], 0, x[6], x[6])]
    np.testing.assert_array_equal(out, np.concatenate(wanted))


def test_fused_sums_are_those_of_three_rows() -> None:
    @compiled
    def fused(x: Any, out: Any) -> None:  # noqa: ANN401 - compiled
        p = pointer(x, 0)
        store(pointer(out, 0), 0, simd.fma(load_16(p, 0), load_16(p, 16), load_16(p, 32)))

    x, out = numbers(48), np.zeros(16, dtype=np.float32)
    fused(x, out)
    np.testing.assert_allclose(out, x[:16] * x[16:32] + x[32:], rtol=1e-5, atol=1e-6)


def test_memory_that_is_asked_for_stays_as_it_is() -> None:
    @compiled
    def fetched(x: Any) -> None:  # noqa: ANN401 - compiled
        simd.prefetch(pointer(x, 0), 5)
        simd.prefetch_to_write(pointer(x, 3), 7)

    x = numbers(64)
    before = x.copy()
    fetched(x)
    np.testing.assert_array_equal(x, before)


@compiled
def exponentials(x: Any, out: Any) -> None:  # noqa: ANN401 - compiled
    for i in range(0, len(x), 16):
        store(pointer(out, 0), i, exp_row(load_16(pointer(x, 0), i)))


def test_exponentials_are_as_exact_as_float32_is() -> None:
    x = -np.linspace(0, 86, 16_000, dtype=np.float32)
    out = np.zeros_like(x)
    exponentials(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=1.5e-7, atol=0)
    assert out[0] == 1


def test_exponentials_of_what_is_far_below_are_nothing() -> None:
    x = np.array([-86.01, -87, -100, -1e9, -np.inf, np.nan, 0, -0.0] * 2, dtype=np.float32)
    out = np.ones_like(x)
    exponentials(x, out)
    np.testing.assert_array_equal(out, [0, 0, 0, 0, 0, np.nan, 1, 1] * 2)
