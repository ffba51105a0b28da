"""Records, and the files that they are written to."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import ArrayLike

from entity_env import ClosedError, MissingExtraError, Record, UsageError
from entity_env.episodes.record import Recorder
from entity_env.episodes.record_json_lines import JsonLinesRecorder, read_json_lines
from entity_env.episodes.record_tensorboard import TensorBoardRecorder
from tests.helpers.strategies import untyped

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
        ("a", 10**400, "too large for a float"),
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
    with pytest.raises(UsageError, match=r"'a' .* a number, it is an array of shape \(2, 3\)"):
        record.get_scalar("a")
    with pytest.raises(UsageError, match=r"'n' of the record must be a text, it is 1\.0"):
        record.get_string("n")
    with pytest.raises(UsageError, match="'s' of the record must be an array, it is 'x'"):
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


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every line, read by a parser that takes nothing but the standard's JSON."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    text = path.read_text(encoding="ascii")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def test_json_lines_are_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "run" / "log.jsonl"
    with JsonLinesRecorder(path) as recorder:
        recorder.write(
            Record({"a": math.nan, "b": [math.inf, -math.inf, 0.1], "c": 'x"\n\u2028', "d": -0.0}),
            7,
        )
    assert path.read_text() == (
        '{"step": 7, "a": null, "b": [1e999, -1e999, 0.1], "c": "x\\"\\n\\u2028", "d": -0.0}\n'
    )
    assert lines_of(path)[0]["b"] == [math.inf, -math.inf, 0.1]


@given(st.lists(st.tuples(st.integers(-(2**70), 2**70), RECORDS), max_size=4))
def test_json_lines_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, Record]]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log.jsonl"
    with JsonLinesRecorder(path) as recorder:
        for step, record in told:
            recorder.write(record, step)
    assert len(lines_of(path)) == len(told)
    read = read_json_lines(path)
    assert read == told
    assert [record.keys() for _, record in read] == [record.keys() for _, record in told]


def test_lines_are_there_at_once_and_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesRecorder(path) as first:
        first.write(Record({"a": 1}), 1)
        assert read_json_lines(path) == [(1, Record({"a": 1}))]
        with JsonLinesRecorder(str(path)) as second:
            second.write(Record(), 2)
            first.write(Record({"a": 3}), untyped(np.int64(3)))
    assert [step for step, _ in read_json_lines(path)] == [1, 2, 3]


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesRecorder(path) as recorder:
        recorder.write(Record({"a": 1}), 1)
        recorder.write(Record({"a": [0.5]}), 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    kept = [(1, Record({"a": 1}))]
    if cut == 1:  # nothing but the end of the line is missing
        kept.append((2, Record({"a": [0.5]})))
    assert read_json_lines(path) == kept
    with JsonLinesRecorder(path) as recorder:
        recorder.write(Record({"a": 3}), 3)
    assert read_json_lines(path) == [*kept, (3, Record({"a": 3}))]


LOOK_LIKE_AN_END = st.text(st.sampled_from('}"\\{]é\n a'), max_size=5)
TEXT_RECORDS = st.dictionaries(
    LOOK_LIKE_AN_END.filter(bool), LOOK_LIKE_AN_END | st.just([0.5]), max_size=2
).map(Record)


@given(st.lists(TEXT_RECORDS, min_size=1, max_size=3), st.data())
def test_a_crash_at_any_byte_costs_the_last_line_at_most(
    tmp_path_factory: pytest.TempPathFactory, told: list[Record], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log.jsonl"
    with JsonLinesRecorder(path) as recorder:
        for record in told:
            recorder.write(record, 1)
    whole = path.read_bytes()
    kept = whole[: data.draw(st.integers(0, len(whole)))]
    path.write_bytes(kept)
    with JsonLinesRecorder(path) as recorder:
        recorder.write(Record({"after": "}"}), 2)
    read = read_json_lines(path)
    num_whole = sum(end <= len(kept) for end in _ends_of_lines(whole))
    assert read == [*((1, record) for record in told[:num_whole]), (2, Record({"after": "}"}))]


def _ends_of_lines(content: bytes) -> list[int]:
    return [at for at, byte in enumerate(content) if byte == ord("\n")]


@pytest.mark.parametrize(
    "line", ["", "3", "[]", "{}", '{"step": "x"}', '{"step": 1, "a": {}}', "nonsense", "{a}"]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(UsageError, match=r"log.jsonl, line 2, is no record"):
        read_json_lines(path)


def test_a_bad_step_or_name_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesRecorder(path) as recorder:
        for step in (1.0, True, None, "1"):
            with pytest.raises(UsageError, match="at a step, an integer"):
                recorder.write(Record({"a": 1}), untyped(step))
        with pytest.raises(UsageError, match="a value called 'step'"):
            recorder.write(Record({"step": 1}), 1)
    assert path.read_bytes() == b""


def test_after_close_nothing_is_written(tmp_path: Path) -> None:
    recorders: list[Recorder] = [
        JsonLinesRecorder(tmp_path / "log.jsonl"),
        TensorBoardRecorder(tmp_path / "board"),
    ]
    for recorder in recorders:
        recorder.close()
        recorder.close()
        with pytest.raises(ClosedError, match="is closed: make a new"):
            recorder.write(Record(), 0)


def test_tensorboard_shows_numbers_arrays_and_texts(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    with TensorBoardRecorder(tmp_path) as recorder:
        recorder.write(Record({"loss": 0.5, "lengths": [1, 2, math.nan], "map": "forest"}), 3)
        recorder.write(Record({"loss": math.nan, "lengths": [math.inf], "none": []}), 4)
        recorder.flush()
        events = EventAccumulator(str(tmp_path)).Reload()
        told = {
            tag: [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
            for tag in events.Tags()["tensors"]
        }
        with pytest.raises(UsageError, match="at a step"):
            recorder.write(Record(), untyped(0.5))
    assert set(told) == {"loss", "lengths", "map"}
    assert [(step, float(value)) for step, value in told["loss"]] == [(3, 0.5)]
    assert [step for step, _ in told["lengths"]] == [3]
    assert told["lengths"][0][1][:, 2].sum() == 2  # counts of the finite ones
    assert [(step, value.item()) for step, value in told["map"]] == [(3, b"forest")]


def test_without_tensorboard_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[train\]'"):
        TensorBoardRecorder(tmp_path)
