"""`check_game`: contract tests for a `Game`."""

from __future__ import annotations

import contextvars
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, cast

import numpy as np
from greenlet import getcurrent, greenlet

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent, Pending
from entity_env.authoring.game import Game, ends_program
from entity_env.authoring.game_traceback import line_of_frame, stack_of
from entity_env.authoring.local_run import end_episode, still_played
from entity_env.authoring.obs import Obs, answer_to, obs_problem
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import GameHangs, StepTimeout
from entity_env.authoring.to_observation import to_observation
from entity_env.check.reproducible import add_irreproducible
from entity_env.check.violations import (
    Snapshot,
    Violations,
    is_finite,
    nothing_left_behind,
    obs_violations,
    observation_violations,
    require_same,
    snapshot,
)
from entity_env.core.action_request import questions, random_action
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import GameExit, SchemaError

_LOGGER: Final = logging.getLogger("entity_env.check")
_MAX_IGNORED: Final = 20
"""Calls of `act` per agent allowed after it returned None: nested loops need some to return."""
_MAX_IDLE: Final = 100
"""Calls of `play` in a row that may return without calling `act`."""


def check_game(
    game: Game,
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
    step_timeout_s: float | None = 30.0,
    new_process: bool = True,
) -> None:
    """Checks the contract of a game, with random legal actions.

    Finds what `check_env` finds in observations, and besides: fields not of their declared type
    (a tuple of another length, a value that is no member of its Enum), entities and actions that
    were not declared, episodes that differ for one seed, never end, or never call `act`, a
    `play` that raises, hangs, returns without `game_over`, continues after `act` returned None, or
    swallows the exception that ends it, threads and processes left behind.

    If there is nothing of that kind, episodes are recorded and played again, each alone from its
    `Episode.seed`, and in another process with another `PYTHONHASHSEED`: differences name agent,
    step, entity and feature. The logger `entity_env.check` warns of what need not be a mistake: a
    score that never changes, and a game that cannot be sent to another process and so is not
    played there.

    Args:
        game: with its settings; see `Game.with_settings`.
        episodes, max_steps, seed: as for `check_env`.
        step_timeout_s: seconds between two calls of `act` after which the game counts as hanging;
            None = no limit. Which hangs can be ended: see `StepTimeout`.
        new_process: also play the episodes in another process, which takes about half a second and
            the time that it takes to import the game.

    Raises:
        ContractError: with all violations, one sentence each, in `problems`.
        UsageError: a setting without a default has no value.
    """
    game.require_settings()
    violations = Violations(game.name)
    timeout = StepTimeout(step_timeout_s)
    with nothing_left_behind(violations), timeout:
        first = _GameCheck(game, violations, max_steps, seed, timeout)
        first.play(episodes)
        if not len(violations):
            second = _GameCheck(game, violations, max_steps, seed, timeout)
            second.play(episodes)
            require_same(first.trace, second.trace, violations)
        if not first.hangs:
            _GameCheck(game, violations, max_steps, seed, timeout).play(episodes, num_answers=1)
    if not len(violations):
        add_irreproducible(
            game,
            violations,
            episodes=episodes,
            max_steps=max_steps,
            seed=seed,
            step_timeout_s=step_timeout_s,
            new_process=new_process,
        )
    violations.raise_if_any()
    first.warn_of_no_reward()


class _GameCheck:
    """One run of `check_game`.

    Raises nothing into the game, where an `except` could swallow it: when no answer is possible,
    `act` returns None from then on.
    """

    def __init__(
        self, game: Game, violations: Violations, max_steps: int, seed: int, timeout: StepTimeout
    ) -> None:
        self.hangs = False
        """The game was ended because of the timeout."""
        self._timeout = timeout
        self._has_reward = False
        self.trace: list[tuple[str, Snapshot]] = []
        """All observations, each with its place."""
        self._game = game
        self._violations = violations
        self._max_steps = max_steps
        self._rng = np.random.default_rng(seed)
        self._seeds = EpisodeSeeds(seed)
        self._agents = [_CheckAgent(self, i) for i in range(game.num_agents)]
        self._episodes = 1
        self._num_answers: int | None = None
        self._is_closed = False
        self._num_ignored = 0

    def play(self, episodes: int, num_answers: int | None = None) -> None:
        """Plays `episodes`, or `num_answers` calls of `act` if that is less; then `act` is None."""
        self._episodes = episodes
        self._num_answers = num_answers
        num_idle = 0
        while not self._is_closed and num_idle < _MAX_IDLE:
            before = self._num_observed
            if not self._start():
                return
            if any(agent.is_playing for agent in self._agents) and not self._is_closed:
                self._add("play returned without game_over: call it before every return")
                return
            num_idle = 0 if self._num_observed > before else num_idle + 1
            if max(agent.num_episodes for agent in self._agents) >= self._episodes:
                return
        if not self._is_closed:
            self._add("play returns again and again without calling act")

    def warn_of_no_reward(self) -> None:
        """Logs that no score has changed, which is a mistake or bad luck."""
        if self._has_reward:
            return
        _LOGGER.warning(
            "%s: the score did not change in %s, which teaches nothing: observe with "
            "Obs(score), the score so far; or check more episodes, if it is rarely earned",
            self._game.name,
            "an episode" if self._episodes == 1 else f"{self._episodes} episodes",
        )

    def seed_of(self, agent: _CheckAgent) -> int:
        """Seed of an agent's current episode."""
        return self._seeds[agent.num_episodes]

    @contextmanager
    def asked(self, frame: FrameType) -> Iterator[None]:
        """Stops the timeout during a call of the game, which is made in this frame."""
        self._timeout.stop()
        self._violations.line = line_of_frame(frame)
        try:
            yield
        except GameExit:  # the game must return, and may hang instead
            self._timeout.start()
            raise
        self._violations.line = ""
        self._timeout.start()

    def answer(self, agent: _CheckAgent, obs: Obs, actions: tuple[ActionKey, ...]) -> object:
        """The result of `act`; None once the agents are closed."""
        if self._is_closed:
            self._ignored()
            return None
        self._at(agent)
        if agent.is_over:
            self._violations.add(still_played("an agent was asked"))
            self._is_closed = True
            return None
        if agent.is_awaited:
            self._violations.add("an agent was asked again before .get() of its last act_async")
        if agent.num_steps >= self._max_steps:
            self._violations.add(
                f"no game_over within {self._max_steps} steps: end the episode, truncate it, or "
                "pass a larger max_steps"
            )
            self._is_closed = True
            return None
        kinds = self._kinds(actions)
        observation = self._observe(agent, obs, kinds) if kinds else None
        if observation is None or self._num_answers == 0:
            self._is_closed = True
            return None
        if self._num_answers is not None:
            self._num_answers -= 1
        agent.num_steps += 1
        return self._random_answer(obs, kinds, observation)

    def game_over(self, agent: _CheckAgent, obs: Obs | None, truncated: bool) -> None:
        """Ends an episode of an agent; closes the agents after the last one of all."""
        if self._is_closed:
            agent.is_playing = False
            self._ignored()
            return
        self._at(agent)
        if agent.is_over:
            self._violations.add(still_played("an agent was given game_over"))
            self._is_closed = True
            return
        if agent.is_awaited:
            self._violations.add("game_over came before .get() of the last act_async")
        if len(self._agents) == 1 and not agent.is_playing:
            self._violations.add("game_over came before anything was asked in this episode")
        final = Obs(agent.last_score) if obs is None else obs
        if self._observe(agent, final, (), truncated=truncated) is None:
            self._is_closed = True
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        end_episode(agent, () if self._game.respawns else self._agents)
        if all(each.num_episodes >= self._episodes for each in self._agents):
            self._is_closed = True

    @property
    def _num_observed(self) -> int:
        return sum(agent.num_observed for agent in self._agents)

    def _start(self) -> bool:
        """Calls `play` once; returns whether it may be called again.

        It runs in a greenlet, so that a game that swallows every exception can be abandoned.
        """
        number = max(agent.num_episodes for agent in self._agents)
        for agent in self._agents:  # also agents without a part in the last episode
            agent.num_episodes = number
        seed = self._seeds[number]
        agents = cast("Sequence[Agent]", self._agents)
        run = greenlet(lambda: self._game.start(agents, seed))
        run.gr_context = contextvars.copy_context()
        self._hub = getcurrent()
        self._player = run
        self._timeout.start()
        try:
            run.switch()
        except Exception as error:
            self._violations.raised("play", error)
            return False
        except SystemExit as error:
            self._violations.raised("play", error, ends_program(error))
            return False
        except GameHangs as hang:
            self.hangs = True
            self._violations.cause = hang
            self._violations.add(f"play hangs, {hang}: {stack_of(hang)}")
            return False
        finally:
            self._timeout.stop()
            self._violations.line = ""
        return run.dead

    def _observe(
        self,
        agent: _CheckAgent,
        obs: Obs,
        kinds: Sequence[ActionType[Any]],
        *,
        truncated: bool = False,
    ) -> Observation | None:
        """Checks an `Obs`; returns it as an `Observation`, None when it has no valid answer."""
        if problem := obs_problem(obs):
            self._violations.add(problem)
            return None
        found = self._violations.extend(obs_violations(obs, self._game.schema))
        if not is_finite(obs.score):
            found += self._violations.extend(
                [f"the score is {obs.score!r}, expected a finite number"]
            )
        is_first = not agent.is_playing
        reward = agent.reward_of(obs)
        self._has_reward = self._has_reward or reward != 0
        try:
            observation = to_observation(
                obs,
                kinds,
                self._game.schema,
                reward=reward,
                terminated=not kinds and not truncated,
                truncated=truncated,
            )
        except SchemaError as error:
            if not found:
                self._violations.add(str(error))
            return None
        spaces = self._game.obs_space(), self._game.action_space()
        found += self._violations.extend(
            observation_violations(observation, *spaces, is_first=is_first and bool(kinds))
        )
        if not found:
            self.trace.append((self._violations.place, snapshot(observation, spaces[0])))
        return observation

    def _kinds(self, actions: tuple[ActionKey, ...]) -> list[ActionType[Any]]:
        """The actions that are asked for; none when they are invalid."""
        if not actions:
            self._violations.add("act needs at least one action to ask for: agent.act(obs, Move)")
        try:
            return [self._game.schema.action(key) for key in actions]
        except SchemaError as error:
            self._violations.add(str(error))
            return []

    def _random_answer(
        self, obs: Obs, kinds: Sequence[ActionType[Any]], observation: Observation
    ) -> object:
        schema: Schema = self._game.schema
        try:
            asked = questions(observation, schema.obs_space(), schema.action_space())
        except SchemaError:  # a violation that was noted already
            self._is_closed = True
            return None
        chosen = {q.name: q.chosen(random_action(q, self._rng)) for q in asked}
        answers = tuple(answer_to(kind, obs, iter(chosen[kind.name])) for kind in kinds)
        return answers[0] if len(answers) == 1 else answers

    def _ignored(self) -> None:
        """Counts calls after `act` returned None; raises GameExit when there are too many."""
        self._num_ignored += 1
        allowed = _MAX_IGNORED * len(self._agents)
        if self._num_ignored <= allowed:
            return
        self._add("play continues after act returned None: return from it then")
        if self._num_ignored <= 2 * allowed:
            raise GameExit
        self._add("play swallows GameExit: catch Exception, not BaseException, around agent.act")
        if getcurrent() is self._player:
            self._hub.switch()
        raise GameExit

    def _add(self, violation: str) -> None:
        self._violations.place = self._violations.line = ""
        self._violations.add(violation)

    def _at(self, agent: _CheckAgent) -> None:
        which = f", agent {agent.agent_id}" if len(self._agents) > 1 else ""
        self._violations.place = (
            f"episode {agent.num_episodes} (seed {self.seed_of(agent)}), "
            f"step {agent.num_steps}{which}"
        )


class _CheckAgent:
    """The methods of `Agent` that games use; answers are random legal actions."""

    def __init__(self, check: _GameCheck, agent_id: int) -> None:
        self.agent_id = agent_id
        self.num_episodes = 0
        self.num_steps = 0
        self.num_observed = 0
        self.is_playing = False
        self.is_over = False
        """See `end_episode`."""
        self.is_awaited = False
        """`get` of its last `act_async` was not called yet."""
        self.last_score = 0.0
        self._check = check

    @property
    def seed(self) -> int:
        return self._check.seed_of(self)

    def act(self, obs: Obs, /, *actions: ActionKey) -> object:
        self.num_observed += 1
        with self._check.asked(sys._getframe()):
            return self._check.answer(self, obs, actions)

    def act_async(self, obs: Obs, /, *actions: ActionKey) -> _Answer:
        answer = self.act(obs, *actions)
        self.is_awaited = True
        return _Answer(self, answer)

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self.num_observed += 1
        with self._check.asked(sys._getframe()):
            self._check.game_over(self, obs, truncated)

    def close(self) -> None:
        pass

    def reward_of(self, obs: Obs) -> float:
        """Change of the score since the last observation; the score may have any type."""
        score = obs.score if is_finite(obs.score) else self.last_score
        reward = score - self.last_score if self.is_playing else 0.0
        self.is_playing = True
        self.last_score = score
        return reward


class _Answer(Pending[object]):
    """Result of `act_async`."""

    def __init__(self, agent: _CheckAgent, answer: object) -> None:
        self._agent = agent
        self._answer = answer

    def get(self) -> object:
        self._agent.is_awaited = False
        return self._answer
