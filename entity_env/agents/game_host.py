"""GameHost: drives one game from outside, through the `TrainAgent`s that it hands to the game."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from entity_env.agents.channel import Channel, Transport, make_channel
from entity_env.agents.train_agent import TrainAgent
from entity_env.episode import Episode
from entity_env.errors import ClosedError, GameExit, ProtocolError
from entity_env.game import Game, no_game_over
from entity_env.obs import Obs
from entity_env.seeds import EpisodeSeeds

OnEnd: TypeAlias = Callable[[TrainAgent, Obs, Episode], None]
"""Called when an episode of an agent ends, with its last observation, which is only valid now."""

_MAX_IDLE_EPISODES: Final = 1000


class GameHost:
    """Runs one game, suspended wherever it waits for its agents.

    The loop is `restart`, then again and again: read what the `waiting` agents show, `give` each of
    them its answer, `resume`. Nothing here refers to the owner of the host, so that dropping the
    owner can close it: a suspended game is never garbage collected by itself on CPython 3.11.

    Args:
        game: what to play.
        transport: how the game waits; see `Channel`.
        env_id: index of the environment, from which with the seed of the run the episodes' seeds
            follow.
        on_end: told of every ended episode.
        holds_at_end: the game waits at the end of an episode until it is resumed once more, rather
            than go on to the first observation of the next one.
    """

    __slots__ = (
        "_channel",
        "_holds_at_end",
        "_is_restarting",
        "_num_idle",
        "_on_end",
        "_seeds",
        "_transport",
        "agents",
        "env_id",
        "game",
        "is_closed",
        "is_over",
        "name",
        "resume",
    )

    def __init__(
        self,
        game: Game,
        *,
        transport: Transport = "greenlet",
        env_id: int = 0,
        on_end: OnEnd,
        holds_at_end: bool = False,
    ) -> None:
        self.game = game
        self.name = f"{game.name} (env {env_id})"
        self.env_id = env_id
        self.agents = [TrainAgent(self, i) for i in range(game.num_agents)]
        self.is_over = False
        """All agents' episodes have ended, and the game waits for the next `resume`."""
        self.is_closed = False
        self.resume: Callable[[], None] = self._not_started
        """Runs the game until an agent waits, or until `is_over` if the host holds at the end. The
        channel's own method, since a call more would be felt at a million steps a second."""
        self._on_end = on_end
        self._holds_at_end = holds_at_end
        self._transport: Transport = transport
        self._channel: Channel | None = None
        self._seeds = EpisodeSeeds(0, env_id)
        self._is_restarting = False
        self._num_idle = 0

    @property
    def waiting(self) -> list[TrainAgent]:
        """The agents that have shown something and wait for an answer."""
        return [agent for agent in self.agents if agent.obs is not None]

    @property
    def is_playing(self) -> bool:
        """An agent is in the middle of an episode."""
        return any(agent.is_playing for agent in self.agents)

    @property
    def episode(self) -> int:
        """Number of the episode that is being played, from 0."""
        return max(agent.num_episodes for agent in self.agents)

    def seed_of(self, episode: int) -> int:
        """Seed of an episode of this run."""
        return self._seeds[episode]

    def restart(self, seed: int | None = None) -> None:
        """Unwinds whatever is being played, and plays anew until the game waits.

        Args:
            seed: begins a new run of episodes with this seed; None goes on to the next episode.

        Raises:
            ClosedError: after `close`.
            ProtocolError: the game cannot be unwound, or never asks anything.
        """
        if self.is_closed:
            raise ClosedError(f"{self.name} is closed: make a new environment")
        if seed is not None:
            self._seeds = EpisodeSeeds(seed, self.env_id)
        number = 0 if seed is not None else self.episode + self.is_playing
        for agent in self.agents:
            agent.num_episodes = number
        if self._channel is None or self._channel.is_finished:
            self._channel = make_channel(self._transport, self._play_on, self.name)
            self._connect()
        elif seed is not None or not self.is_over:
            self._is_restarting = True
            self._channel.throw()
            self.require_waiting()
            return
        self.is_over = False
        self.resume()
        self.require_waiting()

    def close(self) -> None:
        """Unwinds the game, so that its `finally` blocks run; may be called twice.

        Raises:
            ProtocolError: the game refuses to leave; everything else is released all the same.
        """
        self.is_closed = True
        channel, self._channel = self._channel, None
        self.resume = self._not_started
        if channel is not None:
            channel.close()

    def game_over(self, agent: TrainAgent, obs: Obs, truncated: bool) -> None:
        """Called by the game, through an agent."""
        first = agent.first_score if agent.is_playing else obs.score
        episode = Episode(
            reward=obs.score - first,
            length=agent.num_steps,
            terminated=not truncated,
            truncated=truncated,
            seed=self._seeds[agent.num_episodes],
            number=agent.num_episodes,
            env_id=self.env_id,
            agent_id=agent.agent_id,
            metrics=obs.metrics or {},
        )
        self._on_end(agent, obs, episode)
        if agent.num_steps:
            self._num_idle = 0
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        if self._holds_at_end and not self.is_playing:
            self.is_over = True
            agent.wait()

    def require_waiting(self) -> None:
        """Checks that the game waits for an agent, or is over.

        Raises:
            ProtocolError: it does not: it was unwound, or its thread has ended.
        """
        if not (self.is_over or self.waiting):
            raise ProtocolError(
                f"{self.name}: the game stopped without asking any agent; it was unwound by "
                "something else than close, or the thread that ran it has ended"
            )

    def _not_started(self) -> None:
        raise ClosedError(f"{self.name} is not being played: reset it first")

    def _connect(self) -> None:
        self.is_over = False
        self._num_idle = 0
        channel = self._channel
        if channel is not None:
            self.resume = channel.resume
            for agent in self.agents:
                agent.connect(channel.suspend)

    def _play_on(self) -> None:
        """Plays one episode after the other; runs on the game's own stack."""
        while True:
            try:
                self.game.start(self.agents, self._seeds[self.episode])
            except GameExit:
                if not self._is_restarting:
                    return
                self._is_restarting = False
                if self._channel is not None:
                    self._channel.ready_again()
                self._connect()
                continue
            self._require_over()

    def _require_over(self) -> None:
        """Checks that `play` returned between two episodes, and does not just return for ever."""
        unfinished = [a.agent_id for a in self.agents if a.is_playing or a.obs is not None]
        if unfinished:
            raise no_game_over(self.game.name, unfinished)
        self._num_idle += 1
        if self._num_idle > _MAX_IDLE_EPISODES:
            raise ProtocolError(
                f"{self.name}: play returned {_MAX_IDLE_EPISODES} times in a row without asking "
                "any agent, so there is nothing to train"
            )
