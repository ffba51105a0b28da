"""BatchEpisodeStats: episode statistics of a batch environment, one call per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.episode_stats import (
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
    EpisodeStats,
    FinishedEpisodes,
    LazyEpisodes,
)
from entity_env.core.seeding import Run
from entity_env.core.validation import has_numba
from entity_env.vec.batch_env.batch_env import ResetMask, StepResult
from entity_env.vec.batch_env.reset_mask import list_bits_plain

CountStep: TypeAlias = Callable[..., None]
"""Counts a step: `(words, clock, goes_on, reward, terminals, truncations, counts, flags, env_ids,
last_reward, last_flags, last_counts)`. Updates `counts` and `flags`, and writes the last four for
the environments whose bits are set in `words`; with `goes_on`, starts the counts of their next
episodes."""

_NO_WORDS: Final[NDArray[np.uint64]] = np.zeros(0, np.uint64)


class FinishedRows:
    """Episodes of a batch environment that ended in a step, in environment order.

    Holds `(num_finished,)` environment indices and last rewards, `(2, num_finished)` flags and
    `(3, num_finished)` counts, as in `EpisodeStats`. `seeds` covers all environments and must not
    change.
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
        """`(num_finished,)`: truncated but not terminated."""
        is_truncated: NDArray[np.bool_] = self.flags[1] > self.flags[0]
        return is_truncated

    def episodes(self) -> Sequence[Episode]:
        """The finished episodes; made on first access."""
        return LazyEpisodes(len(self.env_ids), lambda: list(self.as_arrays().episodes))

    def as_arrays(self) -> FinishedEpisodes:
        """The episodes as workers send them."""
        ints = np.zeros((NUM_INTS, len(self.env_ids)), np.int64)
        ints[ROW], ints[SEED] = self.env_ids, self._seeds[self.env_ids]
        ints[[TERMINATED, TRUNCATED]] = self.flags
        ints[LENGTH], ints[NUMBER] = self.counts[STATS_LENGTH], self.counts[STATS_NUMBER]
        floats = np.empty((2, len(self.env_ids)))
        floats[REWARD], floats[LAST_REWARD] = self.counts[STATS_REWARD], self.reward
        return FinishedEpisodes.from_arrays(ints, floats)


class BatchEpisodeStats(EpisodeStats):
    """Episode statistics of a batch environment, one call per step.

    `terminated` and `truncated` are `(num_envs,)`, the flags of the last step. Compiled if numba is
    installed; `is_compiled` overrides this.
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
        """Arrays for which `_count` was chosen."""

    def begin_runs(self, runs: dict[int, Run]) -> None:
        """Sets seed and episode index of environments that have just started new runs."""
        if not runs:
            return
        self.seed = self.seed.copy()  # `FinishedRows` of past steps keep the old array
        for env_id, (seeds, number) in runs.items():
            self.seed[env_id] = seeds[number]
            self.number[env_id] = number

    def copy_flags(self, result: StepResult) -> None:
        """Copies the flags of `result` when the environments were reset instead of stepped."""
        self.terminated[:] = result.terminals
        self.truncated[:] = result.truncations

    def step(
        self, result: StepResult, reward: NDArray[np.float32], mask: ResetMask, *, goes_on: bool
    ) -> FinishedRows | None:
        """Counts a step; returns the episodes that it ended, or None."""
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
        """Chooses the counter: numpy for dtypes and strides that the kernel cannot read."""
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
