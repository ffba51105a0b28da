"""`ProgramBatch`: the copies of a game in one program, as the environments of a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.frame import Frame, FrameLayout, FrameMemory, LocalMemory
from entity_env.core.episode import ERROR_METRIC
from entity_env.core.episode_stats import NUM_METRICS, EpisodeCollector, FinishedEpisodes
from entity_env.core.seeding import Run
from entity_env.core.vec_obs import EntityBatch, Metric, concat_entities, merge_metrics
from entity_env.errors import ProtocolError, WorkerError
from entity_env.vec.batch_env.array_batch import write_frame
from entity_env.vec.external.episodes import CopyEpisodes, Noted
from entity_env.vec.external.frames import (
    FAILED,
    STARTED,
    TERMINATED,
    TRUNCATED,
    UNKNOWN_FAILURE,
    Ends,
    StepMessage,
    StepParser,
    packed,
)
from entity_env.vec.external.messages import Kind
from entity_env.vec.process_batch import ActionValues, ProcessBatch
from entity_env.vec.step import BatchStep, StepArrays, StepMemory, without_actors

if TYPE_CHECKING:
    from entity_env.vec.external.game import ExternalGame
    from entity_env.vec.external.program import Program
    from entity_env.vec.options import VecOptions

_MAX_RESTARTS: Final = 5
"""Number of consecutive new programs that may die without a step before an error is raised."""


class ProgramBatch(ProcessBatch):
    """Copies of a game in one program; `options` and `envs` as for `LocalBatch`.

    Without workers, observations are views of the received bytes.
    """

    def __init__(self, game: ExternalGame, options: VecOptions, envs: range) -> None:
        super().__init__(len(envs), game.num_agents, (game.obs_space(), game.action_space()))
        self.limits_steps = True
        self.first_env = envs.start
        self.layout: Final = FrameLayout(*self.spaces)
        self._game = game
        self._holds = options.autoreset != "same_step"
        self._restarts = options.on_error == "restart"
        self._timeout_s = options.step_timeout_s
        self._reader = StepParser(self.layout, game.ready)
        self._metric_names = game.ready.metrics
        self._episodes = CopyEpisodes(self.num_envs, self.num_agents, self._refuse)
        self._all = np.arange(self.num_envs)
        self._flags: NDArray[np.int64] = np.zeros(self.num_envs * self.num_agents, dtype=np.int64)
        """Flags of the last observations that rows show."""
        self._metrics = np.full((len(self._metric_names), len(self._flags)), np.nan)
        """Metrics of the observations that rows show."""
        self._shown: Frame | None = None
        self._program = self._start()

    def seed_env(self, env_id: int, run: Run) -> None:
        self._episodes.begin_run(env_id, run)

    def numbers(self, env_id: int) -> Sequence[int]:
        number = int(self._episodes.number[env_id]) + bool(self._episodes.waits[env_id])
        return [number] * self.num_agents

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return int(self._episodes.seed[env_id])

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        chosen = np.asarray(env_ids, dtype=np.int64)
        shown = self._shown
        if self._program.is_closed:
            self._program = self._start()
            chosen, shown = self._all, None
        if shown is not None and not len(chosen):
            return self._unchanged(shown, memory)
        self.is_whole = False
        message = self._request_reset(chosen)
        self._flags[self._episodes.rows_of(chosen)] = 0
        step = self._step(message, chosen, memory.arrays)
        if self._holds:
            step.final = None  # the rows show it
        if shown is not None and len(chosen) < self.num_envs:
            self._keep_others(step, shown, chosen)
        return self._placed(step, memory)

    def act(self, values: ActionValues, memory: StepMemory) -> BatchStep:
        if self._program.is_closed:
            raise ProtocolError(f"{self._game.name}: the program has ended: call reset first")
        self.is_whole = False
        self._episodes.act()
        parts = [self._episodes.next_seed.tobytes()]
        parts += [packed(space, values[name]) for name, space in self.spaces[1].items()]
        self._flags[:] = 0
        try:
            message = self._request(Kind.ACT, parts, self.num_envs)
        except WorkerError as error:
            if not self._restarts:
                raise
            step = self._recover(error, memory.arrays)
        else:
            step = self._step(message, None, memory.arrays)
        return self._placed(step, memory)

    def close(self) -> None:
        self._program.close()

    # --------------------------------------------------------------------------------- program

    def _start(self) -> Program:
        game = self._game
        program = game.start_program()
        ready = program.start(
            self.num_envs, game.values(), first_env=self.first_env, hold=self._holds
        )
        if ready != game.ready:
            program.kill()
            raise WorkerError(f"{game.name}: the program has other spaces than before")
        return program

    def _request(self, kind: Kind, parts: Sequence[bytes], num_copies: int) -> StepMessage:
        program, before = self._program, perf_counter()
        try:
            payload = program.request(kind, parts, self._timeout_s)
        finally:
            self.games_s += perf_counter() - before
        return program.read(payload, partial(self._reader.read, num_copies))

    def _request_reset(self, env_ids: NDArray[np.int64]) -> StepMessage:
        self._episodes.begin(env_ids)
        count = np.array([len(env_ids)], dtype="<u8").tobytes()
        seeds = self._episodes.next_seed[env_ids].tobytes()
        message = self._request(Kind.RESET, [count, env_ids.tobytes(), seeds], len(env_ids))
        if not (message.copies & STARTED).all():
            self._refuse("a copy has not started an episode after RESET")
        return message

    def _refuse(self, problem: str) -> NoReturn:
        self._program.refuse(problem)

    def _recover(self, error: WorkerError, arrays: StepArrays) -> BatchStep:
        """Starts a new program in place of one that died; its episodes are truncated."""
        rows = np.flatnonzero(self._episodes.is_playing)
        lost = EpisodeCollector(0, self.num_agents)
        for row in rows.tolist():
            lost.add(row, *self._episodes.lost(row), {ERROR_METRIC: 1.0})
        self.failures |= {self.first_env + env_id: error.reason for env_id in range(self.num_envs)}
        for _ in range(_MAX_RESTARTS):
            self.num_restarts += self.num_envs
            try:
                self._program = self._start()
                step = self._step(self._request_reset(self._all), self._all, arrays)
            except WorkerError as again:
                error = again
                continue
            step.lost = lost.finished()
            step.truncated[rows] = True
            return step
        raise error

    # ----------------------------------------------------------------------------------- steps

    def _step(
        self, message: StepMessage, env_ids: NDArray[np.int64] | None, arrays: StepArrays
    ) -> BatchStep:
        """The step of a message about some environments, not yet in its memory; None = all."""
        begin = perf_counter()
        noted = self._episodes.note(message, env_ids)
        with np.errstate(over="ignore"):
            arrays.reward[:] = noted.rewards
        if not np.isfinite(arrays.reward).all():
            row = int(np.flatnonzero(~np.isfinite(arrays.reward))[0])
            self._refuse(f"the reward of row {row} is too large for a float32")
        arrays.terminated[:] = arrays.truncated[:] = False
        arrays.is_over[:] = self._episodes.waits if self._holds else False
        step = BatchStep(message.frame, *arrays)
        if self._metric_names:
            rows = slice(None) if env_ids is None else self._episodes.rows_of(env_ids)
            self._metrics[:, rows] = message.metrics
        if message.ends is not None:
            self._add_ends(step, message, message.ends, noted)
            if self._holds:
                self._show_ends(step, message.ends, noted)
        self._add_metrics(step, self._metrics)
        self.packing_s += perf_counter() - begin
        return step

    def _unchanged(self, shown: Frame, memory: StepMemory) -> BatchStep:
        """The rows that are shown, after a reset of no environment."""
        arrays = memory.arrays
        arrays.reward[:] = 0
        arrays.is_over[:] = self._episodes.waits if self._holds else False
        arrays.terminated[:] = arrays.truncated[:] = False
        step = BatchStep(shown, *arrays)
        self._add_flags(step)
        self._add_metrics(step, self._metrics)
        return self._placed(step, memory)

    def _add_flags(self, step: BatchStep) -> None:
        """Adds the flags of environments that wait for their resets."""
        flags = self._flags * self._episodes.waits[self._episodes.env_of]
        step.terminated |= flags & TERMINATED != 0
        step.truncated |= flags & TRUNCATED != 0

    def _add_ends(self, step: BatchStep, message: StepMessage, ends: Ends, noted: Noted) -> None:
        """Adds finished episodes, with their flags and last observations."""
        has_failed = (ends.flags & FAILED) != 0
        if has_failed.any():
            self._note_failures(step, message, noted, has_failed)
        ints, floats, whole = noted.ints, noted.floats, np.flatnonzero(~has_failed)
        if not len(whole):
            return
        if len(whole) < len(has_failed):
            ints, floats = ints[:, whole], floats[:, whole]
        pairs = None
        if self._metric_names:
            values = ends.metrics[:, whole].T
            found, names = np.nonzero(~np.isnan(values))
            ints[NUM_METRICS] = np.bincount(found, minlength=len(whole))
            pairs = np.stack([names.astype(np.float64), values[found, names]], axis=1)
        step.ended = ended = FinishedEpisodes.from_arrays(
            ints, floats, pairs, self._metric_names, self.num_agents
        )
        step.terminated[ended.rows[ended.terminated]] = True
        step.truncated[ended.rows[ended.truncated]] = True
        step.final = ends.frame
        if has_failed.any():
            step.final = self._spliced([_entities(ends.frame)], whole)
        if not self._holds:
            self._add_metrics(step, ends.metrics)

    def _note_failures(
        self, step: BatchStep, message: StepMessage, noted: Noted, has_failed: NDArray[np.bool_]
    ) -> None:
        """Adds the episodes of games that raised, or raises the error of the first one."""
        lost = EpisodeCollector(0, self.num_agents)
        for i in np.flatnonzero(has_failed).tolist():
            failure = message.failures.get(int(noted.local_rows[i]), UNKNOWN_FAILURE)
            row, _, length, _, _, seed, number, _ = noted.ints[:, i].tolist()
            env_id = self.first_env + row // self.num_agents
            if not self._restarts:
                raise WorkerError(
                    failure.message,
                    env_id=env_id,
                    seed=seed,
                    episode=number,
                    step=length,
                    game_traceback=failure.traceback,
                )
            self.failures[env_id] = failure.message
            if noted.was_playing[i]:
                numbers = length, False, True, seed, number
                rewards = float(noted.floats[0, i]), 0.0
                lost.add(row, numbers, rewards, {ERROR_METRIC: 1.0})
                step.truncated[row] = True
        self.num_restarts += len({row // self.num_agents for row in noted.ints[0, has_failed]})
        step.lost = lost.finished()

    def _show_ends(self, step: BatchStep, ends: Ends, noted: Noted) -> None:
        """Shows last observations in the rows of agents whose episodes have ended."""
        whole = np.flatnonzero((ends.flags & FAILED) == 0)
        order = np.arange(step.frame.lengths.shape[1])
        order[noted.local_rows[whole]] = len(order) + whole
        last = _entities(ends.frame)
        masks = {n: without_actors(mask, len(ends.rows)) for n, mask in last.action_masks.items()}
        last = replace(last, action_masks=masks)
        step.frame = self._spliced([_entities(step.frame), last], order)
        rows = noted.ints[0, whole]
        self._flags[rows] = ends.flags[whole] & (TERMINATED | TRUNCATED)
        self._metrics[:, rows] = ends.metrics[:, whole]

    def _keep_others(self, step: BatchStep, shown: Frame, env_ids: NDArray[np.int64]) -> None:
        """Adds the rows of the environments that were not reset."""
        rows = self._episodes.rows_of(env_ids)
        order = np.arange(self.num_envs * self.num_agents)
        order[rows] = len(order) + np.arange(len(rows))
        step.frame = self._spliced([_entities(shown), _entities(step.frame)], order)
        self._add_flags(step)

    def _add_metrics(self, step: BatchStep, values: NDArray[np.float64]) -> None:
        for name, line in zip(self._metric_names, values, strict=True):
            known = line[~np.isnan(line)]
            if len(known):
                metric = Metric(
                    len(known), float(known.sum()), float(known.min()), float(known.max())
                )
                merge_metrics(step.metrics, {name: metric})

    def _spliced(self, parts: Sequence[EntityBatch], order: NDArray[np.int64]) -> Frame:
        """The rows of several batches, one batch after another, in another order; a copy."""
        rows = concat_entities(parts).map_arrays(itemgetter(order))
        hidden = {name: flags for name, flags in rows.visible.items() if not flags.values.all()}
        rows = replace(rows, visible=hidden)
        return write_frame(rows, len(order), self.layout, LocalMemory())

    def _placed(self, step: BatchStep, memory: StepMemory) -> BatchStep:
        """The step in its memory; in this process it stays where it was received."""
        self._shown = step.frame
        step.frame = _in_memory(step.frame, memory.rows)
        if step.final is not None:
            step.final = _in_memory(step.final, memory.final)
        self.is_whole = True
        return step


def _in_memory(frame: Frame, memory: FrameMemory) -> Frame:
    if isinstance(memory, LocalMemory):
        return frame
    return write_frame(_entities(frame), frame.lengths.shape[1], frame.layout, memory)


def _entities(frame: Frame) -> EntityBatch:
    return EntityBatch(frame.features, frame.visible, frame.action_masks)
