"""Charts of numbers: axes and lines with bands as SVG, and a single line as terminal text."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#737373")
"""Colors that colorblind people can distinguish (Okabe and Ito 2008), with a contrast of 3:1 or
more on white."""
DARK_COLOURS: Final = ("#56B4E9", "#E69F00", "#2FBF95", "#D997B9", "#A3A3A3")
"""The colors used instead of `COLOURS` on a dark page."""

_DASHES: Final = ("", "6 3", "2 2", "8 3 2 3")
_UNITS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_NUM_TICKS: Final = 5
_LEAST_SPAN: Final = 1e-9
_NEAR_ZERO: Final = 0.3
_MARGINS: Final = (56.0, 16.0, 34.0, 44.0)
_ROW: Final = 18
_MAX_POINTS: Final = 400
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Dots of a braille character, by column and row."""
_BLANK: Final = 0x2800


@dataclass(frozen=True)
class Axis:
    """Range of an axis, with its ticks.

    Args:
        low, high: the ends; `low < high`.
        ticks: values and labels.
    """

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    @classmethod
    def around(
        cls, values: Iterable[float], *, is_whole: bool = False, num_ticks: int = _NUM_TICKS
    ) -> Axis:
        """The axis from the smallest to the largest value, extended to round ends.

        Args:
            values: finite, below 1e150; if empty, the axis is 0 to 1.
            is_whole: end at the values, unless they are equal.
            num_ticks: approximate number of parts into which the ticks divide the axis.
        """
        found = list(values) or [0.0, 1.0]
        low, high = float(min(found)), float(max(found))
        size = max(abs(low), abs(high))
        if high - low <= _LEAST_SPAN * size or low == high:
            low, high = low - max(0.5, 0.1 * size), high + max(0.5, 0.1 * size)
        step = _round_step((high - low) / num_ticks)
        begin, end = math.floor(low / step), math.ceil(high / step)
        ticks = [(i * step, _label(i * step, step, size)) for i in range(begin, end + 1)]
        if not is_whole:
            return cls(begin * step, end * step, ticks)
        return cls(low, high, [each for each in ticks if low <= each[0] <= high])

    def share(self, value: float) -> float:
        """Position of a value: 0 at the low end, 1 at the high."""
        return (value - self.low) / (self.high - self.low)


class Points(NamedTuple):
    """Points of a chart, each with an interval.

    Args:
        x, y: `(num_points,)` finite, `x` increasing.
        low, high: `(num_points,)` bounds; NaN = unknown.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class Series:
    """A line of a chart, with its band, the lines behind it, and dots.

    Args:
        x, y: `(num_points,)` finite, `x` increasing.
        low, high: `(num_points,)` bounds of the band around it, NaN = unknown; None = no band.
        members: lines that this one summarizes, drawn thin: `x` and `y` of each, as above.
        dots: drawn in the color of the line, with their intervals.
        is_dashed: draw the line dashed, in the color of text, for example as a reference.
    """

    def __init__(
        self,
        name: str,
        x: ArrayLike,
        y: ArrayLike,
        *,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
        members: Sequence[tuple[ArrayLike, ArrayLike]] = (),
        dots: Points | None = None,
        is_dashed: bool = False,
    ) -> None:
        self.name = name
        self.is_dashed = is_dashed
        self.x = np.asarray(x, np.float64)
        self.y = np.asarray(y, np.float64)
        self.low = self.y if low is None else np.asarray(low, np.float64)
        self.high = self.y if high is None else np.asarray(high, np.float64)
        self.has_band = low is not None
        self.members = tuple(Series(name, *each) for each in members)
        self.dots = dots

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return not len(self.x) and (self.dots is None or not len(self.dots.x))

    @property
    def all_x(self) -> NDArray[np.float64]:
        """Positions of everything that is drawn along `x`."""
        dots = [] if self.dots is None else [self.dots.x]
        return np.concatenate([self.x, *(each.x for each in self.members), *dots])

    @property
    def all_y(self) -> NDArray[np.float64]:
        """Heights of everything that is drawn, without unknown bounds.

        Bounds may be far away, so they count only up to half of the values' span from the values.
        """
        dots = Points(*np.zeros((4, 0))) if self.dots is None else self.dots
        lines = np.concatenate([self.y, *(each.y for each in self.members), dots.y])
        band = np.concatenate([self.low, self.high, dots.low, dots.high])
        band = band[np.isfinite(band)]
        if not len(band) or not len(lines):
            return lines
        room = float(np.ptp(lines)) / 2 or math.inf
        low, high = float(lines.min()) - room, float(lines.max()) + room
        inside: NDArray[np.float64] = np.clip(band, low, high)
        return np.concatenate([lines, inside])

    def without_band(self) -> Series:
        """The line without its band."""
        found = copy.copy(self)
        found.low, found.high, found.has_band = self.y, self.y, False
        return found

    def thinned(self, num_points: int = _MAX_POINTS) -> Series:
        """The line with at most `num_points` points, each the mean of a stretch; dots are kept."""
        if len(self.x) <= num_points and not self.members:
            return self
        thin = copy.copy(self)
        thin.members = tuple(each.thinned(num_points) for each in self.members)
        if len(self.x) <= num_points:
            return thin
        starts = np.linspace(0, len(self.x), num_points, endpoint=False).astype(np.int64)
        sizes = np.diff(starts, append=len(self.x))

        def means(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.add.reduceat(values, starts) / sizes

        thin.x, thin.y = means(self.x), means(self.y)
        thin.low, thin.high = means(self.low), means(self.high)
        return thin


class Plot:
    """A box in an SVG, between two axes, with the edges `left`, `top`, `right` and `bottom`."""

    def __init__(
        self, x: Axis, y: Axis, left: float, top: float, right: float, bottom: float
    ) -> None:
        self.x, self.y = x, y
        self.left, self.top, self.right, self.bottom = left, top, right, bottom

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self.left + self.x.share(x) * (self.right - self.left),
            self.bottom - self.y.share(y) * (self.bottom - self.top),
        )

    def path(self, x: Iterable[float], y: Iterable[float]) -> str:
        points = (self.at(*each) for each in zip(x, y, strict=True))
        return " ".join(f"{across:.1f},{up:.1f}" for across, up in points)

    def frame(self) -> list[str]:
        """The axes with ticks and labels, and a horizontal line per tick of `y`."""
        left, bottom, right = f"{self.left:g}", self.bottom, f"{self.right:g}"
        line = 'stroke="currentColor" stroke-opacity'
        parts = [f'<path d="M{left} {self.top:g}V{bottom:g}H{right}" fill="none" {line}="0.5"/>']
        for value, label in self.y.ticks:
            _, at = self.at(self.x.low, value)
            parts.append(f'<path d="M{left} {at:.1f}H{right}" {line}="0.15"/>')
            end = 'text-anchor="end"'
            parts.append(f'<text x="{self.left - 6:g}" y="{at + 4:.1f}" {end}>{label}</text>')
        for value, label in self.x.ticks:
            at, _ = self.at(value, self.y.low)
            middle = 'text-anchor="middle"'
            parts.append(f'<path d="M{at:.1f} {bottom:g}v4" {line}="0.5"/>')
            parts.append(f'<text x="{at:.1f}" y="{bottom + 17:g}" {middle}>{escape(label)}</text>')
        return parts


def svg_begin(
    width: float, height: float, background: str = "white", *, font_size: int = 11
) -> str:
    """First tag of an SVG, and its background; without `background`, the text has the color of the
    surrounding page."""
    colour = ' color="#334155"' if background else ""
    ground = f'\n<rect width="{width:g}" height="{height:g}" fill="{background}"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" '
        f'font-size="{font_size}"{colour} fill="currentColor">{ground if background else ""}'
    )


def svg_chart(
    title: str,
    lines: Sequence[Series],
    *,
    x_label: str = "",
    width: int = 720,
    height: int = 360,
    background: str = "white",
    has_legend: bool = True,
) -> str:
    """A chart of lines and their bands, as SVG.

    The height excludes the legend below. Lines cycle through `COLOURS`, then repeat them dashed.
    """
    shown = {i: each.thinned() for i, each in enumerate(lines) if not each.is_empty}
    legend = list(enumerate(lines)) if has_legend else []
    left, right, top, below = _MARGINS
    plot = Plot(*axes_of([*shown.values()]), left, top, width - right, height - below)
    middle = (plot.left + plot.right) / 2
    parts = [
        svg_begin(width, height + _ROW * len(legend), background),
        f'<text x="{left:g}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
        *plot.frame(),
        f'<text x="{middle:g}" y="{height - 8}" text-anchor="middle" opacity="0.7">'
        f"{escape(x_label)}</text>",
    ]
    if not shown:
        parts.append(
            f'<text x="{middle:g}" y="{(plot.top + plot.bottom) / 2:g}" text-anchor="middle" '
            'opacity="0.7">no points</text>'
        )
    parts += svg_lines(shown.items(), plot)
    for i, each in legend:
        at = height + _ROW * i + 2
        parts.append(
            f'<path d="M{left:g} {at}h24" stroke-width="2.5" {line_style(i, each)}/>'
            f'<text x="{left + 32:g}" y="{at + 4}">{escape(each.name)}</text>'
        )
    return "\n".join((*parts, "</svg>\n"))


def axes_of(
    lines: Sequence[Series],
    bounds: tuple[float, float] = (-math.inf, math.inf),
    num_ticks: int = _NUM_TICKS,
) -> tuple[Axis, Axis]:
    """The axes around everything that lines draw, with heights limited to `bounds`.

    The x axis starts at 0 if the lines start near 0, compared with where they end.

    Args:
        num_ticks: approximate number of parts into which the ticks divide the y axis.
    """
    x = np.concatenate([np.zeros(0), *(each.all_x for each in lines)])
    ends = [float(x.min()), float(x.max())] if len(x) else []
    if ends and 0 < ends[0] < _NEAR_ZERO * ends[1]:
        ends[0] = 0.0
    y = np.clip(np.concatenate([np.zeros(0), *(each.all_y for each in lines)]), *bounds)
    return Axis.around(ends, is_whole=True), Axis.around(y.tolist(), num_ticks=num_ticks)


def svg_lines(lines: Iterable[tuple[int, Series]], plot: Plot) -> list[str]:
    """Several lines with their numbers, see `svg_line`: first all bands, then all lines."""
    lines = list(lines)
    bands = [_band(line, i, plot) for i, line in lines if line.has_band]
    return bands + [part for i, line in lines for part in _strokes(line, i, plot)]


def svg_line(line: Series, number: int, plot: Plot) -> list[str]:
    """A line with its band, members and dots, in the color of its number.

    An `is_dashed` line has the text color. Everything is drawn as lines and areas (a dot is a line
    of almost no length), so a page can stretch it.
    """
    return svg_lines([(number, line)], plot)


def _strokes(line: Series, number: int, plot: Plot) -> list[str]:
    name = f"<title>{escape(line.name)}</title>"
    parts, style = [], line_style(number, line)
    for each in line.members:
        points = plot.path(each.x, each.y)
        parts.append(f'<polyline points="{points}" stroke-width="1" opacity="0.5" {style}/>')
    if len(line.x) == 1:
        parts.append(_dot(plot, line.x[0], line.y[0], number, name))
    elif len(line.x):
        parts.append(
            f'<polyline points="{plot.path(line.x, line.y)}" stroke-width="2" '
            f'stroke-linejoin="round" {style}>{name}</polyline>'
        )
    for x, y, low, high in zip(*(line.dots or ()), strict=True):
        interval = ""
        if math.isfinite(low) and math.isfinite(high):
            ends = (min(max(each, plot.y.low), plot.y.high) for each in (low, high))
            (across, bottom), (_, top) = (plot.at(x, each) for each in ends)
            parts.append(
                f'<path d="M{across:.1f} {bottom:.1f}V{top:.1f}" stroke-width="1.5" '
                f'stroke="{_colour(number)}"/>'
            )
            interval = f" ({low:.4g} to {high:.4g})"
        text = f"{line.name}, at {x:,.0f}: {y:.4g}{interval}"
        parts.append(_dot(plot, x, y, number, f"<title>{escape(text)}</title>"))
    return parts


def _band(line: Series, number: int, plot: Plot) -> str:
    """The areas between the bounds that are known, inside the plot."""
    is_known = np.isfinite(line.low) & np.isfinite(line.high)
    low, high = (np.clip(each, plot.y.low, plot.y.high) for each in (line.low, line.high))
    ends = np.flatnonzero(np.diff(np.concatenate([[0], is_known, [0]])))
    areas = []
    for begin, end in ends.reshape(-1, 2).tolist():
        x, there, back = line.x[begin:end], high[begin:end], low[begin:end]
        points = plot.path(x, there) + " " + plot.path(x[::-1], back[::-1])
        areas.append(f'<polygon points="{points}" fill="{_colour(number)}" fill-opacity="0.2"/>')
    return "".join(areas)


def _dot(plot: Plot, x: float, y: float, number: int, title: str) -> str:
    across, up = plot.at(x, y)
    return (
        f'<path d="M{across:.1f} {up:.1f}h0.01" stroke-width="7" stroke-linecap="round" '
        f'stroke="{_colour(number)}">{title}</path>'
    )


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def line_style(number: int, line: Series) -> str:
    """Attributes of a line of this number: color and dashes."""
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    dash = dash or _DASHES[1] * line.is_dashed
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    colour = "currentColor" if line.is_dashed else _colour(number)
    return f'stroke="{colour}" fill="none"{dashes}'


# ------------------------------------------------------------------ as text


def text_chart(
    line: Series, *, x_label: str = "", width: int = 78, height: int = 7, is_ascii: bool = False
) -> list[str]:
    """A chart of one line in rows of braille characters or `*`; the last two rows are the x axis.

    No rows if the line has no points.

    Args:
        x_label: text after the last number of the x axis.
        width: characters per row, 40 or more.
        height: rows of the curve, odd, 3 or more.
    """
    if not len(line.x):
        return []
    y = Axis.around((float(line.y.min()), float(line.y.max())), is_whole=True)
    x = Axis.around((float(line.x[0]), float(line.x[-1])), is_whole=True)
    texts = {
        row: _label(value, (y.high - y.low) / 100, max(abs(y.low), abs(y.high)))
        for row, value in ((0, y.high), (height // 2, (y.low + y.high) / 2), (height - 1, y.low))
    }
    margin = max(map(len, texts.values()))
    columns = width - margin - 2
    bar, corner, dash = ("|", "+", "-") if is_ascii else ("┤", "└", "─")
    rows = [
        f"{texts.get(row, ''):>{margin}} {bar if row in texts or is_ascii else '│'}{cells}".rstrip()
        for row, cells in enumerate(_cells(line, x, y, columns, height, is_ascii=is_ascii))
    ]
    begin, end = (_label(each, (x.high - x.low) / 100, x.high) for each in line.x[[0, -1]].tolist())
    begin = begin if len(line.x) > 1 else ""
    end = f"{end} {x_label}".rstrip()
    gap = " " * (margin + 2)
    return [
        *rows,
        f"{' ' * margin} {corner}{dash * columns}",
        f"{gap}{begin}{end:>{max(1, columns - len(begin))}}",
    ]


def _cells(
    line: Series, x: Axis, y: Axis, columns: int, height: int, *, is_ascii: bool
) -> list[str]:
    across, down = (1, 1) if is_ascii else (2, 4)
    num_dots, num_rows = columns * across, height * down
    line = line.thinned(num_dots)
    dots = np.zeros((num_rows, num_dots), np.bool_)
    first, last = (round(x.share(each) * (num_dots - 1)) for each in (line.x[0], line.x[-1]))
    places = x.low + np.arange(first, last + 1) / max(1, num_dots - 1) * (x.high - x.low)
    heights = np.interp(places, line.x, line.y)
    at = [min(num_rows - 1, int((1 - y.share(each)) * num_rows)) for each in heights.tolist()]
    before = at[0]
    for column, row in enumerate(at, first):
        begin, end = (
            (row, before) if row == before else (min(row, before + 1), max(row, before - 1))
        )
        dots[min(begin, row) : max(end, row) + 1, column] = True
        before = row
    if is_ascii:
        return ["".join("*" if dot else " " for dot in row) for row in dots]
    found = np.full((height, columns), _BLANK)
    for i in range(2):
        for j in range(4):
            found += dots[j::4, i::2] * _DOTS[i][j]
    return ["".join(map(chr, row)).replace(chr(_BLANK), " ") for row in found]


def _round_step(span: float) -> float:
    """The smallest number from `span` on that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(span))
    return next((k * power for k in (1, 2, 5) if k * power >= span), 10 * power)


def _label(value: float, step: float, size: float) -> str:
    """A number with enough digits to distinguish values one `step` apart: 0.05, 20k, 1.5M.

    The unit is that of `size`, the largest number of the axis.
    """
    if not 1e-4 <= size < 1e15:
        return f"{value:.3g}"
    unit, name = next(((u, n) for u, n in _UNITS if size >= max(u, 1e4)), (1.0, ""))
    digits = max(0, math.ceil(-math.log10(step / unit) - 1e-9))
    text = f"{value / unit:.{min(digits, 6)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("0", "-0") else f"{text}{name}"
