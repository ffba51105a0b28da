"""Shapes drawn by Pillow, as SVG and by the page, compared with each other and with geometry."""

from __future__ import annotations

import math
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env.views import Scene
from entity_env.views.animation import Animation, Still
from entity_env.views.pictures import Painter
from entity_env.views.scene import Shape
from entity_env.views.svg import still_svg
from tests.helpers.chromium import Chromium

pytest.importorskip("PIL")
from PIL import Image

CELLS = 6
"""Cells along each side of a picture; each cell has one shape."""
UNIT = 64
"""Pixels per unit of the game."""
KINDS = ("rect", "circle", "polygon", "line", "text", "image")
INK = "#102030"
SQUARE = "data:image/png;base64," + (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEklEQVR42mM4wcAARAwgcgEDABZmAvl/"
    "F2PnAAAAAElFTkSuQmCC"
)
"""Two rows of two pixels: red; blue and green."""


def one_of_each(seed: int) -> list[tuple[str, list[Shape]]]:
    """Kind and shapes of every cell; kinds cycle, attributes are random."""
    rng = Random(seed)
    cells = []
    for i in range(CELLS * CELLS):
        scene = Scene(CELLS, CELLS)
        x, y = i % CELLS + 0.5, i // CELLS + 0.5
        kind = KINDS[i % len(KINDS)] if i // CELLS % 2 else KINDS[-1 - i % len(KINDS)]
        add_shape(scene, kind, x, y, rng)
        cells.append((kind, scene.shapes))
    return cells


def add_shape(scene: Scene, kind: str, x: float, y: float, rng: Random) -> None:
    fill = f"#{rng.randrange(0x800000):06x}{rng.choice(['', '80', '40'])}"
    stroke = rng.choice(["", "#d0200080", "#00f"])
    width, turn = rng.uniform(0.05, 0.15), rng.choice([0.0, rng.uniform(0, 360)])
    w, h = rng.uniform(0.3, 0.55), rng.uniform(0.3, 0.55)
    corners = [(x - w / 2, y - h / 2), (x + w / 2, y - h / 4), (x + w / 8, y + h / 2)]
    match kind:
        case "rect":
            box, radius = (x - w / 2, y - h / 2, w, h), rng.choice([0.0, 0.1])
            scene.rect(*box, fill, stroke=stroke, stroke_width=width, radius=radius, rotate=turn)
        case "circle":
            scene.circle(x, y, w / 2, fill, stroke=stroke, stroke_width=width)
        case "polygon":
            scene.polygon(corners, fill, stroke=stroke, stroke_width=width, rotate=turn)
        case "line":
            scene.line(corners, fill, width=width)
        case "text":
            anchor = rng.choice(["start", "middle", "end"])
            shift = {"start": -0.3, "middle": 0.0, "end": 0.3}[anchor]
            turn = turn if anchor == "middle" else 0.0
            scene.text(x + shift, y, "IOI", INK, size=0.4, anchor=anchor, rotate=turn)  # type: ignore[arg-type]  # one of them
        case "image":
            scene.image(x - w / 2, y - h / 2, w, h, SQUARE, rotate=turn)


def screenshot(browser: Chromium, path: Path) -> NDArray[np.int64]:
    """What the window shows, `(height, width, 3)`."""
    browser.screenshot(path)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), np.int64)


def animation_of(shapes: list[Shape], size: float = CELLS) -> Animation:
    still = Still(0, 0, 0.0, list(range(len(shapes))), [])
    ground = [Shape("rect", ((size / 2, size / 2),), (size, size), "#ffffff")]
    return Animation("shapes", (), (size, size), 1, ground, shapes, [still, still])


def drawn_by(
    renderer: str, animation: Animation, browser: Chromium, folder: Path
) -> NDArray[np.int64]:
    size = UNIT * CELLS
    file, shot = folder / "page.html", folder / "page.png"
    if renderer == "svg":
        svg = still_svg(animation.size, [*animation.ground, *animation.shapes], "shapes")
        svg = re.sub(r'width="480" height="480"', f'width="{size}" height="{size}"', svg, count=1)
        file.write_text(f'<body style="margin:0">{svg}')
        browser.go(file.as_uri())
        return screenshot(browser, shot)[:size, :size]
    file.write_text(animation.html())
    # The board takes the height that the rest of the page leaves.
    browser.emulate(1000, 600)
    browser.go(file.as_uri())
    browser.wait_for("document.body.dataset.ready")
    browser.emulate(1000, 600 + size - round(browser.box("#view")[3]))
    browser.wait_for(f"document.getElementById('board').height == {size}")
    left, top = (round(each) for each in browser.box("#board")[:2])
    return screenshot(browser, shot)[top : top + size, left : left + size]


@pytest.mark.slow
@pytest.mark.parametrize("renderer", ["svg", "page"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pillow_draws_what_browsers_draw(
    renderer: str, seed: int, browser: Chromium, tmp_path: Path
) -> None:
    cells = one_of_each(seed)
    animation = animation_of([shape for _, shapes in cells for shape in shapes])
    size = UNIT * CELLS
    painter = Painter(animation.size, animation.ground, pixels=(size, size))
    ours = np.asarray(painter.image(animation.shapes), np.int64)
    theirs = drawn_by(renderer, animation, browser, tmp_path)
    for i, (kind, shapes) in enumerate(cells):
        part = np.s_[i // CELLS * UNIT :, i % CELLS * UNIT :]
        one, other = (picture[part][:UNIT, :UNIT] for picture in (ours, theirs))
        ink = np.abs(255 - other).mean()
        assert ink > 1, (kind, shapes)
        if kind in ("text", "image"):  # fonts and image scaling differ
            wrong = np.abs(blurred(one) - blurred(other)).mean() / ink
        else:
            wrong = np.abs(one - other).mean() / ink
        # An ignored alpha, rotation or stroke causes a larger error.
        assert wrong < {"text": 0.4, "image": 0.2}.get(kind, 0.1), (kind, wrong, shapes)


def blurred(picture: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean colors of squares of 8 pixels."""
    squares = picture.reshape(UNIT // 8, 8, UNIT // 8, 8, 3)
    return np.asarray(squares.mean(axis=(1, 3)))


@given(
    st.sampled_from(["rect", "circle", "polygon"]),
    st.integers(0, 10_000),
    st.booleans(),
)
def test_pillow_fills_the_inside_and_nothing_else(kind: str, seed: int, smooth: bool) -> None:
    scene = Scene(1, 1)
    add_shape(scene, kind, 0.5, 0.5, Random(seed))
    [shape] = [replaced(shape) for shape in scene.shapes]
    painter = Painter((1, 1), pixels=(40, 40), smooth=smooth)
    found = np.asarray(painter.image([shape]), np.int64)[..., 0] < 128
    for row in range(40):
        for column in range(40):
            distance = inside(shape, (column + 0.5) / 40, (row + 0.5) / 40)
            if abs(distance) > 1.5 / 40:
                assert found[row, column] == (distance > 0), (row, column, shape)


def replaced(shape: Shape) -> Shape:
    return Shape(shape.kind, shape.points, shape.size, "#000", rotate=shape.rotate)


def inside(shape: Shape, x: float, y: float) -> float:
    """A lower bound of the signed distance of a point from a shape's outline, negative outside."""
    cx, cy = shape.center
    turn = math.radians(-shape.rotate)
    dx, dy = x - cx, y - cy
    x, y = dx * math.cos(turn) - dy * math.sin(turn), dx * math.sin(turn) + dy * math.cos(turn)
    match shape.kind:
        case "circle":
            return shape.size[0] - math.hypot(x, y)
        case "rect":
            return min(shape.size[0] / 2 - abs(x), shape.size[1] / 2 - abs(y))
    corners = [(px - cx, py - cy) for px, py in shape.points]
    edges = zip(corners, [*corners[1:], corners[0]], strict=True)  # clockwise, y points down
    return min(
        ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) / math.hypot(bx - ax, by - ay)
        for (ax, ay), (bx, by) in edges
    )


@given(st.sampled_from(["", "80", "40", "01", "ff"]), st.integers(0, 255))
def test_alpha_mixes_with_what_lies_below(alpha: str, gray: int) -> None:
    scene = Scene(1, 1)
    scene.rect(0, 0, 1, 1, f"#{gray:02x}0000{alpha}", rotate=0)
    painter = Painter((1, 1), pixels=(8, 8))
    image = np.asarray(painter.image(scene.shapes), np.int64)
    share = int(alpha or "ff", 16) / 255
    expected = [255 + share * (gray - 255), 255 - share * 255, 255 - share * 255]
    assert np.abs(image - expected).max() <= 1


def test_pictures_of_another_shape_have_a_margin() -> None:
    scene = Scene(4, 1)
    scene.rect(0, 0, 4, 1, "#000")
    image = np.asarray(Painter((4, 1), scene.shapes, pixels=(40, 40)).image([]))
    assert image.shape == (40, 40, 3)
    assert [int(row.mean()) for row in image[[0, 14, 15, 24, 25, 39]]] == [255, 255, 0, 0, 255, 255]


@pytest.mark.slow
def test_shapes_far_outside_cost_nothing() -> None:
    scene = Scene(1, 1)
    scene.rect(-4e5, -4e5, 8e5, 8e5, "#ff0000", rotate=30)
    scene.circle(1e6, 0, 3, "#000000", stroke="#000")
    scene.circle(0.5, 0.5, 1e5, "", stroke="#000")
    scene.text(1e6, 0, "a" * 10_000, size=1e4)
    scene.text(0.5, 0.5, "a", size=1e5)
    image = np.asarray(Painter((1, 1), pixels=(8, 8)).image(scene.shapes[:3]))
    assert (image == [255, 0, 0]).all()
    Painter((1, 1), pixels=(8, 8)).image(scene.shapes)
