"""ArrayBatch: base class of environments stepped as arrays, with any spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game_traceback import game_traceback, is_a, is_failure, reason_of
from entity_env.batching.frame import Frame, FrameLayout, FrameMemory, Slot
from entity_env.core.episode import Episode
from entity_env.core.episode_stats import NO_EPISODES, EpisodeCollector, FinishedEpisodes
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import Run
from entity_env.core.spaces import GlobalCategoricalActionSpace, Spaces
from entity_env.core.vec_actions import repeated
from entity_env.core.vec_obs import (
    EntityBatch,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.errors import EntityEnvError, WorkerError
from entity_env.vec.process_batch import ActionValues as ActionValues, ProcessBatch
from entity_env.vec.step import BatchStep, StepMemory


class ArrayBatch(ProcessBatch):
    """Environments that return each step as a `VecObs` of their own arrays.

    In this process the caller gets that `VecObs` itself; a worker copies it to shared memory.

    Args:
        num_envs, num_agents, spaces: as for `ProcessBatch`.
        first_env: index of the first environment among all workers.
    """

    def __init__(self, num_envs: int, num_agents: int, spaces: Spaces, first_env: int = 0) -> None:
        super().__init__(num_envs, num_agents, spaces)
        self.over: NDArray[np.bool_] | None = None
        """`(num_envs,)` bool, True for environments that show the last observation of an episode.

        None if no environment does. Set by subclasses.
        """
        self.first_env = first_env
        self.layout: Final = FrameLayout(*spaces)
        self.env_id, self.agent_id = np.divmod(np.arange(num_envs * num_agents), num_agents)
        self._runs: dict[int, Run] = {}
        """By environment, the run that its next reset starts; removed by that reset."""

    @abstractmethod
    def begin(self, env_ids: Sequence[int], runs: dict[int, Run]) -> VecObs:
        """Starts a new episode in each of `env_ids`: of a new run for the keys of `runs`."""

    @abstractmethod
    def advance(self, values: ActionValues) -> VecObs:
        """Steps all environments with one value per actor; may overwrite `values`."""

    def seed_env(self, env_id: int, run: Run) -> None:
        self._runs[env_id] = run

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> ShownStep:
        runs = {i: self._runs[i] for i in env_ids if i in self._runs}
        step = self._take(self.begin, env_ids, runs)
        for i in runs:
            del self._runs[i]
        return step

    def act(self, values: ActionValues, memory: StepMemory) -> ShownStep:
        return self._take(self.advance, values)

    def _take(self, step: Callable[..., VecObs], *given: object) -> ShownStep:
        """Calls `begin` or `advance`; raises `WorkerError` if the environments fail."""
        before = perf_counter()
        try:
            obs = step(*given)
        except BaseException as error:
            if is_a(error, EntityEnvError) or not is_failure(error):
                raise
            trace = game_traceback(error)
            raise WorkerError(reason_of(error), game_traceback=trace) from error
        self.games_s += perf_counter() - before
        return ShownStep(self, obs)

    def ended(self, obs: VecObs) -> FinishedEpisodes:
        """Episodes that ended in a step, as workers send them."""
        if not len(obs.episodes):
            return NO_EPISODES
        collector = EpisodeCollector(0, self.num_agents)
        for episode in obs.episodes:
            row = episode.env_id * self.num_agents + episode.agent_id
            collector.add_episode(row, float(obs.reward[row]), episode)
        return collector.finished()

    def is_env_over(self, env_id: int) -> bool:
        return self.over is not None and bool(self.over[env_id])

    def close(self) -> None:
        """Does nothing: arrays need no cleanup."""


@dataclass(slots=True, eq=False)
class ShownStep:
    """`CollectedStep` of an `ArrayBatch`: views of its arrays."""

    lost: ClassVar[FinishedEpisodes] = NO_EPISODES

    batch: ArrayBatch
    obs: VecObs

    @property
    def is_over(self) -> NDArray[np.bool_] | bool:
        over = self.batch.over
        return False if over is None else over

    @property
    def ended_episodes(self) -> Sequence[Episode]:
        return self.obs.episodes

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[EntityBatch] | None = None,
    ) -> VecObs:
        return self.obs

    def written(self, memory: StepMemory) -> BatchStep:
        before = perf_counter()
        obs, layout, arrays, last = self.obs, self.batch.layout, memory.arrays, self.obs.final
        arrays.reward[:] = obs.reward
        arrays.terminated[:] = obs.terminated
        arrays.truncated[:] = obs.truncated
        arrays.is_over[:] = self.is_over
        step = BatchStep(
            write_frame(obs, len(obs), layout, memory.rows),
            *arrays,
            final=None if last is None else write_frame(last, len(last), layout, memory.final),
            ended=self.batch.ended(obs),
            metrics=dict(obs.metrics),
        )
        self.batch.packing_s += perf_counter() - before
        return step


def write_frame(obs: EntityBatch, num_rows: int, layout: FrameLayout, memory: FrameMemory) -> Frame:
    """Copies observations and masks to memory."""
    lengths = memory.lengths(layout, num_rows)
    slots: list[NDArray[Any] | None] = [None] * len(layout.slots)

    def put(slot: Slot, rows: RaggedArray[Any]) -> None:
        if slot.width:
            array = slots[slot.index] = memory.allocate(slot, len(rows.values))
            array[:] = rows.values.reshape(-1)

    for name, entity in layout.entities.items():
        rows = obs.features[name]
        lengths[entity.row] = rows.lengths
        put(entity.values, rows)
        if name in obs.visible:
            put(entity.visible, obs.visible[name])
    for name, action in layout.actions.items():
        mask = obs.action_masks[name]
        lengths[action.row] = mask.actors.lengths
        mask = repeated(name, mask, action.per_actor(lengths))
        if not isinstance(action.space, GlobalCategoricalActionSpace):
            put(action.actors, mask.actors)
        if isinstance(mask, VecSelectEntityActionMask):
            lengths[action.actee_row] = mask.actees.lengths
            put(action.actees, mask.actees)
        if not isinstance(mask, VecContinuousActionMask) and mask.mask is not None:
            put(action.mask, mask.mask)
    return Frame(layout, lengths, slots)
