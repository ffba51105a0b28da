"""`Episode`: summary of a finished episode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from entity_env.core.validation import plain_number, plain_numbers

MAX_IDLE_EPISODES: Final = 1000
"""Automatic resets give up after this many consecutive episodes that end before an action."""

ERROR_METRIC: Final = "error"
"""Metric with value 1 in an episode that ended by a failure."""

MAX_STEPS: Final = 10_000
"""Default of all step limits, in actions of an agent per episode: evaluations, matches, recordings
and episodes without a person are truncated there, because they may never end."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Statistics of one agent's finished episode.

    Args:
        reward: sum of its rewards; in a `Game`, final minus initial score.
        length: number of actions taken.
        terminated: ended by the game's rules.
        truncated: stopped early, for instance by a time limit.
        seed: reproduces the episode.
        number: index of the episode in its environment.
        env_id: index of the environment, 0 outside a `VecEnv`.
        agent_id: index of the agent, 0 in single-agent games.
        metrics: metrics of the last observation.

    All numbers are plain `int`s and `float`s, even if the game's score is a number of numpy.
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

    def __post_init__(self) -> None:
        if self.reward.__class__ is not float:
            object.__setattr__(self, "reward", plain_number(self.reward))
        if self.metrics:
            object.__setattr__(self, "metrics", plain_numbers(self.metrics))
