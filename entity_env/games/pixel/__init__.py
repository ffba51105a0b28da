"""Games that are known by their screen alone. Importing this package does not import torch.

Names that need torch or Warp are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from entity_env.errors import MissingExtraError
from entity_env.games.pixel.world import Button as Button, World as World

if TYPE_CHECKING:
    from entity_env.games.pixel.core import Goal as Goal, RewardConfig as RewardConfig
    from entity_env.games.pixel.faults import PixelFault as PixelFault
    from entity_env.games.pixel.grid_world import GridWorld as GridWorld
    from entity_env.games.pixel.pixel_goal_env import PixelGoalEnv as PixelGoalEnv
    from entity_env.games.pixel.pyboy_world import PyBoyWorld as PyBoyWorld
    from entity_env.games.pixel.trackers import Trackers as Trackers
    from entity_env.games.pixel.xo_chip.xo_world import XoChipWorld as XoChipWorld

_LATE = {
    "Goal": "core",
    "GridWorld": "grid_world",
    "PixelFault": "faults",
    "PixelGoalEnv": "pixel_goal_env",
    "PyBoyWorld": "pyboy_world",
    "RewardConfig": "core",
    "Trackers": "trackers",
    "XoChipWorld": "xo_chip.xo_world",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_LATE[name]}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(error.name, "pixel", f"{__name__}.{name}") from error
    return getattr(module, name)
