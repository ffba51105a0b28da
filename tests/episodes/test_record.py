"""`Record`: values by name, and typed access to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import ArrayLike

from entity_env import Record, UsageError

NAMES = st.text(min_size=1).filter(lambda name: name != "step")
ARRAYS = npst.arrays(np.float64, npst.array_shapes(max_dims=3, min_side=1, max_side=3))
RECORDS = st.dictionaries(NAMES, st.floats() | ARRAYS | st.text()).map(Record)


def test_values_are_found_by_kind() -> None:
    record = Record({"loss": 0.5, "lengths": [1, 2], "board": np.eye(2), "map": "forest"})
    assert record.get_scalar("loss") == 0.5
    assert record.get_array("lengths", 1).tolist() == [1.0, 2.0]
    assert record.get_array("board").dtype == np.float64
    assert record.get_string("map") == "forest"
    assert record.keys() == list(record) == ["loss", "lengths", "board", "map"]
    assert [name for name, _ in record.items()] == record.keys()
    assert record.get("nothing") is None
    assert record.get("map") == "forest"
    assert "map" in record
    assert 3 not in record
    assert not record.is_empty()
    assert len(record) == 4


def test_an_empty_record_is_empty() -> None:
    assert Record().is_empty()
    assert len(Record()) == 0
    assert Record() == Record({})


@pytest.mark.parametrize(
    "value", [3, True, 3.0, np.float32(3), np.int64(3), np.array(3), np.bool_(True)]
)
def test_all_kinds_of_numbers_become_floats(value: ArrayLike) -> None:
    number = Record({"n": value}).get_scalar("n")
    assert type(number) is float
    assert number == value


def test_arrays_are_copied_and_cannot_be_written_to() -> None:
    array = np.zeros(3)
    record = Record({"a": array})
    array[0] = 1
    assert record.get_array("a").tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        record.get_array("a")[0] = 1
    assert array.flags.writeable


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", 1.0, "needs a name, a text: got ''"),
        (3, 1.0, "needs a name, a text: got 3"),
        ("a", None, "'a' of the record must be a number, an array of numbers or a text: got None"),
        ("a", {"b": 1}, "must be a number"),
        ("a", ["b"], "must be a number"),
        ("a", 1j, "must be a number"),
        ("a", [[1], [1, 2]], "'a' of the record: "),
        ("a", 10**400, "must be a number"),
        ("a", np.array(["x"]), r"got an array of shape \(1,\), <U1"),
    ],
)
def test_what_is_no_value_is_refused(name: str, value: ArrayLike, message: str) -> None:
    record = Record({"a": 1.0})
    with pytest.raises(UsageError, match=message):
        record.insert(name, value)
    assert record == Record({"a": 1.0})


def test_asking_for_another_kind_is_refused() -> None:
    record = Record({"n": 1.0, "a": np.zeros((2, 3)), "s": "x"})
    with pytest.raises(UsageError, match=r"has no 'm'; it has n, a, s"):
        record.get_scalar("m")
    with pytest.raises(UsageError, match="has no 'm'; it has nothing"):
        Record()["m"]
    with pytest.raises(UsageError, match=r"'a' .* a number, got an array of shape \(2, 3\)"):
        record.get_scalar("a")
    with pytest.raises(UsageError, match=r"'n' of the record must be a text, got 1\.0"):
        record.get_string("n")
    with pytest.raises(UsageError, match="'s' of the record must be an array, got 'x'"):
        record.get_array("s")
    with pytest.raises(UsageError, match="'a' of the record must be an array of 1 dimensions"):
        record.get_array("a", 1)


def test_records_merge_and_take_prefixes() -> None:
    first, second = Record({"a": 1, "b": 2}), Record({"b": 3, "c": "x"})
    merged = first.merge(second)
    assert merged == Record({"a": 1, "b": 3, "c": "x"})
    assert merged.keys() == ["a", "b", "c"]
    assert first == Record({"a": 1, "b": 2})
    assert second.prefixed("eval/") == Record({"eval/b": 3, "eval/c": "x"})
    assert second.keys() == ["b", "c"]


@given(RECORDS, RECORDS)
def test_merging_is_that_of_dicts(first: Record, second: Record) -> None:
    assert first.merge(second) == Record({**dict(first.items()), **dict(second.items())})
    assert first.merge(Record()) == Record().merge(first) == first


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"x": 1.0}, {"x": 2.0}),
        ({"x": 1.0}, {"y": 1.0}),
        ({"x": 1.0}, {"x": [1.0]}),
        ({"x": "1"}, {"x": 1.0}),
        ({"x": [1.0]}, {"x": [[1.0]]}),
        ({"x": [1.0, 2.0]}, {"x": [1.0]}),
        ({"x": 1.0}, {"x": 1.0, "y": 1.0}),
    ],
)
def test_other_records_are_not_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert Record(a) != Record(b)
    assert Record(a) == Record(a)
    assert Record(a) != a


def test_a_record_shows_what_it_holds_and_is_no_key() -> None:
    assert repr(Record({"a": 1, "b": "x"})) == "Record({'a': 1.0, 'b': 'x'})"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Record())
