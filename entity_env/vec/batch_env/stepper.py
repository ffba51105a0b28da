"""BatchEnvSteps: a batch environment stepped in this process, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ActionName, ActionSpace, ContinuousActionSpace, ObsSpace
from entity_env.core.validation import has_numba
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult
from entity_env.vec.batch_env.reset_mask import list_bits_plain
from entity_env.vec.batch_env.source import require_batch_env, require_masks
from entity_env.vec.episode_stats import (
    EARNED,
    LENGTH,
    NUM_INTS,
    NUMBER,
    REWARD,
    ROW,
    SEED,
    TERMINATED,
    TRUNCATED,
    Endings,
    Episodes,
)
from entity_env.vec.options import Autoreset

EARNED_SO_FAR: Final = 0
BEGUN_AT: Final = 1
NUMBERS: Final = 2
"""Rows of the open books, float64 so that they are one array: the reward so far, the time at which
the episode began, and its number."""

Kernel: TypeAlias = Callable[..., None]
"""Counts a step: `(words, clock, goes_on, reward, terminals, truncations, books, flags, env_ids,
last_reward, last_flags, last_books)`. The last four are written for the environments whose bits are
set in `words`; if their next episodes go on at once, the books of those are opened."""

_NO_WORDS: Final[NDArray[np.uint64]] = np.zeros(0, np.uint64)
_NO_METRICS: Final[NDArray[np.float64]] = np.zeros((0, 2))


class Ended:
    """The episodes that ended in a step, in the order of their environments.

    Args:
        num_ended: how many.
        seeds: `(num_envs,)` int64 of the sequences that all environments play; nobody writes it.

    Attributes:
        env_ids: `(num_ended,)` int64.
        reward: `(num_ended,)` float32, what the last action earned.
        flags: `(2, num_ended)` bool, terminated and truncated.
        books: `(3, num_ended)` float64: the reward of the episode, its length and its number.
    """

    __slots__ = ("_seeds", "books", "env_ids", "flags", "reward")

    def __init__(self, num_ended: int, seeds: NDArray[np.int64]) -> None:
        self.env_ids: NDArray[np.int64] = np.empty(num_ended, np.int64)
        self.reward: NDArray[np.float32] = np.empty(num_ended, np.float32)
        self.flags: NDArray[np.bool_] = np.empty((2, num_ended), np.bool_)
        self.books: NDArray[np.float64] = np.empty((3, num_ended))
        self._seeds = seeds

    def episodes(self) -> Sequence[Episode]:
        """Summaries, made when somebody looks."""
        return Episodes(len(self.env_ids), self._episodes)

    def endings(self) -> Endings:
        """All of it, as whoever hands steps over wants it."""
        ints = np.zeros((len(self.env_ids), NUM_INTS), np.int64)
        ints[:, ROW], ints[:, SEED] = self.env_ids, self._seeds[self.env_ids]
        ints[:, [TERMINATED, TRUNCATED]] = self.flags.T
        ints[:, LENGTH], ints[:, NUMBER] = self.books[BEGUN_AT], self.books[NUMBERS]
        floats = np.empty((len(self.env_ids), 2))
        floats[:, REWARD], floats[:, EARNED] = self.books[EARNED_SO_FAR], self.reward
        return Endings.read(ints, floats, _NO_METRICS, (), 1)

    def _episodes(self) -> list[Episode]:
        return list(self.endings().episodes)


class Books:
    """Keeps the books of a batch: rewards, lengths, seeds and numbers of its episodes.

    Args:
        num_envs: how many environments.
        is_compiled: whether the loop is; None = where numba is installed.

    Attributes:
        terminated, truncated: `(num_envs,)` bool, the flags of the last step.
    """

    def __init__(self, num_envs: int, is_compiled: bool | None = None) -> None:
        self._flags = np.zeros((2, num_envs), np.bool_)
        self.terminated, self.truncated = self._flags
        self._clock = 0
        self._books = np.zeros((3, num_envs))
        self._books[NUMBERS] = -1
        self._seeds = np.zeros(num_envs, np.int64)
        self._nobody = Ended(0, self._seeds)
        is_compiled = has_numba() if is_compiled is None else is_compiled
        self._fast = _compiled() if is_compiled else count_plain
        self._kernel: Kernel = count_plain
        self._result: StepResult | None = None
        self._reward: NDArray[np.float32] | None = None
        """What `_kernel` was chosen for."""

    def open(self, env_ids: NDArray[np.int64], *, is_late: bool = False) -> None:
        """Begins an episode in some environments.

        Args:
            env_ids: those.
            is_late: they begin in the step that is being made, and act in the next one.
        """
        self._books[EARNED_SO_FAR, env_ids] = 0
        self._books[BEGUN_AT, env_ids] = self._clock + is_late
        self._books[NUMBERS, env_ids] += 1

    def number(self, env_id: int) -> int:
        """Number of the episode that an environment has begun last."""
        return int(self._books[NUMBERS, env_id])

    def place(self, env_id: int, *, is_next: bool = False) -> str:
        """Episode and step of an environment; `is_next` if the next step is not counted yet."""
        step = self._clock - int(self._books[BEGUN_AT, env_id]) + is_next
        return f"episode {int(self._books[NUMBERS, env_id])}, step {step}"

    def begin_runs(self, runs: dict[int, Run]) -> None:
        """The episodes that some environments have just begun are of new runs."""
        if not runs:
            return
        self._seeds = self._seeds.copy()  # episodes that nobody has looked at refer to the old ones
        for env_id, (seeds, number) in runs.items():
            self._seeds[env_id] = seeds[number]
            self._books[NUMBERS, env_id] = number

    def copy_flags(self, result: StepResult) -> None:
        """Takes over the flags of environments that have not been stepped."""
        self.terminated[:] = result.terminals
        self.truncated[:] = result.truncations

    def count(
        self, result: StepResult, reward: NDArray[np.float32], mask: ResetMask, *, goes_on: bool
    ) -> Ended | None:
        """Counts a step, and ends episodes; None when there are none to end.

        Args:
            result: has the flags.
            reward: `(num_envs,)`.
            mask: the environments whose episodes end.
            goes_on: their next episodes begin at once.
        """
        if result is not self._result or reward is not self._reward:
            self._choose(result, reward)
        self._clock += 1
        words, ended = mask.words(), self._nobody
        if mask.any():
            ended = Ended(mask.count(), self._seeds)
        self._kernel(
            _NO_WORDS if words is None else words,
            self._clock,
            goes_on,
            reward,
            result.terminals,
            result.truncations,
            self._books,
            self._flags,
            ended.env_ids,
            ended.reward,
            ended.flags,
            ended.books,
        )
        return None if ended is self._nobody else ended

    def _choose(self, result: StepResult, reward: NDArray[np.float32]) -> None:
        """The compiled loop looks neither at the items of arrays nor at gaps between them."""
        is_plain = (
            _is_plain(reward, "f")
            and _is_plain(result.terminals, "B")
            and _is_plain(result.truncations, "B")
        )
        self._kernel = self._fast if is_plain else count_plain
        self._result, self._reward = result, reward


def _is_plain(array: NDArray[Any], code: str) -> bool:
    return array.dtype.char == code and array.flags.c_contiguous


def count_plain(
    words: NDArray[np.uint64],
    clock: int,
    goes_on: bool,
    reward: NDArray[np.float32],
    terminals: NDArray[np.uint8],
    truncations: NDArray[np.uint8],
    books: NDArray[np.float64],
    flags: NDArray[np.bool_],
    env_ids: NDArray[np.int64],
    last_reward: NDArray[np.float32],
    last_flags: NDArray[np.bool_],
    last_books: NDArray[np.float64],
) -> None:
    """See `Kernel`."""
    books[EARNED_SO_FAR] += reward
    flags[0], flags[1] = terminals, truncations
    if not len(env_ids):
        return
    list_bits_plain(words, env_ids)
    last_reward[:] = reward[env_ids]
    last_flags[:] = flags[:, env_ids]
    last_books[:] = books[:, env_ids]
    last_books[BEGUN_AT] = clock - last_books[BEGUN_AT]
    if goes_on:
        books[EARNED_SO_FAR, env_ids] = 0
        books[BEGUN_AT, env_ids] = clock
        books[NUMBERS, env_ids] += 1


@cache
def _compiled() -> Kernel:
    """The compiled loop; made, or read from its cache, when first asked for."""
    from entity_env.vec.batch_env.kernels import load_count

    return load_count()


_NUM_SEEDS: Final = 2**64


class BatchEnvSteps:
    """Steps a batch environment in one of the modes of `Autoreset`, and keeps its books.

    After `advance` or `begin` the attributes show what came of it, as views that the next call
    overwrites. It counts environments from 0, whatever share of all they are, but in messages.

    Args:
        env: what to step; this closes it.
        autoreset: what happens to ended episodes.
        is_compiled: as for `Books`.
        first_env: index of its first environment among all.

    Attributes:
        result: the observations.
        reward: `(num_envs,)` float32.
        over: `(num_envs,)` bool, who shows the end of an episode; None when nobody does.
        ended: the episodes that ended; None when there are none.
        is_whole: the last call was completed, so that what the environments have drawn is known.
        final: `(num_ended, obs_size)` float32, their last observations with autoreset "same_step".

    Raises:
        SchemaError: an environment whose spaces a `VecEnv` cannot show.
        UsageError: one whose episodes cannot be under the caller's control.
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
        self.num_envs = num_envs = env.num_envs
        self.result: StepResult
        self.reward: NDArray[np.float32] = np.zeros(num_envs, np.float32)
        self.over: NDArray[np.bool_] | None = None
        self.ended: Ended | None = None
        self.final: NDArray[np.float32] | None = None
        self._env = env
        self._first_env = first_env
        self._books = Books(num_envs, is_compiled)
        self._is_same_step = autoreset == "same_step"
        self._own_reward = np.zeros(num_envs, np.float32)
        self._over_mask = ResetMask(num_envs)
        self._runs: dict[int, Run] = {}
        """Those that environments begin at their next reset; kept until they have."""
        self._sequences: dict[int, EpisodeSeeds] = {}
        """What the environments play, by the runs that they began last."""
        self._is_begun = False
        self.is_whole = True

    def obs_space(self) -> ObsSpace:
        """What can be observed."""
        return self._env.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""
        return self._env.action_space()

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """`(num_envs,)`: the episode ended by its rules."""
        return self._books.terminated

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """`(num_envs,)`: the episode was cut."""
        return self._books.truncated

    @property
    def legal(self) -> NDArray[np.bool_] | None:
        """`(num_asked, num_choices)` bool, what is allowed to those that are not over, a view if
        that is everybody; None = everything, always."""
        masks = self._env.legal_masks
        return masks if masks is None or self.over is None else masks[~self.over]

    def close(self) -> None:
        """Closes the environments; may be called twice."""
        self._env.close()

    def numbers(self, env_id: int) -> Sequence[int]:
        """Number of the episode that an environment plays, or plays next, as of a `LocalBatch`."""
        is_over = self.over is not None and bool(self.over[env_id])
        return (self._books.number(env_id) + is_over,)

    def seed_env(self, env_id: int, run: Run) -> None:
        """Begins a run of episodes in one environment, at its next reset."""
        self._runs[env_id] = run

    def actions_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """One action an environment, of one value for everyone who was asked."""
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
        """Begins a new episode in some environments; all others show what they showed last."""
        runs = {i: self._runs[i] for i in env_ids if i in self._runs}
        if not self.is_whole:
            self._begin_again(env_ids, runs)
        self.is_whole = False
        self._reset(env_ids, runs)
        require_masks(self._env, self.space)
        self._books.open(np.asarray(env_ids, np.int64))
        self._books.begin_runs(runs)
        self.result = self._env.view()
        self.reward = self._own_reward
        self.reward[:] = 0
        self.ended = self.final = None
        self._books.copy_flags(self.result)
        self._require_finite(is_next=False)
        if not self._is_same_step:
            self._note_over(self.result.to_reset_mask())
        for i, (seeds, _) in runs.items():
            self._sequences[i] = seeds
            del self._runs[i]
        self.is_whole = True

    def _begin_again(self, env_ids: Sequence[int], runs: dict[int, Run]) -> None:
        """Begins new sequences, by the seeds of the old ones, after an interrupt or an error."""
        for i in env_ids:
            if i not in runs and i in self._sequences:
                runs[i] = self._runs[i] = self._sequences[i], self._books.number(i) + 1

    def advance(self, actions: NDArray[Any]) -> None:
        """Steps all environments by one action each; with "next_step", those that are over begin.

        Raises:
            SchemaError: actions that the environments refuse, and nothing has changed; or a reward
                or an observation that is not finite.
        """
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
        self.final = None
        self.ended = ended = self._books.count(
            result, self.reward, mask, goes_on=self._is_same_step
        )
        if not self._is_same_step:
            self._note_over(mask)
        elif ended is not None:
            self.final = result.observations.take(ended.env_ids, 0)
            self._env.reset_envs(mask)
            self.result = self._env.view()
            self._require_finite(is_next=False)
        self.is_whole = was_whole

    def _require_finite(self, *, is_next: bool) -> None:
        """Checks what the environments show; `is_next` as for `Books.place`.

        Raises:
            SchemaError: a reward or an observation that is not finite.
        """
        if self._env.is_always_finite:
            return
        shown = {"the reward": self.reward, "the observation": self.result.observations}
        for what, numbers in shown.items():
            is_finite = np.isfinite(numbers)
            if not is_finite.all():
                index = np.argwhere(~is_finite)[0]
                env_id = int(index[0])
                number = f"number {index[1]} of " if len(index) > 1 else ""
                raise SchemaError(
                    f"env {self._first_env + env_id}, "
                    f"{self._books.place(env_id, is_next=is_next)}: {number}{what} must be finite, "
                    f"got {numbers[tuple(index)]}"
                )

    def _begin_next(self, actions: NDArray[Any]) -> StepResult:
        """Steps all but those that are over, which begin.

        A batch steps all of its environments or none, and none that has ended: these are reset to
        be stepped with the others, and once more to show their first observation.
        """
        env, over = self._env, self._over_mask
        env_ids = over.indices()
        env.reset_envs(over)
        if env.legal_masks is not None:
            actions[env_ids] = env.legal_masks[env_ids].argmax(axis=1)  # anything that is allowed
        env.step_no_reset(actions)
        env.reset_envs(over)
        self.result = result = env.view()
        self.reward = self._own_reward
        self.reward[:] = result.rewards
        self.reward[env_ids] = 0
        self._books.open(env_ids, is_late=True)
        return result

    def _note_over(self, mask: ResetMask) -> None:
        self._over_mask = mask
        self.over = mask.to_bool() if mask.any() else None

    def _reset(self, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Resets environments, as few times as their seeds allow."""
        together: dict[int | None, list[int]] = {}
        for i in env_ids:
            seed = None
            if i in runs:
                seeds, number = runs[i]
                seed = (seeds[number] - i) % _NUM_SEEDS
            together.setdefault(seed, []).append(i)
        if len(together) == 1 and len(env_ids) == self.num_envs:
            self._env.reset(next(iter(together)))
        else:
            if not self._is_begun:
                self._env.reset(0)
            for seed, ids in together.items():
                chosen = np.zeros(self.num_envs, np.bool_)
                chosen[ids] = True
                self._env.reset_envs(ResetMask.from_bool(chosen), seed)
        self._is_begun = True
