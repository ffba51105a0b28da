"""What griffe, which reads docstrings for the site, has to be told about ours: an extension of it.

- A line for several names, `x, y: columns`, becomes one for each.
- Two colons before a block of code become one.
- Fields of a NamedTuple, listed as arguments, become attributes: griffe sees no `__init__` there.
"""

from __future__ import annotations

import re

import griffe

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
        obj.docstring.value = "\n".join(lines)


def one_name_a_line(lines: list[str]) -> list[str]:
    """Lines of a docstring, where no argument or attribute shares its line with another."""
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
