"""On a GPU: a step captured as a graph, bit for bit equal to the CPU, without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from entity_env.games.pixel.env import Backend, PixelGoalEnv
from entity_env.games.pixel.reward.reward import Goal, RewardConfig
from entity_env.games.pixel.worlds.world import Button
from tests.games.pixel.worlds.all_worlds import WORLDS, MakeWorld, actions_of, screens

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.timeout(300),
]
NUM = 70
STEPS = 30
BACKENDS: tuple[Backend, ...] = ("torch", "warp")
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_world = pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)


def make_env(make: MakeWorld, backend: Backend, device: str) -> PixelGoalEnv:
    """Makes an environment whose goal is a screen of the world, so some episodes reach it."""
    world = make(NUM, 4, device)
    everyone = torch.ones(NUM, dtype=torch.bool, device=world.device)
    world.snapshot(0, 3)
    for button in (Button.A, Button.A, Button.DOWN):
        world.step(torch.full((NUM,), button.value, dtype=torch.int32, device=world.device))
    goal = Goal(screens(world)[0].to(world.device), 0.001)
    slots = torch.full((NUM,), 3, dtype=torch.int32, device=world.device)
    world.reset(everyone, slots)
    env = PixelGoalEnv(
        world,
        goal,
        RewardConfig(max_steps=7, alpha=0.3),
        stack_k=3,
        warm_ups=((), (Button.A,), (Button.A, Button.A)),
        backend=backend,
    )
    env.reset(1)
    return env


def shown(env: PixelGoalEnv) -> dict[str, Tensor]:
    """All results, copied to the host."""
    tensors = {f.name: getattr(env.trackers, f.name) for f in fields(env.trackers)}
    return {name: t.cpu().clone() for name, t in {**tensors, **env.world.state()}.items()}


def run_eagerly(env: PixelGoalEnv) -> list[dict[str, Tensor]]:
    run = [shown(env)]
    for actions in actions_of(NUM, STEPS, 5, str(env.device)):
        env.step_tensors(actions, autoreset=True)
        run.append(shown(env))
    return run


def assert_same(one: list[dict[str, Tensor]], two: list[dict[str, Tensor]]) -> None:
    for step, (a, b) in enumerate(zip(one, two, strict=True)):
        for name, value in a.items():
            assert torch.equal(value, b[name]), (step, name)


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@each_world
@each_backend
def test_equals_the_cpu_bit_for_bit(make: MakeWorld, backend: Backend) -> None:
    on_cpu = run_eagerly(make_env(make, backend, "cpu"))
    assert any(step["terminated"].any() for step in on_cpu)
    assert_same(run_eagerly(make_env(make, backend, "cuda")), on_cpu)


@each_world
@each_backend
def test_a_captured_step_replayed_equals_the_eager_one(make: MakeWorld, backend: Backend) -> None:
    eager = run_eagerly(make_env(make, backend, "cuda"))
    env = make_env(make, backend, "cuda")
    held = torch.zeros(NUM, dtype=torch.int32, device=env.device)
    # Warm up on a separate stream, as torch requires, then restart.
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            env.step_tensors(held, autoreset=True)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.step_tensors(held, autoreset=True)
    env.reset(1)
    run = [shown(env)]
    for actions in actions_of(NUM, STEPS, 5, "cuda"):
        held.copy_(actions)
        graph.replay()
        run.append(shown(env))
    assert_same(run, eager)


@each_world
@each_backend
def test_nothing_is_waited_for(make: MakeWorld, backend: Backend) -> None:
    env = make_env(make, backend, "cuda")
    steps = list(actions_of(NUM, 5, 5, "cuda"))
    mask = torch.zeros(NUM, dtype=torch.bool, device="cuda")
    env.step_tensors(steps[0], autoreset=True)
    env.reset_mask(mask)
    with no_waiting():
        for actions in steps:
            env.step_tensors(actions)
            env.reset_mask(env.trackers.ended)
            env.reset_mask(mask)
            env.step_tensors(actions.long(), autoreset=True)


@each_world
@each_backend
def test_the_profiler_sees_no_wait_and_no_copy_to_the_host(
    make: MakeWorld, backend: Backend
) -> None:
    env = make_env(make, backend, "cuda")
    steps = list(actions_of(NUM, 5, 5, "cuda"))
    env.step_tensors(steps[0], autoreset=True)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for actions in steps:
            env.step_tensors(actions, autoreset=True)
        names = "cudaDeviceSynchronize"  # the profiler's own, when it stops
    events = [event.name for event in seen.events() or ()]
    waits = [name for name in events if "Synchronize" in name and name != names]
    copies = [name for name in events if "DtoH" in name or "Memcpy HtoD" in name]
    assert not waits
    assert not copies


def test_the_host_is_given_what_lies_on_the_device() -> None:
    env = make_env(WORLDS["grid"], "torch", "cuda")
    for actions in actions_of(NUM, 3, 5):
        result = env.step_no_reset_with_result(actions.numpy())
    t = env.trackers
    assert torch.equal(torch.from_numpy(result.observations[:, -3:]), t.screen.cpu())
    assert torch.equal(torch.from_numpy(result.rewards), t.reward.cpu())


def test_a_goal_on_the_other_device_is_refused() -> None:
    world = WORLDS["grid"](2, 1, "cuda")
    goal = torch.full((world.height, world.width), 3, dtype=torch.uint8)
    with pytest.raises(ValueError, match="goal: expected the world's device cuda:0, got cpu"):
        PixelGoalEnv(world, Goal(goal))
