"""The screen in whole rows against the one drawn pixel by pixel, and what drawing must obey."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.games.pixel.xo_chip.plain_machine import PlainScreen
from tests.games.pixel.xo_chip.reference_machines import PixelScreen

Screen = PlainScreen | PixelScreen
Change = Callable[[Screen], object]
COORDINATES = st.integers(0, 255)


def draw(x: int, y: int, seed: int, n: int) -> Change:
    def change(screen: Screen) -> object:
        num_bytes, rows = (2, 16) if n == 0 else (1, n)
        size = num_bytes * rows * screen.selected.bit_count()
        sprite = np.random.default_rng(seed).bytes(size)
        return screen.draw(x, y, sprite, num_bytes)

    return change


def scroll(direction: str, pixels: int) -> Change:
    steps = {"left": (-4, 0), "right": (4, 0), "up": (0, -pixels), "down": (0, pixels)}
    return lambda screen: screen.scroll(*steps[direction])


def select(planes: int) -> Change:
    return lambda screen: setattr(screen, "selected", planes)


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(draw, COORDINATES, COORDINATES, st.integers(0, 99), st.integers(0, 15)),
    st.builds(scroll, st.sampled_from(["left", "right", "up", "down"]), st.integers(0, 15)),
    st.builds(select, st.integers(0, 3)),
    st.just(lambda screen: screen.clear()),
    st.builds(lambda high: lambda screen: screen.resize(high=high), st.booleans()),
)


@settings(max_examples=60)
@given(st.lists(CHANGES, max_size=12), st.booleans(), st.booleans())
def test_equals_a_screen_that_is_drawn_pixel_by_pixel(
    changes: list[Change], wrap: bool, half_pixels: bool
) -> None:
    rows, pixels = PlainScreen(wrap, half_pixels), PixelScreen(wrap, half_pixels)
    for change in changes:
        assert change(rows) == change(pixels)
        np.testing.assert_array_equal(rows.pixels(), pixels.pixels())


@given(st.lists(CHANGES, max_size=4), COORDINATES, COORDINATES, st.integers(0, 15))
def test_drawing_twice_restores_and_says_what_went_dark(
    changes: list[Change], x: int, y: int, n: int
) -> None:
    screen = PlainScreen(wrap=True, half_pixels=False)
    for change in changes:
        change(screen)
    before = screen.pixels()
    draw(x, y, 1, n)(screen)
    has_changed = bool((screen.pixels() != before).any())
    collided = draw(x, y, 1, n)(screen)
    np.testing.assert_array_equal(screen.pixels(), before)
    assert has_changed == (screen.selected != 0)
    assert collided == has_changed


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize(("there", "back"), [("left", "right"), ("up", "down")])
def test_scrolling_there_and_back_restores_the_middle(high: bool, there: str, back: str) -> None:
    screen = PlainScreen(wrap=False, half_pixels=False, high=high)
    screen.draw(20, 16, b"\xa5\x3c\x81\x7e", 1)
    before = screen.pixels()
    scroll(there, 9)(screen)
    assert (screen.pixels() != before).any()
    scroll(back, 9)(screen)
    np.testing.assert_array_equal(screen.pixels(), before)


@pytest.mark.parametrize("direction", ["left", "right", "up", "down"])
def test_scrolls_by_pixels_of_the_resolution(direction: str) -> None:
    moved = {"left": (0, -4), "right": (0, 4), "up": (-3, 0), "down": (3, 0)}[direction]
    for high, half_pixels, scale in [(True, False, 1), (False, False, 2), (False, True, 1)]:
        screen = PlainScreen(wrap=False, half_pixels=half_pixels, high=high)
        screen.draw(20, 10, b"\x80", 1)
        before = np.argwhere(screen.pixels())
        scroll(direction, 3)(screen)
        np.testing.assert_array_equal(
            np.argwhere(screen.pixels()), before + np.array(moved) * scale
        )


def test_a_scroll_moves_only_the_selected_planes() -> None:
    screen = PlainScreen(wrap=False, half_pixels=False, high=True, selected=0b11)
    screen.draw(0, 0, b"\xff\xff", 1)
    screen.selected = 0b10
    screen.scroll(4, 0)
    assert screen.pixels()[0, :13].tolist() == [1] * 4 + [3] * 4 + [2] * 4 + [0]


def test_what_scrolls_out_does_not_come_back() -> None:
    screen = PlainScreen(wrap=True, half_pixels=False, high=True)
    screen.draw(120, 60, b"\xff\xff\xff\xff", 1)
    screen.scroll(4, 2)
    screen.scroll(-4, -2)
    assert np.argwhere(screen.pixels()).min(axis=0).tolist() == [60, 120]
    assert screen.pixels().sum() == 4 * 2


@pytest.mark.parametrize("size", [1, 2])
def test_edges_cut_or_wrap(size: int) -> None:
    for wrap, expected in [(False, 8 * size - 4), (True, 8 * size)]:
        screen = PlainScreen(wrap=wrap, half_pixels=False, high=True)
        screen.draw(128 - (8 * size - 4), 63, b"\xff" * size, size)
        assert screen.pixels().sum() == expected
        assert screen.pixels()[63, :4].tolist() == [int(wrap)] * 4


def test_the_corner_wraps_in_any_case() -> None:
    for high, width, height in [(True, 128, 64), (False, 64, 32)]:
        here, there = (PlainScreen(wrap=False, half_pixels=False, high=high) for _ in range(2))
        here.draw(3, 5, b"\xc3\x18", 1)
        there.draw(3 + width, 5 + height, b"\xc3\x18", 1)
        assert here == there


def test_pixels_of_low_resolution_are_four() -> None:
    screen = PlainScreen(wrap=False, half_pixels=False)
    screen.draw(1, 2, b"\x80", 1)
    assert np.argwhere(screen.pixels()).tolist() == [[4, 2], [4, 3], [5, 2], [5, 3]]


def test_the_second_row_of_a_doubled_pixel_collides_too() -> None:
    screen = PlainScreen(wrap=False, half_pixels=True)
    screen.draw(0, 0, b"\x80", 1)
    screen.scroll(0, 1)
    assert np.argwhere(screen.pixels())[:, 0].tolist() == [1, 1, 2, 2]
    assert screen.draw(0, 0, b"\x80", 1)
    assert np.argwhere(screen.pixels())[:, 0].tolist() == [0, 0, 2, 2]


def test_a_resolution_makes_both_planes_dark() -> None:
    screen = PlainScreen(wrap=False, half_pixels=False, selected=0b11)
    screen.draw(0, 0, b"\xff\xff", 1)
    screen.selected = 0b01
    screen.resize(high=True)
    assert not screen.pixels().any()
    assert screen.high
    assert screen.selected == 0b01
