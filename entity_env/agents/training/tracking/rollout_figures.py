"""Rollout statistics for hints: first episodes, choices, scores that fall back, repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import GAMMA
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_actions import narrowed
from entity_env.core.vec_env_base import splitmix64
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)

if TYPE_CHECKING:
    from entity_env.agents.training.rollout_buffer import Trajectories

_ROUNDING: Final = 1e-6
"""Scores that differ by less, relative to the rollout's largest reward, count as equal."""


class RolloutFigures(NamedTuple):
    """Sums over the rows of a run, which can be added over ranks.

    The first episodes of all rows are an unbiased sample; the first episodes to end are the short
    ones.

    Args:
        num_steps: number of steps of the last rollout, times `num_rows`.
        num_decisions: number of decisions in the last rollout.
        num_forced: number of decisions in which every actor has only one allowed choice.
        num_actors: number of actors in all decisions of the last rollout.
        uniform_entropy: sum of these actors' entropies, in nats, if all allowed choices were
            equally likely; without continuous actions.
        num_first: number of rows whose first episode has ended.
        first_steps: number of decisions in first episodes so far, including running ones.
        first_reward, first_squares: sums of rewards and squared rewards of finished first episodes.
        num_changes: number of changes of scores that had differed from their value at the episode's
            start.
        num_returns: number of those changes that brought the score back to that value.
        num_reals: count of numbers in the continuous actions of the last rollout.
        num_repeated: number of decisions with the same observation and actions as another one in
            their rollout.
        num_repetitions: number of different ones among them.
        repeated_squares: sum of squared differences of their rewards from the mean.
        unexplained_squares: the same from the mean of decisions that are the same.
    """

    num_envs: int = 0
    num_rows: int = 0
    num_steps: int = 0
    num_decisions: int = 0
    num_forced: int = 0
    num_actors: int = 0
    uniform_entropy: float = 0.0
    num_first: int = 0
    first_steps: int = 0
    first_reward: float = 0.0
    first_squares: float = 0.0
    num_changes: int = 0
    num_returns: int = 0
    num_reals: int = 0
    num_repeated: int = 0
    num_repetitions: int = 0
    repeated_squares: float = 0.0
    unexplained_squares: float = 0.0

    @classmethod
    def merged(cls, reports: Iterable[Iterable[float]]) -> RolloutFigures:
        """The sum over ranks, each as a list."""
        return cls._make(map(sum, zip(*reports, strict=True)))

    @property
    def forced(self) -> float:
        """Share of decisions with only one allowed choice."""
        return self.num_forced / max(1, self.num_decisions)

    @property
    def actors(self) -> float:
        return self.num_actors / max(1, self.num_decisions)

    @property
    def random_entropy(self) -> float:
        """Entropy of a uniformly random decision in nats; 1 per number of a continuous action."""
        return (self.uniform_entropy + self.num_reals) / max(1, self.num_decisions)

    @property
    def unexplained(self) -> float:
        """Share of the variance of rewards that observation and actions leave open; 0 if unknown.

        An unbiased estimate from repeated decisions. The share is 1 if observations say nothing
        about the reward, and 0 in a game without chance that hides nothing.
        """
        num_free = self.num_repeated - self.num_repetitions
        if num_free <= 0 or self.repeated_squares <= 0.0:
            return 0.0
        variance = self.repeated_squares / max(1, self.num_repeated - 1)
        return min(1.0, self.unexplained_squares / num_free / variance)

    @property
    def decisions_per_step(self) -> float:
        """Mean decisions per row and step; 1 in a game for one agent."""
        return self.num_decisions / max(1, self.num_steps)

    @property
    def first_length(self) -> float:
        """Mean decisions in a first episode, or a lower bound while some are running."""
        return self.first_steps / max(1, self.num_rows)

    @property
    def first_mean(self) -> float:
        """Mean reward of finished first episodes."""
        return self.first_reward / self.num_first if self.num_first else math.nan

    @property
    def first_std(self) -> float:
        """Standard deviation of the rewards of finished first episodes."""
        if not self.num_first:
            return math.nan
        return math.sqrt(max(0.0, self.first_squares / self.num_first - self.first_mean**2))


class RolloutMeter:
    """Collects statistics of rollouts; takes 0.2 % of the time of a snake or cartpole run."""

    def __init__(
        self, num_envs: int, num_rows: int, action_space: Mapping[ActionName, ActionSpace]
    ) -> None:
        self._action_space = action_space
        self._score = np.zeros(num_rows)
        """Score of every row's running episode, minus the score at its start."""
        self._is_away = np.zeros(num_rows, np.bool_)
        """True where the score is not 0."""
        self._has_ended = np.zeros(num_rows, np.bool_)
        self._first_steps = np.zeros(num_rows, np.int64)
        self._first_reward = np.zeros(num_rows)
        """Reward of every row's first episode; 0 until it has ended."""
        self.figures = RolloutFigures(num_envs=num_envs, num_rows=num_rows)

    def add(
        self,
        trajectories: Trajectories,
        action_masks: Mapping[ActionName, VecActionMask],
        samples: Mapping[ActionName, RaggedArray[Any]],
    ) -> None:
        """Adds a rollout, given the masks of its decisions and what was chosen."""
        done = trajectories.done
        scores = self._scores(trajectories.rewards, done)
        self.figures = self.figures._replace(
            num_steps=done.size,
            **_count_choices(action_masks, self._action_space, samples),
            **self._changes(scores, trajectories.rewards, done),
            **self._first_episodes(trajectories.is_ready[:-1], scores, done),
        )

    def add_decisions(
        self,
        obs: EntityBatch,
        samples: Mapping[ActionName, RaggedArray[Any]],
        rewards: NDArray[np.float32],
    ) -> None:
        """Adds the decisions of a rollout, with the rewards that they received at once."""
        self.figures = self.figures._replace(
            **self._added(**_count_repeated(obs, samples, rewards.astype(np.float64)))
        )

    def restart(self, rows: NDArray[np.int64]) -> None:
        """Discards the episodes of rows that were reset between rollouts.

        The next episode of such a row counts as its first, even if a first one has ended, because
        only short episodes end before a given step.
        """
        self._score[rows] = self._first_reward[rows] = 0.0
        self._is_away[rows] = self._has_ended[rows] = False
        self._first_steps[rows] = 0

    def _scores(self, rewards: NDArray[np.float32], done: NDArray[np.bool_]) -> NDArray[np.float64]:
        """`(num_steps, num_rows)` score after each step, minus the score at its episode's start."""
        totals = self._score + np.cumsum(rewards, axis=0, dtype=np.float64)
        at = np.where(done, np.arange(1, len(done) + 1)[:, None], 0)
        begins = np.zeros_like(at)
        np.maximum.accumulate(at[:-1], axis=0, out=begins[1:])
        before = np.vstack([np.zeros(done.shape[1]), totals])
        scores: NDArray[np.float64] = totals - np.take_along_axis(before, begins, axis=0)
        self._score = np.where(done[-1], 0.0, scores[-1])
        return scores

    def _changes(
        self, scores: NDArray[np.float64], rewards: NDArray[np.float32], done: NDArray[np.bool_]
    ) -> dict[str, Any]:
        is_away = (np.abs(scores) > _ROUNDING * np.abs(rewards).max()) & ~done
        was_away = np.vstack([self._is_away, is_away[:-1]])
        self._is_away = is_away[-1]
        is_change = was_away & (rewards != 0) & ~done
        return self._added(num_changes=_count(is_change), num_returns=_count(is_change & ~is_away))

    def _first_episodes(
        self, is_ready: NDArray[np.bool_], scores: NDArray[np.float64], done: NDArray[np.bool_]
    ) -> dict[str, Any]:
        rows = np.flatnonzero(~self._has_ended)
        if not len(rows):
            return {}
        ends = done[:, rows].argmax(axis=0)
        has_end = done[ends, rows]
        is_first = np.arange(len(done))[:, None] <= np.where(has_end, ends, len(done))
        self._has_ended[rows[has_end]] = True
        self._first_steps[rows] += np.count_nonzero(is_ready[:, rows] & is_first, axis=0)
        self._first_reward[rows[has_end]] = scores[ends, rows][has_end]
        return {
            "num_first": _count(self._has_ended),
            "first_steps": int(self._first_steps.sum()),
            "first_reward": float(self._first_reward.sum()),
            "first_squares": float(np.square(self._first_reward).sum()),
        }

    def _added(self, **more: float) -> dict[str, Any]:
        return {name: getattr(self.figures, name) + number for name, number in more.items()}


def _count(mask: NDArray[np.bool_]) -> int:
    """Number of True values, as an int for JSON."""
    return int(np.count_nonzero(mask))


def _count_choices(
    action_masks: Mapping[ActionName, VecActionMask],
    action_space: Mapping[ActionName, ActionSpace],
    samples: Mapping[ActionName, RaggedArray[Any]],
) -> dict[str, Any]:
    num_decisions = max((len(mask.actors) for mask in action_masks.values()), default=0)
    num_free, num_actors, num_reals, entropy = np.zeros(num_decisions), 0, 0, 0.0
    for name, given in action_masks.items():
        mask = given
        rows = mask.actors.row_index
        num_actors += len(rows)
        space = action_space[name]
        if space.given:
            mask = narrowed(mask, samples[space.given[-1]].values)
        counts = _num_allowed(mask, space)
        if counts is not None:
            entropy += float(np.log(np.maximum(counts, 1)).sum())
        elif isinstance(space, ContinuousActionSpace):
            num_reals += len(rows) * len(space)
        num_free += np.bincount(rows, None if counts is None else counts > 1, num_decisions)
    return {
        "num_decisions": num_decisions,
        "num_forced": _count(num_free == 0),
        "num_actors": num_actors,
        "num_reals": num_reals,
        "uniform_entropy": entropy,
    }


def _num_allowed(mask: VecActionMask, space: ActionSpace) -> NDArray[np.int64] | None:
    """`(num_actors,)` number of allowed choices of every actor; None for a continuous action."""
    num_actors = len(mask.actors.values)
    if isinstance(mask, VecSelectEntityActionMask):
        widths = mask.actees.lengths[mask.actors.row_index]
    elif isinstance(mask, VecCategoricalActionMask) and not isinstance(
        space, SelectEntityActionSpace | ContinuousActionSpace
    ):
        widths = np.full(num_actors, len(space), np.int64)
    else:
        return None
    if mask.mask is None:
        return widths
    sums = np.concatenate([[0], np.cumsum(mask.mask.values.reshape(-1), dtype=np.int64)])
    ends = np.cumsum(widths)
    counts: NDArray[np.int64] = sums[ends] - sums[ends - widths]
    return counts


_MOST_NUMBERS: Final = 1 << 20
"""Rollouts with more numbers are not searched for repetitions, which are rare in large ones."""
_GAMMA: Final = np.uint64(GAMMA)


def _count_repeated(
    obs: EntityBatch,
    samples: Mapping[ActionName, RaggedArray[Any]],
    rewards: NDArray[np.float64],
) -> dict[str, float]:
    size = sum(each.values.size for each in (*obs.features.values(), *samples.values()))
    if not len(rewards) or size > _MOST_NUMBERS or not np.ptp(rewards):
        return {}
    _, group, counts = np.unique(
        _hashes(obs, samples, len(rewards)), return_inverse=True, return_counts=True
    )
    is_repeated = counts[group] > 1
    if not is_repeated.any():
        return {}
    means = np.bincount(group, rewards) / counts
    repeated = rewards[is_repeated]
    return {
        "num_repeated": len(repeated),
        "num_repetitions": _count(counts > 1),
        "repeated_squares": float(np.square(repeated - repeated.mean()).sum()),
        "unexplained_squares": float(np.square(repeated - means[group[is_repeated]]).sum()),
    }


def _hashes(
    obs: EntityBatch, samples: Mapping[ActionName, RaggedArray[Any]], num_decisions: int
) -> NDArray[np.uint64]:
    """`(num_decisions,)`: equal for equal features and actions, entities in any order."""
    total = np.zeros(num_decisions, np.uint64)
    with np.errstate(over="ignore"):
        for number, ragged in enumerate((*obs.features.values(), *samples.values())):
            values = ragged.values if ragged.values.ndim > 1 else ragged.values[:, None]
            if values.dtype == np.float32:
                values = (values + np.float32(0)).view(np.uint32)  # -0.0 as 0.0
            mixed = np.full(len(values), np.uint64(number + 1) * _GAMMA)
            for column in values.astype(np.uint64).T:
                mixed = splitmix64(mixed + column * _GAMMA)
            if number >= len(obs.features):  # samples are in the order of actors
                place = np.arange(len(mixed)) - ragged.offsets[:-1][ragged.row_index]
                mixed = splitmix64(mixed + place.astype(np.uint64) * _GAMMA)
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
            total = splitmix64(total + sums[ragged.offsets[1:]] - sums[ragged.offsets[:-1]])
    return total
