"""Executors step the environments of a `VecEnv`, in this process or in workers."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.seeding import Run
from entity_env.core.spaces import ObsSpace, Spaces
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError
from entity_env.vec.in_process.make_batch import make_process_batch
from entity_env.vec.options import VecOptions
from entity_env.vec.process_batch import ActionValues, ProcessBatch
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import CollectedStep, StepMemory, local_memory

_CELL_PIXELS = 16


class Executor(Protocol):
    """Steps environments in groups; a group always steps together.

    A group is idle until `start_act` or `start_reset`, then busy until `collect`.
    """

    @property
    def groups(self) -> Sequence[range]:
        """Environments of every group; the groups cover all environments, in order."""

    @property
    def num_agents(self) -> int:
        """Number of rows per environment."""

    @property
    def can_reset_envs(self) -> bool:
        """True if some environments can be reset while others continue."""

    @property
    def spaces(self) -> Spaces:
        """Spaces of the observations and of every action."""

    @property
    def failures(self) -> dict[int, str]:
        """Reason of the last failure that led to a restart, by environment.

        An environment that raised in a worker is missing. If a worker died or hung, the environment
        that it was stepping, if any, has the reason; all others of that worker have "".
        """

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Starts a new episode in each of `env_ids`: of a new run for the keys of `runs`."""

    def start_act(self, group: int, values: ActionValues) -> None:
        """Starts a step of a group with these actions."""

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        """Waits until busy groups with at least `min_envs` environments are done; returns them."""

    def collect(self, groups: Sequence[int]) -> CollectedStep:
        """Step of finished groups, which become idle; raises `WorkerError` if one failed."""

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        """Seed of the current episode; if `is_over`, of the episode that has ended."""

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        """Image rendered by an `Environment`; None for other sources."""

    def statistics(self) -> list[WorkerStatistics]:
        """Totals of every group."""

    def close(self) -> None:
        """Ends all environments; may be called twice."""


class InProcess:
    """Executor of one group in this process; steps in `wait` or `act`."""

    def __init__(self, batch: ProcessBatch, step_timeout_s: float | None = None) -> None:
        self.batch = batch
        self.spaces = batch.spaces
        self.num_agents = batch.num_agents
        self.can_reset_envs = batch.can_reset_envs
        self.groups: Sequence[range] = [range(batch.num_envs)]
        self.failures = batch.failures
        self._timeout = StepTimeout(step_timeout_s)
        self._has_no_timeout = step_timeout_s is None
        num_rows = batch.num_envs * batch.num_agents
        # Alternating: arrays of the previous step stay valid while the next is written.
        self._memories = [local_memory(batch.num_envs, num_rows) for _ in range(2)]
        self._start: Callable[[], CollectedStep] | None = None
        self._step: CollectedStep | None = None
        self._is_closed = False

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        for env_id in env_ids:
            if env_id in runs:
                self.batch.seed_env(env_id, runs[env_id])
        self._start = partial(self.batch.reset, env_ids, self._next_memory())

    def start_act(self, group: int, values: ActionValues) -> None:
        self.batch.num_steps += 1
        actions = {name: array.copy() for name, array in values.items()}
        self._start = partial(self.batch.act, actions, self._next_memory())

    def act(self, values: ActionValues) -> CollectedStep:
        """`start_act`, `wait` and `collect` in one, without a copy of the actions."""
        batch, memories = self.batch, self._memories
        batch.num_steps += 1
        memories.reverse()
        if self._has_no_timeout:
            return batch.act(values, memories[0])
        with self._timeout:
            return batch.act(values, memories[0])

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        start, self._start = self._start, None
        if start is not None:
            with self._timeout:
                self._step = start()
        return list(groups)

    def collect(self, groups: Sequence[int]) -> CollectedStep:
        step, self._step = self._step, None
        if step is None:
            raise ProtocolError("nothing was started")
        return step

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return self.batch.seed_of(env_id, is_over=is_over)

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        return self.batch.render(env_id)

    def statistics(self) -> list[WorkerStatistics]:
        return [
            WorkerStatistics(
                num_envs=self.batch.num_envs,
                num_steps=self.batch.num_steps,
                games_s=self.batch.games_s,
                packing_s=self.batch.packing_s,
                num_restarts=self.batch.num_restarts,
            )
        ]

    def close(self) -> None:
        if self._is_closed:
            return
        try:
            self.batch.close()
        except Exception as error:
            # A second call repeats only what another thread can do: it also runs at exit.
            self._is_closed = not isinstance(error, ProtocolError)
            raise
        self._is_closed = True

    def _next_memory(self) -> StepMemory:
        self._memories.reverse()
        return self._memories[0]


def make_executor(options: VecOptions) -> Executor:
    """Executor of all environments of a `VecEnv`."""
    if options.num_workers:
        from entity_env.vec.workers.pool import WorkerPool  # importing multiprocessing takes 20 ms

        return WorkerPool(options)
    batch = make_process_batch(options, range(options.num_envs))
    return InProcess(batch, None if batch.limits_steps else options.step_timeout_s)


def render_obs(batch: VecObs, obs_space: ObsSpace, row: int) -> NDArray[np.uint8]:
    """Image of one row of a batch on a grid, `(height, width, 3)` uint8, 16 pixels per cell, y up.

    Omits entity types without features x and y; each of the others has its own color.
    Coordinates are rounded, and shifted to be nonnegative.
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
