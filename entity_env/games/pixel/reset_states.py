"""Where episodes begin: snapshots in the bank of a world, and what they show."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entity_env.core.validation import is_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.episode_state import Starts
from entity_env.games.pixel.reward.reward import Goal, check_pixels, normalize
from entity_env.games.pixel.reward.tiles import measure_tiles, places
from entity_env.games.pixel.worlds.world import Button, World


def take_snapshots(world: World, warm_ups: Sequence[Sequence[Button]]) -> list[int]:
    """Keep the first machine as it is after each sequence of buttons, in the slots from 0 on.

    Every sequence begins where the machine is now; the machines are left in one of those states.

    Raises:
        UsageError: no sequence, more than the bank has slots, or something that is no button.
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
    everyone, slots = _everyone(world, 0)
    for slot in reversed(range(len(warm_ups))):  # slot 0 last: all of them begin from it
        world.reset(everyone, slots)
        for button in warm_ups[slot]:
            world.step(torch.full_like(slots, button.value))
        world.snapshot(0, slot)
    return list(range(len(warm_ups)))


def require_slots(slots: Sequence[int], num_slots: int) -> list[int]:
    """Return slots of a bank, at least one.

    Raises:
        UsageError: there is none, or no such slot.
    """
    chosen = list(slots)
    wrong = [slot for slot in chosen if not is_index(slot, num_slots)]
    if wrong or not chosen:
        raise UsageError(
            f"slots: expected at least one, from 0 to {num_slots - 1}, got {wrong or chosen}"
        )
    return chosen


def look_at(world: World, slots: Sequence[int], goal: Goal) -> Starts:
    """Restore all machines from each slot in turn, and measure what they show.

    Raises:
        SchemaError: a screen whose pixels are no shades, or that matches the goal already.
    """
    shape = (world.num_envs, world.height, world.width)
    pixels = torch.zeros(shape, dtype=torch.uint8, device=world.device)
    frames, tiles, dists = [], [], []
    num_goals = 1 if goal.pixels.ndim == 2 else world.num_envs
    where = places(world.height, world.width).to(world.device)
    for slot in slots:
        world.reset(*_everyone(world, slot))
        world.render(pixels)
        check_pixels(f"the screen of slot {slot}", pixels, ndims=(3,))
        measured = measure_tiles(pixels[:num_goals], goal)
        sums = measured[:, :, -1].sum(1, dtype=torch.int32)
        _require_apart(sums, goal, slot)
        frames.append(pixels[0].clone())
        tiles.append(torch.cat((where.expand(num_goals, -1, -1), measured), 2))
        dists.append(normalize(sums, goal))
    offset = torch.zeros(world.num_envs, dtype=torch.int32, device=world.device)
    if num_goals > 1:
        torch.arange(num_goals, out=offset)
    return Starts(
        bank=torch.tensor(slots, dtype=torch.int32, device=world.device),
        frames=torch.stack(frames),
        tiles=torch.cat(tiles),
        dist=torch.cat(dists),
        offset=offset,
        per_start=num_goals,
    )


def require_goal(goal: Goal, world: World) -> None:
    """Check that a goal is one for the screens of a world.

    Raises:
        SchemaError: it has another shape, or lies elsewhere.
    """
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
            f"slot {slot}: the start matches the goal{env} already: their distance is {nearest}, "
            f"and below {goal.threshold} (tau {goal.tau}) it is a match: choose another start or "
            "goal, or a smaller tau"
        )


def _everyone(world: World, slot: int) -> tuple[Tensor, Tensor]:
    ones = torch.ones(world.num_envs, dtype=torch.bool, device=world.device)
    slots = torch.full((world.num_envs,), slot, dtype=torch.int32, device=world.device)
    return ones, slots
