"""EnvironmentBatch: many `Environment`s in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from entity_env.environment import Environment
from entity_env.episode import Episode
from entity_env.errors import ProtocolError, SchemaError
from entity_env.observation import Action, Observation
from entity_env.observation_writer import ObservationWriter
from entity_env.question import Asked, legal_actions
from entity_env.seeds import EpisodeSeeds, Run
from entity_env.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.vec.autoreset import Autoreset
from entity_env.vec.bulk_writer import BulkWriter
from entity_env.vec.endings import Ended
from entity_env.vec.local import ERROR_METRIC, LocalBatch, OnError, where_of_end, where_of_row

_MAX_IDLE_EPISODES: Final = 1000


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
        ended: list[Ended] = []
        writer = BulkWriter(*spaces, where=partial(where_of_row, 1, first_env))
        final_writer = ObservationWriter(*spaces, where=partial(where_of_end, 1, first_env, ended))
        super().__init__(writer, final_writer, num_envs, 1, autoreset, on_error, first_env, ended)
        self._spaces = spaces
        self._observation_writer = writer
        self._observation_final_writer = final_writer
        self._shown: list[Observation] = [Observation(reward=0.0)] * num_envs
        self._takes_seed = "seed" in inspect.signature(self._envs[0].reset).parameters
        self._seeds = [EpisodeSeeds(0, first_env + i) for i in range(num_envs)]
        self._ledgers = [_Ledger() for _ in range(num_envs)]
        self._answers: Iterator[dict[ActionName, Action]] = iter(())
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

    def close(self) -> None:
        self._close_all(env.close for env in self._envs)

    def environment(self, env_id: int) -> Environment:
        """One of the environments."""
        return self._envs[env_id]

    def _reset_env(self, env_id: int) -> None:
        for _ in range(_MAX_IDLE_EPISODES):
            self._begin_episode(env_id)
            if self.autoreset != "same_step" or not self._ledgers[env_id].is_over:
                return
        raise ProtocolError(
            f"env {env_id}: {_MAX_IDLE_EPISODES} episodes in a row were over before the first "
            "action, so there is nothing to train"
        )

    def _begin_episode(self, env_id: int) -> None:
        ledger = self._ledgers[env_id]
        ledger.begin()
        env = self._envs[env_id]
        ledger.seed = seed = self._seeds[env_id][ledger.number]
        observation = env.reset(seed=seed) if self._takes_seed else env.reset()
        self._shown[env_id] = observation
        self._has_acted[env_id] = False
        ledger.is_playing = True
        if observation.done:
            self._end(env_id, observation, reward=0.0)

    def _act_from(self, first: int) -> None:
        if self.autoreset != "same_step":
            super()._act_from(first)
            return
        shown: list[Observation] = []
        try:
            self._act_all(first, shown)
        except Exception:
            self._add_all(first, shown)
            raise
        self._add_all(first, shown)

    def _act_all(self, first: int, shown: list[Observation]) -> None:
        """Steps all environments from one on; what they show comes to the end of `shown`."""
        envs, ledgers, current = self._envs, self._ledgers, self.current
        show, earn, answers = shown.append, self._rewards.append, self._answers
        for env_id in range(first, self.num_envs):
            current[0] = env_id
            observation = envs[env_id].act(next(answers))
            ledger = ledgers[env_id]
            ledger.reward += observation.reward
            ledger.length += 1
            if observation.terminated or observation.truncated:
                self._end(env_id, observation, observation.reward)
                self._reset_env(env_id)
                self._has_acted[env_id] = False
                earn(0.0)
                show(self._shown[env_id])
            else:
                earn(observation.reward)
                show(observation)

    def _add_all(self, first: int, shown: Sequence[Observation]) -> None:
        """Adds what some environments show, from one on."""
        if self._observation_writer.add_alike(shown):
            return
        add, current = self._observation_writer.add, self.current
        failed = current[0]
        for env_id, observation in enumerate(shown, first):
            current[0] = env_id
            add(observation)
        current[0] = failed

    def _act_env(self, env_id: int) -> None:
        ledger = self._ledgers[env_id]
        answer = next(self._answers)
        if ledger.is_over:
            self._reset_env(env_id)
            return
        observation = self._envs[env_id].act(answer)
        ledger.reward += observation.reward
        ledger.length += 1
        self._shown[env_id] = observation
        self._has_acted[env_id] = True
        if observation.done:
            self._end(env_id, observation, observation.reward)

    def _end(self, env_id: int, observation: Observation, reward: float) -> None:
        ledger = self._ledgers[env_id]
        ledger.is_over = True
        ledger.is_playing = False
        episode = Episode(
            reward=ledger.reward,
            length=ledger.length,
            terminated=observation.terminated,
            truncated=observation.truncated,
            seed=ledger.seed,
            number=ledger.number,
            env_id=self.first_env + env_id,
            metrics=dict(observation.metrics),
        )
        self._ended.append(Ended(env_id, reward, episode))
        if self.autoreset == "same_step":
            self._observation_final_writer.add(observation, ask=False)

    def _answer(self, values: Mapping[ActionName, list[Any]]) -> None:
        asked = self._observation_writer.asked
        actions = {
            name: legal_actions(name, space, asked[name], values[name])
            for name, space in self._spaces[1].items()
        }
        self._answers = _answers(self.num_envs, asked, actions)

    def _collect(self, env_id: int) -> None:
        observation = self._shown[env_id]
        is_over = self._ledgers[env_id].is_over
        goes_on = self._has_acted[env_id] and not is_over
        self._rewards.append(observation.reward if goes_on else 0.0)
        self._observation_writer.add(observation, ask=not is_over)
        self._has_acted[env_id] = False

    def _shown_end(self, env_id: int) -> Iterator[tuple[int, bool, bool]]:
        if self.is_over(env_id):
            observation = self._shown[env_id]
            yield env_id, observation.terminated, observation.truncated

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
    actions: Mapping[ActionName, Iterator[Action]],
) -> Iterator[dict[ActionName, Action]]:
    """The actions of every environment in turn; those that were asked nothing have none."""
    if len(actions) == 1:
        [(name, chosen)] = actions.items()
        if len(asked[name]) == num_envs:
            return ({name: action} for action in chosen)
    answers: list[dict[ActionName, Action]] = [{} for _ in range(num_envs)]
    for name, chosen in actions.items():
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

    def begin(self) -> None:
        self.number += 1
        self.reward = 0.0
        self.length = 0
        self.is_over = self.is_playing = False
