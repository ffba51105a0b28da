"""Assembles the XO-CHIP games and records their goal screens.

    python tools/assemble.py

Writes NAME.ch8 and NAME.goal for every tools/xo_chip/NAME.asm to the games' folder `roms`. Each
source line is one statement; `;` starts a comment.

    const SPEED = 2        ; a name for a number
    loop:                  ; a name for an address, alone or before a statement
        v0 += SPEED        ; an instruction, see the table below
        skip v0 == 16 + 1  ; numbers: 10, 0x0A, 0b1010, names, added and subtracted
        jump loop
    ball:
        pixels ..####..    ; a row of a sprite: 8, 16, 24, ... pixels
        bytes 0x7E, 126    ; bytes as they are

A program is loaded at 0x200. Names may be used before their definition, but a constant may only
refer to addresses and to constants defined before it. Bytes may be -128 to 255.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from entity_env.errors import UsageError
from entity_env.games.pixel.xo_chip.programs import FRAMES, INSTRUCTIONS, PROGRAMS
from entity_env.games.pixel.xo_chip.quirks import PROGRAM_START
from entity_env.games.pixel.xo_chip.world import XoChipWorld

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "tools" / "xo_chip"
ROMS = ROOT / "entity_env" / "games" / "pixel" / "xo_chip" / "roms"

# Opcode in hexadecimal digits, then syntax: `VX` and `VY` are registers v0 to vf, a run of N is a
# number with as many digits, P is one of four choices of planes; the rest is literal.
_TABLE = """
00CN scroll down N
00DN scroll up N
00E0 clear
00EE return
00FB scroll right
00FC scroll left
00FD exit
00FE low
00FF high
1NNN jump NNN
2NNN call NNN
3XNN skip VX == NN
4XNN skip VX != NN
5XY0 skip VX == VY
5XY2 save VX .. VY
5XY3 load VX .. VY
6XNN VX = NN
7XNN VX += NN
8XY0 VX = VY
8XY1 VX |= VY
8XY2 VX &= VY
8XY3 VX ^= VY
8XY4 VX += VY
8XY5 VX -= VY
8XY6 VX = VY >> 1
8XY7 VX = VY - VX
8XYE VX = VY << 1
9XY0 skip VX != VY
ANNN i = NNN
BNNN jump v0 + NNN
CXNN VX = random NN
DXYN draw VX , VY , N
EX9E skip key VX
EXA1 skip nokey VX
F000NNNN i = long NNNN
F002 audio
FP01 plane P
FX07 VX = delay
FX0A VX = key
FX15 delay = VX
FX18 sound = VX
FX1E i += VX
FX29 i = digit VX
FX30 i = bigdigit VX
FX33 bcd VX
FX3A pitch = VX
FX55 save VX
FX65 load VX
FX75 keep VX
FX85 recall VX
"""

REGISTERS = ("VX", "VY")
LARGEST: Mapping[str, int] = {"P": 3, "N": 15, "NN": 255, "NNN": 4095, "NNNN": 65535}


@dataclass(frozen=True)
class Form:
    """An opcode and its syntax.

    Attributes:
        opcode: four or eight hexadecimal digits, with letters in place of a part's digits.
        parts: words, signs, members of `REGISTERS`, and keys of `LARGEST`, which come last.
    """

    opcode: str
    parts: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the instruction."""
        return len(self.opcode) // 2

    def encode(self, values: Mapping[str, int]) -> bytes:
        """The instruction, given the values of its registers and numbers."""
        digits = self.opcode
        for part, value in values.items():
            letters = part.removeprefix("V")
            digits = digits.replace(letters, f"{value:0{len(letters)}X}")
        return bytes.fromhex(digits)


FORMS = tuple(
    Form(words[0], tuple(words[1:])) for words in map(str.split, _TABLE.split("\n")[1:-1])
)


_TOKEN = re.compile(
    r"(?P<row>[.#]{3,})|(?P<register>v[0-9a-f]\b)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|[0-9]+)\b)"
    r"|(?P<sign>[=!+|&^-]=|<<|>>|\.\.|[-+=,:])"
)
_BLANK = re.compile(r"\s*(?:;.*)?")
_WORDS = {"const", "bytes", "pixels"} | {
    part for form in FORMS for part in form.parts if part.isidentifier() and part.islower()
}


def assemble(text: str) -> bytes:
    """The bytes of a program; the module docstring describes the syntax.

    Raises:
        UsageError: invalid syntax; names line and column.
    """
    program = _Program()
    for number, source in enumerate(text.splitlines(), start=1):
        program.read(_Line(number, list(_tokens(number, source))))
    return program.code()


class _Token(NamedTuple):
    text: str
    kind: str
    column: int


def _tokens(number: int, source: str) -> Iterator[_Token]:
    at = _after_blank(source, 0)
    while at < len(source):
        found = _TOKEN.match(source, at)
        if not found:
            wrong = _Token(source[at], "", at + 1)
            raise _Line(number, [wrong]).fault("a word, number or sign of the language")
        yield _Token(found[0], str(found.lastgroup), at + 1)
        at = _after_blank(source, found.end())
    yield _Token("", "end", len(source) + 1)


def _after_blank(source: str, at: int) -> int:
    blank = _BLANK.match(source, at)
    return blank.end() if blank else at


@dataclass
class _Line:
    """A line, read from left to right."""

    number: int
    tokens: list[_Token]
    at: int = 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, kind: str, expected: str) -> _Token:
        """Consume and return the next token."""
        token = self.next
        if token.kind != kind:
            raise self.fault(expected)
        if kind != "end":
            self.at += 1
        return token

    def accepts(self, text: str) -> bool:
        """Consume the next token if it is `text`; return whether it was."""
        is_this = self.next.text == text
        self.at += is_this
        return is_this

    def fault(self, expected: str, token: _Token | None = None, got: str = "") -> UsageError:
        """An error at a token, by default the next token."""
        token = token or self.next
        if not got:
            got = repr(token.text) if token.text else "the end of the line"
            got += ", a word of the language" if token.text in _WORDS else ""
        return UsageError(
            f"line {self.number}, column {token.column}: expected {expected}, got {got}"
        )


@dataclass(frozen=True)
class _Number:
    """A sum of names and numbers, evaluated once all names are known."""

    line: _Line
    terms: tuple[tuple[int, _Token], ...]
    largest: int = LARGEST["NNNN"]

    def evaluate(self, names: Mapping[str, int]) -> int:
        value = sum(sign * self._term(token, names) for sign, token in self.terms)
        smallest = -128 if self.largest == LARGEST["NN"] else 0
        if not smallest <= value <= self.largest:
            expected = f"a number from {smallest} to {self.largest}"
            raise self.line.fault(expected, self.terms[0][1], str(value))
        return value & 0xFF if smallest else value

    def _term(self, token: _Token, names: Mapping[str, int]) -> int:
        if token.kind == "number":
            return int(token.text, 0 if token.text[:2].lower() in ("0x", "0b") else 10)
        if token.text not in names:
            raise self.line.fault("a name that is defined", token)
        return names[token.text]


@dataclass(frozen=True)
class _Instruction:
    form: Form
    registers: Mapping[str, int]
    number: _Number | None

    @property
    def size(self) -> int:
        return self.form.size

    def code(self, names: Mapping[str, int]) -> bytes:
        values = dict(self.registers)
        if self.number:
            values[self.form.parts[-1]] = self.number.evaluate(names)
        return self.form.encode(values)


@dataclass(frozen=True)
class _Data:
    numbers: tuple[_Number, ...]

    @property
    def size(self) -> int:
        return len(self.numbers)

    def code(self, names: Mapping[str, int]) -> bytes:
        return bytes(number.evaluate(names) for number in self.numbers)


@dataclass(frozen=True)
class _Row:
    bits: str

    @property
    def size(self) -> int:
        return len(self.bits) // 8

    def code(self, names: Mapping[str, int]) -> bytes:
        return int(self.bits.replace(".", "0").replace("#", "1"), 2).to_bytes(self.size)


class _Program:
    """The statements, the addresses of their labels, and finally their bytes."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._constants: dict[str, _Number] = {}
        self._statements: list[_Instruction | _Data | _Row] = []
        self._end = PROGRAM_START

    def read(self, line: _Line) -> None:
        """Read a line: a label, a constant or a statement, or nothing."""
        if [token.text for token in line.tokens[1:2]] == [":"]:
            self._addresses[self._new_name(line)] = self._end
            line.at += 1
        if line.accepts("const"):
            name = self._new_name(line)
            if not line.accepts("="):
                raise line.fault("'='")
            self._constants[name] = _number(line)
            line.take("end", "the end of the line")
        elif line.next.kind != "end":
            self._add(_statement(line))
            line.take("end", "the end of the line")

    def code(self) -> bytes:
        names = dict(self._addresses)
        for name, number in self._constants.items():
            names[name] = number.evaluate(names)
        return b"".join(statement.code(names) for statement in self._statements)

    def _add(self, statement: _Instruction | _Data | _Row) -> None:
        self._statements.append(statement)
        self._end += statement.size

    def _new_name(self, line: _Line) -> str:
        name = line.next.text
        if name in _WORDS or name in self._addresses or name in self._constants:
            raise line.fault("a name that is neither defined above nor a word of the language")
        return line.take("name", "a name").text


def _statement(line: _Line) -> _Instruction | _Data | _Row:
    if line.accepts("bytes"):
        numbers = [_number(line, LARGEST["NN"])]
        while line.accepts(","):
            numbers.append(_number(line, LARGEST["NN"]))
        return _Data(tuple(numbers))
    if line.accepts("pixels"):
        row = line.take("row", "a row of . and #")
        if len(row.text) % 8:
            raise line.fault("a multiple of 8 pixels", row, str(len(row.text)))
        return _Row(row.text)
    return _instruction(line)


def _instruction(line: _Line) -> _Instruction:
    """Parse an instruction: drop the forms that do not match, token by token."""
    start = line.at
    forms = list(FORMS)
    while True:
        place = line.at - start
        fitting = [form for form in forms if _fits(_part(form, place), line.next)]
        if not fitting:
            expected = dict.fromkeys(_description(_part(form, place)) for form in forms)
            raise line.fault(" or ".join(expected) if place else "an instruction, data or a label")
        forms = fitting
        part = _part(forms[0], place)
        if not part or part in LARGEST:
            registers = _registers(line, forms[0], start)
            number = _number(line, LARGEST[part]) if part else None
            return _Instruction(forms[0], registers, number)
        line.at += 1


def _part(form: Form, place: int) -> str:
    """The part at an index; "" after the last part."""
    return form.parts[place] if place < len(form.parts) else ""


def _fits(part: str, token: _Token) -> bool:
    if part in REGISTERS:
        return token.kind == "register"
    if part in LARGEST:
        return _begins_number(token)
    return token.text == part


def _begins_number(token: _Token) -> bool:
    is_name = token.kind == "name" and token.text not in _WORDS
    return is_name or token.kind == "number" or token.text == "-"


def _description(part: str) -> str:
    if part in REGISTERS:
        return "a register v0 to vf"
    if part in LARGEST:
        return "a number"
    return repr(part) if part else "the end of the line"


def _registers(line: _Line, form: Form, start: int) -> Mapping[str, int]:
    """The number of each register; a repeated register must have one number."""
    registers: dict[str, int] = {}
    for part, token in zip(form.parts, line.tokens[start:], strict=False):
        if part in REGISTERS:
            register = int(token.text[1], 16)
            if registers.setdefault(part, register) != register:
                raise line.fault(f"'v{registers[part]:x}' again", token)
    return registers


def _number(line: _Line, largest: int = LARGEST["NNNN"]) -> _Number:
    terms = [(-1 if line.accepts("-") else 1, _term(line))]
    while (is_minus := line.accepts("-")) or line.accepts("+"):
        terms.append((-1 if is_minus else 1, _term(line)))
    return _Number(line, tuple(terms), largest)


def _term(line: _Line) -> _Token:
    if line.next.text == "-" or not _begins_number(line.next):
        raise line.fault("a number")
    line.at += 1
    return line.tokens[line.at - 1]


def goal_screen(name: str, rom: bytes) -> bytes:
    """The screen after a game's solution: both planes, one bit per pixel."""
    world = XoChipWorld(rom, 1, frames=FRAMES, instructions=INSTRUCTIONS)
    for button in (*PROGRAMS[name].start, *PROGRAMS[name].solution):
        world.step(torch.tensor([button.value], dtype=torch.int32))
    pixels = torch.zeros((1, world.height, world.width), dtype=torch.uint8)
    world.render(pixels)
    shades = pixels[0].numpy()
    return np.packbits(np.stack([shades & 1, shades >> 1])).tobytes()


def main() -> None:
    for name in PROGRAMS:
        rom = assemble((SOURCES / f"{name}.asm").read_text(encoding="utf-8"))
        (ROMS / f"{name}.ch8").write_bytes(rom)
        (ROMS / f"{name}.goal").write_bytes(goal_screen(name, rom))


if __name__ == "__main__":
    main()
