"""Writes RON, so that python-ron and `parse_ron` read it."""

from __future__ import annotations

import math

from entity_env.agents.rogue_net.enn_trainer.ron import Ron, Struct

_INDENT = "    "
_SIMPLE_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\", "\0": "\\0"}


def write_ron(value: Ron, indent: str = "") -> str:
    """One value as text, an item a line.

    Raises:
        ValueError: an infinite number or one that is none, which python-ron does not read.
    """
    match value:
        case None:
            return "None"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case int():
            return str(value)
        case str():
            return _text(value)
        case list():
            return _items("[", [write_ron(item, indent + _INDENT) for item in value], "]", indent)
        case dict():
            entries = [
                f"{write_ron(key)}: {write_ron(item, indent + _INDENT)}"
                for key, item in value.items()
            ]
            return _items("{", entries, "}", indent)
        case Struct():
            fields = [
                f"{key}: {write_ron(item, indent + _INDENT)}" for key, item in value.fields.items()
            ]
            return _items(f"{value.name}(", fields, ")", indent)


def _items(opening: str, items: list[str], closing: str, indent: str) -> str:
    if not items:
        return opening + closing
    lines = "".join(f"{indent}{_INDENT}{item},\n" for item in items)
    return f"{opening}\n{lines}{indent}{closing}"


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"RON for python-ron cannot hold the number {value}")
    return repr(value)


def _text(value: str) -> str:
    return '"' + "".join(_SIMPLE_ESCAPES.get(character, character) for character in value) + '"'
