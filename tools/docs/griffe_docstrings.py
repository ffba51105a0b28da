"""Extension of griffe, which reads docstrings for the site, for the conventions of this project.

- A line for several names, `x, y: columns`, becomes one line per name.
- Two colons before a block of code become one.
- Fields of a NamedTuple, listed as arguments, become attributes, since griffe finds no `__init__`.
- The last line says where the source is, with a link if pyproject.toml names a repository.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import griffe

ROOT: Final = Path(__file__).resolve().parents[2]
URLS: Final[dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
].get("urls", {})

_SECTION = re.compile(r"( *)(Args|Attributes):")
_SHARED = re.compile(r"( +)(\w+(?:, \w+)+): (.*)")


class OurDocstrings(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is None:
            return
        lines = one_name_a_line(obj.docstring.value.replace("::\n", ":\n").splitlines())
        if isinstance(obj, griffe.Class) and "NamedTuple" in map(str, obj.bases):
            lines = [line.replace("Args:", "Attributes:") for line in lines]
        repository = URLS.get("Repository", "")
        is_code = isinstance(obj, griffe.Class | griffe.Function) and obj.lineno is not None
        if is_code and (repository or isinstance(obj.parent, griffe.Module)):
            lines += ["", source(obj.filepath, obj.lineno, repository)]
        obj.docstring.value = "\n".join(lines)


def source(path: object, line: int | None, repository: str) -> str:
    """The line of Markdown that says where an object is defined.

    Args:
        path: of its file, in the repository.
        repository: its address; "" for none.
    """
    name = Path(str(path)).resolve().relative_to(ROOT).as_posix()
    text = f"`{name}`, line {line}"
    return (
        f"Source: [{text}]({repository}/blob/main/{name}#L{line})"
        if repository
        else f"Source: {text}"
    )


def one_name_a_line(lines: list[str]) -> list[str]:
    """Lines of a docstring, with one line per argument or attribute."""
    out: list[str] = []
    indent: int | None = None  # of the names in the section that the line is in
    i = 0
    while i < len(lines):
        line = lines[i]
        i += 1
        depth = len(line) - len(line.lstrip())
        if section := _SECTION.fullmatch(line):
            indent = len(section[1]) + 4
        elif line and indent is not None and depth < indent:
            indent = None
        shared = _SHARED.fullmatch(line)
        if shared is None or depth != indent:
            out.append(line)
            continue
        rest = []
        while i < len(lines) and lines[i].startswith(" " * (depth + 1)):
            rest.append(lines[i])
            i += 1
        for name in shared[2].split(", "):
            out += [f"{shared[1]}{name}: {shared[3]}", *rest]
    return out
