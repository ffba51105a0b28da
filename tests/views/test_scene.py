"""Scenes: attributes of shapes, and invalid shapes."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import SchemaError, UsageError
from entity_env.views import Scene, data_uri
from entity_env.views.scene import Shape, faded, is_color, one_line, rgba

PIXEL = "data:image/png;base64,AAAA"
COLORS = st.sampled_from([3, 4, 6, 8]).flatmap(
    lambda n: st.text("0123456789abcdefABCDEF", min_size=n, max_size=n).map(lambda t: f"#{t}")
)
NOT_COLORS = ("red", "#12", "#12345", "#gggggg", "url(#a)", '#fff"/>', 7, "#fff\n")
NUMBERS = st.floats(-1e6, 1e6)


def scene() -> Scene:
    return Scene(10, 5, look="my_look")


@given(x=NUMBERS, y=NUMBERS, width=st.floats(0, 1e5), height=st.floats(0, 1e5))
def test_a_rectangle_begins_at_its_upper_left_corner(
    x: float, y: float, width: float, height: float
) -> None:
    drawn = scene()
    drawn.rect(x, y, width, height, "#fff", radius=1e5)
    [shape] = drawn.shapes
    (cx, cy), (w, h) = shape.center, shape.size
    assert (cx - w / 2, cy - h / 2) == pytest.approx((x, y), abs=1e-6)
    assert (w, h) == (width, height)
    assert shape.radius <= min(w, h) / 2


def test_every_method_adds_one_shape() -> None:
    drawn = scene()
    drawn.rect(0, 0, 2, 2, "#fff", stroke="#000", stroke_width=0.1, rotate=-90, of=3)
    x: Any = np.float32(1)
    y: Any = np.int64(2)
    drawn.circle(x, y, 0.5, "#abc8")
    drawn.polygon([(0, 0), (1, 0), (1, 1)], "#123456")
    drawn.line([(0, 0), (1, 1)], "#000", width=0.2)
    drawn.text(1, 1, "two\nlines\0", "#000", anchor="end")
    drawn.image(0, 0, 1, 1, PIXEL)
    kinds = [shape.kind for shape in drawn.shapes]
    assert kinds == ["rect", "circle", "polygon", "line", "text", "image"]
    first = Shape("rect", ((1.0, 1.0),), (2.0, 2.0), "#fff", "#000", 0.1, 270.0, of=3)
    assert drawn.shapes[0] == first
    assert drawn.shapes[1].center == (1.0, 2.0)
    assert type(drawn.shapes[1].points[0][0]) is float
    assert drawn.shapes[4].text == "two lines"
    assert [shape.of for shape in drawn.shapes[1:]] == [-1] * 5
    assert len({*drawn.shapes}) == 6  # they can be keys


def test_cells_are_a_checkerboard_and_end_with_the_board() -> None:
    drawn, boxes = scene(), set()
    drawn.cells(1, 2, 2.5, 2, "#123456")
    for shape in drawn.shapes:
        (x, y), (width, height) = shape.center, shape.size
        boxes.add((x - width / 2, y - height / 2, width, height))
    assert boxes == {(2, 2, 1, 1), (1, 3, 1, 1), (3, 3, 0.5, 1)}
    assert len(drawn.shapes) == 3
    for columns, rows in ((math.nan, 2), (2, -1), (math.inf, 1)):
        with pytest.raises(SchemaError, match=r"my_look: Scene.cells: (columns|rows) must be"):
            drawn.cells(0, 0, columns, rows, "#123456")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1e7, "1", None, [1], 1j])
@pytest.mark.parametrize(
    "draw",
    [
        lambda s, v: s.rect(v, 0, 1, 1),
        lambda s, v: s.rect(0, 0, 1, v),
        lambda s, v: s.rect(0, 0, 1, 1, rotate=v),
        lambda s, v: s.rect(0, 0, 1, 1, stroke="#000", stroke_width=v),
        lambda s, v: s.circle(0, 0, v),
        lambda s, v: s.polygon([(0, 0), (1, 1), (v, 2)]),
        lambda s, v: s.line([(0, 0), (1, v)], "#000"),
        lambda s, v: s.text(0, v, "a"),
        lambda s, v: s.image(0, 0, 1, v, PIXEL),
    ],
)
def test_a_number_must_be_finite(draw: Callable[[Scene, Any], None], wrong: object) -> None:
    drawn = scene()
    with pytest.raises(SchemaError, match=r"^my_look: Scene\.\w+: .* number"):
        draw(drawn, wrong)
    assert drawn.shapes == []


@pytest.mark.parametrize("wrong", NOT_COLORS)
def test_a_color_is_hexadecimal(wrong: str) -> None:
    drawn = scene()
    with pytest.raises(SchemaError, match=r"my_look: Scene\.circle: fill must be a color"):
        drawn.circle(0, 0, 1, wrong)
    with pytest.raises(SchemaError, match=r"my_look: Scene\.line: stroke must be a color"):
        drawn.line([(0, 0), (1, 1)], wrong)
    assert drawn.shapes == []


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda s: s.circle(0, 0, -1), "radius must be 0 or more"),
        (lambda s: s.polygon([(0, 0), (1, 1)]), "points must be 3 or more"),
        (lambda s: s.line([(0, 0)], "#000"), "points must be 2 or more"),
        (lambda s: s.line([(0, 0), 3], "#000"), "a point must be two numbers"),
        (lambda s: s.text(0, 0, "a", anchor="left"), "anchor must be start, middle, end"),
        (lambda s: s.image(0, 0, 1, 1, "http://x.org/a.png"), "uri must be a data: URI"),
        (lambda s: s.image(0, 0, 1, 1, "data:image/svg+xml;base64,AAAA"), "uri must be a data:"),
    ],
)
def test_what_is_no_shape_is_refused(draw: Callable[[Any], None], message: str) -> None:
    drawn = scene()
    with pytest.raises(SchemaError, match=message):
        draw(drawn)
    assert drawn.shapes == []


@given(COLORS, st.floats(0, 1))
def test_colors_become_fainter(color: str, opacity: float) -> None:
    assert is_color(color)
    fainter = faded(color, opacity)
    assert rgba(fainter)[:3] == rgba(color)[:3]
    assert rgba(fainter)[3] == pytest.approx(rgba(color)[3] * opacity, abs=0.5)
    assert rgba("#f0a") == (255, 0, 170, 255)
    assert rgba("#f0a8") == (255, 0, 170, 136)


@given(COLORS, COLORS, st.floats(0, 1))
def test_two_colors_are_for_light_and_dark_pages(light: str, dark: str, opacity: float) -> None:
    pair = f"{light} {dark}"
    assert is_color(pair)
    assert (rgba(pair), rgba(pair, dark=True)) == (rgba(light), rgba(dark))
    assert rgba(light, dark=True) == rgba(light)
    assert faded(pair, opacity) == f"{faded(light, opacity)} {faded(dark, opacity)}"


@pytest.mark.parametrize(
    "text", ["#fff  #000", "#fff #000 #fff", "#fff,#000", " #fff", "#fff blue"]
)
def test_what_is_no_pair_of_colors(text: str) -> None:
    assert not is_color(text)


@given(st.text() | st.text(st.characters(codec=None)))
def test_a_text_is_one_line_that_can_be_written(text: str) -> None:
    line = one_line(text)
    line.encode()
    assert line.isprintable()
    assert one_line(line) == line


def test_images_of_files(tmp_path: Path) -> None:
    file = tmp_path / "a.PNG"
    file.write_bytes(b"abc")
    assert data_uri(file) == f"data:image/png;base64,{base64.b64encode(b'abc').decode()}"
    with pytest.raises(UsageError, match=r"none\.png: No such file"):
        data_uri(tmp_path / "none.png")
    with pytest.raises(UsageError, match=r"expected a file \.png, \.jpg, \.gif or \.webp"):
        data_uri(tmp_path / "a.svg")
