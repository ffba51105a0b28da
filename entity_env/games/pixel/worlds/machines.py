"""Machines for any ROM: emulator, and settings that affect the screens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.core.files import read_file
from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.worlds.checks import require_count
from entity_env.games.pixel.worlds.game_boy import MAX_ROM, PyBoyWorld, check_step_settings
from entity_env.games.pixel.worlds.world import World
from entity_env.games.pixel.xo_chip.machine_layout import check_registers
from entity_env.games.pixel.xo_chip.programs import FRAMES, INSTRUCTIONS
from entity_env.games.pixel.xo_chip.quirks import CHIP8, SUPERCHIP, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.world import XoChipWorld

Dialect = Literal["xochip", "superchip", "chip8"]
State: TypeAlias = Mapping[str, NDArray[np.generic]]
"""Whole state of one machine by name: a row of `World.state`."""

_QUIRKS: Final[Mapping[Dialect, Quirks]] = {
    "xochip": XOCHIP,
    "superchip": SUPERCHIP,
    "chip8": CHIP8,
}
_GAME_BOY_FILES: Final = (".gb", ".gbc")


@dataclass(frozen=True, slots=True)
class XoChipMachine:
    """Settings of a machine of the CHIP-8 family; see `XoChipWorld`.

    Raises:
        UsageError: no such dialect, or a number out of range.
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
        """Machines and bank, all in the state `start`.

        By default they are just switched on, and each machine draws different random numbers.
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
    """Settings of a Game Boy; see `PyBoyWorld`.

    Raises:
        UsageError: a number out of range.
    """

    kind: ClassVar[str] = "game-boy"
    frames: int = 24
    hold_frames: int = 8
    shrink: int = 2

    def __post_init__(self) -> None:
        check_step_settings(self.frames, self.hold_frames, self.shrink)

    def world(
        self, rom: bytes, num_envs: int, *, start: State | None = None, device: str = "cpu"
    ) -> World:
        """Machines and bank, all in one state; default: power-on."""
        if device != "cpu":
            raise UsageError(f"device: Game Boys run only on the CPU, got {device!r}")
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
    """Machine for a ROM file, by suffix: a Game Boy for `.gb` and `.gbc`, otherwise an XO-CHIP.

    A setting that is None has its default value.
    """
    settings = {"quirks": quirks, "frames": frames, "instructions": instructions, "seed": seed}
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if rom.suffix.lower() not in _GAME_BOY_FILES:
        return XoChipMachine(**given)
    others = [name for name in given if name != "frames"]
    if others:
        raise UsageError(f"{rom}: a Game Boy has no {', '.join(others)}")
    machine = GameBoyMachine()
    return replace(
        machine,
        **given,
        hold_frames=min(machine.hold_frames, max(given.get("frames", machine.frames), 1)),
    )


def read_rom(path: Path) -> bytes:
    """Contents of a ROM file."""
    try:
        rom = read_file(path, MAX_ROM)
    except OSError as error:
        raise UsageError(f"the ROM {path} cannot be read: {error.strerror}") from error
    if not rom:
        raise UsageError(f"the ROM {path} is empty")
    return rom


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Turns a `SchemaError` into a `UsageError` that names the file."""
    try:
        yield
    except SchemaError as error:
        raise UsageError(f"{path}: {error}") from error


def state_of(world: World, env: int = 0) -> dict[str, NDArray[np.generic]]:
    """Whole state of one machine, copied to the host."""
    return {name: rows[env].cpu().numpy().copy() for name, rows in world.state().items()}


def _put(world: XoChipWorld, start: State) -> None:
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
