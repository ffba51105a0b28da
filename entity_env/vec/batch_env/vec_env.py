"""BatchVecEnv: a batch environment as a `VecEnv`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import SchemaError
from entity_env.vec.backend import InProcess
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import BatchSource, made_or_factory, require_made
from entity_env.vec.batch_env.stepper import BatchEnvStepper
from entity_env.vec.vec_env import VecEnv


class BatchVecEnv(VecEnv):
    """Steps a batch environment as a `VecEnv`, so that the same trainers and tools work with it.

    Environment i is row i of the batch environment, and the row of its observation its only entity:
    `features` and `reward` are the environment's own arrays, without a copy. All else is as for
    `VecEnv`: autoreset, last observations in `final`, `reset_envs`, `send` and `recv`, workers,
    errors.

    Seeds are those of the batch environment: environment i begins a sequence of episodes from its
    seed of `BatchEnv.env_seeds`, or in `reset_envs` with `starts` from that of environment
    `starts[i]`. Its episodes report it as their seed, and their number in the sequence: a batch of
    one with that seed repeats them. With "next_step" every other episode is
    skipped, since a batch steps all environments or none, also those that are to show their first
    observation: from its second episode on, an environment plays other ones than in other modes.

        with BatchVecEnv(CartPole(4096)) as vec: ...
        with BatchVecEnv(CartPole, 4096, num_workers=2) as vec: ...

    Args:
        source: a batch environment, which is closed with this; or its class, or any function that
            takes a number of environments and returns a batch of that size.
        num_envs: how many copies; not needed for a batch environment.
        num_workers: processes that share the work, each with a batch environment for its part;
            0 = in this process. Results are the same.
        seed: seed of the run.
        autoreset: what happens to ended episodes; see `Autoreset`.
        step_timeout_s, start_method: as for `VecEnv`.

    Raises:
        UsageError: a number or mode that is not valid; or an object rather than a class, for
            workers.
        SchemaError: `source` is no batch environment and makes none, or its spaces are not one
            entity type and one action.
        WorkerError: a worker could not be started.
    """

    def __init__(
        self,
        source: BatchEnv | Callable[[int], BatchEnv],
        num_envs: int | None = None,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        step_timeout_s: float | None = None,
        start_method: str | None = None,
    ) -> None:
        make, num_envs = made_or_factory(
            source,
            num_envs,
            num_workers,
            BatchEnv,  # type: ignore[type-abstract]  # only asked for instances
            "BatchVecEnv",
        )
        super().__init__(
            BatchEnvSource(make),
            num_envs,
            num_workers,
            seed=seed,
            autoreset=autoreset,
            step_timeout_s=step_timeout_s,
            start_method=start_method,
        )
        batch = self._backend.batch if isinstance(self._backend, InProcess) else None
        self._steps = batch if isinstance(batch, BatchEnvStepper) else None
        """The environments, if they are in this process."""

    def act(self, actions: VecActions) -> VecObs:
        """Gives every environment its action and returns the next batch.

        Args:
            actions: `{name: values}`, one per environment that is not over: `(num_envs,)` integers
                for a categorical action, `(num_envs, 1)` floats for a continuous one.

        Raises:
            ClosedError, ProtocolError, SchemaError: as for `VecEnv.act`.
        """
        steps, plain = self._steps, self._plain(actions)
        if steps is None or plain is None:
            return super().act(actions)
        clock = self._clock
        clock.begin_call()
        begin = perf_counter()
        self._is_settled = False
        try:
            obs = steps.step(plain)
        except SchemaError:
            if not steps.is_whole:
                raise
            self._is_settled = True
            return super().act(actions)  # nothing has changed; raises with the environment's name
        waited = perf_counter() - begin
        clock.waiting_s += waited
        clock.transport_s -= waited
        steps.games_s += waited
        steps.num_steps += 1
        self._num_steps += 1
        self._num_env_steps += self.num_envs
        self._num_episodes += len(obs.episodes)
        if self.autoreset != "same_step":
            self._is_over[:] = False if steps.over is None else steps.over
        self._pending[0].obs = obs
        clock.end_call()
        self._is_settled = True
        return obs

    def _plain(self, actions: VecActions) -> NDArray[Any] | None:
        """Actions as the batch environment takes them; None for those that `VecEnv` must check."""
        steps = self._steps
        if steps is None or self._busy or len(self._pending) != 1 or not self._is_settled:
            return None
        if steps.over is not None or type(actions) is not dict or len(actions) != 1:
            return None
        given = actions.get(steps.action)
        if isinstance(given, RaggedArray):
            wanted = self._pending[0].obs.action_masks[steps.action].actors.lengths
            fits = given.lengths is wanted or np.array_equal(given.lengths, wanted)
            given = given.values if fits else None
        if not isinstance(given, np.ndarray):
            return None
        if isinstance(steps.space, ContinuousActionSpace):
            is_plain = given.shape == (self.num_envs, 1) and given.dtype.kind == "f"
            return given.reshape(-1) if is_plain else None
        return given if given.ndim == 1 and given.dtype.kind in "iu" else None


@dataclass(frozen=True)
class BatchEnvSource(BatchSource):
    """Source of batch environments: a class, or a function of the number of environments."""

    factory: Callable[[int], BatchEnv]

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> BatchEnvStepper:
        env = require_made(
            self.factory,
            len(envs),
            BatchEnv,  # type: ignore[type-abstract]
            "BatchVecEnv",
        )
        return BatchEnvStepper(env, autoreset, first_env=envs.start)
