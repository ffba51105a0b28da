"""Backends step the environments of a `VecEnv`, in this process or in workers."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.seeding import Run
from entity_env.core.space_json import Spaces
from entity_env.core.spaces import ActionName, ObsSpace
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError
from entity_env.vec.batch_env.backend import BatchView, WorkerBatchEnv
from entity_env.vec.batch_env.source import BatchSource
from entity_env.vec.in_process.base import LocalBatch
from entity_env.vec.in_process.environments import EnvironmentBatch
from entity_env.vec.in_process.games import GameBatch
from entity_env.vec.options import VecOptions
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep, StepMemory, local_memory

ProcessBatch: TypeAlias = LocalBatch | WorkerBatchEnv
"""The environments of one worker process."""

CollectedStep: TypeAlias = BatchStep | BatchView

ActionValues: TypeAlias = Mapping[ActionName, NDArray[Any]]
"""Per action one value per actor, checked."""

_CELL_PIXELS = 16


class Backend(Protocol):
    """Steps environments in groups; those of one group always step together.

    A group is idle until `start_act` or `start_reset`, then busy until `collect`.
    """

    @property
    def groups(self) -> Sequence[range]:
        """The environments of every group, together all of them in order."""

    @property
    def num_agents(self) -> int:
        """Rows of each environment."""

    @property
    def spaces(self) -> Spaces:
        """Spaces of the observations and of every action."""

    @property
    def failures(self) -> dict[int, str]:
        """By environment, the reason of its last failure that a restart followed; "" if it was
        lost with its process. Unknown, and absent, where it raised in a worker."""

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Makes environments of a group begin a new episode, of a new run if there is one."""

    def start_act(self, group: int, values: ActionValues) -> None:
        """Makes a group perform its actions."""

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        """Waits until busy groups with at least `min_envs` environments are done; returns them."""

    def collect(self, groups: Sequence[int]) -> CollectedStep:
        """The step of groups that are done, which are idle again; a `WorkerError` if one failed."""

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        """Seed of an environment's current episode; if `is_over`, of the one that has ended."""

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        """Image that an `Environment` renders; None for other sources."""

    def statistics(self) -> list[WorkerStatistics]:
        """Totals of every group."""

    def close(self) -> None:
        """Ends all environments; may be called twice."""


Batch = TypeVar("Batch", bound=ProcessBatch)


class _InProcess(Generic[Batch]):
    """Base class of backends of one group in this process, which step in `wait`."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.spaces = batch.spaces
        self.num_agents = batch.num_agents
        self.num_steps = 0
        self.groups: Sequence[range] = [range(batch.num_envs)]
        self.failures: dict[int, str] = {}

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return self.batch.seed_of(env_id, is_over=is_over)

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        return render_env(self.batch, env_id)

    def statistics(self) -> list[WorkerStatistics]:
        return [
            WorkerStatistics(
                num_envs=self.batch.num_envs,
                num_steps=self.num_steps,
                games_s=self.batch.games_s,
                packing_s=self.batch.packing_s,
                num_restarts=self.batch.num_restarts,
            )
        ]

    def close(self) -> None:
        self.batch.close()


class InProcess(_InProcess[LocalBatch]):
    """Backend of games or `Environment`s in this process."""

    def __init__(self, batch: LocalBatch, step_timeout_s: float | None = None) -> None:
        super().__init__(batch)
        self.failures = batch.failures
        self._timeout = StepTimeout(step_timeout_s)
        num_rows = batch.num_envs * batch.num_agents
        # Two in turn: arrays of the previous step stay valid while the next one is written.
        self._memories = [local_memory(batch.num_envs, num_rows) for _ in range(2)]
        self._start: Callable[[], BatchStep] | None = None
        self._step: BatchStep | None = None

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        for env_id in env_ids:
            if env_id in runs:
                self.batch.seed_env(env_id, runs[env_id])
        self._start = partial(self.batch.reset, env_ids, self._next_memory())

    def start_act(self, group: int, values: ActionValues) -> None:
        chosen = {name: array.tolist() for name, array in values.items()}  # a copy
        self.num_steps += 1
        self._start = partial(self.batch.act, chosen, self._next_memory())

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        start, self._start = self._start, None
        if start is not None:
            with self._timeout:
                self._step = start()
        return list(groups)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        step, self._step = self._step, None
        if step is None:
            raise ProtocolError("nothing was started")
        return step

    def _next_memory(self) -> StepMemory:
        self._memories.reverse()
        return self._memories[0]


class BatchInProcess(_InProcess[WorkerBatchEnv]):
    """Backend of a batch environment in this process."""

    def __init__(self, batch: WorkerBatchEnv) -> None:
        super().__init__(batch)
        self.view = BatchView(batch)
        self._start: Callable[[], None] | None = None

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        for env_id, run in runs.items():
            self.batch.seed_env(env_id, run)
        self._start = partial(self.batch.begin, env_ids)

    def start_act(self, group: int, values: ActionValues) -> None:
        actions = self.batch.actions_of(values[self.batch.action]).copy()
        self.num_steps += 1
        self._start = partial(self.batch.advance, actions)

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        start, self._start = self._start, None
        if start is not None:
            begin = perf_counter()
            start()
            self.batch.games_s += perf_counter() - begin
        return list(groups)

    def collect(self, groups: Sequence[int]) -> BatchView:
        return self.view

    def count(self, games_s: float) -> None:
        """Counts a step, which took some seconds."""
        self.batch.games_s += games_s
        self.num_steps += 1


def make_process_batch(options: VecOptions, envs: range) -> ProcessBatch:
    """Some of the environments of a `VecEnv`, all in this process; errors as there."""
    if isinstance(options.source, BatchSource):
        return WorkerBatchEnv(options.source.make(len(envs)), options.autoreset, envs.start)
    if isinstance(options.source, Game):
        return GameBatch(options.source, options, envs)
    return EnvironmentBatch(options.source, options, envs)


def act_on(batch: ProcessBatch, values: ActionValues, memory: StepMemory) -> BatchStep:
    """Steps environments by one action per actor of their last step."""
    if isinstance(batch, WorkerBatchEnv):
        return batch.act(values, memory)
    return batch.act({name: array.tolist() for name, array in values.items()}, memory)


def render_env(batch: ProcessBatch, env_id: int) -> NDArray[np.uint8] | None:
    """Image that an `Environment` renders; None for other sources."""
    if isinstance(batch, EnvironmentBatch):
        return batch.environment(env_id).render()
    return None


def render_obs(batch: VecObs, obs_space: ObsSpace, row: int) -> NDArray[np.uint8]:
    """Image of one row of a batch on a grid, `(height, width, 3)` uint8, 16 pixels a cell, y up.

    Entity types without features x and y are left out; each of the others has its own colour.
    Coordinates are rounded, and shifted so that none is negative.
    """
    layers = []
    for i, (name, entity) in enumerate(obs_space.entities.items()):
        features = list(entity.features)
        if "x" in features and "y" in features:
            xy = batch.features[name][row][:, [features.index("x"), features.index("y")]]
            layers.append((_colour(i, len(obs_space.entities)), np.rint(xy).astype(np.int64)))
    cells = np.concatenate([cells for _, cells in layers] or [np.zeros((0, 2), dtype=np.int64)])
    low = np.minimum(cells.min(axis=0, initial=0), 0)
    size = cells.max(axis=0, initial=0) - low + 1
    grid = np.zeros((int(size[1]), int(size[0]), 3), dtype=np.uint8)
    for colour, cells in layers:
        grid[size[1] - 1 - (cells[:, 1] - low[1]), cells[:, 0] - low[0]] = colour
    return grid.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)


def _colour(index: int, count: int) -> list[int]:
    red, green, blue = colorsys.hsv_to_rgb(index / max(count, 1), 0.6, 1.0)
    return [int(255 * red), int(255 * green), int(255 * blue)]
