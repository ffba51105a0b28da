"""check_game: plays a game, and says what breaks the contract."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from greenlet import getcurrent, greenlet

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import line_of_frame, stack_of
from entity_env.authoring.obs import Obs, answer_to
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import GameHangs, StepTimeout
from entity_env.authoring.to_observation import observe
from entity_env.check.observations import obs_breaches, observation_breaches
from entity_env.check.violations import (
    Breaches,
    Snapshot,
    is_finite,
    nothing_left_behind,
    require_same,
    snapshot,
)
from entity_env.core.action_request import questions, random_action
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import GameExit, SchemaError

if TYPE_CHECKING:
    from entity_env.authoring.agent import Agent

_MAX_IGNORED: Final = 20
"""So often every agent may be asked again after it gave None; a game with nested loops needs some
questions to notice."""
_MAX_IDLE: Final = 100
"""So often `play` may return without having asked anything."""


def check_game(
    game: Game,
    *,
    episodes: int = 3,
    max_steps: int = 2000,
    seed: int = 0,
    step_timeout_s: float | None = 30.0,
) -> None:
    """Plays a game with random legal actions and checks that it keeps the contract.

    Finds what `check_env` finds in observations, and besides: fields that hold something else than
    they declare (a tuple of another length, a value that is no member of its Enum), entities and
    actions that were not declared, episodes that differ for one seed, that never end, or in which
    nothing was asked, a `play` that raises, that hangs, that returns without `game_over`, that goes
    on after `act` gave None or swallows the exception that ends it, threads and processes left
    behind.

    Args:
        game: what to check; for other settings hand over `game.with_settings(...)`.
        episodes: how many are played, each of them twice.
        max_steps: an episode that goes on for longer is taken for one that never ends.
        seed: the seeds of the episodes and the actions follow from it.
        step_timeout_s: seconds that the game may take between two questions before it counts as
            hanging; None = for ever. See `StepTimeout` for what can be ended.

    Raises:
        ContractError: with every breach, a sentence each, in `problems`.
    """
    breaches = Breaches(game.name)
    timeout = StepTimeout(step_timeout_s)
    with nothing_left_behind(breaches), timeout:
        first = _GameCheck(game, breaches, max_steps, seed, timeout)
        first.play(episodes)
        if not len(breaches):
            second = _GameCheck(game, breaches, max_steps, seed, timeout)
            second.play(episodes)
            require_same(first.trace, second.trace, breaches)
        if not first.hangs:
            _GameCheck(game, breaches, max_steps, seed, timeout).play(episodes, num_answers=1)
    breaches.raise_if_any()


class _GameCheck:
    """Plays a game once, and notes what is wrong.

    Nothing is raised into the game, whose own `except` could swallow it: after a breach that
    leaves a question without an answer the agents hang up instead.

    Attributes:
        trace: what was observed, with where it was.
        hangs: the game was ended because it took too long.
    """

    def __init__(
        self, game: Game, breaches: Breaches, max_steps: int, seed: int, timeout: StepTimeout
    ) -> None:
        self.hangs = False
        self._timeout = timeout
        self.trace: list[tuple[str, Snapshot]] = []
        self._game = game
        self._breaches = breaches
        self._max_steps = max_steps
        self._rng = np.random.default_rng(seed)
        self._seeds = EpisodeSeeds(seed)
        self._agents = [_CheckAgent(self, i) for i in range(game.num_agents)]
        self._episodes = 1
        self._num_answers: int | None = None
        self._has_hung_up = False
        self._num_ignored = 0

    def play(self, episodes: int, num_answers: int | None = None) -> None:
        """Plays some episodes, and hangs up afterwards.

        Args:
            episodes: after so many.
            num_answers: after so many answers, if that is earlier.
        """
        self._episodes = episodes
        self._num_answers = num_answers
        num_idle = 0
        while not self._has_hung_up and num_idle < _MAX_IDLE:
            before = self._num_observed
            if not self._start():
                return
            if any(agent.is_playing for agent in self._agents) and not self._has_hung_up:
                self._add("play returned without game_over: call it before every return")
                return
            num_idle = 0 if self._num_observed > before else num_idle + 1
        if not self._has_hung_up:
            self._add("play returns again and again without asking any agent")

    def seed_of(self, agent: _CheckAgent) -> int:
        """Seed of the episode that an agent plays."""
        return self._seeds[agent.num_episodes]

    @contextmanager
    def asked(self, frame: FrameType) -> Iterator[None]:
        """Around whatever a game calls, in this frame: that takes as long as it takes."""
        self._timeout.stop()
        self._breaches.line = line_of_frame(frame)
        try:
            yield
        except GameExit:  # the game is to leave, and may hang instead
            self._timeout.start()
            raise
        self._breaches.line = ""
        self._timeout.start()

    def answer(self, agent: _CheckAgent, obs: Obs, actions: tuple[ActionKey, ...]) -> object:
        """What an agent answers; None once it has hung up."""
        if self._has_hung_up:
            self._ignored()
            return None
        self._at(agent)
        if agent.is_awaited:
            self._breaches.add("an agent was asked again before .get() of its last act_async")
        if agent.num_steps >= self._max_steps:
            self._breaches.add(
                f"no game_over within {self._max_steps} steps: end the episode, truncate it, or "
                "pass a larger max_steps"
            )
            self._has_hung_up = True
            return None
        kinds = self._kinds(actions)
        observation = self._observe(agent, obs, kinds) if kinds else None
        if observation is None or self._num_answers == 0:
            self._has_hung_up = True
            return None
        if self._num_answers is not None:
            self._num_answers -= 1
        agent.num_steps += 1
        return self._random_answer(obs, kinds, observation)

    def game_over(self, agent: _CheckAgent, obs: Obs | None, truncated: bool) -> None:
        """Ends an episode of an agent, and hangs up after the last one of all."""
        if self._has_hung_up:
            agent.is_playing = False
            self._ignored()
            return
        self._at(agent)
        if agent.is_awaited:
            self._breaches.add("game_over came before .get() of the last act_async")
        if len(self._agents) == 1 and not agent.is_playing:
            self._breaches.add("game_over came before anything was asked in this episode")
        final = Obs(agent.last_score) if obs is None else obs
        if self._observe(agent, final, (), truncated=truncated) is None:
            self._has_hung_up = True
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        if all(each.num_episodes >= self._episodes for each in self._agents):
            self._has_hung_up = True

    @property
    def _num_observed(self) -> int:
        return sum(agent.num_observed for agent in self._agents)

    def _start(self) -> bool:
        """Calls `play` once; False when there is no point in calling it again.

        It runs in a greenlet, so that a game which swallows every exception can be left behind.
        """
        seed = self._seeds[self._agents[0].num_episodes]
        agents = cast("Sequence[Agent]", self._agents)
        run = greenlet(lambda: self._game.start(agents, seed))
        run.gr_context = contextvars.copy_context()
        self._hub = getcurrent()
        self._player = run
        self._timeout.start()
        try:
            run.switch()
        except Exception as error:  # whatever a game raises
            self._breaches.raised("play", error)
            return False
        except GameHangs as hang:
            self.hangs = True
            self._breaches.cause = hang
            self._breaches.add(f"play hangs, {hang}: {stack_of(hang)}")
            return False
        finally:
            self._timeout.stop()
            self._breaches.line = ""
        return run.dead

    def _observe(
        self,
        agent: _CheckAgent,
        obs: Obs,
        kinds: Sequence[ActionType[Any]],
        *,
        truncated: bool = False,
    ) -> Observation | None:
        """Notes what is wrong with what an agent is shown; None when it cannot be answered."""
        if not isinstance(cast("object", obs), Obs):
            self._breaches.add(f"an agent was shown a {type(obs).__name__}, expected an Obs")
            return None
        found = self._breaches.extend(obs_breaches(obs, self._game.schema))
        if not is_finite(obs.score):
            found += self._breaches.extend(
                [f"the score is {obs.score!r}, expected a finite number"]
            )
        is_first = not agent.is_playing
        reward = agent.reward_of(obs)
        try:
            observation = observe(
                obs,
                kinds,
                self._game.schema,
                reward=reward,
                terminated=not kinds and not truncated,
                truncated=truncated,
            )
        except SchemaError as error:
            if not found:
                self._breaches.add(str(error))
            return None
        spaces = self._game.obs_space(), self._game.action_space()
        found += self._breaches.extend(
            observation_breaches(observation, *spaces, is_first=is_first and bool(kinds))
        )
        if not found:
            self.trace.append((self._breaches.place, snapshot(observation, spaces[0])))
        return observation

    def _kinds(self, actions: tuple[ActionKey, ...]) -> list[ActionType[Any]]:
        """The actions that are asked for; none when there is something wrong with them."""
        if not actions:
            self._breaches.add("act needs at least one action to ask for: agent.act(obs, Move)")
        try:
            return [self._game.schema.action(key) for key in actions]
        except SchemaError as error:
            self._breaches.add(str(error))
            return []

    def _random_answer(
        self, obs: Obs, kinds: Sequence[ActionType[Any]], observation: Observation
    ) -> object:
        schema: Schema = self._game.schema
        try:
            asked = questions(observation, schema.obs_space(), schema.action_space())
        except SchemaError:  # a breach that was noted already
            self._has_hung_up = True
            return None
        chosen = {q.name: q.chosen(random_action(q, self._rng)) for q in asked}
        answers = tuple(answer_to(kind, obs, iter(chosen[kind.name])) for kind in kinds)
        return answers[0] if len(answers) == 1 else answers

    def _ignored(self) -> None:
        """Counts what the game does after it was given None, and ends it after a while.

        Raises:
            GameExit: it did not leave.
        """
        self._num_ignored += 1
        allowed = _MAX_IGNORED * len(self._agents)
        if self._num_ignored <= allowed:
            return
        self._add("play goes on after act gave None: return from it then")
        if self._num_ignored <= 2 * allowed:
            raise GameExit
        self._add("play swallows GameExit: catch Exception, not BaseException, around agent.act")
        if getcurrent() is self._player:
            self._hub.switch()
        raise GameExit

    def _add(self, breach: str) -> None:
        self._breaches.place = self._breaches.line = ""
        self._breaches.add(breach)

    def _at(self, agent: _CheckAgent) -> None:
        which = f", agent {agent.agent_id}" if len(self._agents) > 1 else ""
        self._breaches.place = (
            f"episode {agent.num_episodes} (seed {self.seed_of(agent)}), "
            f"step {agent.num_steps}{which}"
        )


class _CheckAgent:
    """Has all that games use of an `Agent`, and answers by chance; the contract knows no agents."""

    def __init__(self, check: _GameCheck, agent_id: int) -> None:
        self.agent_id = agent_id
        self.num_episodes = 0
        self.num_steps = 0
        self.num_observed = 0
        self.is_playing = False
        self.is_awaited = False
        """The answer to its last `act_async` was not looked at yet."""
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
        """The change of the score, which may be anything, since the last observation."""
        score = obs.score if is_finite(obs.score) else self.last_score
        reward = score - self.last_score if self.is_playing else 0.0
        self.is_playing = True
        self.last_score = score
        return reward


class _Answer:
    """What `act_async` returns."""

    def __init__(self, agent: _CheckAgent, answer: object) -> None:
        self._agent = agent
        self._answer = answer

    def get(self) -> object:
        self._agent.is_awaited = False
        return self._answer
