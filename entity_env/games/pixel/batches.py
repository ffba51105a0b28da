"""`PixelGoalEnv` for each game of this package, and for any ROM with or without a goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import torch

from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.goal_files import load_goal, screen_of
from entity_env.games.pixel.reward.reward import PIXEL_RANGE, Goal, RewardConfig
from entity_env.games.pixel.worlds.checks import require_count
from entity_env.games.pixel.worlds.grid_world import GridWorld
from entity_env.games.pixel.worlds.machines import blamed_on, machine_for, read_rom
from entity_env.games.pixel.worlds.world import World

# A step toward the goal reduces the distance by about 1/60. This factor makes its reward far exceed
# the step cost.
ALPHA: Final = 10.0
_NEVER: Final = 2**31 - 1


def grid_env(num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu") -> PixelGoalEnv:
    """Grids on which a figure walks from `S` to `F`.

    Only the goal's own screen matches; all other screens are equally far from it.
    """
    require_count("max_episode_steps", max_episode_steps)
    world = GridWorld(num_envs, device=device)
    goal = Goal(world.goal_frame(), tau=_one_pixel(world))
    return PixelGoalEnv(world, goal, RewardConfig(max_steps=max_episode_steps))


def program_env(
    name: str, num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu"
) -> PixelGoalEnv:
    """XO-CHIPs that run one of `xo_chip.PROGRAMS`, with that program's goal."""
    from entity_env.games.pixel.xo_chip import programs
    from entity_env.games.pixel.xo_chip.world import XoChipWorld

    require_count("max_episode_steps", max_episode_steps)
    world = XoChipWorld(
        programs.program(name),
        num_envs,
        frames=programs.FRAMES,
        instructions=programs.INSTRUCTIONS,
        device=device,
    )
    goal = Goal(torch.from_numpy(programs.goal_frame(name)).to(world.device))
    config = RewardConfig(alpha=ALPHA, max_steps=max_episode_steps)
    return PixelGoalEnv(world, goal, config, warm_ups=(programs.PROGRAMS[name].start,))


def captured_env(
    num_envs: int, rom: Path, goal: Path, *, max_episode_steps: int, device: str = "cpu"
) -> PixelGoalEnv:
    """Machines at the start of a captured goal, rewarded for approaching it."""
    require_count("max_episode_steps", max_episode_steps)
    config = RewardConfig(alpha=ALPHA, max_steps=max_episode_steps)
    captured = load_goal(goal)
    world = captured.world(read_rom(rom), num_envs, device=device)
    target = replace(captured.goal, pixels=captured.goal.pixels.to(world.device))
    return PixelGoalEnv(world, target, config, slots=[0])


def unrewarded_env(
    num_envs: int,
    rom: Path,
    machine: Mapping[str, Any],
    *,
    max_episode_steps: int,
    device: str = "cpu",
) -> PixelGoalEnv:
    """Machines just switched on, without rewards; episodes are only truncated.

    The observed distances are meaningless: their goal is the negative of the first screen.
    `machine` holds settings for `machine_for`; other arguments as for `captured_env`.
    """
    require_count("max_episode_steps", max_episode_steps)
    config = RewardConfig(0.0, 0.0, 0.0, match_k=_NEVER, max_steps=max_episode_steps)
    with blamed_on(rom):
        world = machine_for(rom, **machine).world(read_rom(rom), num_envs, device=device)
    negative = (3 - screen_of(world)).to(world.device)
    return PixelGoalEnv(world, Goal(negative, tau=_one_pixel(world)), config)


def _one_pixel(world: World) -> Fraction:
    """Largest tau for which only the goal's own screen matches."""
    return Fraction(1, PIXEL_RANGE["absolute"] * world.height * world.width)
