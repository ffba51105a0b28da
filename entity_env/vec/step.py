"""BatchStep: what environments show after one step, before it becomes a VecObs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameMemory, LocalMemory
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_obs import Metric, VecActionMask, VecObs, VecSelectEntityActionMask
from entity_env.vec.episode_stats import (
    AGENT,
    EARNED,
    NO_ENDINGS,
    TERMINATED,
    TRUNCATED,
    Endings,
)

Scalar = TypeVar("Scalar", bound=np.generic)


class StepMemory(Protocol):
    """Where a step is written."""

    rows: FrameMemory
    final: FrameMemory
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_over: NDArray[np.bool_]


class LocalStepMemory:
    """Memory of this process, used again for every step."""

    def __init__(self, num_envs: int, num_rows: int) -> None:
        self.rows: FrameMemory = LocalMemory()
        self.final: FrameMemory = LocalMemory()
        self.reward = np.zeros(num_rows, dtype=np.float32)
        self.terminated = np.zeros(num_rows, dtype=np.bool_)
        self.truncated = np.zeros(num_rows, dtype=np.bool_)
        self.is_over = np.zeros(num_envs, dtype=np.bool_)


@dataclass(slots=True)
class BatchStep:
    """What a number of environments show after one step.

    Args:
        frame: the rows.
        reward: `(num_rows,)` float32.
        terminated, truncated: `(num_rows,)` bool.
        is_over: `(num_envs,)` bool, the environment shows the end of an episode.
        final: last observations of `ended`, in that order; None when the rows show them.
        ended: the episodes that ended.
        lost: those that ended by a failure, whose last observation is the one before.
        metrics: the games' named numbers.
    """

    frame: Frame
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_over: NDArray[np.bool_]
    final: Frame | None = None
    ended: Endings = NO_ENDINGS
    lost: Endings = NO_ENDINGS
    metrics: dict[str, Metric] = field(default_factory=dict)

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[VecObs] | None = None,
    ) -> VecObs:
        """The batch as users know it.

        Args:
            env_id, agent_id: `(num_rows,)` whose rows these are.
            lost: what the rows of `self.lost` showed last, a batch of one row each.
        """
        masks = self.frame.action_masks()
        ended = self.ended + self.lost
        final = None
        if self.final is not None or lost:
            shown = [] if self.final is None else [(self.final.features(), self.final.visible())]
            shown += [(one.features, one.visible) for one in lost or ()]
            final_of = self.lost if self.final is None else ended
            final = _final_obs(*reduce(_joined, shown), masks, final_of, env_id)
        return VecObs(
            features=self.frame.features(),
            visible=self.frame.visible(),
            action_masks=masks,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            env_id=env_id,
            agent_id=agent_id,
            final=final,
            metrics=self.metrics,
            episodes=ended.episodes,
        )


def row_of(batch: VecObs, row: int) -> VecObs:
    """A copy of one row of a batch, without actors."""
    features = {name: ragged[[row]] for name, ragged in batch.features.items()}
    visible = {name: ragged[[row]] for name, ragged in batch.visible.items()}
    return VecObs(
        features=features,
        visible=visible,
        action_masks={},
        reward=batch.reward[[row]],
        terminated=batch.terminated[[row]],
        truncated=batch.truncated[[row]],
        env_id=batch.env_id[[row]],
        agent_id=batch.agent_id[[row]],
    )


def merge_metrics(into: dict[str, Metric], more: Mapping[str, Metric]) -> None:
    """Counts all that `more` has counted in `into` as well."""
    for name, metric in more.items():
        sums = into.setdefault(name, Metric())
        sums.count += metric.count
        sums.sum += metric.sum
        sums.min = min(sums.min, metric.min)
        sums.max = max(sums.max, metric.max)


_Features: TypeAlias = dict[EntityName, RaggedArray[np.float32]]
_Visible: TypeAlias = dict[EntityName, RaggedArray[np.bool_]]


def _final_obs(
    features: _Features,
    visible: _Visible,
    masks: Mapping[ActionName, VecActionMask],
    ended: Endings,
    env_id: NDArray[np.int64],
) -> VecObs:
    """Last observations: nobody is asked for anything."""
    ints = ended.ints
    nobody = RaggedArray.unchecked(
        np.zeros(0, dtype=np.int64), np.zeros(len(ended), dtype=np.int64)
    )
    return VecObs(
        features=features,
        visible=visible,
        action_masks={name: _unasked(mask, nobody) for name, mask in masks.items()},
        reward=ended.floats[:, EARNED].astype(np.float32),
        terminated=ints[:, TERMINATED].astype(np.bool_),
        truncated=ints[:, TRUNCATED].astype(np.bool_),
        env_id=env_id[ended.rows],
        agent_id=ints[:, AGENT].copy(),
        episodes=ended.episodes,
    )


def _unasked(mask: VecActionMask, nobody: RaggedArray[np.int64]) -> VecActionMask:
    if isinstance(mask, VecSelectEntityActionMask):
        return VecSelectEntityActionMask(nobody, nobody)
    return type(mask)(nobody)


def _joined(
    before: tuple[_Features, _Visible], behind: tuple[_Features, _Visible]
) -> tuple[_Features, _Visible]:
    """The rows of one batch, and those of another behind them."""
    flags = {
        name: _concatenated(_shown(*before, name), _shown(*behind, name))
        for name in {*before[1], *behind[1]}
    }
    features = {name: _concatenated(before[0][name], more) for name, more in behind[0].items()}
    return features, flags


def _shown(features: _Features, visible: _Visible, name: EntityName) -> RaggedArray[np.bool_]:
    """Who of a type is visible, also when nobody is hidden."""
    if name in visible:
        return visible[name]
    count = len(features[name].values)
    return RaggedArray.unchecked(np.ones(count, dtype=np.bool_), features[name].lengths)


def _concatenated(a: RaggedArray[Scalar], b: RaggedArray[Scalar]) -> RaggedArray[Scalar]:
    return RaggedArray.unchecked(
        np.concatenate([a.values, b.values]), np.concatenate([a.lengths, b.lengths])
    )
