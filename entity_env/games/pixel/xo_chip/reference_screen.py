"""PlainScreen: the screen of the CHIP-8 family in Python, the reference of the kernels.

A row is an integer of 128 bits, the leftmost pixel highest; two planes of 64 rows give the shades
0..3. A pixel of the low resolution covers 2 x 2 of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from entity_env.games.pixel.xo_chip.quirks import HEIGHT, WIDTH, double

_ROW = (1 << WIDTH) - 1


@dataclass
class PlainScreen:
    """Two planes of pixels; drawing, clearing and scrolling change the selected ones.

    Attributes:
        wrap: sprites wrap at the edges.
        half_pixels: scrolls in low resolution move by pixels of the high one.
        high: the resolution is 128 x 64 rather than 64 x 32.
        selected: a bit for each selected plane, 0b00 to 0b11.
        planes: two lists of 64 rows, 128 bits each.
    """

    wrap: bool
    half_pixels: bool
    high: bool = False
    selected: int = 0b01
    planes: list[list[int]] = field(default_factory=lambda: [[0] * HEIGHT, [0] * HEIGHT])

    def draw(self, x: int, y: int, sprite: bytes, num_bytes: int) -> bool:
        """Flip a sprite's pixels; whether any that was lit became dark.

        A pixel of the low resolution counts as lit if any of its four is; they differ only after
        scrolling by half pixels. The corner always wraps.
        """
        left, top = x * self._scale % WIDTH, y * self._scale % HEIGHT
        lines = [
            self._line(int.from_bytes(sprite[at : at + num_bytes]), 8 * num_bytes, left)
            for at in range(0, len(sprite), num_bytes)
        ]
        planes = list(self._selected_planes())
        rows = len(lines) // max(len(planes), 1)
        collisions = [
            self._flip(plane, top + self._scale * row, lines[number * rows + row])
            for number, plane in enumerate(planes)
            for row in range(rows)
        ]
        return any(collisions)

    def clear(self) -> None:
        """Clear the selected planes."""
        for plane in self._selected_planes():
            plane[:] = [0] * HEIGHT

    def resize(self, *, high: bool) -> None:
        """Set the resolution, and clear both planes."""
        self.high = high
        self.planes = [[0] * HEIGHT, [0] * HEIGHT]

    def scroll(self, right: int, down: int) -> None:
        """Move the selected planes by pixels, negative left and up; new pixels are dark."""
        scale = 1 if self.half_pixels else self._scale
        right, down = right * scale, down * scale
        dark = [0] * abs(down)
        for plane in self._selected_planes():
            rows = [line >> right if right >= 0 else line << -right & _ROW for line in plane]
            plane[:] = (dark + rows)[:HEIGHT] if down >= 0 else (rows + dark)[-HEIGHT:]

    def pixels(self) -> NDArray[np.uint8]:
        """The shades, (64, 128) uint8 in 0..3; a new array."""
        first, second = (_unpack(plane) for plane in self.planes)
        return first + 2 * second

    @property
    def _scale(self) -> int:
        return 1 if self.high else 2

    def _selected_planes(self) -> Iterator[list[int]]:
        return (plane for number, plane in enumerate(self.planes) if self.selected >> number & 1)

    def _line(self, bits: int, size: int, left: int) -> int:
        """A whole row with `size` bits of a sprite, doubled in low resolution."""
        if not self.high:
            bits, size = double(bits, size), 2 * size
        line = bits << 2 * WIDTH - size - left
        beyond = line & _ROW if self.wrap else 0
        return line >> WIDTH | beyond

    def _flip(self, plane: list[int], row: int, line: int) -> bool:
        """Flip pixels of a row, or of two in low resolution; whether any was lit."""
        if row >= HEIGHT and not self.wrap:
            return False
        covered = range(row % HEIGHT, row % HEIGHT + self._scale)
        collided = any(plane[number] & line for number in covered)
        for number in covered:
            plane[number] ^= line
        return collided


def _unpack(plane: list[int]) -> NDArray[np.uint8]:
    packed = b"".join(line.to_bytes(WIDTH // 8) for line in plane)
    return np.unpackbits(np.frombuffer(packed, np.uint8)).reshape(HEIGHT, WIDTH)
