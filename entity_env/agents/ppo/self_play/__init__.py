"""Self-play for `train`: opponents in some of the environments.

Import these names from here; their code is in `agents/training/self_play`.
"""

from __future__ import annotations

from entity_env.agents.training.self_play.vec_env import (
    Opponent as Opponent,
    SeatResult as SeatResult,
    SelfPlayVecEnv as SelfPlayVecEnv,
)
