"""LocalBatch: environments stepped one after another in this process, as one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from time import perf_counter
from typing import Any, Final, Literal, NoReturn, TypeAlias

import numpy as np

from entity_env.authoring.game_traceback import (
    game_traceback,
    line_of_error,
    shortened,
    stack_of,
    text_of,
)
from entity_env.authoring.step_timeout import GameHangs
from entity_env.batching.entity_buffer import Batcher
from entity_env.batching.frame import FrameLayout
from entity_env.core.episode import Episode
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import is_number, must_be_number
from entity_env.errors import EntityEnvError, ProtocolError, SchemaError, WorkerError
from entity_env.vec.episode_stats import EARNED, TERMINATED, TRUNCATED, Ended, Endings
from entity_env.vec.options import Autoreset
from entity_env.vec.step import BatchStep, StepMemory, merge_metrics

OnError: TypeAlias = Literal["raise", "restart"]
"""What happens when a game raises, hangs, or its process dies: the call that waits for it raises,
or the environment begins its next episode, and the one that failed counts as truncated."""

ERROR_METRIC: Final = "error"
"""Metric of an episode that ended by a failure: 1."""

FAILURES: Final = (Exception, GameHangs)
"""What is the failure of a game: neither Ctrl-C nor what closes it is."""

_MAX_RESTARTS: Final = 10
"""An environment that fails so often in a row, without a step in between, is not restarted."""


class LocalBatch(ABC):
    """Steps environments in this process; what the kinds of source have in common.

    Environments are known by their index in this batch; only what leaves it, episodes, seeds and
    messages, counts from `first_env`.

    Args:
        writer: gathers the rows of a step.
        final_writer: gathers last observations with autoreset "same_step".
        num_envs: how many environments.
        num_agents: rows of each.
        autoreset: what happens to ended episodes.
        on_error: what happens when a game raises.
        first_env: index of the first of them among those of all batches.
        ended: gathers every episode that ends in a step, unless `_endings` says otherwise.
    """

    def __init__(
        self,
        writer: Batcher,
        final_writer: Batcher,
        num_envs: int,
        num_agents: int,
        autoreset: Autoreset,
        on_error: OnError,
        first_env: int,
        ended: list[Ended],
    ) -> None:
        self.num_envs = num_envs
        self.num_agents = num_agents
        self.autoreset = autoreset
        self.first_env = first_env
        self.games_s = 0.0
        self.packing_s = 0.0
        self.num_restarts = 0
        self.current: MutableSequence[int] | memoryview = [0]
        """Its first element is the index of the environment that is being stepped."""
        self._on_error = on_error
        self._writer = writer
        self._final_writer = final_writer
        self._rewards: list[float] = []
        self._ended = ended
        self._lost: list[Ended] = []
        """Those whose last observation was lost with their environment."""
        self._is_whole = True
        """The last step was completed: what it left behind is what `_begin` expects."""
        self._named = (0, "")
        """The environment whose observation an error named last, and its place."""

    @property
    def layout(self) -> FrameLayout:
        """Of every step."""
        return self._writer.layout

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """What can be observed."""

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""

    @abstractmethod
    def seed_env(self, env_id: int, run: Run) -> None:
        """Begins a run of episodes in one environment, at its next reset."""

    @abstractmethod
    def close(self) -> None:
        """Ends every environment; may be called twice."""

    @abstractmethod
    def is_over(self, env_id: int) -> bool:
        """The environment shows the last observation of an episode."""

    @abstractmethod
    def numbers(self, env_id: int) -> Sequence[int]:
        """Number of the episode that each agent of an environment plays, or plays next."""

    @abstractmethod
    def _reset_env(self, env_id: int) -> None:
        """Begins a new episode in one environment."""

    @abstractmethod
    def _act_env(self, env_id: int) -> None:
        """Lets one environment go on to its next observation."""

    @abstractmethod
    def _answer(self, values: Mapping[ActionName, list[Any]]) -> None:
        """Hands every actor of the last batch its value."""

    @abstractmethod
    def _collect(self, env_id: int) -> None:
        """Adds the rows of one environment, and their rewards."""

    @abstractmethod
    def _shown_end(self, env_id: int) -> Iterable[tuple[int, bool, bool]]:
        """Row and flags of each last observation that an environment shows again."""

    def _oddity(self, env_id: int) -> str:
        """What is wrong with the score of what an environment shows; empty if nothing is."""
        return ""

    @abstractmethod
    def _place(self, env_id: int) -> dict[str, int]:
        """Seed, episode and step of one environment, for errors."""

    def _line(self, env_id: int) -> str:
        """The line of the game that waits for an answer, for errors; empty if there is none."""
        return ""

    @abstractmethod
    def _lose(self, env_id: int) -> Iterable[Episode]:
        """The episodes of one environment that are cut by its failure."""

    def reset(self, env_ids: Sequence[int], memory: StepMemory) -> BatchStep:
        """Begins a new episode in some environments; all others show what they showed last.

        Args:
            env_ids: which.
            memory: where the step is written.
        """
        chosen = set(env_ids)
        self._begin()
        begin = perf_counter()
        shown: list[tuple[int, bool, bool]] = []
        for env_id in range(self.num_envs):
            self.current[0] = env_id
            if env_id in chosen:
                try:
                    self._reset_env(env_id)
                except FAILURES as error:
                    self._restart(env_id, error)
            else:
                shown += self._shown_end(env_id)
            self._guard(env_id, self._collect)
        step = self._finish(begin, memory)
        for row, terminated, truncated in shown:
            step.terminated[row] = terminated
            step.truncated[row] = truncated
        return step

    def act(self, values: Mapping[ActionName, list[Any]], memory: StepMemory) -> BatchStep:
        """Performs one action per actor of the last batch, and shows the next one.

        Args:
            values: per action one value an actor.
            memory: where the step is written.
        """
        begin = perf_counter()
        self._answer(values)
        self._begin()
        env_id = 0
        while env_id < self.num_envs:
            try:
                self._act_from(env_id)
                break
            except FAILURES as error:
                env_id = self.current[0]
                self._recover(env_id, error)
                self._guard(env_id, self._collect)
                env_id += 1
        return self._finish(begin, memory)

    def _act_from(self, first: int) -> None:
        """Steps all environments from one on."""
        step, collect, current = self._act_env, self._collect, self.current
        for env_id in range(first, self.num_envs):
            current[0] = env_id
            step(env_id)
            collect(env_id)

    def _recover(self, env_id: int, error: BaseException) -> None:
        """Begins the next episode of an environment that failed, or raises what it failed of."""
        if self._on_error == "raise" or len(self._rewards) != env_id * self.num_agents:
            self._explain(env_id, error)
        for episode in self._lose(env_id):
            row = env_id * self.num_agents + episode.agent_id
            self._lost.append(Ended(row, 0.0, episode))
        self._restart(env_id, error)

    def _restart(self, env_id: int, error: BaseException) -> None:
        """Begins an episode in place of one that failed, or raises what it failed of."""
        for _ in range(_MAX_RESTARTS if self._on_error == "restart" else 0):
            self.num_restarts += 1
            try:
                self._reset_env(env_id)
                return
            except FAILURES as again:
                error = again
        self._explain(env_id, error)

    def _read(self) -> None:
        """Adds the rows of all environments, if `_collect` has not done so."""

    def _begin(self) -> None:
        """Drops what was gathered in the step before, also if that one was cut off anywhere."""
        was_whole, self._is_whole = self._is_whole, False
        self._writer.clear()
        if self._has_ended() or not was_whole:
            self._final_writer.clear()
        self._rewards.clear()
        self._ended.clear()
        self._lost.clear()

    def _has_ended(self) -> bool:
        """Some episode has ended in this step."""
        return bool(self._ended)

    def _finish(self, begin: float, memory: StepMemory) -> BatchStep:
        self._read()
        middle = perf_counter()
        try:
            step = self._written(memory)
        except SchemaError as error:
            raise _named(error, *self._named) from error.__cause__
        step.is_over[:] = self._are_over()
        self.games_s += middle - begin
        self.packing_s += perf_counter() - middle
        self._is_whole = True
        return step

    def _written(self, memory: StepMemory) -> BatchStep:
        """Writes what all environments show.

        Raises:
            SchemaError: what one of them shows is no finite number; `_named` says which.
        """
        step = BatchStep(
            frame=self._writer.write(memory.rows),
            reward=memory.reward,
            terminated=memory.terminated,
            truncated=memory.truncated,
            is_over=memory.is_over,
            final=self._final_writer.write(memory.final) if self._final_writer.num_rows else None,
            ended=self._endings(),
            lost=Endings.of(self._lost),
            metrics=self._writer.metrics(),
        )
        if step.final is not None:
            merge_metrics(step.metrics, self._final_writer.metrics())
        self._write_rewards(step)
        return step

    def _endings(self) -> Endings:
        """The episodes that ended in this step, in the order of the rows of `final_writer`."""
        return Endings.of(self._ended)

    def _write_rewards(self, step: BatchStep) -> None:
        reward = step.reward
        try:
            reward[:] = self._rewards
        except (TypeError, ValueError, OverflowError) as error:
            raise self._odd_reward() from error
        if len(reward) == 1 and not is_number(self._rewards[0]):  # an array of one is written, too
            raise self._odd_reward()
        step.terminated[:] = False
        step.truncated[:] = False
        for endings in (step.ended, step.lost):
            if len(endings):  # a row may end several episodes in one step
                rows, ints = endings.rows, endings.ints
                np.add.at(reward, rows, endings.floats[:, EARNED].astype(np.float32))
                step.terminated[rows[ints[:, TERMINATED] != 0]] = True
                step.truncated[rows[ints[:, TRUNCATED] != 0]] = True
        if not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            where = self._name_earning(row, step.ended)
            raise SchemaError(f"{where}: the score, or reward, must be finite: got {reward[row]}")

    def _name_earning(self, row: int, ended: Endings) -> str:
        """Names a row by the end of its episode if that is where it earned no finite number."""
        with np.errstate(over="ignore"):
            is_odd = ~np.isfinite(ended.floats[:, EARNED].astype(np.float32))
        for index in np.flatnonzero(is_odd & (ended.rows == row)):
            _, _, length, _, _, seed, number, _ = ended.ints[index].tolist()
            return self._name_end(row, seed, number, length)
        return self._name_row(row)

    def _odd_reward(self) -> SchemaError:
        odd = ((row, each) for row, each in enumerate(self._rewards) if not is_number(each))
        row, reward = next(odd, (0, self._rewards))
        return SchemaError(f"{self._name_row(row)}: {must_be_number('score, or reward,', reward)}")

    def _name_row(self, row: int) -> str:
        """Names the environment and agent of a row, whose observation is wrong."""
        env_id = row // self.num_agents
        self._named = self.first_env + env_id, self._place_of(env_id)
        return where_of_row(self.num_agents, self.first_env, row)

    def _name_end(self, row: int, seed: int, episode: int, step: int) -> str:
        """The same for a last observation of an episode; its environment may have gone on."""
        env_id = self.first_env + row // self.num_agents
        self._named = env_id, f"seed {seed}, episode {episode}, step {step}"
        return where_of_row(self.num_agents, self.first_env, row)

    def _place_of(self, env_id: int, line: str = "") -> str:
        """Seed, episode and step of an environment, and the line of the game that waits there."""
        place = [f"{name} {value}" for name, value in self._place(env_id).items()]
        line = line or self._line(env_id)
        return ", ".join([*place, f"at {line}"] if line else place)

    def _are_over(self) -> bool | list[bool]:
        """For every environment whether it shows the end of an episode."""
        if self.autoreset == "same_step":
            return False
        return [self.is_over(env_id) for env_id in range(self.num_envs)]

    def _close_all(self, ends: Iterable[Callable[[], None]]) -> None:
        """Closes all environments, whatever goes wrong in some, and raises the first error."""
        errors: list[Exception] = []
        for end in ends:
            try:
                end()
            except Exception as error:  # the others are closed all the same
                errors.append(error)
        if errors:
            raise errors[0]

    def _guard(self, env_id: int, step: Callable[[int], None]) -> None:
        try:
            step(env_id)
        except FAILURES as error:
            self._explain(env_id, error)

    def _explain(self, env_id: int, error: BaseException) -> NoReturn:
        """Raises what went wrong in one environment, with its place."""
        odd = self._oddity(env_id)
        if odd and isinstance(error, TypeError | ValueError | OverflowError | AttributeError):
            where = self._place_of(env_id)
            raise _named(SchemaError(odd), self.first_env + env_id, where) from error
        if isinstance(error, EntityEnvError):
            where = self._place_of(env_id, line_of_error(error))
            raise _named(error, self.first_env + env_id, where)
        place = self._place(env_id)
        env_id += self.first_env
        if isinstance(error, GameHangs):
            text, message = stack_of(error), f"the game hangs: {error}"
        else:
            text = game_traceback(error)
            message = f"the game raised {type(error).__name__}: {shortened(text_of(error))}"
        raise WorkerError(message, env_id=env_id, **place, game_traceback=text) from error


def _named(error: EntityEnvError, env_id: int, place: str) -> EntityEnvError:
    """The same error, whose message says where it was; a note says it of what the user typed."""
    message = str(error)
    if isinstance(error, SchemaError | ProtocolError) and error.args == (message,):
        where = place if message.startswith("env ") else f"env {env_id}, {place}"
        error.args = (f"{message} ({where})",)
    else:
        error.add_note(f"in env {env_id}, {place}")
    return error


def where_of_row(num_agents: int, first_env: int, row: int) -> str:
    """Names the environment and agent of a row."""
    env_id, agent_id = divmod(row, num_agents)
    env_id += first_env
    return f"env {env_id}" if num_agents == 1 else f"env {env_id}, agent {agent_id}"
