"""Reads and writes RON, the format of enn-trainer's configuration files, like python-ron.

Supports structs with or without a name, maps in order, lists, tuples (read as lists), text with
escapes, numbers, `true`, `false` and `None`; optional values have no `Some`. Nesting, text length
and number of values are limited, so the result takes a small multiple of the text's memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeAlias

from entity_env.errors import CheckpointError

Ron: TypeAlias = (
    "bool | int | float | str | list[Ron] | dict[str | int | bool, Ron] | Struct | None"
)

MAX_BYTES: Final = 4 << 20
MAX_DEPTH: Final = 32
MAX_TEXT: Final = 1 << 16
"""Maximum number of characters in a text, name or number."""

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<float>-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|inf\b|NaN\b))
    | (?P<int>-?[0-9]+)
    | "(?P<text>(?:[^"\\]++|\\.)*+)"
    | (?P<sign>[(){}\[\]:,])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SPACES: Final = re.compile(r"[ \t\r\n]*")
_FIELD: Final = re.compile(r"[ \t\r\n]*[A-Za-z_][A-Za-z0-9_]*[ \t\r\n]*:")
_ESCAPE: Final = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", '"': '"', "'": "'", "\\": "\\"}
_WORDS: Final[Mapping[str, Ron]] = {
    "true": True,
    "false": False,
    "None": None,
    "inf": float("inf"),
    "NaN": float("nan"),
}
_MAX_DIGITS: Final = 400


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: `name(field: value, …)`; the name may be empty."""

    name: str
    fields: dict[str, Ron] = field(default_factory=dict)


def parse_ron(content: bytes, where: str) -> Ron:
    """Reads a value; `where` names the file in errors. Raises `CheckpointError`."""
    if len(content) > MAX_BYTES:
        raise CheckpointError(
            f"{where} is {len(content)} bytes long, at most {MAX_BYTES} are read: "
            "it is not a configuration"
        )
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where} is not UTF-8 text: {error}") from error
    return _Reader(text, where).read()


class _Reader:
    """Parser with one token of lookahead."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where = text, where
        # Bound the memory: a list of empty lists takes 20 times the memory of its text.
        # Configurations have more than 16 characters per value.
        self._values_left = 1000 + len(text) // 16
        self._next = 0
        self._advance()

    def read(self) -> Ron:
        value = self._value(0)
        if self._kind != "end":
            self._fail("the end of the file")
        return value

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            self._at = _SPACES.match(self._text, self._next).end()  # type: ignore[union-attr]
            self._kind, self._token = "character", self._text[self._at]
            self._fail("a value or a sign")
        self._kind, self._token = match.lastgroup, match[match.lastgroup]
        self._at = match.start(match.lastgroup) - (self._kind == "text")
        self._next = match.end()
        if len(self._token) > MAX_TEXT:
            self._fail(f"at most {MAX_TEXT} characters")

    def _value(self, depth: int) -> Ron:
        self._values_left -= 1
        if depth > MAX_DEPTH:
            self._fail(f"at most {MAX_DEPTH} levels of brackets")
        if self._values_left < 0:
            self._fail("fewer values in such a short text")
        kind, token = self._kind, self._token
        if kind == "name":
            return self._named(depth)
        if kind == "text":
            value: Ron = self._unescape(token)
        elif kind in ("int", "float"):
            value = self._number(kind, token)
        elif token == "[":
            return self._list("]", depth)
        elif token == "{":
            return self._map(depth)
        elif token == "(":
            is_struct = _FIELD.match(self._text, self._next)
            return self._fields(depth, "") if is_struct else self._list(")", depth)
        else:
            self._fail("a value")
        self._advance()
        return value

    def _named(self, depth: int) -> Ron:
        name = self._token
        self._advance()
        if self._token == "(" and self._kind == "sign":
            return self._fields(depth, name)
        return _WORDS[name] if name in _WORDS else Struct(name)

    def _fields(self, depth: int, name: str) -> Struct:
        fields: dict[str, Ron] = {}

        def add() -> None:
            key = self._token
            if self._kind != "name" or key in fields:
                self._fail("the name of a new field")
            self._advance()
            self._expect(":")
            fields[key] = self._value(depth + 1)

        self._items(")", add)
        return Struct(name, fields)

    def _map(self, depth: int) -> dict[str | int | bool, Ron]:
        entries: dict[str | int | bool, Ron] = {}

        def add() -> None:
            at = self._next, self._kind, self._token, self._at
            key = self._value(depth + 1)
            if not isinstance(key, str | int) or key in entries:
                self._next, self._kind, self._token, self._at = at
                self._fail("a new key, a text or an integer")
            self._expect(":")
            entries[key] = self._value(depth + 1)

        self._items("}", add)
        return entries

    def _list(self, end: str, depth: int) -> list[Ron]:
        items: list[Ron] = []
        self._items(end, lambda: items.append(self._value(depth + 1)))
        return items

    def _items(self, end: str, add: Callable[[], None]) -> None:
        """Reads items between brackets, with an optional trailing comma."""
        self._advance()
        while not (self._token == end and self._kind == "sign"):
            add()
            if self._token == end and self._kind == "sign":
                break
            self._expect(",")
        self._advance()

    def _expect(self, sign: str) -> None:
        if self._token != sign or self._kind != "sign":
            self._fail(f"{sign!r}")
        self._advance()

    def _number(self, kind: str, token: str) -> int | float:
        if len(token) > _MAX_DIGITS:  # Python does not read integers of more than 4300 digits
            self._fail(f"a number of at most {_MAX_DIGITS} digits")
        return int(token) if kind == "int" else float(token)

    def _unescape(self, text: str) -> str:
        return _ESCAPE.sub(self._escape, text) if "\\" in text else text

    def _escape(self, match: re.Match[str]) -> str:
        code = match[1]
        if code in _ESCAPES:
            return _ESCAPES[code]
        number = int(code[2:-1], 16) if code.startswith("u{") else -1
        if not 0 <= number < 0x110000 or 0xD800 <= number < 0xE000:
            self._fail("an escape that RON knows")
        return chr(number)

    def _fail(self, expected: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        got = "the end" if self._kind == "end" else repr(self._token[:40])
        raise CheckpointError(
            f"{self._where}: line {line}, column {column}: expected {expected}, got {got}"
        )


_INDENT = "    "
_SIMPLE_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\", "\0": "\\0"}


def write_ron(value: Ron, indent: str = "") -> str:
    """A value as text, one item per line; raises `ValueError` for a number that is not finite."""
    match value:
        case None:
            return "None"
        case bool():
            return "true" if value else "false"
        case float():
            return _write_float(value)
        case int():
            return str(value)
        case str():
            return _quoted(value)
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


def _write_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"RON for python-ron cannot hold the number {value}")
    return repr(value)


def _quoted(value: str) -> str:
    return '"' + "".join(_SIMPLE_ESCAPES.get(character, character) for character in value) + '"'
