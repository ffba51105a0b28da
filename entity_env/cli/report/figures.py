"""Charts that fill the width of a page, with texts of one size at every width.

Lines are stretched, texts are not: positions are percentages of the drawing. Titles and legends are
HTML, which wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

import numpy as np

from entity_env.cli.display.console import plain
from entity_env.cli.report.curve_words import CurveWords, curve_words
from entity_env.views.chart import Axis, Plot, Series, axes_of, line_style, svg_lines

_SVG: Final = "http://www.w3.org/2000/svg"
_SIDE: Final = 1000
"""Width and height of the stretched drawing."""
_LARGE: Final = 320
_SMALL: Final = 150
_LARGE_TICKS: Final = 8
_SMALL_TICKS: Final = 4


class Mark(NamedTuple):
    """A place on a line that opens something.

    Args:
        x: position along the line.
        text: its name.
        href: address to open on a click.
    """

    x: float
    text: str
    href: str


def figure(
    name: str,
    lines: Sequence[Series],
    *,
    marks: Sequence[Sequence[Mark]] = (),
    words: CurveWords | None = None,
    is_large: bool = False,
) -> str:
    """A chart of a curve as HTML.

    Args:
        name: of the curve.
        marks: of each line.
        words: description of the curve; None = look it up.
        is_large: with a legend.
    """
    words = words or curve_words(name)
    if not is_large and sum(each.has_band for each in lines) > 1:  # too small for several
        lines = [each.without_band() for each in lines]
    drawn = [each for each in lines if not each.is_empty]
    title = words.words[:1].upper() + words.words[1:]
    about = [f"<code>{escape(plain(name))}</code>"] if words.words != plain(name) else []
    if words.normal:
        shaded = " (shaded)" if words.has_range and drawn else ""
        about.append(f"normal: {escape(words.normal)}{shaded}")
    parts = [
        f'<figure class="{"large" if is_large else "one"}">',
        f"<figcaption><strong>{escape(title)}</strong>",
        f'<span class="about">{", ".join(about)}</span></figcaption>',
        *(_legend(lines) if is_large else ()),
    ]
    x, y = axes_of(drawn, words.bounds, _LARGE_TICKS if is_large else _SMALL_TICKS)
    links = list(_marks(lines, marks, x, y))
    # An element with links inside is not an image.
    role, label = "group" if links else "img", escape(f"{title}: {_ends(lines)}")
    size = f'width="100%" height="{_LARGE if is_large else _SMALL}"'
    parts += [
        f'<div class="plot"><svg xmlns="{_SVG}" {size} role="{role}" aria-label="{label}">',
        *_frame(x, y),
        *_drawing(lines, words, Plot(x, y, 0, 0, _SIDE, _SIDE)),
        *links,
    ]
    if not drawn:
        parts.append('<text x="50%" y="50%" text-anchor="middle">no points</text>')
    return "\n".join([*parts, "</svg></div></figure>"])


def _drawing(lines: Sequence[Series], words: CurveWords, plot: Plot) -> Iterable[str]:
    """The lines and the normal range, stretched to the size of the drawing around them."""
    box = f'viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none"'
    yield f'<svg width="100%" height="100%" {box}>'
    if words.has_range:
        ends = np.clip((words.high, words.low), plot.y.low, plot.y.high).tolist()
        top, bottom = (plot.at(plot.x.low, value)[1] for value in ends)
        height = f"{bottom - top:.1f}"
        yield f'<rect class="good" y="{top:.1f}" width="{_SIDE}" height="{height}"/>'
    shown = [(i, each.thinned()) for i, each in enumerate(lines) if not each.is_empty]
    yield from svg_lines(reversed(shown), plot)
    yield "</svg>"


def _frame(x: Axis, y: Axis) -> Iterable[str]:
    """Axes, ticks and a horizontal line for each tick of `y`, in percent."""
    for value, label in y.ticks:
        at = f"{100 * (1 - y.share(value)):.2f}%"
        yield f'<line class="grid" x2="100%" y1="{at}" y2="{at}"/>'
        yield f'<text y="{at}" dx="-8" dy="0.35em" text-anchor="end">{escape(label)}</text>'
    yield '<line class="axis" x2="100%" y1="100%" y2="100%"/>'
    for value, label in x.ticks:
        share = x.share(value)
        at = f"{100 * share:.2f}%"
        yield f'<text x="{at}" y="100%" dy="1.5em" text-anchor="middle">{escape(label)}</text>'
    yield '<text class="unit" x="100%" y="100%" dy="2.9em" text-anchor="end">decisions</text>'


def _marks(
    lines: Sequence[Series], marks: Sequence[Sequence[Mark]], x: Axis, y: Axis
) -> Iterable[str]:
    """A triangle on the line for each mark, as a link."""
    for line, own in zip(lines, marks, strict=False):
        for mark in own if len(line.x) else ():
            at = min(max(mark.x, line.x[0]), line.x[-1])
            up = float(np.clip(np.interp(at, line.x, line.y), y.low, y.high))
            place = f'x="{100 * x.share(at):.2f}%" y="{100 * (1 - y.share(up)):.2f}%"'
            text = escape(mark.text)
            yield (
                f'<a href="{escape(mark.href)}" aria-label="{text}"><svg {place}>'
                f'<circle r="11"/><path d="M-3.5-5L5.5 0L-3.5 5Z"/><title>{text}</title></svg></a>'
            )


def _legend(lines: Sequence[Series]) -> Iterable[str]:
    """Name, dashes and color of each line, and its last value."""
    yield '<ul class="legend">'
    for i, line in enumerate(lines):
        style = line_style(i, line)
        value = "" if line.is_dashed else f' <span class="last">({_last(line)})</span>'
        yield (
            f'<li><svg xmlns="{_SVG}" width="28" height="10" aria-hidden="true">'
            f'<line x1="1" y1="5" x2="27" y2="5" stroke-width="3" {style}/></svg>'
            f"{escape(line.name)}{value}</li>"
        )
    yield "</ul>"


def _last(line: Series) -> str:
    """The last values, in words."""
    parts = []
    if len(line.y):
        parts.append(_number(line.y[-1]) + (" in training" if line.dots else ""))
    if line.dots is not None and len(line.dots.y):
        parts.append(f"{_number(line.dots.y[-1])} in the last evaluation")
    return ", ".join(parts) or "no points"


def _ends(lines: Sequence[Series]) -> str:
    """The chart for people who do not see it."""
    found = []
    for line in lines:
        if line.is_dashed or not len(line.y):
            found.append(f"{line.name} {_last(line)}")
        else:
            found.append(f"{line.name} from {_number(line.y[0])} to {_last(line)}")
    return "; ".join(found)


def _number(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= abs(value) < 1000 or not value else f"{value:,.4g}"
