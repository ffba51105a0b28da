"""Machines as a whole: initial state, halts, copies, and invariants of any program."""

import re

import numpy as np
import pytest

from entity_env.errors import SchemaError
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip import CHIP8, KEYS, XOCHIP, Halt, Quirks
from entity_env.games.pixel.xo_chip.quirks import (
    LARGE_FONT,
    LARGE_FONT_BYTES,
    SMALL_FONT_BYTES,
    double,
    font,
)
from tests.games.pixel.xo_chip.plain_machine import PlainMachine
from tests.games.pixel.xo_chip.reference_machines import after
from tools.assemble import FORMS


def machine_of(code: bytes, quirks: Quirks = XOCHIP) -> PlainMachine:
    return PlainMachine(code, quirks)


# ---------------------------------------------------------------------------- initial state


def test_a_new_machine() -> None:
    machine = PlainMachine(b"\x12\x34", CHIP8, seed=7)
    assert machine.memory[0x200:0x203] == b"\x12\x34\0"
    assert machine.memory[: len(font())] == font()
    assert (machine.pc, machine.index, machine.random) == (0x200, 0, 7)
    assert machine.v == machine.saved == [0] * 16
    assert (machine.delay, machine.sound, machine.pitch, machine.stack) == (0, 0, 64, [])
    assert machine.halt is Halt.RUNNING


@pytest.mark.parametrize("size", [0, 1, 4095, 65537])
def test_refuses_another_size_of_memory(size: int) -> None:
    with pytest.raises(SchemaError, match=f"memory_size: expected 4096 or 65536, got {size}"):
        Quirks(memory_size=size)


def test_the_buttons_have_keys_of_their_own() -> None:
    assert set(KEYS) == set(Button)
    assert len(set(KEYS.values())) == len(Button)
    assert set(KEYS.values()) <= set(range(16))


def test_the_large_digits_are_the_small_ones_doubled() -> None:
    assert len(font()) == LARGE_FONT + 16 * LARGE_FONT_BYTES
    for at in range(16 * SMALL_FONT_BYTES):
        pair = font()[LARGE_FONT + 2 * at : LARGE_FONT + 2 * at + 2]
        assert pair[0] == pair[1] == double(font()[at] >> 4, 4)


def test_double() -> None:
    assert double(0b1011, 4) == 0b11001111
    assert double(0b1011, 2) == 0b1111


# ---------------------------------------------------------------------------- halts


def known(opcode: int) -> bool:
    patterns = (re.sub("[XYN]", ".", form.opcode[:4]).replace("P", "[0-3]") for form in FORMS)
    return any(re.fullmatch(pattern, f"{opcode:04X}") for pattern in patterns)


@pytest.mark.parametrize("first", range(16))
def test_every_opcode_is_known_or_halts(first: int) -> None:
    room = 256 if first in (0x0, 0x5, 0x8, 0x9, 0xE, 0xF) else 16
    rng = np.random.default_rng(first)
    rests = {
        *rng.integers(4096, size=room).tolist(),
        *range(256),
        *range(0, 4096, 256),
        *range(1, 4096, 256),
    }
    machine = machine_of(b"\0\0")
    for rest in rests:
        machine.memory[0x200:0x202] = (first << 12 | rest).to_bytes(2)
        tried = machine.copy()
        tried.step(0, frames=1, instructions=1)
        is_unknown = tried.halt is Halt.UNKNOWN_OPCODE
        assert is_unknown is not known(first << 12 | rest), f"{first << 12 | rest:04X}"


@pytest.mark.parametrize("opcode", [0x0000, 0x0123, 0x00E1, 0x5121, 0x5124, 0x8128, 0x9121,
                                    0xE19F, 0xF401, 0xF100, 0xF102, 0xF1FF])  # fmt: skip
def test_an_unknown_opcode_halts_and_changes_nothing_else(opcode: int) -> None:
    machine = machine_of(opcode.to_bytes(2))
    before = machine.state()
    machine.step(0xFFFF, frames=3, instructions=5)
    assert machine.state() == {**before, "halt": Halt.UNKNOWN_OPCODE}


def test_exit_halts() -> None:
    machine = after("v0 = 9\ndelay = v0\nexit", frames=7, instructions=5)
    assert machine.halt is Halt.EXIT
    assert machine.pc == 0x204
    assert machine.delay == 9


def test_a_return_without_a_call_halts() -> None:
    machine = after("v1 = 1\nreturn", instructions=5)
    assert (machine.halt, machine.pc) == (Halt.STACK_UNDERFLOW, 0x202)


def test_the_seventeenth_call_halts() -> None:
    machine = after("again: v1 += 1\ncall again", frames=9, instructions=9)
    assert (machine.halt, machine.pc) == (Halt.STACK_OVERFLOW, 0x202)
    assert machine.v[1] == 17
    assert machine.stack == [0x204] * 16


# ---------------------------------------------------------------------------- any program
