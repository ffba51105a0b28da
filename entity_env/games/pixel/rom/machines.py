"""Machines for any ROM: what runs it, with every number that its screens depend on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.core.files import read_file
from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.checks import require_count
from entity_env.games.pixel.worlds.game_boy import MAX_ROM, PyBoyWorld, check_step
from entity_env.games.pixel.worlds.world import World
from entity_env.games.pixel.xo_chip.machine_layout import check_registers
from entity_env.games.pixel.xo_chip.programs import FRAMES, INSTRUCTIONS
from entity_env.games.pixel.xo_chip.quirks import CHIP8, SUPERCHIP, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.world import XoChipWorld

Dialect = Literal["xochip", "superchip", "chip8"]
State: TypeAlias = Mapping[str, NDArray[np.generic]]
"""The whole state of one machine by name, as `World.state` has it for many."""

_QUIRKS: Final[Mapping[Dialect, Quirks]] = {
    "xochip": XOCHIP,
    "superchip": SUPERCHIP,
    "chip8": CHIP8,
}
_GAME_BOY_FILES: Final = (".gb", ".gbc")


@dataclass(frozen=True, slots=True)
class XoChipMachine:
    """A machine of the CHIP-8 family.

    Attributes:
        quirks: the dialect.
        frames: in a step.
        instructions: in a frame.
        seed: of its random numbers, from 1 to 2**32 - 1.

    Raises:
        UsageError: there is no such dialect, or a number is out of range.
    """

    kind: ClassVar[str] = "xo-chip"
    quirks: Dialect = "xochip"
    frames: int = FRAMES
    instructions: int = INSTRUCTIONS
    seed: int = 1

    def __post_init__(self) -> None:
        if self.quirks not in _QUIRKS:
            names = ", ".join(get_args(Dialect))
            raise UsageError(f"quirks: expected one of {names}, got {self.quirks!r}")
        require_count("frames", self.frames)
        require_count("instructions", self.instructions)
        if type(self.seed) is not int or not 1 <= self.seed < 2**32:
            raise UsageError(f"seed: expected a number from 1 to 2**32 - 1, got {self.seed!r}")

    def world(
        self, rom: bytes, num_envs: int, *, start: State | None = None, device: str = "cpu"
    ) -> World:
        """Make machines that all are in one state, switched on if there is none; the bank too.

        Raises:
            SchemaError: a ROM that is none, or a state that is not one of such a machine.
            UsageError: no such device.
            MissingExtraError: Warp is not installed.
        """
        world = XoChipWorld(
            rom,
            num_envs,
            quirks=_QUIRKS[self.quirks],
            frames=self.frames,
            instructions=self.instructions,
            seed=self.seed,
            device=device,
        )
        if start is not None:
            _put(world, start)
        return world


@dataclass(frozen=True, slots=True)
class GameBoyMachine:
    """A Game Boy, emulated by PyBoy; on the CPU only.

    Attributes:
        frames: in a step.
        hold_frames: frames of them that the button is held.
        shrink: 2 shows every other row and column, 1 all.

    Raises:
        UsageError: a number out of range.
    """

    kind: ClassVar[str] = "game-boy"
    frames: int = 24
    hold_frames: int = 8
    shrink: int = 2

    def __post_init__(self) -> None:
        check_step(self.frames, self.hold_frames, self.shrink)

    def world(
        self, rom: bytes, num_envs: int, *, start: State | None = None, device: str = "cpu"
    ) -> World:
        """Make machines that all are in one state, switched on if there is none; the bank too.

        Raises:
            SchemaError: a ROM that is none, or a state that is not one of such a machine.
            UsageError: another device than the CPU, or PyBoy cannot run this.
            MissingExtraError: PyBoy is not installed.
        """
        if device != "cpu":
            raise UsageError(f"device: Game Boys run on the CPU alone, got {device!r}")
        if start is not None and set(start) != {"machine"}:
            raise SchemaError(f"start: expected the state of a Game Boy, got {sorted(start)}")
        return PyBoyWorld(
            rom,
            num_envs,
            start=None if start is None else start["machine"].tobytes(),
            frames=self.frames,
            hold_frames=self.hold_frames,
            shrink=self.shrink,
        )


Machine: TypeAlias = XoChipMachine | GameBoyMachine


def machine_for(
    rom: Path,
    *,
    quirks: str | None = None,
    frames: int | None = None,
    instructions: int | None = None,
    seed: int | None = None,
) -> Machine:
    """Choose what runs a file: a Game Boy for `.gb` and `.gbc`, else an XO-CHIP.

    Args:
        rom: its name counts.
        quirks, frames, instructions, seed: those of the machine, where they are given.

    Raises:
        UsageError: a Game Boy has no such number, or it is out of range.
    """
    if rom.suffix.lower() not in _GAME_BOY_FILES:
        default = XoChipMachine()
        return XoChipMachine(
            default.quirks if quirks is None else cast(Dialect, quirks),
            default.frames if frames is None else frames,
            default.instructions if instructions is None else instructions,
            default.seed if seed is None else seed,
        )
    others = {"quirks": quirks, "instructions": instructions, "seed": seed}
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise UsageError(f"{rom}: a Game Boy has no {', '.join(given)}")
    most = GameBoyMachine()
    frames = most.frames if frames is None else frames
    return GameBoyMachine(frames, hold_frames=min(most.hold_frames, max(frames, 1)))


def read_rom(path: Path) -> bytes:
    """Read a ROM file.

    Raises:
        UsageError: it is not there, or cannot be read, or is empty, or larger than any.
    """
    try:
        rom = read_file(path, MAX_ROM)
    except OSError as error:
        raise UsageError(f"the ROM {path} cannot be read: {error.strerror}") from error
    if not rom:
        raise UsageError(f"the ROM {path} is empty")
    return rom


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Turn what is wrong with a user's file into an error that names the file.

    Raises:
        UsageError: in place of a SchemaError.
    """
    try:
        yield
    except SchemaError as error:
        raise UsageError(f"{path}: {error}") from error


def state_of(world: World, env: int = 0) -> dict[str, NDArray[np.generic]]:
    """Copy the whole state of one machine to the host."""
    return {name: rows[env].cpu().numpy().copy() for name, rows in world.state().items()}


def _put(world: XoChipWorld, start: State) -> None:
    """Make every machine that state, and what the bank holds."""
    views = world.state()
    if set(start) != set(views):
        raise SchemaError(f"start: expected {sorted(views)} of an XO-CHIP, got {sorted(start)}")
    for name, view in views.items():
        row, dtype = start[name], str(view.dtype).removeprefix("torch.")
        if row.shape != view.shape[1:] or row.dtype != dtype:
            raise SchemaError(
                f"start: expected {name} of {tuple(view.shape[1:])} {dtype}, got "
                f"{row.shape} {row.dtype}"
            )
    check_registers(start["registers"].astype(np.int32), world.quirks.memory_size)
    for name, view in views.items():
        view.copy_(torch.from_numpy(start[name]))
    for slot in range(world.num_slots):
        world.snapshot(0, slot)
