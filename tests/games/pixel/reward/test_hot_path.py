"""Data stays on the device in a step: checked on the CPU with a guard and by addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from entity_env.games.pixel.env import Backend, PixelGoalEnv
from entity_env.games.pixel.reward.reward import Goal
from entity_env.games.pixel.warp_utils.runtime import BoundKernel
from tests.games.pixel.reward.device_guard import HostCopy, no_host_copies
from tests.games.pixel.worlds.all_worlds import WORLDS, MakeWorld, actions_of

NUM = 4
BACKENDS: tuple[Backend, ...] = ("torch", "warp")


@pytest.fixture(params=WORLDS)
def make(request: pytest.FixtureRequest) -> MakeWorld:
    return WORLDS[request.param]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


def make_env(make: MakeWorld, backend: Backend, num_starts: int = 2) -> PixelGoalEnv:
    world = make(NUM, 3, "cpu")
    goal = torch.full((world.height, world.width), 3, dtype=torch.uint8)
    warm_ups = [()] * num_starts
    env = PixelGoalEnv(world, Goal(goal), stack_k=2, warm_ups=warm_ups, backend=backend)
    env.reset(0)
    return env


def addresses(env: PixelGoalEnv) -> dict[str, int]:
    tensors = {f.name: getattr(env.trackers, f.name) for f in fields(env.trackers)}
    views = {"pixels": env.pixels, "final_pixels": env.final_pixels, "final_dist": env.final_dist}
    return {name: t.data_ptr() for name, t in {**tensors, **views, **env.world.state()}.items()}


def test_steps_and_resets_copy_nothing_to_the_host(make: MakeWorld, backend: Backend) -> None:
    env = make_env(make, backend)
    steps, mask = list(actions_of(NUM, 6)), torch.tensor([True, False, False, True])
    longs = [actions.long() for actions in steps]
    env.step_tensors(steps[0], autoreset=True)  # loads the kernels
    env.reset_mask(mask)
    with no_host_copies():
        for actions in steps:
            env.step_tensors(actions)
            env.reset_mask(env.trackers.ended)
            env.reset_mask(mask)
        for actions in longs:
            env.step_tensors(actions, autoreset=True)


def test_addresses_never_change(make: MakeWorld, backend: Backend) -> None:
    env = make_env(make, backend)
    before, trackers = addresses(env), env.trackers
    for actions in actions_of(NUM, 5):
        assert env.step_tensors(actions, autoreset=True) is trackers
    env.reset_mask(torch.ones(NUM, dtype=torch.bool))
    env.to_host()
    env.reset(3)
    assert addresses(env) == before


def test_the_host_copies_where_it_is_asked_for(make: MakeWorld, backend: Backend) -> None:
    """The guard detects the copies of the host interface, so it would detect others."""
    env = make_env(make, backend)
    env.step_tensors(actions_of(NUM, 1)[0])
    with no_host_copies(), pytest.raises(HostCopy):
        env.step(np.zeros(NUM, np.int64))


MASK = torch.tensor([True, False])
VALUES = torch.arange(2.0)
CAUGHT: dict[str, Callable[[], object]] = {
    "item": lambda: VALUES[0].item(),
    "int": lambda: int(VALUES[0]),
    "if": lambda: bool(MASK.any()),
    "nonzero": lambda: MASK.nonzero(),
    "index by a mask": lambda: VALUES[MASK],
    "write by a mask": lambda: VALUES.clone().__setitem__(MASK, 0.0),
    "masked_select": lambda: VALUES.masked_select(MASK),
    "equal": lambda: torch.equal(VALUES, VALUES),
    "tolist": lambda: VALUES.tolist(),
    "cpu": lambda: VALUES.cpu(),
    "numpy": lambda: VALUES.numpy(),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_guard_catches(name: str) -> None:
    with no_host_copies(), pytest.raises(HostCopy):
        CAUGHT[name]()


def test_the_guard_lets_tensors_pass() -> None:
    out = torch.zeros(2)
    with no_host_copies():
        moved: Tensor = torch.where(MASK, VALUES, out)
        out.copy_(moved).masked_fill_(MASK, 1.0)
        VALUES.index_select(0, torch.zeros(1, dtype=torch.int32))
    assert out.tolist() == [1.0, 0.0]


def test_a_warp_kernel_cannot_be_waited_for() -> None:
    import warp

    with no_host_copies(), pytest.raises(HostCopy):
        warp.synchronize()  # type: ignore[no-untyped-call]


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the torch operations that would launch a kernel."""

    VIEWS = ("aten.view", "aten.slice", "aten.select", "aten.detach", "aten.alias", "aten.t")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - a torch operator
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if str(func).rsplit(".", 1)[0] not in self.VIEWS:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_step_with_its_resets_is_six_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(WORLDS["xo_chip"], "warp")
    launches: list[BoundKernel] = []
    launch = BoundKernel.launch

    def counted(kernel: BoundKernel) -> None:
        launches.append(kernel)
        launch(kernel)

    monkeypatch.setattr(BoundKernel, "launch", counted)
    actions = actions_of(NUM, 1)[0]
    longs = actions.long()
    with _Count() as of_torch:
        env.step_tensors(actions, autoreset=True)
    assert of_torch.names == []
    assert len(launches) == len(set(map(id, launches))) == 6
    with _Count() as of_torch:
        env.step_tensors(longs)
    assert of_torch.names == ["aten.copy_.default"]
