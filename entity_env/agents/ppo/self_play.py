"""Self-play for `train`: opponents in some of the environments."""

from __future__ import annotations

from entity_env.agents.training.self_play.vec_env import (
    Opponent as Opponent,
    SeatResult as SeatResult,
    SelfPlayVecEnv as SelfPlayVecEnv,
)
