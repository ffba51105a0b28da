"""Layout of the row of 32-bit words that is a machine: registers, planes, memory."""

from __future__ import annotations

from dataclasses import astuple

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
)
from entity_env.games.pixel.xo_chip.reference_machine import Halt, PlainMachine

# The registers, a word each. V0 to VF come first.
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

# A picture row is four words, the leftmost pixel highest; the second plane follows the first.
ROW_WORDS = WIDTH // 32
PLANE_WORDS = HEIGHT * ROW_WORDS
NUM_PLANE_WORDS = 2 * PLANE_WORDS
FIRST_PLANE_BYTE = 4 * NUM_REGISTERS
FIRST_MEMORY_WORD = NUM_REGISTERS + NUM_PLANE_WORDS
FIRST_MEMORY_BYTE = 4 * FIRST_MEMORY_WORD
# What most steps use: registers, planes, fonts and the begin of the program.
PREFETCHED_BYTES = FIRST_MEMORY_BYTE + PROGRAM_START + 256
# A picture row of bytes, four a word.
SHADE_WORDS = WIDTH // 4

# Kernels can use integers, but no members of an enum.
EXIT = int(Halt.EXIT)
STACK_OVERFLOW = int(Halt.STACK_OVERFLOW)
STACK_UNDERFLOW = int(Halt.STACK_UNDERFLOW)
UNKNOWN_OPCODE = int(Halt.UNKNOWN_OPCODE)

# The quirks as bits of a word, in the order of `Quirks`.
LOGIC_CLEARS_FLAG = 1
SHIFT_IN_PLACE = 2
MEMORY_MOVES_INDEX = 4
JUMP_ADDS_X = 8
SPRITES_WRAP = 16
DRAW_ENDS_FRAME = 32
SCROLL_HALF_PIXELS = 64
KEY_ON_RELEASE = 128

# Flags that an instruction adds to the address of the next one.
ENDS_FRAME = 1 << 16
HALTS = 1 << 17
ADDRESS = ENDS_FRAME - 1


def quirk_bits(quirks: Quirks) -> int:
    """The quirks as bits of a word, without the memory size."""
    _, *chosen = astuple(quirks)
    return sum(is_chosen << place for place, is_chosen in enumerate(chosen))


def machine_row(machine: PlainMachine) -> NDArray[np.int32]:
    """The row of a plain machine, (W,) int32; unused words of its stack are 0."""
    registers = np.zeros(NUM_REGISTERS, np.int64)
    registers[:16] = machine.v
    registers[[INDEX, PC, STACK_POINTER]] = machine.index, machine.pc, len(machine.stack)
    registers[[DELAY, SOUND, PITCH]] = machine.delay, machine.sound, machine.pitch
    registers[[HIGH, SELECTED]] = machine.screen.high, machine.screen.selected
    registers[[RANDOM, HALT]] = machine.random, machine.halt
    registers[AWAITED] = 0 if machine.awaited is None else machine.awaited + 1
    registers[PATTERN:AWAITED] = np.frombuffer(machine.pattern, "<u4")
    registers[STACK : STACK + len(machine.stack)] = machine.stack
    registers[SAVED:] = machine.saved
    planes = b"".join(
        line.to_bytes(WIDTH // 8) for plane in machine.screen.planes for line in plane
    )
    words = (
        registers.astype(np.uint32),
        np.frombuffer(planes, ">u4").astype(np.uint32),
        np.frombuffer(bytes(machine.memory), np.uint32),
    )
    return np.concatenate(words).view(np.int32)


def check_registers(registers: NDArray[np.int32], memory_size: int) -> None:
    """Check the range of registers, (NUM_REGISTERS,) int32, that a user has loaded.

    Kernels do not: with a stack pointer beyond the stack they would write to foreign memory.
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
