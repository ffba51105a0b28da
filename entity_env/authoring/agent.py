"""`Agent`: the interface that a game calls, `act` and `game_over`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Protocol, TypeVar, overload

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.local_run import AgentRun
from entity_env.authoring.obs import Obs
from entity_env.errors import ProtocolError, UsageError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """Result of `act_async`."""

    def get(self) -> T_co | None:
        """Waits for the answer; None = the game is being closed: return from `play`.

        May be called again; the answer stays the same.
        """

    def __await__(self) -> Generator[None, None, T_co | None]:
        """The same for `await`, in a game that runs an event loop of asyncio.

        Other tasks run first, so that those that ask other agents are batched with this one. The
        loop stands still until the answer is there.
        """
        yield
        return self.get()


class Answered(Pending[A]):
    """A `Pending` whose answer is known.

    Args:
        answer: what `get` returns.
    """

    def __init__(self, answer: A | None) -> None:
        self._answer = answer

    def get(self) -> A | None:
        return self._answer


class Agent(ABC):
    """Base class of agents.

    Subclass one that needs one method: `ScriptedAgent` sees the game's objects, `PolicyAgent`
    arrays.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def seed(self) -> int:
        """Seed of the current episode; after `game_over`, of the next one.

        For games that play several episodes in one call of `play`. Those of several agents begin
        the next one when all that took part have had their `game_over`.
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
        """Requests one or more actions for an observation, and waits for them.

        Args:
            obs: the observation. The first `act` after `game_over` begins a new episode; in a game
                of several agents not before the others have ended theirs, unless it `respawns`.
            actions: an Enum for one choice (the answer is a member), `Categorical(Move)` or
                `SelectEntity(Food)` for a list with one answer per actor, None for an actor with
                nothing to select.

        Returns:
            The answer, or a tuple for several actions. None means stop: the game is being closed,
            and `play` must return.

        Raises:
            SchemaError: something that the game did not declare, or a mask that does not fit.
            ProtocolError: the last `act_async` has no answer yet; the episode of this agent has
                ended, and those of others have not.
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
        """Like `act`, but returns at once; `.get()` or `await` waits. The observation is copied.

        When several agents move at the same time, call it for all of them before the first
        `.get()`, so that they are batched.
        """

    @abstractmethod
    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        """Ends the episode of this agent.

        Args:
            obs: the final observation and score; None keeps the last score.
            truncated: the episode was cut off (a time limit): its state still has a value, so pass
                the observation, with the actors and masks that `act` would get.
        """

    def close(self) -> None:
        """Closes the agent's resources (a terminal, a network); may be called twice."""

    def join(self, run: AgentRun) -> None:
        """Sets the run that the agent takes part in; called by `Game.run`.

        Raises:
            ProtocolError: this agent belongs to an environment.
        """
        raise ProtocolError(
            f"{type(self).__name__} is driven by its environment and cannot be passed to Game.run"
        )

    def take_seat(self, run: AgentRun) -> Agent:
        """Joins a run, and returns the agent that plays in it; called by `Game.run`.

        Returns:
            This object, or a copy with its own state if this one already plays in another seat.

        Raises:
            ProtocolError: as `join`.
            UsageError: a copy is needed, and the agent cannot be copied.
        """
        self.join(run)
        return self


def one_per_seat(agent: Agent, why: str) -> UsageError:
    """The error for an agent that fills several seats and cannot have a state for each."""
    return UsageError(
        f"one {type(agent).__name__} fills several seats at the same time, but {why}: make or load "
        "one agent per seat"
    )
