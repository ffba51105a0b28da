"""BatchInProcess: a batch environment stepped in this process, and shown without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameLayout, FrameMemory
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import Run
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.stepper import BatchEnvSteps
from entity_env.vec.episode_stats import NO_ENDINGS
from entity_env.vec.options import Autoreset
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep, StepMemory

Ragged = RaggedArray[np.int64]


class BatchInProcess:
    """All environments of a batch as one group, in this process; stepped when waited for.

    Args:
        steps: steps them.
    """

    num_agents: Final = 1

    def __init__(self, steps: BatchEnvSteps) -> None:
        self.steps = steps
        self.groups: Sequence[range] = [range(steps.num_envs)]
        self.num_steps = 0
        self.games_s = 0.0
        self._show = _Show(steps)
        self._start: Callable[[], None] | None = None

    def obs_space(self) -> ObsSpace:
        return self.steps.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self.steps.action_space()

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        for env_id, run in runs.items():
            self.steps.seed_env(env_id, run)
        self._start = partial(self.steps.begin, env_ids)

    def start_act(self, group: int, values: Mapping[ActionName, NDArray[Any]]) -> None:
        actions = self.steps.actions_of(values[self.steps.action]).copy()  # as they are now
        self._start = partial(self.steps.advance, actions)

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        start, self._start = self._start, None
        if start is not None:
            begin = perf_counter()
            start()
            self.count(perf_counter() - begin)
        return list(groups)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        return self._show.step()

    def vec_obs(self, env_id: NDArray[np.int64], agent_id: NDArray[np.int64]) -> VecObs:
        """The same as `collect().vec_obs(env_id, agent_id)`, in a third of the time."""
        return self._show.vec_obs(env_id, agent_id)

    def count(self, games_s: float) -> None:
        """Counts a step, which took some seconds."""
        self.games_s += games_s
        self.num_steps += 1

    def render(self, env_id: int) -> None:
        """Batch environments do not draw themselves."""

    def statistics(self) -> list[WorkerStatistics]:
        steps = self.steps
        return [
            WorkerStatistics(
                num_envs=steps.num_envs,
                num_steps=self.num_steps,
                games_s=self.games_s,
                packing_s=0.0,
                waiting_s=0.0,
                num_restarts=0,
                num_bytes=0,
            )
        ]

    def close(self) -> None:
        self.steps.close()


class _Show:
    """Shows what environments hold, by arrays that are made once."""

    def __init__(self, steps: BatchEnvSteps) -> None:
        num_envs = steps.num_envs
        self._steps = steps
        self._layout = FrameLayout(steps.obs_space(), steps.action_space())
        is_global = isinstance(steps.space, GlobalCategoricalActionSpace)
        self._has_globals = GLOBAL_ENTITY in self._layout.entities
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

    def vec_obs(self, env_id: NDArray[np.int64], agent_id: NDArray[np.int64]) -> VecObs:
        """The batch as users know it."""
        steps = self._steps
        observations = steps.result.observations
        if observations is not self._observations or not steps.parts.are_views:
            self._observations = observations
            self._features = self._ragged(observations)
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
            () if steps.ended is None else steps.ended.episodes(),
        )

    def step(self) -> BatchStep:
        """The batch before it becomes one that users know."""
        steps = self._steps
        over = np.zeros(steps.num_envs, np.bool_) if steps.over is None else steps.over
        final = steps.final
        return BatchStep(
            frame=self._frame(steps.result.observations, ~over, steps.legal),
            reward=steps.reward,
            terminated=steps.terminated,
            truncated=steps.truncated,
            is_over=over,
            final=None if final is None else self._frame(final, np.zeros(len(final), np.bool_)),
            ended=NO_ENDINGS if steps.ended is None else steps.ended.endings(),
        )

    def _ragged(self, rows: NDArray[np.float32]) -> dict[EntityName, RaggedArray[np.float32]]:
        """The entities of each observation, then its global features and who acts for it."""
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
        """Last observations: nobody is asked for anything."""
        rows, ended = self._steps.final, self._steps.ended
        if rows is None or ended is None:
            return None
        nobody = self._zeros[: len(rows)]
        return VecObs(
            self._ragged(rows),
            {},
            self._masks(nobody[:0], nobody),
            ended.reward,
            ended.flags[0],
            ended.flags[1],
            ended.env_ids,
            nobody,
            None,
            {},
            ended.episodes(),
        )

    def _frame(
        self,
        rows: NDArray[np.float32],
        is_asked: NDArray[np.bool_],
        legal: NDArray[np.bool_] | None = None,
    ) -> Frame:
        layout, action = self._layout, self._layout.actions[self._steps.action]
        entities, parts = layout.entities[self._steps.entity], self._steps.parts
        lengths = np.ones((layout.num_lengths, len(rows)), np.int64)
        lengths[entities.row] = parts.num_entities
        lengths[action.row] = is_asked
        slots: list[NDArray[Any] | None] = [None] * len(layout.slots)
        slots[entities.values.index] = parts.entities(rows).reshape(-1)
        if parts.num_globals:
            shared = layout.entities[GLOBAL_ENTITY].values
            slots[shared.index] = parts.globals(rows).reshape(-1)
        if not isinstance(self._steps.space, GlobalCategoricalActionSpace):
            slots[action.actors.index] = self._zeros[: int(np.count_nonzero(is_asked))]
        if legal is not None:
            slots[action.mask.index] = legal.reshape(-1)
        return Frame(layout, lengths, slots)


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
