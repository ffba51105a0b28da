"""Markdown extension for tables that narrow screens show as lists.

A wide table is wrapped in an element of the class `stacked`. On a narrow page, docs/site.css puts
the cells of each row below each other, each labeled with the name of its column (`data-label`). An
empty header becomes a plain cell.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

LONG: Final = 40
"""A table with a cell longer than this number of characters is wide."""
_STASHED: Final = re.compile("\x02.*?\x03")


class _Tables(Treeprocessor):  # type: ignore[misc]  # it ships no types
    def run(self, root: Element) -> None:
        """Labels the cells of every table in an element, and wraps wide tables."""
        for parent in list(root.iter()):
            for i, table in enumerate(parent):
                if table.tag != "table":
                    continue
                label(table)
                if is_wide(table):
                    parent[i] = around = Element("div", {"class": "stacked"})
                    around.append(table)
                    around.tail, table.tail = table.tail, None


class TablesExtension(Extension):  # type: ignore[misc]  # it ships no types
    """Registers `_Tables`, which runs after the text of all cells is known."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Called once by Markdown."""
        md.treeprocessors.register(_Tables(md), "stacked_tables", 1)


def makeExtension(**options: object) -> TablesExtension:
    """Called by Markdown for the name of this module."""
    return TablesExtension(**options)


def is_wide(table: Element) -> bool:
    """True if the table has more than two columns, or a cell with a long text."""
    rows = [[_text(cell) for cell in row] for row in table.iter("tr")]
    return len(rows[0]) > 2 or any(len(text) > LONG for row in rows for text in row)


def label(table: Element) -> None:
    """Labels every cell with the name of its column; empty headers become plain cells."""
    head, *rows = table.iter("tr")
    names = [_text(cell) for cell in head]
    for cell in head:
        if not _text(cell):
            cell.tag = "td"
    for row in rows:
        for name, cell in zip(names, row, strict=False):
            if name:
                cell.set("data-label", name)


def _text(cell: Element) -> str:
    return _STASHED.sub("", "".join(cell.itertext())).strip()
