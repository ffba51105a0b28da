"""XoChipWorld: features beyond the contract of all worlds, and bad input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_env.errors import (
    ClosedError,
    EntityEnvError,
    MissingExtraError,
    SchemaError,
    UsageError,
)
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from entity_env.games.pixel.worlds.world import Button, World
from entity_env.games.pixel.xo_chip import programs
from entity_env.games.pixel.xo_chip.machine_layout import DELAY, HALT, PC, RANDOM, Halt, quirk_bits
from entity_env.games.pixel.xo_chip.quirks import CHIP8, KEYS, XOCHIP, Quirks
from entity_env.games.pixel.xo_chip.world import XoChipWorld
from tests.games.pixel.xo_chip.plain_machine import PlainMachine, machine_row
from tests.games.pixel.xo_chip.random_programs import (
    assert_same,
    load,
    random_machines,
    rows_of,
    run_both,
)

# Draws digits at random positions forever: C03F C11F F029 D015 1200.
DOODLE = bytes.fromhex("C03F C11F F029 D015 1200")
NUM = 6


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


@pytest.fixture
def world() -> XoChipWorld:
    return XoChipWorld(DOODLE, NUM, frames=2, instructions=10, num_slots=3, seed=5)


def run(world: XoChipWorld, num_steps: int = 3, action: Button = Button.A) -> None:
    for _ in range(num_steps):
        world.step(torch.full((world.num_envs,), action.value, dtype=torch.int32))


def test_is_a_world(world: XoChipWorld) -> None:
    as_world: World = world
    assert (as_world.num_envs, as_world.height, as_world.width) == (NUM, 64, 128)
    assert (as_world.num_slots, as_world.device) == (3, torch.device("cpu"))


def test_begins_as_a_plain_machine_does(world: XoChipWorld) -> None:
    rows = rows_of(world)
    first = machine_row(PlainMachine(DOODLE, XOCHIP, seed=5))
    np.testing.assert_array_equal(rows[0], first)
    assert len(set(rows[:, RANDOM])) == NUM
    rows[:, RANDOM] = first[RANDOM]
    np.testing.assert_array_equal(rows, np.tile(first, (NUM, 1)))


def test_random_numbers_never_begin_at_zero() -> None:
    seed = 0x9E3779B9  # the derived seed of machine 1 would be 0
    world = XoChipWorld(DOODLE, 2, seed=seed)
    assert rows_of(world)[:, RANDOM].view(np.uint32).tolist() == [seed, seed]


def test_every_quirk_has_a_bit_of_its_own() -> None:
    assert quirk_bits(CHIP8) != quirk_bits(XOCHIP)
    assert 0 <= quirk_bits(XOCHIP) < 256


@pytest.mark.parametrize("button", Button)
def test_a_button_holds_its_key(button: Button) -> None:
    # 6x0k Ex9E: skips the jump back if the key is held, and then stops at 0x206.
    rom = bytes([0x60, KEYS[button], 0xE0, 0x9E, 0x12, 0x00, 0x12, 0x06])
    world = XoChipWorld(rom, len(Button), frames=1, instructions=10)
    world.step(ints(*range(len(Button))))
    at = world.state()["registers"][:, PC].tolist()
    assert [place == 0x206 for place in at] == [other is button for other in Button]


@pytest.mark.parametrize(
    ("given", "same"), [((-1, 7, 99), (0, 6, 6)), ((-(2**31), 2**31 - 1, 3), (0, 6, 3))]
)
def test_actions_out_of_range_are_clamped(
    given: tuple[int, int, int], same: tuple[int, int, int]
) -> None:
    rom = bytes.fromhex("F00A 1202")  # V0 = the held key
    worlds = [XoChipWorld(rom, 3, quirks=Quirks(key_on_release=False)) for _ in range(2)]
    for world, actions in zip(worlds, (given, same), strict=True):
        world.step(ints(*actions))
    np.testing.assert_array_equal(rows_of(worlds[0]), rows_of(worlds[1]))
    assert len(set(rows_of(worlds[0])[:, 0])) == len(set(same))


def test_frames_and_instructions_are_those_asked_for() -> None:
    rom = b"\x70\x01" * 100  # V0 += 1
    world = XoChipWorld(rom, 1, frames=3, instructions=7)
    world.state()["registers"][0, DELAY] = 200
    world.step(ints(0))
    registers = world.state()["registers"][0].tolist()
    assert (registers[0], registers[PC], registers[DELAY]) == (21, 0x200 + 42, 197)


@pytest.mark.parametrize(
    ("rom", "halt"),
    [
        ("00FD", Halt.EXIT),
        ("2200", Halt.STACK_OVERFLOW),
        ("00EE", Halt.STACK_UNDERFLOW),
        ("5001", Halt.UNKNOWN_OPCODE),
    ],
)
def test_a_halted_machine_stands_still_and_its_neighbours_run(rom: str, halt: Halt) -> None:
    rng = np.random.default_rng(8)
    quirks = XOCHIP
    machines = random_machines(rng, 3, quirks)
    machines[1] = PlainMachine(bytes.fromhex(rom), quirks)
    machines[1].delay = 250
    world = XoChipWorld(DOODLE, 3, frames=2, instructions=12)
    load(world, machines)
    actions = rng.integers(7, size=(2, 3), dtype=np.int32)
    run_both(world, machines, actions)
    assert int(world.halts[1]) == halt
    before = rows_of(world)[1]
    run_both(world, machines, actions)
    assert_same(world, machines)
    np.testing.assert_array_equal(rows_of(world)[1], before)


def test_halts_is_a_view(world: XoChipWorld) -> None:
    halts = world.halts
    assert halts.tolist() == [0] * NUM
    world.state()["registers"][2, HALT] = int(Halt.EXIT)
    assert halts.tolist() == [0, 0, 1, 0, 0, 0]


def test_resets_restore_the_whole_state_of_those_in_the_mask(world: XoChipWorld) -> None:
    rng = np.random.default_rng(9)
    load(world, random_machines(rng, NUM, XOCHIP))
    bank = []
    for slot in range(world.num_slots):
        run(world, 2)
        env = int(rng.integers(NUM))
        world.snapshot(env, slot)
        bank.append(rows_of(world)[env])
    for _ in range(20):
        run(world, 1)
        before = rows_of(world)
        mask, slots = rng.random(NUM) < 0.5, rng.integers(3, size=NUM, dtype=np.int32)
        world.reset(torch.from_numpy(mask), torch.from_numpy(slots))
        wanted = np.where(mask[:, None], np.stack(bank)[slots], before)
        np.testing.assert_array_equal(rows_of(world), wanted)


def test_slots_out_of_range_are_clamped_and_others_not_read(world: XoChipWorld) -> None:
    run(world)
    world.snapshot(0, 2)
    last, first = rows_of(world)[0], machine_row(PlainMachine(DOODLE, XOCHIP, seed=5))
    run(world)
    world.reset(flags(1, 1, 0, 0, 0, 0), ints(99, -7, 2**31 - 1, -(2**31), 3, 0))
    np.testing.assert_array_equal(rows_of(world)[0], last)
    np.testing.assert_array_equal(rows_of(world)[1], first)


def test_a_halted_machine_runs_again_after_a_reset() -> None:
    world = XoChipWorld(bytes.fromhex("7001 00FD"), 2)
    run(world, 2)
    assert world.halts.tolist() == [Halt.EXIT, Halt.EXIT]
    world.reset(flags(1, 0), ints(0, 0))
    assert world.halts.tolist() == [Halt.RUNNING, Halt.EXIT]
    assert world.state()["registers"][:, 0].tolist() == [0, 1]


def test_addresses_never_change(world: XoChipWorld) -> None:
    before = {name: view.data_ptr() for name, view in world.state().items()}
    run(world)
    world.snapshot(0, 1)
    world.reset(flags(1, 0, 1, 0, 1, 0), ints(*range(NUM)))
    world.render(torch.zeros(NUM, 64, 128, dtype=torch.uint8))
    assert {name: view.data_ptr() for name, view in world.state().items()} == before


def test_each_call_uses_the_tensors_that_it_is_given(world: XoChipWorld) -> None:
    pictures = [torch.full((NUM, 64, 128), 9, dtype=torch.uint8) for _ in range(3)]
    for picture in pictures:
        run(world, 1)
        world.render(picture)
    assert all(int(picture.max()) <= 3 for picture in pictures)
    assert not torch.equal(pictures[0], pictures[2])
    again = pictures[0]
    world.render(again)
    assert torch.equal(again, pictures[2])


def test_takes_actions_with_gaps() -> None:
    rom = programs.program("maze")
    worlds = [XoChipWorld(rom, 3) for _ in range(2)]
    wide = torch.arange(6, dtype=torch.int32).view(3, 2)
    for column in (0, 1, 0):
        worlds[0].step(wide[:, column])
        worlds[1].step(wide[:, column].contiguous())
    np.testing.assert_array_equal(rows_of(worlds[0]), rows_of(worlds[1]))


def test_large_memory_is_used_to_its_end() -> None:
    # I = 0xFFFF, V0 to V1 stored there: the second wraps to address 0.
    rom = bytes.fromhex("F000 FFFF 60AB 61CD F155 1208")
    world = XoChipWorld(rom, 2)
    run(world, 1)
    memory = world.state()["memory"]
    assert memory.shape == (2, 65536)
    assert memory[:, [65535, 0]].tolist() == [[0xAB, 0xCD]] * 2


BAD_CALLS: dict[str, tuple[Callable[[XoChipWorld], object], str]] = {
    "actions of another type": (lambda w: w.step([0] * NUM), "expected a torch.Tensor, got list"),  # type: ignore[arg-type]
    "actions of another dtype": (lambda w: w.step(ints(*range(NUM)).long()), "torch.int64"),
    "actions of another shape": (lambda w: w.step(ints(0)), r"expected shape \(6,\), got \(1,\)"),
    "actions elsewhere": (
        lambda w: w.step(torch.zeros(NUM, dtype=torch.int32, device="meta")),
        "expected the device cpu, got meta",
    ),
    "pixels of another dtype": (lambda w: w.render(torch.zeros(NUM, 64, 128)), "torch.float32"),
    "pixels of another shape": (
        lambda w: w.render(torch.zeros(NUM, 32, 64, dtype=torch.uint8)),
        "expected shape",
    ),
    "pixels with gaps": (
        lambda w: w.render(torch.zeros(NUM, 64, 256, dtype=torch.uint8)[:, :, ::2]),
        "contiguous",
    ),
    "pixels astray": (
        lambda w: w.render(torch.zeros(NUM * 8192 + 1, dtype=torch.uint8)[1:].view(NUM, 64, 128)),
        "multiple of 4",
    ),
    "a mask of another dtype": (lambda w: w.reset(ints(*range(NUM)), ints(*range(NUM))), "bool"),
    "a mask of another length": (lambda w: w.reset(flags(1), ints(*range(NUM))), "mask"),
    "slots of another length": (lambda w: w.reset(flags(*range(NUM)), ints(0)), "slots"),
    "slots of another dtype": (
        lambda w: w.reset(flags(*range(NUM)), torch.zeros(NUM)),
        "slots: expected dtype torch.int32, got torch.float32",
    ),
    "no such slot": (
        lambda w: w.snapshot(0, 3),
        "slot must be an integer from 0 to 2: got 3",
    ),
    "no such machine": (lambda w: w.snapshot(-1, 0), "env must be an integer from 0 to 5: got -1"),
    "no number of a machine": (lambda w: w.snapshot(True, 0), "env must .* got True"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_change_nothing(world: XoChipWorld, name: str) -> None:
    call, message = BAD_CALLS[name]
    run(world)
    before = rows_of(world)
    with pytest.raises((SchemaError, UsageError), match=message):
        call(world)
    np.testing.assert_array_equal(rows_of(world), before)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rom": "maze"}, SchemaError, "rom: expected bytes, got str"),
        ({"rom": b""}, SchemaError, "rom: expected 1 to 65024 bytes, got 0"),
        ({"rom": bytes(65025)}, SchemaError, "rom: expected 1 to 65024 bytes, got 65025"),
        ({"rom": bytes(3585), "quirks": CHIP8}, SchemaError, "rom: expected 1 to 3584 bytes"),
        ({"num_envs": 0}, UsageError, "num_envs must be an integer from 1"),
        ({"num_envs": 2.0}, UsageError, "num_envs"),
        ({"frames": 0}, UsageError, "frames"),
        ({"instructions": -1}, UsageError, "instructions"),
        ({"num_slots": True}, UsageError, "num_slots"),
        ({"seed": 0}, SchemaError, "seed: expected 1"),
        ({"seed": 2**32}, SchemaError, "seed: expected 1"),
        ({"device": "abacus"}, UsageError, "device: expected 'cpu' or 'cuda', got 'abacus'"),
        ({"device": "meta"}, UsageError, "device: expected 'cpu' or 'cuda', got 'meta'"),
        ({"device": 3.5}, UsageError, "device"),
        ({"device": "cuda:99"}, UsageError, "'cuda:99' is not there, .* see 0 CUDA devices"),
    ],
)
def test_what_cannot_be_built(
    arguments: dict[str, object], error: type[EntityEnvError], message: str
) -> None:
    if "'cuda:99'" in message and torch.cuda.is_available():
        message = "'cuda:99' is not there"
    given = {"rom": DOODLE, "num_envs": 2, **arguments}
    with pytest.raises(error, match=message):
        XoChipWorld(**given)  # type: ignore[arg-type]


def test_after_close_nothing_works(world: XoChipWorld) -> None:
    world.close()
    world.close()
    calls: dict[str, Callable[[], object]] = {
        "step": lambda: run(world, 1),
        "render": lambda: world.render(torch.zeros(NUM, 64, 128, dtype=torch.uint8)),
        "snapshot": lambda: world.snapshot(0, 0),
        "reset": lambda: world.reset(flags(*range(NUM)), ints(*range(NUM))),
    }
    for name, call in calls.items():
        with pytest.raises(ClosedError, match=f"XoChipWorld.{name}: the world is closed"):
            call()


def test_without_warp_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "warp", None)
    warp_runtime.import_warp.cache_clear()
    try:
        with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[pixel\]'"):
            XoChipWorld(DOODLE, 1)
    finally:
        warp_runtime.import_warp.cache_clear()


@pytest.mark.slow
def test_says_nothing_on_standard_output() -> None:
    script = (
        "from entity_env.games.pixel.xo_chip.world import XoChipWorld\n"
        "XoChipWorld(b'\\x12\\x00', 1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == ""
