"""`AgentRun`: score, steps and episodes of an agent in `Game.run`; `Turn`, for watchers; the limits
of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from entity_env.authoring.action_type import ActionKey, ActionType, action_type
from entity_env.authoring.game_traceback import is_a, is_failure, line_of_error, summary_of
from entity_env.authoring.obs import (
    Obs,
    actions_at_truncation,
    class_of_globals,
    obs_problem,
)
from entity_env.authoring.relations.relations import Relations, class_of
from entity_env.authoring.schema import Schema, require_actions
from entity_env.authoring.step_timeout import (
    AgentHangs,
    GameHangs,
    StepTimeout,
    Timer,
    require_timeout,
)
from entity_env.authoring.to_observation import to_observation
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName
from entity_env.core.validation import checked_count, metric_problem
from entity_env.errors import (
    CheckpointError,
    GameExit,
    MissingExtraError,
    ProtocolError,
    SchemaError,
    UsageError,
)
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

AFTER_NONE: Final = (
    "act had returned None before, as it does when the program closes the game: play must return"
)
"""Note added to an error of a game that ignored the None."""
CANNOT_PLAY: Final = (UsageError, CheckpointError, MissingExtraError)
"""Errors of agents that cannot play the game at all."""
HANGS: Final = "hangs"
"""Start of the reason of an agent that takes too long."""
_MAX_IGNORED: Final = 100


class PastStep(NamedTuple):
    """Effect of earlier observations on a decision: the difference if a network forgets them.

    Args:
        first, last: the forgotten steps, as `Turn.step`; usually a single one.
        change: how much of the probability of the choices would move, 0 to 1: the total variation
            distance, of the actor for which it is largest.
        value: predicted value without these steps; None if the network has no value head.
    """

    first: int
    last: int
    change: float
    value: float | None = None

    @property
    def words(self) -> str:
        """`step 3`, or `steps 0 to 3`."""
        is_one = self.first == self.last
        return f"step {self.first}" if is_one else f"steps {self.first} to {self.last}"


@dataclass(frozen=True)
class Thoughts:
    """Outputs of a network for one observation, apart from the chosen action.

    Args:
        probabilities: `(num_actors, num_choices) float32` for each requested action with labels or
            actees; rows sum to 1, choices that are not allowed have 0.
        value: predicted discounted return from this observation, in units of the score; None if the
            network has no value head.
        attention: `(layers, heads, entities, entities) float32`: attention of each entity to each
            entity, in the order of the game's observation space, then the global features if the
            network reads them as an entity. Rows sum to 1, but the row and the column of an entity
            hidden from the policy are 0. None for a network without attention.
        past: earlier steps that an agent with memory remembers, in order; see
            `PolicyAgent.weigh_past`.
    """

    probabilities: Mapping[ActionName, NDArray[np.float32]]
    value: float | None = None
    attention: NDArray[np.float32] | None = None
    past: Sequence[PastStep] = ()


@dataclass(frozen=True)
class Turn:
    """One step of one agent, for watchers.

    Args:
        step: number of the agent's previous actions in this episode.
        observation: the observation before the actions.
        actions: empty for the final observation of an episode.
        episode: set only for the final observation.
        thoughts: outputs of the agent's network, if computed.
        number: index of the episode in its run.
        is_async: requested by `act_async`, so other agents may decide simultaneously.
        is_cut: the run ended the episode, not the game; see `RunLimits`.
    """

    agent_id: int
    step: int
    score: float
    observation: Observation
    actions: Mapping[ActionName, Action] = field(default_factory=dict)
    episode: Episode | None = None
    thoughts: Thoughts | None = None
    number: int = 0
    is_async: bool = False
    is_cut: bool = False


Watch: TypeAlias = Callable[[Turn], None]
"""Called with every turn. If its attribute `takes_plain` is True, it may get turns with a
`PlainObservation`."""


class EpisodesSeen:
    """A watcher that keeps the last turn of every episode."""

    def __init__(self) -> None:
        self.ends: list[Turn] = []
        self._playing: set[int] = set()

    @property
    def num_cut(self) -> int:
        """Number of episodes that the run ended, not the game."""
        return len({turn.number for turn in self.ends if turn.is_cut})

    def __call__(self, turn: Turn) -> None:
        self._playing.add(turn.agent_id)
        if turn.episode is not None:
            self._playing.remove(turn.agent_id)
            self.ends.append(turn)

    def is_left(self, episodes: int) -> bool:
        """True if fewer than `episodes` have ended, or an agent is in the middle of an episode."""
        return bool(self._playing) or len({turn.number for turn in self.ends}) < episodes


@dataclass(frozen=True)
class AgentFailure:
    """A decision of an agent that failed, and ended the episode.

    Args:
        number, seed: of the episode.
        step: number of the agent's previous actions.
        reason: class and message of the exception, or that the agent hangs; one line.
        place: the agent's innermost line, as "bot.py:12 in choose"; "" if unknown.
    """

    agent_id: int
    number: int
    seed: int
    step: int
    reason: str
    place: str


@dataclass(frozen=True)
class RunLimits:
    """Which episodes `Game.run` plays, and what ends them early.

    An episode that ends early is truncated for all agents with their score so far, and `act`
    returns None until `play` returns; then the next episode begins.

    Args:
        first_episode: index of the first episode of the run.
        max_steps: actions of an agent in an episode; if it is asked for another one, the episode
            ends. None = no limit.
        agent_timeout_s: maximum seconds per decision of an agent; None = no limit. `StepTimeout`
            lists what can be interrupted.
        on_failure: called if an agent raises, hangs or answers with an illegal action, which then
            ends only the episode; None = its error is raised.
        timer: of both timeouts, instead of those of `StepTimeout`.

    Raises:
        UsageError: an invalid number.
    """

    first_episode: int = 0
    max_steps: int | None = None
    agent_timeout_s: float | None = None
    on_failure: Callable[[AgentFailure], None] | None = None
    timer: Timer | None = None

    def __post_init__(self) -> None:
        checked_count("first_episode", self.first_episode, 0)
        if self.max_steps is not None:
            checked_count("max_steps", self.max_steps)
        require_timeout(self.agent_timeout_s, "agent_timeout_s")


class AgentRun:
    """Statistics and limits of one agent in one run of a game.

    Without a schema (outside `Game.run`), any entity and action is allowed. After the given number
    of episodes (None = no limit), `act` returns None. The timeout of the game's steps is paused
    while the agent and the watcher run.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        agent_id: int = 0,
        episodes: int | None = None,
        seeds: EpisodeSeeds | None = None,
        watch: Watch | None = None,
        timeout: StepTimeout | None = None,
        limits: RunLimits | None = None,
    ) -> None:
        limits = RunLimits() if limits is None else limits
        self.agent_id = agent_id
        self.is_running = False
        self.is_stopped = False
        self.has_refused = False
        """`act` has returned None."""
        self.is_left = False
        """The game was unwound because it kept ending episodes beyond the limit."""
        self.is_async = False
        self.is_deciding = False
        """The agent or the watcher is running, not the game."""
        self.is_over = False
        """Its episode has ended, but other agents of the match still play."""
        self.is_cut = False
        """The episode ended early, and `play` has not returned yet."""
        self.match: Sequence[AgentRun] = ()
        """Runs of all agents; empty in a game that `respawns`, where agents do not wait."""
        self.seats: Sequence[AgentRun] = (self,)
        """Runs of all agents."""
        self.on_cut: Callable[[], None] = _nothing
        """Called after an episode that the run ended, so without `Agent.game_over`."""
        self.episodes: list[Episode] = []
        self.number = limits.first_episode
        """Index of the current or next episode; earlier ones may have been skipped."""
        self.num_steps = 0
        """Actions taken in this episode."""
        self.schema = schema
        self.max_steps: float = inf if limits.max_steps is None else limits.max_steps
        self._on_failure = limits.on_failure
        self._limit = None if episodes is None else limits.first_episode + episodes
        self._seeds = EpisodeSeeds(0) if seeds is None else seeds
        self._watch = watch
        self._takes_plain = watch is None or getattr(watch, "takes_plain", False)
        self._is_plain = self._takes_plain
        self.timeout = StepTimeout(None) if timeout is None else timeout
        """Of the steps of the game and the decisions of agents."""
        self._asked: tuple[ActionType[Any], ...] = ()
        self._first_score: float | None = None
        self.last_score = self._score_before = 0.0
        self._num_ignored = 0

    @property
    def seed(self) -> int:
        """As `Agent.seed`."""
        return self._seeds[self.number]

    @property
    def is_playing(self) -> bool:
        """Whether the agent has observed anything since its last episode ended."""
        return self._first_score is not None

    @property
    def is_leaving(self) -> bool:
        """Whether `act` must not ask the agent again."""
        return self.is_stopped or self.num_steps >= self.max_steps

    def leave(self, obs: Obs, actions: Sequence[ActionKey]) -> None:
        """Lets `act` return None; ends the episode early, unless the run has stopped."""
        if self.is_stopped:
            self.stop()
        else:
            self.cut(obs, actions)

    def cut(self, obs: Obs, actions: Sequence[ActionKey]) -> None:
        """Ends the episode of all agents early, when this one is asked; `act` returns None."""
        kinds = self.kinds(actions)
        _require_sound(obs)
        self._asked = tuple(kinds)
        self._cut(obs)

    def failed(self, error: BaseException, agent: str, obs: Obs) -> bool:
        """Handles an error of the agent after it has observed; True if `act` returns None.

        `agent` is its class, for messages.
        """
        if is_a(error, AgentHangs):
            error.agent = f"agent {self.agent_id} ({agent})"
        if self._on_failure is None or not is_failure(error) or isinstance(error, CANNOT_PLAY):
            return False
        self.timeout.stop()
        reason = f"{HANGS}: {error}" if is_a(error, GameHangs) else summary_of(error)
        place = line_of_error(error)
        failure = AgentFailure(
            self.agent_id, self.number, self.seed, self.num_steps, " ".join(reason.split()), place
        )
        self._on_failure(failure)
        self.last_score = self._score_before
        self._cut(obs)
        return True

    def _cut(self, final: Obs) -> None:
        """Ends the episode of all agents; `final` is the last observation of this one."""
        self._end(final, truncated=True, is_cut=True)
        for run in self.seats:
            if run.is_playing:
                run._end(Obs(run.last_score), truncated=True, is_cut=True)
        for run in self.seats:
            run.is_cut = run.is_stopped = run.has_refused = True

    def returned(self) -> None:
        """Continues after an episode that ended early: `play` has returned."""
        self.is_cut = self.has_refused = self.is_left = False
        self._num_ignored = 0
        self.is_stopped = self._limit is not None and self.number >= self._limit

    def stop(self) -> None:
        """Makes `act` return None from now on; GameExit if the game keeps ignoring that."""
        self._require_not_over("asked")
        self._resume_game()
        self.is_stopped = self.has_refused = True
        self._ignore()

    def _ignore(self) -> None:
        self._num_ignored += 1
        if self._num_ignored > _MAX_IGNORED:
            raise GameExit

    def kinds(self, actions: Sequence[ActionKey]) -> list[ActionType[Any]]:
        """The declared actions.

        Raises:
            ProtocolError: the agent's episode is over while others play.
            SchemaError: there are none, or an undeclared action.
        """
        self._require_not_over("asked")
        self._pause_game()
        if self.schema is not None:
            return list(self.schema.questions(tuple(actions)))
        return [each for key in require_actions(actions) for each in action_type(key).elements]

    def schema_of(self, obs: Obs, kinds: Sequence[ActionType[Any]]) -> Schema:
        """The schema of the game, or one derived from the observation."""
        if self.schema is not None:
            return self.schema
        _require_sound(obs)
        relations: dict[type, None] = {}
        shown: dict[type, None] = {}
        for group in obs.groups:
            if (cls := class_of(group)) is not None:
                (relations if isinstance(group, Relations) else shown)[cls] = None
        named = list(dict.fromkeys([*kinds, *obs.actions_named]))
        actees = [kind.actee for kind in named if hasattr(kind, "actee")]
        shown |= dict.fromkeys(cls for cls in actees if cls not in relations)
        features = class_of_globals(obs.global_features)
        return Schema(shown, named, features, relations=relations)

    def observe(
        self, obs: Obs, kinds: Sequence[ActionType[Any]], schema: Schema, *, plain: bool = False
    ) -> Observation:
        """The observation, with the reward since the last one.

        A `PlainObservation` if both the agent and the watcher take one.
        """
        _require_sound(obs)
        if self._first_score is None:
            self._first_score = self.last_score = obs.score
        self._score_before = self.last_score
        reward, self.last_score = obs.score - self.last_score, obs.score
        self._asked = tuple(kinds)
        self._is_plain = plain and self._takes_plain
        return to_observation(obs, kinds, schema, reward=reward, plain=self._is_plain)

    def acted(self, observation: Observation, actions: Mapping[ActionName, Action]) -> None:
        if self._watch is not None:
            turn = Turn(
                self.agent_id,
                self.num_steps,
                self.last_score,
                observation,
                actions,
                number=self.number,
                is_async=self.is_async,
            )
            self._watch(turn)
        self.num_steps += 1
        self._resume_game()

    def game_over(self, obs: Obs | None, *, truncated: bool) -> None:
        """Ends the episode; after the last one, `act` returns None."""
        self._require_not_over("given game_over")
        if self.is_stopped and not self.is_playing:
            # A loop over episodes without requests would never end.
            self.is_left = self._num_ignored >= _MAX_IGNORED
            self._ignore()
            return
        self._pause_game()
        final = Obs(self.last_score) if obs is None else obs
        _require_sound(final)
        self._end(final, truncated=truncated)

    def _end(self, final: Obs, *, truncated: bool, is_cut: bool = False) -> None:
        if self._first_score is None:  # no action in this episode
            self._first_score = self.last_score = final.score - gain(final, None)
        offered = actions_at_truncation(final, self._asked) if truncated else ()
        observation = to_observation(
            final,
            offered,
            self.schema_of(final, offered),
            reward=final.score - self.last_score,
            terminated=not truncated,
            truncated=truncated,
            plain=self._is_plain,
        )
        episode = Episode(
            reward=final.score - self._first_score,
            length=self.num_steps,
            terminated=not truncated,
            truncated=truncated,
            seed=self.seed,
            number=self.number,
            agent_id=self.agent_id,
            metrics={} if is_cut else dict(final.metrics or {}),
        )
        if self._watch is not None:
            turn = Turn(
                self.agent_id,
                self.num_steps,
                final.score,
                observation,
                episode=episode,
                number=self.number,
                is_cut=is_cut,
            )
            self._watch(turn)
        self.episodes.append(episode)
        self.number += 1
        self.num_steps = 0
        self._first_score, self.last_score, self._asked = None, 0.0, ()
        end_episode(self, self.match)
        if is_cut:
            self.on_cut()
        if self._limit is not None and self.number >= self._limit:
            self.is_stopped = True
        self._resume_game()

    def _pause_game(self) -> None:
        self.timeout.start_agent(self.agent_id)
        self.is_deciding = True

    def _resume_game(self) -> None:
        self.is_deciding = False
        self.timeout.start()

    def _require_not_over(self, what: str) -> None:
        if self.is_over and not any(run.is_stopped and run.is_playing for run in self.match):
            raise ProtocolError(still_played(f"agent {self.agent_id} was {what}"))


def _nothing() -> None:
    pass


def gain(obs: Obs, score: float | None) -> float:
    """Change of the score since an earlier one; None = the agent has not acted in this episode."""
    if score is None:
        return 0.0 if obs.start is None else obs.score - obs.start
    return obs.score - score


class Player(Protocol):
    """An agent in a match."""

    is_over: bool

    @property
    def is_playing(self) -> bool:
        """Whether an episode is running."""


def end_episode(agent: Player, match: Sequence[Player]) -> None:
    """Sets `is_over` of an agent if others of the match still play; else clears it for all."""
    agent.is_over = any(other.is_playing for other in match)
    if not agent.is_over:
        for other in match:
            other.is_over = False


def still_played(call: str) -> str:
    """Error text for calling an agent whose episode has ended while others still play."""
    return (
        f"{call} after its game_over, while other agents still play: its next episode begins "
        "when those of all agents have ended, or at once in a Game(respawns=True)"
    )


def _require_sound(obs: Obs) -> None:
    if problem := obs_problem(obs):
        raise SchemaError(problem)
    for name, value in (obs.metrics or {}).items():
        if problem := metric_problem(name, value):
            raise SchemaError(problem)
