"""Games that are known by their screen alone. Importing this package does not import torch.

Names that need torch or Warp are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.games.pixel.world import Button as Button, World as World
from entity_env.late_names import late_names

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

__getattr__ = late_names(__name__, _LATE, extra="pixel")
