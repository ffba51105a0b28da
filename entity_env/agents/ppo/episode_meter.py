"""Keeps the last episodes, for the mean reward that a trainer reports."""

from __future__ import annotations

from collections import deque

import numpy as np

from entity_env.core.vec_obs import Metric, VecObs


class EpisodeMeter:
    """Counts episodes and the games' metrics.

    Args:
        window: episodes that the means go over.
    """

    def __init__(self, window: int) -> None:
        self._rewards: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self.num_episodes = 0
        self.metrics: dict[str, Metric] = {}

    def add(self, obs: VecObs) -> None:
        """Counts the episodes that ended with this batch, and its metrics."""
        for episode in obs.episodes:
            self._rewards.append(episode.reward)
            self._lengths.append(episode.length)
            for name, value in episode.metrics.items():
                self.metrics.setdefault(f"episode/{name}", Metric()).push(value)
        self.num_episodes += len(obs.episodes)
        for name, metric in obs.metrics.items():
            total = self.metrics.setdefault(name, Metric())
            total.count += metric.count
            total.sum += metric.sum
            total.min = min(total.min, metric.min)
            total.max = max(total.max, metric.max)

    def start_rollout(self) -> None:
        """Forgets the metrics of the rollout before; the episodes stay."""
        self.metrics = {}

    @property
    def mean_reward(self) -> float:
        """Mean reward of the last episodes; NaN when there are none."""
        return float(np.mean(self._rewards)) if self._rewards else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean number of actions of the last episodes; NaN when there are none."""
        return float(np.mean(self._lengths)) if self._lengths else float("nan")
