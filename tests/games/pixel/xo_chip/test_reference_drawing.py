"""Opcodes that change the screen: bytes drawn, planes, and VF."""

import numpy as np
import pytest

from entity_env.games.pixel.xo_chip import SUPERCHIP, XOCHIP, Quirks
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tests.games.pixel.xo_chip.reference_machines import DIALECTS, ran

PICTURE = """
exit
picture:
    pixels #.#.....
    pixels ########
    pixels .......#
    pixels ########
"""
WIDE = "exit\npicture:\n" + "\n".join(
    "pixels " + "." * row + "#" + "." * (15 - row) for row in range(16)
)


def lit(machine: PlainMachine, *, scale: int = 1) -> list[list[int]]:
    """Return row, column and shade of all pixels that are not dark."""
    pixels = machine.pixels()[::scale, ::scale]
    return [
        [int(row), int(column), int(pixels[row, column])] for row, column in np.argwhere(pixels)
    ]


@pytest.mark.parametrize("quirks", DIALECTS)
@pytest.mark.parametrize(("mode", "scale"), [("high", 1), ("low", 2)])
def test_draws_at_the_registers_from_the_index(quirks: Quirks, mode: str, scale: int) -> None:
    machine = ran(f"{mode}\nv1 = 3\nv2 = 5\ni = picture\ndraw v1, v2, 1\n{PICTURE}", quirks)
    assert lit(machine, scale=scale) == [[5, 3, 1], [5, 5, 1]]
    assert machine.v[15] == 0


@pytest.mark.parametrize("quirks", DIALECTS)
@pytest.mark.parametrize(("mode", "scale"), [("high", 1), ("low", 2)])
def test_a_sprite_of_no_rows_is_16_by_16(quirks: Quirks, mode: str, scale: int) -> None:
    machine = ran(f"{mode}\nv1 = 3\nv2 = 5\ni = picture\ndraw v1, v2, 0\n{WIDE}", quirks)
    assert lit(machine, scale=scale) == [[5 + step, 3 + step, 1] for step in range(16)]


def test_the_flag_says_whether_a_lit_pixel_went_dark() -> None:
    text = "high\ni = picture\n{}\ndraw v0, v0, 1\nv2 = vf\ndraw v1, v0, 1\nv3 = vf\n" + PICTURE
    beside, over = ran(text.format("v1 = 1")), ran(text.format("v1 = 2"))
    assert (beside.v[2], beside.v[3]) == (0, 0)
    assert (over.v[2], over.v[3]) == (0, 1)
    assert lit(over) == [[0, 0, 1], [0, 4, 1]]


def test_the_flag_may_be_a_coordinate() -> None:
    assert lit(ran("high\nvf = 4\ni = picture\ndraw vf, vf, 1\n" + PICTURE))[0] == [4, 4, 1]


@pytest.mark.parametrize(
    ("planes", "expected"),
    [
        (0, []),
        (1, [[0, 0, 1], [0, 2, 1]]),
        (2, [[0, 0, 2], [0, 2, 2]]),
        (3, [[0, 0, 3], [0, 1, 2], [0, 2, 3], *([0, x, 2] for x in range(3, 8))]),
    ],
)
def test_the_second_planes_bytes_follow_the_first_ones(
    planes: int, expected: list[list[int]]
) -> None:
    text = f"high\nvf = 9\nplane {planes}\ni = picture\ndraw v0, v0, 1\n{PICTURE}"
    assert lit(ran(text)) == expected
    assert ran(text).v[15] == 0


@pytest.mark.parametrize("planes", [1, 2])
def test_a_collision_on_either_plane_counts(planes: int) -> None:
    text = f"""
        high
        plane {planes}
        i = picture + 3
        draw v0, v0, 1
        plane 3
        i = picture + 1
        draw v0, v0, 1
        v1 = vf
        draw v0, v0, 1
        v2 = vf
        {PICTURE}
    """
    machine = ran(text)
    assert (machine.v[1], machine.v[2]) == (1, 1)


def test_both_planes_of_a_wide_sprite_take_64_bytes() -> None:
    text = "high\nplane 3\ni = picture\ndraw v0, v0, 0\n" + WIDE + "\nbytes 128, 0\n"
    expected = [[step, step, 1] for step in range(16)]
    expected[0] = [0, 0, 3]
    assert lit(ran(text)) == expected


@pytest.mark.parametrize(
    ("opcode", "row", "column"),
    [
        ("scroll down 3", 13, 20),
        ("scroll up 3", 7, 20),
        ("scroll down 0", 10, 20),
        ("scroll left", 10, 16),
        ("scroll right", 10, 24),
    ],
)
@pytest.mark.parametrize(("mode", "scale"), [("high", 1), ("low", 2)])
def test_scrolls(opcode: str, row: int, column: int, mode: str, scale: int) -> None:
    text = f"{mode}\nv1 = 20\nv2 = 10\ni = picture\ndraw v1, v2, 1\n{opcode}\n{PICTURE}"
    expected = [[row, column, 1], [row, column + 2, 1]]
    assert lit(ran(text), scale=scale) == expected
    assert lit(ran(text, SUPERCHIP), scale=scale) == expected


def test_quirk_scroll_half_pixels() -> None:
    text = "v1 = 10\ni = picture\ndraw v1, v1, 1\nscroll right\nscroll down 1\n" + PICTURE
    half, whole = (ran(text, Quirks(scroll_half_pixels=flag)) for flag in (True, False))
    assert lit(half)[0] == [21, 24, 1]
    assert lit(whole)[0] == [22, 28, 1]


@pytest.mark.parametrize(("wraps", "columns"), [(True, [0, 1, 2, 3, 124, 125, 126, 127]),
                                                (False, [124, 125, 126, 127])])  # fmt: skip
def test_quirk_sprites_wrap(wraps: bool, columns: list[int]) -> None:
    text = "high\nv1 = 124\nv2 = 63\ni = picture + 1\ndraw v1, v2, 1\n" + PICTURE
    assert lit(ran(text, Quirks(sprites_wrap=wraps))) == [[63, column, 1] for column in columns]


@pytest.mark.parametrize(("planes", "shades"), [(0, {3}), (1, {2}), (2, {1}), (3, set())])
def test_clears_the_selected_planes(planes: int, shades: set[int]) -> None:
    machine = ran(
        f"""
            plane 3
            i = full
            draw v0, v0, 1
            plane {planes}
            clear
            exit
        full:
            bytes 255, 255
        """
    )
    assert {shade for _, _, shade in lit(machine)} == shades
    assert machine.screen.selected == planes


@pytest.mark.parametrize("mode", ["high", "low"])
def test_choosing_a_resolution_makes_both_planes_dark(mode: str) -> None:
    machine = ran(f"plane 3\ni = picture\ndraw v0, v0, 2\nplane 1\n{mode}\n{PICTURE}")
    assert lit(machine) == []
    assert machine.screen.high is (mode == "high")
    assert machine.screen.selected == 1


def test_a_new_machine_draws_in_low_resolution_on_the_first_plane() -> None:
    machine = PlainMachine(b"\x00", XOCHIP)
    assert machine.screen.high is False
    assert machine.screen.selected == 1
    assert machine.pixels().shape == (64, 128)
    assert machine.pixels().dtype == np.uint8
    assert not machine.pixels().any()
