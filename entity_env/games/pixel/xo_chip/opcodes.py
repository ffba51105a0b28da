"""The opcodes and their syntax: a table for the assembler and the disassembler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from entity_env.games.pixel.xo_chip.quirks import PROGRAM_START

# An opcode in hexadecimal digits, then its syntax: `VX` and `VY` are registers v0 to vf, a run of N
# is a number of as many digits, P one of four choices of planes; the rest is literal.
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
        parts: a word or sign each, one of `REGISTERS`, or a key of `LARGEST`, which comes last.
    """

    opcode: str
    parts: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the instruction."""
        return len(self.opcode) // 2

    def encode(self, values: Mapping[str, int]) -> bytes:
        """The instruction, given the value of each part that is no word or sign."""
        digits = self.opcode
        for part, value in values.items():
            letters = part.removeprefix("V")
            digits = digits.replace(letters, f"{value:0{len(letters)}X}")
        return bytes.fromhex(digits)

    def decode(self, code: bytes) -> Mapping[str, int] | None:
        """The values that `encode` makes these bytes of, or None."""
        found = self._pattern.fullmatch(code.hex().upper())
        return found and {part: int(digits, 16) for part, digits in found.groupdict().items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        groups = {"X": "(?P<VX>.)", "Y": "(?P<VY>.)", "P": "(?P<P>[0-3])"}
        groups |= {run: f"(?P<{run}>{'.' * len(run)})" for run in ("N", "NN", "NNN", "NNNN")}
        return re.compile(re.sub("X|Y|P|N+", lambda letters: groups[letters[0]], self.opcode))


FORMS = tuple(
    Form(words[0], tuple(words[1:])) for words in map(str.split, _TABLE.split("\n")[1:-1])
)


def disassemble(code: bytes) -> str:
    """A text that assembles to the same bytes, an instruction per line.

    Data reads as instructions too, where they are valid, else as `bytes`.
    """
    lines = []
    at = 0
    while at < len(code):
        text, size = _first(code[at:])
        lines.append(f"{text}  ; {PROGRAM_START + at:03X}\n")
        at += size
    return "".join(lines)


def _first(code: bytes) -> tuple[str, int]:
    """The first instruction as text, and its number of bytes."""
    for form in FORMS:
        values = form.decode(code[: form.size])
        if values is not None:
            return " ".join(_written(part, values) for part in form.parts), form.size
    return "bytes " + ", ".join(f"0x{byte:02X}" for byte in code[:2]), len(code[:2])


def _written(part: str, values: Mapping[str, int]) -> str:
    if part in REGISTERS:
        return f"v{values[part]:x}"
    return str(values.get(part, part))
