"""Prompt: every choice has a key, whatever the labels, and only legal answers are returned."""

from __future__ import annotations

import io
import string

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.human.prompt import (
    Choice,
    Prompt,
    UserQuit,
    keyed_choices,
    numbered_choices,
)

DIRECTIONS = {
    "up": ("up", "w"),
    "down": ("down", "s"),
    "left": ("left", "a"),
    "right": ("right", "d"),
    "north": ("up", "w"),
    "south": ("down", "s"),
    "west": ("left", "a"),
    "east": ("right", "d"),
}
WORDS = st.text(string.ascii_letters, min_size=1, max_size=6)
LABELS = st.lists(
    WORDS | st.sampled_from(sorted(DIRECTIONS)), unique_by=str.lower, min_size=1, max_size=8
)
BOUNDS = st.tuples(st.integers(-100, 99), st.integers(1, 50)).map(lambda x: (x[0], x[0] + x[1]))
CHOICES = [Choice(4, "stay", ("s",)), Choice(7, "Go On", ("up", "g"))]


def asked(typed: str) -> tuple[Prompt, io.StringIO]:
    out = io.StringIO()
    return Prompt(io.StringIO(typed), out), out


# ---------------------------------------------------------------------------- keys


@given(labels=LABELS)
def test_every_label_has_keys_that_no_other_has_and_none_quits(labels: list[str]) -> None:
    choices = keyed_choices(labels, range(len(labels)))
    keys = [key for choice in choices for key in choice.keys]
    assert [(choice.index, choice.text) for choice in choices] == list(enumerate(labels))
    assert all(choice.keys for choice in choices)
    assert len(set(keys)) == len(keys)
    assert "q" not in keys


@given(labels=LABELS, data=st.data())
def test_what_is_forbidden_changes_no_key_of_the_others(
    labels: list[str], data: st.DataObject
) -> None:
    everything = keyed_choices(labels, range(len(labels)))
    allowed = data.draw(st.lists(st.sampled_from(range(len(labels))), unique=True))
    assert keyed_choices(labels, allowed) == [everything[index] for index in allowed]


@given(
    prefix=st.sampled_from(["", "move ", "go_", "Turn-", "step."]),
    name=st.sampled_from([*DIRECTIONS]),
)
def test_the_last_word_of_a_label_names_its_direction(prefix: str, name: str) -> None:
    (choice,) = keyed_choices([f"{prefix}{name.upper()}"], [0])
    assert choice.keys == DIRECTIONS[name]


def test_two_labels_of_one_direction_are_no_directions() -> None:
    labels = ["walk up", "jump up", "left"]
    assert [choice.keys for choice in keyed_choices(labels, range(3))] == [("w",), ("j",), ("l",)]


@pytest.mark.parametrize(
    "labels",
    [
        ["fold", "flip"],  # the same initial twice
        ["quit now", "stay"],  # q quits
        ["up", "wait"],  # w means up
    ],
)
def test_initials_that_are_taken_become_numbers(labels: list[str]) -> None:
    last = keyed_choices(labels, range(len(labels)))[-1]
    assert last.keys == (str(len(labels)),)


def test_an_empty_label_has_a_number() -> None:
    assert [choice.keys for choice in keyed_choices(["", "a"], [0, 1])] == [("1",), ("2",)]


def test_a_key_that_is_shown_means_what_it_is_shown_with() -> None:
    prompt, _ = asked("2\n")
    assert prompt.choose("how many?", keyed_choices(["2", "20", "1"], [0, 1, 2])) == 1


def test_numbers_count_what_is_forbidden_too() -> None:
    assert numbered_choices(["a", "b", "c"], [2, 0]) == [
        Choice(2, "c", ("3",)),
        Choice(0, "a", ("1",)),
    ]


# ---------------------------------------------------------------------------- choosing by lines


@given(labels=LABELS, data=st.data())
def test_keys_and_labels_in_any_case_choose(labels: list[str], data: st.DataObject) -> None:
    choices = keyed_choices(labels, range(len(labels)))
    choice = data.draw(st.sampled_from(choices))
    taken = {key for other in choices if other is not choice for key in other.keys} | {"q"}
    words = [word for word in (*choice.keys, choice.text) if word.lower() not in taken]
    word = data.draw(
        st.sampled_from([*words, *map(str.upper, words), *map(str.lower, words)] or [""])
    )
    if word:
        prompt, _ = asked(f"  {word} \n")
        assert prompt.choose("Move", choices) == choice.index


def test_asks_until_the_answer_is_a_choice_and_says_what_was_wrong() -> None:
    prompt, out = asked("xyz\n\nGO on\n")
    assert prompt.choose("Move", CHOICES) == 7
    shown = out.getvalue()
    assert shown.count("Move:") == 3
    assert shown.count("'xyz' is not among the choices") == 1
    assert shown.count("'' is not among the choices") == 1
    assert "\x1b" not in shown


@pytest.mark.parametrize("typed", ["", "q\n", " Q \n", "nothing\n", "nothing\nq\n"])
def test_q_and_the_end_of_input_quit(typed: str) -> None:
    with pytest.raises(UserQuit):
        asked(typed)[0].choose("Move", CHOICES)
    with pytest.raises(UserQuit):
        asked(typed)[0].number("Force", 0, 1)


def test_what_can_be_typed_is_shown_and_not_the_name_of_an_arrow_key() -> None:
    prompt, out = asked("g\n")
    prompt.choose("Move", CHOICES)
    assert "s stay" in out.getvalue()
    assert "g Go On" in out.getvalue()


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_many_entries_fit_the_terminal_in_columns(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    prompt, out = asked("17\n")
    texts = [f"thing {i}" for i in range(20)]
    assert prompt.choose("Pick", numbered_choices(texts, range(20))) == 16
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) < columns
    for number, text in enumerate(texts, start=1):
        assert sum(f"{number} {text} " in f" {line} " for line in lines) == 1
    assert sum("q quit" in line for line in lines) == 1


# ---------------------------------------------------------------------------- numbers


@given(bounds=BOUNDS, numbers=st.lists(st.floats(-200, 200), max_size=5))
def test_the_first_number_within_bounds_comes_back(
    bounds: tuple[int, int], numbers: list[float]
) -> None:
    low, high = bounds
    prompt, out = asked("".join(f"{number!r}\n" for number in [*numbers, float(high)]))
    legal = [number for number in [*numbers, float(high)] if low <= number <= high]
    assert prompt.number("Force", low, high) == legal[0]
    assert f"{low} to {high}" in out.getvalue()


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("nan", "nan is not in 0 to 1"),
        ("inf", "inf is not in 0 to 1"),
        ("1.5", "1.5 is not in 0 to 1"),
        ("0,5", "'0,5' is not a number"),
        ("", "'' is not a number"),
        ("half", "'half' is not a number"),
    ],
)
def test_what_is_no_number_within_bounds_is_asked_again(typed: str, problem: str) -> None:
    prompt, out = asked(f"{typed}\n0.5\n")
    assert prompt.number("Force", 0, 1) == 0.5
    assert problem in out.getvalue()


def test_buttons_have_their_initials_or_the_keys_of_emulators() -> None:
    free = keyed_choices(["A", "B", "START"], range(3))
    assert [choice.keys for choice in free] == [("a",), ("b",), ("s",)]
    with_arrows = keyed_choices(["UP", "DOWN", "LEFT", "RIGHT", "A", "B", "START"], range(4, 7))
    assert [choice.keys for choice in with_arrows] == [("z",), ("x",), ("enter", "c")]
