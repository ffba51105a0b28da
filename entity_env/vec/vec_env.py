"""VecEnv: many copies of a game or environment, stepped together."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.agents.channels.channel import Transport
from entity_env.authoring.game import Game
from entity_env.core.episode_stats import NO_EPISODES
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_count, checked_mask
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_env_base import Autoreset, VecEnvBase
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import ProtocolError, UsageError, shown
from entity_env.vec.executor import InProcess, make_executor, render_obs
from entity_env.vec.options import OnError, Source, VecOptions
from entity_env.vec.statistics import Stopwatch, VecStatistics
from entity_env.vec.step import CollectedStep, PendingBatch, begun_rows, lost_rows

if TYPE_CHECKING:
    from entity_env.replay.action_log import ActionLog, EpisodeWatch


class VecEnv(VecEnvBase):
    """Steps many copies of a game or environment together, as one batch.

    A game for several agents has one row per agent: row `env_id * num_agents + agent_id`.

    Args:
        source: a game, an `Environment` class, or a function that returns an `Environment`; or a
            source of array environments, such as `MultiSnakeBatch`.
        num_envs: number of copies.
        num_workers: number of processes that share the environments; 0 = in this process.
        seed: of the run; with the indices of environment and episode, it determines every episode's
            seed.
        autoreset: see `Autoreset`.
        transport: see `entity_env.agents.Transport`; None = the `Game`'s.
        on_error: reaction to a game that raises, hangs or dies; see `OnError`.
        step_timeout_s: seconds after which a step of a worker counts as hanging; None = no limit.
            Without workers, it ends only games that hang in Python and are stepped by the main
            thread; see `StepTimeout`.
        start_method: how workers are started, "forkserver" or "spawn"; None = the first available.
            The source is sent by cloudpickle, so lambdas work.
        start_timeout_s: maximum seconds for a worker to import the source and make its
            environments; None = no limit.
        failures: folder for replays of episodes of a `Game` that raised, hung or died, named
            `GAME-env12-episode3.replay`, at most 100; the error names the file. An episode that
            raised is replayed in this process to add its observations. None = no replays.

    Raises:
        UsageError: an invalid number or mode, or `failures` for a source that is not a `Game`.
        SchemaError: `source` is of another type.
        WorkerError: a worker could not be started.

    Arrays of a `VecObs` are views, valid until the next call that returns a `VecObs`. Without
    workers, games on the greenlet transport must be reset, stepped and closed by one thread.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        transport: Transport | None = None,
        on_error: OnError = "raise",
        step_timeout_s: float | None = None,
        start_method: str | None = None,
        start_timeout_s: float | None = 60.0,
        failures: str | Path | None = None,
    ) -> None:
        self._source, self._step_timeout_s = source, step_timeout_s
        self._log: ActionLog | None = None
        """Actions of the running episodes, if needed for replays."""
        if failures is not None:
            checked_count("num_envs", num_envs)
            self._log = self._new_log(num_envs, Path(failures))
        self._options = VecOptions(
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
        self._options.new_runs((), seed)  # refuses an invalid seed early
        self._executor = make_executor(self._options)
        self._local = self._executor if isinstance(self._executor, InProcess) else None
        super().__init__(num_envs, self._executor.num_agents, autoreset)
        self.can_reset_envs = self._executor.can_reset_envs
        self.num_workers = num_workers
        self._seed: int | None = seed
        """Seed of the run that the first reset starts."""
        self._runs: Mapping[int, Run] = {}
        """Runs of the reset in progress; left over if they have not begun everywhere."""
        self._is_settled = True
        """False while batches move between `_pending` and `_busy`.

        If an interrupt or error leaves it False, only `reset` works.
        """
        self._pending: list[PendingBatch] = []
        """Batches that wait for actions."""
        self._busy: dict[int, PendingBatch] = {}
        """Last batch of each busy group, in the order of `send`."""
        self._num_steps = 0
        self._num_env_steps = 0
        self._num_episodes = 0
        self._clock = Stopwatch()
        # CPython 3.11 never garbage-collects a suspended greenlet: close() raises GameExit in it.
        self._finalizer = weakref.finalize(self, self._executor.close)

    def obs_space(self) -> ObsSpace:
        return self._executor.spaces[0]

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._executor.spaces[1]

    @property
    def game(self) -> Game | None:
        """The game, if the source is a `Game`."""
        return self._source if isinstance(self._source, Game) else None

    def reset(self, seed: int | None = None, *, starts: ArrayLike | None = None) -> VecObs:
        """Starts a new episode in every environment, whatever its state.

        Args:
            seed: starts a new run; None continues with the next episodes of the run, or, in the
                first reset, starts the constructor's run. If Ctrl-C interrupted a reset, its run
                starts over, as it does if a step in progress or the start of a worker failed in it.
            starts: as for `reset_envs`.

        Raises:
            ClosedError: after `close`.
            SchemaError, UsageError: an invalid seed or invalid starts.
            WorkerError, SchemaError, ProtocolError: a game failed; another `reset` continues the
                run.
        """
        self._require_open()
        env_ids = range(self.num_envs)
        runs = self.runs_of(env_ids, self._seed if seed is None else seed, starts)
        return self._reset(env_ids, runs, {})

    def act(self, actions: VecActions) -> VecObs:
        """Performs an action for every actor of the last batch; returns the next batch.

        Args:
            actions: per action one value per actor, in the order of `action_masks[name].actors` of
                the last batch: a flat array, or a `RaggedArray` with the same lengths.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`; while an environment is over with autoreset disabled; or
                if some environments are busy or were received in separate batches.
            SchemaError: actions that do not fit; nothing has changed.
            WorkerError, SchemaError, ProtocolError: a game failed; call `reset`.
        """
        local = self._local
        if local is not None and self._is_settled and not self._busy and len(self._pending) == 1:
            return self._act_here(local, actions)
        self._require_open()
        if self._pending and (self._busy or len(self._pending) > 1):
            raise ProtocolError(
                "act needs all environments in one batch, but some were sent or received apart: "
                "continue with send and recv, or reset"
            )
        self.send(actions)
        return self.recv()

    def _act_here(self, local: InProcess, actions: VecActions) -> VecObs:
        """`send` and `recv` in one; for 64 CartPoles, two calls take twice as long."""
        clock, batch = self._clock, self._pending[0]
        clock.begin_call()
        values = local.batch.self_checked(actions, batch.obs)
        is_checked = values is None
        if values is None:
            values = self._checked(actions, batch)
        self._is_settled = False
        if self._log is not None:
            self._log.add(batch.envs, batch.obs.action_masks, values)
        clock.begin_wait()
        try:
            step = local.act(values)
        except Exception as error:
            if not is_checked and local.batch.is_whole:  # nothing has changed
                self._is_settled = True
                self._checked(actions, batch)  # raises, naming the environment
            self._require_open(error)
            if self._log is not None:
                self._log.fail(error)
            raise
        finally:
            clock.end_wait()
        self._num_steps += 1
        self._num_env_steps += self.num_envs
        if self.autoreset != "same_step":
            self._is_over[:] = step.is_over
        batch.obs = obs = self._vec_obs(step, self._env_id, self._agent_id, {0: batch})
        clock.end_call()
        self._is_settled = True
        return obs

    def _checked(self, actions: VecActions, batch: PendingBatch) -> dict[ActionName, NDArray[Any]]:
        if self.autoreset == "disabled":
            batch.require_running(self._is_over)
        masks = batch.obs.action_masks
        return checked_vec_actions(actions, masks, self._executor.spaces[1], batch.where)

    def send(self, actions: VecActions, env_ids: NDArray[np.int64] | None = None) -> None:
        """Sends an action for every actor of one batch, and returns at once.

        Args:
            actions: as in `act`, for the rows of that batch.
            env_ids: environments of that batch, as in its `env_id`; None = the batch that `recv`
                returned last.

        Raises:
            ClosedError: after `close`.
            ProtocolError: no such batch waits for actions, or one of its environments is over with
                autoreset disabled.
            SchemaError: actions that do not fit; nothing has changed.
        """
        try:
            self._send(actions, env_ids)
        except Exception as error:
            self._require_open(error)
            raise

    def _send(self, actions: VecActions, env_ids: NDArray[np.int64] | None) -> None:
        self._clock.begin_call()
        batch = self._pending_batch(env_ids)
        obs = batch.obs
        values = self._checked(actions, batch)
        self._is_settled = False
        if self._log is not None:
            self._log.add(batch.envs, obs.action_masks, values)
        self._pending.remove(batch)
        if len(batch.groups) == 1:
            self._executor.start_act(batch.groups[0], values)
        else:
            for group, first, last in batch.bounds():
                part = {
                    name: chosen[offsets[first] : offsets[last]]
                    for name, chosen in values.items()
                    for offsets in (obs.action_masks[name].actors.offsets,)
                }
                self._executor.start_act(group, part)
        for group in batch.groups:
            self._busy[group] = batch
        self._clock.end_call()
        self._is_settled = True

    def recv(self, min_envs: int | None = None) -> VecObs:
        """Waits for environments whose actions were sent, and returns all that are ready.

        Environments of a worker are ready together.

        Args:
            min_envs: minimum number to wait for; None = all with actions.

        Raises:
            ClosedError: after `close`.
            ProtocolError: no actions were sent.
            UsageError: `min_envs` is less than 1 or exceeds the number of busy environments.
            WorkerError, SchemaError, ProtocolError: a game failed; call `reset`.
        """
        self._require_open()
        if not self._busy:
            self._require_reset()
            raise ProtocolError("no actions were sent: call send before recv")
        busy = list(self._busy)
        num_busy = self._num_envs_of(busy)
        if min_envs is not None and not 1 <= min_envs <= num_busy:
            raise UsageError(f"min_envs must be from 1 to {num_busy}, got {min_envs}")
        self._clock.begin_call()
        self._is_settled = False
        try:
            groups = sorted(self._wait(busy, min_envs or num_busy))
            step = self._executor.collect(groups)
            previous = {group: self._busy.pop(group) for group in groups}
            self._num_steps += 1
            self._num_env_steps += self._num_envs_of(groups)
            return self._make_pending(groups, step, previous)
        except Exception as error:
            self._require_open(error)
            if self._log is not None:
                self._log.fail(error)
            raise

    def reset_envs(
        self,
        mask: NDArray[np.bool_] | Sequence[bool],
        seed: int | None = None,
        *,
        starts: ArrayLike | None = None,
    ) -> VecObs:
        """Starts a new episode in the chosen environments, whatever their state.

        An unfinished episode is abandoned: it is in neither `episodes` nor `final`, and its seed is
        not used again. All other environments show their observation again, with reward 0, and with
        flags only if they wait for their reset.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: of a new run in those environments; None continues their current runs.
            starts: `(num_envs,)` integers, only with a seed: environment i starts at episode
                `starts[i]` of the run that `Game.run` plays with this seed, which never occurs in
                training. Equal starts give equal episodes in any environment.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while some environments are busy.
            SchemaError, UsageError: an invalid mask, seed or starts.
            WorkerError, SchemaError, ProtocolError: a game failed; call `reset`.
        """
        env_ids = self._reset_ids(mask)
        previous = {group: batch for batch in self._pending for group in batch.groups}
        return self._reset(env_ids, self.runs_of(env_ids, seed, starts), previous)

    def _reset_ids(self, mask: NDArray[np.bool_] | Sequence[bool]) -> list[int]:
        """Environments to reset, after checks."""
        self._require_reset()
        if not self.can_reset_envs:
            raise ProtocolError(
                f"the environments of this {type(self).__name__} reset themselves and can only be "
                "reset all together: call reset"
            )
        if self._busy:
            raise ProtocolError("some environments are busy: call recv before reset_envs")
        return np.flatnonzero(checked_mask(mask, self.num_envs)).tolist()

    def runs_of(
        self, env_ids: Sequence[int], seed: int | None, starts: ArrayLike | None = None
    ) -> Mapping[int, Run]:
        """The runs that a reset starts: each has a seed and the index of its first episode.

        Args:
            seed, starts: as for `reset_envs`.

        Returns:
            Runs by environment; empty without a seed, which continues the current runs.

        Raises:
            SchemaError, UsageError: an invalid seed or invalid starts.
        """
        return self._options.new_runs(env_ids, seed, starts)

    def episode_seeds(self, env_ids: Iterable[int] | None = None) -> list[int] | None:
        """Seeds of the episodes in the last batch, as `Episode.seed` will report them.

        `game.play_episode(agent, seed=...)` and `entity-env play --episode-seed` repeat such an
        episode.

        Args:
            env_ids: None = all.

        Returns:
            One per environment; None if environments have one seed per sequence of
            episodes, as in a batch environment.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while environments are busy.
        """
        self._require_reset()
        if self._busy:
            raise ProtocolError("some environments are busy: call recv before episode_seeds")
        if not self._options.has_episode_seeds:
            return None
        env_ids = range(self.num_envs) if env_ids is None else env_ids
        return [self._executor.seed_of(i, is_over=bool(self._is_over[i])) for i in env_ids]

    def render(self, env_id: int = 0) -> NDArray[np.uint8]:
        """Image of one environment, `(height, width, 3)` uint8.

        An `Environment` draws itself. For other sources, entities with features x and y are drawn
        on a grid.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while the environment is busy.
            UsageError: no such environment.
            NotImplementedError: an `Environment` that cannot be drawn.
            WorkerError: an `Environment` failed to draw itself in a worker.
        """
        self._require_reset()
        if not 0 <= env_id < self.num_envs:
            raise UsageError(f"env_id must be from 0 to {self.num_envs - 1}, got {env_id}")
        for batch in self._pending:
            rows = np.flatnonzero(batch.obs.env_id == env_id)
            if len(rows):
                image = self._executor.render(env_id)
                if image is None:
                    return render_obs(batch.obs, self.obs_space(), int(rows[0]))
                return image
        raise ProtocolError(f"env {env_id} is busy: call recv before render")

    def watch_episodes(self, watch: EpisodeWatch) -> None:
        """Calls a function at the end of every game episode that was recorded from its start.

        Episodes are recorded from the first such call on, with `failures` from the constructor on.
        The function gets the `Episode` of every agent, once all have ended, and a function that
        makes their `Replay`: actions and ends, without observations. The replay can be made only
        until the function returns. Failed episodes are omitted, and so are episodes that an agent
        skipped, or whose actions no longer fit in the log.

        Args:
            watch: called within `recv` or `act`.

        Raises:
            UsageError: the source is not a `Game`.
            ReplayError: a setting of the game that a replay cannot store.
        """
        if self._log is None:
            self._log = self._new_log(self.num_envs)
            self._log.give_up_all()  # the first actions of running episodes are unknown
        self._log.watches.append(watch)

    @property
    def has_crashed(self) -> bool:
        """True if a game has hung in a worker, or crashed it, since recording of actions began."""
        return self._log is not None and self._log.has_crashed

    def statistics(self) -> VecStatistics:
        """Totals of steps, episodes and time so far."""
        return VecStatistics(
            num_steps=self._num_steps,
            num_env_steps=self._num_env_steps,
            num_episodes=self._num_episodes,
            transport_s=self._clock.transport_s,
            waiting_s=self._clock.waiting_s,
            caller_s=self._clock.caller_s,
            workers=self._executor.statistics(),
        )

    def close(self) -> None:
        """Ends every game, running `finally` blocks; may be called twice.

        With workers, a call that is waiting in another thread raises `ClosedError`. Workers that do
        not exit within 5 s in total are killed. In a fork of the creating process, workers are left
        alone.

        Raises:
            ProtocolError: a game does not end, or must be closed by another thread. All other games
                are closed.
        """
        self._is_closed = True
        self._forget()
        if self._finalizer.alive:
            self._executor.close()
            self._finalizer.detach()

    def _reset(
        self, env_ids: Sequence[int], runs: Mapping[int, Run], previous: Mapping[int, PendingBatch]
    ) -> VecObs:
        self._runs, self._seed = {**self._runs, **runs}, None
        begins = begun_rows(self.num_rows, previous) | np.isin(self._env_id, env_ids)
        self._clock.skip()
        self._is_settled = False
        try:
            self._drain()
            obs = self._begin(env_ids, self._runs, previous)
        except Exception as error:
            self._require_open(error)
            if self._log is not None:
                self._log.fail(error)
            raise
        self._runs = {}
        obs.begins = begins & ~obs.done
        return obs

    def _begin(
        self, env_ids: Sequence[int], runs: Mapping[int, Run], previous: Mapping[int, PendingBatch]
    ) -> VecObs:
        groups = list(range(len(self._executor.groups)))
        chosen = np.asarray(env_ids, dtype=np.int64)
        if self._log is not None:
            self._log.begin(env_ids)
        for group, envs in enumerate(self._executor.groups):
            mine = chosen[(chosen >= envs.start) & (chosen < envs.stop)]
            self._executor.start_reset(group, mine.tolist(), runs)
        try:
            self._wait(groups, self.num_envs)
            return self._make_pending(groups, self._executor.collect(groups), previous)
        except Exception:
            self._runs = {}  # begun everywhere: the next reset continues them
            raise

    def _make_pending(
        self, groups: list[int], step: CollectedStep, previous: Mapping[int, PendingBatch]
    ) -> VecObs:
        """Makes the `VecObs` of some groups and registers it as waiting for actions."""
        envs = [self._executor.groups[group] for group in groups]
        env_id, agent_id = self._env_id, self._agent_id
        if len(groups) == len(self._executor.groups):
            self._is_over[:] = step.is_over
        else:
            for batch in {id(batch): batch for batch in self._busy.values()}.values():
                batch.keep()
            rows = np.concatenate([np.arange(e.start, e.stop) for e in envs])
            self._is_over[rows] = step.is_over
            env_id = np.repeat(rows, self.num_agents)
            agent_id = np.tile(np.arange(self.num_agents), len(rows))
        obs = self._vec_obs(step, env_id, agent_id, previous)
        self._pending.append(PendingBatch(groups, envs, obs, self.num_agents))
        self._clock.end_call()
        self._is_settled = True
        return obs

    def _vec_obs(
        self,
        step: CollectedStep,
        env_id: NDArray[np.int64],
        agent_id: NDArray[np.int64],
        previous: Mapping[int, PendingBatch],
    ) -> VecObs:
        """The batch for the caller; counts its episodes."""
        lost = step.lost
        rows = None if lost is NO_EPISODES else lost_rows(lost, env_id, agent_id, previous)
        obs = step.vec_obs(env_id, agent_id, rows)
        obs.source = id(self)
        self._num_episodes += len(obs.episodes)
        if self._log is not None:
            self._log.end(step.ended_episodes, step.lost.episodes, self._executor.failures)
        return obs

    def _num_envs_of(self, groups: Sequence[int]) -> int:
        sizes = self._executor.groups
        return self.num_envs if len(groups) == len(sizes) else sum(len(sizes[i]) for i in groups)

    def _wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        self._clock.begin_wait()
        try:
            return self._executor.wait(groups, min_envs)
        finally:
            self._clock.end_wait()

    def _pending_batch(self, env_ids: NDArray[np.int64] | None) -> PendingBatch:
        self._require_open()
        if not self._pending:
            if self._busy:
                raise ProtocolError("actions were sent already: call recv before the next send")
            self._require_reset()
        if env_ids is None:
            batch = self._pending[-1]
        else:
            wanted = set(np.asarray(env_ids).tolist())
            found = [b for b in self._pending if b.env_ids() == wanted]
            if not found:
                raise ProtocolError(
                    "env_ids must be exactly the environments of one batch that waits for actions, "
                    f"got {len(wanted)} environments that do not form such a batch"
                )
            batch = found[0]
        return batch

    def _drain(self) -> None:
        """Waits for all busy groups and drops their steps."""
        busy = list(self._busy)
        self._forget()
        if busy:
            self._executor.collect(self._executor.wait(busy, self._num_envs_of(busy)))

    def _new_log(self, num_envs: int, failures: Path | None = None) -> ActionLog:
        from entity_env.replay.action_log import ActionLog  # takes 10 ms, rarely needed

        if not isinstance(self._source, Game):
            raise UsageError(
                "replays need a Game, which can repeat an episode from its seed and its actions; "
                f"the source of this {type(self).__name__} is {shown(self._source)}"
            )
        return ActionLog(self._source, num_envs, self._step_timeout_s, failures)

    def _forget(self) -> None:
        self._pending.clear()
        self._busy.clear()

    def _require_open(self, error: Exception | None = None) -> None:
        """Also drops all batches if a call was interrupted."""
        super()._require_open(error)
        if not self._is_settled:
            self._forget()
            self._is_settled = True

    def _require_reset(self) -> None:
        self._require_open()
        if not (self._pending or self._busy):
            self._raise_not_reset()
