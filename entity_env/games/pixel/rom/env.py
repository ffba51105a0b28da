"""PixelGoalEnv for any ROM, with a captured goal or with none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from entity_env.games.pixel.batches import ALPHA
from entity_env.games.pixel.checks import require_count
from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.capture import screen_of
from entity_env.games.pixel.reward.goal_files import load_goal
from entity_env.games.pixel.reward.reward import PIXEL_RANGE, Goal, RewardConfig
from entity_env.games.pixel.rom.machines import blamed_on, machine_for, read_rom

_NEVER: Final = 2**31 - 1


def with_goal(
    num_envs: int, rom: Path, goal: Path, *, max_episode_steps: int, device: str = "cpu"
) -> PixelGoalEnv:
    """Return machines at the start of a captured goal, paid for coming nearer to it.

    Args:
        num_envs: how many.
        rom: a file, the one that the goal was captured from.
        goal: a folder that `entity-env capture-goal` wrote.
        max_episode_steps: steps after which an episode is cut.
        device: where the machines run.

    Raises:
        UsageError: a file that cannot be read or does not belong to the other; no such device.
        MissingExtraError: what runs the ROM is not installed.
    """
    require_count("max_episode_steps", max_episode_steps)
    config = RewardConfig(alpha=ALPHA, max_steps=max_episode_steps)
    captured = load_goal(goal)
    world = captured.world(read_rom(rom), num_envs, device=device)
    wanted = replace(captured.goal, pixels=captured.goal.pixels.to(world.device))
    return PixelGoalEnv(world, wanted, config, slots=[0])


def without_goal(
    num_envs: int,
    rom: Path,
    machine: Mapping[str, Any],
    *,
    max_episode_steps: int,
    device: str = "cpu",
) -> PixelGoalEnv:
    """Return machines that are switched on and paid nothing; an episode ends by time alone.

    The distances that they show are those from a negative of the first screen, and mean nothing.

    Args:
        num_envs: how many.
        rom: a file.
        machine: settings for `machine_for`.
        max_episode_steps: steps after which an episode is cut.
        device: where the machines run.

    Raises:
        UsageError: the file cannot be read or is no such ROM; a setting that its machine does not
            have.
        MissingExtraError: what runs the ROM is not installed.
    """
    require_count("max_episode_steps", max_episode_steps)
    config = RewardConfig(0.0, 0.0, 0.0, match_k=_NEVER, max_steps=max_episode_steps)
    with blamed_on(rom):
        world = machine_for(rom, **machine).world(read_rom(rom), num_envs, device=device)
    negative = (3 - screen_of(world)).to(world.device)
    one_pixel = Fraction(1, PIXEL_RANGE["absolute"] * world.height * world.width)
    return PixelGoalEnv(world, Goal(negative, tau=one_pixel), config)
