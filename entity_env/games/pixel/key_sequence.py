"""Buttons as people write them: `RIGHT*3 DOWN A*2` holds each for so many steps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from entity_env.errors import UsageError, shown
from entity_env.games.pixel.worlds.world import Button

MAX_STEPS: Final = 1_000_000
_COMMENT: Final = re.compile(r"#.*")
_WORD: Final = re.compile(r"([A-Za-z]+)(?:\*([0-9]{1,9}))?")
_NAMES: Final = ", ".join(button.name for button in Button)


def parse_keys(text: str, where: str = "keys") -> tuple[Button, ...]:
    """Read buttons: names with spaces, commas or lines between them, each `*` how many steps.

    Upper and lower case are the same, and a line is over at `#`.

    Args:
        text: may be empty.
        where: what an error calls it.

    Raises:
        UsageError: a word that is no button, 0 steps, or more than a million.
    """
    buttons: list[Button] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in _COMMENT.sub("", line).replace(",", " ").split():
            button, count = _parse_word(word, f"{where}, line {number}")
            if len(buttons) + count > MAX_STEPS:
                raise UsageError(f"{where}: expected at most {MAX_STEPS} steps, got more: {word}")
            buttons += [button] * count
    return tuple(buttons)


def format_keys(buttons: Iterable[Button]) -> str:
    """Write buttons so that `parse_keys` reads them."""
    runs = ((button.name, len(list(run))) for button, run in groupby(buttons))
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in runs)


def _parse_word(word: str, where: str) -> tuple[Button, int]:
    found = _WORD.fullmatch(word)
    name = found[1].upper() if found else ""
    if not found or name not in Button.__members__:
        raise UsageError(f"{where}: {shown(word)} is no button: write {_NAMES}, or RIGHT*3")
    count = int(found[2] or 1)
    if count < 1:
        raise UsageError(f"{where}: {word}: expected at least one step")
    return Button[name], count
