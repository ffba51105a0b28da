"""EnvironmentBatch: many `Environment`s in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from entity_env.batching.adapter import OURS, games_of
from entity_env.batching.observation_batcher import BulkWriter
from entity_env.core.action_request import Asked
from entity_env.core.environment import Environment
from entity_env.core.episode import MAX_IDLE_EPISODES, Episode
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import is_number, must_be_number
from entity_env.errors import ProtocolError, SchemaError
from entity_env.vec.episode_stats import LENGTH, NUMBER, ROW, SEED, EndedColumns, Endings
from entity_env.vec.in_process.base import ERROR_METRIC, FAILURES, LocalBatch, OnError
from entity_env.vec.options import Autoreset

_AT_ONCE: Final = 128
"""So many environments are read at once. What more of them show, as objects, is enough for Python's
garbage collector to go through the whole process every few steps."""


class EnvironmentBatch(LocalBatch):
    """Many environments of one kind; args as for `VecEnv`."""

    def __init__(
        self,
        make: Callable[[], Environment],
        num_envs: int,
        autoreset: Autoreset,
        on_error: OnError = "raise",
        first_env: int = 0,
    ) -> None:
        self._envs: list[Environment] = []
        try:
            for _ in range(num_envs):
                self._envs.append(_made_by(make))
        except BaseException:
            self.close()
            raise
        spaces = self._envs[0].obs_space(), self._envs[0].action_space()
        # What cannot be translated is a reason to begin anew, and must be found out at once.
        games, dialect = games_of(self._envs) if on_error == "raise" else (self._envs, OURS)
        writer = BulkWriter(*spaces, self._name_row, dialect)
        final_writer = BulkWriter(*spaces, self._where_of_end, dialect)
        super().__init__(writer, final_writer, num_envs, 1, autoreset, on_error, first_env, [])
        self._spaces = spaces
        self._games: Sequence[Any] = games
        """What is stepped: the environments, or those that they stand for."""
        self._dialect = dialect
        self._ends = EndedColumns(first_env)
        self._last: list[Any] = []
        """Last observations that are still to be added, with autoreset "same_step"."""
        self._observation_writer = writer
        self._observation_final_writer = final_writer
        self._shown: list[Any] = [Observation(reward=0.0)] * num_envs
        """What each environment showed last, in its own dialect."""
        self._takes_seed = "seed" in inspect.signature(self._envs[0].reset).parameters
        self._seeds = [EpisodeSeeds(0, first_env + i) for i in range(num_envs)]
        self._ledgers = [_Ledger() for _ in range(num_envs)]
        self._answers: Iterator[dict[ActionName, Any]] = iter(())
        """What each environment is to do next, in turn; made when it is its turn."""
        self._has_acted = [False] * num_envs

    def obs_space(self) -> ObsSpace:
        return self._spaces[0]

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._spaces[1]

    def seed_env(self, env_id: int, run: Run) -> None:
        self._seeds[env_id], number = run
        self._ledgers[env_id] = _Ledger(number)

    def is_over(self, env_id: int) -> bool:
        return self._ledgers[env_id].is_over

    def numbers(self, env_id: int) -> Sequence[int]:
        ledger = self._ledgers[env_id]
        return (ledger.number + (not ledger.is_playing),)

    def close(self) -> None:
        self._close_all(env.close for env in self._envs)

    def environment(self, env_id: int) -> Environment:
        """One of the environments."""
        return self._envs[env_id]

    def _reset_env(self, env_id: int) -> None:
        for _ in range(MAX_IDLE_EPISODES):
            self._begin_episode(env_id)
            if self.autoreset != "same_step" or not self._ledgers[env_id].is_over:
                return
        raise ProtocolError(
            f"env {env_id}: {MAX_IDLE_EPISODES} episodes in a row were over before the first "
            "action, so there is nothing to train"
        )

    def _begin_episode(self, env_id: int) -> None:
        ledger = self._ledgers[env_id]
        ledger.begin()
        game = self._games[env_id]
        ledger.seed = seed = self._seeds[env_id][ledger.number]
        observation = game.reset(seed=seed) if self._takes_seed else game.reset()
        self._shown[env_id] = observation
        self._has_acted[env_id] = False
        ledger.is_playing = True
        if observation.done:
            self._end(env_id, observation, reward=0.0)

    def _begin(self) -> None:
        super()._begin()
        self._ends.clear()
        self._last.clear()

    def _has_ended(self) -> bool:
        return len(self._ends) > 0

    def _act_from(self, first: int) -> None:
        if self.autoreset != "same_step":
            super()._act_from(first)
            return
        for begin in range(first, self.num_envs, _AT_ONCE):
            shown: list[Any] = []
            try:
                self._act_some(range(begin, min(begin + _AT_ONCE, self.num_envs)), shown)
            except FAILURES:
                self._add_all(begin, shown)
                raise
            self._add_all(begin, shown)

    def _act_some(self, env_ids: range, shown: list[Any]) -> None:
        """Steps some environments; what they show comes to the end of `shown`."""
        current, show, earn = self.current, shown.append, self._rewards.append
        games, ledgers = self._games, self._ledgers
        observation: Any = None
        try:
            # Each answer is taken when it is its turn: none is lost when an environment fails.
            for env_id, answer in zip(env_ids, self._answers, strict=False):
                current[0] = env_id
                observation = games[env_id].act(answer)
                ledger = ledgers[env_id]
                reward = observation.reward
                ledger.reward += reward
                ledger.length += 1
                if observation.done:
                    self._end(env_id, observation, reward)
                    self._reset_env(env_id)
                    earn(0.0)
                    show(self._shown[env_id])
                else:
                    earn(reward)
                    show(observation)
        except (TypeError, OverflowError):
            _require_reward(observation)
            raise

    def _add_all(self, first: int, shown: Sequence[Any]) -> None:
        """Adds what some environments show, from one on, and how their episodes ended."""
        if self._last:
            try:
                self._add_last()
            except Exception:  # an environment before that one is told of first
                self._add_rows(first, shown[: self.current[0] - first])
                raise
        self._add_rows(first, shown)

    def _add_rows(self, first: int, shown: Sequence[Any]) -> None:
        if self._observation_writer.add_alike(shown):
            return
        add, as_ours = self._observation_writer.add, self._dialect.observation
        current, failed = self.current, self.current[0]
        for env_id, observation in enumerate(shown, first):
            current[0] = env_id
            add(as_ours(observation))
        current[0] = failed

    def _add_last(self) -> None:
        """Adds the last observations that are still to be added."""
        last, self._last = self._last, []
        writer, as_ours = self._observation_final_writer, self._dialect.observation
        if writer.add_alike(last, ask=False):
            return
        for i, observation in enumerate(last):
            try:
                writer.add(as_ours(observation), ask=False)
            except Exception:
                self._last = last[i:]  # whoever goes on all the same comes by here again
                self._go_back(self._ends.told(writer.num_rows))
                raise

    def _go_back(self, told: Sequence[int]) -> None:
        """Makes the place of an end the current one; the environment has gone on since."""
        self.current[0] = told[ROW]
        self._ledgers[told[ROW]].place(told[NUMBER], told[LENGTH])

    def _where_of_end(self, index: int) -> str:
        told = self._ends.told(index)
        return self._name_end(told[ROW], told[SEED], told[NUMBER], told[LENGTH])

    def _endings(self) -> Endings:
        return self._ends.endings()

    def _act_env(self, env_id: int) -> None:
        ledger = self._ledgers[env_id]
        answer = next(self._answers)
        if ledger.is_over:
            self._reset_env(env_id)
            return
        observation = self._games[env_id].act(answer)
        try:
            ledger.reward += observation.reward
        except (TypeError, OverflowError):
            _require_reward(observation)
            raise
        ledger.length += 1
        self._shown[env_id] = observation
        self._has_acted[env_id] = True
        if observation.done:
            self._end(env_id, observation, observation.reward)

    def _end(self, env_id: int, observation: Any, reward: float) -> None:  # noqa: ANN401
        ledger = self._ledgers[env_id]
        if not is_number(ledger.reward):
            _require_reward(observation)
        ledger.is_over = True
        ledger.is_playing = False
        terminated, truncated = self._dialect.flags(observation)
        numbers = ledger.length, terminated, truncated, ledger.seed, ledger.number
        self._ends.add(env_id, numbers, (ledger.reward, reward), dict(observation.metrics))
        if self.autoreset == "same_step":
            self._last.append(observation)

    def _answer(self, values: Mapping[ActionName, list[Any]]) -> None:
        asked = self._observation_writer.asked
        actions = {
            name: self._dialect.actions(name, space, asked[name], values[name])
            for name, space in self._spaces[1].items()
        }
        self._answers = _answers(self.num_envs, asked, actions)

    def _collect(self, env_id: int) -> None:
        observation = self._shown[env_id]
        is_over = self._ledgers[env_id].is_over
        goes_on = self._has_acted[env_id] and not is_over
        self._rewards.append(observation.reward if goes_on else 0.0)
        if self._last:
            self._add_last()
        self._observation_writer.add(self._dialect.observation(observation), ask=not is_over)
        self._has_acted[env_id] = False

    def _shown_end(self, env_id: int) -> Iterator[tuple[int, bool, bool]]:
        if self.is_over(env_id):
            yield env_id, *self._dialect.flags(self._shown[env_id])

    def _lose(self, env_id: int) -> Iterator[Episode]:
        ledger = self._ledgers[env_id]
        if not ledger.is_playing:
            return
        yield Episode(
            reward=ledger.reward,
            length=ledger.length,
            terminated=False,
            truncated=True,
            seed=self._seeds[env_id][ledger.number],
            number=ledger.number,
            env_id=self.first_env + env_id,
            metrics={ERROR_METRIC: 1.0},
        )

    def _place(self, env_id: int) -> dict[str, int]:
        ledger = self._ledgers[env_id]
        seed = self._seeds[env_id][ledger.number]
        return {"seed": seed, "episode": ledger.number, "step": ledger.length}


def _require_reward(observation: Any) -> None:  # noqa: ANN401 - in any dialect
    """Checks that what an observation earned is a number, if it has a reward at all.

    Raises:
        SchemaError: it is not.
    """
    reward = getattr(observation, "reward", 0.0)
    if not is_number(reward):
        raise SchemaError(must_be_number("reward", reward))


def _made_by(make: Callable[[], Environment]) -> Environment:
    env: object = make()
    if not isinstance(env, Environment):
        raise SchemaError(
            f"a VecEnv needs a Game, an Environment class, or a function that returns an "
            f"Environment: {make!r} returned a {type(env).__name__}"
        )
    return env


def _answers(
    num_envs: int,
    asked: Mapping[ActionName, Sequence[Asked]],
    actions: Mapping[ActionName, Iterator[Any]],
) -> Iterator[dict[ActionName, Any]]:
    """The actions of every environment in turn; those that were asked nothing have none."""
    if len(actions) == 1:
        [(name, chosen)] = actions.items()
        if len(asked[name]) == num_envs:
            return ({name: action} for action in chosen)
    answers: list[dict[ActionName, Any]] = [{} for _ in range(num_envs)]
    for name, chosen in actions.items():
        if len(asked[name]) == num_envs:
            for answer, action in zip(answers, chosen, strict=True):
                answer[name] = action
        else:
            for (env_id, _, _), action in zip(asked[name], chosen, strict=True):
                answers[env_id][name] = action
    return iter(answers)


class _Ledger:
    """Counts the episodes of one environment."""

    __slots__ = ("is_over", "is_playing", "length", "number", "reward", "seed")

    def __init__(self, first: int = 0) -> None:
        self.number = first - 1
        self.seed = 0
        """Of the episode that began last."""
        self.reward = 0.0
        self.length = 0
        self.is_over = False
        self.is_playing = False
        """It has shown its first observation, and not its last."""

    def place(self, number: int, length: int) -> None:
        """Goes back to the end of an episode that cannot be shown."""
        self.number, self.length = number, length

    def begin(self) -> None:
        self.number += 1
        self.reward = 0.0
        self.length = 0
        self.is_over = self.is_playing = False
