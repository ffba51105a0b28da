"""Self-play: opponents in some of the environments, a pool of past selves, and ratings.

Matches between finished agents belong to `agents/ratings`.
"""

from __future__ import annotations

from entity_env.agents.ppo.self_play.vec_env import (
    Opponent as Opponent,
    SeatResult as SeatResult,
    SelfPlayVecEnv as SelfPlayVecEnv,
)
