"""Books: the episodes that the environments of a batch play, counted all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.seeding import Run
from entity_env.vec.batch_env.batch_env import ResetMask, StepResult
from entity_env.vec.batch_env.reset_mask import list_bits_plain
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
        is_compiled = find_spec("numba") is not None if is_compiled is None else is_compiled
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
