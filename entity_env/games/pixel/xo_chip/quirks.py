"""Constants of the CHIP-8 family, and the quirks that distinguish its dialects.

Sources: Octo's XO-CHIP specification (John Earnest), SUPER-CHIP 1.1's documentation (Erik Bryntse),
and the notes on interpreter quirks in Timendus' test suite.

Behavior that the documents leave open; identical in all dialects here:

- a frame is a number of instructions; then the timers count down, unless the machine halted;
- 0NNN (once a call of machine code) and undocumented opcodes halt, and so do a call nested below
  sixteen others and a return without a call;
- the opcode that waits for a key reads the lowest key held, even if held before;
- DXY0 is 16 by 16 in both resolutions; VF is 0 or 1, however many rows collided;
- choosing a resolution clears both planes; drawing with no plane selected sets VF to 0;
- FX29 and FX30 use the low four bits of VX, as EX9E and EXA1 do;
- FX1E leaves VF unchanged; FX75 and FX85 cover sixteen registers;
- there is no sound: its timer, pattern and pitch are only state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from entity_env.errors import SchemaError
from entity_env.games.pixel.worlds.world import Button

WIDTH = 128
HEIGHT = 64
NUM_KEYS = 16
STACK_DEPTH = 16
PROGRAM_START = 0x200
SMALL_MEMORY = 4096
LARGE_MEMORY = 65536

# Hexadecimal digits, 4 by 5: one nibble per row, leftmost pixel highest.
_DIGITS = (
    *("F999F", "26227", "F1F8F", "F1F1F", "99F11", "F8F1F", "F8F9F", "F1244"),
    *("F9F9F", "F9F1F", "F9F99", "E9E9E", "F888F", "E999E", "F8F8F", "F8F88"),
)
SMALL_FONT = 0
SMALL_FONT_BYTES = 5
LARGE_FONT = SMALL_FONT + SMALL_FONT_BYTES * len(_DIGITS)
LARGE_FONT_BYTES = 10

# Keys that games use as a gamepad: 5, 7, 8, 9 are arranged like arrows.
KEYS: Mapping[Button, int] = MappingProxyType(
    {
        Button.A: 0x6,
        Button.B: 0x4,
        Button.START: 0x1,
        Button.UP: 0x5,
        Button.DOWN: 0x8,
        Button.LEFT: 0x7,
        Button.RIGHT: 0x9,
    }
)
"""Keypad keys by button."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """Differences between dialects in opcode behavior. Every opcode exists in every dialect.

    Attributes:
        memory_size: bytes of memory, 4096 or 65536; addresses wrap.
        logic_clears_flag: 8XY1, 8XY2 and 8XY3 set VF to 0.
        shift_in_place: 8XY6 and 8XYE shift VX; otherwise VX becomes VY shifted.
        memory_moves_index: FX55 and FX65 leave I after the last byte of the range.
        jump_adds_x: BXNN jumps to XNN + VX; otherwise BNNN jumps to NNN + V0.
        sprites_wrap: sprites wrap at the edges of the screen; otherwise they are clipped.
        draw_ends_frame: DXYN ends the frame.
        scroll_half_pixels: in low resolution, scrolls count pixels of the high resolution.
        key_on_release: FX0A waits until the key is released; otherwise it reads a held key at once.

    Raises:
        SchemaError: memory_size is neither 4096 nor 65536.
    """

    memory_size: int = LARGE_MEMORY
    logic_clears_flag: bool = False
    shift_in_place: bool = False
    memory_moves_index: bool = True
    jump_adds_x: bool = False
    sprites_wrap: bool = True
    draw_ends_frame: bool = False
    scroll_half_pixels: bool = False
    key_on_release: bool = True

    def __post_init__(self) -> None:
        if self.memory_size not in (SMALL_MEMORY, LARGE_MEMORY):
            raise SchemaError(
                f"memory_size: expected {SMALL_MEMORY} or {LARGE_MEMORY}, got {self.memory_size!r}"
            )


CHIP8 = Quirks(
    memory_size=SMALL_MEMORY, logic_clears_flag=True, sprites_wrap=False, draw_ends_frame=True
)
"""COSMAC VIP behavior."""
SUPERCHIP = Quirks(
    memory_size=SMALL_MEMORY,
    shift_in_place=True,
    memory_moves_index=False,
    jump_adds_x=True,
    sprites_wrap=False,
)
"""Behavior of current SUPER-CHIP interpreters; the HP-48 also scrolled half pixels."""
XOCHIP = Quirks()
"""Octo behavior."""


def font() -> bytes:
    """Both fonts as in memory from address 0: sixteen digits of 5 bytes, sixteen of 10 bytes."""
    small = bytes(int(row, 16) << 4 for digit in _DIGITS for row in digit)
    return small + bytes(double(row >> 4, 4) for row in small for _ in range(2))


def double(bits: int, size: int) -> int:
    """The `size` bits of a row, each doubled."""
    return sum(0b11 << 2 * place for place in range(size) if bits >> place & 1)
