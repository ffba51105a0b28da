"""The XO-CHIP machine, its reference in Python, an assembler and two programs.

It also runs programs for CHIP-8 and SUPER-CHIP; screens and buttons in general are in `worlds`.
"""

from entity_env.games.pixel.xo_chip.assembler import (
    assemble as assemble,
    disassemble as disassemble,
)
from entity_env.games.pixel.xo_chip.programs import (
    PROGRAMS as PROGRAMS,
    goal_frame as goal_frame,
    program as program,
)
from entity_env.games.pixel.xo_chip.quirks import (
    CHIP8 as CHIP8,
    KEYS as KEYS,
    SUPERCHIP as SUPERCHIP,
    XOCHIP as XOCHIP,
    Quirks as Quirks,
)
from entity_env.games.pixel.xo_chip.reference_machine import (
    Halt as Halt,
    PlainMachine as PlainMachine,
)
