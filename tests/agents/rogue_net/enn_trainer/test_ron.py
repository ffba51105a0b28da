"""RON is read as written by python-ron; other input is rejected with a message."""

from __future__ import annotations

import contextlib
import math
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.rogue_net.enn_trainer.ron import (
    MAX_DEPTH,
    MAX_TEXT,
    Ron,
    Struct,
    parse_ron,
    write_ron,
)
from entity_env.errors import CheckpointError
from tests.agents.rogue_net.fixtures import FIXTURES

# Output of python-ron 0.2.5 for one value of every kind.
WRITTEN = r"""TrainConfig(
    x: "q\"\\\n\t\u{7}é☃\u{200b}",
    f: [
        0.1,
        0.0000001,
        100000000000000000000.0,
        3.0,
        -2.5,
    ],
    i: [
        0,
        -5,
        1000000000000000000,
    ],
    e: [],
    m: {},
    n: None,
    t: (1, 2),
    b: true,
    p: P(
        a: 1,
        b: None,
    ),
    nest: {
        "z b": {
            1: 2,
        },
        "a": false,
    },
    empty: E(),
)"""


def test_what_python_ron_writes() -> None:
    value = parse_ron(WRITTEN.encode(), "x.ron")
    assert value == Struct(
        "TrainConfig",
        {
            "x": 'q"\\\n\t\x07é☃\u200b',
            "f": [0.1, 1e-7, 1e20, 3.0, -2.5],
            "i": [0, -5, 10**18],
            "e": [],
            "m": {},
            "n": None,
            "t": [1, 2],
            "b": True,
            "p": Struct("P", {"a": 1, "b": None}),
            "nest": {"z b": {1: 2}, "a": False},
            "empty": Struct("E"),
        },
    )
    assert isinstance(value, Struct)
    nest = value.fields["nest"]
    assert isinstance(nest, dict)
    assert list(nest) == ["z b", "a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(a:1)", Struct("", {"a": 1})),
        (" ( a : 1 , ) ", Struct("", {"a": 1})),
        ("()", []),
        ("Unit", Struct("Unit")),
        ("1.", 1.0),
        ("1e5", 1e5),
        ("-1.5E-3", -1.5e-3),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ('"a\nb"', "a\nb"),
        (r'"\0\r\'"', "\0\r'"),
        ("[[],[[]]]", [[], [[]]]),
    ],
)
def test_other_forms(text: str, expected: Ron) -> None:
    assert parse_ron(text.encode(), "x.ron") == expected


def test_not_a_number() -> None:
    value = parse_ron(b"NaN", "x.ron")
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected a value, got the end"),
        ("[1,\n  2", "line 2, column 4: expected ',', got the end"),
        ("[1 2]", "line 1, column 4: expected ',', got '2'"),
        ("1 2", "expected the end of the file, got '2'"),
        ("P(a:1,\n a:2)", "line 2, column 2: expected the name of a new field"),
        ('{"a":1,"a":2}', "column 8: expected a new key, a text or an integer"),
        ("{[]:1}", "column 2: expected a new key, a text or an integer, got '['"),
        ("P(1)", "the name of a new field"),
        ("P(a 1)", "expected ':'"),
        ("Some(3)", "the name of a new field"),
        ('"abc', "column 1: expected a value or a sign"),
        (r'"\q"', "an escape that RON knows"),
        (r'"\u{d800}"', "an escape that RON knows"),
        (r'"\u{110000}"', "an escape that RON knows"),
        ("#", "got '#'"),
        ("[,]", "expected a value, got ','"),
        ("1_000", "the end of the file"),
        ("9" * 5000, "a number of at most 400 digits"),
        ('"' + "a" * (MAX_TEXT + 1) + '"', f"at most {MAX_TEXT} characters"),
        ("[" * 50, f"at most {MAX_DEPTH} levels"),
        ("P(a:" * 50, f"at most {MAX_DEPTH} levels"),
    ],
)
def test_what_is_wrong_raises_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CheckpointError) as error:
        parse_ron(text.encode(), "some/x.ron")
    assert str(error.value).startswith("some/x.ron: line ")
    assert message in str(error.value)


def test_bytes_that_are_no_text_and_files_too_long() -> None:
    with pytest.raises(CheckpointError, match="is not UTF-8 text"):
        parse_ron(b"\xff", "x.ron")
    with pytest.raises(CheckpointError, match="at most 4194304 are read"):
        parse_ron(b" " * (5 << 20), "x.ron")


BOMBS = [
    b"[" * 300_000,
    b"[" + b"[]," * 100_000 + b"]",
    b"[" + b"1.," * 100_000 + b"]",
    b"{" + b",".join(b"%d:P()" % i for i in range(40_000)) + b"}",
    b'"' + b"\\n" * 150_000 + b'"',
    b'["' + "☃".encode() * 20_000 + b'"' + b" " * 300_000 + b"]",
    b"-" * 300_000,
    b"9" * 300_000,
    b"P(" * 150_000,
]


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_bombs_cost_little(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        parse_ron(bomb, "x.ron")
    except CheckpointError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 10 * len(bomb)


names = st.from_regex(r"[A-Z][a-z_0-9]{0,6}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.builds(Struct, names)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.integers(2, 9), inner, max_size=4)
        | st.builds(Struct, names, st.dictionaries(names, inner, min_size=1, max_size=4))
    ),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read(value: Ron) -> None:
    assert parse_ron(write_ron(value).encode(), "x.ron") == value


def test_numbers_that_python_ron_cannot_read_are_not_written() -> None:
    for number in (math.inf, math.nan):
        with pytest.raises(ValueError, match="cannot hold"):
            write_ron([number])


@given(st.data())
def test_anything_else_is_refused_by_an_error_of_ours(data: st.DataObject) -> None:
    source = (FIXTURES[0].path / "state.ron").read_bytes()
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(source))] * 2)))
    piece = data.draw(
        st.binary(max_size=8) | st.sampled_from([b"(", b"]", b'"', b"\\", b"{", b","])
    )
    with contextlib.suppress(CheckpointError):
        parse_ron(source[:start] + piece + source[stop:], "x.ron")
