"""Screens of four shades as characters: lossless if they fit, and never too large."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from rich.console import Console

from entity_env import Observation
from entity_env.games.pixel.entities import obs_space
from entity_env.games.pixel.look import GREENS, draw_pixels, look
from entity_env.games.pixel.worlds.world import Button
from entity_env.views import Scene, SeenObservation


def shades(height: int, width: int, seed: int = 0, num: int = 4) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, num, (height, width), dtype=np.uint8)


def dots(character: str) -> NDArray[np.bool_]:
    """The pixels of a braille character, (4, 2)."""
    bits = ord(character) - 0x2800
    order = [[0, 3], [1, 4], [2, 5], [6, 7]]
    return np.array([[bits >> place & 1 for place in row] for row in order], np.bool_)


def read_back(pixels: NDArray[np.uint8], columns: int, rows: int) -> NDArray[np.int64]:
    """The shade of every pixel, from the characters and their colors."""
    text = draw_pixels(pixels, columns, rows)
    lines = text.split("\n")
    drawn = []
    for line in lines:
        row = []
        for i, character in enumerate(line.plain):
            style = line.get_style_at_offset(Console(), i)
            assert style.color is not None
            assert style.bgcolor is not None
            on, off = GREENS.index(style.color.name), GREENS.index(style.bgcolor.name)
            if character in " ▀▄█":
                index = " ▀▄█".index(character)
                mask = np.array([[index & 1], [index >> 1]], np.bool_)
            else:
                mask = dots(character)
            row.append(np.where(mask, on, off))
        drawn.append(np.hstack(row))
    return np.vstack(drawn)


@given(seed=st.integers(0, 999), height=st.integers(1, 9), width=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_half_blocks_show_every_pixel(seed: int, height: int, width: int) -> None:
    pixels = shades(height, width, seed)
    assert np.array_equal(read_back(pixels, 20, 20)[:height], pixels)


@given(seed=st.integers(0, 999))
@settings(max_examples=10, deadline=None)
def test_dots_show_every_pixel_of_two_shades(seed: int) -> None:
    pixels = shades(8, 10, seed, num=2) + np.uint8(seed % 3)
    assert np.array_equal(read_back(pixels, 5, 2), pixels)


def test_of_more_shades_in_a_cell_the_commonest_stay() -> None:
    pixels = np.array([[0, 0], [0, 0], [3, 3], [2, 1]], np.uint8)
    drawn = read_back(pixels, 1, 1)
    assert drawn.tolist() == [[0, 0], [0, 0], [3, 3], [3, 0]]


@pytest.mark.parametrize("shape", [(64, 128), (72, 80), (144, 160), (7, 300), (1, 1)])
@pytest.mark.parametrize("size", [(80, 17), (200, 60), (40, 10), (3, 1)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_it_fits(shape: tuple[int, int], size: tuple[int, int], ascii_only: bool) -> None:
    lines = draw_pixels(shades(*shape), *size, ascii_only=ascii_only).plain.split("\n")
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]
    assert not ascii_only or "".join(lines).isascii()


def test_a_small_terminal_shows_every_pixel_of_an_xo_chip() -> None:
    lines = draw_pixels(shades(64, 128), 80, 17).plain.split("\n")
    assert (len(lines), len(lines[0])) == (16, 64)


@pytest.mark.parametrize("ground", [0, 3])
def test_without_colours_what_differs_from_the_ground_is_seen(ground: int) -> None:
    pixels = np.full((8, 8), ground, np.uint8)
    pixels[4:, :4] = 1
    text = draw_pixels(pixels, 8, 2, has_colors=False)
    assert text.plain == "⠀⠀⠀⠀\n⣿⣿⠀⠀"
    assert not text.spans


def test_plain_characters_show_what_is_furthest_from_the_ground() -> None:
    pixels = np.zeros((8, 8), np.uint8)
    pixels[0, 0], pixels[5, 2:4], pixels[5, 4] = 1, 2, 3
    assert draw_pixels(pixels, 8, 8, ascii_only=True).plain == ".   \n +# "


# --------------------------------------------------------------------------- observations


def tiles(*shares: tuple[int, int, int, int], columns: int) -> SeenObservation:
    """Tiles, row by row, by their pixels of each shade."""
    rows = [[*divmod(i, columns), *counts, 0] for i, counts in enumerate(shares)]
    features = {"Tile": np.array(rows, np.float32).reshape(-1, 7)}
    return SeenObservation(Observation(reward=0, terminated=False, features=features), obs_space())


EMPTY, FULL, LITTLE = (64, 0, 0, 0), (0, 0, 0, 64), (60, 0, 0, 4)


def test_tiles_are_drawn_by_their_brightness() -> None:
    assert look.draw_text is not None
    text = look.draw_text(tiles(EMPTY, FULL, LITTLE, EMPTY, columns=2), 80)
    assert text is not None
    assert text.plain == "  ##\n..  "
    assert look.draw_text(tiles(columns=2), 80) is None


def test_tiles_are_a_picture() -> None:
    """Each shade is as large as its share of the tile, the most common one outside."""
    seen = tiles(EMPTY, FULL, LITTLE, EMPTY, EMPTY, EMPTY, columns=2)
    assert callable(look.size)
    assert look.draw is not None
    width, height = look.size(seen)
    assert (width, height) == (2, 3 + 3 / 8), "with a gamepad below"
    scene = Scene(width, height)
    look.draw(seen, scene)
    dark, bright, little, dot, *others = scene.shapes
    assert (dark.fill, bright.fill, little.fill) == (GREENS[0], GREENS[3], GREENS[0])
    assert (dot.fill, dot.size) == (GREENS[3], (0.25, 0.25))
    assert [shape.fill for shape in others] == [GREENS[0]] * 3
    assert [shape.center for shape in scene.shapes][:4] == [
        *[(0.5, 0.5), (1.5, 0.5), (0.5, 1.5), (0.5, 1.5)]
    ]
    assert [shape.of for shape in scene.shapes] == [0, 1, 2, 2, 3, 4, 5]


def test_tiles_that_differ_from_the_goal_are_marked_if_they_are_few() -> None:
    for num_different, num_marks in ((0, 0), (2, 2), (13, 0)):
        seen = tiles(*[EMPTY] * 20, columns=5)
        for tile in seen["Tile"][:num_different]:
            tile.features[6] = 3
        assert look.draw is not None
        scene = Scene(5, 5)
        look.draw(seen, scene)
        assert sum(shape.kind == "polygon" for shape in scene.shapes) == num_marks


def test_every_button_is_on_the_gamepad() -> None:
    seen = tiles(*[EMPTY] * 20, columns=5)
    assert callable(look.size)
    assert look.spots is not None
    width, height = look.size(seen)
    places = [look.spots(seen, "Press", None, button.name)[0] for button in Button]
    assert len({*places}) == len(Button)
    for place in places:
        assert isinstance(place, tuple)
        assert 0 < place[0] < width
        assert 4 < place[1] < height
