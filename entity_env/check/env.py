"""check_env: plays an environment, and says what breaks the contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np

from entity_env.authoring.game import Game
from entity_env.check.observations import observation_breaches
from entity_env.check.violations import (
    Breaches,
    Snapshot,
    difference,
    nothing_left_behind,
    require_same,
    snapshot,
)
from entity_env.core.action_request import questions, random_action
from entity_env.core.environment import Environment
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import SchemaError


def check_env(
    source: Environment | Callable[[], Environment],
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
) -> None:
    """Plays an environment with random legal actions and checks that it keeps the contract.

    Finds observations that do not fit the spaces (width, dtype, NaN, unknown entities, duplicate
    ids, actors that are not observed, masks of wrong shape or without a legal choice), rewards that
    are not finite, spaces that change, episodes that differ for one seed or never end, a `reset`
    that does not begin anew, an `act` that goes on after the end, a `close` that fails, threads and
    processes left behind. An environment whose `reset` takes no seed need not repeat itself.

    Args:
        source: a class or function that makes environments, so that two copies are compared; or
            one environment, which is closed at the end.
        episodes: how many are played, each of them twice.
        max_steps: an episode that goes on for longer is taken for one that never ends.
        seed: the seeds of the episodes and the actions follow from it.

    Raises:
        ContractError: with every breach, a sentence each, in `problems`.
    """
    if isinstance(source, Game):
        raise SchemaError(f"{source!r} is a game that owns its loop: use check_game")
    breaches = Breaches(getattr(source, "__name__", type(source).__name__))
    with nothing_left_behind(breaches):
        check = _EnvCheck(source, breaches, max_steps, seed)
        try:
            check.play(episodes)
        except _NothingToGoOnWithError:
            pass
        except Exception as error:  # whatever an environment raises
            breaches.raised(check.call, error)
        finally:
            check.close()
    breaches.raise_if_any()


class _NothingToGoOnWithError(Exception):
    """What is wrong was noted already."""


class _EnvCheck:
    """Plays copies of one environment, and notes what is wrong.

    Attributes:
        call: what is being called, in case that it raises.
    """

    def __init__(
        self,
        source: Environment | Callable[[], Environment],
        breaches: Breaches,
        max_steps: int,
        seed: int,
    ) -> None:
        self.call = ""
        self._source = source
        self._breaches = breaches
        self._max_steps = max_steps
        self._seed = seed
        self._seeds = EpisodeSeeds(seed)
        self._made: list[Environment] = []
        self._obs_space = ObsSpace()
        self._action_space: Mapping[ActionName, ActionSpace] = {}
        self._last_actions: dict[ActionName, Action] = {}

    def play(self, episodes: int) -> None:
        """Plays each episode twice, and then out of order."""
        env = self._make()
        if env is None or not self._read_spaces(env):
            return
        first = self._episodes(env, episodes)
        self._require_same_spaces(env)
        again = None if len(self._breaches) else self._make()
        if again is None:
            return
        self._require_same_spaces(again)
        second = self._episodes(again, episodes)
        if _takes_seed(again):
            require_same(first, second, self._breaches)
        if not len(self._breaches):
            self._play_out_of_order(again, first[0][1])

    def close(self) -> None:
        """Closes every environment twice."""
        for env in self._made:
            for call in ("close", "close for the second time"):
                self._breaches.place = ""
                try:
                    env.close()
                except Exception as error:  # whatever an environment raises
                    self._breaches.raised(call, error)

    def _make(self) -> Environment | None:
        """Another copy, or the only one there is."""
        self.call = "making an environment"
        made: object = self._source if isinstance(self._source, Environment) else self._source()
        if not isinstance(made, Environment):
            self._breaches.add(f"{self.call} gave a {type(made).__name__}, expected an Environment")
            return None
        if made not in self._made:
            self._made.append(made)
        return made

    def _read_spaces(self, env: Environment) -> bool:
        self.call = "reading the spaces"
        obs_space: object = env.obs_space()
        action_space: object = env.action_space()
        if not isinstance(obs_space, ObsSpace):
            self._breaches.add(f"obs_space is a {type(obs_space).__name__}, expected an ObsSpace")
            return False
        if not isinstance(action_space, Mapping):
            kind = type(action_space).__name__
            self._breaches.add(f"action_space is a {kind}, expected spaces by name")
            return False
        strange = [x for x in action_space.items() if not isinstance(x[1], ActionSpace)]
        self._breaches.extend(
            f"the space of action {name!r} is a {type(space).__name__}, expected an action space "
            "of entity_env"
            for name, space in strange
        )
        self._obs_space, self._action_space = obs_space, dict(action_space)
        return not strange

    def _require_same_spaces(self, env: Environment) -> None:
        self.call = "reading the spaces"
        self._breaches.place = ""
        if env.obs_space() != self._obs_space:
            self._breaches.add("obs_space changes between calls: return the same every time")
        if dict(env.action_space()) != self._action_space:
            self._breaches.add("action_space changes between calls: return the same every time")

    def _episodes(self, env: Environment, episodes: int) -> list[tuple[str, Snapshot]]:
        """What is observed in all episodes, with where it was."""
        trace: list[tuple[str, Snapshot]] = []
        rng = np.random.default_rng(self._seed)
        for number in range(episodes):
            self._play_episode(env, number, rng, trace)
        return trace

    def _play_episode(
        self,
        env: Environment,
        number: int,
        rng: np.random.Generator,
        trace: list[tuple[str, Snapshot]],
    ) -> None:
        """Plays one episode, as long as its observations can be answered."""
        observation = self._reset(env, number)
        for step in range(1, self._max_steps + 1):
            if not len(self._breaches):
                trace.append((self._breaches.place, snapshot(observation, self._obs_space)))
            if observation.done:
                return
            try:
                self._last_actions = self._answers(observation, rng)
            except SchemaError:  # a breach that was noted already
                return
            self._at(number, step)
            observation = self._act(env)
        if not observation.done:
            self._breaches.add(
                f"the episode is not done within {self._max_steps} steps: end it, truncate it, or "
                "pass a larger max_steps"
            )

    def _play_out_of_order(self, env: Environment, first: Snapshot) -> None:
        """Resets in the middle of an episode, and acts after the end of one."""
        rng = np.random.default_rng(self._seed)
        observation = self._reset(env, 0)
        if not observation.done:
            self._last_actions = self._answers(observation, rng)
            self._act(env)
        trace: list[tuple[str, Snapshot]] = []
        self._play_episode(env, 0, rng, trace)
        self._breaches.place = ""
        differs = _takes_seed(env) and difference(first, trace[0][1])
        if differs:
            self._breaches.add(f"reset in the middle of an episode does not begin anew: {differs}")
        try:
            after = env.act(self._last_actions)
        except Exception:  # refused, whatever it is called
            return
        if not after.done:
            self._breaches.add(
                "act after the end of an episode goes on as if nothing had happened: raise "
                "ProtocolError, or return an observation that is done"
            )

    def _reset(self, env: Environment, number: int) -> Observation:
        self.call = "reset"
        self._at(number, 0)
        seed = self._seeds[number]
        observation = env.reset(seed=seed) if _takes_seed(env) else env.reset()
        return self._checked(observation, is_first=True)

    def _act(self, env: Environment) -> Observation:
        self.call = "act"
        return self._checked(env.act(self._last_actions), is_first=False)

    def _checked(self, observation: object, *, is_first: bool) -> Observation:
        """Notes what is wrong with an observation; nothing can go on without one."""
        if not isinstance(observation, Observation):
            kind = type(observation).__name__
            self._breaches.add(f"{self.call} returned a {kind}, expected an Observation")
            raise _NothingToGoOnWithError
        self._breaches.extend(
            observation_breaches(
                observation, self._obs_space, self._action_space, is_first=is_first
            )
        )
        return observation

    def _answers(
        self, observation: Observation, rng: np.random.Generator
    ) -> dict[ActionName, Action]:
        asked = questions(observation, self._obs_space, self._action_space)
        return {question.name: random_action(question, rng) for question in asked}

    def _at(self, number: int, step: int) -> None:
        self._breaches.place = f"episode {number} (seed {self._seeds[number]}), step {step}"


def _takes_seed(env: Environment) -> bool:
    return "seed" in inspect.signature(env.reset).parameters
