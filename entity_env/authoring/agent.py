"""Agent: who decides. A game calls `act` and `game_over`, and knows nothing else of its agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar, overload

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.local_run import AgentRun
from entity_env.authoring.obs import Obs
from entity_env.errors import ProtocolError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """The answer to `act_async`, which may not have been given yet."""

    def get(self) -> T_co | None:
        """Waits for the answer; None = whoever drives the agent has hung up: leave the game.

        May be called again; the answer stays the same.
        """


class Answered(Generic[A]):
    """A `Pending` whose answer is known.

    Args:
        answer: what `get` returns.
    """

    def __init__(self, answer: A | None) -> None:
        self._answer = answer

    def get(self) -> A | None:
        return self._answer


class Agent(ABC):
    """Decides what to do, when a game asks.

    Write an agent of your own as a `PolicyAgent`, which needs one method.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def seed(self) -> int:
        """Seed of the episode that is being played, and after `game_over` of the next one.

        A game that plays several episodes in one call of `play` seeds each of them with it.
        """

    @overload
    def act(self, obs: Obs, action: type[A] | ActionType[A], /) -> A | None: ...

    @overload
    def act(
        self, obs: Obs, a: type[A] | ActionType[A], b: type[B] | ActionType[B], /
    ) -> tuple[A, B] | None: ...

    @overload
    def act(
        self,
        obs: Obs,
        a: type[A] | ActionType[A],
        b: type[B] | ActionType[B],
        c: type[C] | ActionType[C],
        /,
    ) -> tuple[A, B, C] | None: ...

    @abstractmethod
    def act(self, obs: Obs, /, *actions: Any) -> Any:
        """Shows an observation, asks for one or more actions, and waits for the answer.

        Args:
            obs: what the agent sees. The first `act` after `game_over` begins a new episode.
            actions: an Enum for one choice (the answer is a member), `Categorical(Move)` or
                `SelectEntity(Food)` for one answer an actor (a list). The answer of an actor that
                has nothing to select is None.

        Returns:
            The answer, a tuple of them when there is more than one question, or None: whoever
            drives the agent has hung up, and the game should return.

        Raises:
            SchemaError: something that the game did not declare, or a mask that fits nothing.
            ProtocolError: the agent was asked before and has not answered yet.
        """

    @overload
    def act_async(self, obs: Obs, action: type[A] | ActionType[A], /) -> Pending[A]: ...

    @overload
    def act_async(
        self, obs: Obs, a: type[A] | ActionType[A], b: type[B] | ActionType[B], /
    ) -> Pending[tuple[A, B]]: ...

    @overload
    def act_async(
        self,
        obs: Obs,
        a: type[A] | ActionType[A],
        b: type[B] | ActionType[B],
        c: type[C] | ActionType[C],
        /,
    ) -> Pending[tuple[A, B, C]]: ...

    @abstractmethod
    def act_async(self, obs: Obs, /, *actions: Any) -> Any:
        """Like `act`, but returns at once; `.get()` waits.

        In a game where several agents move at the same time, ask all of them before the first
        `.get()`, so that they decide together. The observation is copied.
        """

    @abstractmethod
    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        """Ends the episode of this agent.

        Args:
            obs: the last observation, with the final score; the score stays when left out.
            truncated: the episode was cut (a time limit) rather than ended by the rules: its
                state still has a value, so show it.
        """

    def close(self) -> None:
        """Releases what the agent holds (a terminal, a network); may be called twice."""

    def join(self, run: AgentRun) -> None:
        """Begins to play a game under the ledger `run`; called by `Game.run`.

        Raises:
            ProtocolError: this agent is driven from elsewhere.
        """
        raise ProtocolError(
            f"{type(self).__name__} is driven by its environment and cannot be handed to Game.run"
        )
