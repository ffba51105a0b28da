"""A counting environment in every form of a Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    Entity,
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
)
from entity_env.interop.gymnasium import BatchVectorEnv, EntityVectorEnv
from entity_env.interop.gymnasium.vector_env import MODES
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
)

AnyVector: TypeAlias = Any
"""A vector environment: `SyncVectorEnv` accepts and returns more seeds than its base class."""
MakeFace: TypeAlias = Callable[[Sequence[int], AutoresetMode], AnyVector]

NUM_LABELS: Final = 5
OBS_SPACE: Final = ObsSpace(entities={"Count": Entity(["value"])})
ACTION_SPACE: Final = {"Earn": GlobalCategoricalActionSpace([str(i) for i in range(NUM_LABELS)])}


class CountEnv(Environment):
    """Counts from 0 to `last`; the reward is the index of the action."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def obs_space(self) -> ObsSpace:
        return OBS_SPACE

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return ACTION_SPACE

    def reset(self) -> Observation:  # type: ignore[override]  # takes no seed: all starts are equal
        self.count = 0
        return self._shown(0.0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        self.count += 1
        return self._shown(float(actions["Earn"].index))  # type: ignore[union-attr]

    def _shown(self, reward: float) -> Observation:
        return Observation(
            reward=reward,
            terminated=self.count == self.last,
            features={"Count": [[self.count]]},
            actions={"Earn": GlobalCategoricalActionMask()},
        )


class CountBatch(BatchEnv):
    """`CountEnv` as a batch."""

    def __init__(self, lasts: Sequence[int]) -> None:
        super().__init__(len(lasts), 1)
        self.lasts = np.array(lasts)
        self.is_closed = False
        self._result = StepResult(
            np.zeros((self.num_envs, 1), np.float32),
            np.zeros(self.num_envs, np.float32),
            np.zeros(self.num_envs, np.uint8),
            np.zeros(self.num_envs, np.uint8),
        )

    def obs_space(self) -> ObsSpace:
        return OBS_SPACE

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return ACTION_SPACE

    def reset(self, seed: BatchSeed | None = None) -> None:
        self._result.rewards[:] = 0
        self.reset_envs(ResetMask.from_bool(np.ones(self.num_envs, np.bool_)), seed)

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self._result.observations[:] += 1
        self._result.rewards[:] = actions
        self._result.terminals[:] = self._result.observations[:, 0] == self.lasts
        return self._result

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        for array in (self._result.observations, self._result.terminals, self._result.truncations):
            array[mask.indices()] = 0

    def view(self) -> StepResult:
        return self._result

    def close(self) -> None:
        self.is_closed = True


class GymCount(gymnasium.Env[NDArray[np.float32], np.int64]):
    """`CountEnv` as a Gymnasium environment."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(NUM_LABELS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.count += 1
        is_over = self.count == self.last
        return np.full(1, self.count, np.float32), float(action), is_over, False, {}


def count_vec(lasts: Sequence[int], mode: AutoresetMode) -> VecEnv:
    """Several `CountEnv`s as a `VecEnv`."""
    numbers: Iterator[int] = iter(lasts)
    autoreset = next(name for name, value in MODES.items() if value == mode)
    return VecEnv(lambda: CountEnv(next(numbers)), len(lasts), autoreset=autoreset)


def _entities(lasts: Sequence[int], mode: AutoresetMode) -> AnyVector:
    return EntityVectorEnv(count_vec(lasts, mode))


def _batch(lasts: Sequence[int], mode: AutoresetMode) -> AnyVector:
    return BatchVectorEnv(CountBatch(lasts), autoreset_mode=mode)


def _sync(lasts: Sequence[int], mode: AutoresetMode) -> AnyVector:
    return SyncVectorEnv([partial(GymCount, last) for last in lasts], autoreset_mode=mode)


FACES: Final[Mapping[str, MakeFace]] = {
    "batch": _batch,
    "entities": _entities,
    "gymnasium": _sync,
}
"""Our vector environments and Gymnasium's own, which shows that the tests match its behavior."""


def counts(obs: Any) -> list[float]:  # noqa: ANN401 - from any interface
    """The counts in an observation."""
    values = obs["Count"] if isinstance(obs, dict) else obs
    return np.asarray(values).ravel().tolist()
