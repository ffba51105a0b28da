"""`Episode`: the summary of one that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_IDLE_EPISODES: Final = 1000
"""After how many episodes in a row that ended before the first action an executor gives up."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Statistics of one finished episode of one agent.

    Args:
        reward: sum of its rewards: final minus initial score.
        length: number of actions taken.
        terminated: it ended by the game's rules.
        truncated: it was cut off.
        seed: of the episode; the game repeats the episode with it.
        number: index of the episode in its environment.
        env_id: index of the environment, 0 outside a `VecEnv`.
        agent_id: index of the agent, 0 in a game for one.
        metrics: of the last observation.
    """

    reward: float
    length: int
    terminated: bool
    truncated: bool
    seed: int
    number: int = 0
    env_id: int = 0
    agent_id: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
