"""Layout of a machine as a row of 32-bit words: registers, planes, memory."""

from __future__ import annotations

from dataclasses import astuple
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.games.pixel.xo_chip.quirks import (
    HEIGHT,
    NUM_KEYS,
    PROGRAM_START,
    STACK_DEPTH,
    WIDTH,
    Quirks,
    font,
)


class Halt(IntEnum):
    """Why a machine has halted."""

    RUNNING = 0
    EXIT = 1
    STACK_OVERFLOW = 2
    STACK_UNDERFLOW = 3
    UNKNOWN_OPCODE = 4


# Registers, one word each. V0 to VF come first.
FLAG = 15
INDEX = 16
PC = 17
STACK_POINTER = 18
DELAY = 19
SOUND = 20
HIGH = 21
SELECTED = 22
RANDOM = 23
HALT = 24
PITCH = 25
PATTERN = 26
PATTERN_WORDS = 4
AWAITED = PATTERN + PATTERN_WORDS
STACK = 32
SAVED = STACK + STACK_DEPTH
NUM_REGISTERS = SAVED + 16

# A picture row is four words, leftmost pixel highest; the second plane follows the first.
ROW_WORDS = WIDTH // 32
PLANE_WORDS = HEIGHT * ROW_WORDS
NUM_PLANE_WORDS = 2 * PLANE_WORDS
FIRST_PLANE_BYTE = 4 * NUM_REGISTERS
FIRST_MEMORY_WORD = NUM_REGISTERS + NUM_PLANE_WORDS
FIRST_MEMORY_BYTE = 4 * FIRST_MEMORY_WORD
# Used by most steps: registers, planes, fonts and the start of the program.
PREFETCHED_BYTES = FIRST_MEMORY_BYTE + PROGRAM_START + 256
# Words of a rendered row, which has one byte per pixel.
SHADE_WORDS = WIDTH // 4

# Kernels can use integers but not enum members.
EXIT = int(Halt.EXIT)
STACK_OVERFLOW = int(Halt.STACK_OVERFLOW)
STACK_UNDERFLOW = int(Halt.STACK_UNDERFLOW)
UNKNOWN_OPCODE = int(Halt.UNKNOWN_OPCODE)

# Quirks as bits of a word, in the order of `Quirks`.
LOGIC_CLEARS_FLAG = 1
SHIFT_IN_PLACE = 2
MEMORY_MOVES_INDEX = 4
JUMP_ADDS_X = 8
SPRITES_WRAP = 16
DRAW_ENDS_FRAME = 32
SCROLL_HALF_PIXELS = 64
KEY_ON_RELEASE = 128

# Flags added to the address of the next instruction.
ENDS_FRAME = 1 << 16
HALTS = 1 << 17
ADDRESS = ENDS_FRAME - 1


def quirk_bits(quirks: Quirks) -> int:
    """Quirks as bits, without the memory size."""
    _, *chosen = astuple(quirks)
    return sum(is_chosen << place for place, is_chosen in enumerate(chosen))


def switched_on(rom: bytes, quirks: Quirks, seed: int) -> NDArray[np.int32]:
    """Row of a machine just switched on with a program, (W,) int32.

    Raises:
        SchemaError: the program is not bytes, empty or too large, or the seed is out of range.
    """
    if not isinstance(rom, bytes | bytearray):
        raise SchemaError(f"rom: expected bytes, got {type(rom).__name__}")
    room = quirks.memory_size - PROGRAM_START
    if not 1 <= len(rom) <= room:
        raise SchemaError(f"rom: expected 1 to {room} bytes, got {len(rom)}")
    if not 1 <= seed < 2**32:
        raise SchemaError(f"seed: expected 1 to 2**32 - 1, got {seed}")
    row = np.zeros(FIRST_MEMORY_WORD + quirks.memory_size // 4, np.uint32)
    row[[PC, SELECTED, RANDOM, PITCH]] = PROGRAM_START, 0b01, seed, 64
    memory = row[FIRST_MEMORY_WORD:].view(np.uint8)
    memory[: len(font())] = list(font())
    memory[PROGRAM_START : PROGRAM_START + len(rom)] = list(rom)
    return row.view(np.int32)


def check_registers(registers: NDArray[np.int32], memory_size: int) -> None:
    """Checks user-supplied registers, (NUM_REGISTERS,) int32.

    Kernels do not check them: a stack pointer beyond the stack would make them write out of bounds.
    """
    largest = np.full(NUM_REGISTERS, 255)
    largest[INDEX] = 0xFFFF
    largest[[PC, *range(STACK, SAVED)]] = memory_size - 1
    largest[[STACK_POINTER, AWAITED]] = STACK_DEPTH, NUM_KEYS
    largest[[HIGH, SELECTED, HALT]] = 1, 3, max(Halt)
    wrong = (registers < 0) | (registers > largest)
    wrong[[RANDOM, *range(PATTERN, AWAITED)]] = False  # any bits
    wrong[RANDOM] = registers[RANDOM] == 0
    if wrong.any():
        place = int(wrong.argmax())
        expected = "other than 0" if place == RANDOM else f"from 0 to {largest[place]}"
        raise SchemaError(f"registers: expected word {place} {expected}, got {registers[place]}")
