"""BatchStep: the result of a step. PendingBatch: its `VecObs`, until its actions are performed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameMemory, LocalMemory
from entity_env.core.episode import Episode
from entity_env.core.episode_stats import AGENT, NO_EPISODES, FinishedEpisodes
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_env_base import require_running
from entity_env.core.vec_obs import (
    EntityBatch,
    Metric,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
    concat_entities,
)


class StepArrays(NamedTuple):
    """Rewards and flags of a step, `(num_rows,)`, and `is_over`, `(num_envs,)`; see `BatchStep`."""

    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_over: NDArray[np.bool_]


class StepMemory(NamedTuple):
    """Memory for a step: observations, last observations, rewards and flags."""

    rows: FrameMemory
    final: FrameMemory
    arrays: StepArrays


def local_memory(num_envs: int, num_rows: int) -> StepMemory:
    """Memory in this process, reused for every step."""
    flags = (np.zeros(count, dtype=np.bool_) for count in (num_rows, num_rows, num_envs))
    arrays = StepArrays(np.zeros(num_rows, dtype=np.float32), *flags)
    return StepMemory(LocalMemory(), LocalMemory(), arrays)


class CollectedStep(Protocol):
    """A step of some environments of a process, before it becomes a `VecObs`."""

    @property
    def is_over(self) -> NDArray[np.bool_] | bool:
        """`(num_envs,)` bool, True where an environment shows an episode's last observation.

        A single False if none does.
        """

    @property
    def ended_episodes(self) -> Sequence[Episode]:
        """Episodes that ended without a failure."""

    @property
    def lost(self) -> FinishedEpisodes:
        """Episodes ended by a failure."""

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[EntityBatch] | None = None,
    ) -> VecObs:
        """The batch for the caller; `lost` has the rows of `lost_rows`, if episodes were lost."""

    def written(self, memory: StepMemory) -> BatchStep:
        """The step, written to `memory` if it is not there already."""


@dataclass(slots=True)
class BatchStep:
    """Observations, rewards and finished episodes of a step, before they become a `VecObs`.

    Args:
        reward: `(num_rows,)` float32.
        terminated, truncated: `(num_rows,)` bool.
        is_over: `(num_envs,)` bool, True where an environment shows an episode's last observation.
        final: last observations of `ended`, in order, or None.
        ended: episodes that ended without a failure.
        lost: episodes ended by a failure; the observation before the failure serves as their last.
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

    @property
    def ended_episodes(self) -> Sequence[Episode]:
        return self.ended.episodes

    def written(self, memory: StepMemory) -> BatchStep:
        return self

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[EntityBatch] | None = None,
    ) -> VecObs:
        masks = self.frame.action_masks
        ended = self.ended + self.lost
        final = None
        if self.final is not None or lost:
            parts: list[EntityBatch] = []
            if lost:
                no_actors = {name: without_actors(mask) for name, mask in masks.items()}
                parts = [replace(each, action_masks=no_actors) for each in lost]
            if (last := self.final) is not None:
                parts.insert(0, EntityBatch(last.features, last.visible, last.action_masks))
            final_of = self.lost if last is None else ended
            batch = parts[0] if len(parts) == 1 else concat_entities(parts)
            final = _final_obs(batch, final_of, env_id)
        return VecObs(
            features=dict(self.frame.features),
            visible=dict(self.frame.visible),
            action_masks=dict(masks),
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            env_id=env_id,
            agent_id=agent_id,
            final=final,
            metrics=self.metrics,
            episodes=ended.episodes,
        )


@dataclass(eq=False)
class PendingBatch:
    """A `VecObs` given to the caller, whose actions are still awaited or being performed.

    Holds the rows of the executor's `groups`, in order, with `num_agents` rows per environment.
    """

    groups: list[int]
    envs: list[range]
    obs: VecObs
    num_agents: int
    is_kept: bool = False

    def bounds(self) -> Iterator[tuple[int, int, int]]:
        """Every group with its first row and the row after its last."""
        first = 0
        for group, envs in zip(self.groups, self.envs, strict=True):
            last = first + len(envs) * self.num_agents
            yield group, first, last
            first = last

    def env_ids(self) -> set[int]:
        return {env_id for envs in self.envs for env_id in envs}

    def keep(self) -> None:
        """Copies the lengths, because a group that steps twice overwrites its part of them.

        Without the copy, the rows of groups that are still busy could no longer be found: where
        they begin depends on the lengths of all rows before them.
        """
        if self.is_kept:
            return
        self.is_kept = True
        for features in self.obs.features.values():
            features.lengths = features.lengths.copy()
        for visible in self.obs.visible.values():
            visible.lengths = visible.lengths.copy()

    def require_running(self, is_over: NDArray[np.bool_]) -> None:
        """Raises `ProtocolError` if an environment of the batch must be reset first."""
        ids = (e.start + np.flatnonzero(is_over[e.start : e.stop]) for e in self.envs)
        require_running([env_id for some in ids for env_id in some.tolist()])

    def where(self, row: int) -> str:
        """Name of a row, for errors."""
        env_id, agent_id = int(self.obs.env_id[row]), int(self.obs.agent_id[row])
        return f"env {env_id}" if self.num_agents == 1 else f"env {env_id}, agent {agent_id}"


def begun_rows(num_rows: int, previous: Mapping[int, PendingBatch]) -> NDArray[np.bool_]:
    """`(num_rows,)` bool, rows that began an episode in these batches or ended one."""
    begun = np.zeros(num_rows, np.bool_)
    for batch in previous.values():
        obs = batch.obs
        flags = obs.done if obs.begins is None else obs.done | obs.begins
        begun[obs.env_id * batch.num_agents + obs.agent_id] = flags
    return begun


def lost_rows(
    lost: FinishedEpisodes,
    env_id: NDArray[np.int64],
    agent_id: NDArray[np.int64],
    previous: Mapping[int, PendingBatch],
) -> list[EntityBatch]:
    """Entities of the previous observation of every lost episode, as batches of one row."""
    rows: list[EntityBatch] = []
    for row in lost.rows.tolist():
        for group, batch in previous.items():
            if env_id[row] in batch.envs[batch.groups.index(group)]:
                obs = batch.obs
                is_same = (obs.env_id == env_id[row]) & (obs.agent_id == agent_id[row])
                # Without masks, whose lengths `keep` does not copy.
                shown = EntityBatch(obs.features, obs.visible, {})
                rows.append(shown.map_arrays(itemgetter(np.flatnonzero(is_same))))
    return rows


def _final_obs(batch: EntityBatch, ended: FinishedEpisodes, env_id: NDArray[np.int64]) -> VecObs:
    return VecObs(
        features=dict(batch.features),
        visible=dict(batch.visible),
        action_masks=dict(batch.action_masks),
        reward=ended.last_reward,
        terminated=ended.terminated,
        truncated=ended.truncated,
        env_id=env_id[ended.rows],
        agent_id=ended.ints[AGENT].copy(),
        episodes=ended.episodes,
    )


def without_actors(mask: VecActionMask, num_rows: int = 1) -> VecActionMask:
    """A mask of the same kind, for rows without actors."""
    empty = RaggedArray.unchecked(np.zeros(0, dtype=np.int64), np.zeros(num_rows, dtype=np.int64))
    if isinstance(mask, VecContinuousActionMask):
        return VecContinuousActionMask(empty)
    ones = np.ones(num_rows, dtype=np.int64)
    counts = None if mask.per_actor is None else RaggedArray.unchecked(ones, ones)
    if isinstance(mask, VecSelectEntityActionMask):
        return VecSelectEntityActionMask(empty, empty, per_actor=counts)
    return VecCategoricalActionMask(empty, per_actor=counts)
