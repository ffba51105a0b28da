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
        """Waits for the answer; may be called again. None = the game ends: return from `play`."""

    def __await__(self) -> Generator[None, None, T_co | None]:
        """`get` for `await`, in a game that runs an asyncio event loop.

        Other tasks run first, so their requests join the same batch. Then the event loop blocks
        until the answer arrives.
        """
        yield
        return self.get()


class Answered(Pending[A]):
    """A `Pending` whose answer is known."""

    def __init__(self, answer: A | None) -> None:
        self._answer = answer

    def get(self) -> A | None:
        return self._answer


class Agent(ABC):
    """Base class of agents.

    To write an agent, subclass `ScriptedAgent`, whose method gets the game's objects, or
    `PolicyAgent`, whose method gets arrays.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def seed(self) -> int:
        """Seed of the current episode; after `game_over`, of the next one.

        Games that play several episodes per call of `play` read it. A multi-agent game starts the
        next episode after the `game_over` of all participating agents.
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
            obs: the observation. The first `act` after `game_over` starts a new episode; in a
                multi-agent game only after all agents' episodes have ended, unless the game
                `respawns`.
            actions: an Enum for one choice (the answer is a member), or a frozen dataclass of Enums
                (the answer is an instance); `Categorical(Move)` for a list with one member per
                actor; `SelectEntity(Food)` for a list with one entity per actor (None if the actor
                has nothing to select); `Continuous` for `(num_actors, num_labels)` float32.

        Returns:
            The answer, or a tuple for several actions. None: all episodes have been played, or the
            game is being closed, so `play` must return.

        Raises:
            SchemaError: no action or an undeclared one, or an invalid observation, such as one with
                an undeclared entity or a mask of the wrong shape.
            ProtocolError: the last `act_async` has no answer yet; or this agent's episode has ended
                while others continue.
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
        """Like `act`, but returns at once; `.get()` or `await` gets the answer. Copies `obs`.

        To batch agents that move simultaneously, call it for all of them before the first `.get()`.
        """

    @abstractmethod
    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        """Ends this agent's episode.

        Args:
            obs: the final observation and score; None keeps the last score.
            truncated: the episode stops early (a time limit). The state still has a value, so pass
                the observation, with the actors and masks that `act` would get.
        """

    def close(self) -> None:
        """Closes the agent's resources; may be called twice."""

    def join(self, run: AgentRun) -> None:
        """Sets the run in which the agent takes part; called by `take_seat`.

        Raises:
            ProtocolError: this agent belongs to an environment.
        """
        raise ProtocolError(
            f"{type(self).__name__} is driven by its environment and cannot be passed to Game.run"
        )

    def for_game(self) -> Agent:
        """An agent for one game that is played by direct calls of `act`, with its own state.

        A program that plays several games at the same time needs one per game.

        Raises:
            ProtocolError: as `join`.
            UsageError: the agent must be copied but cannot be.
        """
        self.join(AgentRun())
        return self

    def take_seat(self, run: AgentRun) -> Agent:
        """Joins a run and returns the agent that plays in it; called by `Game.run`.

        Returns:
            This object, or a copy with its own state if this one already plays in another seat.

        Raises:
            ProtocolError: as `join`.
            UsageError: the agent must be copied but cannot be.
        """
        self.join(run)
        return self


def one_per_seat(agent: Agent, why: str) -> UsageError:
    """Error for an agent that fills several seats but cannot have a state per seat."""
    return UsageError(
        f"one {type(agent).__name__} fills several seats at the same time, but {why}: make or load "
        "one agent per seat"
    )
