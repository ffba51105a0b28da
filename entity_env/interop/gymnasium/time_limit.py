"""TimeLimited: an environment whose episodes are cut after a number of steps."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from entity_env.core.environment import Environment
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_count


class TimeLimited(Environment):
    """Steps another environment, and truncates its episodes.

    Args:
        make: returns the other environment, which this object closes.
        max_steps: actions in an episode, at most.

    Raises:
        UsageError: a number below 1.
    """

    def __init__(self, make: Callable[[], Environment], max_steps: int) -> None:
        checked_count("max_episode_steps", max_steps)
        self._env = make()
        self._takes_seed = "seed" in inspect.signature(self._env.reset).parameters
        self._max_steps = max_steps
        self._num_steps = 0

    def obs_space(self) -> ObsSpace:
        return self._env.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._env.action_space()

    def reset(self, *, seed: int | None = None) -> Observation:
        self._num_steps = 0
        return self._env.reset(seed=seed) if self._takes_seed else self._env.reset()

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        observation = self._env.act(actions)
        self._num_steps += 1
        if self._num_steps < self._max_steps:
            return observation
        last = copy.copy(observation)
        last.truncated = True
        return last

    def render(self) -> NDArray[np.uint8]:
        return self._env.render()

    def close(self) -> None:
        self._env.close()
