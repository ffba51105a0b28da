"""PolicyAgent: base class of agents that map an observation to actions; `BatchPolicy`."""

from __future__ import annotations

import copy
import gc
import sys
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, runtime_checkable

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent, Answered, one_per_seat
from entity_env.authoring.local_run import AgentRun, PastStep, Thoughts
from entity_env.authoring.obs import Obs, answers_to
from entity_env.authoring.schema import Schema
from entity_env.core.action_request import Question, chosen_values, questions
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.errors import ProtocolError, SchemaError
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from entity_env.core.vec_obs import VecActions, VecObs

TIE: Final = 1e-5
"""Greedy agents take the first choice whose probability is within this of the highest one. Equal
entities have equal probabilities only up to the order of sums, so rounding would decide."""
_NUM_KEPT: Final = 64
"""Earlier observations that an agent with memory keeps, to tell which of them matter."""
_SEATING: Final = threading.RLock()
"""Held while an agent takes a seat."""
_NOT_COPIED: Final = (type, FunctionType, ModuleType)
"""`deepcopy` returns instances of these types unchanged."""


class PolicyAgent(Agent):
    """Base class of agents that implement `decide`.

    Works in `Game.run`, which sets the schema, and in direct calls of `act` or of a game's `play`.
    One object plays one game at a time in direct calls, since it cannot tell games and seats apart:
    for several, make an object for each with `for_game`.
    """

    _takes_plain = False
    """True if `decide` accepts a `PlainObservation`, without arrays."""

    def __init__(self) -> None:
        self._run = AgentRun()
        self._schema: Schema | None = None
        self._asked: tuple[Observation | None, list[Question]] = (None, [])

    @abstractmethod
    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        """Chooses the actions that the observation requests.

        `self.questions(observation)` lists the requests, with their masks.

        Returns:
            One action for each of `observation.actions`; None stops the game.
        """

    def think(self, observation: Observation) -> Thoughts | None:
        """Intermediate results for an observation, for display; None without a network.

        The arrays are new. Has no side effects: the call does not change what `decide` returns
        later.
        """
        return None

    def weigh_past(self, observation: Observation) -> Sequence[PastStep]:
        """How much each remembered step of the running episode matters for an observation.

        Computes what the decision would be if the agent had not seen that step. Has no side
        effects, as `think`, but takes much longer. Empty without memory, and for an observation
        that requests no actions.
        """
        return ()

    def watch(self, observation: Observation) -> None:
        """Remembers an observation on which another player decided, for agents with memory.

        Call it after `think`, if at all, for every observation of a seat in order, and for the last
        one of an episode. It draws no random numbers.
        """

    @property
    def label(self) -> str:
        """Name of the agent for messages: its class."""
        return type(self).__name__

    @property
    def schema(self) -> Schema:
        """The schema of the game.

        Raises:
            ProtocolError: the agent has not joined a game or observed anything.
        """
        if self._schema is None:
            raise ProtocolError(
                f"{type(self).__name__} has no game yet: pass it to Game.run, or "
                "agent.join(AgentRun(game.schema))"
            )
        return self._schema

    @property
    def seed(self) -> int:
        return self._run.seed

    def join(self, run: AgentRun) -> None:
        self._run = run
        self._schema = run.schema
        run.on_cut = self.end_episode

    def end_episode(self) -> None:
        """Called after every episode; forgets its state. Does nothing by default."""

    def take_seat(self, run: AgentRun) -> Agent:
        with _SEATING:  # other threads may play games with the same agent
            agent = self.copy_for_seat() if self._run.is_running else self
            agent.join(run)
        return agent

    def for_game(self) -> Self:
        """A copy for one game that is played by direct calls, with its own state.

        A program that plays several games at the same time needs one per game.

        Raises:
            UsageError: an attribute cannot be copied.

        Example:
            >>> from entity_env.agents import RandomAgent
            >>> agent = RandomAgent(seed=1)
            >>> rooms = [agent.for_game() for _ in range(3)]
        """
        agent = self.copy_for_seat()
        agent.join(AgentRun())
        return agent

    def copy_for_seat(self) -> Self:
        """A deep copy that can play another seat at the same time.

        Copies share the random generators, the `AgentRun` and the schema.

        Raises:
            UsageError: an attribute cannot be copied.
        """
        try:
            return copy.deepcopy(self, {id(each): each for each in _shared_parts(self)})
        except Exception as error:  # attributes may raise anything
            raise one_per_seat(
                self, f"cannot be copied ({type(error).__name__}: {error})"
            ) from error

    def questions(self, observation: Observation) -> list[Question]:
        """The actions that an observation requests, with actors and masks."""
        if self._asked[0] is not observation:
            schema = self.schema
            asked = questions(observation, schema.obs_space(), schema.action_space())
            self._asked = observation, asked
        return self._asked[1]

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        run = self._run
        if run.is_leaving:
            run.leave(obs, actions)
            return None
        kinds = run.kinds(actions)
        self._schema = run.schema_of(obs, kinds)
        observation = run.observe(obs, kinds, self._schema, plain=self._takes_plain)
        try:
            decided = self._decided(observation, obs, actions)
            answers = None if decided is None else self._answers(obs, kinds, observation, decided)
        except BaseException as error:
            if run.failed(error, self.label, obs):
                return None
            raise
        if decided is None:
            run.stop()
            return None
        run.acted(observation, decided)
        return answers

    def act_async(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        self._run.is_async = True
        try:
            return Answered(self.act(obs, *actions))
        finally:
            self._run.is_async = False

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self._run.game_over(obs, truncated=truncated)
        self.end_episode()

    def _decided(
        self, observation: Observation, obs: Obs, actions: tuple[ActionKey, ...]
    ) -> Mapping[ActionName, Action] | None:
        """Result of `decide`; `obs` and `actions` are the game's arguments."""
        return self.decide(observation)

    def _answers(
        self,
        obs: Obs,
        kinds: list[ActionType[Any]],
        observation: Observation,
        decided: Mapping[ActionName, Action],
    ) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        """The result of `act`, after checking the choices."""
        try:
            return answers_to(kinds, obs, chosen_values(self.questions(observation), decided))
        except SchemaError as error:
            raise SchemaError(f"{type(self).__name__} gave an illegal answer: {error}") from error


def thoughts_to_show(agent: Agent, observation: Observation) -> Thoughts | None:
    """All thoughts of an agent, with the past; None without a network."""
    think = getattr(agent, "think", None)
    thoughts: Thoughts | None = None if think is None else think(observation)
    if thoughts is None or not isinstance(agent, PolicyAgent):
        return thoughts
    return replace(thoughts, past=agent.weigh_past(observation))


def past_steps(
    steps: Sequence[int], changes: Sequence[float], values: Sequence[float | None]
) -> list[PastStep]:
    """These steps; the first of the numbers are those of all steps before, if any."""
    places = [(0, steps[0] - 1), *((step, step) for step in steps)]
    found = [
        PastStep(*place, change, value)
        for place, change, value in zip(places, changes, values, strict=True)
    ]
    return found if steps[0] else found[1:]


_State = TypeVar("_State")


class EpisodeMemory(Generic[_State]):
    """State of a network in the running episode of a seat, and the latest observations."""

    def __init__(self) -> None:
        self.state: _State | None = None
        """None = nothing: the episode begins."""
        self._num_steps = 0
        self._has_begun = False
        self._recent: deque[tuple[int, Observation, _State | None]] = deque(maxlen=_NUM_KEPT + 1)
        """The last observations, each with its step and the state before it."""

    def __copy__(self) -> Self:
        copied = type(self)()
        copied.__dict__.update(self.__dict__, _recent=self._recent.copy())
        return copied

    def begin(self) -> None:
        """Begins an episode. The last observations are kept until the first of the new one."""
        self.state = None
        self._has_begun = False

    def add(self, observation: Observation, state: _State | None, *, has_actor: bool) -> None:
        """Adds an observation, and the state after it.

        Without an actor, it is only counted: nothing of it is remembered, as in training.
        """
        if not self._has_begun:
            self._recent.clear()
            self._num_steps = 0
            self._has_begun = True
        if has_actor:
            self._recent.append((self._num_steps, observation, self.state))
            self.state = state
        self._num_steps += 1

    def before(self, observation: Observation) -> _State | None:
        """The state before an observation, which is the last one or the next one."""
        _, last, state = self._recent[-1] if self._recent else (0, None, None)
        return state if last is observation else self.state

    def earlier(
        self, observation: Observation, most: int | None = None
    ) -> tuple[list[int], list[Observation], _State | None]:
        """Steps of the latest observations before this one, these, and the state before the first.

        At most `most`; None = all that are kept, 64.
        """
        found = [*self._recent]
        if found and found[-1][1] is observation:
            del found[-1]
        elif not self._has_begun:
            found = []
        found = found[-(most or _NUM_KEPT) :]
        if not found:
            return [], [], None
        return [step for step, *_ in found], [each for _, each, _ in found], found[0][2]


def _shared_parts(agent: PolicyAgent) -> list[object]:
    """The parts of an agent that its copies share.

    With copied generators, all seats would draw the same numbers. An `AgentRun` refers to the whole
    match, which would be copied with it.
    """
    shared: tuple[type, ...] = (Random, AgentRun, Schema)
    if "numpy" in sys.modules:
        shared += (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
    if (torch := sys.modules.get("torch")) is not None:
        shared += (torch.Generator,)
    found: list[object] = []
    seen: dict[int, object] = {}
    left: list[object] = [agent]
    while left:
        part = left.pop()
        if id(part) in seen or isinstance(part, _NOT_COPIED):
            continue
        seen[id(part)] = part
        if isinstance(part, shared):
            found.append(part)
        else:
            left += gc.get_referents(part)  # also in slots, containers and bound methods
    return found


@runtime_checkable
class BatchPolicy(Protocol):
    """An agent that can choose actions for a batch of observations."""

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        """Chooses actions for all actors in the batch, as `VecActions`.

        Raises:
            CheckpointError: the agent was trained for another schema.
        """
