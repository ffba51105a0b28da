"""Charts: points match their values, ticks are round, texts fit, any number works."""

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.views.chart import COLOURS, Axis, Points, Series, axes_of, svg_chart, text_chart

SPACE = "{http://www.w3.org/2000/svg}"
numbers = st.floats(-1e100, 1e100)
curves = st.lists(numbers, min_size=1, max_size=60)


def of(values: list[float], name: str = "a") -> Series:
    return Series(name, np.arange(len(values)) * 512.0, values)


def points(element: ElementTree.Element) -> list[tuple[float, float]]:
    pairs = [each.split(",") for each in str(element.get("points")).split()]
    return [(float(x), float(y)) for x, y in pairs]


@given(st.lists(numbers, max_size=5), st.booleans())
def test_an_axis_has_its_values(values: list[float], is_whole: bool) -> None:
    axis = Axis.around(values, is_whole=is_whole)
    assert axis.low < axis.high
    assert len(axis.ticks) <= 9
    assert is_whole or len(axis.ticks) >= 2
    for value in values:
        assert -1e-9 <= axis.share(value) <= 1 + 1e-9
    for tick, label in axis.ticks:
        assert -1e-9 <= axis.share(tick) <= 1 + 1e-9
        assert len(label) <= 14


@given(st.integers(-500, 500), st.integers(1, 1000), st.sampled_from([1e-3, 0.1, 1.0, 100.0]))
def test_labels_are_different_and_say_the_value(low: int, span: int, unit: float) -> None:
    axis = Axis.around([low * unit, (low + span) * unit])
    labels = [label for _, label in axis.ticks]
    assert len(set(labels)) == len(labels)
    step = axis.ticks[1][0] - axis.ticks[0][0]
    for value, label in axis.ticks:
        number = float(label.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(label[-1], 1)
        assert number == pytest.approx(value, abs=step / 1000)


def test_large_numbers_have_units() -> None:
    assert [label for _, label in Axis.around([0, 200_000]).ticks] == [
        *("0", "50k", "100k", "150k", "200k")
    ]
    assert [label for _, label in Axis.around([0, 200_000], num_ticks=2).ticks] == [
        *("0", "100k", "200k"),
    ]


@given(st.lists(curves, max_size=4))
def test_a_chart_is_valid_and_inside(found: list[list[float]]) -> None:
    svg = ElementTree.fromstring(svg_chart("t", [of(each) for each in found]))
    width, height = float(str(svg.get("width"))), float(str(svg.get("height")))
    for line in svg.iter(f"{SPACE}polyline"):
        for x, y in points(line):
            assert 0 <= x <= width
            assert 0 <= y <= height
    num_lines = len(list(svg.iter(f"{SPACE}polyline")))
    assert num_lines == sum(len(each) > 1 for each in found)


def test_points_lie_where_their_values_are() -> None:
    line = Series("a", [0, 100, 200], [0, 1, 4], low=[0, 0, 2], high=[0, 2, 4])
    svg = ElementTree.fromstring(svg_chart("t", [line]))
    [drawn] = svg.iter(f"{SPACE}polyline")
    (x0, y0), (x1, y1), (x2, y2) = points(drawn)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y1) * 4 == pytest.approx(y0 - y2, abs=0.5)
    [band] = svg.iter(f"{SPACE}polygon")
    ys = [y for _, y in points(band)]
    assert ys[:3] == [y0, pytest.approx((y0 + y2) / 2, abs=0.2), y2]
    assert ys[3:] == [pytest.approx((y0 + y2) / 2, abs=0.2), y0, y0]
    ticks = {each.text: float(str(each.get("y"))) - 4 for each in svg.iter(f"{SPACE}text")}
    assert ticks["4"] == pytest.approx(y2, abs=0.1)
    assert ticks["0"] in (pytest.approx(y0, abs=0.1), pytest.approx(y0 + 13, abs=0.1))


def test_long_lines_are_thinned_and_keep_their_mean() -> None:
    values = np.random.default_rng(1).normal(size=10_001)
    thin = Series("a", np.arange(10_001), values).thinned(100)
    assert len(thin.x) == 100
    assert np.all(np.diff(thin.x) > 0)
    sizes = np.diff(np.linspace(0, 10_001, 100, endpoint=False).astype(int), append=10_001)
    assert (thin.y * sizes).sum() == pytest.approx(values.sum())


def test_more_lines_than_colours_are_dashed() -> None:
    lines = [of([0.0, float(i)], str(i)) for i in range(2 * len(COLOURS))]
    drawn = list(ElementTree.fromstring(svg_chart("t", lines)).iter(f"{SPACE}polyline"))
    looks = {(each.get("stroke"), each.get("stroke-dasharray")) for each in drawn}
    assert len(looks) == len(lines)


def test_texts_are_escaped() -> None:
    name = '</svg></script><b>&"'
    dots = Points(*map(np.array, ([512.0], [3.0], [2.0], [4.0])))
    text = svg_chart(name, [Series(name, [0, 512, 1024], [0, 3, 4], dots=dots)], x_label=name)
    assert "<script" not in text
    svg = ElementTree.fromstring(text)
    assert [each.text for each in svg.iter(f"{SPACE}title")] == [
        name,
        f"{name}, at 512: 3 (2 to 4)",
    ]


def test_dots_lie_where_their_values_are_with_their_intervals() -> None:
    line = Series("a", [0, 100, 200], [0, 1, 4])
    line.dots = Points(*map(np.array, ([100.0, 200.0], [1.0, 4.0], [0.0, math.nan], [4.0, 5.0])))
    svg = ElementTree.fromstring(svg_chart("t", [line]))
    [drawn] = svg.iter(f"{SPACE}polyline")
    [_, middle, end] = points(drawn)
    dots = [each for each in svg.iter(f"{SPACE}path") if each.get("stroke-linecap")]
    assert [each.get("d") for each in dots] == [f"M{x:.1f} {y:.1f}h0.01" for x, y in (middle, end)]
    intervals = [each for each in svg.iter(f"{SPACE}path") if each.get("stroke-width") == "1.5"]
    (_, bottom), *_, (_, top) = points(drawn)
    assert [each.get("d") for each in intervals] == [f"M{middle[0]:.1f} {bottom:.1f}V{top:.1f}"]


def test_a_band_has_gaps_where_it_is_unknown() -> None:
    low = [0.0, 0.0, math.nan, 0.0, 0.0, 0.0]
    line = Series("a", range(6), [1.0] * 6, low=low, high=[2.0, 2.0, 2.0, math.nan, 2.0, 2.0])
    svg = ElementTree.fromstring(svg_chart("t", [line]))
    assert [len(points(each)) for each in svg.iter(f"{SPACE}polygon")] == [4, 4]
    line = Series("a", [0, 1], [1, 1], low=[math.nan] * 2, high=[math.nan] * 2)
    assert "polygon" not in svg_chart("t", [line])


def test_bands_are_behind_all_lines() -> None:
    lines = [Series(name, [0, 1], [1, 2], low=[0, 1], high=[2, 3]) for name in "ab"]
    tags = re.findall("<(polygon|polyline)", svg_chart("t", lines))
    assert tags == ["polygon", "polygon", "polyline", "polyline"]


def test_members_are_thin_lines() -> None:
    line = Series("a", [0, 1], [1, 2], members=[([0, 1], [0, 1]), ([0, 2], [2, 9])])
    found = list(ElementTree.fromstring(svg_chart("t", [line])).iter(f"{SPACE}polyline"))
    assert [each.get("stroke-width") for each in found] == ["1", "1", "2"]
    assert len({each.get("stroke") for each in found}) == 1
    x, y = axes_of([line])
    assert (x.high, y.low, y.high) == (2, 0, 10)


def test_a_wide_band_does_not_flatten_the_lines() -> None:
    line = Series("a", [0, 1], [0, 10], low=[-1000, -1000], high=[1000, 1000])
    _, y = axes_of([line])
    assert (y.low, y.high) == (-5, 15)
    _, y = axes_of([line], (0, 12))
    assert (y.low, y.high) == (0, 15)
    svg = ElementTree.fromstring(svg_chart("t", [line]))
    [band] = svg.iter(f"{SPACE}polygon")
    ticks = [
        float(str(each.get("y"))) - 4 for each in svg.iter(f"{SPACE}text") if each.text == "-5"
    ]
    assert max(y for _, y in points(band)) == pytest.approx(ticks[0], abs=0.1)


@given(curves, st.integers(40, 120), st.booleans())
def test_text_fits_and_is_ascii_where_it_must(
    values: list[float], width: int, is_ascii: bool
) -> None:
    rows = text_chart(of(values), x_label="steps", width=width, is_ascii=is_ascii)
    assert len(rows) == 9
    assert all(len(row) <= width for row in rows)
    assert all(row == row.rstrip() for row in rows)
    assert rows[-1].endswith(" steps")
    assert all(row.isascii() for row in rows) or not is_ascii
    marks = r"\*" if is_ascii else r"[\u2801-\u28ff]"
    assert re.search(marks, "\n".join(rows[:-2]))


def test_a_rising_curve_in_text() -> None:
    rows = text_chart(of([0.0, 1.0, 2.0, 3.0, 4.0]), width=40, is_ascii=True)
    assert rows[0].startswith("4 |")
    assert rows[3].startswith("2 |")
    assert rows[6].startswith("0 |")
    assert [row.index("*") for row in rows[:7]] == sorted(
        (row.index("*") for row in rows[:7]), reverse=True
    )
    columns = list(zip(*(f"{row:<40}"[3:] for row in rows[:7]), strict=True))
    assert all("*" in column for column in columns)  # without gaps


@pytest.mark.parametrize("value", [0.0, -3.5, 1e20, 1e-12])
def test_a_flat_curve_lies_in_the_middle(value: float) -> None:
    rows = text_chart(of([value] * 9), width=60)
    assert "⠤" in rows[3] or "⠒" in rows[3] or "⠉" in rows[3] or "⣀" in rows[3]
    assert all("⠤" not in rows[i] for i in (0, 1, 5, 6))


def test_no_points_are_no_rows() -> None:
    assert text_chart(Series("a", [], [])) == []
    assert "no points" in svg_chart("t", [Series("a", [], [])])
