"""Two small games for the XO-CHIP, with solutions.

`tools/assemble.py` builds the files in `roms` from the sources in `tools/xo_chip`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import UsageError
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.quirks import HEIGHT, WIDTH

FRAMES = 24
INSTRUCTIONS = 30


class Walkthrough(NamedTuple):
    """Buttons to hold, each for one step of `FRAMES` frames of `INSTRUCTIONS` instructions.

    Attributes:
        start: from power-on to the start of an episode.
        solution: from the start to the goal; the screen then stays.
    """

    start: tuple[Button, ...]
    solution: tuple[Button, ...]


def _buttons(initials: str) -> tuple[Button, ...]:
    return tuple({button.name[0]: button for button in Button}[initial] for initial in initials)


PROGRAMS: Mapping[str, Walkthrough] = MappingProxyType(
    {
        "catch": Walkthrough(_buttons("A"), _buttons("LLLLAAAAAAARRRRAA")),
        "maze": Walkthrough(_buttons("AA"), _buttons("DRRURRDDLDRRRR")),
    }
)
"""Programs by name, with the buttons that reach their goals."""


@cache
def program(name: str) -> bytes:
    """ROM of a game in `PROGRAMS`, for a machine with the quirks of `XOCHIP`.

    Raises:
        UsageError: no such game.
    """
    return _read(name, "ch8")


def goal_frame(name: str) -> NDArray[np.uint8]:
    """Screen at the goal of a game, (64, 128) uint8 in 0..3; a new array.

    Raises:
        UsageError: no such game.
    """
    packed = np.frombuffer(_read(name, "goal"), np.uint8)  # both planes, one bit per pixel
    first, second = np.unpackbits(packed).reshape(2, HEIGHT, WIDTH)
    return first + 2 * second


def _read(name: str, kind: str) -> bytes:
    if name not in PROGRAMS:
        raise UsageError(f"program: expected one of {', '.join(PROGRAMS)}, got {name!r}")
    return (files("entity_env.games.pixel.xo_chip") / "roms" / f"{name}.{kind}").read_bytes()
