"""ProcessBatch: interface of the environments of a `VecEnv` in one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, Spaces
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.vec.step import CollectedStep, StepMemory

ActionValues: TypeAlias = Mapping[ActionName, NDArray[Any]]
"""Checked values per action, one per actor."""


class ProcessBatch(ABC):
    """Environments in this process that always step together.

    Environment indices start at 0; only `Episode` objects, seeds and messages count from the first
    environment of this process.

    Args:
        num_agents: number of rows per environment.
        spaces: of the observations and of every action.

    Attributes:
        limits_steps: True if it raises after the step timeout itself.
        can_reset_envs: some environments can be reset while others continue.
        num_steps: number of calls of `act`; 0 in a worker, whose parent counts the calls.
        games_s, packing_s, num_restarts: see `WorkerStatistics`.
        failures: reason of the last restart, by environment.
        is_whole: the last call was completed or changed nothing, so the state is known.
        current: its first element is the index of the environment being stepped.
    """

    def __init__(self, num_envs: int, num_agents: int, spaces: Spaces) -> None:
        self.num_envs = num_envs
        self.num_agents = num_agents
        self.spaces = spaces
        self.limits_steps = False
        self.can_reset_envs = True
        self.num_steps = 0
        self.games_s = 0.0
        self.packing_s = 0.0
        self.num_restarts = 0
        self.is_whole = True
        self.failures: dict[int, str] = {}
        self.current: MutableSequence[int] | memoryview = [0]

    @abstractmethod
    def seed_env(self, env_id: int, run: Run) -> None:
        """Starts a run of episodes at the environment's next reset."""

    @abstractmethod
    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> CollectedStep:
        """Starts a new episode in some environments; others keep their observations."""

    @abstractmethod
    def act(self, values: ActionValues, memory: StepMemory) -> CollectedStep:
        """Steps all environments by one action per actor of the last step."""

    def self_checked(self, actions: VecActions, obs: VecObs) -> ActionValues | None:
        """The actions as arrays, if the environments check them; `obs` is the last step.

        None = the caller must check the actions.
        """
        return None

    @abstractmethod
    def numbers(self, env_id: int) -> Sequence[int]:
        """Index of each agent's current episode, or of the next if it has ended."""

    @abstractmethod
    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        """See `Executor`."""

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        return None

    @abstractmethod
    def close(self) -> None:
        """Ends all environments; may be called twice."""
