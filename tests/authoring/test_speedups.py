"""The loops in C and in Python: errors, and hostile objects."""

from __future__ import annotations

import gc
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, SchemaError
from entity_env.authoring import speedups
from entity_env.authoring.entity_type import entity_type
from entity_env.authoring.speedups import FINITE, NO_NUMBER, NOT_FINITE, pack_floats, pack_ints
from tests.helpers.strategies import untyped

compiled = pytest.mark.skipif(
    not speedups.IS_COMPILED, reason="needs the module in C, which was not built here"
)


class Raising:
    """A number whose conversions raise an error."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __float__(self) -> float:
        raise self.error

    def __index__(self) -> int:
        raise self.error


@dataclass(slots=True)
class Dot:
    x: float


@pytest.mark.usefixtures("loops")
class TestConversionsThatRaise:
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ZeroDivisionError()])
    def test_what_is_not_about_the_value_is_raised(self, error: BaseException) -> None:
        with pytest.raises(type(error)):
            pack_floats([1.0, Raising(error)], np.zeros(2, dtype=np.float32))
        with pytest.raises(type(error)):
            pack_ints(untyped([1, Raising(error)]), np.zeros(2, dtype=np.int64))
        is_mistake = isinstance(error, ZeroDivisionError)
        with pytest.raises(SchemaError if is_mistake else type(error)) as caught:
            entity_type(Dot).featurize([Dot(untyped(Raising(error)))])
        if is_mistake:
            assert caught.value.__cause__ is error
            assert "feature 'x' of row 0" in str(caught.value)

    @pytest.mark.parametrize("error", [TypeError(), ValueError(), OverflowError()])
    def test_a_value_that_is_not_a_number_is_named(self, error: Exception) -> None:
        assert pack_floats([Raising(error)], np.zeros(1, dtype=np.float32)) == NO_NUMBER
        with pytest.raises(SchemaError, match="feature 'x' of row 1 must be a number"):
            entity_type(Dot).featurize([Dot(1.0), Dot(untyped(Raising(error)))])
        with pytest.raises(type(error)):
            pack_ints(untyped([Raising(error)]), np.zeros(1, dtype=np.int64))

    @given(
        st.lists(
            st.floats()
            | st.integers()
            | st.booleans()
            | st.sampled_from([10**400, None, "1", b"1", 1j, [], np.float32(2), np.int64(3)]),
            max_size=5,
        )
    )
    def test_numbers_are_packed_as_struct_does(self, numbers: list[Any]) -> None:
        out = np.zeros(len(numbers) + 1, dtype=np.float32)
        found = pack_floats(numbers, out, 1)
        try:
            expected = struct.pack(f"{len(numbers)}f", *numbers)
        except struct.error:
            assert found == NO_NUMBER
            return
        assert out[0] == 0
        assert np.array_equal(out[1:], np.frombuffer(expected, np.float32), equal_nan=True)
        assert found == (FINITE if np.isfinite(out).all() else NOT_FINITE)

    @pytest.mark.parametrize("start", [1, 2, 3])
    def test_an_array_that_is_too_small_is_refused(self, start: int) -> None:
        with pytest.raises(ValueError, match=r"too small|broadcast"):
            pack_floats([1.0, 2.0], np.zeros(2, dtype=np.float32), start)


@compiled
@pytest.mark.parametrize("start", [2**61, 2**62, 2**63 - 1, -1])
def test_a_start_that_overflows_is_refused(start: int) -> None:
    from entity_env.authoring import _speedups

    for pack, dtype in ((_speedups.pack_floats, np.float32), (_speedups.pack_ints, np.int64)):
        with pytest.raises(ValueError, match="too small"):
            untyped(pack)([1], np.zeros(2, dtype=dtype), start)


@dataclass(slots=True)
class Stone:
    """Never read by the Python loops: an `EntityType` caches its reader, or that it has none."""

    x: float


@dataclass(slots=True)
class Wide:
    a: float
    b: float
    c: float


def test_a_slot_of_another_class_is_not_read() -> None:
    @dataclass(slots=True)
    class Narrow:
        x: float

    narrow = Narrow(1.0)
    untyped(Narrow).x = untyped(Wide).c  # its instances have no value at the offset of c
    with pytest.raises(TypeError, match="doesn't apply"):
        _ = narrow.x
    assert entity_type(Narrow).reader is None
    with pytest.raises(SchemaError, match="doesn't apply to a 'Narrow' object"):
        entity_type(Narrow).featurize([narrow])


def test_a_slot_of_a_base_class_is_read() -> None:
    @dataclass(slots=True)
    class Wider(Wide):
        d: float

    assert (entity_type(Wider).reader is not None) == speedups.IS_COMPILED
    assert entity_type(Wider).featurize([Wider(1, 2, 3, 4)]).tolist() == [[1, 2, 3, 4]]


def test_a_slot_that_a_metaclass_exchanges_is_not_read() -> None:
    class Exchange(type):
        def __getattribute__(cls, name: str) -> Any:  # noqa: ANN401 - as in `type`
            return super().__getattribute__("b" if name == "a" else name)

    @dataclass
    class Pair(metaclass=Exchange):
        __slots__ = ("a", "b")
        a: float
        b: float

    assert entity_type(Pair).reader is None
    assert entity_type(Pair).featurize([Pair(1, 2)]).tolist() == [[1, 2]]


@compiled
def test_a_list_is_not_read_into_itself() -> None:
    reader = entity_type(Stone).reader
    assert reader is not None
    stones: list[Any] = [Stone(1.0)]
    with pytest.raises(ValueError, match="two lists"):
        reader.read(stones, stones)
    assert len(stones) == 1


@compiled
def test_a_class_without_the_slots_leaves_that_of_observations() -> None:
    speedups.set_obs_class(Obs)

    class Half:
        __slots__ = ("groups",)

    with pytest.raises(TypeError, match="actor_groups is no slot"):
        speedups.set_obs_class(Half)
    assert gathered([Obs().entities([Stone(2.0)])]) == ([2.0], [])


@compiled
def test_metrics_that_the_garbage_collector_replaces_are_kept_until_they_are_added() -> None:
    """Python 3.11 may collect garbage, and run any `__del__`, whenever it creates a tuple."""
    speedups.set_obs_class(Obs)
    shown: list[Obs] = []

    class Trap:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            for obs in shown:
                obs.metrics = None
            freed.append([{"freed": 2.0} for _ in range(50)])

    freed: list[object] = []
    threshold = gc.get_threshold()
    gc.disable()
    try:
        for round_ in range(60):
            shown[:] = [Obs().entities([Stone(1.0)]).metric(f"m{i}", i) for i in range(50)]
            pairs = [tuple([i]) * 2 for i in range(5000)]  # empties the free list of pairs
            gc.collect()
            Trap()
            gc.set_threshold(2 + round_)
            gc.enable()
            _, named = gathered(shown)
            gc.disable()
            for row, metrics in named:
                assert metrics == {f"m{row}": row}
            del pairs
    finally:
        gc.set_threshold(*threshold)
        gc.enable()


def gathered(shown: list[Obs]) -> tuple[list[float], list[tuple[int, dict[str, float]]]]:
    """Result of `gather` for observations of stones: numbers, and each row and its metrics."""
    assert speedups.gather is not None
    numbers: list[Any] = []
    named: list[Any] = []
    column: Any = Stone, entity_type(Stone).reader, numbers, [], 0, 1
    count = speedups.gather(
        shown, [()] * len(shown), 0, 0, (), False, (column,), type(None), False, [], [], named
    )
    assert count == len(shown)
    return numbers, named
