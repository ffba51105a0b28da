"""The XO-CHIP machine and two programs for it.

It also runs CHIP-8 and SUPER-CHIP programs. General screens and buttons are in `worlds`.
"""

from entity_env.games.pixel.xo_chip.machine_layout import Halt as Halt
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
