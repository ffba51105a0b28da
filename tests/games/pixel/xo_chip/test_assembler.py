"""Text to bytes and back: every opcode's encoding, names, data, and errors with locations."""

import pytest
from hypothesis import given, strategies as st

from entity_env.errors import UsageError
from tools.assemble import FORMS, assemble

OPCODES = {
    "scroll down 5": "00C5",
    "scroll up 15": "00DF",
    "clear": "00E0",
    "return": "00EE",
    "scroll right": "00FB",
    "scroll left": "00FC",
    "exit": "00FD",
    "low": "00FE",
    "high": "00FF",
    "jump 0x234": "1234",
    "call 0x234": "2234",
    "skip v1 == 0x23": "3123",
    "skip v1 != 0x23": "4123",
    "skip v1 == v2": "5120",
    "save v1 .. v2": "5122",
    "load v1 .. v2": "5123",
    "v1 = 0x23": "6123",
    "v1 += 0x23": "7123",
    "v1 = v2": "8120",
    "v1 |= v2": "8121",
    "v1 &= v2": "8122",
    "v1 ^= v2": "8123",
    "v1 += v2": "8124",
    "v1 -= v2": "8125",
    "v1 = v2 >> 1": "8126",
    "v1 = v2 - v1": "8127",
    "v1 = v2 << 1": "812E",
    "skip v1 != v2": "9120",
    "i = 0x234": "A234",
    "jump v0 + 0x234": "B234",
    "v1 = random 0x23": "C123",
    "draw v1, v2, 3": "D123",
    "skip key v1": "E19E",
    "skip nokey v1": "E1A1",
    "i = long 0x2345": "F0002345",
    "plane 2": "F201",
    "audio": "F002",
    "v1 = delay": "F107",
    "v1 = key": "F10A",
    "delay = v1": "F115",
    "sound = v1": "F118",
    "i += v1": "F11E",
    "i = digit v1": "F129",
    "i = bigdigit v1": "F130",
    "bcd v1": "F133",
    "pitch = v1": "F13A",
    "save v1": "F155",
    "load v1": "F165",
    "keep v1": "F175",
    "recall v1": "F185",
}


@pytest.mark.parametrize(("text", "code"), OPCODES.items())
def test_every_opcode(text: str, code: str) -> None:
    assert assemble(text).hex().upper() == code


def test_the_table_above_has_every_form() -> None:
    assert len(OPCODES) == len(FORMS)
    assert len({form.opcode for form in FORMS}) == len(FORMS)


# ---------------------------------------------------------------------------- names and numbers


def test_names_of_addresses_and_numbers() -> None:
    code = assemble(
        """
        ; a comment
        const HALF = 8          ; and another
        const SIZE = HALF + HALF - 1
        start:  v1 = SIZE
                jump end
        middle: i = long end + HALF
        end:
                jump start
                i = middle
                draw v0, v1, SIZE
        """
    )
    assert code.hex() == "610f1208f00002101200a204d01f"


def test_a_constant_may_be_used_above_and_use_addresses_below() -> None:
    code = assemble("v0 = SIZE\nconst SIZE = end - begin\nbegin:\nbytes 1, 2, 3\nend:")
    assert code == b"\x60\x03\1\2\3"


@pytest.mark.parametrize(
    ("number", "value"),
    [("10", 10), ("0x0A", 10), ("0XfF", 255), ("0b101", 5), ("007", 7), ("-1", 255), ("-128", 128),
     ("1 + 2 - 3 + 4", 4), ("300 - 45", 255), ("- 3 + 3", 0)],
)  # fmt: skip
def test_numbers(number: str, value: int) -> None:
    assert assemble(f"v0 = {number}") == bytes([0x60, value])
    assert assemble(f"bytes {number}, 7") == bytes([value, 7])


@pytest.mark.parametrize(
    ("row", "code"), [("#......#", "81"), ("........", "00"), ("########.#.#.#.#", "ff55")]
)
def test_rows_of_pixels(row: str, code: str) -> None:
    assert assemble(f"pixels {row}").hex() == code
    assert assemble(f"here: pixels {row} ; a row\njump here").hex() == code + "1200"


@pytest.mark.parametrize("text", ["", "\n\n", "; nothing\n   ; here", "only:\nconst NAMES = 3"])
def test_nothing_is_no_bytes(text: str) -> None:
    assert assemble(text) == b""


def test_blanks_decide_nothing() -> None:
    tight, wide = "x:v0=v1-v0\ndraw v0,v1,2", "  x :  v0  =  v1  -  v0 \n\n\tdraw v0 , v1 , 2  ;"
    assert assemble(tight) == assemble(wide)


# ---------------------------------------------------------------------------- errors

NEW_NAME = "a name that is neither defined above nor a word of the language"


@pytest.mark.parametrize(
    ("text", "line", "column", "expected", "got"),
    [
        ("dance", 1, 1, "an instruction, data or a label", "'dance'"),
        ("\n  v10 = 1", 2, 3, "an instruction, data or a label", "'v10'"),
        ("clear 3", 1, 7, "the end of the line", "'3'"),
        ("jump", 1, 5, "a number or 'v0'", "the end of the line"),
        ("jump v1 + 3", 1, 6, "a number or 'v0'", "'v1'"),
        ("draw v0 v1, 3", 1, 9, "','", "'v1'"),
        ("skip v0 3", 1, 9, "'==' or '!='", "'3'"),
        ("save 3", 1, 6, "a register v0 to vf", "'3'"),
        ("save v1 v2", 1, 9, "'..' or the end of the line", "'v2'"),
        ("v0 = v1 >> 2", 1, 12, "'1'", "'2'"),
        ("v0 = v1 - v2", 1, 11, "'v0' again", "'v2'"),
        ("v0 = 1 + ", 1, 10, "a number", "the end of the line"),
        ("v0 = 1 + v1", 1, 10, "a number", "'v1'"),
        ("v0 = --1", 1, 7, "a number", "'-'"),
        ("call draw", 1, 6, "a number", "'draw', a word of the language"),
        ("v0 = 256", 1, 6, "a number from -128 to 255", "256"),
        ("v0 = 3 - 132", 1, 6, "a number from -128 to 255", "-129"),
        ("plane 4", 1, 7, "a number from 0 to 3", "4"),
        ("scroll up 16", 1, 11, "a number from 0 to 15", "16"),
        ("draw v0, v0, -1", 1, 15, "a number from 0 to 15", "-1"),
        ("jump 4096", 1, 6, "a number from 0 to 4095", "4096"),
        ("i = long 65536", 1, 10, "a number from 0 to 65535", "65536"),
        ("const X = 65536", 1, 11, "a number from 0 to 65535", "65536"),
        ("bytes 1, 256", 1, 10, "a number from -128 to 255", "256"),
        ("bytes", 1, 6, "a number", "the end of the line"),
        ("bytes 1 2", 1, 9, "the end of the line", "'2'"),
        ("clear\njump nowhere", 2, 6, "a name that is defined", "'nowhere'"),
        ("const A = B\nconst B = 1", 1, 11, "a name that is defined", "'B'"),
        ("a:\na:", 2, 1, NEW_NAME, "'a'"),
        ("const a = 1\na:", 2, 1, NEW_NAME, "'a'"),
        ("const i = 1", 1, 7, NEW_NAME, "'i', a word of the language"),
        ("const 3 = 1", 1, 7, "a name", "'3'"),
        ("const X 1", 1, 9, "'='", "'1'"),
        ("const X = 1 2", 1, 13, "the end of the line", "'2'"),
        ("v0:", 1, 1, NEW_NAME, "'v0', a word of the language"),
        ("vf:", 1, 1, "a name", "'vf'"),
        ("pixels .#.", 1, 8, "a multiple of 8 pixels", "3"),
        ("pixels 3", 1, 8, "a row of . and #", "'3'"),
        ("v0 ?= 3", 1, 4, "a word, number or sign of the language", "'?'"),
        ("v0 = 0x", 1, 6, "a word, number or sign of the language", "'0'"),
    ],
)  # fmt: skip
def test_errors_say_where_and_what(
    text: str, line: int, column: int, expected: str, got: str
) -> None:
    with pytest.raises(UsageError) as caught:
        assemble(text)
    assert str(caught.value) == f"line {line}, column {column}: expected {expected}, got {got}"


@given(st.text("v01 =+-.,:;#ijump\n", max_size=30))
def test_any_text_assembles_or_says_where_not(text: str) -> None:
    message = "line 1 is fine"
    try:
        assemble(text)
    except UsageError as error:
        message = str(error)
    assert message.startswith("line ")
