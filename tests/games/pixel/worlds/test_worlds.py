"""The contract of all worlds: steps, screens, snapshots and resets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from entity_env.errors import ClosedError, EntityEnvError, SchemaError, UsageError
from entity_env.games.pixel.worlds.game_boy import PyBoyWorld
from entity_env.games.pixel.worlds.grid_world import GRID, GridWorld
from entity_env.games.pixel.worlds.world import Button, World
from tests.games.pixel.worlds.all_worlds import (
    HOST_WORLDS,
    WORLDS,
    MakeWorld,
    actions_of,
    bytes_of,
    screens,
)

NUM = 5
SLOTS = 3
DEVICES = ("cpu", *(["cuda"] if torch.cuda.is_available() else []))


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# A Game Boy takes a second to start.
SLOW = (pytest.param(name, marks=pytest.mark.slow) for name in HOST_WORLDS)


@pytest.fixture(params=[*WORLDS, *SLOW])
def make(request: pytest.FixtureRequest, device: str) -> MakeWorld:
    if request.param in WORLDS:
        return WORLDS[request.param]
    if device != "cpu":
        pytest.skip("it runs on the host alone")
    return HOST_WORLDS[request.param]


@pytest.fixture
def world(make: MakeWorld, device: str) -> Iterator[World]:
    world = make(NUM, SLOTS, device)
    yield world
    world.close()


def run(world: World, num_steps: int = 8, seed: int = 0) -> None:
    for actions in actions_of(world.num_envs, num_steps, seed, str(world.device)):
        world.step(actions)


def mask_of(world: World, *chosen: int) -> Tensor:
    mask = torch.zeros(world.num_envs, dtype=torch.bool, device=world.device)
    mask[list(chosen)] = True
    return mask


def slots_of(world: World, *slots: int) -> Tensor:
    return torch.tensor(slots, dtype=torch.int32, device=world.device)


def same_bytes(a: dict[str, Tensor], b: dict[str, Tensor], envs: list[int]) -> bool:
    return all(bool((a[name][envs] == b[name][envs]).all()) for name in a)


def test_says_what_it_is(world: World, device: str) -> None:
    assert (world.num_envs, world.num_slots) == (NUM, SLOTS)
    assert world.height > 0
    assert world.width > 0
    assert world.device.type == device
    assert world.state()
    for name, tensor in world.state().items():
        assert len(tensor) == NUM, name
        assert tensor.device.type == device, name


def test_all_pixels_are_written_and_are_shades(world: World) -> None:
    for seed in range(3):
        run(world, seed=seed)
        assert int(screens(world).max()) < 4
    assert len(np.unique(screens(world).numpy())) > 1


def test_rendering_changes_nothing(world: World) -> None:
    run(world)
    before = bytes_of(world)
    first, second = screens(world), screens(world)
    assert torch.equal(first, second)
    assert same_bytes(bytes_of(world), before, list(range(NUM)))


def test_buttons_matter(make: MakeWorld, device: str) -> None:
    """Equal machines with different buttons diverge."""
    world = make(len(Button), 1, device)
    world.snapshot(0, 0)
    world.reset(mask_of(world, *range(len(Button))), slots_of(world, *[0] * len(Button)))
    for _ in range(4):
        world.step(torch.arange(len(Button), dtype=torch.int32, device=world.device))
    assert len(np.unique(screens(world).numpy(), axis=0)) > 1
    world.close()


def test_the_same_buttons_lead_to_the_same_bytes(make: MakeWorld, device: str) -> None:
    worlds = [make(NUM, SLOTS, device) for _ in range(2)]
    for world in worlds:
        run(world, 12)
    assert same_bytes(bytes_of(worlds[0]), bytes_of(worlds[1]), list(range(NUM)))
    assert torch.equal(screens(worlds[0]), screens(worlds[1]))
    for world in worlds:
        world.close()


def test_a_machine_depends_on_nothing_but_its_own_buttons(make: MakeWorld, device: str) -> None:
    world, other = (make(NUM, SLOTS, device) for _ in range(2))
    mine, theirs = actions_of(NUM, 10, 1, device), actions_of(NUM, 10, 2, device)
    theirs[:, 2] = mine[:, 2]
    for one, two in zip(mine, theirs, strict=True):
        world.step(one)
        other.step(two)
    assert same_bytes(bytes_of(world), bytes_of(other), [2])
    world.close()
    other.close()


def test_a_reset_restores_the_chosen_byte_for_byte_and_no_other(world: World) -> None:
    run(world, 3)
    world.snapshot(1, 2)
    kept, shown = bytes_of(world), screens(world)
    run(world, 9, seed=1)
    before = bytes_of(world)
    assert not same_bytes(before, kept, [1]), "nothing to restore"
    world.reset(mask_of(world, 0, 1, 3), slots_of(world, 2, 2, 0, 2, 1))
    after = bytes_of(world)
    for env in (0, 1, 3):
        assert all(torch.equal(after[name][env], kept[name][1]) for name in kept), env
        assert torch.equal(screens(world)[env], shown[1])
    assert same_bytes(after, before, [2, 4])


def test_a_reset_with_an_empty_mask_changes_nothing(world: World) -> None:
    run(world)
    before = bytes_of(world)
    world.reset(mask_of(world), slots_of(world, *[0] * NUM))
    assert same_bytes(bytes_of(world), before, list(range(NUM)))


def test_slots_of_those_that_stay_are_not_read(world: World) -> None:
    run(world)
    before = bytes_of(world)
    world.reset(mask_of(world), slots_of(world, -(2**31), 2**31 - 1, 99, -1, 3))
    assert same_bytes(bytes_of(world), before, list(range(NUM)))


def test_what_comes_after_a_reset_is_what_came_before_it(world: World) -> None:
    """A snapshot contains all state that a machine's future depends on."""
    run(world, 4)
    for env in range(NUM):
        world.snapshot(env, 0)
        world.reset(mask_of(world, env), slots_of(world, *[0] * NUM))
    world.snapshot(0, 1)
    world.reset(mask_of(world, *range(NUM)), slots_of(world, *[1] * NUM))
    run(world, 6, seed=3)
    first, shown = bytes_of(world), screens(world)
    world.reset(mask_of(world, *range(NUM)), slots_of(world, *[1] * NUM))
    run(world, 6, seed=3)
    assert same_bytes(bytes_of(world), first, list(range(NUM)))
    assert torch.equal(screens(world), shown)


def test_snapshots_do_not_change_when_machines_do(world: World) -> None:
    run(world, 2)
    for slot in range(SLOTS):
        world.snapshot(slot, slot)
    kept = bytes_of(world)
    run(world, 5, seed=1)
    world.reset(mask_of(world, 0, 1, 2), slots_of(world, 0, 1, 2, 0, 0))
    assert same_bytes(bytes_of(world), kept, [0, 1, 2])


def test_actions_out_of_range_are_clamped(make: MakeWorld, device: str) -> None:
    world, other = (make(3, 1, device) for _ in range(2))
    for _ in range(3):
        world.step(slots_of(world, -5, 7, 2**31 - 1))
        other.step(slots_of(other, 0, 6, 6))
    assert same_bytes(bytes_of(world), bytes_of(other), [0, 1, 2])
    world.close()
    other.close()


def test_addresses_never_change(world: World) -> None:
    if isinstance(world, PyBoyWorld):
        pytest.skip("its machines lie in other processes: `state` is a copy")
    before = {name: tensor.data_ptr() for name, tensor in world.state().items()}
    run(world)
    world.snapshot(0, 0)
    world.reset(mask_of(world, 0, 1), slots_of(world, *[0] * NUM))
    assert {name: tensor.data_ptr() for name, tensor in world.state().items()} == before


BAD_TENSORS: dict[str, tuple[Callable[[World], object], str]] = {
    "actions of another length": (lambda w: w.step(torch.zeros(NUM + 1, dtype=torch.int32)), "6"),
    "actions of another shape": (lambda w: w.step(torch.zeros(NUM, 1, dtype=torch.int32)), "1"),
    "actions of floats": (lambda w: w.step(torch.zeros(NUM)), "float32"),
    "actions of longs": (lambda w: w.step(torch.zeros(NUM, dtype=torch.int64)), "int64"),
    "actions elsewhere": (
        lambda w: w.step(torch.zeros(NUM, dtype=torch.int32, device="meta")),
        "meta",
    ),
    "pixels of another shape": (
        lambda w: w.render(torch.zeros(NUM, w.height, w.width + 1, dtype=torch.uint8)),
        r"\(",
    ),
    "pixels of floats": (lambda w: w.render(torch.zeros(NUM, w.height, w.width)), "float32"),
    "a mask of another length": (
        lambda w: w.reset(torch.ones(NUM - 1, dtype=torch.bool), slots_of(w, *[0] * NUM)),
        "4",
    ),
    "a mask of bytes": (
        lambda w: w.reset(torch.ones(NUM, dtype=torch.uint8), slots_of(w, *[0] * NUM)),
        "uint8",
    ),
    "slots of another length": (lambda w: w.reset(mask_of(w, 0), slots_of(w, 0)), "1"),
    "slots of longs": (
        lambda w: w.reset(mask_of(w, 0), torch.zeros(NUM, dtype=torch.int64)),
        "int64",
    ),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_tensors_that_do_not_fit_are_named_and_change_nothing(make: MakeWorld, name: str) -> None:
    world = make(NUM, SLOTS, "cpu")
    run(world)
    before = bytes_of(world)
    call, got = BAD_TENSORS[name]
    with pytest.raises(SchemaError, match=got):
        call(world)
    assert same_bytes(bytes_of(world), before, list(range(NUM)))
    world.close()


@pytest.mark.parametrize(("env", "slot"), [(-1, 0), (NUM, 0), (0, -1), (0, SLOTS)])
def test_a_snapshot_of_what_is_not_there(world: World, env: int, slot: int) -> None:
    with pytest.raises(EntityEnvError, match=str(min((env, slot), key=lambda x: x in (0,)))):
        world.snapshot(env, slot)


def test_a_closed_world_does_nothing(world: World) -> None:
    world.close()
    world.close()
    with pytest.raises(ClosedError):
        run(world, 1)


class TestGridWorld:
    def test_goes_where_there_is_no_wall(self) -> None:
        world = GridWorld(1, ("S#", "..", ".F"))
        cells = []
        for button in (Button.RIGHT, Button.UP, Button.DOWN, Button.RIGHT, Button.A, Button.DOWN):
            world.step(torch.tensor([button.value], dtype=torch.int32))
            cells.append(int(world.state()["cell"]))
        assert cells == [0, 0, 2, 3, 3, 5]
        assert torch.equal(screens(world)[0], world.goal_frame())

    def test_counts_what_cannot_be_seen(self) -> None:
        world = GridWorld(3)
        before = screens(world)
        world.step(torch.tensor([Button.A.value, Button.START.value, 5], dtype=torch.int32))
        assert world.state()["presses"].tolist() == [1, 1, 0]
        assert torch.equal(screens(world)[:2], before[:2])

    def test_the_finish_can_be_reached(self) -> None:
        world = GridWorld(1)
        reached, edge = {world.grid_cell("S")}, [world.grid_cell("S")]
        targets = world._targets.view(-1, len(Button))
        while edge:
            new = {int(cell) for cell in targets[edge.pop()]} - reached
            reached |= new
            edge += new
        assert world.grid_cell("F") in reached
        assert len(reached) == "".join(GRID).count(".") + 2

    @pytest.mark.parametrize(
        "grid", [(), ("",), ("S", ".."), ("S?",), ("..",), ("SS",), ("SFF",), ("s.",)]
    )
    def test_a_grid_that_is_none(self, grid: tuple[str, ...]) -> None:
        with pytest.raises(SchemaError, match="grid: expected"):
            GridWorld(1, grid)

    @pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
    def test_a_number_that_makes_no_sense(self, count: int) -> None:
        with pytest.raises(UsageError, match=f"num_envs must .* got {count!r}"):
            GridWorld(count)
        with pytest.raises(UsageError, match=f"num_slots must .* got {count!r}"):
            GridWorld(1, num_slots=count)

    @pytest.mark.parametrize("device", ["tpu", "cpu:x", "", 1.5, "cuda:99"])
    def test_a_device_that_is_not_there(self, device: Any) -> None:  # noqa: ANN401 - wrong on purpose
        with pytest.raises(UsageError, match=f"device: torch cannot use '{device}': [^\\n]+$"):
            GridWorld(1, device=device)

    def test_a_grid_without_a_finish_has_no_goal(self) -> None:
        with pytest.raises(UsageError, match="'F'"):
            GridWorld(1, ("S.",)).goal_frame()
