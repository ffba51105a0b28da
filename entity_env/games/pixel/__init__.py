"""Environments of machines with a screen, rewarded for bringing it closer to a goal picture.

Names that need torch or Warp load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.games.pixel.worlds.world import Button as Button, World as World
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.games.pixel.env import PixelGoalEnv as PixelGoalEnv
    from entity_env.games.pixel.episode_state import Trackers as Trackers
    from entity_env.games.pixel.reward.reward import Goal as Goal, RewardConfig as RewardConfig
    from entity_env.games.pixel.worlds.game_boy import PyBoyWorld as PyBoyWorld
    from entity_env.games.pixel.worlds.grid_world import GridWorld as GridWorld
    from entity_env.games.pixel.xo_chip.world import XoChipWorld as XoChipWorld

_LATE = {
    "Goal": "reward.reward",
    "GridWorld": "worlds.grid_world",
    "PixelGoalEnv": "env",
    "PyBoyWorld": "worlds.game_boy",
    "RewardConfig": "reward.reward",
    "Trackers": "episode_state",
    "XoChipWorld": "xo_chip.world",
}

__getattr__ = late_names(__name__, _LATE, extra="pixel")
