"""Prompt: asks a person for a choice or a number until the answer is legal."""

from __future__ import annotations

import copy
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.move_clock import MoveClock
from entity_env.errors import UsageError
from entity_env.views.describe import describe_number
from entity_env.views.scene import one_line

_DIRECTIONS: Final = {"up": "w", "down": "s", "left": "a", "right": "d"}
_COMPASS: Final = {"north": "up", "south": "down", "west": "left", "east": "right"}
_ARROWS: Final = {"up": "↑", "down": "↓", "left": "←", "right": "→"}
_NAMED: Final = {**_ARROWS, "enter": "⏎"}
"""Keys that are no characters, and their symbols."""
_GAMEPAD: Final = {"a": ("z",), "b": ("x",), "start": ("enter", "c")}
"""Keys of a gamepad's buttons in emulators; `c` where lines are typed."""
_QUIT: Final = "q"


class UserQuit(Exception):
    """The person quits, or the input has ended."""


class TimeIsUp(Exception):
    """The time of a question is over."""


@dataclass(frozen=True)
class Choice:
    """A legal choice.

    Args:
        index: result of `Prompt.choose`.
        text: label.
        keys: single characters, names of arrow keys, `enter`, or numbers to be typed.
    """

    index: int
    text: str
    keys: tuple[str, ...]


class Prompt:
    """Asks questions on a terminal with single keys, or on any stream with lines.

    On a terminal it erases what it wrote, so that a drawing above it stays. With a clock a question
    raises `TimeIsUp`, and the last one of a decision returns when the decision takes effect; two
    keys that are pressed meanwhile are kept for the next questions.
    """

    def __init__(self, source: TextIO, out: TextIO, clock: MoveClock | None = None) -> None:
        self._keyboard = Keyboard(source)
        self._out = out
        self._is_terminal = self._keyboard.is_terminal and out.isatty()
        self._clock = clock
        self._ahead: list[str] = []
        """Keys that were pressed before their question."""
        if clock is not None and not self._is_terminal:
            raise UsageError(
                "a clock needs a terminal, where keys are read at once: this input is none"
            )

    def with_clock(self, clock: MoveClock) -> Prompt:
        """A prompt with another clock at the same terminal."""
        copied = copy.copy(self)
        copied._clock = clock
        return copied

    def forget_keys(self) -> None:
        """Drops keys that were pressed and not read."""
        self._ahead.clear()
        self._keyboard.drop_typed()

    def choose(self, title: str, choices: Sequence[Choice], *, is_last: bool = True) -> int:
        """Waits until one of `choices` is chosen, and returns its index.

        `is_last`: no other question of this decision follows.
        """
        has_keys = all(len(key) == 1 or key in _NAMED for c in choices for key in c.keys)
        if self._is_terminal and has_keys:
            return self._choose_by_key(title, choices, is_last)
        of_answer = {choice.text.lower(): choice.index for choice in choices}
        # A text that is the key of another choice means that choice.
        of_answer |= {key: choice.index for choice in choices for key in choice.keys}
        entries = [f"{_typed_key(choice)} {choice.text}" for choice in choices]
        problem = ""
        while True:
            answer = self._line(title, entries, problem)
            if answer.lower() in of_answer:
                self._sleep(is_last)
                return of_answer[answer.lower()]
            problem = f"{answer!r} is not among the choices"

    def number(self, title: str, low: float, high: float, *, is_last: bool = True) -> float:
        """Waits for a number from `low` to `high`."""
        bounds = f"{describe_number(low)} to {describe_number(high)}"
        problem = ""
        while True:
            answer = self._line(title, [bounds], problem)
            try:
                value = float(answer)
            except ValueError:
                problem = f"{answer!r} is not a number"
                continue
            if low <= value <= high:
                self._sleep(is_last)
                return value
            problem = f"{answer} is not in {bounds}"

    def _choose_by_key(self, title: str, choices: Sequence[Choice], is_last: bool) -> int:
        of_key = {key: choice.index for choice in choices for key in choice.keys}
        entries = [f"{self._shown_key(choice)} {choice.text}" for choice in choices]
        lines = self._block(title, entries, "")
        self._write("\n".join([*lines, ""]))
        try:
            with self._keyboard.single_keys():
                while True:
                    key = self._next_key()
                    index = of_key.get(key if key in of_key else key.lower())
                    if index is not None:
                        self._read_ahead(key, is_last)
                        return index
                    if key.lower() in ("", _QUIT):
                        raise UserQuit
        finally:
            self._erase(len(lines))

    def _next_key(self) -> str:
        if self._ahead:
            return self._ahead.pop(0)
        self._require_time()
        return self._keyboard.key()

    def _require_time(self) -> None:
        """Waits until something was typed; TimeIsUp if the time is over before."""
        left_s = None if self._clock is None else self._clock.left_s
        if left_s is not None and not self._keyboard.has_key(left_s):
            raise TimeIsUp

    def _read_ahead(self, key: str, is_last: bool) -> None:
        """Reads keys until the decision takes effect; a key that is held counts once."""
        clock = self._clock if is_last else None
        while clock is not None and clock.is_real_time and self._keyboard.has_key(clock.rest_s):
            pressed = self._keyboard.key()
            if pressed != (self._ahead or [key])[-1]:
                self._ahead = [*self._ahead[:1], pressed]

    def _sleep(self, is_last: bool) -> None:
        if is_last and self._clock is not None:
            time.sleep(self._clock.rest_s)

    def _line(self, title: str, entries: Sequence[str], problem: str) -> str:
        lines = self._block(title, entries, problem)
        self._write("\n".join([*lines, "> "]))
        answer = None
        try:
            with self._keyboard.whole_lines():
                self._require_time()
                answer = self._keyboard.line()
        except TimeIsUp:
            self._keyboard.drop_typed()
            raise
        finally:
            if answer is None or not self._keyboard.is_terminal:
                self._write("\n")  # no Enter was pressed here
            if self._is_terminal:
                self._erase(len(lines) + 1)
        if answer is None or answer.lower() == _QUIT:
            raise UserQuit
        return answer

    def _shown_key(self, choice: Choice) -> str:
        has_arrows = (self._out.encoding or "").lower().startswith("utf")
        key = choice.keys[0]
        return _NAMED.get(key, key) if has_arrows else _typed_key(choice)

    def _block(self, title: str, entries: Sequence[str], problem: str) -> list[str]:
        """A question as lines that fit the terminal: the problem, the title, entries in columns."""
        width = shutil.get_terminal_size().columns - 1
        title, problem = one_line(title), one_line(problem)
        entries = [*map(one_line, entries), f"{_QUIT} quit"]
        column = max(map(len, entries)) + 3
        per_line = max(1, (width - 2) // column)
        padded = [entry.ljust(column) for entry in entries]
        rows = ["".join(padded[i : i + per_line]) for i in range(0, len(padded), per_line)]
        whole = f"{title}:  {rows[0]}".rstrip()
        if len(rows) == 1 and len(whole) <= width:
            lines = [problem, whole]
        else:
            lines = [problem, f"{title}:", *(f"  {row}".rstrip() for row in rows)]
        return [line[:width] if self._is_terminal else line for line in lines if line]

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _erase(self, num_lines: int) -> None:
        """Removes the last lines; leaves the cursor at the start of the first of them."""
        self._write(f"\r\x1b[{num_lines}A\x1b[J")


def keyed_choices(labels: Sequence[str], allowed: Sequence[int]) -> list[Choice]:
    """Choices for the allowed labels, with keys that do not depend on the mask.

    Labels that name directions get the arrow keys and w, a, s, d. The others get their initials if
    those are distinct, else numbers; buttons of a gamepad get the keys of emulators.
    """
    directions = _directions(labels)
    others = [label for i, label in enumerate(labels) if i not in directions]
    taken = {_QUIT, *(_DIRECTIONS[name] for name in directions.values())}
    initials = {label[:1].lower() for label in others}
    has_initials = len(initials) == len(others) and not initials & {"", *taken}
    is_gamepad = not has_initials and {label.lower() for label in others} <= set(_GAMEPAD)
    choices = []
    for index in allowed:
        if index in directions:
            keys: tuple[str, ...] = (directions[index], _DIRECTIONS[directions[index]])
        elif is_gamepad:
            keys = _GAMEPAD[labels[index].lower()]
        else:
            keys = (labels[index][0].lower() if has_initials else str(index + 1),)
        choices.append(Choice(index, labels[index], keys))
    return choices


def numbered_choices(texts: Sequence[str], allowed: Sequence[int]) -> list[Choice]:
    """Choices for the allowed texts, numbered from 1 by their index among all texts."""
    return [Choice(index, texts[index], (str(index + 1),)) for index in allowed]


def _directions(labels: Sequence[str]) -> dict[int, str]:
    """Direction in the last word of each label; empty if two labels name the same one."""
    found: dict[int, str] = {}
    for index, label in enumerate(labels):
        word = re.split(r"[^a-z]+", label.lower())[-1]
        word = _COMPASS.get(word, word)
        if word in _DIRECTIONS:
            if word in found.values():
                return {}
            found[index] = word
    return found


def _typed_key(choice: Choice) -> str:
    """A key of a choice that can be typed into a line."""
    return next((key for key in choice.keys if key not in _NAMED), choice.keys[0])
