"""Capture of a goal: buttons lead a machine to a start, and from there to the goal's screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.errors import UsageError
from entity_env.games.pixel.reward.reward import Goal, Metric, Tau, distance_sum
from entity_env.games.pixel.worlds.machines import Machine, State, state_of
from entity_env.games.pixel.worlds.world import Button, World


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A start, a goal, and the buttons between them.

    Attributes:
        machine: settings of the machine that ran the ROM.
        start_keys: buttons held from switching on to the start, a step each.
        keys: buttons held from there to the goal, at least one.
        start: the whole state at the start.
        start_pixels: (H, W) uint8 in 0..3, its screen.
        goal: the goal, on the CPU.
        sums: distance of the start from the goal, and of the screen after each of `keys`.
        kept_by: buttons after whose next step the screen still matches, which matters since an
            episode ends after several matches in a row.
    """

    machine: Machine
    start_keys: tuple[Button, ...]
    keys: tuple[Button, ...]
    start: State
    start_pixels: NDArray[np.uint8]
    goal: Goal
    sums: tuple[int, ...]
    kept_by: tuple[Button, ...]


def capture(
    rom: bytes,
    machine: Machine,
    start_keys: Sequence[Button],
    keys: Sequence[Button],
    *,
    tau: Tau = 0.05,
    metric: Metric = "absolute",
) -> Captured:
    """Run a machine from switching on, and record the start and the last screen.

    The keys are run twice, first for the goal and then for the distances on the way to it; then
    each button for one more step.
    """
    if not keys:
        raise UsageError("keys: expected at least one button from the start to the goal, got none")
    world = machine.world(rom, 1)
    try:
        _hold(world, start_keys)
        world.snapshot(0, 0)
        start, start_pixels = state_of(world), screen_of(world)
        _hold(world, keys)
        goal = Goal(screen_of(world), tau, metric)
        _restore(world)
        sums = (_sum(start_pixels, goal), *_sums_along(world, keys, goal))
        kept_by = tuple(_keeping(world, goal))
    finally:
        world.close()
    if sums[0] < goal.threshold:
        raise UsageError(
            f"the start matches the goal already: their distance is {sums[0]}, and below "
            f"{goal.threshold} (tau {tau}) it is a match: other keys, or a smaller tau"
        )
    return Captured(
        machine=machine,
        start_keys=tuple(start_keys),
        keys=tuple(keys),
        start=start,
        start_pixels=start_pixels.numpy(),
        goal=goal,
        sums=sums,
        kept_by=kept_by,
    )


def screen_of(world: World) -> Tensor:
    """The screen of a world's first machine, (H, W) uint8 in 0..3 on the CPU; a copy."""
    shape = (world.num_envs, world.height, world.width)
    pixels = torch.zeros(shape, dtype=torch.uint8, device=world.device)
    world.render(pixels)
    return pixels[0].cpu().clone()


def _hold(world: World, buttons: Sequence[Button]) -> None:
    for button in buttons:
        world.step(torch.full((1,), button.value, dtype=torch.int32))


def _sums_along(world: World, keys: Sequence[Button], goal: Goal) -> Iterator[int]:
    for button in keys:
        _hold(world, (button,))
        yield _sum(screen_of(world), goal)


def _keeping(world: World, goal: Goal) -> Iterator[Button]:
    world.snapshot(0, 0)
    for button in Button:
        _restore(world)
        if next(_sums_along(world, (button,), goal)) < goal.threshold:
            yield button


def _restore(world: World) -> None:
    world.reset(torch.ones(1, dtype=torch.bool), torch.zeros(1, dtype=torch.int32))


def _sum(pixels: Tensor, goal: Goal) -> int:
    return int(distance_sum(pixels[None], goal))
