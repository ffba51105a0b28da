"""TrainAgent: hands what it is shown to whoever drives the game, and waits for the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent
from entity_env.authoring.obs import Obs
from entity_env.errors import ProtocolError

if TYPE_CHECKING:
    from entity_env.agents.channels.game_runner import GameHost


class TrainAgent(Agent):
    """The game's side of a pair; `GameHost` is the other one, and makes it.

    Args:
        host: who drives the game.
        agent_id: which of the game's agents.
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

    def __init__(self, host: GameHost, agent_id: int) -> None:
        self.agent_id = agent_id
        self.obs: Obs | None = None
        """What it has shown and not been answered yet; None = it waits for nothing."""
        self.kinds: tuple[ActionType[Any], ...] = ()
        """What it asked for with that."""
        self.answer: Any = None
        self.last_score = 0.0
        self.is_playing = False
        """It has observed something since its last episode ended."""
        self.is_over = False
        """Its episode has ended, and the next one has not begun: its host waits for the others."""
        self.first_score = 0.0
        self.num_steps = 0
        """Actions answered in this episode."""
        self.num_episodes = 0
        """Episodes that have ended."""
        self._host = host
        self._suspend: Callable[[], None] = _not_started
        self._last_asked: tuple[ActionKey, ...] | None = None
        """What `kinds` are the questions of."""
        self._pending: _PendingAnswer | None = None

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
        self.obs = obs
        try:
            self._suspend()
        except BaseException:
            self.obs = None  # unwound, or asked from another thread: nobody will answer this
            raise
        return self.answer

    def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if self.obs is not None or self.is_over:
            self._refuse("asked")
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
            self._refuse("told game_over")
        self._host.game_over(self, Obs(self.last_score) if obs is None else obs, truncated)

    def give(self, answer: object) -> None:
        """Answers what the agent waits for; it goes on when the game is resumed."""
        self.answer = answer
        self.obs = None
        self.num_steps += 1
        if self._pending is not None:
            self._pending.set(answer)
            self._pending = None

    def connect(self, suspend: Callable[[], None], episode: int) -> None:
        """Forgets whatever was shown; waits by `suspend` from now on, before this episode."""
        self._suspend = suspend
        self.obs = None
        self._pending = None
        self.is_playing = False
        self.is_over = False
        self.num_steps = 0
        self.num_episodes = episode

    def wait(self) -> None:
        """Lets the driver act until this agent has been answered."""
        self._suspend()

    def _refuse(self, what: str) -> NoReturn:
        """Raises why the agent cannot be asked, or told of an end, now."""
        if self._host.is_leaving:
            self._suspend()  # raises GameExit once more; after many times it never returns
        who = f"{self._host.name}: agent {self.agent_id} was {what}"
        if self.is_over:
            raise ProtocolError(
                f"{who} after its game_over, while other agents still play: only with autoreset "
                '"same_step" can it begin its next episode before they end theirs'
            )
        raise ProtocolError(f"{who} before its last act_async was answered: call .get() first")


class _PendingAnswer:
    """The answer to one `act_async`."""

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


def names_of(agents: Sequence[TrainAgent]) -> str:
    """The agents' numbers, for messages."""
    return ", ".join(str(agent.agent_id) for agent in agents) or "none"
