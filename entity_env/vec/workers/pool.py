"""Workers: environments stepped by processes that share memory with this one."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.util import Finalize
from threading import get_ident
from time import monotonic, sleep
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channels.channel import Transport
from entity_env.batching.frame import FrameLayout, concat_frames
from entity_env.core.episode import Episode
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import (
    ClosedError,
    EntityEnvError,
    ProtocolError,
    UsageError,
    WorkerError,
)
from entity_env.vec.backend import Source, Values
from entity_env.vec.episode_stats import Ended, Endings
from entity_env.vec.in_process.base import ERROR_METRIC, OnError
from entity_env.vec.options import Autoreset
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep, merge_metrics
from entity_env.vec.workers.doorbell import Wake, wait_all, wait_any
from entity_env.vec.workers.handle import Link, Plan, split
from entity_env.vec.workers.protocol import HEADER_BYTES, Reset, pickled
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.start import start_context
from entity_env.vec.workers.step_buffers import Rows

_logger = logging.getLogger(__name__)

_END_TIMEOUT_S: Final = 5.0
"""How long `close` takes at most, whatever the workers do."""
_LEAVE_TIMEOUT_S: Final = 4.0
"""How long it waits for games that think, so that others have time left to be unwound."""
_LOOK_S: Final = 0.2
"""How often a thread that waits looks whether another one has closed the workers."""
_MAX_REPLACEMENTS: Final = 5
"""New workers that die in a row, without a step in between, until that is an error."""


class Workers:
    """Environments in worker processes; each worker is a group. Args as for `VecEnv`.

    Raises:
        UsageError: a start method that there is not.
        WorkerError: a worker cannot be started, or the source cannot be sent to it.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int,
        autoreset: Autoreset,
        transport: Transport,
        on_error: OnError,
        step_timeout_s: float | None,
        start_method: str | None,
        start_timeout_s: float | None,
    ) -> None:
        try:
            context = start_context(start_method)
        except ValueError as error:
            raise UsageError(str(error)) from error
        self.groups: Sequence[range] = split(num_envs, num_workers)
        self._on_error = on_error
        self._step_timeout_s = step_timeout_s
        self._start_timeout_s = start_timeout_s
        self._process = os.getpid()
        """The process that the workers belong to."""
        self._thread: int | None = None
        """The thread that waits for workers."""
        self._is_closing = False
        self._plan = Plan(context, pickled(source), num_envs, autoreset, transport, on_error)
        self._header = SharedBlock.create(HEADER_BYTES * num_workers)
        self._rows_block: SharedBlock | None = None
        self._links: list[Link] = []
        self._before = [WorkerStatistics(len(envs), 0, 0.0, 0.0, 0.0, 0, 0) for envs in self.groups]
        """Totals of those that other workers have replaced."""
        self._seeds = [EpisodeSeeds(0, env_id) for env_id in range(num_envs)]
        self._lost: dict[int, list[Ended]] = {}
        """Episodes that were lost with the workers that others have replaced, not told yet."""
        # Before multiprocessing ends its children, which would not unwind their games.
        self._at_exit = Finalize(self, _close_at_exit, (weakref.ref(self),), exitpriority=0)
        try:
            self._start(num_envs)
        except BaseException:
            self.close()
            raise

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._action_space

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        self._require_own_process()
        link = self._idle(group)
        begun: dict[int, Run] = {}
        for env_id in env_ids:
            rows = self._rows_of(env_id)
            if env_id in runs:
                self._seeds[env_id], self._numbers[rows] = runs[env_id]
                begun[env_id - link.envs.start] = runs[env_id]
            else:
                self._numbers[rows] = self._next_number(env_id)
            self._is_playing[rows] = False
            self._earned[rows] = 0
            self._lengths[rows] = 0
        if not link.is_ready:
            link.end()
            self._lose(link)
            link = self._replace(group)
            env_ids, begun = link.envs, self._runs_of(link)
        local = [env_id - link.envs.start for env_id in env_ids]
        link.reset(Reset(local, begun), self._step_timeout_s)

    def start_act(self, group: int, values: Values) -> None:
        self._require_own_process()
        rows = self._rows_in(group)
        self._lengths[rows] += self._is_asked[rows]
        self._idle(group).act(values, self._step_timeout_s)

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        self._require_own_process()
        links = [self._links[group] for group in groups]
        self._thread = get_ident()
        try:
            return self._wait(links, min_envs)
        finally:
            self._thread = None

    def _wait(self, links: Sequence[Link], min_envs: int) -> list[int]:
        if min_envs == sum(len(link.envs) for link in links):
            bells = [link.bell for link in links if link.error is None]
            if wait_all(bells, self._patience_s(links)) is Wake.RUNG:
                return [link.index for link in links]
        while True:
            done = [link for link in links if link.error is not None or link.bell.is_rung]
            if sum(len(link.envs) for link in done) >= min_envs:
                return [link.index for link in done]
            if self._is_closing:
                raise ClosedError("this VecEnv was closed by another thread")
            pending = [link for link in links if link not in done]
            wake = wait_any([link.bell for link in pending], self._patience_s(pending))
            if wake is Wake.PEER_GONE:
                for link in pending:
                    if not link.bell.is_rung and link.bell.is_peer_gone():
                        link.died()
            elif wake is Wake.TIMED_OUT:
                for link in pending:
                    if link.deadline is not None and link.deadline <= monotonic():
                        link.hangs(self._step_timeout_s or 0.0)

    def _patience_s(self, links: Sequence[Link]) -> float:
        """How long to wait until one of the workers counts as hanging, or another thread may have
        closed all of them."""
        deadlines = [link.deadline for link in links if link.deadline is not None]
        left_s = min(deadlines) - monotonic() if deadlines else _LOOK_S
        return min(max(left_s, 0.0), _LOOK_S)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        told = [(self._links[group], self._links[group].read()) for group in groups]
        steps: dict[int, BatchStep] = {}
        failed: EntityEnvError | None = None
        for link, step in told:
            if isinstance(step, BatchStep):
                steps[link.index] = step
            elif self._on_error == "restart" and link.error is not None:
                _logger.warning("%s; its environments begin their next episodes", step)
                steps[link.index] = self._recover(link)
            else:
                failed = failed or self._placed(step)
                rows = self._rows_in(link.index)
                self._numbers[rows] = self._rows.numbers[rows]
        if failed is not None:  # whoever has stepped all the same is counted
            for group, step in steps.items():
                self._count([group], self._side_by_side({group: step}))
            raise failed
        together = self._side_by_side(steps)
        self._count(groups, together)
        return together

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        group = next(i for i, envs in enumerate(self.groups) if env_id in envs)
        self._require_own_process()
        link = self._idle(group)
        link.render(env_id - link.envs.start, self._step_timeout_s)
        self.wait([group], 1)
        drawn: NDArray[np.uint8] | None = link.drawn()
        return drawn

    def statistics(self) -> list[WorkerStatistics]:
        return [
            before.plus(link.statistics())
            for before, link in zip(self._before, self._links, strict=True)
        ]

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # a fork: the workers belong to the process that has made them
        self._is_closing = True
        self._wait_for_other_thread()
        begun = monotonic()
        for link in sorted(self._links, key=lambda link: link.is_busy):  # those that hang last
            link.ask_to_leave(begun + _LEAVE_TIMEOUT_S)
        failures = [link.close(begun + _END_TIMEOUT_S) for link in self._links]
        if self._rows_block is not None:
            self._rows_block.close()
        self._header.close()
        self._at_exit.cancel()
        for failure in failures:
            if failure is not None:
                raise failure

    def _wait_for_other_thread(self) -> None:
        """Lets a thread that waits for workers see that they are being closed."""
        deadline = monotonic() + 2 * _LOOK_S
        while self._thread not in (None, get_ident()) and monotonic() < deadline:
            sleep(_LOOK_S / 20)

    def _require_own_process(self) -> None:
        """Checks that this process has made the workers: two that step them would mix their steps.

        Raises:
            ProtocolError: it was forked from that one.
        """
        if os.getpid() != self._process:
            raise ProtocolError(
                f"this VecEnv was made by process {self._process}, and this one, {os.getpid()}, "
                "was forked from it: the workers serve only the process that made them; make a "
                "VecEnv of its own here"
            )

    def _start(self, num_envs: int) -> None:
        for index, envs in enumerate(self.groups):
            self._links.append(Link(self._plan, index, envs, self._header))
        ready = [link.greet(self._start_timeout_s) for link in self._links]
        self._obs_space, self._action_space = ready[0].obs_space, ready[0].action_space
        self.num_agents = ready[0].num_agents
        for index, one in enumerate(ready):
            if (one.obs_space, one.action_space) != (self._obs_space, self._action_space):
                raise WorkerError(
                    f"worker {index} has other spaces than worker 0: the source must make "
                    "environments of one kind",
                    worker=index,
                )
        self._layout = FrameLayout(self._obs_space, self._action_space)
        self._actor_rows = [action.row for action in self._layout.actions.values()]
        self.num_rows = num_rows = num_envs * self.num_agents
        block = SharedBlock.create(Rows.num_bytes(self._layout, num_rows, num_envs))
        self._rows_block = block
        self._rows = Rows(block, self._layout, num_rows, num_envs)
        self._numbers = np.zeros(num_rows, dtype=np.int64)
        """Number of the episode that every row plays, or plays next."""
        self._is_playing = np.zeros(num_rows, dtype=np.bool_)
        """Has shown its first observation, and not its last."""
        self._is_asked = np.zeros(num_rows, dtype=np.bool_)
        self._earned = np.zeros(num_rows)
        self._lengths = np.zeros(num_rows, dtype=np.int64)
        for link in self._links:
            link.begin(self._layout, self._rows, block, self.num_agents)

    def _idle(self, group: int) -> Link:
        """A worker that is not busy any more: what was left under way is waited for."""
        link = self._links[group]
        if link.is_busy:
            self.wait([group], 1)
            step = link.read()
            if isinstance(step, BatchStep):
                self._count([group], self._side_by_side({group: step}))
        return link

    def _replace(self, group: int) -> Link:
        """Starts a new worker in place of one that is of no use any more."""
        old = self._links[group]
        self._before[group] = self._before[group].plus(old.statistics())
        # Its first step goes where the old one failed to write: what was shown last stays whole.
        link = Link(self._plan, group, old.envs, self._header, old.parity)
        self._links[group] = link
        link.greet(self._start_timeout_s)
        if self._rows_block is None:
            raise WorkerError("the workers are closed")
        link.begin(self._layout, self._rows, self._rows_block, self.num_agents)
        return link

    def _rows_in(self, group: int) -> slice:
        envs = self.groups[group]
        return slice(envs.start * self.num_agents, envs.stop * self.num_agents)

    def _rows_of(self, env_id: int) -> slice:
        return slice(env_id * self.num_agents, (env_id + 1) * self.num_agents)

    def _next_number(self, env_id: int) -> int:
        """Number of the first episode of an environment that has not begun."""
        rows = self._rows_of(env_id)
        return int((self._numbers[rows] + self._is_playing[rows]).max())

    def _runs_of(self, link: Link) -> dict[int, Run]:
        return {
            i: (self._seeds[env_id], self._next_number(env_id))
            for i, env_id in enumerate(link.envs)
        }

    def _recover(self, dead: Link) -> BatchStep:
        """Has a new worker take over; the episodes of the old one end as truncated."""
        self._lose(dead)
        error: EntityEnvError = WorkerError("no new worker could be started", worker=dead.index)
        for _ in range(_MAX_REPLACEMENTS):
            try:
                link = self._replace(dead.index)
            except WorkerError as failure:
                error = failure
                continue
            link.reset(Reset(range(len(link.envs)), self._runs_of(link)), self._step_timeout_s)
            self.wait([link.index], 1)
            step = link.read()
            if isinstance(step, BatchStep):
                return step
            error = self._placed(step)
            if link.error is None:
                break
            for env_id in link.envs:  # one of these first episodes may be what it died of
                self._numbers[self._rows_of(env_id)] += 1
        raise error

    def _lose(self, link: Link) -> None:
        """Ends the episodes that a dead worker was playing."""
        lost = self._lost.setdefault(link.index, [])
        for env_id in link.envs:
            rows = range(self.num_rows)[self._rows_of(env_id)]
            for agent_id, row in enumerate(rows):
                if self._is_playing[row]:
                    lost.append(Ended(row, 0.0, self._episode(env_id, agent_id, row)))
            self._numbers[rows] = self._next_number(env_id)
            self._is_playing[rows] = False
        nothing = WorkerStatistics(len(link.envs), 0, 0.0, 0.0, 0.0, len(link.envs), 0)
        self._before[link.index] = self._before[link.index].plus(nothing)

    def _episode(self, env_id: int, agent_id: int, row: int) -> Episode:
        """The episode that a dead worker was playing."""
        number = int(self._numbers[row])
        return Episode(
            reward=float(self._earned[row]),
            length=int(self._lengths[row]),
            terminated=False,
            truncated=True,
            seed=self._seeds[env_id][number],
            number=number,
            env_id=env_id,
            agent_id=agent_id,
            metrics={ERROR_METRIC: 1.0},
        )

    def _count(self, groups: Sequence[int], step: BatchStep) -> None:
        """Keeps the books by which a worker can be replaced, of the groups that a step shows."""
        if len(groups) == len(self._links):
            rows: slice | NDArray[np.int64] = slice(None)
        else:
            rows = np.concatenate([np.arange(self.num_rows)[self._rows_in(g)] for g in groups])
        self._earned[rows] += step.reward
        for endings in (step.ended, step.lost):
            if len(endings):
                over = endings.rows if isinstance(rows, slice) else rows[endings.rows]
                self._earned[over] = 0
                self._lengths[over] = 0
                self._is_playing[over] = False
        self._numbers[rows] = self._rows.numbers[rows]
        num_actors = np.add.reduce(step.frame.lengths[self._actor_rows])
        self._is_asked[rows] = is_asked = num_actors > 0
        self._is_playing[rows] |= is_asked

    def _with_lost(self, link: Link, step: BatchStep) -> BatchStep:
        """Adds the episodes that were lost with the worker before."""
        lost = self._lost.pop(link.index, None)
        if lost:
            step.lost += Endings.of(lost)
            step.truncated[[one.row - link.envs.start * self.num_agents for one in lost]] = True
        return step

    def _placed(self, error: EntityEnvError) -> EntityEnvError:
        """A failure with what only the parent knows of it: seed and episode."""
        if not isinstance(error, WorkerError) or error.env_id is None or error.seed is not None:
            return error
        rows = self._rows_of(error.env_id)
        number = int(self._numbers[rows].max())
        return WorkerError(
            error.reason,
            env_id=error.env_id,
            worker=error.worker,
            seed=self._seeds[error.env_id][number],
            episode=number,
            step=int(self._lengths[rows].max()),
            game_traceback=error.game_traceback,
        )

    def _side_by_side(self, told: Mapping[int, BatchStep]) -> BatchStep:
        """One step of those of several groups: at most one copy of whatever is ragged."""
        links = [self._links[group] for group in told]
        steps = [self._with_lost(link, told[link.index]) for link in links]
        if len(links) == 1:
            step = steps[0]
            offset = links[0].envs.start * self.num_agents
            step.ended, step.lost = step.ended.moved(offset), step.lost.moved(offset)
            return step
        parity = links[0].parity
        is_whole = len(links) == len(self._links)
        if is_whole and all(link.parity == parity for link in links):
            rows = self._rows
            lengths, reward = rows.lengths[parity], rows.reward[parity]
            terminated, truncated = rows.terminated[parity], rows.truncated[parity]
            is_over = rows.is_over[parity]
        else:
            lengths = np.concatenate([step.frame.lengths for step in steps], axis=1)
            reward = np.concatenate([step.reward for step in steps])
            terminated = np.concatenate([step.terminated for step in steps])
            truncated = np.concatenate([step.truncated for step in steps])
            is_over = np.concatenate([step.is_over for step in steps])
        together = BatchStep(
            concat_frames(self._layout, [step.frame for step in steps], lengths),
            reward,
            terminated,
            truncated,
            is_over,
        )
        first = 0
        for link, step in zip(links, steps, strict=True):
            offset = link.envs.start * self.num_agents - first
            together.ended += step.ended.moved(offset)
            together.lost += step.lost.moved(offset)
            merge_metrics(together.metrics, step.metrics)
            first += len(step.reward)
        finals = [step.final for step in steps if step.final is not None]
        if finals:
            lengths = np.concatenate([final.lengths for final in finals], axis=1)
            together.final = concat_frames(self._layout, finals, lengths)
        return together


def _close_at_exit(ref: weakref.ref[Workers]) -> None:
    workers = ref()
    if workers is not None:
        with contextlib.suppress(OSError, ClosedError):  # interrupted while it was made
            workers.close()
