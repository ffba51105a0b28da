"""LocalBatch: environments stepped one after another in this process, as one batch."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, NoReturn, TypeAlias

import numpy as np

from entity_env.batch_writer import BatchWriter
from entity_env.episode import Episode
from entity_env.errors import EntityEnvError, SchemaError, WorkerError
from entity_env.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.vec.autoreset import Autoreset
from entity_env.vec_obs import Metric, VecObs

EndedEpisode: TypeAlias = tuple[int, float, Episode]
"""Row, last reward and summary of an episode that ended."""


class LocalBatch(ABC):
    """Steps environments in this process; what the kinds of source have in common.

    Args:
        writer: gathers the rows of a step.
        final_writer: gathers last observations with autoreset "same_step".
        num_envs: how many environments.
        num_agents: rows of each.
        autoreset: what happens to ended episodes.
        ended: gathers row, last reward and summary of every episode that ends in a step.
    """

    def __init__(
        self,
        writer: BatchWriter,
        final_writer: BatchWriter,
        num_envs: int,
        num_agents: int,
        autoreset: Autoreset,
        ended: list[EndedEpisode],
    ) -> None:
        self.num_envs = num_envs
        self.num_agents = num_agents
        self.autoreset = autoreset
        self.games_s = 0.0
        self.packing_s = 0.0
        self.num_episodes = 0
        self._writer = writer
        self._final_writer = final_writer
        self._rewards: list[float] = []
        self._ended = ended
        rows = np.arange(num_envs * num_agents)
        self._env_id, self._agent_id = np.divmod(rows, num_agents)

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """What can be observed."""

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Begins a new run of episodes in every environment, at their next reset."""

    @abstractmethod
    def close(self) -> None:
        """Ends every environment; may be called twice."""

    @abstractmethod
    def is_over(self, env_id: int) -> bool:
        """The environment shows the last observation of an episode."""

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

    @abstractmethod
    def _place(self, env_id: int) -> dict[str, int]:
        """Seed, episode and step of one environment, for errors."""

    def reset(self, env_ids: Sequence[int]) -> VecObs:
        """Begins a new episode in some environments; all others show what they showed last."""
        chosen = set(env_ids)
        self._begin()
        begin = perf_counter()
        shown: list[tuple[int, bool, bool]] = []
        for env_id in range(self.num_envs):
            if env_id in chosen:
                self._guard(env_id, self._reset_env)
            else:
                shown += self._shown_end(env_id)
            self._guard(env_id, self._collect)
        batch = self._finish(begin)
        for row, terminated, truncated in shown:
            batch.terminated[row] = terminated
            batch.truncated[row] = truncated
        return batch

    def act(self, values: Mapping[ActionName, list[Any]]) -> VecObs:
        """Performs one action per actor of the last batch, and returns the next one."""
        begin = perf_counter()
        self._answer(values)
        self._begin()
        step, collect = self._act_env, self._collect
        env_id = 0
        try:
            for env_id in range(self.num_envs):
                step(env_id)
                collect(env_id)
        except Exception as error:
            self._explain(env_id, error)
        return self._finish(begin)

    def _begin(self) -> None:
        self._writer.clear()
        self._final_writer.clear()
        self._rewards.clear()
        self._ended.clear()

    def _finish(self, begin: float) -> VecObs:
        middle = perf_counter()
        reward = np.array(self._rewards, dtype=np.float32)
        terminated = np.zeros(len(reward), dtype=np.bool_)
        truncated = np.zeros(len(reward), dtype=np.bool_)
        for row, last_reward, episode in self._ended:
            reward[row] += last_reward
            terminated[row] |= episode.terminated
            truncated[row] |= episode.truncated
        if not np.isfinite(reward).all():
            row = int(np.flatnonzero(~np.isfinite(reward))[0])
            where = where_of_row(self.num_agents, row)
            raise SchemaError(f"{where}: the score, or reward, must be finite: got {reward[row]}")
        final = self._final() if self._final_writer.num_rows else None
        batch = self._writer.finish(
            reward,
            terminated,
            truncated,
            self._env_id,
            self._agent_id,
            final=final,
            episodes=[episode for _, _, episode in self._ended],
        )
        if final is not None:
            _merge_metrics(batch.metrics, final.metrics)
        self.num_episodes += len(batch.episodes)
        self.games_s += middle - begin
        self.packing_s += perf_counter() - middle
        return batch

    def _final(self) -> VecObs:
        rows = np.array([row for row, _, _ in self._ended], dtype=np.int64)
        return self._final_writer.finish(
            np.array([reward for _, reward, _ in self._ended], dtype=np.float32),
            np.array([episode.terminated for _, _, episode in self._ended]),
            np.array([episode.truncated for _, _, episode in self._ended]),
            self._env_id[rows],
            self._agent_id[rows],
            episodes=[episode for _, _, episode in self._ended],
        )

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
        except Exception as error:
            self._explain(env_id, error)

    def _explain(self, env_id: int, error: Exception) -> NoReturn:
        """Raises what went wrong in one environment, with its place."""
        place = self._place(env_id)
        if isinstance(error, EntityEnvError):
            where = ", ".join(f"{name} {value}" for name, value in place.items())
            error.add_note(f"in env {env_id}, {where}")
            raise error
        text = "".join(traceback.format_exception(error)).rstrip()
        message = f"the game raised {type(error).__name__}: {error}"
        raise WorkerError(message, env_id=env_id, **place, game_traceback=text) from error


def where_of_row(num_agents: int, row: int) -> str:
    """Names the environment and agent of a row."""
    env_id, agent_id = divmod(row, num_agents)
    return f"env {env_id}" if num_agents == 1 else f"env {env_id}, agent {agent_id}"


def where_of_end(num_agents: int, ended: Sequence[EndedEpisode], index: int) -> str:
    """Names the environment and agent of a last observation, by its index among those."""
    return where_of_row(num_agents, ended[index][0])


def _merge_metrics(into: dict[str, Metric], more: Mapping[str, Metric]) -> None:
    for name, metric in more.items():
        sums = into.setdefault(name, Metric())
        sums.count += metric.count
        sums.sum += metric.sum
        sums.min = min(sums.min, metric.min)
        sums.max = max(sums.max, metric.max)
