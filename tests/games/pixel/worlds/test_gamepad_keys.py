"""Gamepad buttons have the usual keys of emulators; other labels keep theirs."""

from collections.abc import Sequence

import pytest

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import Prompt, keyed_choices
from tests.helpers.terminals import Terminal

PAD = ("A", "B", "START", "UP", "DOWN", "LEFT", "RIGHT")


def keys_of(labels: Sequence[str]) -> list[tuple[str, ...]]:
    return [choice.keys for choice in keyed_choices(labels, range(len(labels)))]


def test_a_gamepad() -> None:
    assert keys_of(PAD) == [
        ("z",),
        ("x",),
        ("enter", "c"),
        ("up", "w"),
        ("down", "s"),
        ("left", "a"),
        ("right", "d"),
    ]
    keys = [key for keys in keys_of(PAD) for key in keys]
    assert len(set(keys)) == len(keys)
    assert "q" not in keys


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (("A", "B"), [("a",), ("b",)]),
        (("UP", "DOWN", "B"), [("up", "w"), ("down", "s"), ("b",)]),
        (("LEFT", "A", "WAIT"), [("left", "a"), ("2",), ("3",)]),
    ],
)
def test_other_labels_have_initials_or_numbers(
    labels: Sequence[str], keys: list[tuple[str, ...]]
) -> None:
    assert keys_of(labels) == keys


@pytest.mark.parametrize(
    ("typed", "label"),
    [("\r", "START"), ("z", "A"), ("X", "B"), ("c", "START"), ("\x1b[D", "LEFT"), ("w", "UP")],
)
def test_on_a_terminal(typed: str, label: str) -> None:
    with Terminal() as terminal:
        terminal.type(typed)
        chosen = Prompt(terminal.source, terminal.out).choose(
            "Press", keyed_choices(PAD, range(len(PAD)))
        )
        shown = terminal.shown()
        assert PAD[chosen] == label
        assert "⏎ START" in shown
        assert terminal.is_restored


def test_enter_is_a_key() -> None:
    with Terminal() as terminal:
        keyboard = Keyboard(terminal.source)
        terminal.type("\ra\n")
        with keyboard.single_keys():
            assert [keyboard.key() for _ in range(3)] == ["enter", "a", "enter"]
