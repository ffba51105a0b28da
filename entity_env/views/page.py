"""`page`: an animation as one HTML file, `player.html` with embedded data."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, Final

from entity_env.views.scene import Shape

_PLAYER: Final = Path(__file__).with_name("player.html")
_AS_THEY_ARE: Final = {str, int, bool, type(None)}
_KINDS: Final = {"rect": "r", "circle": "c", "polygon": "p", "line": "l", "text": "t", "image": "i"}


def page(title: str, picture: str, data: object) -> str:
    """The page of an animation; texts from games are data, never markup.

    Shows the SVG `picture` if scripts are disabled; `data` is the JSON-compatible input of
    `player.html`.
    """
    text = json.dumps(_rounded(data), separators=(",", ":")).encode()
    parts = {
        "TITLE": escape(title),
        "STILL": picture,
        "DATA": base64.b64encode(gzip.compress(text, 9, mtime=0)).decode(),
    }
    return re.sub("@(TITLE|STILL|DATA)@", lambda found: parts[found[1]], template())


def template(path: Path = _PLAYER) -> str:
    """A page without data: its file, with `shapes.js` in place of `@SHAPES@`."""
    shapes = Path(__file__).with_name("shapes.js").read_text(encoding="utf-8")
    return path.read_text(encoding="utf-8").replace("@SHAPES@", shapes)


def as_iframe(html: str, height: int = 620) -> str:
    """A page in a sandboxed frame, for example in a notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(html)}"></iframe>'


def shapes_as_json(shapes: Iterable[Shape]) -> list[Any]:
    """Shapes in the format of `shapes.js`, with at most four decimals."""
    return [_rounded(shape_fields(shape)) for shape in shapes]


def shape_fields(shape: Shape) -> list[Any]:
    """Kind, x, y, size, fill, stroke, width, entity, rotation, radius, text, anchor, points.

    Empty fields at the end are omitted, except for the first eight.
    """
    fields = [
        _KINDS[shape.kind],
        *shape.center,
        shape.size,
        shape.fill,
        shape.stroke,
        shape.width,
        shape.of,
        shape.rotate,
        shape.radius,
        shape.text,
        shape.anchor[0] if shape.kind == "text" else "",
        shape.points if shape.kind in ("polygon", "line") else (),
    ]
    while fields[-1] in (0, "", ()) and len(fields) > 8:
        fields.pop()
    return fields


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """At most four decimals, and None for numbers that are not finite, or 1e15 and beyond."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        if not -1e15 < value < 1e15:
            return None
        value = round(value, 4)
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, Iterable)):
        return [_rounded(each) for each in value]
    return value
