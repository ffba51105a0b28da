"""Prompt: asks a person for a choice or a number until the answer is legal."""

from __future__ import annotations

import copy
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import wrap
from typing import Final, TextIO, TypeAlias

from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.move_clock import MoveClock
from entity_env.core.observation import EntityID
from entity_env.errors import UsageError
from entity_env.views.describe import describe_number
from entity_env.views.scene import one_line

HUMAN: Final = "human"
"""Name of a person among the agents of a game."""
_DIRECTIONS: Final = {"up": "w", "down": "s", "left": "a", "right": "d"}
_COMPASS: Final = {"north": "up", "south": "down", "west": "left", "east": "right"}
_ARROWS: Final = {"up": "↑", "down": "↓", "left": "←", "right": "→"}
_NAMED: Final = {**_ARROWS, "enter": "⏎"}
"""Keys that are not characters, and their symbols."""
_GAMEPAD: Final = {"a": ("z",), "b": ("x",), "start": ("enter", "c")}
"""Emulator keys for gamepad buttons; `c` where lines are typed."""
_QUIT: Final = "q"
_GAP: Final = "   "
_REST: Final = "."
"""Key for the defaults of all remaining questions."""
_UNDO: Final = "undo"
_BACKSPACE: Final = ("\x7f", "\b")
_NEXT: Final = "\t"
_TOWARDS: Final = {"up": (0, 1), "down": (0, -1), "left": (-1, 0), "right": (1, 0)}
_BOARD_KEYS: Final = "123456789abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPRSTUVWXYZ"


class UserQuit(Exception):
    """The person quits, or the input has ended."""


class RestAsBefore(Exception):
    """The person chooses the defaults of all remaining questions."""


class Undo(Exception):
    """The person goes back to the previous question."""


class TimeIsUp(Exception):
    """The time for a question has expired."""


@dataclass(frozen=True)
class Choice:
    """A legal choice.

    Args:
        index: result of `Prompt.choose`.
        text: label.
        keys: characters, names of arrow keys, `enter`, or numbers to type; empty if only arrows and
            Tab reach the choice.
        place: position on the board, for moving by arrows.
        is_listed: in the menu; otherwise its key is on the board.
    """

    index: int
    text: str
    keys: tuple[str, ...]
    place: tuple[float, float] | None = None
    is_listed: bool = True


@dataclass(frozen=True)
class Asked:
    """A question, as a `BoardView` draws it with the observation.

    Args:
        actor: the entity that acts; None = the action is global.
        keys: the key of each entity that has a key on the board.
        focus: the entity that Enter selects; None = none.
        menu: entities that the menu lists.
        num_lines: number of lines of the question, below the drawing.
    """

    actor: EntityID = None
    keys: Mapping[EntityID, str] = field(default_factory=dict)
    focus: EntityID = None
    menu: frozenset[EntityID] = frozenset()
    num_lines: int = 0


Draw: TypeAlias = Callable[[int | None, int], None]
"""Draws above a question, given the choice in focus and the question's number of lines."""


class Prompt:
    """Asks questions by single keys on a terminal, or by lines on any stream.

    On a terminal it erases its own output; a drawing above stays. With a clock, a question may
    raise `TimeIsUp`, and the last question of a decision returns when the decision takes effect;
    up to two keys pressed meanwhile are kept for the next questions. A clock without a terminal
    raises `UsageError`.
    """

    def __init__(self, source: TextIO, out: TextIO, clock: MoveClock | None = None) -> None:
        self._keyboard = Keyboard(source)
        self._out = out
        self.is_terminal = self._keyboard.is_terminal and out.isatty()
        self._clock = clock
        self._ahead: list[str] = []
        if clock is not None and not self.is_terminal:
            raise UsageError(
                "a clock needs a terminal, where keys are read at once: this input is not a "
                "terminal"
            )

    def with_clock(self, clock: MoveClock) -> Prompt:
        copied = copy.copy(self)
        copied._clock = clock
        return copied

    def forget_keys(self) -> None:
        self._ahead.clear()
        self._keyboard.drop_typed()

    def choose(
        self,
        title: str,
        choices: Sequence[Choice],
        *,
        is_last: bool = True,
        default: int | None = None,
        has_rest: bool = False,
        can_undo: bool = False,
        draw: Draw = lambda focus, num_lines: None,
    ) -> int:
        """Waits for one of `choices`, and returns its index.

        Args:
            title: above the choices.
            choices: all that are allowed.
            is_last: this is the decision's last question.
            default: index of the choice that Enter selects until the focus moves; None = no choice.
            has_rest: also offers the defaults of all remaining questions.
            can_undo: also offers to go back to the previous question.
            draw: called before the question is written, and when the focus moves.

        Raises:
            UserQuit: the person quits.
            TimeIsUp: the time of the clock has expired.
            RestAsBefore: the person chooses the offer of `has_rest`.
            Undo: the person chooses the offer of `can_undo`.
        """
        has_keys = all(len(key) == 1 or key in _NAMED for c in choices for key in c.keys)
        if self.is_terminal and has_keys:
            asked = title, choices, is_last, default
            return self._choose_by_key(*asked, draw, has_rest=has_rest, can_undo=can_undo)
        entries = [f"{_typed_key(choice)} {choice.text}" for choice in choices]
        hints = self._hints(choices, default, has_rest) + [_UNDO] * can_undo
        problem = ""
        while True:
            answer = self._line(title, entries, hints, problem, partial(draw, default))
            if has_rest and answer == _REST:
                raise RestAsBefore
            index = _meant(choices, answer) if answer else default
            if index is not None:
                self._sleep(is_last)
                return index
            if can_undo and answer.lower() == _UNDO:
                raise Undo
            problem = f"{answer!r} is not among the choices"

    def number(
        self,
        title: str,
        low: float,
        high: float,
        *,
        is_last: bool = True,
        can_undo: bool = False,
        draw: Draw = lambda focus, num_lines: None,
    ) -> float:
        """Waits for a number from `low` to `high`.

        `can_undo`, `draw`, `UserQuit` and `TimeIsUp` as for `choose`.
        """
        bounds = f"{describe_number(low)} to {describe_number(high)}"
        problem = ""
        while True:
            hints = [_UNDO] * can_undo
            answer = self._line(
                title, [bounds], hints, problem, partial(draw, None), quits_at_once=True
            )
            if can_undo and answer.lower() == _UNDO:
                raise Undo
            try:
                value = float(answer)
            except ValueError:
                problem = f"{answer!r} is not a number"
                continue
            if low <= value <= high:
                self._sleep(is_last)
                return value
            problem = f"{answer} is not in {bounds}"

    def _choose_by_key(
        self,
        title: str,
        choices: Sequence[Choice],
        is_last: bool,
        focus: int | None,
        draw: Draw,
        *,
        has_rest: bool,
        can_undo: bool,
    ) -> int:
        of_key = {key: choice.index for choice in choices for key in choice.keys}
        while True:
            entries = [
                f"{self._symbol(c.keys[0] if self._has_symbols else _typed_key(c))} {c.text}"
                for c in choices
                if c.is_listed
            ]
            hints = self._hints(choices, focus, has_rest) + [f"backspace {_UNDO}"] * can_undo
            lines = self._block(title, entries, hints, "")
            draw(focus, len(lines))
            self._write("\n".join([*lines, ""]))
            try:
                with self._keyboard.single_keys():
                    offers = [_REST] * has_rest + [*_BACKSPACE] * can_undo
                    key, index = self._key_of(choices, of_key, focus, offers)
            finally:
                self._erase(len(lines))
            if key not in of_key and (key in _TOWARDS or key == _NEXT):
                focus = index
                continue
            self._read_ahead(key, is_last)
            return index

    def _key_of(
        self,
        choices: Sequence[Choice],
        of_key: Mapping[str, int],
        focus: int | None,
        offers: Sequence[str],
    ) -> tuple[str, int]:
        """Waits for a key with a meaning; `offers` are the other keys than those of choices.

        Returns:
            The key, and the choice that it selects or that gets the focus.
        """
        while True:
            if not self._ahead:
                self._require_time()
            key = self._ahead.pop(0) if self._ahead else self._keyboard.key()
            index = of_key.get(key if key in of_key else key.lower())
            if index is not None:
                return key, index
            if key == "enter" and focus is not None:
                return key, focus
            if key in offers:
                raise RestAsBefore if key == _REST else Undo
            moved = _moved(choices, focus, key)
            if moved is not None and moved != focus:
                return key, moved
            if key.lower() in ("", _QUIT):
                raise UserQuit

    def _hints(self, choices: Sequence[Choice], default: int | None, has_rest: bool) -> list[str]:
        entries = []
        if not all(choice.is_listed for choice in choices):
            entries.append("keys on the board")
        if any(choice.place for choice in choices):
            entries.append("arrows, tab move")
        text = next((choice.text for choice in choices if choice.index == default), None)
        if text is not None and not any("enter" in choice.keys for choice in choices):
            entries.append(f"{self._symbol('enter')} {text}")
        return [*entries, f"{_REST} all as before"] if has_rest else entries

    def _require_time(self) -> None:
        """Waits for input; raises `TimeIsUp` if the time expires first."""
        left_s = None if self._clock is None else self._clock.left_s
        if left_s is not None and not self._keyboard.has_key(left_s):
            raise TimeIsUp

    def _read_ahead(self, key: str, is_last: bool) -> None:
        """Reads keys until the decision takes effect; a held key counts once."""
        clock = self._clock if is_last else None
        while clock is not None and clock.is_real_time and self._keyboard.has_key(clock.rest_s):
            pressed = self._keyboard.key()
            if pressed != (self._ahead or [key])[-1]:
                self._ahead = [*self._ahead[:1], pressed]

    def _sleep(self, is_last: bool) -> None:
        if is_last and self._clock is not None:
            time.sleep(self._clock.rest_s)

    def _line(
        self,
        title: str,
        entries: Sequence[str],
        hints: Sequence[str],
        problem: str,
        draw: Callable[[int], None],
        *,
        quits_at_once: bool = False,
    ) -> str:
        """Waits for a line.

        Args:
            quits_at_once: the answer cannot contain a q, so with a clock, the key quits.
        """
        lines = self._block(title, entries, hints, problem)
        draw(len(lines) + 1)
        self._write("\n".join([*lines, "> "]))
        answer, has_clock = None, self.is_terminal and self._clock is not None
        try:
            if has_clock:
                answer = self._typed_line(quits_at_once)
            else:
                with self._keyboard.whole_lines():
                    answer = self._keyboard.line()
        except TimeIsUp:
            self._keyboard.drop_typed()
            raise
        finally:
            if answer is None or has_clock or not self._keyboard.is_terminal:
                self._write("\n")  # Enter was not pressed, or not shown
            if self.is_terminal:
                self._erase(len(lines) + 1)
        if answer is None or answer.lower() == _QUIT:
            raise UserQuit
        return answer

    def _typed_line(self, quits_at_once: bool) -> str:
        """A line that is read key by key, since there may be no time for Enter after a q."""
        typed = ""
        with self._keyboard.single_keys():
            while True:
                try:
                    self._require_time()
                except TimeIsUp:
                    if typed.lower() == _QUIT:
                        raise UserQuit from None
                    raise
                key = self._keyboard.key()
                if key == "enter":
                    return typed.strip()
                if not key or (quits_at_once and key.lower() == _QUIT):
                    raise UserQuit
                if key in _BACKSPACE and typed:
                    typed = typed[:-1]
                    self._write("\b \b")
                elif len(key) == 1 and key.isprintable():
                    typed += key
                    self._write(key)

    def _symbol(self, key: str) -> str:
        return _NAMED.get(key, key) if self._has_symbols else key

    @property
    def _has_symbols(self) -> bool:
        return (self._out.encoding or "").lower().startswith("utf")

    def _block(
        self, title: str, entries: Sequence[str], hints: Sequence[str], problem: str
    ) -> list[str]:
        """A question as lines that fit the terminal: problem, title, entries in columns, hints."""
        width = shutil.get_terminal_size().columns - 1
        title, problem = one_line(title), one_line(problem)
        entries, hints = [*map(one_line, entries)], [*map(one_line, hints), f"{_QUIT} quit"]
        whole = f"{title}:  {_GAP.join((*entries, *hints))}"
        if len(whole) <= width:
            return [line for line in (problem, whole) if line]
        column = max(map(len, entries), default=0) + len(_GAP)
        per_line = max(1, (width - 2) // column)
        padded = [entry.ljust(column) for entry in entries]
        rows = ["".join(padded[i : i + per_line]) for i in range(0, len(padded), per_line)]
        for hint in hints:
            if hint is not hints[0] and len(rows[-1]) + len(_GAP) + len(hint) <= width - 2:
                rows[-1] += f"{_GAP}{hint}"
            else:
                rows.append(hint)
        lines = [problem, f"{title}:", *(f"  {row}".rstrip() for row in rows)]
        if not self.is_terminal:
            return [line for line in lines if line]
        return [
            part
            for line in lines
            for part in wrap(line, width, subsequent_indent="    ", drop_whitespace=False)
        ]

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _erase(self, num_lines: int) -> None:
        """Erases the last lines; leaves the cursor at the start of the first of them."""
        self._write(f"\r\x1b[{num_lines}A\x1b[J")


def keyed_choices(labels: Sequence[str], allowed: Sequence[int]) -> list[Choice]:
    """Choices for the allowed labels, with keys that do not depend on the mask.

    Directions get the arrow keys and w, a, s, d. The other labels get their initials if these are
    distinct and free; else, if all are gamepad buttons, the keys of emulators; else numbers.
    """
    directions = _directions(labels)
    others = [label for i, label in enumerate(labels) if i not in directions]
    taken = {_QUIT, *(_DIRECTIONS[name] for name in directions.values())}
    initials = {label[:1].lower() for label in others}
    has_initials = len(initials) == len(others) and not initials & {"", " ", _REST, *taken}
    has_initials = has_initials and all(len(key) == 1 and key.isprintable() for key in initials)
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
    """Choices for the allowed texts, numbered from 1 among all texts."""
    return [Choice(index, texts[index], (str(index + 1),)) for index in allowed]


def board_choices(
    texts: Sequence[str],
    allowed: Sequence[int],
    places: Sequence[tuple[float, float] | None],
    most_listed: int,
) -> list[Choice]:
    """Choices for the allowed texts, with single keys as far as these suffice.

    Choices on the board are also listed if at most `most_listed` choices are allowed.
    """
    is_listed = len(allowed) <= most_listed
    return [
        Choice(
            index,
            texts[index],
            (_BOARD_KEYS[index],) if index < len(_BOARD_KEYS) else (),
            places[index],
            is_listed or places[index] is None,
        )
        for index in allowed
    ]


def _moved(choices: Sequence[Choice], focus: int | None, key: str) -> int | None:
    """The choice that a key moves the focus to; None if there is none."""
    order = [choice.index for choice in choices if choice.place is not None]
    places = {choice.index: choice.place for choice in choices if choice.place is not None}
    if not order or (key != _NEXT and key not in _TOWARDS):
        return None
    if focus not in places:
        return order[0]
    if key == _NEXT:
        return order[(order.index(focus) + 1) % len(order)]
    (x, y), (right, up) = places[focus], _TOWARDS[key]
    distances = {}
    for index, place in places.items():
        dx, dy = place[0] - x, place[1] - y
        ahead, aside = dx * right + dy * up, abs(dx * up) + abs(dy * right)
        if ahead > 0:
            distances[index] = ahead + 2 * aside
    return min(distances, key=distances.__getitem__, default=None)


def _directions(labels: Sequence[str]) -> dict[int, str]:
    """Direction in the last word of each label; empty if two labels have the same direction."""
    found: dict[int, str] = {}
    for index, label in enumerate(labels):
        word = re.split(r"[^a-z]+", label.lower())[-1]
        word = _COMPASS.get(word, word)
        if word in _DIRECTIONS:
            if word in found.values():
                return {}
            found[index] = word
    return found


def _meant(choices: Sequence[Choice], line: str) -> int | None:
    """The choice that a line means: a key, a text or, last, a text in another case.

    None if it means no choice, or is the text of several.
    """
    lower = line.lower()
    for found in (
        [choice.index for choice in choices if line in choice.keys],
        [choice.index for choice in choices if lower in choice.keys],
        [choice.index for choice in choices if line == choice.text],
        [choice.index for choice in choices if lower == choice.text.lower()],
    ):
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _typed_key(choice: Choice) -> str:
    return next((key for key in choice.keys if key not in _NAMED), choice.keys[0])
