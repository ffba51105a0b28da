"""ArrayEnv: base class of batch environments written as numpy operations over all copies."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import GAMMA
from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import checked_count
from entity_env.core.vec_env_base import splitmix64
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
    checked_actions,
)
from entity_env.vec.batch_env.reset_mask import require_reset_mask

_32: Final = np.uint64(32)


class ArrayEnv(BatchEnv):
    """Batch environment with rules as array operations; adds seeding, episode ends and checks.

    A subclass keeps its state in arrays with a first axis of `num_envs`, and implements
    `obs_space`, `action_space`, `begin`, `advance` and `observe`::

        class Walk(ArrayEnv):
            def __init__(self, num_envs):
                super().__init__(num_envs, max_episode_steps=50)
                self.place = np.zeros(num_envs, np.int64)

            def begin(self, env_ids):
                self.place[env_ids] = self.draw(env_ids, 5)

            def advance(self, actions):
                self.place += actions
                return self.place, self.place > 9

            def observe(self, env_ids):
                return self.place[env_ids, np.newaxis]

    Args:
        num_envs: at least 1.
        max_episode_steps: steps after which an episode is truncated; None = never.

    Attributes:
        num_steps: `(num_envs,)` int64, number of steps of the current episodes; read-only.

    Raises:
        SchemaError: several entity types, or an action that selects entities.
        UsageError: an invalid `num_envs` or `max_episode_steps`.
    """

    def __init__(self, num_envs: int, max_episode_steps: int | None = None) -> None:
        ((entity, *more),) = (self.obs_space().entities.values(),)
        if more:
            raise SchemaError(f"{type(self).__name__}: an ArrayEnv has one entity type")
        num_globals = len(self.obs_space().global_features)
        super().__init__(num_envs, self.num_entities * len(entity.features) + num_globals)
        self.max_episode_steps = max_episode_steps
        if max_episode_steps is not None:
            checked_count("max_episode_steps", max_episode_steps)
        self.num_steps = np.zeros(num_envs, np.int64)
        self._streams = np.zeros(num_envs, np.uint64)
        """Last SplitMix64 state of each environment."""
        self._result = StepResult(
            np.zeros((num_envs, self.obs_size), np.float32),
            np.zeros(num_envs, np.float32),
            np.zeros(num_envs, np.uint8),
            np.zeros(num_envs, np.uint8),
        )
        ((self._action, space),) = self.action_space().items()
        if isinstance(space, SelectEntityActionSpace):
            raise SchemaError(f"{type(self).__name__}: an ArrayEnv has no select action")
        self._space = space

    @abstractmethod
    def begin(self, env_ids: NDArray[np.int64]) -> None:
        """Sets some environments, at least one, to the start of an episode.

        All randomness must come from `draw`.
        """

    @abstractmethod
    def advance(self, actions: NDArray[Any]) -> tuple[ArrayLike, ArrayLike]:
        """Steps all environments.

        Args:
            actions: `(num_envs,)`: int64 indices of labels, or float32 numbers; checked.

        Returns:
            Rewards and terminated flags, `(num_envs,)` each, or a single value for all.
        """

    @abstractmethod
    def observe(self, env_ids: NDArray[np.int64] | slice) -> NDArray[Any]:
        """Current observations, `(len(env_ids), obs_size)`, new or a view; `slice(None)` is all."""

    def draw(self, env_ids: NDArray[np.int64], below: ArrayLike) -> NDArray[np.int64]:
        """`(len(env_ids),)` random integers, each from 0 to `below - 1`.

        Every environment has its own independent sequence; `entity_env.SplitMix64` draws the same
        numbers one by one.

        Args:
            env_ids: environments that draw, in ascending order; repeated for several draws.
            below: at most 2**32, a scalar or `(len(env_ids),)`; the probabilities of results differ
                by at most 1 in 2**32.
        """
        number = np.arange(1, len(env_ids) + 1) - np.searchsorted(env_ids, env_ids)
        states = self._streams[env_ids] + number.astype(np.uint64) * np.uint64(GAMMA)
        self._streams[env_ids] = states  # of repeated indices the last is kept
        limits = np.asarray(below).astype(np.uint64)
        return ((splitmix64(states) >> _32) * limits >> _32).astype(np.int64)

    def reset(self, seed: BatchSeed | None = None) -> None:
        self._require_open("reset")
        if seed is None and not self._is_reset:
            seed = self._new_seed()
        if seed is not None:
            self._streams[:] = self.env_seeds(seed)
        self._is_reset = True
        self._result.rewards[:] = 0
        self._begin(np.arange(self.num_envs))

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self._require_begun("reset_envs")
        require_reset_mask(type(self).__name__, mask, self.num_envs)
        env_ids = mask.indices()
        if seed is not None:
            self._streams[env_ids] = self.env_seeds(seed, env_ids)
        if len(env_ids):
            self._begin(env_ids)

    def step(self, actions: BatchActions) -> None:
        mask = self.step_no_reset_with_result(actions).to_reset_mask()
        if mask.any():
            self._begin(mask.indices())

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self._require_begun("step")
        result = self._result
        if np.any(result.terminals) or np.any(result.truncations):
            raise self._not_reset("step", result.to_reset_mask().indices())
        result.rewards[:], result.terminals[:] = self.advance(self._checked_actions(actions))
        self.num_steps += 1
        if self.max_episode_steps is not None:
            np.greater_equal(self.num_steps, self.max_episode_steps, out=result.truncations)
        result.observations[:] = self.observe(slice(None))
        return result

    def view(self) -> StepResult:
        self._require_begun("view")
        return self._result

    def _begin(self, env_ids: NDArray[np.int64]) -> None:
        self.num_steps[env_ids] = 0
        self._result.terminals[env_ids] = self._result.truncations[env_ids] = 0
        self.begin(env_ids)
        self._result.observations[env_ids] = self.observe(env_ids)

    def _checked_actions(self, given: object) -> NDArray[Any]:
        where = f"{type(self).__name__}: {self._action}"
        actions = checked_actions(where, given, self.num_envs, self._space)
        if (masks := self.legal_masks) is not None:
            forbidden = np.flatnonzero(~masks[np.arange(self.num_envs), actions])
            if len(forbidden):
                env_id = forbidden[0]
                raise SchemaError(
                    f"{where} actions must be allowed by legal_masks: got {actions[env_id]} for "
                    f"environment {env_id}"
                )
        has_numbers = isinstance(self._space, ContinuousActionSpace)
        return actions.astype(np.float32 if has_numbers else np.int64, copy=False)
