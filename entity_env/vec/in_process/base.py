"""LocalBatch: base class of environments stepped one after another in this process."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from entity_env.authoring.game_traceback import (
    add_note,
    game_traceback,
    is_a,
    is_failure,
    line_of_error,
    reason_of,
    summary_of,
    text_of,
)
from entity_env.authoring.speedups import NotANumber, pack_numbers
from entity_env.batching.entity_buffer import Batcher
from entity_env.batching.frame import FrameLayout
from entity_env.core.episode import Episode
from entity_env.core.episode_stats import LENGTH, NUMBER, SEED, EpisodeCollector, FinishedEpisodes
from entity_env.core.spaces import ActionName, Spaces
from entity_env.core.validation import must_be_number
from entity_env.core.vec_env_base import row_name
from entity_env.core.vec_obs import merge_metrics
from entity_env.errors import EntityEnvError, ProtocolError, SchemaError, WorkerError
from entity_env.vec.in_process.game_output import GameOutput
from entity_env.vec.options import VecOptions
from entity_env.vec.process_batch import ActionValues, ProcessBatch
from entity_env.vec.step import BatchStep, StepMemory

_logger: Final = logging.getLogger(__name__)

_OF_A_SCORE: Final = (TypeError, ValueError, OverflowError, AttributeError)
"""Exceptions from arithmetic with a score that is not a number."""

_MAX_RESTARTS: Final = 10
"""Maximum number of consecutive restarts of an environment, without a step in between."""


class LocalBatch(ProcessBatch):
    """Steps environments one after another; base class of games and of `Environment`s.

    Environment indices start at 0; only episodes, seeds and messages count from `first_env`, the
    first of `envs`. `writer` collects the rows of a step, `final_writer` last observations.
    """

    process: ClassVar[int] = os.getpid()
    """Id of this process, cached because `os.getpid` takes up to 0.5 µs."""

    def __init__(
        self,
        writer: Batcher,
        final_writer: Batcher,
        spaces: Spaces,
        num_agents: int,
        options: VecOptions,
        envs: range,
    ) -> None:
        super().__init__(len(envs), num_agents, spaces)
        self.autoreset = options.autoreset
        self.first_env = envs.start
        self._output = GameOutput(options.num_envs, says_so=envs.start == 0)
        self._on_error = options.on_error
        self._writer = writer
        self._final_writer = final_writer
        self._rewards: list[float] = []
        self._finished = EpisodeCollector(envs.start, num_agents)
        """Episodes that end in a step, in row order of `final_writer`."""
        self._lost = EpisodeCollector(envs.start, num_agents)
        """Episodes ended by a failure; the observation before the failure serves as their last."""
        self._process = LocalBatch.process
        """Process that started the last step."""
        self._named = (0, "")
        """Environment in the last error, and its place."""

    @property
    def layout(self) -> FrameLayout:
        return self._writer.layout

    @abstractmethod
    def is_over(self, env_id: int) -> bool:
        """True if the environment shows the last observation of an episode."""

    @abstractmethod
    def _reset_env(self, env_id: int) -> None:
        """Starts a new episode in one environment."""

    @abstractmethod
    def _act_from(self, first: int) -> None:
        """Steps environments from `first` on, and adds their rows."""

    @abstractmethod
    def _set_actions(self, values: Mapping[ActionName, list[Any]]) -> None:
        """Assigns a value to every actor of the last batch."""

    @abstractmethod
    def _collect(self, env_id: int) -> None:
        """Adds the rows of one environment, and their rewards."""

    @abstractmethod
    def _last_flags(self, env_id: int) -> Iterable[tuple[int, bool, bool]]:
        """Row, terminated and truncated of each last observation that an environment shows."""

    def _score_error(self, env_id: int) -> str:
        """Error message for an environment's score; empty if valid."""
        return ""

    @abstractmethod
    def _place(self, env_id: int) -> dict[str, int]:
        """Seed, episode and step of an environment, for errors."""

    def _line(self, env_id: int) -> str:
        """Line of the game that waits for an action, for errors."""
        return ""

    @abstractmethod
    def _truncate_failed(self, env_id: int) -> Iterable[Episode]:
        """Truncated episodes of a failed environment."""

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        with self._output(self.current):
            return self._reset(env_ids, memory)

    def _reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        chosen = set(env_ids)
        if not self.is_whole:
            self._settle()
        self._begin()
        begin = perf_counter()
        flags: list[tuple[int, bool, bool]] = []
        for env_id in range(self.num_envs):
            self.current[0] = env_id
            if env_id in chosen:
                try:
                    self._reset_env(env_id)
                except BaseException as error:
                    self._restart(env_id, error)
            else:
                flags += self._last_flags(env_id)
            self._guard(env_id, self._collect)
        if self.autoreset != "same_step":
            # Without `final`: it would lack rows that were already over, which also have flags.
            self._final_writer.clear()
        step = self._finish(begin, memory)
        for row, terminated, truncated in flags:
            step.terminated[row] = terminated
            step.truncated[row] = truncated
        return step

    def act(self, values: ActionValues, memory: StepMemory) -> BatchStep:
        with self._output(self.current):
            return self._act(values, memory)

    def _act(self, values: ActionValues, memory: StepMemory) -> BatchStep:
        begin = perf_counter()
        self._set_actions({name: array.tolist() for name, array in values.items()})
        self._begin()
        env_id = 0
        while env_id < self.num_envs:
            try:
                self._act_from(env_id)
                break
            except BaseException as error:
                env_id = self.current[0]
                self._recover(env_id, error)
                self._guard(env_id, self._collect)
                env_id += 1
        return self._finish(begin, memory)

    def _settle(self) -> None:
        """Waits for work in other threads after an interrupt."""

    def _recover(self, env_id: int, error: BaseException) -> None:
        """Starts the next episode of a failed environment, or raises its error."""
        self._require_failure(error)
        if self._on_error == "raise" or len(self._rewards) != env_id * self.num_agents:
            self._raise_with_place(env_id, error)
        self.failures[self.first_env + env_id] = reason_of(error)
        for episode in self._truncate_failed(env_id):
            self._lost.add_episode(env_id * self.num_agents + episode.agent_id, 0.0, episode)
        self._restart(env_id, error)

    def _restart(self, env_id: int, error: BaseException) -> None:
        """Starts an episode in place of a failed one, or raises its error."""
        self._require_failure(error)
        for _ in range(_MAX_RESTARTS if self._on_error == "restart" else 0):
            self.num_restarts += 1
            try:
                self._reset_env(env_id)
                return
            except BaseException as again:
                self._require_failure(again)
                error = again
        self._raise_with_place(env_id, error)

    def _read(self) -> None:
        """Adds the rows of all environments that `_collect` has not added."""

    def _require_failure(self, error: BaseException) -> None:
        """Re-raises an interrupt: it is not a failure of a game."""
        self._leave_fork(error)
        if not is_failure(error):
            raise error

    def _leave_fork(self, error: BaseException | None = None) -> None:
        """Ends this process if a game forked it in this step.

        Otherwise two copies of the program would continue; in a worker, they would share its
        connections.
        """
        process = LocalBatch.process if error is None else os.getpid()
        if process != self._process:
            how = "returned" if error is None else f"raised {summary_of(error)}"
            _logger.warning(
                "a child process that a game forked %s, so it is ended with exit code 1; a game "
                "must end its child processes with os._exit or os.exec",
                how,
            )
            os._exit(1)

    def _begin(self) -> None:
        """Clears the previous step, even if it was interrupted halfway."""
        self._process = LocalBatch.process
        was_whole, self.is_whole = self.is_whole, False
        self._writer.clear()
        if len(self._finished) or not was_whole:
            self._final_writer.clear()
        self._rewards.clear()
        self._finished.clear()
        self._lost.clear()

    def _finish(self, begin: float, memory: StepMemory) -> BatchStep:
        self._read()
        self._leave_fork()
        middle = perf_counter()
        try:
            step = self._written(memory)
        except SchemaError as error:
            raise _named(error, *self._named) from error.__cause__
        step.is_over[:] = self._are_over()
        self.games_s += middle - begin
        self.packing_s += perf_counter() - middle
        self.is_whole = True
        return step

    def _written(self, memory: StepMemory) -> BatchStep:
        step = BatchStep(
            self._writer.write(memory.rows),
            *memory.arrays,
            final=self._final_writer.write(memory.final) if self._final_writer.num_rows else None,
            ended=self._finished.finished(),
            lost=self._lost.finished(),
            metrics=self._writer.metrics(),
        )
        if step.final is not None and self.autoreset == "same_step":  # else the rows have them
            merge_metrics(step.metrics, self._final_writer.metrics())
        self._write_rewards(step)
        return step

    def _write_rewards(self, step: BatchStep) -> None:
        reward = step.reward
        try:
            is_finite = pack_numbers(self._rewards, reward)
        except NotANumber as wrong:
            what = must_be_number("score, or reward,", self._rewards[wrong.index])
            raise SchemaError(f"{self._name_row(wrong.index)}: {what}") from wrong.__cause__
        step.terminated[:] = False
        step.truncated[:] = False
        if is_finite and not (len(step.ended) or len(step.lost)):
            return
        for finished in (step.ended, step.lost):
            if len(finished):  # a row may end several episodes in one step
                rows = finished.rows
                np.add.at(reward, rows, finished.last_reward)
                step.terminated[rows[finished.terminated]] = True
                step.truncated[rows[finished.truncated]] = True
        if not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            where = self._name_reward(row, step.ended)
            raise SchemaError(f"{where}: the score, or reward, must be finite: got {reward[row]}")

    def _name_reward(self, row: int, ended: FinishedEpisodes) -> str:
        """Names the row of a reward that is not finite, and the episode that it belongs to."""
        is_bad = ~np.isfinite(ended.last_reward)
        for index in np.flatnonzero(is_bad & (ended.rows == row)):
            return self._name_end(row, ended.ints[:, index].tolist())
        return self._name_row(row)

    def _name_row(self, row: int) -> str:
        """Names the environment and agent of a row with an error; sets `_named`."""
        env_id = row // self.num_agents
        self._named = self.first_env + env_id, self._place_of(env_id)
        return row_name(row, self.num_agents, self.first_env)

    def _name_end(self, row: int, ints: Sequence[int]) -> str:
        """Like `_name_row`, for the end of an episode, by its `FinishedEpisodes.ints`."""
        place = f"seed {ints[SEED]}, episode {ints[NUMBER]}, step {ints[LENGTH]}"
        self._named = self.first_env + row // self.num_agents, place
        return row_name(row, self.num_agents, self.first_env)

    def _name_finished(self, index: int) -> str:
        """Like `_name_row`, for a row of `final_writer`."""
        ints = self._finished.ints(index)
        return self._name_end(ints[0], ints)

    def _place_of(self, env_id: int, line: str = "") -> str:
        """Seed, episode and step of an environment, and the line where its game waits."""
        place = [f"{name} {value}" for name, value in self._place(env_id).items()]
        line = line or self._line(env_id)
        return ", ".join([*place, f"at {line}"] if line else place)

    def _are_over(self) -> bool | list[bool]:
        if self.autoreset == "same_step":
            return False
        return [self.is_over(env_id) for env_id in range(self.num_envs)]

    def _close_all(self, closes: Iterable[Callable[[], None]]) -> None:
        """Closes all environments, even after an error, and raises the first error."""
        errors: list[Exception] = []
        self._process = LocalBatch.process
        for env_id, close in enumerate(closes):
            try:
                with self._output([env_id]):
                    close()
                self._leave_fork()
            except Exception as error:
                add_note(error, f"while env {self.first_env + env_id} was closed")
                errors.append(error)
            except BaseException as error:
                self._require_failure(error)
                errors.append(self._worker_error(env_id, error))
        if errors:
            raise errors[0]

    def _guard(self, env_id: int, step: Callable[[int], None]) -> None:
        try:
            step(env_id)
        except BaseException as error:
            self._raise_with_place(env_id, error)

    def _raise_with_place(self, env_id: int, error: BaseException) -> NoReturn:
        self._require_failure(error)
        message = self._score_error(env_id)
        if message and issubclass(type(error), _OF_A_SCORE):
            where = self._place_of(env_id)
            raise _named(SchemaError(message), self.first_env + env_id, where) from error
        if is_a(error, EntityEnvError):
            where = self._place_of(env_id, line_of_error(error))
            raise _named(error, self.first_env + env_id, where)
        raise self._worker_error(env_id, error) from error

    def _worker_error(self, env_id: int, error: BaseException) -> WorkerError:
        return WorkerError(
            reason_of(error),
            env_id=self.first_env + env_id,
            **self._place(env_id),
            game_traceback=game_traceback(error),
        )


def _after_fork() -> None:
    LocalBatch.process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _named(error: EntityEnvError, env_id: int, place: str) -> EntityEnvError:
    """The error with its place, in a note if the error is not a plain Schema- or ProtocolError."""
    message = text_of(error)
    if isinstance(error, SchemaError | ProtocolError) and error.args == (message,):
        where = place if message.startswith("env ") else f"env {env_id}, {place}"
        error.args = (f"{message} ({where})",)
    else:
        add_note(error, f"in env {env_id}, {place}")
    return error
