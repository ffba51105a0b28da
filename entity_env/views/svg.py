"""Shapes as SVG: a still, and an animation with CSS only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from entity_env.lazy_imports import late_module
from entity_env.views.scene import BASELINE, Point, Shape, rgba

if TYPE_CHECKING:
    import html as markup
else:  # its table of entities is slow to load in a page
    markup = late_module("html")

_PIXELS: Final = 480


def still_svg(size: Point, shapes: Sequence[Shape], title: str) -> str:
    """One picture, also for dark pages; `size` is in units of the game."""
    pairs: dict[tuple[str, str], int] = {}
    body = _elements(shapes, pairs)
    style = _dark_style(pairs)
    return _document(size, f"<style>{style}</style>{body}" if style else body, title)


def animated_svg(
    size: Point,
    ground: Sequence[Shape],
    shapes: Sequence[Shape],
    stills: Sequence[Sequence[int]],
    title: str,
    *,
    fps: float,
    end_s: float,
) -> str:
    """Pictures, one after another; only the middle one if the user prefers reduced motion.

    Args:
        ground: drawn in all pictures.
        shapes: each shape once.
        stills: the pictures, as indices of `shapes`.
        fps: pictures per second.
        end_s: additional seconds for the last picture.
    """
    num, frame_s = len(stills), 1 / fps
    total_s = num * frame_s + end_s
    first, last = (100 * length / total_s for length in (frame_s, frame_s + end_s))
    style = (
        f"g{{visibility:hidden;animation:f {total_s:.2f}s step-end infinite}}"
        f"#e{{animation-name:e}}{_shown('f', first)}{_shown('e', last)}"
        "@media(prefers-reduced-motion){g,#e{animation:none}.m{visibility:visible}}"
    )
    # Shapes of different entities may be identical.
    ids: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    id_of = [ids.setdefault(_element(shape, pairs), len(ids)) for shape in shapes]
    below = _elements(ground, pairs)
    symbols = [element.replace(" ", f' id="s{i}" ', 1) for element, i in ids.items()]
    style += _dark_style(pairs)
    parts = [f"<style>{style}</style><defs>", *symbols, "</defs>", below]
    for k, still in enumerate(stills):
        name = (' id="e"' if k == num - 1 else "") + (' class="m"' if k == num // 2 else "")
        uses = "".join(f'<use href="#s{id_of[i]}"/>' for i in still)
        parts.append(f'<g{name} style="animation-delay:{k * frame_s:.3f}s">{uses}</g>')
    return _document(size, "".join(parts), title)


def _decimals(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def _shown(name: str, percent: float) -> str:
    return (
        f"@keyframes {name}{{0%{{visibility:visible}}{min(percent, 100):.4f}%"
        f"{{visibility:{'visible' if percent >= 100 else 'hidden'}}}}}"
    )


def _document(size: Point, body: str, title: str) -> str:
    width, height, wide, high = (
        _decimals(each * scale) for scale in (1, _PIXELS / max(size)) for each in size
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{wide}" height="{high}" role="img">'
        f"<title>{markup.escape(title)}</title>{body}</svg>"
    )


def _dark_style(pairs: Mapping[tuple[str, str], int]) -> str:
    """Rules for the classes of fills and strokes that differ on dark pages."""
    rules = []
    for colors, i in pairs.items():
        paints = zip(("fill", "stroke"), colors, strict=True)
        parts = [_dark_rule(name, color) for name, color in paints if " " in color]
        rules.append(f".d{i}{{{';'.join(parts)}}}")
    return f"@media(prefers-color-scheme:dark){{{''.join(rules)}}}" if rules else ""


def _dark_rule(name: str, color: str) -> str:
    red, green, blue, alpha = rgba(color, dark=True)
    opacity = f";{name}-opacity:{_decimals(alpha / 255)}" if alpha < 255 else ""
    return f"{name}:#{red:02x}{green:02x}{blue:02x}{opacity}"


def _elements(shapes: Iterable[Shape], pairs: dict[tuple[str, str], int]) -> str:
    """All elements; cells of the same color are one path, which is shorter."""
    parts = []
    for color, group in groupby(shapes, _cell_color):
        run = list(group)
        if not color or len(run) == 1:
            parts += [_element(shape, pairs) for shape in run]
            continue
        boxes = ((*shape.center, *shape.size) for shape in run)
        cells = (map(_decimals, (x - w / 2, y - h / 2, w, h, -w)) for x, y, w, h in boxes)
        path = "".join("M{} {}h{}v{}h{}z".format(*cell) for cell in cells)
        parts.append(f'<path d="{path}"{_paints(run[0], pairs)}/>')
    return "".join(parts)


def _cell_color(shape: Shape) -> str:
    """The color of an upright, opaque rectangle without a border, else ""."""
    is_plain = shape.kind == "rect" and not (shape.stroke or shape.rotate or shape.radius)
    if not is_plain or not shape.fill:
        return ""
    alphas = {rgba(shape.fill, dark=is_dark)[3] for is_dark in (False, True)}
    return shape.fill if alphas == {255} else ""


def _paints(shape: Shape, pairs: dict[tuple[str, str], int]) -> str:
    """Attributes of the fill and the stroke."""
    paint = _paint("fill", shape.fill, always=True) + _paint("stroke", shape.stroke)
    if " " in shape.fill or " " in shape.stroke:
        number = pairs.setdefault((shape.fill, shape.stroke), len(pairs))
        paint += f' class="d{number}"'
    return paint


def _element(shape: Shape, pairs: dict[tuple[str, str], int]) -> str:
    """The element; `pairs` numbers the colors that differ on dark pages."""
    x, y = (_decimals(value) for value in shape.center)
    paint = _paints(shape, pairs)
    if shape.stroke:
        paint += f' stroke-width="{_decimals(shape.width)}" stroke-linejoin="round"'
    if shape.rotate:
        paint += f' transform="rotate({_decimals(shape.rotate)} {x} {y})"'
    match shape.kind:
        case "circle":
            return f'<circle cx="{x}" cy="{y}" r="{_decimals(shape.size[0])}"{paint}/>'
        case "rect" | "image":
            (cx, cy), (width, height) = shape.center, shape.size
            box = (
                f'x="{_decimals(cx - width / 2)}" y="{_decimals(cy - height / 2)}" '
                f'width="{_decimals(width)}" height="{_decimals(height)}"'
            )
            if shape.kind == "image":
                return f'<image {box} preserveAspectRatio="none" href="{shape.text}"{paint}/>'
            corner = f' rx="{_decimals(shape.radius)}"' if shape.radius else ""
            return f"<rect {box}{corner}{paint}/>"
        case "text":
            font = f'font-size="{_decimals(shape.size[0])}" font-family="sans-serif"'
            anchor = f'text-anchor="{shape.anchor}" dy="{BASELINE}em"'
            return (
                f'<text x="{x}" y="{y}" {font} {anchor}{paint}>{markup.escape(shape.text)}</text>'
            )
    name = "polygon" if shape.kind == "polygon" else "polyline"
    return f'<{name} points="{_path(shape.points)}"{paint}/>'


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{_decimals(x)},{_decimals(y)}" for x, y in points)


def _paint(name: str, color: str, *, always: bool = False) -> str:
    if not color:
        return f' {name}="none"' if always else ""
    red, green, blue, alpha = rgba(color)
    opacity = f' {name}-opacity="{_decimals(alpha / 255)}"' if alpha < 255 else ""
    return f' {name}="#{red:02x}{green:02x}{blue:02x}"{opacity}'
