"""External states are only accepted if a machine can be in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.games.pixel.worlds.machines import GameBoyMachine, XoChipMachine, state_of
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip import programs
from entity_env.games.pixel.xo_chip.machine_layout import (
    AWAITED,
    HALT,
    HIGH,
    INDEX,
    NUM_REGISTERS,
    PC,
    RANDOM,
    SAVED,
    SELECTED,
    STACK,
    STACK_POINTER,
    check_registers,
)
from entity_env.games.pixel.xo_chip.quirks import CHIP8, SUPERCHIP, XOCHIP, Quirks
from tests.games.pixel.worlds.game_boy_rom import square_rom
from tests.games.pixel.xo_chip.plain_machine import PlainMachine, machine_row
from tests.games.pixel.xo_chip.random_programs import random_machines

MAZE = programs.program("maze")
DIALECTS = [CHIP8, SUPERCHIP, XOCHIP]


def registers_of(machine: PlainMachine) -> NDArray[np.int32]:
    return machine_row(machine)[:NUM_REGISTERS].copy()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    quirks=st.sampled_from(DIALECTS),
    keys=st.integers(0, 0xFFFF),
    frames=st.integers(0, 5),
)
def test_whatever_a_machine_does_can_be_gone_on_from(
    seed: int, quirks: Quirks, keys: int, frames: int
) -> None:
    """The check accepts every reachable state."""
    for machine in random_machines(np.random.default_rng(seed), 4, quirks):
        machine.step(keys, frames=frames, instructions=20)
        check_registers(registers_of(machine), quirks.memory_size)


WRONG = [
    (0, 256),
    (15, -1),
    (INDEX, 65536),
    (PC, 4096),
    (PC, -2),
    (STACK_POINTER, 17),
    (STACK_POINTER, -1),
    (HIGH, 2),
    (SELECTED, 4),
    (HALT, 5),
    (AWAITED, 17),
    (RANDOM, 0),
    (STACK, 4096),
    (STACK + 15, -1),
    (SAVED, 256),
    (NUM_REGISTERS - 1, -1),
]


@pytest.mark.parametrize(("word", "value"), WRONG)
def test_a_register_that_kernels_could_not_trust(word: int, value: int) -> None:
    registers = registers_of(PlainMachine(MAZE[:1000], CHIP8))
    check_registers(registers, CHIP8.memory_size)
    registers[word] = value
    with pytest.raises(SchemaError, match=rf"registers: expected word {word} .*, got {value}$"):
        check_registers(registers, CHIP8.memory_size)


def test_any_random_number_but_zero_will_do() -> None:
    registers = registers_of(PlainMachine(MAZE))
    for value in (1, -1, 2**31 - 1, -(2**31)):
        registers[RANDOM] = value
        check_registers(registers, XOCHIP.memory_size)


def test_more_memory_has_more_addresses() -> None:
    registers = registers_of(PlainMachine(MAZE))
    registers[PC] = registers[STACK] = 0xFFFE
    check_registers(registers, XOCHIP.memory_size)
    with pytest.raises(SchemaError, match=f"word {PC} from 0 to 4095, got 65534"):
        check_registers(registers, CHIP8.memory_size)


class TestStarts:
    """`XoChipMachine.world` with a start."""

    @pytest.fixture
    def start(self) -> dict[str, Any]:
        world = XoChipMachine().world(MAZE, 1)
        for button in (Button.A, Button.RIGHT):
            world.step(torch.full((1,), button.value, dtype=torch.int32))
        return state_of(world)

    def test_all_machines_and_the_bank_are_in_it(self, start: dict[str, Any]) -> None:
        world = XoChipMachine().world(MAZE, 3, start=start)
        for env in range(3):
            for name, value in state_of(world, env).items():
                np.testing.assert_array_equal(value, start[name], err_msg=name)
        before = state_of(world, 2)
        for button in (Button.DOWN, Button.A):
            world.step(torch.full((3,), button.value, dtype=torch.int32))
        assert any((state_of(world, 2)[name] != before[name]).any() for name in before)
        world.reset(torch.ones(3, dtype=torch.bool), torch.zeros(3, dtype=torch.int32))
        for name, value in state_of(world, 2).items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)

    def test_a_stack_pointer_that_would_write_beyond_the_machine(
        self, start: dict[str, Any]
    ) -> None:
        start["registers"][STACK_POINTER] = 1_000_000
        with pytest.raises(SchemaError, match=f"word {STACK_POINTER} from 0 to 16, got 1000000"):
            XoChipMachine().world(MAZE, 2, start=start)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("memory", np.zeros(4096, np.uint8), r"memory of \(65536,\) uint8, got \(4096,\)"),
            ("memory", np.zeros(65536, np.int8), r"memory of .* uint8, got \(65536,\) int8"),
            ("planes", np.zeros((2, 256), np.int32), r"planes of \(512,\) int32, got \(2, 256\)"),
            ("planes", np.full(512, "x"), r"planes of \(512,\) int32, got \(512,\) <U1"),
            ("registers", np.zeros(64), r"registers of \(64,\) int32, got \(64,\) float64"),
        ],
    )
    def test_an_array_of_another_machine(
        self, start: dict[str, Any], name: str, value: NDArray[Any], message: str
    ) -> None:
        with pytest.raises(SchemaError, match=f"start: expected {message}"):
            XoChipMachine().world(MAZE, 2, start={**start, name: value})

    def test_the_names_of_another_machine(self, start: dict[str, Any]) -> None:
        game_boy = {"machine": np.zeros(5, np.uint8)}
        with pytest.raises(SchemaError, match=r"of an XO-CHIP, got \['machine'\]"):
            XoChipMachine().world(MAZE, 1, start=game_boy)
        with pytest.raises(SchemaError, match=r"expected the state of a Game Boy, got .'memory'"):
            GameBoyMachine().world(square_rom(), 1, start=start)
        del start["registers"]
        with pytest.raises(SchemaError, match=r"expected .*, got .'memory', 'planes'.$"):
            XoChipMachine().world(MAZE, 1, start=start)

    def test_a_start_of_another_dialect(self, start: dict[str, Any]) -> None:
        with pytest.raises(SchemaError, match=r"memory of \(4096,\) uint8, got \(65536,\)"):
            XoChipMachine("chip8").world(MAZE[:500], 1, start=start)
