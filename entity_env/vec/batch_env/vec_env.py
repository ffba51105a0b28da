"""BatchVecEnv: a batch environment, shown as a VecEnv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import SchemaError, UsageError
from entity_env.vec.batch_env.backend import BatchInProcess
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import BatchSource, require_seed, sequence_runs
from entity_env.vec.options import Autoreset
from entity_env.vec.reset_seeds import chosen_envs
from entity_env.vec.vec_env import VecEnv


class BatchVecEnv(VecEnv):
    """Shows a batch environment as a `VecEnv`: whatever learns from games learns from it.

    Environment i is row i, and its only entity the row of its observation: `features` are the
    environment's own array, without a copy, and `reward` is, too. All else is as for `VecEnv`:
    autoreset, last observations in `final`, `reset_envs`, `send` and `recv`, workers, errors.

    Seeds are those of the batch environment: environment i begins a sequence of episodes from
    `seed + i`, which is what its episodes report as their seed, with their number in the sequence.
    With "next_step" every other episode of it is passed over, since a batch cannot leave out the
    environments that begin while the others step: from its second one on, an environment plays
    other episodes than in the other modes.

        with BatchVecEnv(CartPole(4096)) as vec: ...
        with BatchVecEnv(CartPole, 4096, num_workers=2) as vec: ...

    Args:
        source: a batch environment, which is closed with this; or its class, or any function that
            takes a number of environments and returns one, of one kind whatever the number.
        num_envs: how many copies; left out for a batch environment, which has them.
        num_workers: processes that share the work, each with a batch of its own, of the
            environments that are its share; 0 = in this process. What comes of it is the same.
        seed: of the run.
        autoreset: what happens to ended episodes; see `Autoreset`.
        step_timeout_s, start_method: as for `VecEnv`.

    Raises:
        UsageError: a number or mode that makes no sense; a batch environment whose
            `supports_no_reset()` is False, or one that was made already, for workers.
        SchemaError: `source` is no batch environment and makes none, or one with other spaces than
            one entity type and one action for it.
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
        making, num_envs = _source(source, num_envs, num_workers)
        checked_seed(seed)
        require_seed(seed, num_envs)
        super().__init__(
            making,
            num_envs,
            num_workers,
            seed=seed,
            autoreset=autoreset,
            step_timeout_s=step_timeout_s,
            start_method=start_method,
        )
        self._here = self._backend if isinstance(self._backend, BatchInProcess) else None

    def reset(self, seed: int | None = None, *, starts: ArrayLike | None = None) -> VecObs:
        """Begins a new episode in every environment, whatever its state.

        Args:
            seed: environment i begins from `seed + i`; None goes on to the next episodes.
            starts: as for `reset_envs`.

        Raises:
            ClosedError: after `close`.
            SchemaError, UsageError: a seed or starts that make no sense.
        """
        self._require_open()
        env_ids = range(self.num_envs)
        runs = sequence_runs(env_ids, self.num_envs, self._seed if seed is None else seed, starts)
        return self._reset(env_ids, runs, {})

    def reset_envs(
        self,
        mask: NDArray[np.bool_] | Sequence[bool],
        seed: int | None = None,
        *,
        starts: ArrayLike | None = None,
    ) -> VecObs:
        """Begins a new episode in the chosen environments, with autoreset disabled.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: environment i begins from `seed + i`; None goes on.
            starts: `(num_envs,)` integers, with a seed: environment i begins from
                `seed + starts[i]`, so that equal starts are equal episodes.

        Raises:
            ClosedError, ProtocolError, SchemaError, UsageError: as for `VecEnv.reset_envs`.
        """
        if self.autoreset != "disabled" or self._answered:
            return super().reset_envs(mask, seed, starts=starts)  # says what is wrong
        self._require_reset()
        env_ids = chosen_envs(mask, self.num_envs)
        runs = sequence_runs(env_ids, self.num_envs, seed, starts)
        shown = {group: batch for batch in self._open for group in batch.groups}
        return self._reset(env_ids, runs, shown)

    def act(self, actions: VecActions) -> VecObs:
        """Gives every environment its action and returns the next batch.

        Args:
            actions: `{name: values}`, one an environment that is asked for one: `(num_envs,)`
                integers for choices, `(num_envs, 1)` floats for real numbers.

        Raises:
            ClosedError, ProtocolError, SchemaError: as for `VecEnv.act`.
        """
        here = self._here
        plain = None if here is None else self._plain(actions)
        if here is None or plain is None:
            return super().act(actions)
        clock = self._clock
        clock.begin_call()
        begin = perf_counter()
        self._is_settled = False
        try:
            here.steps.advance(plain)
        except SchemaError:
            if not here.steps.is_whole:
                raise
            self._is_settled = True
            return super().act(actions)  # nothing has changed, and it says what is wrong
        waited = perf_counter() - begin
        clock.waiting_s += waited
        clock.transport_s -= waited
        here.count(waited)
        return self._next(here)

    def _plain(self, actions: VecActions) -> NDArray[Any] | None:
        """The actions as the batch environment takes them; None for whatever is out of line."""
        if self._here is None or self._answered or len(self._open) != 1 or not self._is_settled:
            return None
        steps = self._here.steps
        if steps.over is not None or type(actions) is not dict or len(actions) != 1:
            return None
        given = actions.get(steps.action)
        if isinstance(given, RaggedArray):
            wanted = self._open[0].obs.action_masks[steps.action].actors.lengths
            fits = given.lengths is wanted or np.array_equal(given.lengths, wanted)
            given = given.values if fits else None
        if not isinstance(given, np.ndarray):
            return None
        if isinstance(steps.space, ContinuousActionSpace):
            is_plain = given.shape == (self.num_envs, 1) and given.dtype.kind == "f"
            return given.reshape(-1) if is_plain else None
        return given if given.ndim == 1 and given.dtype.kind in "iu" else None

    def _next(self, here: BatchInProcess) -> VecObs:
        """The batch that a step led to, which waits for actions now."""
        over = here.steps.over
        self._num_steps += 1
        self._num_env_steps += self.num_envs
        obs = here.vec_obs(self._env_id, self._agent_id)
        self._num_episodes += len(obs.episodes)
        if self.autoreset != "same_step":
            self._is_over[:] = False if over is None else over
        self._open[0].obs = obs
        self._clock.end_call()
        self._is_settled = True
        return obs


def _source(source: object, num_envs: int | None, num_workers: int) -> tuple[BatchSource, int]:
    """What makes the environments, and how many.

    Raises:
        UsageError, SchemaError: as for `BatchVecEnv`.
    """
    if isinstance(source, BatchEnv):
        if num_workers:
            raise UsageError(
                "a batch environment that was made already cannot be split over workers: hand over "
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
