"""BatchStep and PendingBatch: a step of some environments, until its actions are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameMemory, LocalMemory
from entity_env.core.episode import AGENT, NO_EPISODES, FinishedEpisodes
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_env_base import require_running
from entity_env.core.vec_obs import Metric, VecActionMask, VecObs, VecSelectEntityActionMask

Scalar = TypeVar("Scalar", bound=np.generic)


class StepArrays(NamedTuple):
    """`(num_rows,)` rewards and flags of a step, and `(num_envs,)` `is_over`; see `BatchStep`."""

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_over: NDArray[np.bool_]


class StepMemory(NamedTuple):
    """Memory that a step is written to: rows, last observations, rewards and flags."""

    rows: FrameMemory
    final: FrameMemory
    arrays: StepArrays


def local_memory(num_envs: int, num_rows: int) -> StepMemory:
    """Memory of this process, reused for every step."""
    flags = (np.zeros(count, dtype=np.bool_) for count in (num_rows, num_rows, num_envs))
    arrays = StepArrays(np.zeros(num_rows, dtype=np.float32), *flags)
    return StepMemory(LocalMemory(), LocalMemory(), arrays)


@dataclass(slots=True)
class BatchStep:
    """Observations, rewards and finished episodes of one step, before they become a `VecObs`.

    Args:
        frame: the observations.
        reward: `(num_rows,)` float32.
        terminated, truncated: `(num_rows,)` bool.
        is_over: `(num_envs,)` bool, the environment shows the last observation of an episode.
        final: last observations of `ended`, in that order; None when the rows show them.
        ended: the episodes that ended.
        lost: the episodes that a failure ended; their last observation is the previous one.
        metrics: the games' named numbers.
    """

    frame: Frame
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_over: NDArray[np.bool_]
    final: Frame | None = None
    ended: FinishedEpisodes = NO_EPISODES
    lost: FinishedEpisodes = NO_EPISODES
    metrics: dict[str, Metric] = field(default_factory=dict)

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[VecObs] | None = None,
    ) -> VecObs:
        """The batch that users get."""
        masks = self.frame.action_masks()
        ended = self.ended + self.lost
        final = None
        if self.final is not None or lost:
            parts = [] if self.final is None else [(self.final.features(), self.final.visible())]
            parts += [(one.features, one.visible) for one in lost or ()]
            final_of = self.lost if self.final is None else ended
            final = _final_obs(*reduce(_concatenate, parts), masks, final_of, env_id)
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


def copy_row(batch: VecObs, row: int) -> VecObs:
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
    """Adds metrics to others."""
    for name, metric in more.items():
        sums = into.setdefault(name, Metric())
        sums.count += metric.count
        sums.sum += metric.sum
        sums.min = min(sums.min, metric.min)
        sums.max = max(sums.max, metric.max)


@dataclass(eq=False)
class PendingBatch:
    """`VecObs` returned by `recv` whose actions have not been sent yet, or are being performed.

    It shows some groups in order, with `num_agents` rows for each of their environments.
    """

    groups: list[int]
    envs: list[range]
    obs: VecObs
    num_agents: int

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Every group with its first row and the one after its last."""
        first = 0
        for group, envs in zip(self.groups, self.envs, strict=True):
            last = first + len(envs) * self.num_agents
            yield group, first, last
            first = last

    def env_ids(self) -> set[int]:
        """The environments that it shows."""
        return {env_id for envs in self.envs for env_id in envs}

    def keep(self) -> None:
        """Computes offsets now: workers write the lengths of their next but one step over these.

        Rows of groups that are busy must still be found after others have stepped twice.
        """
        for features in self.obs.features.values():
            features.offsets  # noqa: B018 - computed once, and cached
        for visible in self.obs.visible.values():
            visible.offsets  # noqa: B018

    def require_running(self, is_over: NDArray[np.bool_]) -> None:
        """Raises a `ProtocolError` if an environment of the batch must be reset first."""
        ids = (e.start + np.flatnonzero(is_over[e.start : e.stop]) for e in self.envs)
        require_running([env_id for some in ids for env_id in some.tolist()])

    def where(self, row: int) -> str:
        """Names a row, for error messages."""
        env_id, agent_id = int(self.obs.env_id[row]), int(self.obs.agent_id[row])
        return f"env {env_id}" if self.num_agents == 1 else f"env {env_id}, agent {agent_id}"


def lost_rows(
    lost: FinishedEpisodes,
    env_id: NDArray[np.int64],
    agent_id: NDArray[np.int64],
    previous: Mapping[int, PendingBatch],
) -> list[VecObs]:
    """Previous observation of every lost episode, a batch of one row each."""
    rows: list[VecObs] = []
    for row in lost.rows.tolist():
        for group, batch in previous.items():
            if env_id[row] in batch.envs[batch.groups.index(group)]:
                obs = batch.obs
                is_same = (obs.env_id == env_id[row]) & (obs.agent_id == agent_id[row])
                rows.append(copy_row(obs, int(np.flatnonzero(is_same)[0])))
    return rows


_Features: TypeAlias = dict[EntityName, RaggedArray[np.float32]]
_Visible: TypeAlias = dict[EntityName, RaggedArray[np.bool_]]


def _final_obs(
    features: _Features,
    visible: _Visible,
    masks: Mapping[ActionName, VecActionMask],
    ended: FinishedEpisodes,
    env_id: NDArray[np.int64],
) -> VecObs:
    """Last observations, which have no actors."""
    empty = RaggedArray.unchecked(np.zeros(0, dtype=np.int64), np.zeros(len(ended), dtype=np.int64))
    return VecObs(
        features=features,
        visible=visible,
        action_masks={name: _without_actors(mask, empty) for name, mask in masks.items()},
        reward=ended.last_reward,
        terminated=ended.terminated,
        truncated=ended.truncated,
        env_id=env_id[ended.rows],
        agent_id=ended.ints[AGENT].copy(),
        episodes=ended.episodes,
    )


def _without_actors(mask: VecActionMask, empty: RaggedArray[np.int64]) -> VecActionMask:
    if isinstance(mask, VecSelectEntityActionMask):
        return VecSelectEntityActionMask(empty, empty)
    return type(mask)(empty)


def _concatenate(
    first: tuple[_Features, _Visible], second: tuple[_Features, _Visible]
) -> tuple[_Features, _Visible]:
    """The rows of two batches, one after the other."""
    flags = {
        name: _concatenated(_flags_of(*first, name), _flags_of(*second, name))
        for name in {*first[1], *second[1]}
    }
    features = {name: _concatenated(first[0][name], more) for name, more in second[0].items()}
    return features, flags


def _flags_of(features: _Features, visible: _Visible, name: EntityName) -> RaggedArray[np.bool_]:
    """Which entities of a type are visible; all, where a batch has no flags of the type."""
    if name in visible:
        return visible[name]
    count = len(features[name].values)
    return RaggedArray.unchecked(np.ones(count, dtype=np.bool_), features[name].lengths)


def _concatenated(a: RaggedArray[Scalar], b: RaggedArray[Scalar]) -> RaggedArray[Scalar]:
    return RaggedArray.unchecked(
        np.concatenate([a.values, b.values]), np.concatenate([a.lengths, b.lengths])
    )
