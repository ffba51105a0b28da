"""`AgentRun`: score, steps and episodes of an agent in `Game.run`; `Turn`, for watchers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.action_type import ActionKey, ActionType, action_type
from entity_env.authoring.obs import Obs, class_of, class_of_globals
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.authoring.to_observation import to_observation
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName
from entity_env.core.validation import is_number, must_be_number
from entity_env.core.vec_obs import metric_problem
from entity_env.errors import GameExit, ProtocolError, SchemaError

_MAX_IGNORED: Final = 100


@dataclass(frozen=True)
class Thoughts:
    """What a network computes of one observation, besides its choice.

    Args:
        probabilities: per requested action with labels or actees `(num_actors, num_choices)
            float32`; rows sum to 1, choices that are not allowed have 0.
        value: predicted discounted return from here on, in units of the score; None if the network
            has no value head.
        attention: `(layers, heads, entities, entities) float32`: how much each entity attends to
            each, in the order of the game's observation space, then the global features, if the
            network sees them as an entity. Rows sum to 1; row and column of an entity that the
            policy does not see are 0. None for a network without attention.
    """

    probabilities: Mapping[ActionName, NDArray[np.float32]]
    value: float | None = None
    attention: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Turn:
    """One step of one agent, for watchers.

    Args:
        agent_id: index of the agent.
        step: number of its actions before in this episode.
        score: its running score.
        observation: before the actions.
        actions: empty for the final observation of an episode.
        episode: for the final observation only.
        thoughts: of the agent, if they were computed.
    """

    agent_id: int
    step: int
    score: float
    observation: Observation
    actions: Mapping[ActionName, Action] = field(default_factory=dict)
    episode: Episode | None = None
    thoughts: Thoughts | None = None


Watch: TypeAlias = Callable[[Turn], None]


class AgentRun:
    """Statistics and limits of one agent in one run of a game.

    Without a schema, outside of `Game.run`, any entity and action is allowed. After the given
    number of episodes, None = no limit, `act` returns None. The timeout of the game's steps does
    not run during calls of the agent and the watcher.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        agent_id: int = 0,
        episodes: int | None = None,
        seeds: EpisodeSeeds | None = None,
        watch: Watch | None = None,
        timeout: StepTimeout | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.is_stopped = False
        self.is_left = False
        """The game was unwound, since it ended episodes that are not counted."""
        self.episodes: list[Episode] = []
        self.num_steps = 0
        """Actions taken in this episode."""
        self.schema = schema
        self._limit = episodes
        self._seeds = EpisodeSeeds(0) if seeds is None else seeds
        self._watch = watch
        self._timeout = StepTimeout(None) if timeout is None else timeout
        self._first_score: float | None = None
        self._last_score = 0.0
        self._num_ignored = 0

    @property
    def seed(self) -> int:
        """Seed of the current episode; after `game_over`, of the next one."""
        return self._seeds[len(self.episodes)]

    @property
    def is_playing(self) -> bool:
        """Whether the agent has observed anything since the last episode ended."""
        return self._first_score is not None

    def stop(self) -> None:
        """Makes `act` return None from now on; GameExit if the game ignores that many times."""
        self._timeout.start()
        self.is_stopped = True
        self._ignore()

    def _ignore(self) -> None:
        self._num_ignored += 1
        if self._num_ignored > _MAX_IGNORED:
            raise GameExit

    def kinds(self, actions: Sequence[ActionKey]) -> list[ActionType[Any]]:
        """The declared actions; ProtocolError for none, SchemaError for an undeclared one."""
        self._timeout.stop()
        if not actions:
            raise ProtocolError("act needs at least one action to ask for: agent.act(obs, Move)")
        if self.schema is None:
            return [action_type(key) for key in actions]
        return [self.schema.action(key) for key in actions]

    def schema_of(self, obs: Obs, kinds: Sequence[ActionType[Any]]) -> Schema:
        """The schema of the game, or without one of the observation."""
        if self.schema is not None:
            return self.schema
        shown = [cls for cls in map(class_of, obs.groups) if cls is not None]
        named = list(dict.fromkeys([*kinds, *obs.actions_named]))
        actees = [kind.actee for kind in named if hasattr(kind, "actee")]
        return Schema(
            dict.fromkeys([*shown, *actees]), named, class_of_globals(obs.global_features)
        )

    def observe(self, obs: Obs, kinds: Sequence[ActionType[Any]], schema: Schema) -> Observation:
        """The observation with the reward since the last one."""
        _require_sound(obs)
        if self._first_score is None:
            self._first_score = self._last_score = obs.score
        reward, self._last_score = obs.score - self._last_score, obs.score
        return to_observation(obs, kinds, schema, reward=reward)

    def acted(self, observation: Observation, actions: Mapping[ActionName, Action]) -> None:
        """Counts a decision and calls the watcher."""
        if self._watch is not None:
            turn = Turn(self.agent_id, self.num_steps, self._last_score, observation, actions)
            self._watch(turn)
        self.num_steps += 1
        self._timeout.start()

    def game_over(self, obs: Obs | None, *, truncated: bool) -> None:
        """Ends the episode, calls the watcher, and stops after the last episode."""
        if self.is_stopped and not self.is_playing:
            # A loop over episodes that ask nothing would never end.
            self.is_left = self._num_ignored >= _MAX_IGNORED
            self._ignore()
            return
        self._timeout.stop()
        final = Obs(self._last_score) if obs is None else obs
        _require_sound(final)
        if self._first_score is None:  # never asked in this episode: it earned nothing
            self._first_score = self._last_score = final.score
        schema = self.schema_of(final, ())
        observation = to_observation(
            final,
            (),
            schema,
            reward=final.score - self._last_score,
            terminated=not truncated,
            truncated=truncated,
        )
        episode = Episode(
            reward=final.score - self._first_score,
            length=self.num_steps,
            terminated=not truncated,
            truncated=truncated,
            seed=self.seed,
            number=len(self.episodes),
            agent_id=self.agent_id,
            metrics=dict(final.metrics or {}),
        )
        if self._watch is not None:
            turn = Turn(self.agent_id, self.num_steps, final.score, observation, {}, episode)
            self._watch(turn)
        self.episodes.append(episode)
        self.num_steps = 0
        self._first_score = None
        if self._limit is not None and len(self.episodes) >= self._limit:
            self.is_stopped = True
        self._timeout.start()


def _require_sound(obs: Obs) -> None:
    """Raises a SchemaError if the score or a metric is no number."""
    if not is_number(obs.score):
        raise SchemaError(must_be_number("score", obs.score))
    for name, value in (obs.metrics or {}).items():
        if problem := metric_problem(name, value):
            raise SchemaError(problem)
