"""BatchEnvStepper: steps one batch environment, in any autoreset mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode_stats import NO_EPISODES, FinishedEpisodes
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.array_batch import ArrayBatch
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult
from entity_env.vec.batch_env.batch_spaces import require_batch_env, require_masks
from entity_env.vec.batch_env.statistics import BatchEpisodeStats, FinishedRows
from entity_env.vec.process_batch import ActionValues


class BatchEnvStepper(ArrayBatch):
    """Steps a batch environment and resets it in any mode of `Autoreset`.

    The attributes are the result of the last `step` or `begin`: views that the next call
    overwrites.

    Args:
        env: closed by `close`.
        is_compiled: as for `BatchEpisodeStats`.
        first_env: as for `ArrayBatch`.

    Attributes:
        result: observations and flags.
        reward: `(num_envs,)` float32.
        finished: episodes that ended, or None.
        final: `(num_finished, obs_size)` float32, last observations of the episodes that ended, or
            None.
        final_legal: `(num_truncated, num_choices)` bool, allowed choices in last observations of
            episodes that are truncated and not terminated; None = no episode ended, or all choices
            are always allowed.

    Raises:
        SchemaError, UsageError: see `require_batch_env`.
    """

    def __init__(
        self,
        env: BatchEnv,
        autoreset: Autoreset,
        is_compiled: bool | None = None,
        *,
        first_env: int = 0,
    ) -> None:
        self.entity, self.parts, self.action, self.space = require_batch_env(env)
        num_envs = env.num_envs
        super().__init__(num_envs, 1, (env.obs_space(), env.action_space()), first_env)
        self.result: StepResult
        self.reward: NDArray[np.float32] = np.zeros(num_envs, np.float32)
        self.finished: FinishedRows | None = None
        self.final: NDArray[np.float32] | None = None
        self.final_legal: NDArray[np.bool_] | None = None
        self._env = env
        self._stats = BatchEpisodeStats(num_envs, is_compiled)
        self._is_same_step = autoreset == "same_step"
        self._per_reset = 2 if autoreset == "next_step" else 1
        """Number of episodes that an ended environment starts at a reset; see `_begin_next`."""
        self._own_reward = np.zeros(num_envs, np.float32)
        self._over_mask = ResetMask(num_envs)
        self._sequences: dict[int, EpisodeSeeds] = {}
        """Seeds of each environment's last run."""
        self._is_begun = False
        self._rows = RowViews(self)

    @property
    def terminated(self) -> NDArray[np.bool_]:
        return self._stats.terminated

    @property
    def truncated(self) -> NDArray[np.bool_]:
        return self._stats.truncated

    @property
    def legal(self) -> NDArray[np.bool_] | None:
        """`(num_running, num_choices)` bool, allowed choices of the environments that are not over.

        A view if none is over; None = all choices are always allowed.
        """
        masks = self._env.legal_masks
        return masks if masks is None or self.over is None else masks[~self.over]

    def close(self) -> None:
        self._env.close()

    def numbers(self, env_id: int) -> Sequence[int]:
        return (int(self._stats.number[env_id]) + self.is_env_over(env_id) * self._per_reset,)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return int(self._stats.seed[env_id])

    def actions_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """One action per environment, given one value per environment that is not over."""
        is_continuous = isinstance(self.space, ContinuousActionSpace)
        values = values.reshape(-1) if is_continuous else values
        if self.over is None:
            return values
        anything = self.space.low[0] if isinstance(self.space, ContinuousActionSpace) else 0
        dtype = np.float32 if is_continuous else np.int64
        actions = np.full(self.num_envs, anything, dtype)
        actions[~self.over] = values
        return actions

    def self_checked(self, actions: VecActions, obs: VecObs) -> ActionValues | None:
        if self.over is not None or type(actions) is not dict or len(actions) != 1:
            return None
        given = actions.get(self.action)
        if isinstance(given, RaggedArray):
            wanted = obs.action_masks[self.action].actors.lengths
            fits = given.lengths is wanted or np.array_equal(given.lengths, wanted)
            given = given.values if fits else None
        if not isinstance(given, np.ndarray):
            return None
        if isinstance(self.space, ContinuousActionSpace):
            is_plain = given.shape == (self.num_envs, 1) and given.dtype.kind == "f"
        else:
            is_plain = given.ndim == 1 and given.dtype.kind in "iu"
        return {self.action: given} if is_plain else None

    def begin(self, env_ids: Sequence[int], runs: dict[int, Run]) -> VecObs:
        if not self.is_whole:
            self._restart_sequences(env_ids, runs)
        self.is_whole = False
        self._reset(env_ids, runs)
        require_masks(self._env, self.space)
        self._stats.begin(np.asarray(env_ids, np.int64))
        self._stats.begin_runs(runs)
        self.result = self._env.view()
        self.reward = self._own_reward
        self.reward[:] = 0
        self.finished = self.final = self.final_legal = None
        self._stats.copy_flags(self.result)
        self._require_finite(is_next=False)
        if not self._is_same_step:
            self._note_over(self.result.to_reset_mask())
        self._sequences |= {i: seeds for i, (seeds, _) in runs.items()}
        self.is_whole = True
        return self._rows.vec_obs()

    def _restart_sequences(self, env_ids: Sequence[int], runs: dict[int, Run]) -> None:
        """Starts new sequences from the seeds of the old ones, after an interrupt or an error."""
        for i in env_ids:
            if i not in runs and i in self._sequences:
                following = int(self._stats.number[i]) + self._per_reset
                runs[i] = self._runs[i] = self._sequences[i], following

    def advance(self, values: ActionValues) -> VecObs:
        return self.step(self.actions_of(values[self.action]))

    def step(self, actions: NDArray[Any]) -> VecObs:
        """Steps every environment; with "next_step", environments that are over restart."""
        was_whole, self.is_whole = self.is_whole, False
        if self.over is None:
            try:
                self.result = result = self._env.step_no_reset_with_result(actions)
            except SchemaError:
                self.is_whole = was_whole
                raise
            self.reward = result.rewards
        else:
            result = self._begin_next(actions)
        self._require_finite(is_next=True)
        mask = result.to_reset_mask()
        self.final = self.final_legal = None
        self.finished = finished = self._stats.step(
            result, self.reward, mask, goes_on=self._is_same_step
        )
        if finished is not None:
            self.final = result.observations.take(finished.env_ids, 0)
            if self._env.legal_masks is not None:
                self.final_legal = self._env.legal_masks[finished.env_ids[finished.is_truncated]]
        if not self._is_same_step:
            self._note_over(mask)
        elif finished is not None:
            self._env.reset_envs(mask)
            self.result = self._env.view()
            self._require_finite(is_next=False)
        self.is_whole = was_whole
        return self._rows.vec_obs()

    def ended(self, obs: VecObs) -> FinishedEpisodes:
        return NO_EPISODES if self.finished is None else self.finished.as_arrays()

    def _require_finite(self, *, is_next: bool) -> None:
        if self._env.is_always_finite:
            return
        arrays = {"the reward": self.reward, "the observation": self.result.observations}
        for name, numbers in arrays.items():
            is_finite = np.isfinite(numbers)
            if not is_finite.all():
                index = np.argwhere(~is_finite)[0]
                env_id = int(index[0])
                number = f"number {index[1]} of " if len(index) > 1 else ""
                raise SchemaError(
                    f"env {self.first_env + env_id}, "
                    f"{self._stats.place(env_id, int(is_next))}: {number}{name} must be finite, "
                    f"got {numbers[tuple(index)]}"
                )

    def _begin_next(self, actions: NDArray[Any]) -> StepResult:
        """Steps the environments that are not over, and starts the next episode of the others.

        A batch environment steps all environments or none, and refuses environments that are over.
        Those that are over are therefore reset, stepped with the others, and reset again to show
        their first observation. This skips every other episode of their sequences.
        """
        env, over = self._env, self._over_mask
        env_ids = over.indices()
        env.reset_envs(over)
        if env.legal_masks is not None:
            actions[env_ids] = env.legal_masks[env_ids].argmax(axis=1)  # any allowed action
        env.step_no_reset(actions)
        env.reset_envs(over)
        self.result = result = env.view()
        self.reward = self._own_reward
        self.reward[:] = result.rewards
        self.reward[env_ids] = 0
        self._stats.begin(env_ids, is_late=True)
        self._stats.number[env_ids] += self._per_reset - 1
        return result

    def _note_over(self, mask: ResetMask) -> None:
        self._over_mask = mask
        self.over = mask.to_bool() if mask.any() else None

    def _reset(self, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Resets environments: one call for those that start runs, one for those that continue."""
        own = np.zeros(self.num_envs, np.int64)
        for i, (seeds, number) in runs.items():
            own[i] = seeds[number]
        going_on = [i for i in env_ids if i not in runs]
        groups = [(seed, ids) for seed, ids in ((own, list(runs)), (None, going_on)) if ids]
        if len(groups) == 1 and len(env_ids) == self.num_envs:
            self._env.reset(groups[0][0])
        else:
            if not self._is_begun:  # `reset_envs` requires an earlier reset
                self._env.reset(0)
            for seed, ids in groups:
                chosen = np.zeros(self.num_envs, np.bool_)
                chosen[ids] = True
                self._env.reset_envs(ResetMask.from_bool(chosen), seed)
        self._is_begun = True


class RowViews:
    """Last step of a batch environment as a `VecObs`: views where possible, not copies."""

    def __init__(self, steps: BatchEnvStepper) -> None:
        num_envs = steps.num_envs
        self._steps = steps
        is_global = isinstance(steps.space, GlobalCategoricalActionSpace)
        self._has_globals = GLOBAL_ENTITY in steps.layout.entities
        is_continuous = isinstance(steps.space, ContinuousActionSpace)
        self._mask_type = VecContinuousActionMask if is_continuous else VecCategoricalActionMask
        self._ones = np.ones(num_envs, np.int64)
        self._zeros = np.zeros(num_envs, np.int64)
        self._each = self._ones * steps.parts.num_entities
        # The actor of a global action is the index after the last entity.
        self._actors = self._each if is_global else self._zeros
        self._all_act = self._masks(self._actors, self._ones)
        self._observations: NDArray[np.float32] | None = None
        self._features: dict[EntityName, RaggedArray[np.float32]] = {}

    def vec_obs(self) -> VecObs:
        steps = self._steps
        observations = steps.result.observations
        if observations is not self._observations:
            self._features = self._ragged(observations)
            # Rows with gaps and global features are copied in every step.
            are_views = steps.parts.are_views and observations.flags.c_contiguous
            self._observations = observations if are_views else None
        masks, legal = self._all_act, steps.legal
        if steps.over is not None:
            lengths = (~steps.over).astype(np.int64)
            masks = self._masks(self._actors[: int(lengths.sum())], lengths, legal)
        elif legal is not None:
            masks = self._masks(self._actors, self._ones, legal)
        return VecObs(
            self._features,
            {},
            masks,
            steps.reward,
            steps.terminated,
            steps.truncated,
            steps.env_id,
            steps.agent_id,
            self._final(),
            {},
            () if steps.finished is None else steps.finished.episodes(),
        )

    def _ragged(self, rows: NDArray[np.float32]) -> dict[EntityName, RaggedArray[np.float32]]:
        parts, each = self._steps.parts, self._each[: len(rows)]
        features = {self._steps.entity: RaggedArray.unchecked(parts.entities(rows), each)}
        if self._has_globals:
            one = self._ones[: len(rows)]
            features[GLOBAL_ENTITY] = RaggedArray.unchecked(parts.globals(rows), one)
        return features

    def _masks(
        self,
        actors: NDArray[np.int64],
        lengths: NDArray[np.int64],
        legal: NDArray[np.bool_] | None = None,
    ) -> dict[ActionName, VecActionMask]:
        acting = RaggedArray.unchecked(actors, lengths)
        if legal is None:
            return {self._steps.action: self._mask_type(acting)}
        allowed = RaggedArray.unchecked(legal, lengths)
        return {self._steps.action: VecCategoricalActionMask(acting, allowed)}

    def _final(self) -> VecObs | None:
        """Last observations of the episodes that ended, or None; truncated ones have actors."""
        rows, finished = self._steps.final, self._steps.finished
        if rows is None or finished is None:
            return None
        lengths = finished.is_truncated.astype(np.int64)
        zeros = self._zeros[: len(rows)]
        return VecObs(
            self._ragged(rows),
            {},
            self._masks(self._actors[: int(lengths.sum())], lengths, self._steps.final_legal),
            finished.reward,
            finished.flags[0],
            finished.flags[1],
            finished.env_ids,
            zeros,
            None,
            {},
            finished.episodes(),
        )
