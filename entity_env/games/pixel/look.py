"""Four-shade screens, drawn by pixel, or by the tiles that agents observe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from entity_env.views import Chosen, Look, Scene, SeenEntity, SeenObservation

GREENS: Final = ("#0c1a14", "#3f7d5b", "#9ccf7f", "#eaf7d0")
"""Shades of a screen with a dark background, such as an XO-CHIP's."""
LIGHT_GREENS: Final = tuple(reversed(GREENS))
"""Shades of a screen with a bright background, such as a Game Boy's."""


@dataclass(frozen=True)
class _Form:
    """A character cell that shows several pixels in two colors.

    Args:
        weights: (rows, columns), value added by each pixel of the second color.
        characters: character for each sum.
    """

    weights: NDArray[np.int64]
    characters: str


_HALVES: Final = _Form(np.array([[1], [2]]), " ▀▄█")
_DOTS: Final = _Form(
    np.array([[1, 8], [2, 16], [4, 32], [64, 128]]), "".join(map(chr, range(0x2800, 0x2900)))
)
_ASCII: Final = " .+#"


def draw_pixels(
    pixels: NDArray[np.uint8],
    columns: int,
    rows: int,
    *,
    colors: Sequence[str] = GREENS,
    has_colors: bool = True,
    ascii_only: bool = False,
) -> Text:
    """A screen as large as fits: two pixels per character, else eight, else with pixels dropped."""
    height, width = pixels.shape
    if ascii_only:
        return _in_ascii(_shrunk(pixels, columns * 2, rows * 4))
    if width <= columns and height <= rows * 2:
        return _in_cells(pixels, _HALVES, colors, has_colors)
    return _in_cells(_shrunk(pixels, columns * 2, rows * 4), _DOTS, colors, has_colors)


def _shrunk(pixels: NDArray[np.uint8], columns: int, rows: int) -> NDArray[np.uint8]:
    """Every second, third, ... row and column: at most `rows` and `columns` remain."""
    every = max(1, -(-pixels.shape[0] // rows), -(-pixels.shape[1] // columns))
    return pixels[::every, ::every]


def _in_cells(
    pixels: NDArray[np.uint8], form: _Form, colors: Sequence[str], has_colors: bool
) -> Text:
    cells = _cells(pixels, *form.weights.shape)
    weights = form.weights.reshape(-1)
    counts = np.stack([(cells == shade).sum(2) for shade in range(4)], 2)
    if has_colors:  # the two most common shades of a cell; others become the nearer one
        order = np.argsort(-counts, axis=2, kind="stable").astype(np.int16)
        ground, figure = order[:, :, :1], order[:, :, 1:2]
        is_figure = np.abs(cells - figure) < np.abs(cells - ground)
    else:
        commonest = int(counts.sum((0, 1)).argmax())
        is_figure, ground = cells != commonest, np.full((*cells.shape[:2], 1), commonest)
        figure = ground
    masks = (is_figure * weights).sum(2)
    return _text(masks, form.characters, figure[:, :, 0], ground[:, :, 0], colors, has_colors)


def _text(
    masks: NDArray[np.int64],
    characters: str,
    figure: NDArray[np.int16],
    ground: NDArray[np.int16],
    colors: Sequence[str],
    has_colors: bool,
) -> Text:
    text = Text(no_wrap=True)
    for row, marks in enumerate(masks.tolist()):
        if row:
            text.append("\n")
        begin = 0
        styles = [
            f"{colors[f] if mark else colors[g]} on {colors[g]}" if has_colors else ""
            for mark, f, g in zip(marks, figure[row].tolist(), ground[row].tolist(), strict=True)
        ]
        for end in range(1, len(marks) + 1):  # adjacent cells of one style are one span
            if end == len(marks) or styles[end] != styles[begin]:
                run = "".join(characters[mark] for mark in marks[begin:end])
                text.append(run, styles[begin] or None)
                begin = end
    return text


def _in_ascii(pixels: NDArray[np.uint8]) -> Text:
    cells = _cells(pixels, 4, 2)
    commonest = int(np.bincount(cells.reshape(-1), minlength=4).argmax())
    furthest = np.abs(cells - commonest).argmax(2)
    shades = np.take_along_axis(cells, furthest[:, :, None], 2)[:, :, 0]
    lines = ("".join(_ASCII[shade] for shade in row) for row in shades.tolist())
    return Text("\n".join(lines), no_wrap=True)


def _cells(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.int16]:
    """Pixels per character cell, (rows, columns, pixels); edges are repeated."""
    missing = -pixels.shape[0] % height, -pixels.shape[1] % width
    whole = np.pad(pixels, [(0, missing[0]), (0, missing[1])], mode="edge").astype(np.int16)
    rows, columns = whole.shape[0] // height, whole.shape[1] // width
    tiles = whole.reshape(rows, height, columns, width).swapaxes(1, 2)
    return tiles.reshape(rows, columns, height * width)


# ------------------------------------------------------------------ observations


def _draw_text(seen: SeenObservation, width: int) -> Text | None:
    """Brightness of every tile, two characters each."""
    text = Text(no_wrap=True)
    for tile in seen["Tile"]:
        if text and not tile["column"]:
            text.append("\n")
        brightness = _brightness(tile)
        text.append(_ASCII[round(brightness * 3)] * 2, f"{GREENS[3]} on {_color(brightness)}")
    return text or None


# ------------------------------------------------------------------ picture

_BODY, _KEY, _SIGN = "#e9ecef #25262b", "#495057 #ced4da", "#ffffff #1a1b1e"
_DIFFERS, _SHEEN = "#a61e4d", "#ffffff"
_MAX_MARKED: Final = 12
"""Tiles that differ from the goal's are marked only if there are at most this many."""
_PAD: Final = 3.0
_DIRECTIONS: Final = {"UP": (0, -1), "DOWN": (0, 1), "LEFT": (-1, 0), "RIGHT": (1, 0)}
_KEYS: Final = {
    **{name: (2.4 + 0.85 * dx, 1.5 + 0.85 * dy) for name, (dx, dy) in _DIRECTIONS.items()},
    **{"START": (7.6, 1.3), "B": (11.7, 1.4), "A": (13.8, 1.1)},
}
"""Height of the gamepad and centers of its buttons, for a screen of 16 tiles from left to right."""


def _unit(columns: float) -> float:
    return columns / 16


def _screen(seen: SeenObservation) -> tuple[float, float]:
    """Columns and rows of tiles."""
    rows, columns = np.max([tile.features[:2] for tile in seen["Tile"]], axis=0, initial=0) + 1
    return float(columns), float(rows)


def _size(seen: SeenObservation) -> tuple[float, float]:
    columns, rows = _screen(seen)
    return columns, rows + _PAD * _unit(columns)


def _ground(scene: Scene) -> None:
    """The screen, and a gamepad below it."""
    unit = _unit(scene.width)
    top = scene.height - _PAD * unit
    scene.rect(0, 0, scene.width, scene.height, _BODY)
    scene.rect(0, 0, scene.width, top, GREENS[0])
    for name, (x, y) in _KEYS.items():
        _draw_key(scene, name, x * unit, top + y * unit, unit)


def _draw_key(scene: Scene, name: str, x: float, y: float, unit: float) -> None:
    if name in _DIRECTIONS:
        half = 0.42 * unit
        scene.rect(x - half, y - half, 2 * half, 2 * half, _KEY, radius=0.1 * unit)
        (dx, dy), r = _DIRECTIONS[name], 0.24 * unit
        ends = (dx, dy), (dy - dx, -dx - dy), (-dy - dx, dx - dy)
        scene.polygon([(x + a * r, y + b * r) for a, b in ends], _SIGN)
        return
    half = (1.3 if name == "START" else 0.65) * unit
    size = (2 * half, 1.3 * unit)
    scene.rect(x - half, y - 0.65 * unit, *size, _KEY, radius=0.65 * unit)
    scene.text(x, y + 1.1 * unit, name, _KEY, size=0.6 * unit)


def _draw(seen: SeenObservation, scene: Scene) -> None:
    is_near = sum(tile.features[6] > 0 for tile in seen["Tile"]) <= _MAX_MARKED
    for tile in seen["Tile"]:
        row, column = map(float, tile.features[:2])
        _draw_tile(scene, column, row, tile)
        if is_near and tile.features[6]:
            _draw_mark(scene, column + 1, row, 0.3)


def _draw_tile(scene: Scene, x: float, y: float, tile: SeenEntity) -> None:
    """Nested squares with the areas of the shades, the most common outside."""
    counts = np.asarray(tile.features[2:6], float)
    left = 1.0
    for shade in np.argsort(-counts, kind="stable").tolist():
        if left <= 0:
            break
        side = left**0.5
        corner = x + (1 - side) / 2, y + (1 - side) / 2
        edge = GREENS[0] if side < 1 else ""  # adjacent shades differ too little
        scene.rect(*corner, side, side, GREENS[shade], stroke=edge, stroke_width=0.04, of=tile)
        left = round(left - float(counts[shade]) / max(1.0, float(counts.sum())), 6)


def _draw_mark(scene: Scene, right: float, top: float, side: float) -> None:
    """The corner of a tile that differs from the goal's."""
    corners = [(right, top), (right, top + side), (right - side, top)]
    scene.polygon(corners, _DIFFERS, stroke=_SHEEN, stroke_width=0.04)


def _brightness(tile: SeenEntity) -> float:
    """Square root of the mean shade, 0 to 1: a thin line in a tile stays visible."""
    counts = np.asarray(tile.features[2:6], float)
    return float(np.sqrt(counts @ np.arange(4) / max(1.0, 3 * counts.sum())))


def _color(brightness: float) -> str:
    dark, bright = (np.frombuffer(bytes.fromhex(GREENS[i][1:]), np.uint8) for i in (0, 3))
    mixed = np.rint(dark + brightness * (bright - dark.astype(float)))
    return f"#{mixed.astype(np.uint8).tobytes().hex()}"


def _spots(
    seen: SeenObservation, action: str, actor: SeenEntity | None, choice: Chosen
) -> list[tuple[float, float]]:
    """The button of the gamepad."""
    columns, rows = _screen(seen)
    x, y = _KEYS[str(choice)]
    return [(x * _unit(columns), rows + y * _unit(columns))]


def _words(entity: SeenEntity) -> str:
    row, column, *_, distance = map(float, entity.features)
    words = f"{distance:g} from the goal" if distance else "as in the goal"
    return f"tile in row {row:g}, column {column:g}: {words}"


def _legend() -> dict[str, Scene]:
    found = {"tile, by its shades": Scene(1, 1), "differs from the goal": Scene(1, 1)}
    tile, mark = found.values()
    tile.rect(0, 0, 1, 1, GREENS[2])
    tile.rect(0.25, 0.25, 0.5, 0.5, GREENS[0])
    mark.rect(0, 0, 1, 1, GREENS[0])
    _draw_mark(mark, 1, 0, 0.5)
    return found


look = Look(
    size=_size,
    draw=_draw,
    ground=_ground,
    draw_text=_draw_text,
    describe=_words,
    spots=_spots,
    legend=_legend,
)
