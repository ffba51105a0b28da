"""TrainAgent: suspends its game at every `act` until the driver of the game gives the action."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent, Pending
from entity_env.authoring.local_run import still_played
from entity_env.authoring.obs import Obs, obs_problem
from entity_env.errors import ProtocolError, SchemaError

if TYPE_CHECKING:
    from entity_env.agents.channels.game_runner import GameRunner


class TrainAgent(Agent):
    """Agent of a game that is stepped from outside; made by the `GameRunner` of that game.

    Args:
        host: the runner.
        agent_id: index among the agents of the game.
    """

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
        """The observation that waits for an action; None = there is none."""
        self.kinds: tuple[ActionType[Any], ...] = ()
        """The actions that the game asks for."""
        self.answer: Any = None
        self.last_score = 0.0
        self.is_playing = False
        """It has observed something in the current episode."""
        self.is_over = False
        """Its episode has ended, and those of other agents have not."""
        self.first_score = 0.0
        self.num_steps = 0
        """Actions given in this episode."""
        self.num_episodes = 0
        """Episodes that have ended."""
        self._host = host
        self._suspend: Callable[[], None] = _not_started
        self._last_asked: tuple[ActionKey, ...] | None = None
        """Arguments of the `act` that `kinds` belongs to."""
        self._pending: _PendingAnswer | None = None

    @property
    def is_in_episode(self) -> bool:
        """It plays, or waits for its first action."""
        return self.is_playing or self.obs is not None

    @property
    def seed(self) -> int:
        return self._host.seed_of(self.num_episodes)

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if self.obs is not None or self.is_over:
            self._refuse("asked")
        if actions != self._last_asked:  # most games ask the same again and again
            self._last_asked = None
            self.kinds = self._host.game.schema.questions(actions)
            self._last_asked = actions
        if obs is None:  # the driver finds what else is no observation
            raise SchemaError(obs_problem(obs))
        self.obs = obs
        try:
            self._suspend()
        except BaseException:
            self.obs = None  # unwound, or called from another thread: there will be no action
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

    def give(self, answer: object) -> None:
        """Sets the action that the agent waits for; the game proceeds at the next `resume`."""
        self.answer = answer
        self.obs = None
        self.num_steps += 1
        if self._pending is not None:
            self._pending.set(answer)
            self._pending = None

    def connect(self, suspend: Callable[[], None], episode: int) -> None:
        """Resets the agent for the episode of this index; it waits by `suspend` from now on."""
        self._suspend = suspend
        self.obs = None
        self._pending = None
        self.is_playing = False
        self.is_over = False
        self.num_steps = 0
        self.num_episodes = episode

    def wait(self) -> None:
        """Suspends the game until this agent has its action."""
        self._suspend()

    def _refuse(self, what: str) -> NoReturn:
        """Raises the error of a call in the wrong order."""
        if self._host.is_leaving:
            self._suspend()  # raises GameExit again; after many times it never returns
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
    """Result of `act_async`."""

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
