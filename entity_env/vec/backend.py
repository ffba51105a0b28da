"""Backend: what steps the environments of a VecEnv, here or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channels.channel import Transport
from entity_env.authoring.game import Game
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.environment import Environment
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import ProtocolError, SchemaError
from entity_env.vec.batch_env.backend import BatchEnvShare
from entity_env.vec.batch_env.source import BatchSource
from entity_env.vec.in_process.base import LocalBatch, OnError
from entity_env.vec.in_process.environments import EnvironmentBatch
from entity_env.vec.in_process.games import GameBatch
from entity_env.vec.options import Autoreset
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep, LocalStepMemory, StepMemory

Source: TypeAlias = Game | Callable[[], Environment] | BatchSource
"""A game, an `Environment` class, a function that returns a new `Environment`, or what a
`BatchVecEnv` makes its environments with."""

Batch: TypeAlias = LocalBatch | BatchEnvShare
"""The environments of one process."""

Values: TypeAlias = Mapping[ActionName, NDArray[Any]]
"""Per action one value an actor, checked."""


class Backend(Protocol):
    """Steps environments in groups: those of one group always step together.

    A group is idle until `start_act` or `start_reset`, then busy until `collect`.
    """

    @property
    def groups(self) -> Sequence[range]:
        """The environments of every group, together all of them in order."""

    @property
    def num_agents(self) -> int:
        """Rows of each environment."""

    def obs_space(self) -> ObsSpace:
        """What can be observed."""

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        """Has some environments of a group begin a new episode, of a new run if there is one."""

    def start_act(self, group: int, values: Values) -> None:
        """Has a group perform its actions."""

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        """Waits until enough of the busy groups are done; returns those, the first one first."""

    def collect(self, groups: Sequence[int]) -> BatchStep:
        """What groups that are done show, side by side.

        Raises:
            WorkerError: one of them failed. All of them are idle again.
        """

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        """The picture that an `Environment` draws of itself; None for a game."""

    def statistics(self) -> list[WorkerStatistics]:
        """Totals of every group."""

    def close(self) -> None:
        """Ends everything; may be called twice."""


class InProcess:
    """All environments as one group, in this process: stepped when they are collected."""

    def __init__(self, batch: LocalBatch, step_timeout_s: float | None = None) -> None:
        self._batch = batch
        self._timeout = StepTimeout(step_timeout_s)
        num_rows = batch.num_envs * batch.num_agents
        # In turns, so that a step can look at what the one before it showed.
        self._memories = [LocalStepMemory(batch.num_envs, num_rows) for _ in range(2)]
        self._start: Callable[[], BatchStep] | None = None
        self._step: BatchStep | None = None
        self._num_steps = 0
        self.num_agents = batch.num_agents
        self.groups: Sequence[range] = [range(batch.num_envs)]

    def obs_space(self) -> ObsSpace:
        return self._batch.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._batch.action_space()

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        for env_id in env_ids:
            if env_id in runs:
                self._batch.seed_env(env_id, runs[env_id])
        self._start = partial(self._batch.reset, env_ids, self._next_memory())

    def start_act(self, group: int, values: Values) -> None:
        chosen = {name: array.tolist() for name, array in values.items()}  # as it is now
        self._start = partial(self._batch.act, chosen, self._next_memory())

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        start, self._start = self._start, None
        if start is not None:
            with self._timeout:
                self._step = start()
            self._num_steps += 1
        return list(groups)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        step, self._step = self._step, None
        if step is None:
            raise ProtocolError("nothing was started")
        return step

    def _next_memory(self) -> LocalStepMemory:
        self._memories.reverse()
        return self._memories[0]

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        return render_env(self._batch, env_id)

    def statistics(self) -> list[WorkerStatistics]:
        return [
            WorkerStatistics(
                num_envs=self._batch.num_envs,
                num_steps=self._num_steps,
                games_s=self._batch.games_s,
                packing_s=self._batch.packing_s,
                waiting_s=0.0,
                num_restarts=self._batch.num_restarts,
                num_bytes=0,
            )
        ]

    def close(self) -> None:
        self._batch.close()


def make_batch(
    source: Source,
    num_envs: int,
    autoreset: Autoreset,
    transport: Transport,
    on_error: OnError,
    first_env: int = 0,
) -> Batch:
    """Environments of one process; args as for `VecEnv`.

    Raises:
        SchemaError: `source` is nothing that can be run.
    """
    if isinstance(source, BatchSource):
        return BatchEnvShare(source.made(num_envs), autoreset, first_env)
    return local_batch(source, num_envs, autoreset, transport, on_error, first_env)


def act_on(batch: Batch, values: Values, memory: StepMemory) -> BatchStep:
    """Performs one action per actor of the last step, and shows the next one."""
    if isinstance(batch, BatchEnvShare):
        return batch.act(values, memory)
    return batch.act({name: array.tolist() for name, array in values.items()}, memory)


def local_batch(
    source: Game | Callable[[], Environment],
    num_envs: int,
    autoreset: Autoreset,
    transport: Transport,
    on_error: OnError,
    first_env: int = 0,
) -> LocalBatch:
    """The environments of this process, or of one worker."""
    require_source(source)
    if isinstance(source, Game):
        return GameBatch(source, num_envs, autoreset, transport, on_error, first_env)
    return EnvironmentBatch(source, num_envs, autoreset, on_error, first_env)


def require_source(source: object) -> None:
    """Checks that something can be run.

    Raises:
        SchemaError: it cannot.
    """
    if not isinstance(source, Game | BatchSource) and not callable(source):
        raise SchemaError(
            "a VecEnv needs a Game, an Environment class, or a function that returns an "
            f"Environment: got {source!r}"
        )


def render_env(batch: Batch, env_id: int) -> NDArray[np.uint8] | None:
    """The picture that an `Environment` draws of itself; None for whatever else."""
    if isinstance(batch, EnvironmentBatch):
        return batch.environment(env_id).render()
    return None
