"""PlainMachine and PlainScreen: the CHIP-8 family in Python, the reference of the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.machine_layout import (
    AWAITED,
    DELAY,
    HALT,
    HIGH,
    INDEX,
    NUM_REGISTERS,
    PATTERN,
    PC,
    PITCH,
    RANDOM,
    SAVED,
    SELECTED,
    SOUND,
    STACK,
    STACK_POINTER,
    Halt,
)
from entity_env.games.pixel.xo_chip.programs import FRAMES, INSTRUCTIONS
from entity_env.games.pixel.xo_chip.quirks import (
    HEIGHT,
    KEYS,
    LARGE_FONT,
    LARGE_FONT_BYTES,
    PROGRAM_START,
    SMALL_FONT,
    SMALL_FONT_BYTES,
    STACK_DEPTH,
    WIDTH,
    XOCHIP,
    Quirks,
    font,
)


@dataclass
class PlainScreen:
    """Two planes of pixels, changed one pixel at a time; a low-resolution pixel is 2 x 2.

    Attributes:
        wrap: sprites wrap at the edges.
        half_pixels: scrolls in low resolution move by high-resolution pixels.
        high: the resolution is 128 x 64 instead of 64 x 32.
        selected: one bit per selected plane, 0b00 to 0b11.
        lit: (2, 64, 128) bool.
    """

    wrap: bool
    half_pixels: bool
    high: bool = False
    selected: int = 0b01
    lit: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((2, HEIGHT, WIDTH), np.bool_))

    def draw(self, x: int, y: int, sprite: bytes, num_bytes: int) -> bool:
        """Flip a sprite's pixels; return whether a lit pixel became dark. The corner always wraps.

        A low-resolution pixel counts as lit if any of its four pixels is; they differ only after
        scrolling by half pixels.
        """
        width, height = (WIDTH, HEIGHT) if self.high else (WIDTH // 2, HEIGHT // 2)
        rows = np.unpackbits(np.frombuffer(sprite, np.uint8)).reshape(-1, 8 * num_bytes)
        planes = self._selected_planes()
        collided = False
        for place, plane in enumerate(planes):
            part = rows[place * len(rows) // len(planes) : (place + 1) * len(rows) // len(planes)]
            for down, right in np.argwhere(part).tolist():
                column, row = x % width + right, y % height + down
                if self.wrap or (column < width and row < height):
                    collided |= self._flip(plane, column % width, row % height)
        return collided

    def clear(self) -> None:
        """Clear the selected planes."""
        for plane in self._selected_planes():
            plane[:] = False

    def resize(self, *, high: bool) -> None:
        """Set the resolution and clear both planes."""
        self.high = high
        self.lit[:] = False

    def scroll(self, right: int, down: int) -> None:
        """Move the selected planes by pixels, negative left and up; new pixels are dark."""
        scale = 1 if self.high or self.half_pixels else 2
        for plane in self._selected_planes():
            places = np.argwhere(plane) + np.array([down, right]) * scale
            plane[:] = False
            for row, column in places.tolist():
                if 0 <= row < HEIGHT and 0 <= column < WIDTH:
                    plane[row, column] = True

    def pixels(self) -> NDArray[np.uint8]:
        """The shades, (64, 128) uint8 in 0..3; a new array."""
        first, second = self.lit.astype(np.uint8)
        shades: NDArray[np.uint8] = first + 2 * second
        return shades

    def _selected_planes(self) -> list[NDArray[np.bool_]]:
        return [plane for number, plane in enumerate(self.lit) if self.selected >> number & 1]

    def _flip(self, plane: NDArray[np.bool_], x: int, y: int) -> bool:
        size = 1 if self.high else 2
        block = plane[y * size : (y + 1) * size, x * size : (x + 1) * size]
        was_lit = bool(block.any())
        block[:] = ~block
        return was_lit


class PlainMachine:
    """A machine with a loaded program.

    The state of a halted machine does not change; `pc` is the address of the instruction
    that halted it. Addresses wrap at the end of memory, `index` at 65536.

    Args:
        rom: the program, loaded at address 0x200.
        quirks: the dialect.
        seed: of the random opcode's generator, from 1 to 2**32 - 1.

    Attributes:
        memory: the whole memory.
        v: the sixteen registers, one byte each.
        index: the register I, 16 bits.
        pc: address of the next instruction.
        stack: return addresses, at most sixteen.
        delay, sound: timers, which count down once per frame.
        screen: its planes, resolution and selected planes.
        awaited: the key whose release FX0A waits for, or None.
        saved: the sixteen registers that FX75 writes and FX85 reads.
        pattern, pitch: the sound of an XO-CHIP, which is not played.
        random: state of the generator, xorshift32 (Marsaglia 2003), never 0.
        halt: the reason for the halt.
    """

    def __init__(self, rom: bytes, quirks: Quirks = XOCHIP, *, seed: int = 1) -> None:
        self.quirks = quirks
        self.memory = bytearray(quirks.memory_size)
        self.memory[: len(font())] = font()
        self.memory[PROGRAM_START : PROGRAM_START + len(rom)] = rom
        self.v = [0] * 16
        self.index = 0
        self.pc = PROGRAM_START
        self.stack: list[int] = []
        self.delay = self.sound = 0
        self.screen = PlainScreen(quirks.sprites_wrap, quirks.scroll_half_pixels)
        self.awaited: int | None = None
        self.saved = [0] * 16
        self.pattern = bytes(16)
        self.pitch = 64
        self.random = seed
        self.halt = Halt.RUNNING

    def step(self, keys: int, *, frames: int, instructions: int) -> None:
        """Run frames of some instructions each; `keys` has one bit per held key, of sixteen."""
        for _ in range(frames):
            self._frame(keys, instructions)

    def pixels(self) -> NDArray[np.uint8]:
        """The screen, (64, 128) uint8 in 0..3; a new array."""
        return self.screen.pixels()

    def copy(self) -> PlainMachine:
        """A deep copy."""
        return deepcopy(self)

    def state(self) -> dict[str, object]:
        """The whole state, for comparisons; a copy."""
        screen = self.screen.high, self.screen.selected, self.screen.lit.tobytes()
        return {**deepcopy(vars(self)), "screen": screen}

    def _frame(self, keys: int, instructions: int) -> None:
        for _ in range(instructions):
            if self.halt or self._instruction(keys):
                break
        if not self.halt:
            self.delay = max(self.delay - 1, 0)
            self.sound = max(self.sound - 1, 0)

    def _instruction(self, keys: int) -> bool:
        at = self.pc
        opcode = self._word(at)
        self.pc = self._address(at + 2)
        known = self._execute(opcode, keys)
        if not known and not self.halt:
            self.halt = Halt.UNKNOWN_OPCODE
        if self.halt:
            self.pc = at
        return opcode >> 12 == 0xD and self.quirks.draw_ends_frame

    def _execute(self, opcode: int, keys: int) -> bool:
        x, y, n = opcode >> 8 & 15, opcode >> 4 & 15, opcode & 15
        nn, nnn = opcode & 255, opcode & 4095
        v = self.v
        match opcode >> 12:
            case 0x0:
                return self._system(opcode)
            case 0x1:
                self.pc = nnn
            case 0x2:
                self._call(nnn)
            case 0x3:
                self._skip(v[x] == nn)
            case 0x4:
                self._skip(v[x] != nn)
            case 0x5:
                return self._pair(x, y, n)
            case 0x6:
                v[x] = nn
            case 0x7:
                v[x] = v[x] + nn & 255
            case 0x8:
                return self._arithmetic(x, y, n)
            case 0x9 if n == 0:
                self._skip(v[x] != v[y])
            case 0xA:
                self.index = nnn
            case 0xB:
                self.pc = self._address(nnn + v[x if self.quirks.jump_adds_x else 0])
            case 0xC:
                v[x] = self._draw_random() & nn
            case 0xD:
                self._draw(v[x], v[y], n)
            case 0xE if nn == 0x9E:
                self._skip(bool(keys >> (v[x] & 15) & 1))
            case 0xE if nn == 0xA1:
                self._skip(not keys >> (v[x] & 15) & 1)
            case 0xF:
                return self._misc(x, nn, keys)
            case _:
                return False
        return True

    def _system(self, opcode: int) -> bool:
        match opcode:
            case 0x00E0:
                self.screen.clear()
            case 0x00EE:
                self._return()
            case 0x00FB:
                self.screen.scroll(4, 0)
            case 0x00FC:
                self.screen.scroll(-4, 0)
            case 0x00FD:
                self.halt = Halt.EXIT
            case 0x00FE | 0x00FF:
                self.screen.resize(high=opcode == 0x00FF)
            case _ if opcode >> 4 == 0x00C:
                self.screen.scroll(0, opcode & 15)
            case _ if opcode >> 4 == 0x00D:
                self.screen.scroll(0, -(opcode & 15))
            case _:
                return False
        return True

    def _pair(self, x: int, y: int, n: int) -> bool:
        """Compare two registers, or store or load a range of them, in that order."""
        step = 1 if y >= x else -1
        registers = range(x, y + step, step)
        match n:
            case 0:
                self._skip(self.v[x] == self.v[y])
            case 2:
                self._store(self.v[register] for register in registers)
            case 3:
                for offset, register in enumerate(registers):
                    self.v[register] = self._byte(self.index + offset)
            case _:
                return False
        return True

    def _arithmetic(self, x: int, y: int, n: int) -> bool:
        """Run 8XYN. The flag is written last, so it wins if X is F."""
        a, b = self.v[x], self.v[y]
        shifted = a if self.quirks.shift_in_place else b
        kept = 0 if self.quirks.logic_clears_flag else None
        results: dict[int, tuple[int, int | None]] = {
            0x0: (b, None),
            0x1: (a | b, kept),
            0x2: (a & b, kept),
            0x3: (a ^ b, kept),
            0x4: (a + b, int(a + b > 255)),
            0x5: (a - b, int(a >= b)),
            0x6: (shifted >> 1, shifted & 1),
            0x7: (b - a, int(b >= a)),
            0xE: (shifted << 1, shifted >> 7),
        }
        if n not in results:
            return False
        value, flag = results[n]
        self.v[x] = value & 255
        if flag is not None:
            self.v[15] = flag
        return True

    def _misc(self, x: int, nn: int, keys: int) -> bool:
        v = self.v
        match nn:
            case 0x00 if x == 0:
                self.index = self._word(self.pc)
                self.pc = self._address(self.pc + 2)
            case 0x01 if x < 4:
                self.screen.selected = x
            case 0x02 if x == 0:
                self.pattern = bytes(self._byte(self.index + offset) for offset in range(16))
            case 0x07:
                v[x] = self.delay
            case 0x0A:
                self._wait_for_key(x, keys)
            case 0x15:
                self.delay = v[x]
            case 0x18:
                self.sound = v[x]
            case 0x1E:
                self.index = self.index + v[x] & 0xFFFF
            case 0x29:
                self.index = SMALL_FONT + SMALL_FONT_BYTES * (v[x] & 15)
            case 0x30:
                self.index = LARGE_FONT + LARGE_FONT_BYTES * (v[x] & 15)
            case 0x33:
                self._store([v[x] // 100, v[x] // 10 % 10, v[x] % 10])
            case 0x3A:
                self.pitch = v[x]
            case 0x55:
                self._store(v[: x + 1])
                self._move_index(x)
            case 0x65:
                v[: x + 1] = [self._byte(self.index + offset) for offset in range(x + 1)]
                self._move_index(x)
            case 0x75:
                self.saved[: x + 1] = v[: x + 1]
            case 0x85:
                v[: x + 1] = self.saved[: x + 1]
            case _:
                return False
        return True

    def _call(self, address: int) -> None:
        if len(self.stack) == STACK_DEPTH:
            self.halt = Halt.STACK_OVERFLOW
            return
        self.stack.append(self.pc)
        self.pc = address

    def _return(self) -> None:
        if not self.stack:
            self.halt = Halt.STACK_UNDERFLOW
            return
        self.pc = self.stack.pop()

    def _skip(self, condition: bool) -> None:
        if condition:
            self.pc = self._address(self.pc + (4 if self._word(self.pc) == 0xF000 else 2))

    def _wait_for_key(self, x: int, keys: int) -> None:
        """Read the lowest held key, or wait by repeating this instruction."""
        if self.awaited is None and keys:
            self.awaited = (keys & -keys).bit_length() - 1
        key = self.awaited
        if key is None or (self.quirks.key_on_release and keys >> key & 1):
            self.pc = self._address(self.pc - 2)
            return
        self.v[x] = key
        self.awaited = None

    def _draw_random(self) -> int:
        word = self.random
        word ^= word << 13 & 0xFFFFFFFF
        word ^= word >> 17
        word ^= word << 5 & 0xFFFFFFFF
        self.random = word
        return word >> 16 & 255

    def _draw(self, x: int, y: int, n: int) -> None:
        """Draw a sprite 8 wide and n high, or 16 by 16 for n = 0, for each selected plane."""
        num_bytes, rows = (2, 16) if n == 0 else (1, n)
        size = num_bytes * rows * self.screen.selected.bit_count()
        sprite = bytes(self._byte(self.index + offset) for offset in range(size))
        self.v[15] = int(self.screen.draw(x, y, sprite, num_bytes))

    def _store(self, values: Iterable[int]) -> None:
        for offset, value in enumerate(values):
            self.memory[self._address(self.index + offset)] = value

    def _move_index(self, x: int) -> None:
        if self.quirks.memory_moves_index:
            self.index = self.index + x + 1 & 0xFFFF

    def _byte(self, address: int) -> int:
        return self.memory[self._address(address)]

    def _word(self, address: int) -> int:
        return self._byte(address) << 8 | self._byte(address + 1)

    def _address(self, address: int) -> int:
        return address & self.quirks.memory_size - 1


def machine_row(machine: PlainMachine) -> NDArray[np.int32]:
    """The row of a plain machine, (W,) int32, as in `machine_layout`."""
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
    words = (
        registers.astype(np.uint32),
        np.packbits(machine.screen.lit).view(">u4").astype(np.uint32),
        np.frombuffer(bytes(machine.memory), np.uint32),
    )
    return np.concatenate(words).view(np.int32)


def run(
    rom: bytes, buttons: Sequence[Button], quirks: Quirks = XOCHIP, *, seed: int = 1
) -> PlainMachine:
    """A machine after holding each button for one step; other arguments as for `PlainMachine`.

    A step is `FRAMES` frames of `INSTRUCTIONS` instructions.
    """
    machine = PlainMachine(rom, quirks, seed=seed)
    for button in buttons:
        machine.step(1 << KEYS[button], frames=FRAMES, instructions=INSTRUCTIONS)
    return machine
