"""The notebook examples/tour.ipynb as a page of the site.

`python -m tools.docs.run_notebook` writes the notebook with its outputs to build/tour.ipynb.
Without that file, or if the cells have changed since, the page shows the cells without outputs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape, unescape
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[2]
NOTEBOOK: Final = ROOT / "examples" / "tour.ipynb"
EXECUTED: Final = ROOT / "build" / "tour.ipynb"
PAGE: Final = "tutorials/tour.md"
Cell: TypeAlias = Mapping[str, Any]
_FRAME: Final = re.compile(r'<iframe [^>]*\bsrcdoc="([^"]*)"[^>]*></iframe>')
ABOUT: Final = (
    "This page is a notebook, run when the site was built: "
    "[tour.ipynb](../files/examples/tour.ipynb)."
)


class Page(NamedTuple):
    """A page as Markdown, and the HTML of the replays in its frames, by path from the page."""

    text: str
    replays: dict[str, str]


def tour() -> Page:
    """The page of the notebook."""
    cells = cells_of(NOTEBOOK)
    executed = cells_of(EXECUTED) if EXECUTED.exists() else []
    if list(map(source_of, executed)) == list(map(source_of, cells)):
        cells = executed
    return rendered(cells)


def replay_pages() -> Iterator[tuple[str, bytes]]:
    """For each replay, path from the root of the site and content of its page."""
    for path, text in tour().replays.items():
        yield str(PurePosixPath(PAGE).with_name(path)), text.encode()


def rendered(cells: Sequence[Cell]) -> Page:
    """Cells with their outputs as a page."""
    replays: dict[str, str] = {}
    parts: list[str] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{source_of(cell)}\n```")
            parts += [_shown(output, replays) for output in cell["outputs"]]
        else:
            parts.append(source_of(cell).replace("](../docs/", "](../"))
    parts.insert(1, ABOUT)
    return Page("\n\n".join(parts) + "\n", replays)


def cells_of(path: Path) -> list[Cell]:
    """The cells of a notebook."""
    found: list[Cell] = json.loads(path.read_text("utf-8"))["cells"]
    return found


def source_of(cell: Cell) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def _shown(output: Mapping[str, Any], replays: dict[str, str]) -> str:
    """An output of a cell as Markdown; adds a replay in it to `replays`."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    texts = {kind: "".join(text) for kind, text in data.items()}
    if frame := _FRAME.fullmatch(texts.get("text/html", "")):
        path = f"tour-{len(replays) + 1}.html"
        replays[path] = unescape(frame[1])
        about = f'src="{path}" title="{escape(texts["text/plain"])}" loading="lazy"'
        return f'<iframe {about} class="replay" sandbox="allow-scripts"></iframe>'
    if svg := texts.get("image/svg+xml"):
        return _chart(svg)
    return f"```text\n{texts['text/plain'].rstrip()}\n```"


def _chart(svg: str) -> str:
    """A chart in the color of the page, without its background."""
    title = re.search(r"<text[^>]*>([^<]*)</text>", svg)
    svg = re.sub(r'<rect [^>]*fill="white"/>\n?', "", svg).replace(' color="#334155"', "")
    return inlined(svg, unescape(title[1]) if title else "")


def inlined(svg: str, label: str) -> str:
    """An SVG picture as a part of a page, with a label for screen readers."""
    about = f'role="img" aria-label="{escape(label)}" style="max-width: 100%; height: auto"'
    svg = svg.replace("<svg ", f"<svg {about} ", 1)
    return f'<div class="plot" data-search-exclude>\n{svg}</div>'
