"""Observations of a batch environment: as a `VecObs` without a copy, or in a worker's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameLayout, FrameMemory
from entity_env.core.episode import NO_EPISODES
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.stepper import BatchEnvStepper
from entity_env.vec.step import BatchStep, StepMemory


class BatchView:
    """`CollectedStep` of a batch environment: views of its arrays, beside arrays made once."""

    lost: Final = NO_EPISODES

    def __init__(self, steps: WorkerBatchEnv) -> None:
        num_envs = steps.num_envs
        self._steps = steps
        is_global = isinstance(steps.space, GlobalCategoricalActionSpace)
        self._has_globals = GLOBAL_ENTITY in steps.layout.entities
        is_continuous = isinstance(steps.space, ContinuousActionSpace)
        self._mask_type = VecContinuousActionMask if is_continuous else VecCategoricalActionMask
        self._ones = np.ones(num_envs, np.int64)
        self._zeros = np.zeros(num_envs, np.int64)
        self._each = self._ones * steps.parts.num_entities
        # The actor of a global action is the entity behind the last.
        self._actors = self._each if is_global else self._zeros
        self._all_act = self._masks(self._actors, self._ones)
        self._observations: NDArray[np.float32] | None = None
        self._features: dict[EntityName, RaggedArray[np.float32]] = {}

    @property
    def is_over(self) -> NDArray[np.bool_] | bool:
        """`(num_envs,)`, or False if no environment is over."""
        return False if self._steps.over is None else self._steps.over

    def vec_obs(
        self,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        lost: Sequence[EntityBatch] | None = None,
    ) -> VecObs:
        """The batch that users get."""
        steps = self._steps
        observations = steps.result.observations
        if observations is not self._observations:
            self._features = self._ragged(observations)
            # Copies are made anew for every step: of rows with gaps, and of global features.
            are_views = steps.parts.are_views and observations.flags.c_contiguous
            self._observations = observations if are_views else None
        masks, legal = self._all_act, steps.legal
        if steps.over is not None:
            lengths = (~steps.over).astype(np.int64)
            masks = self._masks(self._actors[: int(lengths.sum())], lengths, legal)
        elif legal is not None:
            masks = self._masks(self._actors, self._ones, legal)
        return VecObs(
            self._features,
            {},
            masks,
            steps.reward,
            steps.terminated,
            steps.truncated,
            env_id,
            agent_id,
            self._final(),
            {},
            () if steps.finished is None else steps.finished.episodes(),
        )

    def _ragged(self, rows: NDArray[np.float32]) -> dict[EntityName, RaggedArray[np.float32]]:
        parts, each = self._steps.parts, self._each[: len(rows)]
        features = {self._steps.entity: RaggedArray.unchecked(parts.entities(rows), each)}
        if self._has_globals:
            one = self._ones[: len(rows)]
            features[GLOBAL_ENTITY] = RaggedArray.unchecked(parts.globals(rows), one)
        return features

    def _masks(
        self,
        actors: NDArray[np.int64],
        lengths: NDArray[np.int64],
        legal: NDArray[np.bool_] | None = None,
    ) -> dict[ActionName, VecActionMask]:
        acting = RaggedArray.unchecked(actors, lengths)
        if legal is None:
            return {self._steps.action: self._mask_type(acting)}
        allowed = RaggedArray.unchecked(legal, lengths)
        return {self._steps.action: VecCategoricalActionMask(acting, allowed)}

    def _final(self) -> VecObs | None:
        """Last observations; those of truncated episodes have actors."""
        rows, finished = self._steps.final, self._steps.finished
        if rows is None or finished is None:
            return None
        lengths = finished.is_truncated.astype(np.int64)
        zeros = self._zeros[: len(rows)]
        return VecObs(
            self._ragged(rows),
            {},
            self._masks(self._actors[: int(lengths.sum())], lengths, self._steps.final_legal),
            finished.reward,
            finished.flags[0],
            finished.flags[1],
            finished.env_ids,
            zeros,
            None,
            {},
            finished.episodes(),
        )


class WorkerBatchEnv(BatchEnvStepper):
    """Steps the environments of a worker, and writes a `BatchStep`, with the methods of a
    `LocalBatch`; arguments as for `BatchEnvStepper`."""

    num_agents: Final = 1
    num_restarts: Final = 0

    def __init__(self, env: BatchEnv, autoreset: Autoreset, first_env: int = 0) -> None:
        super().__init__(env, autoreset, first_env=first_env)
        self.games_s = 0.0
        self.packing_s = 0.0
        self.current: MutableSequence[int] | memoryview = [0]
        """As of a `LocalBatch`; all environments are stepped together here."""
        self.layout = FrameLayout(*self.spaces)

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        """Begins episodes, and writes all rows."""
        return self._timed(partial(self.begin, env_ids), memory)

    def act(self, values: Mapping[ActionName, NDArray[Any]], memory: StepMemory) -> BatchStep:
        """Steps by one checked action per environment that is not over, and writes all rows."""
        actions = self.actions_of(values[self.action])
        return self._timed(partial(self.advance, actions), memory)

    def _timed(self, take: Callable[[], None], memory: StepMemory) -> BatchStep:
        begin = perf_counter()
        take()
        middle = perf_counter()
        step = self._step(memory)
        self.games_s += middle - begin
        self.packing_s += perf_counter() - middle
        return step

    def _step(self, memory: StepMemory) -> BatchStep:
        arrays = memory.arrays
        arrays.reward[:] = self.reward
        arrays.terminated[:] = self.terminated
        arrays.truncated[:] = self.truncated
        arrays.is_over[:] = False if self.over is None else self.over
        return BatchStep(
            self._frame(self.result.observations, ~arrays.is_over, memory.rows, self.legal),
            *arrays,
            final=self._final_frame(memory.final),
            ended=NO_EPISODES if self.finished is None else self.finished.as_arrays(),
        )

    def _final_frame(self, memory: FrameMemory) -> Frame | None:
        final, finished = self.final, self.finished
        if final is None or finished is None:
            return None
        return self._frame(final, finished.is_truncated, memory, self.final_legal)

    def _frame(
        self,
        observations: NDArray[np.float32],
        has_actor: NDArray[np.bool_],
        memory: FrameMemory,
        legal: NDArray[np.bool_] | None = None,
    ) -> Frame:
        layout, action, parts = self.layout, self.layout.actions[self.action], self.parts
        entities, num_rows = layout.entities[self.entity], len(observations)
        lengths = memory.lengths(layout, num_rows)
        lengths[: layout.num_types] = 1
        lengths[entities.row] = parts.num_entities
        lengths[action.row] = has_actor
        slots: list[NDArray[Any] | None] = [None] * len(layout.slots)
        rows = memory.allocate(entities.values, num_rows * parts.num_entities)
        rows[:] = parts.entities(observations).reshape(-1)
        slots[entities.values.index] = rows
        if parts.num_globals:
            shared = layout.entities[GLOBAL_ENTITY].values
            numbers = slots[shared.index] = memory.allocate(shared, num_rows)
            numbers[:] = parts.globals(observations).reshape(-1)
        if not isinstance(self.space, GlobalCategoricalActionSpace):
            num_actors = int(np.count_nonzero(has_actor))
            actors = slots[action.actors.index] = memory.allocate(action.actors, num_actors)
            actors[:] = 0
        if legal is not None:
            allowed = slots[action.mask.index] = memory.allocate(action.mask, len(legal))
            allowed[:] = legal.reshape(-1)
        return Frame(layout, lengths, slots)
