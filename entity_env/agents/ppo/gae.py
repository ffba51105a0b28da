"""Generalized advantage estimation (GAE), over decisions instead of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.ppo.peers import ALONE, Peers


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Values, rewards and episode ends of every row in a rollout of `num_steps` steps.

    Step `t` observes, acts, and receives a reward together with observation `t + 1`.

    Args:
        is_ready: `(num_steps + 1, num_rows)` bool: the row decides on observation `t`.
        values: `(num_steps + 1, num_rows)` float32, the value of observation `t`; the last one has
            no meaning where an episode has just ended.
        rewards: `(num_steps, num_rows)` float32, received with observation `t + 1`.
        terminated, truncated: `(num_steps, num_rows)` bool: the episode ended before observation
            `t + 1`, which is the first of the next one.
        final_values: `(num_steps, num_rows)` float32, the value of the final observation of a
            truncated episode; has no meaning elsewhere.
    """

    is_ready: NDArray[np.bool_]
    values: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_values: NDArray[np.float32]

    @classmethod
    def empty(cls, num_steps: int, num_rows: int) -> Trajectories:
        """All zeros."""
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
    trajectories: Trajectories, gamma: float, gae_lambda: float
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Advantage of every decision.

    Rewards up to a row's next decision belong to the last one. The value after an episode is 0 if
    it terminated, that of its final observation if it was truncated. The outcome of a decision is
    known once its episode has ended or the row decides again.

    Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
    (2016), equation 16.
    """
    num_steps = len(trajectories.rewards)
    advantages = np.zeros_like(trajectories.rewards)
    is_known = np.zeros_like(trajectories.terminated)
    # Of each row, backward in time: rewards since step t, value and advantage of the decision (or
    # end) that follows, and whether one follows.
    earned = np.zeros_like(trajectories.values[0])
    next_value = trajectories.values[-1].copy()
    next_advantage = np.zeros_like(next_value)
    has_next = trajectories.is_ready[-1].copy()
    done = trajectories.terminated | trajectories.truncated
    end_values = np.where(trajectories.terminated, np.float32(0), trajectories.final_values)
    for t in reversed(range(num_steps)):
        ended = done[t]
        earned = np.where(ended, 0, earned) + trajectories.rewards[t]
        next_value = np.where(ended, end_values[t], next_value)
        next_advantage = np.where(ended, 0, next_advantage)
        has_next |= ended
        decided = trajectories.is_ready[t]
        is_known[t] = decided & has_next
        delta = earned + gamma * next_value - trajectories.values[t]
        advantages[t] = np.where(is_known[t], delta + gamma * gae_lambda * next_advantage, 0)
        earned = np.where(decided, 0, earned)
        next_value = np.where(decided, trajectories.values[t], next_value)
        next_advantage = np.where(decided, advantages[t], next_advantage)
        has_next |= decided
    return advantages, is_known


class ReturnStatistics:
    """Running mean and deviation of returns, as a moving average over rollouts.

    Args:
        mean, square: means of the returns and of their squares.
        count: rollouts so far.
    """

    def __init__(self, mean: float = 0.0, square: float = 0.0, count: int = 0) -> None:
        self.mean = mean
        self.square = square
        self.count = count

    @property
    def std(self) -> float:
        """Deviation, at least a tenth of the root mean square: equal returns still have a scale."""
        variance = max(self.square - self.mean**2, 0.01 * self.square)
        return max(math.sqrt(variance), _LEAST_STD) if self.count else 1.0

    def update(self, returns: NDArray[np.float32], peers: Peers = ALONE) -> None:
        """Counts the returns of a rollout, of all ranks, if there are any."""
        squares = np.square(returns, dtype=np.float64)
        (count, _), (mean, square), _ = peers.moments((returns, squares))
        if not count:
            return
        self.count += 1
        rate = max(1 / self.count, _RATE)
        self.mean += rate * (float(mean) - self.mean)
        self.square += rate * (float(square) - self.square)


_RATE: Final = 0.05
"""Weight of the newest rollout, at least."""
_LEAST_STD: Final = 1e-6
