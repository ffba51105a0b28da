"""BatchEnvStepper: steps a batch environment and resets it by a mode of `Autoreset`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import (
    LAST_REWARD,
    LENGTH,
    NUM_INTS,
    NUMBER,
    REWARD,
    ROW,
    SEED,
    STATS_LENGTH,
    STATS_NUMBER,
    STATS_REWARD,
    TERMINATED,
    TRUNCATED,
    Episode,
    EpisodeStats,
    FinishedEpisodes,
    LazyEpisodes,
)
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.validation import has_numba
from entity_env.core.vec_env_base import Autoreset
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult
from entity_env.vec.batch_env.reset_mask import list_bits_plain
from entity_env.vec.batch_env.source import require_batch_env, require_masks

CountStep: TypeAlias = Callable[..., None]
"""Counts a step: `(words, clock, goes_on, reward, terminals, truncations, counts, flags, env_ids,
last_reward, last_flags, last_counts)`. The last four are written for the environments whose bits
are set in `words`; with `goes_on` the counts of their next episodes begin."""

_NO_WORDS: Final[NDArray[np.uint64]] = np.zeros(0, np.uint64)


class FinishedRows:
    """Episodes of a batch environment that ended in a step, in the order of their environments.

    `(num_finished,)` indices of the environments and rewards of the last action,
    `(2, num_finished)` flags and `(3, num_finished)` counts, as of `EpisodeStats`. The seeds are of
    all environments, and must not change.
    """

    __slots__ = ("_seeds", "counts", "env_ids", "flags", "reward")

    def __init__(self, num_finished: int, seeds: NDArray[np.int64]) -> None:
        self.env_ids: NDArray[np.int64] = np.empty(num_finished, np.int64)
        self.reward: NDArray[np.float32] = np.empty(num_finished, np.float32)
        self.flags: NDArray[np.bool_] = np.empty((2, num_finished), np.bool_)
        self.counts: NDArray[np.float64] = np.empty((3, num_finished))
        self._seeds = seeds

    @property
    def is_truncated(self) -> NDArray[np.bool_]:
        """`(num_finished,)`: truncated, and not terminated in the same step."""
        terminated, truncated = self.flags
        is_truncated: NDArray[np.bool_] = truncated & ~terminated
        return is_truncated

    def episodes(self) -> Sequence[Episode]:
        """The episodes, made on first access."""
        return LazyEpisodes(len(self.env_ids), lambda: list(self.as_arrays().episodes))

    def as_arrays(self) -> FinishedEpisodes:
        """The episodes as a worker sends them."""
        ints = np.zeros((NUM_INTS, len(self.env_ids)), np.int64)
        ints[ROW], ints[SEED] = self.env_ids, self._seeds[self.env_ids]
        ints[[TERMINATED, TRUNCATED]] = self.flags
        ints[LENGTH], ints[NUMBER] = self.counts[STATS_LENGTH], self.counts[STATS_NUMBER]
        floats = np.empty((2, len(self.env_ids)))
        floats[REWARD], floats[LAST_REWARD] = self.counts[STATS_REWARD], self.reward
        return FinishedEpisodes.from_arrays(ints, floats)


class BatchEpisodeStats(EpisodeStats):
    """Episode statistics of a batch environment, counted by one call per step.

    `terminated` and `truncated` are `(num_envs,)`, the flags of the last step. Compiled where numba
    is installed, unless `is_compiled` says otherwise.
    """

    def __init__(self, num_envs: int, is_compiled: bool | None = None) -> None:
        super().__init__(num_envs)
        self._flags = np.zeros((2, num_envs), np.bool_)
        self.terminated, self.truncated = self._flags
        self._none = FinishedRows(0, self.seed)
        is_compiled = has_numba() if is_compiled is None else is_compiled
        self._compiled = _compiled() if is_compiled else count_step_numpy
        self._count: CountStep = count_step_numpy
        self._result: StepResult | None = None
        self._reward: NDArray[np.float32] | None = None
        """The arrays that `_count` was chosen for."""

    def begin_runs(self, runs: dict[int, Run]) -> None:
        """Sets seed and number of environments that have just begun new runs."""
        if not runs:
            return
        self.seed = self.seed.copy()  # `FinishedRows` of past steps refer to the old array
        for env_id, (seeds, number) in runs.items():
            self.seed[env_id] = seeds[number]
            self.number[env_id] = number

    def copy_flags(self, result: StepResult) -> None:
        """Copies the flags of environments that have not been stepped."""
        self.terminated[:] = result.terminals
        self.truncated[:] = result.truncations

    def step(
        self, result: StepResult, reward: NDArray[np.float32], mask: ResetMask, *, goes_on: bool
    ) -> FinishedRows | None:
        """Counts a step, and returns the episodes that it ended; None if there are none."""
        if result is not self._result or reward is not self._reward:
            self._choose(result, reward)
        self.clock += 1
        words, finished = mask.words(), self._none
        if mask.any():
            finished = FinishedRows(mask.count(), self.seed)
        self._count(
            _NO_WORDS if words is None else words,
            self.clock,
            goes_on,
            reward,
            result.terminals,
            result.truncations,
            self.counts,
            self._flags,
            finished.env_ids,
            finished.reward,
            finished.flags,
            finished.counts,
        )
        return None if finished is self._none else finished

    def _choose(self, result: StepResult, reward: NDArray[np.float32]) -> None:
        """The compiled kernel checks neither dtypes nor strides: others go to numpy."""
        is_plain = (
            _is_plain(reward, "f")
            and _is_plain(result.terminals, "B")
            and _is_plain(result.truncations, "B")
        )
        self._count = self._compiled if is_plain else count_step_numpy
        self._result, self._reward = result, reward


def _is_plain(array: NDArray[Any], code: str) -> bool:
    return array.dtype.char == code and array.flags.c_contiguous


def count_step_numpy(
    words: NDArray[np.uint64],
    clock: int,
    goes_on: bool,
    reward: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    counts: NDArray[np.float64],
    flags: NDArray[np.bool_],
    env_ids: NDArray[np.int64],
    last_reward: NDArray[np.float32],
    last_flags: NDArray[np.bool_],
    last_counts: NDArray[np.float64],
) -> None:
    """See `CountStep`."""
    counts[STATS_REWARD] += reward
    flags[0], flags[1] = terminals, truncations
    if not len(env_ids):
        return
    list_bits_plain(words, env_ids)
    last_reward[:] = reward[env_ids]
    last_flags[:] = flags[:, env_ids]
    last_counts[:] = counts[:, env_ids]
    last_counts[STATS_LENGTH] += clock
    if goes_on:
        counts[STATS_REWARD, env_ids] = 0
        counts[STATS_LENGTH, env_ids] = -clock
        counts[STATS_NUMBER, env_ids] += 1


@cache
def _compiled() -> CountStep:
    from entity_env.vec.batch_env.kernels import load_count_step

    return load_count_step()


class BatchEnvStepper:
    """Steps a batch environment, and resets it by a mode of `Autoreset`.

    The attributes are the result of the last `advance` or `begin`, views that the next call
    overwrites. Indices of environments begin at 0; only messages begin at `first_env`.

    Args:
        env: the batch environment; `close` closes it.
        autoreset: what happens to ended episodes.
        is_compiled: as for `BatchEpisodeStats`.
        first_env: index of its first environment among those of all workers.

    Attributes:
        result: the observations.
        reward: `(num_envs,)` float32.
        over: `(num_envs,)` bool, the environment shows the last observation of an episode; None =
            none does.
        finished: the episodes that ended; None when there are none.
        is_whole: the last call was completed, so that the environments are in a known state.
        final: `(num_finished, obs_size)` float32, last observations of the episodes that ended.
        final_legal: `(num_truncated, num_choices)` bool, choices allowed in those of episodes that
            were truncated and did not terminate; None = all choices are always allowed.

    Raises:
        SchemaError, UsageError: as `require_batch_env`.
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
        self.spaces = env.obs_space(), env.action_space()
        self.num_envs = num_envs = env.num_envs
        self.result: StepResult
        self.reward: NDArray[np.float32] = np.zeros(num_envs, np.float32)
        self.over: NDArray[np.bool_] | None = None
        self.finished: FinishedRows | None = None
        self.final: NDArray[np.float32] | None = None
        self.final_legal: NDArray[np.bool_] | None = None
        self._env = env
        self._first_env = first_env
        self._stats = BatchEpisodeStats(num_envs, is_compiled)
        self._is_same_step = autoreset == "same_step"
        self._per_reset = 2 if autoreset == "next_step" else 1
        """Episodes that an environment which is over begins in its sequence; see `_begin_next`."""
        self._own_reward = np.zeros(num_envs, np.float32)
        self._over_mask = ResetMask(num_envs)
        self._runs: dict[int, Run] = {}
        """Runs that environments begin at their next reset; kept until they have begun."""
        self._sequences: dict[int, EpisodeSeeds] = {}
        """Seeds of the run that each environment began last."""
        self._is_begun = False
        self.is_whole = True

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """`(num_envs,)`: the episode ended by its rules."""
        return self._stats.terminated

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """`(num_envs,)`: the episode was cut."""
        return self._stats.truncated

    @property
    def legal(self) -> NDArray[np.bool_] | None:
        """`(num_running, num_choices)` bool, choices of the environments that are not over, a view
        if that is all of them; None = all choices are always allowed."""
        masks = self._env.legal_masks
        return masks if masks is None or self.over is None else masks[~self.over]

    def close(self) -> None:
        """Closes the environments; may be called twice."""
        self._env.close()

    def numbers(self, env_id: int) -> Sequence[int]:
        """Number of the current episode of an environment, or the next one if it is over."""
        is_over = self.over is not None and bool(self.over[env_id])
        return (int(self._stats.number[env_id]) + is_over * self._per_reset,)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        """Seed of the sequence of episodes that an environment plays."""
        return int(self._stats.seed[env_id])

    def seed_env(self, env_id: int, run: Run) -> None:
        """Begins a run of episodes in one environment, at its next reset."""
        self._runs[env_id] = run

    def actions_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """One action per environment, of one value per environment that is not over."""
        is_continuous = isinstance(self.space, ContinuousActionSpace)
        values = values.reshape(-1) if is_continuous else values
        if self.over is None:
            return values
        anything = self.space.low[0] if isinstance(self.space, ContinuousActionSpace) else 0
        dtype = np.float32 if is_continuous else np.int64
        actions = np.full(self.num_envs, anything, dtype)
        actions[~self.over] = values
        return actions

    def begin(self, env_ids: Sequence[int]) -> None:
        """Begins a new episode in some environments; all others keep their observations."""
        runs = {i: self._runs[i] for i in env_ids if i in self._runs}
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
        for i, (seeds, _) in runs.items():
            self._sequences[i] = seeds
            del self._runs[i]
        self.is_whole = True

    def _restart_sequences(self, env_ids: Sequence[int], runs: dict[int, Run]) -> None:
        """Begins new sequences, by the seeds of the old ones, after an interrupt or an error."""
        for i in env_ids:
            if i not in runs and i in self._sequences:
                following = int(self._stats.number[i]) + self._per_reset
                runs[i] = self._runs[i] = self._sequences[i], following

    def advance(self, actions: NDArray[Any]) -> None:
        """Steps every environment by one action; with "next_step", those that are over begin."""
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
                    f"env {self._first_env + env_id}, "
                    f"{self._stats.place(env_id, int(is_next))}: {number}{name} must be finite, "
                    f"got {numbers[tuple(index)]}"
                )

    def _begin_next(self, actions: NDArray[Any]) -> StepResult:
        """Steps the environments that are not over, and begins the next episode of the others.

        A batch environment steps all environments or none, and none that is over: these are reset
        to be stepped with the others, and reset again to show their first observation. So every
        other episode of their sequences is skipped.
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
        """Resets environments: at once those that begin runs, and at once those that go on."""
        own = np.zeros(self.num_envs, np.int64)
        for i, (seeds, number) in runs.items():
            own[i] = seeds[number]
        going_on = [i for i in env_ids if i not in runs]
        groups = [(seed, ids) for seed, ids in ((own, list(runs)), (None, going_on)) if ids]
        if len(groups) == 1 and len(env_ids) == self.num_envs:
            self._env.reset(groups[0][0])
        else:
            if not self._is_begun:
                self._env.reset(0)
            for seed, ids in groups:
                chosen = np.zeros(self.num_envs, np.bool_)
                chosen[ids] = True
                self._env.reset_envs(ResetMask.from_bool(chosen), seed)
        self._is_begun = True
