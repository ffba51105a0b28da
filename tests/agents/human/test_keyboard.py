"""Keyboard: bytes from any source become keys and lines."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings, strategies as st

from entity_env.agents.human import keyboard as keyboard_module
from entity_env.agents.human.keyboard import Keyboard
from tests.helpers.terminals import Terminal

NAMED = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOD": "left",
    "\n": "enter",
    "\r": "enter",
}
PLAIN = st.characters(exclude_categories=["Cs", "Cc"])
KEYS = st.lists(PLAIN | st.sampled_from(sorted(NAMED)), max_size=12)


@contextmanager
def typed(data: bytes) -> Iterator[Keyboard]:
    """A keyboard with this input, followed by the end of input."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as source:
        yield Keyboard(source)


def keys_of(data: bytes) -> list[str]:
    """Every key until the input ends."""
    with typed(data) as keyboard:
        return list(iter(keyboard.key, ""))


@given(keys=KEYS)
@settings(max_examples=60)
def test_characters_of_any_width_and_named_keys_come_one_by_one(keys: list[str]) -> None:
    assert keys_of("".join(keys).encode()) == [NAMED.get(key, key) for key in keys]


@pytest.mark.parametrize(
    ("sequence", "key"),
    [
        ("\x1b[3~", "\x1b"),  # delete
        ("\x1b[15~", "\x1b"),  # F5
        ("\x1b[1;5A", "\x1b"),  # Ctrl-up is not a plain arrow
        ("\x1b[H", "\x1b"),  # home
        ("\x1bOP", "\x1b"),  # F1
        ("\x1bx", "x"),  # Alt-x
    ],
)
def test_other_sequences_are_one_key_and_leave_nothing_behind(sequence: str, key: str) -> None:
    assert keys_of(f"{sequence}w".encode()) == [key, "w"]


@pytest.mark.parametrize("end", ["\x04", "\x03", ""])
def test_control_keys_and_the_end_of_input_are_the_end(end: str) -> None:
    with typed(f"a{end}".encode()) as keyboard:
        assert [keyboard.key(), keyboard.key()] == ["a", ""]


def test_the_end_of_input_stays_the_end() -> None:
    with typed(b"") as keyboard:
        assert [keyboard.key() for _ in range(3)] == [""] * 3


@pytest.mark.parametrize("begun", [b"\x1b[", b"\x1b[1", b"\x1b[1;5", b"\x1bO"])
def test_the_end_of_input_within_a_sequence_is_the_end(begun: bytes) -> None:
    assert keys_of(b"a" + begun) == ["a"]


@pytest.mark.parametrize("data", [b"\xff\xfe\xfd\xfc", b"\xe2\x86"])
def test_bytes_that_are_no_text_are_a_key_all_the_same(data: bytes) -> None:
    (key,) = keys_of(data)
    assert set(key) == {"�"}


@pytest.mark.parametrize("part", ["", "é"])
def test_a_stream_of_lines_is_read_by_lines_without_outer_spaces(part: str) -> None:
    keyboard = Keyboard(io.StringIO(f"  up{part} 1 \n\n\t\nlast"))
    assert not keyboard.is_terminal
    assert [keyboard.line() for _ in range(5)] == [f"up{part} 1", "", "", "last", None]
    assert keyboard.line() is None


def test_a_terminal_is_read_by_lines_past_the_buffer_of_its_stream() -> None:
    with Terminal() as terminal:
        keyboard = Keyboard(terminal.source)
        assert keyboard.is_terminal
        terminal.type(" grün \nnext\n")
        assert [keyboard.line(), keyboard.line()] == ["grün", "next"]


def use_single_keys(terminal: Terminal, keyboard: Keyboard) -> None:
    with keyboard.single_keys():
        assert not terminal.is_restored
        terminal.type("x")
        assert keyboard.key() == "x"
        assert terminal.shown() == ""
        raise KeyError


def test_single_keys_are_not_shown_and_the_mode_comes_back_after_an_error() -> None:
    with Terminal() as terminal:
        with pytest.raises(KeyError):
            use_single_keys(terminal, Keyboard(terminal.source))
        assert terminal.is_restored


def test_a_terminal_without_termios_is_read_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyboard_module, "_HAS_TERMIOS", False)
    with Terminal() as terminal:
        keyboard = Keyboard(terminal.source)
        assert not keyboard.is_terminal
        with keyboard.whole_lines():
            terminal.type("w\n")
            keyboard.drop_typed()
            assert keyboard.line() == "w"


class Console(io.StringIO):
    """Standard input of Windows, and the module that reads its keys."""

    def __init__(self, keys: str, lines: str = "") -> None:
        super().__init__(lines)
        self.keys = list(keys)

    def isatty(self) -> bool:
        return True

    def getwch(self) -> str:
        return self.keys.pop(0)

    def kbhit(self) -> bool:
        return bool(self.keys)


def use_console(patch: pytest.MonkeyPatch, keys: str, lines: str = "") -> tuple[Keyboard, Console]:
    console = Console(keys, lines)
    patch.setattr(sys, "stdin", console)
    patch.setattr(keyboard_module, "_console", console)
    patch.setattr(keyboard_module, "_HAS_TERMIOS", False)
    keyboard = Keyboard(console)
    assert keyboard.is_terminal
    return keyboard, console


def test_keys_of_a_console(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = "w\xe0H\x00P\xe0K\xe0M\r\x00;\xe0Gq\x1a\x04\x03à"
    keyboard, console = use_console(monkeypatch, typed)
    expected = ["w", "up", "down", "left", "right", "enter", "\x1b", "\x1b", "q", "", ""]
    with keyboard.single_keys():
        assert [keyboard.key() for _ in expected] == expected
        with pytest.raises(KeyboardInterrupt):
            keyboard.key()
        assert keyboard.has_key(10.0)
        assert keyboard.key() == "à"  # also the first byte of an arrow's code
        assert not keyboard.has_key(0.02)
    console.keys += "abc"
    keyboard.drop_typed()
    assert not console.keys


def test_lines_of_a_console(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, _ = use_console(monkeypatch, "", " up 1 \n")
    with keyboard.whole_lines():
        assert [keyboard.line(), keyboard.line()] == ["up 1", None]
