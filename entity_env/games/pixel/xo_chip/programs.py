"""Two small games for the XO-CHIP, assembled from `asm/*.asm`, with solutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import UsageError
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.assembler import assemble
from entity_env.games.pixel.xo_chip.quirks import KEYS, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.reference_machine import PlainMachine

FRAMES = 24
INSTRUCTIONS = 30


class Walkthrough(NamedTuple):
    """Buttons to hold, each for one step of `FRAMES` frames of `INSTRUCTIONS` instructions.

    Attributes:
        start: from switching on to the start of an episode.
        solution: from there to the goal, whose screen then stays.
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
"""Programs of this package by name, with the buttons that lead to their goal."""


@cache
def program(name: str) -> bytes:
    """The bytes of a game in `PROGRAMS`, for a machine with the quirks of `XOCHIP`.

    Raises:
        UsageError: no such game.
    """
    if name not in PROGRAMS:
        raise UsageError(f"program: expected one of {', '.join(PROGRAMS)}, got {name!r}")
    source = files("entity_env.games.pixel.xo_chip") / "asm" / f"{name}.asm"
    return assemble(source.read_text(encoding="utf-8"))


def goal_frame(name: str) -> NDArray[np.uint8]:
    """The screen at the goal of a game, (64, 128) uint8 in 0..3; a new array.

    Raises:
        UsageError: no such game.
    """
    return _at_goal(name).copy()


@cache
def _at_goal(name: str) -> NDArray[np.uint8]:
    rom = program(name)
    start, solution = PROGRAMS[name]
    return run(rom, (*start, *solution)).pixels()


def run(
    rom: bytes, buttons: Sequence[Button], quirks: Quirks = XOCHIP, *, seed: int = 1
) -> PlainMachine:
    """A machine after holding each button for one step; other arguments as for `PlainMachine`.

    A step is `FRAMES` frames of `INSTRUCTIONS` instructions.
    """
    machine = PlainMachine(rom, quirks, seed=seed)
    for button in buttons:
        machine.step(1 << KEYS[button], frames=FRAMES, instructions=INSTRUCTIONS)
    return machine
