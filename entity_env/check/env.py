"""`check_env`: contract tests for an `Environment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from entity_env.authoring.game import Game
from entity_env.check.source_check import SourceCheck
from entity_env.check.violations import (
    CannotContinueError,
    Snapshot,
    difference,
    is_of,
    observation_violations,
    require_same,
    snapshot,
)
from entity_env.core.action_request import questions, random_answers
from entity_env.core.environment import Environment
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import parameters_of
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchEnv


def check_env(
    source: Environment | Callable[[], Environment],
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
) -> None:
    """Checks the contract of an environment, with random legal actions.

    Finds

    - observations that do not match the spaces: width, dtype, NaN, unknown entities, duplicate
      ids, actors that are not observed, masks of the wrong shape or without a legal choice;
    - non-finite rewards, and spaces that change;
    - episodes that never end, or that differ for one seed (not compared if `reset` takes no seed);
    - a `reset` that continues the current episode, and an `act` that continues an ended episode;
    - a `close` that fails, also when called twice; threads and processes left running.

    Args:
        source: a class or function that makes environments, to compare two copies; or one
            environment, which is closed at the end.
        episodes: number of episodes, each played twice.
        max_steps: longer episodes count as endless.
        seed: seed of episodes and actions.

    Raises:
        ContractError: all violations, one sentence each, in `problems`.
        SchemaError: `source` is a `Game` or a `BatchEnv`, which have their own checks.
    """
    if isinstance(source, Game):
        raise SchemaError(f"{source!r} is a game that owns its loop: use check_game")
    if is_of(source, BatchEnv):
        raise SchemaError(f"{source!r} keeps its copies as arrays: use check_batch_env")
    _EnvCheck(source, seed, max_steps).run(episodes)


class _EnvCheck(SourceCheck[Environment]):
    def __init__(
        self, source: Environment | Callable[[], Environment], seed: int, max_steps: int
    ) -> None:
        super().__init__(source, seed, max_steps)
        self._seeds = EpisodeSeeds(seed)
        self._obs_space = ObsSpace()
        self._action_space: Mapping[ActionName, ActionSpace] = {}
        self._last_actions: dict[ActionName, Action] = {}

    def play(self, episodes: int) -> None:
        env = self._make()
        self._read_spaces(env)
        first = self._episodes(env, episodes)
        self._require_same_spaces(env)
        if len(self._violations):
            return
        again = self._make()
        self._require_same_spaces(again)
        second = self._episodes(again, episodes)
        if _takes_seed(again):
            require_same(first, second, self._violations)
        if not len(self._violations):
            self._play_out_of_order(again, first[0][1])

    def _make(self) -> Environment:
        self.call = "making an environment"
        made: object = self._source if isinstance(self._source, Environment) else self._source()
        if not isinstance(made, Environment):
            hint = ": use check_batch_env" if isinstance(made, BatchEnv) else ""
            self._stop(f"{self.call} gave a {type(made).__name__}, expected an Environment{hint}")
        return self._keep(made)

    def _read_spaces(self, env: Environment) -> None:
        self.call = "reading the spaces"
        obs_space: object = env.obs_space()
        action_space: object = env.action_space()
        if not isinstance(obs_space, ObsSpace):
            self._stop(f"obs_space is a {type(obs_space).__name__}, expected an ObsSpace")
        if not isinstance(action_space, Mapping):
            kind = type(action_space).__name__
            self._stop(f"action_space is a {kind}, expected spaces by name")
        for name, space in action_space.items():
            if not isinstance(space, ActionSpace):
                self._violations.add(
                    f"the space of action {name!r} is a {type(space).__name__}, expected an action "
                    "space of entity_env"
                )
        if len(self._violations):
            raise CannotContinueError
        self._obs_space, self._action_space = obs_space, dict(action_space)

    def _require_same_spaces(self, env: Environment) -> None:
        self.call = "reading the spaces"
        self._violations.place = ""
        if env.obs_space() != self._obs_space:
            self._violations.add("obs_space changes between calls: always return the same space")
        if dict(env.action_space()) != self._action_space:
            self._violations.add("action_space changes between calls: always return the same space")

    def _episodes(self, env: Environment, episodes: int) -> list[tuple[str, Snapshot]]:
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
        """Plays one episode, up to the first observation that cannot be answered.

        If it does not end within the maximum number of steps, adds a violation.
        """
        observation = self._reset(env, number)
        for step in range(1, self._max_steps + 1):
            if not len(self._violations):
                trace.append((self._violations.place, snapshot(observation, self._obs_space)))
            if observation.done:
                return
            try:
                self._last_actions = self._answers(observation, rng)
            except SchemaError:  # already listed as a violation
                return
            self._at(number, step)
            observation = self._act(env)
        if not observation.done:
            self._violations.add(
                f"the episode is not done within {self._max_steps} steps: end it, truncate it, or "
                "pass a larger max_steps"
            )

    def _play_out_of_order(self, env: Environment, first: Snapshot) -> None:
        """Resets during an episode, and acts after one has ended."""
        rng = np.random.default_rng(self._seed)
        observation = self._reset(env, 0)
        if not observation.done:
            self._last_actions = self._answers(observation, rng)
            self._act(env)
        trace: list[tuple[str, Snapshot]] = []
        self._play_episode(env, 0, rng, trace)
        self._violations.place = ""
        differs = _takes_seed(env) and difference(first, trace[0][1])
        if differs:
            self._violations.add(
                f"reset in the middle of an episode does not start it over: {differs}"
            )
        try:
            after = env.act(self._last_actions)
        except Exception:  # any error is fine
            return
        if not after.done:
            self._violations.add(
                "act after the end of an episode continues it: raise "
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
        if not isinstance(observation, Observation):
            kind = type(observation).__name__
            self._stop(f"{self.call} returned a {kind}, expected an Observation")
        self._violations.extend(
            observation_violations(
                observation, self._obs_space, self._action_space, is_first=is_first
            )
        )
        return observation

    def _answers(
        self, observation: Observation, rng: np.random.Generator
    ) -> dict[ActionName, Action]:
        asked = questions(observation, self._obs_space, self._action_space)
        return random_answers(asked, rng)

    def _at(self, number: int, step: int) -> None:
        self._violations.place = f"episode {number} (seed {self._seeds[number]}), step {step}"


def _takes_seed(env: Environment) -> bool:
    return "seed" in parameters_of(env.reset)
