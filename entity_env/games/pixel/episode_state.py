"""Episode state of a `PixelGoalEnv`, and its reset states, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from entity_env.core.validation import is_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.entities import NUM_SCREEN, NUM_TILE
from entity_env.games.pixel.reward.reward import (
    Goal,
    check_pixels,
    grid_shape,
    measure_tiles,
    normalize_sums,
    places,
)
from entity_env.games.pixel.worlds.world import Button, World

NUM_PLACE: Final = 2
"""Constant features of a tile: its row and column."""


@dataclass(frozen=True, slots=True, eq=False)
class Trackers:
    """Observations, rewards, flags and counters of N episodes. Addresses never change.

    A step writes all tensors except `slot`. A reset writes `stack`, `tiles`, `screen`, `prev_dist`,
    the counters and `slot`; results of the last step, such as `frames` and `reward`, stay. Only
    `PixelGoalEnv.reset` also clears rewards and flags, and sets the other results to the start.

    Attributes:
        frames: (N, H, W) uint8, screens after the last step; see above for resets.
        stack: (N, stack_k, H, W) uint8, observed screens, newest last; after a reset all are the
            initial screen.
        tiles: (N, T, 7) float32 of the newest screen: row, column, number of pixels of shade 0, 1,
            2 and 3, distance from the goal's tile; all whole numbers.
        screen: (N, 3) float32: distance of the newest screen, match_count / match_k, episode_step /
            max_steps.
        sums: (N,) int32, distance of `frames` before normalization.
        dist: (N,) float32, distance of `frames`, in 0..1.
        prev_dist: (N,) float32, distance before the next step: `dist`, or after a reset the
            distance of the initial screen.
        episode_step: (N,) int32, steps of the episode so far, at most max_steps.
        match_count: (N,) int32, consecutive matches, at most match_k.
        terminated: (N,) bool: the last step reached the goal.
        truncated: (N,) bool: the last step was number max_steps.
        ended: (N,) bool: terminated or truncated.
        reward: (N,) float32, of the last step.
        slot: (N,) int32, index of the next episode's reset state in `ResetStates`.
    """

    frames: Tensor
    stack: Tensor
    tiles: Tensor
    screen: Tensor
    sums: Tensor
    dist: Tensor
    prev_dist: Tensor
    episode_step: Tensor
    match_count: Tensor
    terminated: Tensor
    truncated: Tensor
    ended: Tensor
    reward: Tensor
    slot: Tensor

    @classmethod
    def allocate(
        cls, num_envs: int, stack_k: int, height: int, width: int, device: torch.device
    ) -> Trackers:
        """Zeros, except for the positions of the tiles."""

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((num_envs, *shape), dtype=dtype, device=device)

        rows, columns = grid_shape(height, width)
        tiles = zeros(torch.float32, rows * columns, NUM_TILE)
        tiles[:, :, :NUM_PLACE] = places(height, width).to(device)
        return cls(
            frames=zeros(torch.uint8, height, width),
            stack=zeros(torch.uint8, stack_k, height, width),
            tiles=tiles,
            screen=zeros(torch.float32, NUM_SCREEN),
            sums=zeros(torch.int32),
            dist=zeros(torch.float32),
            prev_dist=zeros(torch.float32),
            episode_step=zeros(torch.int32),
            match_count=zeros(torch.int32),
            terminated=zeros(torch.bool),
            truncated=zeros(torch.bool),
            ended=zeros(torch.bool),
            reward=zeros(torch.float32),
            slot=zeros(torch.int32),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ResetStates:
    """Initial screens and distances of S snapshots. M = N if goals differ by environment, else 1.

    Attributes:
        bank: (S,) int32, slot of each snapshot in the world's bank.
        frames: (S, H, W) uint8, screens.
        tiles: (S * M, T, 7) float32, as in `Trackers`.
        dist: (S * M,) float32.
        offset: (N,) int32: environment i reads row slot * M + offset[i] of `tiles` and `dist`.
        per_start: M.
    """

    bank: Tensor
    frames: Tensor
    tiles: Tensor
    dist: Tensor
    offset: Tensor
    per_start: int


def take_snapshots(world: World, warm_ups: Sequence[Sequence[Button]]) -> list[int]:
    """Takes snapshots of the first machine after each sequence of buttons, into slots 0, 1, ...

    Every sequence starts from the first machine's current state. Afterward all machines are in the
    state of slot 0.
    """
    if not 1 <= len(warm_ups) <= world.num_slots:
        raise UsageError(
            f"warm_ups: expected 1 to {world.num_slots} sequences, a slot of the world each, got "
            f"{len(warm_ups)}"
        )
    for button in (button for sequence in warm_ups for button in sequence):
        if not isinstance(button, Button):
            raise UsageError(f"warm_ups: expected sequences of Button, got {button!r} in one")
    world.snapshot(0, 0)
    all_machines, slots = _all_machines(world, 0)
    for slot in reversed(range(len(warm_ups))):  # slot 0 last: it holds the state to start from
        world.reset(all_machines, slots)
        for button in warm_ups[slot]:
            world.step(torch.full_like(slots, button.value))
        world.snapshot(0, slot)
    return list(range(len(warm_ups)))


def require_slots(slots: Sequence[int], num_slots: int) -> list[int]:
    """Checks that there are slots and all are in the bank."""
    chosen = list(slots)
    wrong = [slot for slot in chosen if not is_index(slot, num_slots)]
    if wrong or not chosen:
        raise UsageError(
            f"slots: expected at least one, from 0 to {num_slots - 1}, got {wrong or chosen}"
        )
    return chosen


def measure_reset_states(world: World, slots: Sequence[int], goal: Goal) -> ResetStates:
    """Restores all machines from each slot and measures their screens."""
    shape = (world.num_envs, world.height, world.width)
    pixels = torch.zeros(shape, dtype=torch.uint8, device=world.device)
    frames, tiles, dists = [], [], []
    num_goals = 1 if goal.pixels.ndim == 2 else world.num_envs
    where = places(world.height, world.width).to(world.device)
    for slot in slots:
        world.reset(*_all_machines(world, slot))
        world.render(pixels)
        check_pixels(f"the screen of slot {slot}", pixels, ndims=(3,))
        measured = measure_tiles(pixels[:num_goals], goal)
        sums = measured[:, :, -1].sum(1, dtype=torch.int32)
        _require_apart(sums, goal, slot)
        frames.append(pixels[0].clone())
        tiles.append(torch.cat((where.expand(num_goals, -1, -1), measured), 2))
        dists.append(normalize_sums(sums, goal))
    offset = torch.zeros(world.num_envs, dtype=torch.int32, device=world.device)
    if num_goals > 1:
        torch.arange(num_goals, out=offset)
    return ResetStates(
        bank=torch.tensor(slots, dtype=torch.int32, device=world.device),
        frames=torch.stack(frames),
        tiles=torch.cat(tiles),
        dist=torch.cat(dists),
        offset=offset,
        per_start=num_goals,
    )


def require_goal(goal: Goal, world: World) -> None:
    """Checks that a goal has the shape and device of a world's screens."""
    one = (world.height, world.width)
    shape = tuple(goal.pixels.shape)
    if shape not in (one, (world.num_envs, *one)):
        raise SchemaError(
            f"goal: expected shape {one}, the world's screen, or {(world.num_envs, *one)}, got "
            f"{shape}"
        )
    if goal.pixels.device != world.device:
        raise SchemaError(
            f"goal: expected the world's device {world.device}, got {goal.pixels.device}"
        )


def _require_apart(sums: Tensor, goal: Goal, slot: int) -> None:
    nearest = int(sums.min())
    if nearest < goal.threshold:
        env = "" if len(sums) == 1 else f" of environment {int(sums.argmin())}"
        raise SchemaError(
            f"slot {slot}: the start matches the goal{env} already (distance {nearest}, a match is "
            f"below {goal.threshold} for tau {goal.tau}): choose another start or goal, or a "
            "smaller tau"
        )


def _all_machines(world: World, slot: int) -> tuple[Tensor, Tensor]:
    ones = torch.ones(world.num_envs, dtype=torch.bool, device=world.device)
    slots = torch.full((world.num_envs,), slot, dtype=torch.int32, device=world.device)
    return ones, slots
