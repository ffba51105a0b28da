"""BatchEnvShare: a worker's share of a batch environment, written into shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameLayout, FrameMemory
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, GlobalCategoricalActionSpace
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.stepper import BatchEnvSteps
from entity_env.vec.episode_stats import NO_ENDINGS
from entity_env.vec.options import Autoreset
from entity_env.vec.step import BatchStep, StepMemory


class BatchEnvShare(BatchEnvSteps):
    """Steps environments as a `LocalBatch` does, and shows them as a `BatchStep`.

    Args:
        env, autoreset, first_env: as for `BatchEnvSteps`.
    """

    num_agents: Final = 1
    num_restarts: Final = 0

    def __init__(self, env: BatchEnv, autoreset: Autoreset, first_env: int = 0) -> None:
        super().__init__(env, autoreset, first_env=first_env)
        self.games_s = 0.0
        self.packing_s = 0.0
        self.current: MutableSequence[int] | memoryview = [0]
        """As of a `LocalBatch`, where one environment is stepped after the other."""
        self.layout = FrameLayout(env.obs_space(), env.action_space())

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        """`begin`, and what it led to in memory."""
        return self._timed(partial(self.begin, env_ids), memory)

    def act(self, values: Mapping[ActionName, NDArray[Any]], memory: StepMemory) -> BatchStep:
        """`advance` by one checked value for everyone who was asked, and what it led to."""
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
        memory.reward[:] = self.reward
        memory.terminated[:] = self.terminated
        memory.truncated[:] = self.truncated
        memory.is_over[:] = False if self.over is None else self.over
        final = self.final
        return BatchStep(
            frame=self._frame(self.result.observations, ~memory.is_over, memory.rows, self.legal),
            reward=memory.reward,
            terminated=memory.terminated,
            truncated=memory.truncated,
            is_over=memory.is_over,
            final=None if final is None else self._frame(final, _nobody(final), memory.final),
            ended=NO_ENDINGS if self.ended is None else self.ended.endings(),
        )

    def _frame(
        self,
        observations: NDArray[np.float32],
        is_asked: NDArray[np.bool_],
        memory: FrameMemory,
        legal: NDArray[np.bool_] | None = None,
    ) -> Frame:
        """A row an observation, and who is asked for an action."""
        layout, action, parts = self.layout, self.layout.actions[self.action], self.parts
        entities, num_rows = layout.entities[self.entity], len(observations)
        lengths = memory.lengths(layout, num_rows)
        lengths[: layout.num_types] = 1
        lengths[entities.row] = parts.num_entities
        lengths[action.row] = is_asked
        slots: list[NDArray[Any] | None] = [None] * len(layout.slots)
        rows = memory.allocate(entities.values, num_rows * parts.num_entities)
        rows[:] = parts.entities(observations).reshape(-1)
        slots[entities.values.index] = rows
        if parts.num_globals:
            shared = layout.entities[GLOBAL_ENTITY].values
            numbers = slots[shared.index] = memory.allocate(shared, num_rows)
            numbers[:] = parts.globals(observations).reshape(-1)
        if not isinstance(self.space, GlobalCategoricalActionSpace):
            num_actors = int(np.count_nonzero(is_asked))
            actors = slots[action.actors.index] = memory.allocate(action.actors, num_actors)
            actors[:] = 0
        if legal is not None:
            allowed = slots[action.mask.index] = memory.allocate(action.mask, len(legal))
            allowed[:] = legal.reshape(-1)
        return Frame(layout, lengths, slots)


def _nobody(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)
