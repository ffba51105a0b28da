"""Machines that ran a program, and a reference screen drawn pixel by pixel."""

from __future__ import annotations

from entity_env.games.pixel.xo_chip import CHIP8, SUPERCHIP, XOCHIP, Halt, Quirks
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tools.assemble import assemble

DIALECTS = (CHIP8, SUPERCHIP, XOCHIP)


def ran(text: str, quirks: Quirks = XOCHIP, *, keys: int = 0, frames: int = 50) -> PlainMachine:
    """Return a machine that ran a program, which must end with `exit`."""
    machine = after(text, quirks, keys=keys, frames=frames, instructions=40)
    assert machine.halt is Halt.EXIT, machine.halt
    return machine


def after(
    text: str,
    quirks: Quirks = XOCHIP,
    *,
    keys: int = 0,
    frames: int = 1,
    instructions: int = 1,
) -> PlainMachine:
    """Return a machine that ran some instructions of a program."""
    machine = PlainMachine(assemble(text), quirks)
    machine.step(keys, frames=frames, instructions=instructions)
    return machine
