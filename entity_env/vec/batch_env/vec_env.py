"""BatchVecEnv: a batch environment as a `VecEnv`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import Run
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import SchemaError, UsageError
from entity_env.vec.backend import BatchInProcess
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import SEED_BITS, BatchSource, sequence_runs
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
        batch_source, num_envs = _source(source, num_envs, num_workers)
        checked_seed(seed, bits=SEED_BITS)
        super().__init__(
            batch_source,
            num_envs,
            num_workers,
            seed=seed,
            autoreset=autoreset,
            step_timeout_s=step_timeout_s,
            start_method=start_method,
        )
        self._local = self._backend if isinstance(self._backend, BatchInProcess) else None

    def episode_seeds(self, env_ids: Iterable[int] | None = None) -> NDArray[np.int64] | None:
        """None: an episode of a batch is known by the seed of its sequence and its number."""
        return None

    def _new_runs(
        self, env_ids: Sequence[int], seed: int | None, starts: ArrayLike | None
    ) -> Mapping[int, Run]:
        return sequence_runs(env_ids, self.num_envs, seed, starts)

    def act(self, actions: VecActions) -> VecObs:
        """Gives every environment its action and returns the next batch.

        Args:
            actions: `{name: values}`, one per environment that is not over: `(num_envs,)` integers
                for a categorical action, `(num_envs, 1)` floats for a continuous one.

        Raises:
            ClosedError, ProtocolError, SchemaError: as for `VecEnv.act`.
        """
        local = self._local
        plain = None if local is None else self._plain(actions)
        if local is None or plain is None:
            return super().act(actions)
        clock = self._clock
        clock.begin_call()
        begin = perf_counter()
        self._is_settled = False
        try:
            local.batch.advance(plain)
        except SchemaError:
            if not local.batch.is_whole:
                raise
            self._is_settled = True
            return super().act(actions)  # nothing has changed; raises with the environment's name
        waited = perf_counter() - begin
        clock.waiting_s += waited
        clock.transport_s -= waited
        local.count(waited)
        return self._next(local)

    def _plain(self, actions: VecActions) -> NDArray[Any] | None:
        """Actions as the batch environment takes them; None for those that `VecEnv` must check."""
        if self._local is None or self._busy or len(self._pending) != 1 or not self._is_settled:
            return None
        steps = self._local.batch
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

    def _next(self, local: BatchInProcess) -> VecObs:
        """The `VecObs` of the last step, which waits for actions from now on."""
        over = local.batch.over
        self._num_steps += 1
        self._num_env_steps += self.num_envs
        obs = local.view.vec_obs(self._env_id, self._agent_id)
        self._num_episodes += len(obs.episodes)
        if self.autoreset != "same_step":
            self._is_over[:] = False if over is None else over
        self._pending[0].obs = obs
        self._clock.end_call()
        self._is_settled = True
        return obs


def _source(source: object, num_envs: int | None, num_workers: int) -> tuple[BatchSource, int]:
    """Factory of the environments, and their number; errors as for `BatchVecEnv`."""
    if isinstance(source, BatchEnv):
        if num_workers:
            raise UsageError(
                "a batch environment that was made already cannot be split over workers: pass "
                f"its class, or a function, as BatchVecEnv({type(source).__name__}, "
                f"{source.num_envs}, num_workers={num_workers})"
            )
        if num_envs not in (None, source.num_envs):
            raise UsageError(f"the batch environment has {source.num_envs} copies, not {num_envs}")
        return BatchSource(lambda _: source), source.num_envs
    if not callable(source):
        raise SchemaError(
            "a BatchVecEnv needs a BatchEnv, its class, or a function that takes a number of "
            f"environments and returns one: got {source!r}"
        )
    if num_envs is None:
        raise UsageError("num_envs is missing: how many environments are to be made?")
    return BatchSource(source), checked_count("num_envs", num_envs)
