"""GameHost: drives one game from outside, through the `TrainAgent`s that it hands to the game."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

from entity_env.agents.channels.channel import Channel, Transport, require_transport
from entity_env.agents.channels.train_agent import TrainAgent
from entity_env.authoring.game import Game, no_game_over
from entity_env.authoring.obs import Obs
from entity_env.core.episode import MAX_IDLE_EPISODES, Episode
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.validation import is_number, must_be_number
from entity_env.errors import ClosedError, GameExit, ProtocolError, SchemaError

OnEnd: TypeAlias = Callable[[TrainAgent, Obs, Episode], None]
"""Called when an episode of an agent ends, with its last observation, which is only valid now."""


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
        "_begun",
        "_channel",
        "_holds_at_end",
        "_is_restarting",
        "_new_run",
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
        require_transport(transport)
        game.require_settings()
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
        self._begun = -1
        """Number of the episode that `play` was last called for."""
        self._new_run: Run | None = None
        """What the next restart begins; kept until it has, so that no interrupt loses it."""
        self._is_restarting = False
        """The game is to begin anew, once it has been unwound."""
        self._num_idle = 0
        """Episodes that ended in a row without a question."""

    @property
    def waiting(self) -> list[TrainAgent]:
        """The agents that have shown something and wait for an answer."""
        return [agent for agent in self.agents if agent.obs is not None]

    @property
    def episode(self) -> int:
        """Number of the episode that is being played, from 0."""
        playing = [a.num_episodes for a in self.agents if a.is_playing or a.obs is not None]
        return max(playing or [agent.num_episodes for agent in self.agents])

    @property
    def frame(self) -> FrameType | None:
        """The game's innermost frame while it waits; None if there is none."""
        return None if self._channel is None else self._channel.frame

    @property
    def is_leaving(self) -> bool:
        """The game is being unwound."""
        return self.is_closed or self._is_restarting

    def numbers(self) -> list[int]:
        """Number of the episode that each agent plays, or plays next."""
        if any(agent.is_playing or agent.obs is not None for agent in self.agents):
            return [agent.num_episodes for agent in self.agents]
        return [self._next_episode()] * len(self.agents)

    def seed_of(self, episode: int) -> int:
        """Seed of an episode of this run."""
        return self._seeds[episode]

    def begin_run(self, seeds: EpisodeSeeds, number: int = 0) -> None:
        """The next `restart` begins a new run of episodes, at this number."""
        self._new_run = seeds, number

    def restart(self, seed: int | EpisodeSeeds | None = None, number: int = 0) -> None:
        """Unwinds whatever is being played, and plays anew until the game waits.

        May be called again after an interrupt: it goes on to an episode that has not begun, so
        that none is played twice. The one that was cut, or was just about to begin, is dropped.

        Args:
            seed: begins a new run of episodes with this seed, or with these seeds, whatever
                `env_id` is; None goes on to the next episode.
            number: of the first episode of a new run.

        Raises:
            ClosedError: after `close`.
            ProtocolError: the game cannot be unwound, or never asks anything.
        """
        if self.is_closed:
            raise ClosedError(f"{self.name} is closed: make a new environment")
        if isinstance(seed, EpisodeSeeds):
            self.begin_run(seed, number)
        elif seed is not None:
            self.begin_run(EpisodeSeeds(seed, self.env_id), number)
        if (
            self.is_over
            and self._new_run is None
            and not (self._channel is None or self._channel.is_finished)
        ):
            self.resume()  # it goes on to its next episode by itself
        else:
            self._begin_anew()
        self.require_waiting()

    def close(self) -> None:
        """Unwinds the game, so that its `finally` blocks run; may be called twice.

        Raises:
            ProtocolError: the game refuses to leave, and is given up; or another thread must close
                it, which it can still do.
        """
        self.is_closed = True
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self.resume = self._not_started

    def game_over(self, agent: TrainAgent, obs: Obs, truncated: bool) -> None:
        """Called by the game, through an agent."""
        if not is_number(obs.score):
            raise SchemaError(must_be_number("score", obs.score))
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
            metrics=dict(obs.metrics or {}),
        )
        self._on_end(agent, obs, episode)
        self._require_questions(agent)
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        if self._holds_at_end:
            agent.is_over = True
            if all(other.is_over for other in self.agents):
                self._hold()

    def ignore(self, agent: TrainAgent) -> None:
        """Called instead of `game_over` while the game is unwound, by a `finally` block say."""
        self._num_idle += 1
        if self._num_idle > MAX_IDLE_EPISODES:
            agent.wait()

    def require_waiting(self) -> None:
        """Checks that the game waits for an agent, or is over.

        Raises:
            ProtocolError: it does not: it was unwound, or its thread has ended.
        """
        if not (self.is_over or self.waiting):
            raise ProtocolError(
                f"{self.name}: the game stopped without asking any agent; it was unwound by "
                "something else than close"
            )

    def _not_started(self) -> None:
        raise ClosedError(f"{self.name} is not being played: reset it first")

    def _begin_anew(self) -> None:
        """Unwinds the game if there is one, and calls `play`, with the next episode or run."""
        self._is_restarting = True
        try:
            if self._channel is None or self._channel.is_finished:
                self._channel = make_channel(self._transport, self._play_on, self.name)
                self.resume = self._channel.resume
                self.resume()
            else:
                self._channel.throw()
        except Exception:
            self._new_run = None  # begun and failed, or refused: nothing that an interrupt cut off
            raise
        finally:
            self._is_restarting = False

    def _next_episode(self) -> int:
        """The first one that has not begun, if only to fail before its first question."""
        return max(self._begun + 1, *(a.num_episodes + a.is_playing for a in self.agents))

    def _play_on(self) -> None:
        """Plays one episode after the other; runs on the game's own stack."""
        while not self.is_closed:
            if self._is_restarting:
                self._connect()
            try:
                self._play()
            except GameExit:
                if not self.is_leaving:
                    return

    def _connect(self) -> None:
        """Prepares everything for the next episode, or the first of a new run."""
        seeds, episode = self._new_run or (self._seeds, self._next_episode())
        self._seeds = seeds
        self._begun = episode - 1
        self._num_idle = 0
        self.is_over = False
        channel = self._channel
        if channel is not None:
            channel.ready_again()
            for agent in self.agents:
                agent.connect(channel.suspend, episode)
        self._new_run = None
        self._is_restarting = False

    def _play(self) -> None:
        """Calls `play` once."""
        number = max(agent.num_episodes for agent in self.agents)
        for agent in self.agents:  # also those that took no part in the last episode
            agent.num_episodes = number
        self._begun = number
        self.game.start(self.agents, self._seeds[number])
        if not self.is_leaving:
            self._require_over(number)
            if any(agent.is_over for agent in self.agents):
                self._hold()

    def _hold(self) -> None:
        """Waits at the end of an episode until the driver wants the next one."""
        self.is_over = True
        self.agents[0].wait()
        self.is_over = False
        self._num_idle = 0
        for agent in self.agents:
            agent.is_over = False

    def _require_over(self, number: int) -> None:
        """Checks that `play` returned after the end of an episode of every agent that took part."""
        unfinished = [a.agent_id for a in self.agents if a.is_playing or a.obs is not None]
        if unfinished or all(agent.num_episodes == number for agent in self.agents):
            raise no_game_over(self.game.name, unfinished or [0])

    def _require_questions(self, agent: TrainAgent) -> None:
        """Checks that a game does not just end episodes for ever, without anything to train."""
        self._num_idle = 0 if agent.num_steps else self._num_idle + 1
        if self._num_idle > MAX_IDLE_EPISODES:
            raise ProtocolError(
                f"{self.name}: {MAX_IDLE_EPISODES} episodes in a row ended without asking any "
                "agent, so there is nothing to train"
            )


def make_channel(transport: Transport, target: Callable[[], None], name: str) -> Channel:
    """A channel that will run `target`.

    Args:
        transport: "greenlet" or "thread".
        target: the game; nothing of it runs before the first `resume`.
        name: what errors and threads call it.

    Raises:
        UsageError: another transport.
    """
    require_transport(transport)
    if transport == "greenlet":
        from entity_env.agents.channels.greenlet_channel import GreenletChannel

        return GreenletChannel(target, name)
    from entity_env.agents.channels.thread_channel import ThreadChannel

    return ThreadChannel(target, name)
