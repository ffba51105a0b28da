"""Draws the imports between the package's folders, from the import statements.

    python tools/draw_layout.py

Writes docs/pictures/layout.svg: one row and one column per folder, in the order of the layers that
`tests/project/layout.py` enforces. A cell is the number of modules in the row's folder that import
from the column's folder.
"""

import sys
from collections import Counter
from pathlib import Path

from tests.project.layout import FLOORS, PACKAGE, imports, sources

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pictures" / "layout.svg"
CELL, LEFT, TOP = 30, 190, 110


def count_imports() -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """Number of modules in one folder that import from another; lines of every folder."""
    links: Counter[tuple[str, str]] = Counter()
    lines: Counter[str] = Counter()
    for source in sources(ROOT, PACKAGE):
        if len(source.path.parts) < 2 or source.path.name in ("__main__.py",):
            continue
        folder = source.path.parts[1].removesuffix(".py")
        lines[folder] += source.text.count("\n")
        names = {name.split(".")[1] for _, name in imports(source, typing_too=True) if "." in name}
        links.update((folder, other) for other in names if other in FLOORS and other != folder)
    return links, lines


def svg(links: Counter[tuple[str, str]], lines: Counter[str]) -> str:
    """The matrix as SVG, readable on light and dark pages."""
    width, height = LEFT + CELL * len(FLOORS) + 10, TOP + CELL * len(FLOORS) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, name in enumerate(FLOORS):
        x, y = LEFT + CELL * i, TOP + CELL * i
        count = f"{lines[name]:,}"
        parts += [
            f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="#adb5bd"/>',
            f'<text x="{LEFT - 10}" y="{y + 19}" text-anchor="end">{name}, {count} lines</text>',
            f'<text transform="translate({x + 18} {TOP - 8}) rotate(-60)">{name}</text>',
        ]
    for (importer, imported), number in sorted(links.items()):
        if importer not in FLOORS:
            continue
        x, y = LEFT + CELL * FLOORS.index(imported), TOP + CELL * FLOORS.index(importer)
        opacity = min(0.25 + number / 30, 1.0)
        parts += [
            f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="#0072b2" '
            f'fill-opacity="{opacity:.2f}"/>',
            f'<text x="{x + 14}" y="{y + 19}" text-anchor="middle">{number}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    OUT.write_text(svg(*count_imports()))
    sys.stdout.write(f"{OUT.relative_to(ROOT)}: {len(FLOORS)} folders\n")


if __name__ == "__main__":
    main()
