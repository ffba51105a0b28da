"""Any ROM of the user's: press buttons until the screen is the one that was captured as the goal.

What is seen, done and paid is that of `entity_env.games.pixel.play`. Importing this does not import
torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from entity_env import Game, UsageError
from entity_env.agents import Agent
from entity_env.games.pixel.entities import PRESS, Screen, Tile
from entity_env.games.pixel.play import play_env, require_torch

if TYPE_CHECKING:
    from entity_env.games.pixel.env import PixelGoalEnv


def open_rom(
    num_envs: int,
    *,
    rom: str,
    goal: str = "",
    quirks: Literal["xochip", "superchip", "chip8"] | None = None,
    frames: int | None = None,
    instructions: int | None = None,
    max_episode_steps: int = 128,
    device: str = "cpu",
    needs_goal: bool = False,
) -> PixelGoalEnv:
    """Return machines that run a ROM.

    Args:
        num_envs: how many.
        needs_goal: refuses to go without a goal, where something is to be learnt or measured.
        rom, goal, quirks, frames, instructions, max_episode_steps, device: as for `play_rom`.

    Raises:
        UsageError: there is no goal where one is needed, a file cannot be read or does not belong
            to the other, a setting is none of the machine's, or it stands beside a goal, which was
            captured with its own.
        MissingExtraError: torch, or what runs the ROM, is not installed.
    """
    if needs_goal and not goal:
        raise UsageError(
            "pixel: without a goal there is nothing to be learnt or measured: give --goal DIR, "
            "which entity-env capture-goal ROM --keys KEYS --out DIR makes"
        )
    require_torch("pixel")
    from entity_env.games.pixel.rom import env as rom_env

    machine = {"quirks": quirks, "frames": frames, "instructions": instructions}
    if not goal:
        return rom_env.without_goal(
            num_envs, Path(rom), machine, max_episode_steps=max_episode_steps, device=device
        )
    given = [name for name, value in machine.items() if value is not None]
    if given:
        raise UsageError(
            f"{goal} was captured with settings of its own: leave out {', '.join(given)}"
        )
    return rom_env.with_goal(
        num_envs, Path(rom), Path(goal), max_episode_steps=max_episode_steps, device=device
    )


def play_rom(
    agent: Agent,
    *,
    seed: int,
    rom: str,
    goal: str = "",
    quirks: Literal["xochip", "superchip", "chip8"] | None = None,
    frames: int | None = None,
    instructions: int | None = None,
    max_episode_steps: int = 128,
    device: str = "cpu",
) -> None:
    """Play any ROM, and reach the goal that was captured from it.

    Args:
        agent: who holds the buttons.
        seed: changes nothing: there is one start.
        rom: a file: `.gb` and `.gbc` for a Game Boy, all others for an XO-CHIP.
        goal: the folder of a captured goal; without one nothing is paid.
        quirks: the dialect, xochip if it is not given.
        frames: in a step, 24 if it is not given.
        instructions: in a frame, 30 if it is not given.
        max_episode_steps: steps after which the episode is cut.
        device: where the machine runs.
    """
    env = open_rom(
        1,
        rom=rom,
        goal=goal,
        quirks=quirks,
        frames=frames,
        instructions=instructions,
        max_episode_steps=max_episode_steps,
        device=device,
    )
    play_env(agent, env, seed)


pixel_rom: Game = Game(
    play_rom, name="pixel", entities=(Tile,), actions=(PRESS,), global_features=Screen
)
rom_batch: Callable[..., PixelGoalEnv] = partial(open_rom, needs_goal=True)
