"""The games of this package as batches: worlds with goals of their own."""

from __future__ import annotations

from fractions import Fraction

import torch

from entity_env.games.pixel.checks import require_count
from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.reward import PIXEL_RANGE, Goal, RewardConfig
from entity_env.games.pixel.worlds.grid_world import GridWorld

# A step on the way brings a screen nearer by about a sixtieth: more than a step costs, by far.
ALPHA = 10.0


def grid(num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu") -> PixelGoalEnv:
    """Return grids on which a figure goes from `S` to `F`.

    Every screen but the goal's own is equally far from it, so a screen must be the same to match.

    Args:
        num_envs: how many.
        max_episode_steps: steps after which an episode is cut.
        device: where torch computes.

    Raises:
        UsageError: a number is below 1.
    """
    require_count("max_episode_steps", max_episode_steps)
    world = GridWorld(num_envs, device=device)
    one_pixel = Fraction(1, PIXEL_RANGE["absolute"] * world.height * world.width)
    goal = Goal(world.goal_frame(), tau=one_pixel)
    return PixelGoalEnv(world, goal, RewardConfig(max_steps=max_episode_steps))


def program(
    name: str, num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu"
) -> PixelGoalEnv:
    """Return machines that run a game of this package, with its goal.

    Args:
        name: of the game, as for `entity_env.games.pixel.xo_chip.programs.program`.
        num_envs: how many.
        max_episode_steps: steps after which an episode is cut.
        device: where the machines run.

    Raises:
        UsageError: there is no such game or device, or a number is below 1.
        MissingExtraError: Warp is not installed.
    """
    from entity_env.games.pixel.xo_chip import programs
    from entity_env.games.pixel.xo_chip.quirks import XOCHIP
    from entity_env.games.pixel.xo_chip.world import XoChipWorld

    require_count("max_episode_steps", max_episode_steps)
    rom = programs.program(name)
    world = XoChipWorld(
        rom,
        num_envs,
        quirks=XOCHIP,
        frames=programs.FRAMES,
        instructions=programs.INSTRUCTIONS,
        device=device,
    )
    goal = Goal(torch.from_numpy(programs.goal_frame(name)).to(world.device))
    warm_up = programs.PROGRAMS[name].start
    config = RewardConfig(alpha=ALPHA, max_steps=max_episode_steps)
    return PixelGoalEnv(world, goal, config, warm_ups=(warm_up,))
