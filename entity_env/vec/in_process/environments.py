"""EnvironmentBatch: `Environment`s stepped one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.batching.adapter import OURS, unwrap_all
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.action_request import Asked
from entity_env.core.environment import Environment
from entity_env.core.episode import ERROR_METRIC, MAX_IDLE_EPISODES, Episode
from entity_env.core.episode_stats import LENGTH, NUMBER, ROW
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ActionName
from entity_env.core.validation import is_number, must_be_number, parameters_of
from entity_env.core.vec_env_base import VEC_ENV_MAKERS
from entity_env.errors import ProtocolError, SchemaError
from entity_env.vec.in_process.base import LocalBatch
from entity_env.vec.options import VecOptions

_AT_ONCE: Final = 128
"""Number of environments whose observations are read together. With more live objects, Python's
garbage collector would traverse the whole process every few steps."""


class EnvironmentBatch(LocalBatch):
    """Environments made by one class or function; `options` and `envs` as for `LocalBatch`."""

    def __init__(self, make: Callable[[], Environment], options: VecOptions, envs: range) -> None:
        self._envs: list[Environment] = []
        try:
            for _ in envs:
                self._envs.append(_made_by(make))
        except BaseException:
            with ExitStack() as closing:
                for env in self._envs:
                    closing.callback(env.close)
            raise
        spaces = self._envs[0].obs_space(), self._envs[0].action_space()
        # With "restart", an action that cannot be converted must fail in its environment's `act`,
        # so the environments stay wrapped.
        games, adapter = (
            unwrap_all(self._envs) if options.on_error == "raise" else (self._envs, OURS)
        )
        writer = ObservationBatcher(*spaces, self._name_row, adapter)
        final_writer = ObservationBatcher(*spaces, self._name_finished, adapter, is_final=True)
        super().__init__(writer, final_writer, spaces, 1, options, envs)
        self._games: Sequence[Any] = games
        """The environments, or what they wrap."""
        self._adapter = adapter
        self._last: list[Any] = []
        """Last observations not yet in `final_writer`."""
        self._observation_writer = writer
        self._observation_final_writer = final_writer
        self._shown: list[Any] = [Observation(reward=0.0)] * len(envs)
        """Current observation of each environment, in its own format."""
        self._takes_seed = "seed" in parameters_of(self._envs[0].reset)
        self._seeds = [EpisodeSeeds(0, env_id) for env_id in envs]
        self._episodes = [_CurrentEpisode() for _ in envs]
        self._next_actions: Iterator[dict[ActionName, Any]] = iter(())
        """Actions of each environment in turn, created when consumed."""

    def seed_env(self, env_id: int, run: Run) -> None:
        self._seeds[env_id], number = run
        self._episodes[env_id] = _CurrentEpisode(number)

    def is_over(self, env_id: int) -> bool:
        return self._episodes[env_id].is_over

    def numbers(self, env_id: int) -> Sequence[int]:
        episode = self._episodes[env_id]
        return (episode.number + (not episode.is_playing),)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return self._place(env_id)["seed"]  # `number` changes only when the next episode starts

    def close(self) -> None:
        self._close_all(env.close for env in self._envs)

    def render(self, env_id: int) -> NDArray[np.uint8]:
        return self._envs[env_id].render()

    def _reset_env(self, env_id: int) -> None:
        for _ in range(MAX_IDLE_EPISODES):
            self._begin_episode(env_id)
            if self.autoreset != "same_step" or not self._episodes[env_id].is_over:
                return
        raise ProtocolError(
            f"{MAX_IDLE_EPISODES} episodes in a row were over before the first "
            "action, so there is nothing to train"
        )

    def _begin_episode(self, env_id: int) -> None:
        episode = self._episodes[env_id]
        episode.begin()
        game = self._games[env_id]
        episode.seed = seed = self._seeds[env_id][episode.number]
        observation = game.reset(seed=seed) if self._takes_seed else game.reset()
        self._shown[env_id] = observation
        episode.is_playing = True
        if observation.done:
            self._end(env_id, observation, reward=0.0)

    def _begin(self) -> None:
        super()._begin()
        self._last.clear()

    def _act_from(self, first: int) -> None:
        for begin in range(first, self.num_envs, _AT_ONCE):
            shown: list[Any] = []
            try:
                self._act_some(range(begin, min(begin + _AT_ONCE, self.num_envs)), shown)
            except BaseException as error:
                self._require_failure(error)
                self._add_all(begin, shown)
                raise
            self._add_all(begin, shown)

    def _act_some(self, env_ids: range, shown: list[Any]) -> None:
        current, show, earn = self.current, shown.append, self._rewards.append
        games, episodes, all_shown = self._games, self._episodes, self._shown
        is_same_step = self.autoreset == "same_step"
        observation: Any = None
        try:
            # Consumed one by one, so none are lost if an environment fails.
            for env_id, action in zip(env_ids, self._next_actions, strict=False):
                current[0] = env_id
                episode = episodes[env_id]
                if episode.is_over:  # with "next_step"
                    self._reset_env(env_id)
                    earn(0.0)
                    show(all_shown[env_id])
                    continue
                observation = games[env_id].act(action)
                reward = observation.reward
                episode.reward += reward
                episode.length += 1
                if observation.done:
                    self._end(env_id, observation, reward)
                    if is_same_step:
                        self._reset_env(env_id)
                        observation = all_shown[env_id]
                    reward = 0.0  # an ended episode's reward is in the finished episode
                earn(reward)
                show(observation)
        except (TypeError, OverflowError):
            _require_reward(observation)
            raise

    def _add_all(self, first: int, shown: Sequence[Any]) -> None:
        """Adds observations of the environments from `first` on, and pending last observations."""
        self._shown[first : first + len(shown)] = shown
        if self._last:
            try:
                self._add_last()
            except Exception:  # an error of an earlier environment takes precedence
                self._add_rows(first, shown[: self.current[0] - first])
                raise
        self._add_rows(first, shown)

    def _add_rows(self, first: int, shown: Sequence[Any]) -> None:
        episodes = self._episodes[first : first + len(shown)]
        are_over = self.autoreset != "same_step" and any(each.is_over for each in episodes)
        if not are_over and self._observation_writer.collate(shown):
            return
        add, as_ours = self._observation_writer.add, self._adapter.observation
        current, failed = self.current, self.current[0]
        for env_id, observation in enumerate(shown, first):
            current[0] = env_id
            add(as_ours(observation), ask=not self._episodes[env_id].is_over)
        current[0] = failed

    def _add_last(self) -> None:
        last, self._last = self._last, []
        writer, as_ours = self._observation_final_writer, self._adapter.observation
        flags = list(map(self._adapter.flags, last))
        if not any(truncated for _, truncated in flags) and writer.collate(last, ask=False):
            return
        for i, observation in enumerate(last):
            terminated, truncated = flags[i]
            try:
                ours = as_ours(observation)
                writer.add(ours, ask=truncated and not terminated and bool(ours.actions))
            except Exception:
                self._last = last[i:]  # added by the next call, if any
                self._go_back(self._finished.ints(writer.num_rows))
                raise

    def _go_back(self, ints: Sequence[int]) -> None:
        """Restores the place of an ended episode after its environment has continued."""
        self.current[0] = ints[ROW]
        self._episodes[ints[ROW]].place(ints[NUMBER], ints[LENGTH])

    def _end(self, env_id: int, observation: Any, reward: float) -> None:  # noqa: ANN401
        episode = self._episodes[env_id]
        if not is_number(episode.reward):
            _require_reward(observation)
        episode.is_over = True
        episode.is_playing = False
        terminated, truncated = self._adapter.flags(observation)
        numbers = episode.length, terminated, truncated, episode.seed, episode.number
        self._finished.add(env_id, numbers, (episode.reward, reward), dict(observation.metrics))
        self._last.append(observation)

    def _set_actions(self, values: Mapping[ActionName, list[Any]]) -> None:
        asked = self._observation_writer.asked
        actions = {
            name: self._adapter.actions(name, space, asked[name], values[name])
            for name, space in self.spaces[1].items()
        }
        self._next_actions = _actions_of(self.num_envs, asked, actions)

    def _collect(self, env_id: int) -> None:
        self._rewards.append(0.0)
        if self._last:
            self._add_last()
        observation = self._adapter.observation(self._shown[env_id])
        self._observation_writer.add(observation, ask=not self._episodes[env_id].is_over)

    def _last_flags(self, env_id: int) -> Iterator[tuple[int, bool, bool]]:
        if self.is_over(env_id):
            yield env_id, *self._adapter.flags(self._shown[env_id])

    def _truncate_failed(self, env_id: int) -> Iterator[Episode]:
        episode = self._episodes[env_id]
        if not episode.is_playing:
            return
        yield Episode(
            reward=episode.reward,
            length=episode.length,
            terminated=False,
            truncated=True,
            seed=self._seeds[env_id][episode.number],
            number=episode.number,
            env_id=self.first_env + env_id,
            metrics={ERROR_METRIC: 1.0},
        )

    def _place(self, env_id: int) -> dict[str, int]:
        episode = self._episodes[env_id]
        seed = self._seeds[env_id][episode.number]
        return {"seed": seed, "episode": episode.number, "step": episode.length}


def _require_reward(observation: Any) -> None:  # noqa: ANN401 - of any package
    """Raises `SchemaError` if a reward is not a number."""
    reward = getattr(observation, "reward", 0.0)
    if not is_number(reward):
        raise SchemaError(must_be_number("reward", reward))


def _made_by(make: Callable[[], Environment]) -> Environment:
    env: object = make()
    if not isinstance(env, Environment):
        raise SchemaError(
            f"a VecEnv needs a Game, an Environment class, or a function that returns an "
            f"Environment: {make!r} returned a {type(env).__name__}{VEC_ENV_MAKERS}"
        )
    return env


def _actions_of(
    num_envs: int,
    asked: Mapping[ActionName, Sequence[Asked]],
    actions: Mapping[ActionName, Iterator[Any]],
) -> Iterator[dict[ActionName, Any]]:
    """Actions of every environment in turn; an empty dict for an environment without actors."""
    if len(actions) == 1:
        [(name, chosen)] = actions.items()
        if len(asked[name]) == num_envs:
            return ({name: action} for action in chosen)
    by_env: list[dict[ActionName, Any]] = [{} for _ in range(num_envs)]
    for name, chosen in actions.items():
        if len(asked[name]) == num_envs:
            for own, action in zip(by_env, chosen, strict=True):
                own[name] = action
        else:
            for (env_id, _, _), action in zip(asked[name], chosen, strict=True):
                by_env[env_id][name] = action
    return iter(by_env)


class _CurrentEpisode:
    """Return, length, seed and index of an environment's current episode.

    Not an `EpisodeStats`, because object attributes are faster than array elements.
    """

    __slots__ = ("is_over", "is_playing", "length", "number", "reward", "seed")

    def __init__(self, first: int = 0) -> None:
        self.number = first - 1
        self.seed = 0
        self.reward = 0.0
        self.length = 0
        self.is_over = False
        self.is_playing = False
        """True after the first observation and before the last."""

    def place(self, number: int, length: int) -> None:
        """Returns to the end of an episode with an invalid last observation."""
        self.number, self.length = number, length

    def begin(self) -> None:
        self.number += 1
        self.reward = 0.0
        self.length = 0
        self.is_over = self.is_playing = False
