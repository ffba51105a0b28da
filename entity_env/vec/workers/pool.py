"""WorkerPool: environments in processes that share memory with this one."""

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

from entity_env.batching.frame import FrameLayout, LocalMemory, concat_frames
from entity_env.core.episode import ERROR_METRIC
from entity_env.core.episode_stats import NO_EPISODES, EpisodeCollector, EpisodeStats
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.vec_obs import merge_metrics
from entity_env.errors import (
    ClosedError,
    EntityEnvError,
    ProtocolError,
    WorkerError,
)
from entity_env.vec.options import VecOptions
from entity_env.vec.process_batch import ActionValues
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep, StepArrays
from entity_env.vec.workers.handle import WorkerHandle, split_evenly
from entity_env.vec.workers.protocol import HEADER_BYTES, Reset
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.start import start_context
from entity_env.vec.workers.step_codec import SharedRows
from entity_env.vec.workers.wakeup_event import Wake, wait_all, wait_any

_logger = logging.getLogger(__name__)

_END_TIMEOUT_S: Final = 5.0
"""Time after which `close` kills the workers that have not exited."""
_EXIT_TIMEOUT_S: Final = 4.0
"""Time that `close` waits for busy games; the rest of `_END_TIMEOUT_S` is for closing games."""
_POLL_S: Final = 0.2
"""Interval at which a waiting thread checks whether another thread has closed the workers."""
_MAX_REPLACEMENTS: Final = 5
"""Number of consecutive new workers that may die without a step before an error is raised."""


class WorkerPool:
    """Executor with a group per worker process; errors as for `VecEnv`."""

    def __init__(self, options: VecOptions) -> None:
        num_envs, num_workers = options.num_envs, options.num_workers
        self._context = start_context(options.start_method)
        self._pickled = options.pickled()
        self.groups: Sequence[range] = split_evenly(num_envs, num_workers)
        self._on_error = options.on_error
        self._step_timeout_s = options.step_timeout_s
        self._start_timeout_s = options.start_timeout_s
        self._process = os.getpid()
        self._thread: int | None = None
        self._is_closing = False
        self._header = SharedBlock.create(HEADER_BYTES * num_workers)
        self._rows_block: SharedBlock | None = None
        self._workers: list[WorkerHandle] = []
        self._before = [WorkerStatistics(len(envs)) for envs in self.groups]
        """By group, totals of replaced workers, and restarts of environments by replacements."""
        self._seeds = [EpisodeSeeds(0, env_id) for env_id in range(num_envs)]
        self._joined = LocalMemory(), LocalMemory()
        """Arrays of all workers together, for two alternating steps."""
        self._lost: dict[int, EpisodeCollector] = {}
        """Episodes of dead workers, until the next step reports them."""
        self.failures: dict[int, str] = {}
        # Runs before multiprocessing terminates its children: they can still close their games.
        self._at_exit = Finalize(self, _close_at_exit, (weakref.ref(self),), exitpriority=0)
        try:
            self._start(num_envs)
        except BaseException:
            self.close()
            raise

    def start_reset(self, group: int, env_ids: Sequence[int], runs: Mapping[int, Run]) -> None:
        self._require_own_process()
        worker = self._idle(group)
        new_runs: dict[int, Run] = {}
        for env_id in env_ids:
            rows = self._rows_of(env_id)
            if env_id in runs:
                self._seeds[env_id], self._stats.number[rows] = runs[env_id]
                new_runs[env_id - worker.envs.start] = runs[env_id]
            else:
                self._stats.number[rows] = self._next_number(env_id)
            self._is_playing[rows] = False
            self._stats.reset(rows)
        if not worker.is_ready:
            worker.end()
            self._lose(worker)
            worker = self._replace(group)
        if worker.is_new:
            env_ids, new_runs = worker.envs, self._runs_of(worker)
        local = [env_id - worker.envs.start for env_id in env_ids]
        worker.reset(Reset(local, new_runs), self._step_timeout_s)

    def start_act(self, group: int, values: ActionValues) -> None:
        self._require_own_process()
        length = self._stats.length[self._slices[group]]
        length += self._num_asked[self._slices[group]]
        self._idle(group).act(values, self._step_timeout_s)

    def wait(self, groups: Sequence[int], min_envs: int) -> list[int]:
        self._require_own_process()
        workers = [self._workers[group] for group in groups]
        self._thread = get_ident()
        try:
            return self._wait(workers, min_envs)
        finally:
            self._thread = None

    def _wait(self, workers: Sequence[WorkerHandle], min_envs: int) -> list[int]:
        if min_envs == sum(len(worker.envs) for worker in workers):
            events = [worker.event for worker in workers if worker.error is None]
            if wait_all(events, self._timeout_s(workers)) is Wake.NOTIFIED:
                return [worker.index for worker in workers]
        while True:
            done = [
                worker for worker in workers if worker.error is not None or worker.event.is_notified
            ]
            if sum(len(worker.envs) for worker in done) >= min_envs:
                return [worker.index for worker in done]
            if self._is_closing:
                raise ClosedError("this VecEnv was closed by another thread")
            pending = [worker for worker in workers if worker not in done]
            wake = wait_any([worker.event for worker in pending], self._timeout_s(pending))
            if wake is Wake.PEER_GONE:
                for worker in pending:
                    if not worker.event.is_notified and worker.event.is_peer_gone():
                        worker.died()
            elif wake is Wake.TIMED_OUT:
                for worker in pending:
                    if worker.deadline is not None and worker.deadline <= monotonic():
                        worker.hangs(self._step_timeout_s or 0.0)

    def _timeout_s(self, workers: Sequence[WorkerHandle]) -> float:
        """Seconds until a worker counts as hanging, or until the next check for a close."""
        deadlines = [worker.deadline for worker in workers if worker.deadline is not None]
        left_s = min(deadlines) - monotonic() if deadlines else _POLL_S
        return min(max(left_s, 0.0), _POLL_S)

    def collect(self, groups: Sequence[int]) -> BatchStep:
        results = [(self._workers[group], self._workers[group].read()) for group in groups]
        steps: dict[int, BatchStep] = {}
        failed: EntityEnvError | None = None
        for worker, step in results:
            if isinstance(step, BatchStep):
                steps[worker.index] = step
            elif self._on_error == "restart" and worker.error is not None:
                _logger.warning("%s; its environments begin their next episodes", step)
                steps[worker.index] = self._recover(worker)
            else:
                failed = failed or self._with_place(step)
                self._skip_failed(worker)
        if failed is not None:  # count the workers that have stepped
            for group, step in steps.items():
                self._count([group], self._join({group: step}))
            raise failed
        joined = self._join(steps)
        self._count(groups, joined)
        return joined

    def render(self, env_id: int) -> NDArray[np.uint8] | None:
        group = next(i for i, envs in enumerate(self.groups) if env_id in envs)
        self._require_own_process()
        worker = self._idle(group)
        worker.render(env_id - worker.envs.start, self._step_timeout_s)
        self.wait([group], 1)
        image: NDArray[np.uint8] | None = worker.read_image()
        return image

    def statistics(self) -> list[WorkerStatistics]:
        return [
            before.plus(worker.statistics())
            for before, worker in zip(self._before, self._workers, strict=True)
        ]

    def close(self) -> None:
        if os.getpid() != self._process:
            return  # a fork: the workers belong to the parent
        self._is_closing = True
        self._wait_for_other_thread()
        start = monotonic()
        for worker in sorted(self._workers, key=lambda worker: worker.is_busy):  # hanging last
            worker.request_exit(start + _EXIT_TIMEOUT_S)
        failures = [worker.close(start + _END_TIMEOUT_S) for worker in self._workers]
        self._joined = LocalMemory(), LocalMemory()  # drops views of the workers' memory
        if self._rows_block is not None:
            self._rows_block.close()
        self._header.close()
        self._at_exit.cancel()
        for failure in failures:
            if failure is not None:
                raise failure

    def _wait_for_other_thread(self) -> None:
        """Gives a thread that waits for workers time to notice that they are being closed."""
        deadline = monotonic() + 2 * _POLL_S
        while self._thread not in (None, get_ident()) and monotonic() < deadline:
            sleep(_POLL_S / 20)

    def _require_own_process(self) -> None:
        """Raises `ProtocolError` in a fork: two processes would mix their steps."""
        if os.getpid() != self._process:
            raise ProtocolError(
                f"this VecEnv was made by process {self._process}, and this one, {os.getpid()}, "
                "was forked from it: the workers serve only the process that made them; make a "
                "new VecEnv here"
            )

    def _handle(self, index: int, envs: range, parity: int = 0) -> WorkerHandle:
        return WorkerHandle(self._context, self._pickled, index, envs, self._header, parity)

    def _start(self, num_envs: int) -> None:
        for index, envs in enumerate(self.groups):
            self._workers.append(self._handle(index, envs))
        ready = [worker.wait_until_ready(self._start_timeout_s) for worker in self._workers]
        self.spaces = ready[0].spaces
        self.num_agents = ready[0].num_agents
        self.can_reset_envs = ready[0].can_reset_envs
        for index, one in enumerate(ready):
            if one.spaces != self.spaces:
                raise WorkerError(
                    f"worker {index} has other spaces than worker 0: the source must make "
                    "environments of one kind",
                    worker=index,
                )
        self._layout = FrameLayout(*self.spaces)
        self.num_rows = num_rows = num_envs * self.num_agents
        num_bytes = SharedRows.num_bytes(self._layout, num_envs, self.num_agents)
        self._rows_block = block = SharedBlock.create(num_bytes)
        self._rows = SharedRows(block, self._layout, num_envs, self.num_agents)
        self._stats = EpisodeStats(num_rows, self.num_agents)
        """Statistics of current episodes; `number` of a row that is over is its next episode's."""
        self._stats.number[:] = 0
        self._is_playing = np.zeros(num_rows, dtype=np.bool_)
        """By row, True from an episode's first request for an action to its end."""
        self._num_asked = np.zeros(num_rows)
        """1 where the row waits for an action, otherwise 0; floats, as `EpisodeStats.length`."""
        self._slices = [self._rows.slice_of(envs) for envs in self.groups]
        for worker in self._workers:
            worker.begin(self._rows, block)

    def _idle(self, group: int) -> WorkerHandle:
        """The worker of a group, after its current command has finished."""
        worker = self._workers[group]
        if worker.is_busy:
            self.wait([group], 1)
            step = worker.read()
            if isinstance(step, BatchStep):
                self._count([group], self._join({group: step}))
        return worker

    def _replace(self, group: int) -> WorkerHandle:
        """Replaces an unusable worker."""
        old = self._workers[group]
        self._before[group] = self._before[group].plus(old.statistics())
        # The new worker's first step goes to the half that the old worker failed to write, so the
        # last step stays valid.
        worker = self._handle(group, old.envs, old.parity)
        self._workers[group] = worker
        worker.wait_until_ready(self._start_timeout_s)
        if self._rows_block is None:
            raise WorkerError("the workers are closed")
        worker.begin(self._rows, self._rows_block)
        return worker

    def _rows_of(self, env_id: int) -> slice:
        return slice(env_id * self.num_agents, (env_id + 1) * self.num_agents)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return self._seeds[env_id][self._number_of(env_id) - is_over]

    def _number_of(self, env_id: int) -> int:
        """Index of the current episode, or of the next if it has ended."""
        rows = self._rows_of(env_id)
        # For an agent that is over, `number` is that of its next episode.
        numbers, is_playing = self._stats.number[rows], self._is_playing[rows]
        return int((numbers[is_playing] if is_playing.any() else numbers).max())

    def _next_number(self, env_id: int) -> int:
        rows = self._rows_of(env_id)
        return int((self._stats.number[rows] + self._is_playing[rows]).max())

    def _runs_of(self, worker: WorkerHandle) -> dict[int, Run]:
        return {
            i: (self._seeds[env_id], self._next_number(env_id))
            for i, env_id in enumerate(worker.envs)
        }

    def _recover(self, dead: WorkerHandle) -> BatchStep:
        """Replaces a dead worker and truncates its episodes; returns the new worker's step."""
        self._lose(dead)
        error: EntityEnvError = WorkerError("no new worker could be started", worker=dead.index)
        for _ in range(_MAX_REPLACEMENTS):
            try:
                worker = self._replace(dead.index)
            except WorkerError as failure:
                error = failure
                continue
            worker.reset(
                Reset(range(len(worker.envs)), self._runs_of(worker)), self._step_timeout_s
            )
            self.wait([worker.index], 1)
            step = worker.read()
            if isinstance(step, BatchStep):
                return step
            error = self._with_place(step)
            self._skip_failed(worker)
            if worker.error is None:
                break
        raise error

    def _skip_failed(self, worker: WorkerHandle) -> None:
        """Skips the episodes that a failed command began; a dead worker has not said which."""
        if worker.error is None:
            rows = self._slices[worker.index]
            self._stats.number[rows] = self._rows.numbers[rows]
        else:
            for index in worker.resetting:
                self._stats.number[self._rows_of(worker.envs.start + index)] += 1

    def _lose(self, worker: WorkerHandle) -> None:
        lost = self._lost.setdefault(worker.index, EpisodeCollector(0, self.num_agents))
        self.failures |= dict.fromkeys(worker.envs, "")
        if worker.error is not None and worker.error.env_id is not None:
            self.failures[worker.error.env_id] = worker.error.reason
        for env_id in worker.envs:
            rows = range(self.num_rows)[self._rows_of(env_id)]
            for row in rows:
                if self._is_playing[row]:
                    self._stats.seed[row] = self._seeds[env_id][int(self._stats.number[row])]
                    episode = self._stats.episode(row, False, True, {ERROR_METRIC: 1.0})
                    lost.add_episode(row, 0.0, episode)
            self._stats.number[rows] = self._next_number(env_id)
            self._is_playing[rows] = False
        restarts = WorkerStatistics(len(worker.envs), num_restarts=len(worker.envs))
        self._before[worker.index] = self._before[worker.index].plus(restarts)

    def _count(self, groups: Sequence[int], step: BatchStep) -> None:
        """Counts a step of some groups; replacements of their workers start from these counts."""
        if len(groups) == len(self._workers):
            rows: slice | NDArray[np.int64] = slice(None)
        else:
            parts = (self._slices[group] for group in groups)
            rows = np.concatenate([np.arange(self.num_rows)[part] for part in parts])
        # First: if an interrupt follows, a replacement skips episodes, and plays none twice.
        self._stats.number[rows] = self._rows.numbers[rows]
        self._stats.reward[rows] += step.reward
        for finished in (step.ended, step.lost):
            if len(finished):
                over = finished.rows if isinstance(rows, slice) else rows[finished.rows]
                self._stats.reset(over)
                self._is_playing[over] = False
        has_actors = step.frame.has_actors
        self._num_asked[rows] = has_actors
        self._is_playing[rows] |= has_actors

    def _with_lost(self, worker: WorkerHandle, step: BatchStep) -> BatchStep:
        """Adds the lost episodes of the worker's predecessor to its step."""
        lost = self._lost.pop(worker.index, None)
        if lost:
            finished = lost.finished()
            step.lost += finished
            step.truncated[finished.rows - worker.envs.start * self.num_agents] = True
        return step

    def _with_place(self, error: EntityEnvError) -> EntityEnvError:
        """The error with seed, episode and step, which a dead worker could not add."""
        if not isinstance(error, WorkerError) or error.env_id is None or error.seed is not None:
            return error
        rows = self._rows_of(error.env_id)
        number = self._number_of(error.env_id)
        return WorkerError(
            error.reason,
            env_id=error.env_id,
            worker=error.worker,
            seed=self._seeds[error.env_id][number],
            episode=number,
            step=int(self._stats.length[rows].max()),
            game_traceback=error.game_traceback,
        )

    def _join(self, results: Mapping[int, BatchStep]) -> BatchStep:
        """Joins the steps of several groups, with at most one copy of ragged arrays."""
        workers = [self._workers[group] for group in results]
        steps = [self._with_lost(worker, results[worker.index]) for worker in workers]
        if len(workers) == 1:
            step = steps[0]
            offset = workers[0].envs.start * self.num_agents
            step.ended, step.lost = step.ended.shifted(offset), step.lost.shifted(offset)
            return step
        parity = workers[0].parity
        is_whole = len(workers) == len(self._workers)
        if is_whole and all(worker.parity == parity for worker in workers):
            lengths, arrays = self._rows.lengths[parity], self._rows.arrays[parity]
            memory = self._joined[parity]
        else:
            memory = None
            lengths = np.concatenate([step.frame.lengths for step in steps], axis=1)
            arrays = StepArrays(
                np.concatenate([step.reward for step in steps]),
                np.concatenate([step.terminated for step in steps]),
                np.concatenate([step.truncated for step in steps]),
                np.concatenate([step.is_over for step in steps]),
            )
        frame = concat_frames(self._layout, [step.frame for step in steps], lengths, memory)
        joined = BatchStep(frame, *arrays)
        if all(step.ended is step.lost is NO_EPISODES and not step.metrics for step in steps):
            return joined
        first = 0
        for worker, step in zip(workers, steps, strict=True):
            offset = worker.envs.start * self.num_agents - first
            if len(step.ended):
                joined.ended += step.ended.shifted(offset)
            if len(step.lost):
                joined.lost += step.lost.shifted(offset)
            if step.metrics:
                merge_metrics(joined.metrics, step.metrics)
            first += len(step.reward)
        finals = [step.final for step in steps if step.final is not None]
        if finals:
            lengths = np.concatenate([final.lengths for final in finals], axis=1)
            joined.final = concat_frames(self._layout, finals, lengths)
        return joined


def _close_at_exit(ref: weakref.ref[WorkerPool]) -> None:
    workers = ref()
    if workers is not None:
        with contextlib.suppress(OSError, ClosedError):  # the constructor was interrupted
            workers.close()
