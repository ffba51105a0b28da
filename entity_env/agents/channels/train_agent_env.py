"""TrainAgentEnv: a game that owns its loop, as an `Environment`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.game_runner import GameRunner, TrainAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import refuse_exit
from entity_env.authoring.obs import Obs, actions_at_truncation, answers_to, obs_problem
from entity_env.authoring.to_observation import to_observation
from entity_env.core.action_request import Question, chosen_values, questions
from entity_env.core.environment import Environment
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds, SeedsFrom
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import ClosedError, ProtocolError, SchemaError


class TrainEnvBuilder:
    """Declares a `Game` step by step, as in entity-gym-rs; see `Game` for declaring it at once.

    Example:
        >>> from entity_env.agents import TrainEnvBuilder
        >>> from entity_env.games.snake import Food, Head, Move, Segment, play
        >>> builder = TrainEnvBuilder().entity(Head).entity(Segment).entity(Food).action(Move)
        >>> builder.build(play)
        Game(snake)
    """

    def __init__(self) -> None:
        self._entities: list[type] = []
        self._relations: list[type] = []
        self._actions: list[ActionKey] = []

    def entity(self, *classes: type) -> Self:
        """Adds entity dataclasses."""
        self._entities += classes
        return self

    def relation(self, *classes: type) -> Self:
        """Adds dataclasses about pairs of entities, see `Game`."""
        self._relations += classes
        return self

    def action(self, *keys: ActionKey) -> Self:
        """Adds actions: Enums, `Categorical`, `SelectEntity` or `Continuous`."""
        self._actions += keys
        return self

    def build(self, play: Callable[..., None], *, num_agents: int = 1) -> Game:
        """The game, for `VecEnv`, `train` and `TrainAgentEnv`.

        Raises:
            SchemaError: the errors of `Game`.
        """
        return Game(
            play,
            entities=self._entities,
            relations=self._relations,
            actions=self._actions,
            num_agents=num_agents,
        )


class TrainAgentEnv(Environment):
    """Environment of a game that owns its loop; the game is suspended while its agents wait.

    With one agent, use `reset` and `act`, as with any `Environment`; with several agents, use
    `reset_all` and `act_all`, which return one observation per agent.

    Args:
        transport: "greenlet" (under 2 µs per step; the thread that resets it must step it) or
            "thread" (about 15 µs; for games that use asyncio, or callbacks from C); None = the
            game's transport.
        seed: seed of the run; episode seeds follow from it and `env_id`.
        env_id: index of this environment in the run.
    """

    def __init__(
        self, game: Game, *, transport: Transport | None = None, seed: int = 0, env_id: int = 0
    ) -> None:
        self._seeds: EpisodeSeeds | None = EpisodeSeeds(seed, env_id)
        """Seeds of the run that the first reset starts; None after that reset."""
        self._ends = _FinalObservations(game)
        self._host = GameRunner(
            game, transport=transport, env_id=env_id, on_end=self._ends.add, holds_at_end=True
        )
        self._game = game
        self._observations: list[Observation] = []
        self._asked: list[dict[ActionName, Question]] = [{} for _ in range(game.num_agents)]
        """Questions of each agent's last observation."""
        # CPython 3.11 never garbage-collects a suspended greenlet: the finalizer closes the game.
        self._finalizer = weakref.finalize(self, self._host.close)

    @property
    def episodes(self) -> Sequence[Episode]:
        """Episodes that ended in the last step or reset, at most one per agent."""
        return [episode for _, episode in self._ends.ended.values()]

    @property
    def is_over(self) -> bool:
        """True if the episodes of all agents have ended."""
        return self._host.is_over

    def obs_space(self) -> ObsSpace:
        return self._game.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._game.action_space()

    def reset(self, *, seed: int | None = None) -> Observation:
        """Starts a new episode; a running one is unwound first.

        The observation is `done` if the game ends the episode without asking for an action.

        Args:
            seed: seed of the episode, as for `Game.play_episode`; later episodes follow from it.
                None = the next episode of the run.

        Raises:
            ClosedError: after `close`.
            ProtocolError: the game has several agents, cannot be unwound, or must be reset by
                another thread.
            UsageError: an invalid seed.
            SchemaError, WorkerError: errors of the game, as for `act`.
        """
        self._require_one_agent("reset_all")
        return self.reset_all(seed=seed)[0]

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        """Performs the actions that the last observation requests; returns the next observation.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, after an observation that was `done`, or after an error.
            SchemaError: an action is missing, of the wrong kind, not allowed, or not requested; the
                game did not continue. Or the game has shown an invalid observation.
            WorkerError: the game called `sys.exit()`, or raised something else that is not an
                `Exception`. Other exceptions of the game propagate unchanged.

        After an exception of the game, call `reset`.
        """
        self._require_one_agent("act_all")
        return self.act_all([actions])[0]

    def reset_all(self, *, seed: int | EpisodeSeeds | None = None) -> list[Observation]:
        """Like `reset`, with one observation per agent.

        Agents that neither wait nor have just ended their episodes get an observation without
        entities and actions. `EpisodeSeeds` start a new run.
        """
        self._require_open()
        if seed is None:
            seed = self._seeds
        if seed is not None:  # checks the seed before `restart` unwinds the game
            self._host.begin_run(seed if isinstance(seed, EpisodeSeeds) else SeedsFrom(seed))
        self._seeds = None
        self._host.settle()
        self._ends.ended.clear()
        self._observations = []
        try:
            self._host.restart()
        except BaseException as error:
            refuse_exit(error, **self._host.place)
            raise
        return self._observe_all()

    def act_all(self, actions: Sequence[Mapping[ActionName, Action] | None]) -> list[Observation]:
        """Like `act`, with one mapping per agent; None for agents that do not wait.

        Raises:
            ProtocolError: as for `act`, or the actions are not for exactly the agents that wait.
            ClosedError, SchemaError: as for `act`.
        """
        self._require_open()
        if not self._observations or self._host.is_over:
            when = "the episode has ended" if self._observations else "nothing is being played"
            raise ProtocolError(f"{self._host.name}: {when}: call reset before act")
        agents = self._host.agents
        if len(actions) != len(agents):
            raise ProtocolError(
                f"{self._host.name}: expected one answer per agent ({len(agents)}), "
                f"got {len(actions)}"
            )
        answered = [
            agent for agent, given in zip(agents, actions, strict=True) if given is not None
        ]
        if answered != self._host.waiting:
            waiting, given_for = (
                ", ".join(str(agent.agent_id) for agent in some) or "none"
                for some in (self._host.waiting, answered)
            )
            raise ProtocolError(
                f"{self._host.name}: agents {waiting} are waiting for an action, "
                f"but answers came for {given_for}: answer exactly the waiting agents"
            )
        answers = [self._decode(agent, actions[agent.agent_id] or {}) for agent in answered]
        self._observations = []  # after an error, only reset works
        for agent, answer in zip(answered, answers, strict=True):
            agent.give(answer)
        self._ends.ended.clear()
        try:
            self._host.resume()
        except BaseException as error:
            refuse_exit(error, **self._host.place)
            raise
        self._host.require_waiting()
        return self._observe_all()

    def close(self) -> None:
        """Unwinds the game, running its `finally` blocks; may be called twice.

        Raises:
            ProtocolError: the game does not exit, or another thread must close it.
        """
        self._host.close()
        self._finalizer.detach()

    def _observe_all(self) -> list[Observation]:
        self._observations = [self._observe(agent) for agent in self._host.agents]
        return self._observations

    def _observe(self, agent: TrainAgent) -> Observation:
        if agent.agent_id in self._ends.ended:
            return self._ends.ended[agent.agent_id][0]
        if agent.obs is None:
            return Observation(reward=0.0)
        if problem := obs_problem(agent.obs):
            raise SchemaError(f"{self._host.name}: {problem}")
        score = agent.obs.score
        if not agent.is_playing:
            agent.is_playing = True
            agent.first_score = agent.last_score = score
        reward, agent.last_score = score - agent.last_score, score
        observation = to_observation(agent.obs, agent.kinds, self._game.schema, reward=reward)
        # Checked here, to report a wrong mask with its observation.
        asked = questions(observation, self.obs_space(), self.action_space())
        self._asked[agent.agent_id] = {question.name: question for question in asked}
        return observation

    def _decode(self, agent: TrainAgent, actions: Mapping[ActionName, Action]) -> object:
        obs = agent.obs or Obs()
        asked = self._asked[agent.agent_id]
        unasked = [name for name in actions if name not in asked]
        if unasked:
            raise SchemaError(
                f"{self._host.name}: action {unasked[0]!r} was not requested; "
                f"requested: {', '.join(asked)}"
            )
        return answers_to(agent.kinds, obs, chosen_values(asked.values(), actions))

    def _require_open(self) -> None:
        if self._host.is_closed:
            raise ClosedError(f"{self._host.name} is closed: make a new environment")

    def _require_one_agent(self, instead: str) -> None:
        if self._game.num_agents != 1:
            raise ProtocolError(
                f"{self._game.name} is for {self._game.num_agents} agents: call {instead}"
            )


@dataclass
class _FinalObservations:
    game: Game
    ended: dict[int, tuple[Observation, Episode]] = field(default_factory=dict)

    def add(self, agent: TrainAgent, obs: Obs, episode: Episode) -> None:
        asked = agent.kinds if episode.length else ()  # not those of an earlier episode
        observation = to_observation(
            obs,
            actions_at_truncation(obs, asked) if episode.truncated else (),
            self.game.schema,
            reward=agent.reward_of(obs),
            terminated=episode.terminated,
            truncated=episode.truncated,
        )
        self.ended[agent.agent_id] = observation, episode
