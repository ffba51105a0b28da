"""`Pixels`: an entity that is a picture, drawn as one; its PNG needs no library."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from entity_env.lazy_imports import is_array
from entity_env.views.scene import Point, Scene

if TYPE_CHECKING:
    from entity_env.views.describe import EntityRow
    from entity_env.views.seen import SeenEntity

_LONGEST: Final = 12.0
"""Width or height of a picture, in units of a drawing."""
_SHARP: Final = 240
"""Small pictures get about as many pixels, so enlarging does not blur them."""
_MAX_TILES: Final = 16
"""Most channels that are drawn side by side."""
_RGB: Final = 3
_BYTE: Final = 255.0


@dataclass
class Extent:
    """Lowest and highest of some numbers."""

    low: float = math.inf
    high: float = -math.inf
    is_whole: bool = True

    def include(self, value: float) -> None:
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.is_whole = self.is_whole and value == round(value)

    @property
    def span(self) -> float:
        return max(self.high - self.low, 0.0)


class Pixels:
    """The pictures of an entity type that has at most one entity per observation.

    One channel is gray, three are red, green and blue; any other number becomes gray pictures side
    by side. Black to white are 0 to 1 or 0 to 255, or the lowest to the highest number so far.
    """

    def __init__(self) -> None:
        self.size: Point | None = None
        """Width and height in a drawing; None = there is no picture."""
        self._extent = Extent(0.0, 0.0)
        self._is_single = True

    def include(self, rows: Sequence[EntityRow]) -> None:
        """Grows to fit the rows of one observation."""
        self._is_single = self._is_single and sum(row.count for row in rows) == 1
        shape = rows[0].entity.shape if self._is_single else None
        if shape is None or shape[2] > _MAX_TILES:
            self.size = None
            return
        height, width, tiles, _ = _layout(shape)
        unit = _LONGEST / max(height, width * tiles)
        self.size = (unit * width * tiles, unit * height)
        values = rows[0].entity.features
        for value in (values.min(), values.max()) if is_array(values) else values:
            self._extent.include(float(value))

    def draw(self, scene: Scene, rows: Sequence[EntityRow], corner: Point) -> bool:
        """Draws the picture with its upper left corner there; False if there is none."""
        if self.size is None or rows[0].entity.shape is None:
            return False
        scene.image(*corner, *self.size, self._uri(rows[0].entity), of=rows[0].entity)
        return True

    def _uri(self, entity: SeenEntity) -> str:
        height, width, tiles, size = _layout(entity.shape or (0, 0, 0))
        factor, length = max(1, _SHARP // max(height, width * tiles)), width * tiles * size
        pixels, lines = self._bytes(entity), []
        for start in range(0, len(pixels), length):
            line = pixels[start : start + length]
            line = b"".join(line[tile::tiles] for tile in range(tiles)) if tiles > 1 else line
            if factor > 1:
                line = b"".join(line[i : i + size] * factor for i in range(0, length, size))
            lines.append((b"\0" + line) * factor)
        return _png(width * tiles * factor, height * factor, b"".join(lines), is_gray=size == 1)

    def _bytes(self, entity: SeenEntity) -> bytes:
        low, high, values = self._extent.low, self._extent.high, entity.features
        if low >= 0:
            high = 1.0 if high <= 1 else _BYTE if high <= _BYTE else high
        scale = _BYTE / (high - low)
        if is_array(values):
            return ((values - low) * scale).round().clip(0, _BYTE).astype("uint8").tobytes()
        return bytes(min(255, max(0, round((value - low) * scale))) for value in values)


def _layout(shape: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """Height, width, number of pictures side by side, and bytes per pixel."""
    height, width, channels = shape
    return (height, width, 1, _RGB) if channels == _RGB else (height, width, channels, 1)


def _png(width: int, height: int, lines: bytes, *, is_gray: bool) -> str:
    """A `data:` URI; each line begins with a byte 0."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if is_gray else 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + data))
        content += struct.pack(">I", len(data)) + kind + data + check
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
