"""Worlds for tests: every implementation by name, and two plain environments."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from entity_env.games.pixel.env import PixelGoalEnv
from entity_env.games.pixel.reward.reward import Goal, RewardConfig
from entity_env.games.pixel.worlds.game_boy import PyBoyWorld
from entity_env.games.pixel.worlds.grid_world import GridWorld
from entity_env.games.pixel.worlds.world import World
from entity_env.games.pixel.xo_chip import programs
from entity_env.games.pixel.xo_chip.quirks import XOCHIP
from entity_env.games.pixel.xo_chip.world import XoChipWorld
from tests.games.pixel.checked_env import CheckedPixelGoalEnv
from tests.games.pixel.worlds.game_boy_rom import square_rom

SMALL = ("S..", ".#.", "..F")
"""A grid with a solution of four steps."""


def grid_world(num_envs: int, num_slots: int, device: str) -> World:
    return GridWorld(num_envs, num_slots=num_slots, device=device)


def xo_chip_world(num_envs: int, num_slots: int, device: str) -> World:
    rom = programs.program("maze")
    return XoChipWorld(rom, num_envs, quirks=XOCHIP, num_slots=num_slots, device=device)


def game_boy_world(num_envs: int, num_slots: int, device: str) -> World:
    rom, boot = square_rom(), 150
    return PyBoyWorld(rom, num_envs, boot_frames=boot, num_slots=num_slots, num_workers=1)


MakeWorld = Callable[[int, int, str], World]
WORLDS: dict[str, MakeWorld] = {"grid": grid_world, "xo_chip": xo_chip_world}
"""Constructors of freshly started machines, given number, slots and device."""
HOST_WORLDS: dict[str, MakeWorld] = {"game_boy": game_boy_world} if find_spec("pyboy") else {}
"""Worlds that always run on the host, whatever the requested device."""


def small_env(
    num_envs: int = 4,
    *,
    stack_k: int = 1,
    max_steps: int = 20,
    match_k: int = 2,
    device: str = "cpu",
    checked: bool = False,
    **more: object,
) -> PixelGoalEnv:
    """A grid of three by three cells."""
    world = GridWorld(num_envs, SMALL, num_slots=3, device=device)
    goal = Goal(world.goal_frame(), tau=Fraction(1, 3 * world.height * world.width))
    config = RewardConfig(match_k=match_k, max_steps=max_steps)
    kind = CheckedPixelGoalEnv if checked else PixelGoalEnv
    return kind(world, goal, config, stack_k=stack_k, **more)  # type: ignore[arg-type]


def actions_of(num_envs: int, num_steps: int, seed: int = 0, device: str = "cpu") -> Tensor:
    """(num_steps, num_envs) int32 random buttons."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(7, size=(num_steps, num_envs), dtype=np.int32)).to(device)


def bytes_of(world: World) -> dict[str, Tensor]:
    """A copy of the whole state, (N, bytes) uint8 by name, on the host."""
    return {
        name: tensor.detach()
        .cpu()
        .contiguous()
        .view(torch.uint8)
        .reshape(world.num_envs, -1)
        .clone()
        if tensor.ndim > 1
        else tensor.detach().cpu()[:, None].contiguous().view(torch.uint8).clone()
        for name, tensor in world.state().items()
    }


def screens(world: World) -> Tensor:
    """The screens, (N, H, W) uint8, on the host."""
    shape = (world.num_envs, world.height, world.width)
    pixels = torch.full(shape, 9, dtype=torch.uint8, device=world.device)
    world.render(pixels)
    return pixels.cpu()
