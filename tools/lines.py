"""Counts lines of code, docstrings and tests by folder: `python tools/lines.py`.

Blank lines, comments, docstrings and imports are not lines of code.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Lines(NamedTuple):
    """Numbers of files and of their lines."""

    files: int = 0
    all: int = 0
    code: int = 0
    docstrings: int = 0

    @classmethod
    def of(cls, text: str) -> Lines:
        """The lines of a module."""
        docstrings, imports = set[int](), set[int]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.update(_span(node))
            for each in node.body if isinstance(node, _DOCUMENTED) else ():
                # Includes strings below a variable that document it.
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    docstrings.update(_span(each))
        lines = text.splitlines()
        code = [
            number
            for number, line in enumerate(lines, 1)
            if line.strip()
            and not line.lstrip().startswith("#")
            and number not in docstrings
            and number not in imports
        ]
        return cls(1, len(lines), len(code), len(docstrings))

    def __add__(self, other: Lines) -> Lines:  # type: ignore[override]  # sums, not joined
        return Lines(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def lines_in(folder: Path, depth: int = 2) -> dict[str, Lines]:
    """Lines of the modules in a folder, by subfolder up to a depth; the total is under ""."""
    found: dict[str, Lines] = {"": Lines()}
    for path in sorted(folder.rglob("*.py")):
        own, parts = Lines.of(path.read_text()), path.relative_to(folder).parts[:-1]
        for name in ("", "/".join(parts[:depth])) if parts else ("",):
            found[name] = found.get(name, Lines()) + own
    return found


def main() -> None:
    """Prints a table."""
    out = sys.stdout.write
    for name in ("entity_env", "tests"):
        found = lines_in(ROOT / name)
        rows = [("  " + (folder or "all"), lines) for folder, lines in sorted(found.items())]
        out(f"{name + '/':28}" + "".join(f"{column:>12}" for column in Lines._fields) + "\n")
        for label, lines in rows:
            out(f"{label:28}" + "".join(f"{number:12,}" for number in lines) + "\n")


if __name__ == "__main__":
    main()
