"""`GameRunner` runs a game; its `TrainAgent`s suspend it at every `act` until the answer is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn, TypeAlias, get_args

from entity_env.agents.channels.channel import Channel, Transport
from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent, Pending
from entity_env.authoring.game import Game, no_game_over
from entity_env.authoring.local_run import gain, still_played
from entity_env.authoring.obs import Obs, obs_problem
from entity_env.core.episode import MAX_IDLE_EPISODES, Episode
from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.validation import require_choice
from entity_env.errors import ClosedError, GameExit, ProtocolError, SchemaError


class TrainAgent(Agent):
    """Agent of a game that is stepped from outside; created by its `GameRunner`."""

    __slots__ = (
        "_host",
        "_last_asked",
        "_pending",
        "_suspend",
        "agent_id",
        "answer",
        "first_score",
        "is_over",
        "is_playing",
        "kinds",
        "last_score",
        "num_episodes",
        "num_steps",
        "obs",
    )

    def __init__(self, host: GameRunner, agent_id: int) -> None:
        self.agent_id = agent_id
        self.obs: Obs | None = None
        """The observation that waits for an action."""
        self.kinds: tuple[ActionType[Any], ...] = ()
        self.answer: Any = None
        self.last_score = 0.0
        self.is_playing = False
        """True if the driver has read an observation of the agent's current episode."""
        self.is_over = False
        """True if the agent's episode has ended; the agent must not act before its next episode."""
        self.first_score = 0.0
        self.num_steps = 0
        """Number of actions chosen in this episode."""
        self.num_episodes = 0
        self._host = host
        self._suspend: Callable[[], None] = _not_started
        self._last_asked: tuple[ActionKey, ...] | None = None
        """Arguments of the `act` call that set `kinds`."""
        self._pending: _PendingAnswer | None = None

    @property
    def is_in_episode(self) -> bool:
        """True if the agent plays, or waits for its first action."""
        return self.is_playing or self.obs is not None

    @property
    def seed(self) -> int:
        return self._host.seed_of(self.num_episodes)

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if self.obs is not None or self.is_over:
            self._refuse("asked")
        if actions != self._last_asked:  # most games repeat one question
            self._last_asked = None
            self.kinds = self._host.game.schema.questions(actions)
            self._last_asked = actions
        if obs is None:  # means "not waiting"; the driver reports other wrong values
            raise SchemaError(obs_problem(obs))
        self.obs = obs
        try:
            self._suspend()
        except BaseException:
            self.obs = None  # unwound, or called from another thread: no action will come
            raise
        return self.answer

    def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if self.obs is not None or self.is_over:
            self._refuse("asked")
        if problem := obs_problem(obs):
            raise SchemaError(problem)
        self._last_asked = None
        self.kinds = self._host.game.schema.questions(actions)
        self.obs = obs.frozen()
        self._pending = _PendingAnswer(self)
        return self._pending

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        if self._host.is_leaving:
            self._host.ignore(self)
            return
        if self.obs is not None or self.is_over:
            self._refuse("given game_over")
        self._host.game_over(self, Obs(self.last_score) if obs is None else obs, truncated)

    def reward_of(self, obs: Obs) -> float:
        """Change of the score since the agent's last observation, if there is one."""
        return gain(obs, self.last_score if self.is_playing else None)

    def give(self, answer: object) -> None:
        """Sets the action that the agent waits for; the game continues at the next `resume`."""
        self.answer = answer
        self.obs = None
        self.num_steps += 1
        if self._pending is not None:
            self._pending.set(answer)
            self._pending = None

    def connect(self, suspend: Callable[[], None], episode: int) -> None:
        """Resets the agent for an episode, and sets the function it calls to wait."""
        self._suspend = suspend
        self.obs = None
        self._pending = None
        self.is_playing = False
        self.is_over = False
        self.num_steps = 0
        self.num_episodes = episode

    def wait(self) -> None:
        self._suspend()

    def _refuse(self, what: str) -> NoReturn:
        if self._host.is_leaving:
            self._suspend()  # raises GameExit; after MAX_SWALLOWED_EXITS times, never returns
        call = f"{self._host.name}: agent {self.agent_id} was {what}"
        if self.is_over and not self._host.game.respawns:
            raise ProtocolError(still_played(call))
        if self.is_over:
            raise ProtocolError(
                f"{call} after its game_over, while other agents still play: only with autoreset "
                '"same_step" can it begin its next episode before they end theirs'
            )
        raise ProtocolError(f"{call} before its last act_async was answered: call .get() first")


class _PendingAnswer(Pending[object]):
    def __init__(self, agent: TrainAgent) -> None:
        self._agent: TrainAgent | None = agent
        self._answer: object = None

    def set(self, answer: object) -> None:
        self._agent = None
        self._answer = answer

    def get(self) -> object:
        if self._agent is not None:
            self._agent.wait()
        return self._answer


def _not_started() -> None:
    raise ProtocolError("this agent's game has not been started: reset its environment first")


OnEnd: TypeAlias = Callable[[TrainAgent, Obs, Episode], None]
"""Called at the end of every episode; the final observation is valid only during the call."""


class GameRunner:
    """Runs one game, suspended wherever it waits for its agents.

    Call `restart`; then repeat: read the observations of the `waiting` agents, `give` each its
    action, `resume`. A runner holds no reference to its owner, so the owner can be collected
    and then close the runner: CPython 3.11 never garbage-collects a suspended greenlet.

    Episode seeds follow from the seed of the run and `env_id`. With `holds_at_end`, the game also
    waits when the episodes of all agents have ended; the next `resume` starts the next episode.
    """

    __slots__ = (
        "_channel",
        "_holds_at_end",
        "_is_restarting",
        "_last_started",
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
        "num_swallowed",
        "resume",
    )

    def __init__(
        self,
        game: Game,
        *,
        transport: Transport | None = None,
        env_id: int = 0,
        on_end: OnEnd,
        holds_at_end: bool = False,
    ) -> None:
        transport = game.transport if transport is None else transport
        require_choice("transport", transport, get_args(Transport))
        game.require_settings()
        self.game = game
        self.name = f"{game.name} (env {env_id})"
        self.env_id = env_id
        self.agents = [TrainAgent(self, i) for i in range(game.num_agents)]
        self.is_over = False
        """True if all agents' episodes have ended and the game waits for the next `resume`."""
        self.is_closed = False
        self.num_swallowed = 0
        """How often the game asked again while `close` unwound it; see `Channel`."""
        self.resume: Callable[[], None] = self._not_started
        """Runs the game until an agent waits, or until `is_over` with `holds_at_end`. It is the
        channel's own method, which saves one call per step.
        """
        self._on_end = on_end
        self._holds_at_end = holds_at_end
        self._transport: Transport = transport
        self._channel: Channel | None = None
        self._seeds = EpisodeSeeds(0, env_id)
        self._last_started = -1
        """Index of the last episode for which `play` was called."""
        self._new_run: Run | None = None
        """Run for the next restart; kept until that starts, so an interrupt cannot lose it."""
        self._is_restarting = False
        self._num_idle = 0
        """Number of consecutive episodes without an action."""

    @property
    def waiting(self) -> list[TrainAgent]:
        return [agent for agent in self.agents if agent.obs is not None]

    @property
    def episode(self) -> int:
        """Index of the current episode; the largest if the agents' episodes differ."""
        playing = [agent.num_episodes for agent in self.agents if agent.is_in_episode]
        return max(playing or [agent.num_episodes for agent in self.agents])

    @property
    def place(self) -> dict[str, int]:
        """Seed, index and step of the current episode, for errors."""
        steps = max(agent.num_steps for agent in self.agents)
        return {"seed": self.seed_of(self.episode), "episode": self.episode, "step": steps}

    @property
    def frame(self) -> FrameType | None:
        """See `Channel.frame`."""
        return None if self._channel is None else self._channel.frame

    @property
    def is_leaving(self) -> bool:
        """True while the game is being unwound, and after `close`."""
        return self.is_closed or self._is_restarting

    def numbers(self) -> list[int]:
        """Index of each agent's current or next episode."""
        if any(agent.is_in_episode for agent in self.agents):
            return [agent.num_episodes for agent in self.agents]
        return [self._next_episode()] * len(self.agents)

    def seed_of(self, episode: int) -> int:
        return self._seeds[episode]

    def begin_run(self, seeds: EpisodeSeeds, number: int = 0) -> None:
        """Makes the next `restart` begin a new run, at the episode with index `number`."""
        self._new_run = seeds, number

    def restart(self, seed: int | EpisodeSeeds | None = None, number: int = 0) -> None:
        """Unwinds a running episode, and runs the next one until the game waits.

        `seed` starts a new run, at the episode with index `number`; None continues the run. An
        interrupt drops the episode; the call can then be repeated, and no episode is played twice.
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
            self.resume()  # its loop continues with the next episode
        else:
            self._restart_game()
        self.require_waiting()

    def settle(self) -> None:
        """Waits until the game is at rest, also after an interrupt; see `Channel.settle`."""
        if self._channel is not None:
            self._channel.settle()

    def close(self) -> None:
        """Unwinds the game, running its `finally` blocks; may be called twice."""
        self.is_closed = True
        if self._channel is not None:
            self._channel.close()
            self.num_swallowed = self._channel.num_swallowed
        self._channel = None
        self.resume = self._not_started

    def game_over(self, agent: TrainAgent, obs: Obs, truncated: bool) -> None:
        """Ends an episode; called by the game through its agent."""
        if problem := obs_problem(obs):
            raise SchemaError(problem)
        reward = gain(obs, agent.first_score if agent.is_playing else None)
        episode = self.summary(agent, reward, truncated, dict(obs.metrics or {}))
        self._on_end(agent, obs, episode)
        self._require_questions(agent)
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        if self._holds_at_end:
            agent.is_over = True
            if all(other.is_over for other in self.agents):
                self._hold()
        elif len(self.agents) > 1 and not self.game.respawns:
            agent.is_over = any(other.is_in_episode for other in self.agents)
            if not agent.is_over:
                self._begin_match()

    def summary(
        self, agent: TrainAgent, reward: float, truncated: bool, metrics: Mapping[str, float]
    ) -> Episode:
        return Episode(
            reward=reward,
            length=agent.num_steps,
            terminated=not truncated,
            truncated=truncated,
            seed=self._seeds[agent.num_episodes],
            number=agent.num_episodes,
            env_id=self.env_id,
            agent_id=agent.agent_id,
            metrics=metrics,
        )

    def ignore(self, agent: TrainAgent) -> None:
        """Replaces `game_over` while the game is unwound, for example in a `finally` block."""
        self._num_idle += 1
        if self._num_idle > MAX_IDLE_EPISODES:
            agent.wait()

    def require_waiting(self) -> None:
        """Raises `ProtocolError` if the game neither waits for an agent nor is over."""
        if not (self.is_over or self.waiting):
            raise ProtocolError(
                f"{self.name}: the game stopped without asking any agent; it was unwound by "
                "something other than close"
            )

    def _not_started(self) -> None:
        raise ClosedError(f"{self.name} is not being played: reset it first")

    def _restart_game(self) -> None:
        self._is_restarting = True
        try:
            if self._channel is None or self._channel.is_finished:
                channel = make_channel(self._transport, self._play_on, self.name)
                # In this order: if interrupted in between, the next restart makes another channel.
                self.resume = channel.resume
                self._channel = channel
                channel.resume()
            else:
                self._channel.throw()
        except Exception:
            self._new_run = None  # kept only after an interrupt, to start it again
            raise
        finally:
            self._is_restarting = False

    def _next_episode(self) -> int:
        """Index of the first episode for which `play` was not called."""
        return max(self._last_started + 1, *(a.num_episodes + a.is_playing for a in self.agents))

    def _play_on(self) -> None:
        """Plays episode after episode, on the game's own stack."""
        while not self.is_closed:
            if self._is_restarting:
                self._connect()
            try:
                self._play()
            except GameExit:
                if not self.is_leaving:
                    return

    def _connect(self) -> None:
        seeds, episode = self._new_run or (self._seeds, self._next_episode())
        self._seeds = seeds
        self._last_started = episode - 1
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
        number = max(agent.num_episodes for agent in self.agents)
        for agent in self.agents:  # including agents without a part in the last episode
            agent.num_episodes = number
        self._last_started = number
        self.game.start(self.agents, self._seeds[number])
        if not self.is_leaving:
            self._require_over(number)
            if self._holds_at_end and any(agent.is_over for agent in self.agents):
                self._hold()

    def _hold(self) -> None:
        """Waits at the end of an episode until the next `resume`."""
        self.is_over = True
        self.agents[0].wait()
        self.is_over = False
        self._num_idle = 0
        self._begin_match()

    def _begin_match(self) -> None:
        for agent in self.agents:
            agent.is_over = False

    def _require_over(self, number: int) -> None:
        """Checks that `play` called `game_over` for every agent that took part, at least one."""
        unfinished = [agent.agent_id for agent in self.agents if agent.is_in_episode]
        if unfinished or all(agent.num_episodes == number for agent in self.agents):
            raise no_game_over(self.game.name, unfinished or [0])

    def _require_questions(self, agent: TrainAgent) -> None:
        """Refuses a game that keeps ending episodes without asking for an action."""
        self._num_idle = 0 if agent.num_steps else self._num_idle + 1
        if self._num_idle > MAX_IDLE_EPISODES:
            raise ProtocolError(
                f"{self.name}: {MAX_IDLE_EPISODES} episodes in a row ended without asking any "
                "agent, so there is nothing to train"
            )


def make_channel(transport: Transport, target: Callable[[], None], name: str) -> Channel:
    """A channel that runs `target` from the first `resume`."""
    require_choice("transport", transport, get_args(Transport))
    if transport == "greenlet":
        from entity_env.agents.channels.greenlet_channel import GreenletChannel

        return GreenletChannel(target, name)
    from entity_env.agents.channels.thread_channel import ThreadChannel

    return ThreadChannel(target, name)
