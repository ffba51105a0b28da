"""Machines that ran a program, and a screen that is drawn pixel by pixel to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from entity_env.games.pixel.xo_chip import CHIP8, SUPERCHIP, XOCHIP, Halt, Quirks
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tools.assemble import FORMS, assemble

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


def quirks() -> st.SearchStrategy[Quirks]:
    flags = {name: st.booleans() for name in Quirks.__dataclass_fields__ if name != "memory_size"}
    return st.builds(Quirks, memory_size=st.sampled_from([4096, 65536]), **flags)


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Programs of known opcodes, which get further than random bytes, with some of those behind."""
    code = b""
    for form in draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=40)):
        digits = "".join(
            draw(st.sampled_from("0123" if digit == "P" else "0123456789ABCDEF"))
            if digit in "NXYP"
            else digit
            for digit in form.opcode
        )
        code += bytes.fromhex(digits)
    return code + draw(st.binary(max_size=20))


@dataclass
class PixelScreen:
    """Does what `PlainScreen` does, a pixel at a time; a pixel of low resolution is 2 x 2."""

    wrap: bool
    half_pixels: bool
    high: bool = False
    selected: int = 1
    lit: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((2, 64, 128), np.bool_))

    def draw(self, x: int, y: int, sprite: bytes, num_bytes: int) -> bool:
        width, height = (128, 64) if self.high else (64, 32)
        rows = np.unpackbits(np.frombuffer(sprite, np.uint8)).reshape(-1, 8 * num_bytes)
        planes = [plane for plane in range(2) if self.selected >> plane & 1]
        collided = False
        for place, plane in enumerate(planes):
            part = rows[place * len(rows) // len(planes) : (place + 1) * len(rows) // len(planes)]
            for down, right in np.argwhere(part):
                column, row = x % width + int(right), y % height + int(down)
                if self.wrap or (column < width and row < height):
                    collided |= self._flip(plane, column % width, row % height)
        return collided

    def clear(self) -> None:
        for plane in range(2):
            if self.selected >> plane & 1:
                self.lit[plane] = False

    def resize(self, *, high: bool) -> None:
        self.high = high
        self.lit[:] = False

    def scroll(self, right: int, down: int) -> None:
        scale = 1 if self.high or self.half_pixels else 2
        for plane in range(2):
            if self.selected >> plane & 1:
                old = self.lit[plane].copy()
                self.lit[plane] = False
                for y, x in np.argwhere(old):
                    to_y, to_x = y + down * scale, x + right * scale
                    if 0 <= to_y < 64 and 0 <= to_x < 128:
                        self.lit[plane, to_y, to_x] = True

    def pixels(self) -> NDArray[np.uint8]:
        first, second = self.lit.astype(np.uint8)
        shades: NDArray[np.uint8] = first + 2 * second
        return shades

    def _flip(self, plane: int, x: int, y: int) -> bool:
        size = 1 if self.high else 2
        block = self.lit[plane, y * size : (y + 1) * size, x * size : (x + 1) * size]
        was_lit = bool(block.any())
        block[:] = ~block
        return was_lit
