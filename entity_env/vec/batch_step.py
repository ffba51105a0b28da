"""BatchStep: what environments show after one step, before it becomes a VecObs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.episode import Episode
from entity_env.frame import Frame, FrameMemory, LocalMemory
from entity_env.ragged import RaggedArray
from entity_env.spaces import ActionName, EntityName
from entity_env.vec_obs import Metric, VecActionMask, VecObs, VecSelectEntityActionMask

Scalar = TypeVar("Scalar", bound=np.generic)


class Ended(NamedTuple):
    """One episode that ended in a step."""

    row: int
    """Row of the batch."""
    reward: float
    """What the last action earned."""
    episode: Episode


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
    ended: list[Ended] = field(default_factory=list)
    lost: list[Ended] = field(default_factory=list)
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
        ended = [*self.ended, *self.lost]
        final = None
        if self.final is not None:
            final = _final_obs(self.final.features(), self.final.visible(), masks, self.ended)
        for number, one in enumerate(lost or (), start=1):
            features, visible = one.features, one.visible
            if final is not None:
                features, visible = _joined(final, features, visible)
            final = _final_obs(features, visible, masks, ended[: len(self.ended) + number])
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
            episodes=[one.episode for one in ended],
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
    ended: Sequence[Ended],
) -> VecObs:
    """Last observations: nobody is asked for anything."""
    episodes = [one.episode for one in ended]
    nobody = RaggedArray.unchecked(
        np.zeros(0, dtype=np.int64), np.zeros(len(ended), dtype=np.int64)
    )
    return VecObs(
        features=features,
        visible=visible,
        action_masks={name: _unasked(mask, nobody) for name, mask in masks.items()},
        reward=np.array([one.reward for one in ended], dtype=np.float32),
        terminated=np.array([episode.terminated for episode in episodes], dtype=np.bool_),
        truncated=np.array([episode.truncated for episode in episodes], dtype=np.bool_),
        env_id=np.array([episode.env_id for episode in episodes], dtype=np.int64),
        agent_id=np.array([episode.agent_id for episode in episodes], dtype=np.int64),
        episodes=episodes,
    )


def _unasked(mask: VecActionMask, nobody: RaggedArray[np.int64]) -> VecActionMask:
    if isinstance(mask, VecSelectEntityActionMask):
        return VecSelectEntityActionMask(nobody, nobody)
    return type(mask)(nobody)


def _joined(final: VecObs, features: _Features, visible: _Visible) -> tuple[_Features, _Visible]:
    """The rows of a batch, and more rows behind them."""
    flags = {
        name: _concatenated(
            _shown(final.features, final.visible, name), _shown(features, visible, name)
        )
        for name in {*final.visible, *visible}
    }
    return {
        name: _concatenated(final.features[name], more) for name, more in features.items()
    }, flags


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
