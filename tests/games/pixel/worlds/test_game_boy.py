"""PyBoyWorld: our own tiny cartridge on PyBoy, in processes that are cleaned up."""

from __future__ import annotations

import importlib.util
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_env.errors import (
    ClosedError,
    MissingExtraError,
    SchemaError,
    UsageError,
    WorkerError,
)
from entity_env.games.pixel.worlds.game_boy import PyBoyWorld
from entity_env.games.pixel.worlds.world import Button, World
from tests.games.pixel.worlds.game_boy_rom import square_rom

pytest.importorskip("pyboy")

ROM = square_rom()
BOOT = 150
NUM = 3
START = (4, 4)


def booted(num_envs: int = NUM, **more: int) -> PyBoyWorld:
    return PyBoyWorld(ROM, num_envs, boot_frames=BOOT, **more)  # type: ignore[arg-type]  # not `start`


@pytest.fixture(scope="module")
def shared() -> Iterator[PyBoyWorld]:
    with booted(num_slots=2, num_workers=2) as world:
        yield world


@pytest.fixture
def world(shared: PyBoyWorld) -> PyBoyWorld:
    """Freshly started machines, for tests that do not stop them."""
    shared.reset(mask_of(*range(NUM)), slots_of(*[0] * NUM))
    return shared


def held(*buttons: Button) -> Tensor:
    return torch.tensor([button.value for button in buttons], dtype=torch.int32)


def screens(world: World) -> Tensor:
    pixels = torch.full((world.num_envs, world.height, world.width), 9, dtype=torch.uint8)
    world.render(pixels)
    return pixels


def squares(world: World) -> list[tuple[int, int]]:
    """Row and column of the dark cell on each screen."""
    side = 8 * world.height // 144
    places = []
    for pixels in screens(world).numpy():
        rows, columns = np.nonzero(pixels == 3)
        assert len(rows) == side**2
        places.append((int(rows[0]) // side, int(columns[0]) // side))
    return places


def mask_of(*chosen: int, size: int = NUM) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(chosen)] = True
    return mask


def slots_of(*slots: int) -> Tensor:
    return torch.tensor(slots, dtype=torch.int32)


@pytest.mark.slow
def test_every_machine_begins_alike(world: PyBoyWorld) -> None:
    assert squares(world) == [START] * NUM
    assert set(screens(world).flatten().tolist()) == {0, 3}


@pytest.mark.slow
def test_each_machine_has_its_own_button(world: PyBoyWorld) -> None:
    world.step(held(Button.RIGHT, Button.UP, Button.A))
    assert squares(world) == [(4, 5), (3, 4), START]
    world.step(held(Button.DOWN, Button.LEFT, Button.RIGHT))
    assert squares(world) == [(5, 5), (3, 3), (4, 5)]


@pytest.mark.slow
def test_a_button_held_again_was_let_go_between(world: PyBoyWorld) -> None:
    for _ in range(3):
        world.step(held(*[Button.RIGHT] * NUM))
    assert squares(world) == [(4, 7)] * NUM


@pytest.mark.slow
def test_a_button_held_for_the_whole_step_is_not() -> None:
    with booted(1, frames=6, hold_frames=6) as world:
        world.step(held(Button.RIGHT))
        assert squares(world) == [(4, 5)]


def test_actions_out_of_range_are_clamped(world: PyBoyWorld) -> None:
    world.step(torch.tensor([7, 2**31 - 1, -1], dtype=torch.int32))
    assert squares(world) == [(4, 5), (4, 5), START]  # right is the last button, A the first


@pytest.mark.slow
def test_the_whole_screen_and_half_of_it_which_is_every_other_pixel(world: PyBoyWorld) -> None:
    with booted(1, shrink=1) as whole:
        assert (whole.height, whole.width) == (144, 160)
        assert squares(whole) == [START]
        assert torch.equal(screens(whole)[:, ::2, ::2], screens(world)[:1])


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 8])
def test_processes_do_not_matter(world: PyBoyWorld, num_workers: int) -> None:
    rng = np.random.default_rng(3)
    with booted(num_workers=num_workers) as other:
        for _ in range(4):
            actions = torch.from_numpy(rng.integers(7, size=NUM, dtype=np.int32))
            world.step(actions)
            other.step(actions)
        assert torch.equal(screens(world), screens(other))
        assert torch.equal(world.state()["machine"], other.state()["machine"])


def test_reset_restores_the_chosen_byte_for_byte(world: PyBoyWorld) -> None:
    start = world.state()["machine"]
    for _ in range(3):
        world.step(held(Button.RIGHT, Button.DOWN, Button.LEFT))
    moved = world.state()["machine"]
    shown = screens(world)
    world.reset(mask_of(0, 2), slots_of(0, 0, 0))
    now = world.state()["machine"]
    assert torch.equal(now[[0, 2]], start[[0, 2]])
    assert torch.equal(now[1], moved[1])
    assert torch.equal(screens(world)[1], shown[1])
    assert squares(world) == [START, (7, 4), START]


def test_an_empty_mask_restores_nothing(world: PyBoyWorld) -> None:
    world.step(held(Button.RIGHT, Button.DOWN, Button.LEFT))
    before = world.state()["machine"]
    world.reset(mask_of(), slots_of(99, 99, 99))  # not selected, so not read
    assert torch.equal(world.state()["machine"], before)


def test_a_snapshot_can_be_taken_over_by_any_machine(world: PyBoyWorld) -> None:
    world.step(held(Button.RIGHT, Button.DOWN, Button.LEFT))
    saved = world.state()["machine"][1]
    world.snapshot(1, 1)
    world.step(held(*[Button.UP] * NUM))
    world.reset(mask_of(0, 2), slots_of(1, 0, 0))
    assert torch.equal(world.state()["machine"][0], saved)
    assert squares(world) == [(5, 4), (4, 4), START]


def test_what_follows_a_reset_is_what_followed_the_snapshot(world: PyBoyWorld) -> None:
    def run() -> list[Tensor]:
        shown = []
        for button in (Button.RIGHT, Button.RIGHT, Button.DOWN, Button.A):
            world.step(held(*[button] * NUM))
            shown.append(screens(world))
        return shown

    first = run()
    world.reset(mask_of(0, 1, 2), slots_of(0, 0, 0))
    assert all(torch.equal(a, b) for a, b in zip(first, run(), strict=True))


@pytest.mark.slow
def test_a_saved_state_is_a_start(world: PyBoyWorld) -> None:
    world.step(held(Button.RIGHT, Button.DOWN, Button.LEFT))
    with PyBoyWorld(ROM, 2, start=world.save_state(1)) as other:
        assert squares(other) == [(5, 4)] * 2
        assert torch.equal(other.state()["machine"][0], world.state()["machine"][1])


@pytest.mark.parametrize(
    ("rom", "said"),
    [
        (b"", "expected 336 to 8388608 bytes, got 0"),
        (bytes(335), "got 335"),
        (bytes(8 * 1024 * 1024 + 1), "got 8388609"),
    ],
)
def test_a_cartridge_of_another_size_is_refused(rom: bytes, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        PyBoyWorld(rom, 1)


def test_a_path_is_no_cartridge() -> None:
    with pytest.raises(SchemaError, match="rom: expected bytes, got str"):
        PyBoyWorld("game.gb", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_envs": 0}, "num_envs"),
        ({"num_slots": 0}, "num_slots"),
        ({"boot_frames": -1}, "boot_frames"),
        ({"frames": 0}, "frames"),
        ({"hold_frames": 0}, "hold_frames"),
        ({"hold_frames": 25}, r"expected 1 to frames \(24\), got 25"),
        ({"shrink": 3}, "expected 1 or 2, got 3"),
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": 0}, "num_workers must .* got 0"),
        ({"shrink": True}, "expected 1 or 2, got True"),
        ({"timeout": 0}, "timeout: expected seconds above 0, got 0"),
        ({"timeout": float("nan")}, "timeout: .* got nan"),
        ({"timeout": "1"}, "timeout: .* got '1'"),
    ],
)
def test_a_setting_out_of_range_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PyBoyWorld(ROM, **{"num_envs": 1, **settings})


@pytest.mark.slow
def test_a_cartridge_that_pyboy_cannot_run_is_an_error_in_words() -> None:
    rom = bytearray(ROM)
    rom[0x147] = 0xEE  # a kind of cartridge that does not exist
    with pytest.raises(UsageError, match="PyBoy cannot run this cartridge"):
        PyBoyWorld(bytes(rom), 1)


@pytest.mark.parametrize(
    ("start", "said"),
    [("state", "got str"), (b"", "got none"), (bytearray(5), "got bytearray"), (3, "got int")],
)
def test_a_state_that_is_no_bytes_is_refused(start: object, said: str) -> None:
    with pytest.raises(SchemaError, match=f"start: expected bytes as PyBoy saves them, {said}"):
        PyBoyWorld(ROM, 1, start=start)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_state_of_a_cartridge_of_another_size_is_refused(world: PyBoyWorld) -> None:
    state = world.save_state(0)
    with pytest.raises(UsageError, match="of another cartridge: it has 8192 bytes too many"):
        PyBoyWorld(ROM, 1, start=state + bytes(8192))
    with pytest.raises(UsageError, match="PyBoy cannot run this cartridge from this state"):
        PyBoyWorld(ROM, 1, start=state[:-100])


@pytest.mark.parametrize("env", [-1, NUM, 0.5, True, None])
def test_a_machine_that_is_not_there_has_no_state(world: PyBoyWorld, env: Any) -> None:  # noqa: ANN401
    for call in (lambda: world.save_state(env), lambda: world.snapshot(env, 0)):
        with pytest.raises(UsageError, match=f"env must be .* from 0 to {NUM - 1}: got {env}"):
            call()


def test_a_broken_state_is_an_error_in_words() -> None:
    with pytest.raises(UsageError, match="PyBoy cannot run this cartridge from this state"):
        PyBoyWorld(ROM, 1, start=b"\x0bnothing")


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (torch.zeros(NUM, dtype=torch.int64), "expected dtype torch.int32, got torch.int64"),
        (torch.zeros(NUM + 1, dtype=torch.int32), r"expected shape \(3,\), got \(4,\)"),
        ([0, 0, 0], "expected a torch.Tensor, got list"),
    ],
)
def test_other_actions_are_refused(world: PyBoyWorld, actions: Tensor, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        world.step(actions)
    assert squares(world) == [START] * NUM


def test_other_masks_slots_and_screens_are_refused(world: PyBoyWorld) -> None:
    with pytest.raises(SchemaError, match="mask: expected shape"):
        world.reset(mask_of(size=2), slots_of(0, 0, 0))
    with pytest.raises(SchemaError, match="slots: expected dtype"):
        world.reset(mask_of(), slots_of(0, 0, 0).long())
    with pytest.raises(SchemaError, match="slots: expected 0 to 1, got 2 for env 1"):
        world.reset(mask_of(1), slots_of(0, 2, 0))
    with pytest.raises(SchemaError, match="pixels: expected shape"):
        world.render(torch.zeros((NUM, 144, 160), dtype=torch.uint8))


@pytest.mark.parametrize(("env", "slot", "said"), [(3, 0, "env"), (0, 2, "slot"), (-1, 0, "env")])
def test_other_snapshots_are_refused(world: PyBoyWorld, env: int, slot: int, said: str) -> None:
    with pytest.raises(UsageError, match=f"{said} must be an integer from 0 to"):
        world.snapshot(env, slot)


@pytest.mark.slow
def test_a_closed_world_says_so() -> None:
    world = PyBoyWorld(ROM, 1)
    world.close()
    world.close()
    with pytest.raises(ClosedError):
        world.step(held(Button.A))
    with pytest.raises(ClosedError):
        screens(world)
    with pytest.raises(ClosedError):
        world.state()


@pytest.mark.slow
def test_a_killed_process_is_named_and_the_others_end() -> None:
    world = PyBoyWorld(ROM, 2, num_workers=2)
    victim = world._processes[1]._process
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    with pytest.raises(WorkerError, match=r"died with code -9 \(worker 1\)"):
        world.step(held(Button.A, Button.A))
    assert world._processes[0]._process.poll() is not None
    with pytest.raises(ClosedError):
        world.step(held(Button.A, Button.A))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["step", "state", "save_state", "snapshot", "keep"])
def test_a_process_that_does_not_answer_is_named_and_the_world_closed(call: str) -> None:
    world = PyBoyWorld(ROM, 1, timeout=20)
    calls: dict[str, Callable[[], object]] = {
        "step": lambda: world.step(held(Button.A)),
        "state": world.state,
        "save_state": lambda: world.save_state(0),
        "snapshot": lambda: world.snapshot(0, 0),
        "keep": lambda: world._keep(0, bytes(1 << 20)),  # more than a pipe takes
    }
    stopped = world._processes[0]._process.pid
    world._processes[0]._timeout = 0.2
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=r"no answer for 0.2 s \(worker 0\)"):
        calls[call]()
    assert world._processes[0]._process.poll() is not None
    with pytest.raises(ClosedError):  # a late reply would be that to another request
        world.state()


@pytest.mark.slow
def test_a_process_that_dies_is_noticed_while_another_holds_its_pipe() -> None:
    world = PyBoyWorld(ROM, 1)
    victim = world._processes[0]._process
    assert victim.stdout is not None
    held_open = os.open(f"/proc/self/fd/{victim.stdout.fileno()}", os.O_WRONLY)
    try:
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"died with code -9 \(worker 0\)"):
            world.step(held(Button.A))
    finally:
        os.close(held_open)


@pytest.mark.slow
def test_no_process_outlives_a_killed_owner() -> None:
    code = (
        "import os, signal; from entity_env.games.pixel.worlds.game_boy import PyBoyWorld\n"
        "from tests.games.pixel.worlds.game_boy_rom import square_rom\n"
        "world = PyBoyWorld(square_rom(), 2, num_workers=2)\n"
        "print(*[process._process.pid for process in world._processes], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=50)
    for pid in map(int, done.stdout.split()):
        for _ in range(100):
            if not os.path.exists(f"/proc/{pid}") or _is_zombie(pid):
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"process {pid} still runs")


def test_without_pyboy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[pyboy\]'"):
        PyBoyWorld(ROM, 1)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_more_open_files_than_select_can_take() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1024:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        with PyBoyWorld(ROM, 2, num_workers=2) as world:
            world.step(held(Button.A, Button.A))
            assert screens(world).shape[0] == 2
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
