"""Random programs for machines of the CHIP-8 family, and comparison of machines."""

from __future__ import annotations

import re

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.machine_layout import FIRST_MEMORY_WORD, NUM_REGISTERS
from entity_env.games.pixel.xo_chip.quirks import (
    HEIGHT,
    KEYS,
    PROGRAM_START,
    STACK_DEPTH,
    WIDTH,
    Quirks,
)
from entity_env.games.pixel.xo_chip.world import XoChipWorld
from tests.games.pixel.xo_chip.plain_machine import PlainMachine, machine_row

# Patterns of opcodes: digits are fixed, letters are random. Opcodes that are common in games or
# error-prone occur more than once.
PATTERNS = (
    *("00E0", "00EE", "00FB", "00FB", "00FC", "00FC", "00FE", "00FF", "00FF", "00Cn", "00Cn"),
    *("00Dn", "00Dn", "1fff", "2fff", "3xnn", "4xnn", "5xy0", "5xy2", "5xy3", "6xnn"),
    *("6xnn", "7xnn", "8xy0", "8xy1", "8xy2", "8xy3", "8xy4", "8xy5", "8xy6", "8xy7", "8xyE"),
    *("9xy0", "Annn", "Annn", "Bfff", "Cxnn", "Dxyn", "Dxyn", "Dxyn", "Dxyn", "Dxy0", "Dxy0"),
    *("Ex9E", "ExA1", "F000", "F001", "F101", "F201", "F301", "F301", "F301", "F002", "Fx07"),
    *("Fx0A", "Fx15", "Fx18", "Fx1E", "Fx29", "Fx30", "Fx33", "Fx3A", "Fx55", "Fx65", "Fx75"),
    "Fx85",
)
"""`f` is an address in the program itself, so jumps stay inside."""
NUM_OPCODES = 200


_BASES = np.array([int(re.sub("[a-z]", "0", pattern), 16) for pattern in PATTERNS])
_FREE = np.array([int(re.sub("[xyn]", "F", re.sub("[^xyn]", "0", p)), 16) for p in PATTERNS])
_JUMPS = np.array(["fff" in pattern for pattern in PATTERNS])


def random_program(rng: np.random.Generator) -> bytes:
    """Return a program in which most instructions are valid and a few are arbitrary."""
    chosen = rng.integers(len(PATTERNS), size=NUM_OPCODES)
    anything = rng.integers(65536, size=NUM_OPCODES)
    targets = PROGRAM_START + 2 * rng.integers(NUM_OPCODES, size=NUM_OPCODES)
    opcodes = _BASES[chosen] | anything & _FREE[chosen] | targets * _JUMPS[chosen]
    opcodes = np.where(rng.random(NUM_OPCODES) < 0.001, anything, opcodes)
    opcodes[rng.random(NUM_OPCODES) < 0.001] = 0x00FD
    return opcodes.astype(">u2").tobytes() + rng.bytes(112)


def load(world: XoChipWorld, machines: list[PlainMachine]) -> None:
    """Load the complete state of the machines into a world."""
    rows = torch.from_numpy(np.stack([machine_row(machine) for machine in machines]))
    state = world.state()
    state["registers"].copy_(rows[:, :NUM_REGISTERS])
    state["planes"].copy_(rows[:, NUM_REGISTERS:FIRST_MEMORY_WORD])
    state["memory"].copy_(rows[:, FIRST_MEMORY_WORD:].contiguous().view(torch.uint8))


def rows_of(world: XoChipWorld) -> NDArray[np.int32]:
    """Return the whole state of every machine, (N, W) int32; a copy."""
    state = world.state()
    parts = (state["registers"], state["planes"], state["memory"].contiguous().view(torch.int32))
    return torch.cat([part.cpu() for part in parts], 1).numpy()


def run_both(world: XoChipWorld, machines: list[PlainMachine], actions: NDArray[np.int32]) -> None:
    """Step a world and plain machines alike.

    Args:
        world: with as many machines.
        machines: in the same state as the world.
        actions: (steps, N), values of `Button`.
    """
    for row in actions:
        world.step(torch.from_numpy(row).to(world.device))
        for machine, action in zip(machines, row, strict=True):
            keys = 1 << KEYS[Button(action)]
            machine.step(keys, frames=world.frames, instructions=world.instructions)


def scramble(machine: PlainMachine, rng: np.random.Generator) -> None:
    """Randomize everything except the program, to values that a program could have set."""
    machine.v = rng.integers(256, size=16).tolist()
    machine.saved = rng.integers(256, size=16).tolist()
    machine.stack = [PROGRAM_START + 2 * place for place in range(rng.integers(STACK_DEPTH + 1))]
    machine.index = int(rng.integers(65536))
    machine.delay, machine.sound, machine.pitch = rng.integers(256, size=3).tolist()
    machine.pattern = rng.bytes(16)
    machine.random = int(rng.integers(1, 2**32))
    machine.awaited = int(rng.integers(16)) if rng.random() < 0.5 else None
    machine.screen.high = bool(rng.integers(2))
    machine.screen.selected = int(rng.integers(4))
    # Half of the rows are dark, so drawing does not always collide.
    machine.screen.lit = rng.random((2, HEIGHT, WIDTH)) < rng.choice([0, 0.5], (2, HEIGHT, 1))


def random_machines(rng: np.random.Generator, num: int, quirks: Quirks) -> list[PlainMachine]:
    """Return machines with a random program, in random states."""
    machines = [PlainMachine(random_program(rng), quirks) for _ in range(num)]
    for machine in machines:
        scramble(machine, rng)
    return machines


def one_opcode(opcode: int, rng: np.random.Generator, quirks: Quirks) -> PlainMachine:
    """Return a machine that is about to run an opcode, in a random state."""
    machine = PlainMachine(opcode.to_bytes(2) + rng.bytes(3000), quirks)
    scramble(machine, rng)
    return machine


def assert_same(world: XoChipWorld, machines: list[PlainMachine]) -> None:
    """Compare the whole state and the screens."""
    wanted, got = np.stack([machine_row(machine) for machine in machines]), rows_of(world)
    differ = np.flatnonzero((wanted != got).any(1))
    if len(differ):
        env = int(differ[0])
        words = np.flatnonzero(wanted[env] != got[env])[:20]
        program = bytes(machines[env].memory[PROGRAM_START : PROGRAM_START + 16]).hex()
        raise AssertionError(
            f"{len(differ)} machines differ, the first is {env} with program {program}..., in "
            f"words {words.tolist()}: wanted {wanted[env][words]}, got {got[env][words]}"
        )
    pixels = torch.zeros((len(machines), HEIGHT, WIDTH), dtype=torch.uint8, device=world.device)
    world.render(pixels)
    np.testing.assert_array_equal(
        pixels.cpu().numpy(), np.stack([machine.pixels() for machine in machines])
    )
