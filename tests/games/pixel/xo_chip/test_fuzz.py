"""The kernels equal the plain machine: every opcode, random programs, complete states."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from entity_env.games.pixel.xo_chip import programs
from entity_env.games.pixel.xo_chip.machine_layout import Halt
from entity_env.games.pixel.xo_chip.quirks import CHIP8, SUPERCHIP, WIDTH, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.world import XoChipWorld
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tests.games.pixel.xo_chip.random_programs import (
    PATTERNS,
    assert_same,
    load,
    one_opcode,
    random_machines,
    run_both,
)

DIALECTS = {
    "chip8": CHIP8,
    "superchip": SUPERCHIP,
    "xochip": XOCHIP,
    # The dialects of 1991, and one with every quirk of XO-CHIP inverted.
    "hp48": Quirks(
        memory_size=4096,
        shift_in_place=True,
        memory_moves_index=False,
        jump_adds_x=True,
        sprites_wrap=False,
        draw_ends_frame=True,
        scroll_half_pixels=True,
        key_on_release=False,
    ),
    "contrary": Quirks(
        logic_clears_flag=True,
        shift_in_place=True,
        memory_moves_index=False,
        jump_adds_x=True,
        sprites_wrap=False,
        draw_ends_frame=True,
        scroll_half_pixels=True,
        key_on_release=False,
    ),
}
IDLE = b"\x12\x00"


@pytest.fixture(params=DIALECTS)
def quirks(request: pytest.FixtureRequest) -> Quirks:
    return DIALECTS[request.param]


def world_of(
    machines: list[PlainMachine], quirks: Quirks, *, frames: int, instructions: int
) -> XoChipWorld:
    world = XoChipWorld(
        IDLE, len(machines), quirks=quirks, frames=frames, instructions=instructions
    )
    load(world, machines)
    return world


def actions_for(
    machines: list[PlainMachine], rng: np.random.Generator, steps: int
) -> NDArray[np.int32]:
    return rng.integers(7, size=(steps, len(machines)), dtype=np.int32)


def opcodes(rng: np.random.Generator) -> Iterable[int]:
    """Three opcodes of every pattern, and enough for drawing to cover the whole screen."""
    for pattern in PATTERNS:
        for _ in range(20 if pattern[0] == "D" else 3):
            digits = [f"{rng.integers(16):X}" if digit.islower() else digit for digit in pattern]
            yield int("".join(digits), 16)


def check_opcodes(chosen: Iterable[int], quirks: Quirks, seed: int) -> XoChipWorld:
    rng = np.random.default_rng(seed)
    machines = [one_opcode(opcode, rng, quirks) for opcode in chosen]
    world = world_of(machines, quirks, frames=1, instructions=1)
    run_both(world, machines, actions_for(machines, rng, 1))
    assert_same(world, machines)
    return world


def check_programs(num: int, steps: int, quirks: Quirks, seed: int) -> None:
    rng = np.random.default_rng(seed)
    machines = random_machines(rng, num, quirks)
    world = world_of(machines, quirks, frames=5, instructions=20)
    run_both(world, machines, actions_for(machines, rng, steps))
    assert_same(world, machines)


def test_every_opcode(quirks: Quirks) -> None:
    world = check_opcodes(opcodes(np.random.default_rng(1)), quirks, seed=2)
    unknown = (world.halts == Halt.UNKNOWN_OPCODE).sum()
    assert unknown == 0


@pytest.mark.parametrize("opcode", [0xD015, 0xD010])
@pytest.mark.parametrize("high", [False, True])
def test_a_sprite_in_every_column(quirks: Quirks, opcode: int, *, high: bool) -> None:
    rng = np.random.default_rng(5)
    machines = [one_opcode(opcode, rng, quirks) for _ in range(WIDTH)]
    for x, machine in enumerate(machines):
        machine.v[0], machine.screen.high = x, high
    world = world_of(machines, quirks, frames=1, instructions=1)
    run_both(world, machines, actions_for(machines, rng, 1))
    assert_same(world, machines)


@pytest.mark.slow
def test_random_programs(quirks: Quirks) -> None:
    check_programs(256, 2, quirks, seed=3)


def test_a_difference_is_found() -> None:
    rng = np.random.default_rng(4)
    machines = random_machines(rng, 8, XOCHIP)
    world = world_of(machines, XOCHIP, frames=1, instructions=10)
    run_both(world, machines, actions_for(machines, rng, 1))
    assert_same(world, machines)
    machines[5].memory[1000] ^= 1
    with pytest.raises(AssertionError, match="1 machines differ, the first is 5"):
        assert_same(world, machines)


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_game_from_start_to_goal(name: str) -> None:
    start, solution = programs.PROGRAMS[name]
    rom = programs.program(name)
    world = XoChipWorld(rom, 1, frames=programs.FRAMES, instructions=programs.INSTRUCTIONS)
    machines = [PlainMachine(rom, XOCHIP)]
    buttons = [button.value for button in (*start, *solution)]
    for action in buttons:
        run_both(world, machines, np.array([[action]], np.int32))
        assert_same(world, machines)
    pixels = torch.zeros((1, 64, 128), dtype=torch.uint8)
    world.render(pixels)
    np.testing.assert_array_equal(pixels[0].numpy(), programs.goal_frame(name))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_word_as_an_opcode() -> None:
    for first in range(0, 65536, 2048):
        check_opcodes(range(first, first + 2048), SUPERCHIP, seed=first)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_random_programs(quirks: Quirks) -> None:
    for seed in range(100, 106):
        check_programs(512, 4, quirks, seed)
