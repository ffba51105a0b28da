"""The notebook examples/tour.ipynb as a page of the site.

`python -m tools.docs.run_notebook` writes the notebook with its outputs to build/tour.ipynb.
Without that file, or if the cells have changed since, the page shows the cells alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any, Final, TypeAlias

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


def tour() -> dict[str, str]:
    """The page and the files that it shows, by path from the root of the site."""
    cells = cells_of(NOTEBOOK)
    executed = cells_of(EXECUTED) if EXECUTED.exists() else []
    if list(map(source_of, executed)) == list(map(source_of, cells)):
        cells = executed
    return rendered(cells)


def rendered(cells: Sequence[Cell]) -> dict[str, str]:
    """As `tour`, of these cells."""
    files: dict[str, str] = {}
    parts: list[str] = []
    for cell in cells:
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{source_of(cell)}\n```")
            parts += [_shown(output, files) for output in cell["outputs"]]
        else:
            parts.append(source_of(cell).replace("](../docs/", "](../"))
    parts.insert(1, ABOUT)
    return {PAGE: "\n\n".join(parts) + "\n", **files}


def cells_of(path: Path) -> list[Cell]:
    """The cells of a notebook."""
    found: list[Cell] = json.loads(path.read_text("utf-8"))["cells"]
    return found


def source_of(cell: Cell) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def _shown(output: Mapping[str, Any], files: dict[str, str]) -> str:
    """An output as Markdown; a replay and a picture are files of their own."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    texts = {kind: "".join(text) for kind, text in data.items()}
    label = escape(texts["text/plain"])
    if frame := _FRAME.fullmatch(texts.get("text/html", "")):
        path = _add(files, "html", unescape(frame[1]))
        tags = 'class="replay" sandbox="allow-scripts" loading="lazy"'
        return f'<iframe src="{path}" title="{label}" {tags}></iframe>'
    if svg := texts.get("image/svg+xml"):
        title = re.search(r"<text[^>]*>([^<]*)</text>", svg)
        return f"![{title[1] if title else label}]({_add(files, 'svg', svg)})"
    return f"```text\n{texts['text/plain'].rstrip()}\n```"


def _add(files: dict[str, str], kind: str, text: str) -> str:
    """Adds a file next to the page; returns its path from there."""
    path = f"tour/{len(files)}.{kind}"
    files[f"tutorials/{path}"] = text
    return path
