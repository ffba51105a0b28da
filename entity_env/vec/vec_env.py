"""VecEnv: many copies of a game or environment, stepped together."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.agents.channels.channel import Transport, require_transport
from entity_env.authoring.step_timeout import require_timeout
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_count, checked_seed, require_choice
from entity_env.core.vec_actions import checked_actions
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import ClosedError, ProtocolError, UsageError
from entity_env.vec.backend import Backend, InProcess, Source, local_batch, require_source
from entity_env.vec.batch_env.backend import BatchInProcess
from entity_env.vec.batch_env.source import BatchSource
from entity_env.vec.batch_env.stepper import BatchEnvSteps
from entity_env.vec.in_process.base import OnError
from entity_env.vec.options import Autoreset
from entity_env.vec.pending_batch import Delivered, lost_rows
from entity_env.vec.render import picture
from entity_env.vec.reset_seeds import chosen_envs, new_runs
from entity_env.vec.statistics import Stopwatch, VecStatistics
from entity_env.vec.step import BatchStep


class VecEnv:
    """Steps many copies of a game or environment together, and shows them as one batch.

    A game for several agents has one row an agent: row `env_id * num_agents + agent_id`.

    Args:
        source: what to run.
        num_envs: how many copies.
        num_workers: processes that share the work, each with its share of the environments;
            0 = in this process.
        seed: seed of the run: the seed of every episode follows from it, the index of the
            environment and the number of the episode.
        autoreset: what happens to ended episodes; see `Autoreset`.
        transport: how games wait for their actions; see `entity_env.agents.Transport`.
        on_error: what happens when a game raises, hangs or dies; see `OnError`.
        step_timeout_s: seconds that a step of a worker may take before it counts as hanging;
            None = for ever. Without workers a game that hangs in Python is ended by SIGALRM, if
            the main thread steps it; one that hangs in C is not.
        start_method: how workers are started, "forkserver" or "spawn"; None = the first that
            there is. Whatever can be sent by cloudpickle can be run, lambdas too.
        start_timeout_s: seconds that a worker may take to import what it runs and to make its
            environments; None = for ever.

    Raises:
        UsageError: a number or mode that makes no sense.
        SchemaError: `source` is nothing that can be run.
        WorkerError: a worker could not be started.

    Arrays of a `VecObs` are views that stay valid until the next call that returns one. Without
    workers, the thread that resets games on the greenlet transport must step and close them.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        transport: Transport = "greenlet",
        on_error: OnError = "raise",
        step_timeout_s: float | None = None,
        start_method: str | None = None,
        start_timeout_s: float | None = 60.0,
    ) -> None:
        checked_seed(seed)  # a bad one fails here rather than at the first reset
        self._backend = make_backend(
            source,
            num_envs,
            num_workers,
            autoreset,
            transport,
            on_error,
            step_timeout_s,
            start_method,
            start_timeout_s,
        )
        self.num_envs = num_envs
        self.num_workers = num_workers
        self.num_agents = self._backend.num_agents
        self.num_rows = num_envs * self.num_agents
        self.autoreset = autoreset
        self._env_id, self._agent_id = np.divmod(np.arange(self.num_rows), self.num_agents)
        self._seed: int | None = seed
        """Of the run that the first reset begins."""
        self._runs: Mapping[int, Run] = {}
        """Those of a reset that an interrupt has cut off, or may cut off now."""
        self._is_settled = True
        """Nothing is under way between `_open` and `_answered`. If an interrupt or an error leaves
        it false, nothing can be gone on with."""
        self._open: list[Delivered] = []
        """Batches that were returned and not answered yet."""
        self._answered: dict[int, Delivered] = {}
        """The batch that each busy group showed last, in the order of `send`."""
        self._is_over = np.zeros(num_envs, dtype=np.bool_)
        self._is_closed = False
        self._num_steps = 0
        self._num_env_steps = 0
        self._num_episodes = 0
        self._clock = Stopwatch()
        # Suspended games are not collected by themselves: their owner has to throw them out.
        self._finalizer = weakref.finalize(self, self._backend.close)

    def obs_space(self) -> ObsSpace:
        """What can be observed."""
        return self._backend.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""
        return self._backend.action_space()

    def reset(self, seed: int | None = None, *, starts: ArrayLike | None = None) -> VecObs:
        """Begins a new episode in every environment, whatever its state.

        Args:
            seed: begins a new run with this seed; None goes on to the next episodes of the run. The
                run of a reset that was interrupted (Ctrl-C) is begun once more.
            starts: as for `reset_envs`.

        Raises:
            ClosedError: after `close`.
            SchemaError, UsageError: a seed or starts that make no sense.
            WorkerError: a game raised; `reset` again goes on to the next episodes.
        """
        self._require_open()
        env_ids = range(self.num_envs)
        runs = new_runs(env_ids, self.num_envs, self._seed if seed is None else seed, starts)
        return self._reset(env_ids, runs, {})

    def act(self, actions: VecActions) -> VecObs:
        """Gives every actor of the last batch its action and returns the next batch.

        Args:
            actions: per action one value an actor, in the order of `action_masks[name].actors` of
                the last batch: a flat array, or a `RaggedArray` with the same lengths.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`; while an environment is over and autoreset disabled; or
                when some environments are under way, or were received apart from others.
            SchemaError: actions that do not fit; nothing has happened then, and a right call works.
            WorkerError: a game raised; `reset` begins anew.
        """
        self._require_open()
        if self._open and (self._answered or len(self._open) > 1):
            raise ProtocolError(
                "act answers all environments at once, but some were sent or received apart: "
                "go on with send and recv, or reset"
            )
        self.send(actions)
        return self.recv()

    def send(self, actions: VecActions, env_ids: NDArray[np.int64] | None = None) -> None:
        """Gives every actor of one batch its action, and returns at once.

        Args:
            actions: as in `act`, for the rows of that batch.
            env_ids: the environments of the batch that is answered, as in its `env_id`; the last
                one that `recv` returned when left out.

        Raises:
            ClosedError: after `close`.
            ProtocolError: no such batch waits for actions, or an environment of it is over and
                autoreset disabled.
            SchemaError: actions that do not fit; nothing has happened then, and a right call works.
        """
        try:
            self._send(actions, env_ids)
        except Exception as error:
            self._require_open(error)
            raise

    def _send(self, actions: VecActions, env_ids: NDArray[np.int64] | None) -> None:
        self._clock.begin_call()
        batch = self._answerable(env_ids)
        obs = batch.obs
        values = checked_actions(actions, obs.action_masks, self.action_space(), batch.where)
        self._is_settled = False
        self._open.remove(batch)
        if len(batch.groups) == 1:
            self._backend.start_act(batch.groups[0], values)
        else:
            for group, first, last in batch.bounds():
                share = {
                    name: chosen[offsets[first] : offsets[last]]
                    for name, chosen in values.items()
                    for offsets in (obs.action_masks[name].actors.offsets,)
                }
                self._backend.start_act(group, share)
        for group in batch.groups:
            self._answered[group] = batch
        self._clock.end_call()
        self._is_settled = True

    def recv(self, min_envs: int | None = None) -> VecObs:
        """Waits for environments whose actions were sent, and returns those that are ready.

        The first to be sent come first, and all that are ready come, so that none waits for ever.
        Environments of one worker are ready together.

        Args:
            min_envs: how many to wait for at least; all that were sent when left out.

        Raises:
            ClosedError: after `close`.
            ProtocolError: none were sent.
            UsageError: more than were sent.
            WorkerError: a game raised; `reset` begins anew.
        """
        self._require_open()
        if not self._answered:
            self._require_reset()
            raise ProtocolError("no actions were sent: call send before recv")
        busy = list(self._answered)
        num_busy = sum(len(self._backend.groups[group]) for group in busy)
        if min_envs is not None and not 1 <= min_envs <= num_busy:
            raise UsageError(f"min_envs must be from 1 to {num_busy}, got {min_envs}")
        self._clock.begin_call()
        self._is_settled = False
        try:
            groups = sorted(self._wait(busy, min_envs or num_busy))
            step = self._backend.collect(groups)
            previous = {group: self._answered.pop(group) for group in groups}
            self._num_steps += 1
            self._num_env_steps += sum(len(self._backend.groups[group]) for group in groups)
            return self._deliver(groups, step, previous)
        except Exception as error:
            self._require_open(error)
            raise

    def reset_envs(
        self,
        mask: NDArray[np.bool_] | Sequence[bool],
        seed: int | None = None,
        *,
        starts: ArrayLike | None = None,
    ) -> VecObs:
        """Begins a new episode in the chosen environments, with autoreset disabled.

        All others show once more what they showed last, with the same flags, but a reward of 0 and
        nothing in `episodes`.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: begins a new run with this seed in those environments; None goes on.
            starts: `(num_envs,)` integers, with a seed: begin with this episode of environment 0's
                run, so that equal starts are equal episodes, whichever environment plays them.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, while some environments are under way, or with autoreset
                on.
            SchemaError, UsageError: a mask, seed or starts that make no sense.
            WorkerError: a game raised; `reset` begins anew.
        """
        if self.autoreset != "disabled":
            raise ProtocolError(
                f'reset_envs needs autoreset="disabled", this VecEnv has {self.autoreset!r}'
            )
        self._require_reset()
        if self._answered:
            raise ProtocolError("some environments are under way: call recv before reset_envs")
        env_ids = chosen_envs(mask, self.num_envs)
        runs = new_runs(env_ids, self.num_envs, seed, starts)
        shown = {group: batch for batch in self._open for group in batch.groups}
        return self._reset(env_ids, runs, shown)

    def render(self, env_id: int = 0) -> NDArray[np.uint8]:
        """Draws one environment as `(height, width, 3)` uint8.

        An `Environment` draws itself; of a game, the entities with features x and y are drawn on a
        grid.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while the environment is under way.
            UsageError: no such environment.
            NotImplementedError: an `Environment` that cannot be drawn.
        """
        self._require_reset()
        if not 0 <= env_id < self.num_envs:
            raise UsageError(f"env_id must be from 0 to {self.num_envs - 1}, got {env_id}")
        for batch in self._open:
            rows = np.flatnonzero(batch.obs.env_id == env_id)
            if len(rows):
                drawn = self._backend.render(env_id)
                return (
                    picture(batch.obs, self.obs_space(), int(rows[0])) if drawn is None else drawn
                )
        raise ProtocolError(f"env {env_id} is under way: call recv before render")

    def statistics(self) -> VecStatistics:
        """Where the time went so far."""
        return VecStatistics(
            num_steps=self._num_steps,
            num_env_steps=self._num_env_steps,
            num_episodes=self._num_episodes,
            transport_s=self._clock.transport_s,
            waiting_s=self._clock.waiting_s,
            caller_s=self._clock.caller_s,
            workers=self._backend.statistics(),
        )

    def close(self) -> None:
        """Ends every game, so that their `finally` blocks run; may be called twice.

        A call that another thread waits in, with workers, ends with a `ClosedError`. Workers that
        do not leave within 5 s in all are killed. In a fork of the process that made this, it does
        nothing.

        Raises:
            ProtocolError: a game refuses to leave, or another thread must close it. All others are
                closed all the same.
        """
        self._is_closed = True
        self._forget()
        if self._finalizer.alive:
            self._backend.close()
            self._finalizer.detach()

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reset(
        self, env_ids: Sequence[int], runs: Mapping[int, Run], previous: Mapping[int, Delivered]
    ) -> VecObs:
        if self._runs:
            runs = {**self._runs, **runs}
        self._runs, self._seed = runs, None
        self._clock.skip()
        self._is_settled = False
        try:
            self._drain()
            obs = self._begin(env_ids, runs, previous)
        except Exception as error:
            self._runs = {}
            self._require_open(error)
            raise
        self._runs = {}
        return obs

    def _begin(
        self, env_ids: Sequence[int], runs: Mapping[int, Run], previous: Mapping[int, Delivered]
    ) -> VecObs:
        groups = range(len(self._backend.groups))
        chosen = np.asarray(env_ids, dtype=np.int64)
        for group in groups:
            envs = self._backend.groups[group]
            mine = chosen[(chosen >= envs.start) & (chosen < envs.stop)]
            self._backend.start_reset(group, mine.tolist(), runs)
        self._wait(groups, self.num_envs)
        return self._deliver(list(groups), self._backend.collect(groups), previous)

    def _deliver(
        self, groups: list[int], step: BatchStep, previous: Mapping[int, Delivered]
    ) -> VecObs:
        """Makes the batch that some groups show, and remembers that it waits for actions."""
        envs = [self._backend.groups[group] for group in groups]
        env_id, agent_id = self._env_id, self._agent_id
        if len(groups) == len(self._backend.groups):
            self._is_over[:] = step.is_over
        else:
            for batch in {id(batch): batch for batch in self._answered.values()}.values():
                batch.keep()
            rows = np.concatenate([np.arange(e.start, e.stop) for e in envs])
            self._is_over[rows] = step.is_over
            env_id = np.repeat(rows, self.num_agents)
            agent_id = np.tile(np.arange(self.num_agents), len(rows))
        lost = lost_rows(step, env_id, agent_id, previous) if step.lost else None
        obs = step.vec_obs(env_id, agent_id, lost)
        self._num_episodes += len(obs.episodes)
        self._open.append(Delivered(groups, envs, obs, self.num_agents))
        self._clock.end_call()
        self._is_settled = True
        return obs

    def _wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        self._clock.begin_wait()
        try:
            return self._backend.wait(groups, min_envs)
        finally:
            self._clock.end_wait()

    def _answerable(self, env_ids: NDArray[np.int64] | None) -> Delivered:
        """The batch that actions are for."""
        self._require_open()
        if not self._open:
            if self._answered:
                raise ProtocolError("actions were sent already: call recv before the next send")
            self._require_reset()
        if env_ids is None:
            batch = self._open[-1]
        else:
            wanted = set(np.asarray(env_ids).tolist())
            found = [b for b in self._open if b.env_ids() == wanted]
            if not found:
                raise ProtocolError(
                    "actions must answer exactly the environments of one batch that recv returned; "
                    f"got {len(wanted)} environments that no batch shows together"
                )
            batch = found[0]
        if self.autoreset == "disabled":
            batch.require_going_on(self._is_over)
        return batch

    def _drain(self) -> None:
        """Waits for whatever is under way, and drops it."""
        busy = list(self._answered)
        self._forget()
        if busy:
            num_envs = sum(len(self._backend.groups[group]) for group in busy)
            self._backend.collect(self._backend.wait(busy, num_envs))

    def _forget(self) -> None:
        self._open.clear()
        self._answered.clear()

    def _require_open(self, error: Exception | None = None) -> None:
        """Checks that this is open, and that nothing is left of what was cut off.

        Args:
            error: what a call has failed of, perhaps because another thread has closed this.
        """
        if self._is_closed:
            raise ClosedError("this VecEnv is closed: make a new one") from error
        if not self._is_settled:
            self._forget()
            self._is_settled = True

    def _require_reset(self) -> None:
        self._require_open()
        if not (self._open or self._answered):
            raise ProtocolError("nothing is being played: call reset first")


def make_backend(
    source: Source,
    num_envs: int,
    num_workers: int,
    autoreset: Autoreset,
    transport: Transport,
    on_error: OnError,
    step_timeout_s: float | None,
    start_method: str | None,
    start_timeout_s: float | None,
) -> Backend:
    """What a `VecEnv` of these arguments runs on.

    Raises:
        UsageError: a number or mode that makes no sense.
        SchemaError: `source` is nothing that can be run.
        WorkerError: a worker could not be started.
    """
    require_choice("autoreset", autoreset, get_args(Autoreset))
    require_choice("on_error", on_error, get_args(OnError))
    require_transport(transport)
    require_timeout(step_timeout_s)
    checked_count("num_envs", num_envs)
    checked_count("num_workers", num_workers, 0)
    require_timeout(start_timeout_s, "start_timeout_s")
    require_source(source)
    if num_workers > num_envs:
        raise UsageError(f"num_workers must be at most num_envs, got {num_workers} for {num_envs}")
    if isinstance(source, BatchSource) and not num_workers:
        return BatchInProcess(BatchEnvSteps(source.made(num_envs), autoreset))
    if not isinstance(source, BatchSource) and not num_workers:
        batch = local_batch(source, num_envs, autoreset, transport, on_error)
        return InProcess(batch, step_timeout_s)
    from entity_env.vec.workers.pool import Workers  # multiprocessing takes 20 ms to import

    return Workers(
        source,
        num_envs,
        num_workers,
        autoreset,
        transport,
        on_error,
        step_timeout_s,
        start_method,
        start_timeout_s,
    )
