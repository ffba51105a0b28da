"""`page`: an animation as one HTML file: `page.html`, with its data and `player.html` packed."""

from __future__ import annotations

import base64
import gzip
import json
import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from entity_env.lazy_imports import late_module
from entity_env.views.scene import Shape

if TYPE_CHECKING:
    import html as markup
else:  # its table of entities is slow to load in a page
    markup = late_module("html")

_PAGE: Final = Path(__file__).with_name("page.html")
_PLAYER: Final = Path(__file__).with_name("player.html")
_AS_THEY_ARE: Final = {str, int, bool, type(None)}
_KINDS: Final = {"rect": "r", "circle": "c", "polygon": "p", "line": "l", "text": "t", "image": "i"}

_SOURCES: Final = re.compile(
    r"(?<=<script>)(.*?)(?=</script>)|(?<=<style>)(.*?)(?=</style>)", re.DOTALL
)
_ANY: Final = re.compile(r".", re.S)
_GAP: Final = re.compile(r"\s|//|/\*")
_WORD: Final = re.compile(r"[\w$#]")
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|[\w$\#]+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|.""", re.S
)
_REGEX: Final = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/\w*")
_TEMPLATE: Final = re.compile(r"[`}](?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{)", re.S)
_ENDS: Final = frozenset(string.ascii_letters + string.digits + "_$)]}\"'`")
"""Last characters of tokens that may end a statement, and that a division may follow."""
_BEGINS: Final = frozenset(string.ascii_letters + string.digits + "_$#([{\"'`+-!~/")
"""First characters of tokens that may begin a statement."""
_BEFORE_REGEX: Final = {"return", "typeof", "case", "in", "of", "void", "delete", "await", "yield"}


def page(title: str, picture: str, data: object) -> str:
    """The page of an animation; texts from games are data, never markup.

    Shows the SVG `picture` if scripts are disabled; `data` is the JSON-compatible input of
    `player.html`.
    """
    text = json.dumps(_rounded(data), separators=(",", ":"))
    parts = {
        "TITLE": markup.escape(title),
        "STILL": picture,
        "DATA": _packed(text),
        "CODE": _player(),
    }
    return re.sub("@(TITLE|STILL|DATA|CODE)@", lambda found: parts[found[1]], template(_PAGE))


def player_sources() -> str:
    """The scripts and styles of the page of any animation, for its Content-Security-Policy."""
    return template(_PAGE) + template(_PLAYER)


def content_policy(html: str, **more: str) -> str:
    """A Content-Security-Policy that allows only the scripts and styles of a page, by hash.

    Also pictures embedded as data.

    Args:
        more: further sources of a kind, such as `script="'self'"`.
    """
    sources = {"default": "'none'", "base-uri": "'none'", "form-action": "'none'", "img": "data:"}
    for name in ("script", "style"):
        found = re.findall(f"<{name}>(.*?)</{name}>", html, re.DOTALL)
        hashes = [base64.b64encode(sha256(each.encode()).digest()).decode() for each in found]
        listed = [*(f"'sha256-{each}'" for each in hashes), more.pop(name, "")]
        if any(listed):
            sources[name] = " ".join(filter(None, listed))
    return "; ".join(
        f"{name if '-' in name else f'{name}-src'} {value}"
        for name, value in {**sources, **more}.items()
    )


@lru_cache
def _player() -> str:
    return _packed(template(_PLAYER))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


@lru_cache
def template(path: Path) -> str:
    """A page without data, as small as it is sent.

    `@board.js@` and other names of scripts, styles and parts in the page's folder, or in this one,
    stand for their content.
    """
    text = path.read_text(encoding="utf-8")
    return minified(
        re.sub(r"@(\w+\.(?:js|css|html))@", lambda found: _source(found[1], path), text)
    )


def _source(name: str, page: Path) -> str:
    own = page.with_name(name)
    return (own if own.is_file() else _PLAYER.with_name(name)).read_text(encoding="utf-8")


def minified(html: str) -> str:
    """A page without comments, indentation and other needless spaces.

    Scripts and styles are those in tags without attributes. Spaces between tags matter only where
    the source has them in one line.
    """
    parts = _SOURCES.split(html)
    text, scripts, styles = parts[::3], parts[1::3], parts[2::3]
    out = [_minified_markup(text[0])]
    for script, style, markup in zip(scripts, styles, text[1:], strict=True):
        out.append(minified_script(script) if script is not None else _minified_style(style or ""))
        out.append(_minified_markup(markup))
    return "".join(out)


def _minified_markup(text: str) -> str:
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"(^|>)\s*\n\s*(<|$)", r"\1\2", text))


def _minified_style(text: str) -> str:
    text = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    text = re.sub(r" ?([{};,]) ?", r"\1", text)
    return re.sub(r"(?<=[\w-]): (?=[^{}]*[;}])", ":", text).replace(";}", "}").strip()


def minified_script(text: str) -> str:
    """A script without comments and needless spaces.

    Keeps a line break where a statement might end without a semicolon. A `/` after `)` or `}` is
    read as a division: statements must not begin with a regular expression. Blocks must not end
    with an empty statement, such as the body of a loop.
    """
    out = [""]
    gap = ""
    declares = [False]  # for each open bracket: does the last statement begin with `let`?
    for token in _script_tokens(text):
        if _GAP.match(token):
            gap = "\n" if "\n" in gap + token else " "
            continue
        before = out[-1][-1:]
        if token == "}" and before == ";":
            out[-1] = out[-1][:-1]
        if token == "const" and before != ".":
            token = "let"
        if token == "let" and before == ";" and declares[-1]:
            out[-1], gap = out[-1][:-1] + ",", ""
            continue
        may_begin = gap == "\n" and before in _ENDS and token[0] in _BEGINS
        if may_begin or before in (";", "{", "}", ""):
            declares[-1] = token == "let" and not may_begin
        if token in ("(", "[", "{"):
            declares.append(False)
        elif token in (")", "]", "}"):
            declares.pop()
        if gap and before:
            if may_begin:
                out.append("\n")
            elif (_WORD.match(before) and _WORD.match(token)) or before == token[0] in ("+", "-"):
                out.append(" ")
        out.append(token)
        gap = ""
    return "".join(out)


def _script_tokens(text: str) -> Iterator[str]:
    """The tokens, comments and spaces of a script, in order; they add up to it."""
    at, last = 0, ""
    braces: list[bool] = []  # for each open brace: is it one of a template?
    while at < len(text):
        kind = _TOKEN
        if text[at] == "/" and not _GAP.match(text, at):
            is_division = last[-1:] in _ENDS and last not in _BEFORE_REGEX
            kind = _ANY if is_division else _REGEX
        elif text[at] == "`" or (text[at] == "}" and braces and braces.pop()):
            kind = _TEMPLATE
        found = kind.match(text, at)
        if found is None:
            raise ValueError(f"the script cannot be read at {text[at : at + 40]!r}")
        token = found[0]
        if token == "{" or (kind is _TEMPLATE and token.endswith("${")):
            braces.append(token != "{")
        if not _GAP.match(token):
            last = token
        at = found.end()
        yield token


def as_iframe(html: str, height: int = 620) -> str:
    """A page in a sandboxed frame, for example in a notebook."""
    style = f"width:100%;height:{height}px;border:0"
    return (
        f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{markup.escape(html)}"></iframe>'
    )


def shapes_as_json(shapes: Iterable[Shape]) -> list[Any]:
    """Shapes in the format of `board.js`, with at most four decimals."""
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
    """At most four decimals, or eight below 0.01; None if not finite, or 1e15 and beyond."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        if not -1e15 < value < 1e15:
            return None
        value = round(value, 4 if abs(value) >= 0.01 else 8)
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, Iterable)):
        return [_rounded(each) for each in value]
    return value
