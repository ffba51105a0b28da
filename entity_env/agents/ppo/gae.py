"""Generalized advantage estimation over decisions, not over steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trajectories:
    """What happened to every row in a rollout of `num_steps` steps.

    Step `t` observes, acts, and receives a reward together with observation `t + 1`.

    Args:
        is_ready: `(num_steps + 1, num_rows)` bool: the row decided on observation `t`; the last
            one is only looked at.
        values: `(num_steps + 1, num_rows)` float32, the value of observation `t`; of the last one
            of no meaning where an episode had just ended.
        rewards: `(num_steps, num_rows)` float32, received with observation `t + 1`.
        terminated, truncated: `(num_steps, num_rows)` bool, so ended the episode before
            observation `t + 1`, which is the first of the next one.
        final_values: `(num_steps, num_rows)` float32, the value of the last observation of an
            episode that was truncated; of no meaning elsewhere.
    """

    is_ready: NDArray[np.bool_]
    values: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_values: NDArray[np.float32]

    @classmethod
    def empty(cls, num_steps: int, num_rows: int) -> Trajectories:
        """Room for a rollout, all zeros."""
        shape, longer = (num_steps, num_rows), (num_steps + 1, num_rows)
        return cls(
            is_ready=np.zeros(longer, dtype=np.bool_),
            values=np.zeros(longer, dtype=np.float32),
            rewards=np.zeros(shape, dtype=np.float32),
            terminated=np.zeros(shape, dtype=np.bool_),
            truncated=np.zeros(shape, dtype=np.bool_),
            final_values=np.zeros(shape, dtype=np.float32),
        )


def compute_advantages(
    what: Trajectories, gamma: float, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """How much better each decision was than its value said.

    Rewards up to a row's next decision are earned by the last one. An episode that terminated is
    worth nothing more, one that was truncated as much as its last observation. A decision is known
    when its episode ended, or when an observation on which the row decides followed.

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
    (2016), equation 16.

    Returns:
        `(num_steps, num_rows)` float32 advantages and bool: the row decided there, and what came
        of it is known. Where it is not, the advantage is 0.
    """
    num_steps = len(what.rewards)
    advantages = np.zeros_like(what.rewards)
    is_known = np.zeros_like(what.terminated)
    # Of each row, going back in time: what was earned since, the value and advantage of the
    # decision (or end) that follows, and whether there is any.
    earned = np.zeros_like(what.values[0])
    next_value = what.values[-1].copy()
    next_advantage = np.zeros_like(next_value)
    has_next = what.is_ready[-1].copy()
    done = what.terminated | what.truncated
    end_values = np.where(what.terminated, np.float32(0), what.final_values)
    for t in reversed(range(num_steps)):
        ended = done[t]
        earned = np.where(ended, 0, earned) + what.rewards[t]
        next_value = np.where(ended, end_values[t], next_value)
        next_advantage = np.where(ended, 0, next_advantage)
        has_next |= ended
        decided = what.is_ready[t]
        is_known[t] = decided & has_next
        delta = earned + gamma * next_value - what.values[t]
        advantages[t] = np.where(is_known[t], delta + gamma * gae_lambda * next_advantage, 0)
        earned = np.where(decided, 0, earned)
        next_value = np.where(decided, what.values[t], next_value)
        next_advantage = np.where(decided, advantages[t], next_advantage)
        has_next |= decided
    return advantages, is_known
