"""Button sequences are parsed; typos are reported."""

import pytest
from hypothesis import given, strategies as st

from entity_env import UsageError
from entity_env.games.pixel import Button
from entity_env.games.pixel.worlds.world import MAX_KEYS, format_keys, parse_keys

A, B, START, UP, DOWN, LEFT, RIGHT = Button


@pytest.mark.parametrize(
    ("text", "buttons"),
    [
        ("", ()),
        ("  \n# nothing\n", ()),
        ("RIGHT*3 DOWN A*2", (RIGHT, RIGHT, RIGHT, DOWN, A, A)),
        ("right, start,up", (RIGHT, START, UP)),
        ("LEFT  # to the wall\nB*1\r\n\tA", (LEFT, B, A)),
        ("A*02", (A, A)),
    ],
)
def test_reads(text: str, buttons: tuple[Button, ...]) -> None:
    assert parse_keys(text) == buttons


@given(st.lists(st.sampled_from(Button), max_size=30))
def test_what_is_written_is_read_again(buttons: list[Button]) -> None:
    assert parse_keys(format_keys(buttons)) == tuple(buttons)


@given(st.lists(st.tuples(st.sampled_from(Button), st.integers(1, 9)), max_size=9), st.booleans())
def test_however_it_is_set_out(runs: list[tuple[Button, int]], by_line: bool) -> None:
    text = ("\n" if by_line else " , ").join(f"{b.name.title()}*{count}" for b, count in runs)
    assert parse_keys(text) == tuple(b for b, count in runs for _ in range(count))


def test_runs_are_written_once() -> None:
    assert format_keys(parse_keys("A A A B UP UP")) == "A*3 B UP*2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "A\nSELECT",
            r"^the start, line 2: 'SELECT' is not a button: write A, B, START, UP, .* RIGHT",
        ),
        ("A*", r"line 1: 'A\*' is not a button"),
        ("A**2", r"'A\*\*2' is not a button"),
        ("A*-1", r"'A\*-1' is not a button"),
        ("3*A", r"'3\*A' is not a button"),
        ("A*0", r"A\*0: expected at least one step"),
        ("A*1234567890", "is not a button"),
        (f"B A*{MAX_KEYS}", r"expected at most 1000000 steps, got more: A\*1000000"),
    ],
)
def test_refuses(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_keys(text, "the start")
