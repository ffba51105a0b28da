"""GameBatch: suspended games of this process, whose `Obs` are read directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channels.game_runner import GameRunner, OnEnd, TrainAgent
from entity_env.authoring.action_type import ActionType, Categorical, GlobalCategorical
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import line_of_frame
from entity_env.authoring.obs import Obs, actions_at_truncation, answers_to, obs_problem
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.episode import ERROR_METRIC, Episode
from entity_env.core.episode_stats import EpisodeCollector
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName
from entity_env.core.validation import is_number
from entity_env.errors import SchemaError
from entity_env.vec.in_process.base import LocalBatch
from entity_env.vec.options import VecOptions
from entity_env.vec.step import BatchStep, StepMemory

_AT_ONCE: Final = 256
"""Number of agents that get their actions before their games are resumed. With as many new lists as
games, Python's garbage collector would traverse all games in every step."""


class GameBatch(LocalBatch):
    """Copies of a game; `options` and `envs` as for `LocalBatch`."""

    def __init__(self, game: Game, options: VecOptions, envs: range) -> None:
        num_agents, spaces = game.num_agents, (game.obs_space(), game.action_space())
        writer = ObsBatcher(game.schema, self._name_row)
        final_writer = ObsBatcher(game.schema, self._name_finished, is_final=True)
        super().__init__(writer, final_writer, spaces, num_agents, options, envs)
        self._obs_writer = writer
        self._waiting: list[TrainAgent] = []
        """Agents that wait for an action, in row order of the last batch."""
        self._answers: Iterator[tuple[TrainAgent, Any]] = iter(())
        """Waiting agents with their actions, created when consumed."""
        self._undecoded: dict[int, BaseException] = {}
        """Errors of the game's classes while the actions of an environment were made."""
        self._envs_at_once = max(_AT_ONCE // num_agents, 1)
        self._shown: list[Obs | None] = []
        """Observation of every row; read after all environments have stepped."""
        self._asked: list[tuple[ActionType[Any], ...]] = []
        self._lengths: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
        """Lengths of the last step; see `FrameLayout`."""
        self._last: dict[int, tuple[Obs, Episode]] = {}
        """Last observation of rows that are over, unless the next episode starts at once."""
        holds = options.autoreset != "same_step"
        row_of = partial(_row_of, envs.start, num_agents)
        last = self._last if holds else None
        on_end: OnEnd = partial(_write, self._finished, final_writer, last, row_of)
        self._hosts = [
            GameRunner(
                game,
                transport=options.transport,
                env_id=env_id,
                on_end=on_end,
                holds_at_end=holds,
            )
            for env_id in envs
        ]

    def seed_env(self, env_id: int, run: Run) -> None:
        self._hosts[env_id].begin_run(*run)

    def is_over(self, env_id: int) -> bool:
        return self._hosts[env_id].is_over

    def numbers(self, env_id: int) -> Sequence[int]:
        return self._hosts[env_id].numbers()

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        host = self._hosts[env_id]
        return host.seed_of(host.episode - is_over)

    def close(self) -> None:
        self._close_all(host.close for host in self._hosts)

    def _begin(self) -> None:
        super()._begin()
        self._waiting = []
        self._shown.clear()
        self._asked.clear()

    def _reset_env(self, env_id: int) -> None:
        for row in range(env_id * self.num_agents, (env_id + 1) * self.num_agents):
            self._last.pop(row, None)
        self._hosts[env_id].restart()

    def _settle(self) -> None:
        # Before the step is cleared: a game in its own thread may still add ended episodes to it.
        for host in self._hosts:
            host.settle()

    def _set_actions(self, values: Mapping[ActionName, list[Any]]) -> None:
        self._last.clear()
        self._undecoded.clear()
        self._answers = zip(self._waiting, self._decoded(values), strict=True)

    def _decoded(self, values: Mapping[ActionName, list[Any]]) -> Iterator[Any]:
        if len(values) == 1 and len(self._waiting) == self.num_envs * self.num_agents:
            [(name, chosen)] = values.items()
            kind = self._waiting[0].kinds[0]
            if isinstance(kind, Categorical | GlobalCategorical) and kind.whole is None:
                return self._choices(kind, chosen, self.layout.actions[name].row)
        given = {name: iter(chosen) for name, chosen in values.items()}
        return self._answers_of(self._waiting, given)

    def _answers_of(
        self, waiting: Sequence[TrainAgent], given: Mapping[ActionName, Iterator[Any]]
    ) -> Iterator[Any]:
        """Answers of agents; the error of one is kept until its environment steps."""
        for agent in waiting:
            answer = None
            try:
                answer = answers_to(agent.kinds, agent.obs or Obs(), given)
            except BaseException as error:
                self._require_failure(error)
                env_id = next(i for i, host in enumerate(self._hosts) if agent in host.agents)
                self._undecoded.setdefault(env_id, error)
            yield answer  # outside `try`: closing this generator is not a failure of a game

    def _choices(
        self, kind: Categorical[Any] | GlobalCategorical[Any], chosen: list[int], row: int
    ) -> Iterator[Any]:
        """Answers of all agents, which wait for one categorical action; created when consumed."""
        choices = kind.choices
        if isinstance(kind, GlobalCategorical):
            return map(choices.__getitem__, chosen)
        lengths = self._lengths[row]
        if len(chosen) == len(lengths) and lengths.min() == 1:  # exactly one actor in every row
            return ([choices[index]] for index in chosen)
        indices = iter(chosen)
        return ([choices[index] for index in islice(indices, n)] for n in lengths.tolist())

    def _read(self) -> None:
        try:
            self._obs_writer.add_all(self._shown, self._asked)
        except BaseException as error:
            self._raise_with_place(self._obs_writer.num_rows // self.num_agents, error)

    def _finish(self, begin: float, memory: StepMemory) -> BatchStep:
        step = super()._finish(begin, memory)
        self._lengths = step.frame.lengths
        return step

    def _act_from(self, first: int) -> None:
        at_once = self._envs_at_once
        for begin in range(first, self.num_envs, at_once):
            # As many answers as agents can wait in these environments. If fewer wait, agents of
            # later environments get their answers early.
            for agent, answer in islice(self._answers, at_once * self.num_agents):
                agent.give(answer)
            env_ids = range(begin, min(begin + at_once, self.num_envs))
            if self._undecoded and (failed := min(self._undecoded)) in env_ids:
                self._resume(range(begin, failed))
                self.current[0] = failed
                raise self._undecoded.pop(failed)
            self._resume(env_ids)

    def _resume(self, env_ids: range) -> None:
        hosts, current, rewards = self._hosts, self.current, self._rewards
        if self.num_agents > 1 or self.autoreset != "same_step":
            for env_id in env_ids:
                current[0] = env_id
                if hosts[env_id].is_over:
                    self._reset_env(env_id)
                else:
                    hosts[env_id].resume()
                self._collect(env_id)
            return
        # `_collect` inlined, for games with one agent.
        show, ask, wait = self._shown.append, self._asked.append, self._waiting.append
        for env_id in env_ids:
            current[0] = env_id
            host = hosts[env_id]
            host.resume()
            agent = host.agents[0]
            obs = agent.obs
            if obs is None or not agent.is_playing:
                self._collect(env_id)
                continue
            score = obs.score
            rewards.append(score - agent.last_score)
            agent.last_score = score
            show(obs)
            ask(agent.kinds)
            wait(agent)

    def _collect(self, env_id: int) -> None:
        rewards = self._rewards
        for agent in self._hosts[env_id].agents:
            obs = agent.obs
            if obs is None:
                self._collect_idle(env_id, agent)
                continue
            score = obs.score
            if agent.is_playing:
                rewards.append(score - agent.last_score)
            else:
                if score.__class__ is not float and not is_number(score):
                    raise SchemaError(obs_problem(obs))
                agent.is_playing = True
                agent.first_score = score
                rewards.append(0.0)
            agent.last_score = score
            self._shown.append(obs)
            self._asked.append(agent.kinds)
            self._waiting.append(agent)

    def _collect_idle(self, env_id: int, agent: TrainAgent) -> None:
        """Adds the row of an agent whose episode is over, or that has no turn now."""
        self._hosts[env_id].require_waiting()
        last = self._last.get(env_id * self.num_agents + agent.agent_id)
        self._rewards.append(0.0)
        self._shown.append(None if last is None else last[0])
        self._asked.append(())

    def _last_flags(self, env_id: int) -> Iterator[tuple[int, bool, bool]]:
        if not self.is_over(env_id):
            return
        for row in range(env_id * self.num_agents, (env_id + 1) * self.num_agents):
            if row in self._last:
                _, episode = self._last[row]
                yield row, episode.terminated, episode.truncated

    def _truncate_failed(self, env_id: int) -> Iterator[Episode]:
        host = self._hosts[env_id]
        for agent in host.agents:
            if agent.is_playing:
                reward = agent.last_score - agent.first_score
                yield host.summary(agent, reward, True, {ERROR_METRIC: 1.0})

    def _place(self, env_id: int) -> dict[str, int]:
        return self._hosts[env_id].place

    def _line(self, env_id: int) -> str:
        return line_of_frame(self._hosts[env_id].frame)

    def _score_error(self, env_id: int) -> str:
        shown = [agent.obs for agent in self._hosts[env_id].agents if agent.obs is not None]
        return next(filter(None, map(obs_problem, shown)), "")


def _row_of(first_env: int, num_agents: int, episode: Episode) -> int:
    return (episode.env_id - first_env) * num_agents + episode.agent_id


def _write(
    finished: EpisodeCollector,
    writer: ObsBatcher,
    last: dict[int, tuple[Obs, Episode]] | None,
    row_of: Callable[[Episode], int],
    agent: TrainAgent,
    obs: Obs,
    episode: Episode,
) -> None:
    """Writes a last observation before the game starts its next episode.

    Also stores it in `last`, if given, for the row to show until a reset.
    """
    row = row_of(episode)
    if last is not None:
        last[row] = obs.frozen(), episode
    finished.add_episode(row, agent.reward_of(obs), episode)
    asked = agent.kinds if episode.length else ()  # not those of an earlier episode
    writer.add(obs, actions_at_truncation(obs, asked) if episode.truncated else ())
