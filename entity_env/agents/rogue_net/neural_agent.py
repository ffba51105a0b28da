"""TrainedAgent: base class of agents with a trained network."""

from __future__ import annotations

import copy
import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.policy_agent import EpisodeMemory, PolicyAgent, past_steps
from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.adapt import FeatureAdaptor, unadaptable
from entity_env.agents.rogue_net.batch_layout import Batch, visible_entities
from entity_env.agents.rogue_net.changes import rename_hint
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.agents.rogue_net.memory import Past, RowStates
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.transfer import fine_tuning, untransferable
from entity_env.agents.rogue_net.weights import Weights
from entity_env.authoring.local_run import AgentRun, PastStep, Thoughts
from entity_env.authoring.obs import Obs
from entity_env.authoring.schema import Schema
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.action_request import choose_in_order
from entity_env.core.observation import (
    Action,
    CategoricalAction,
    GlobalCategoricalAction,
    Observation,
    SelectEntityAction,
)
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, ObsSpace, Spaces, briefly, differences
from entity_env.core.vec_obs import VecActions, VecObs, VecSelectEntityActionMask
from entity_env.errors import CheckpointError, ProtocolError, UsageError

_MIN_TEMPERATURE: Final = 1e-6
"""Logits divided by a lower temperature would overflow in single precision."""


@dataclass(frozen=True)
class Choosing:
    """How an agent samples from the distributions of its network.

    Args:
        greedy: takes the most probable choice, or the mean of a continuous action; otherwise
            samples, as in training.
        temperature: samples from the probabilities to the power of `1 / temperature`: above 1 more
            evenly, below 1 less. Standard deviations of continuous actions are multiplied by
            `sqrt(temperature)`. 1 = as in training. Also applies to returned probabilities.

    Raises:
        UsageError: a temperature below 1e-6, or not finite.
    """

    greedy: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature >= _MIN_TEMPERATURE and math.isfinite(self.temperature)):
            raise UsageError(
                f"temperature must be a finite number of at least {_MIN_TEMPERATURE}, got "
                f"{self.temperature!r}: use greedy for the most probable action"
            )


class TrainedAgent(PolicyAgent):
    """Plays a trained network; its actions come with the probabilities of all choices.

    Args:
        choosing: greedy or sampling.
        memory_width: how many numbers the network remembers, see `state_width`. The agent keeps
            them for the running episode of its seat, and, in `decide_batch`, for that of every
            environment and agent in the batches; so one agent can play several environments in
            turn, but only one `VecEnv` at a time.
        adapt: also plays a game with more features and entity types, or in another order; see
            `FeatureAdaptor`.

    Raises:
        CheckpointError: on the first decision, if the game declared other spaces, or, with `adapt`,
            spaces that cannot be adapted; see `load_agent`. Direct calls of a game's `play` declare
            no spaces, so only observations are checked.
    """

    def __init__(
        self, spaces: Spaces, choosing: Choosing, memory_width: int = 0, *, adapt: bool = False
    ) -> None:
        super().__init__()
        self.choosing = choosing
        self._width = memory_width
        self._after: Floats | None = None
        """State after the last `choose`."""
        self.forget()
        self.adapt = adapt
        self.path = ""
        """Source of the network, for messages."""
        self._spaces = spaces
        self._is_declared = False
        self._is_seated = False
        """Whether the agent knows in which game it plays."""
        self._checked: Schema | None = None
        self._adaptor: FeatureAdaptor | None = None
        """None = the game's spaces equal the network's."""

    @classmethod
    @abstractmethod
    def of(
        cls,
        weights: Weights,
        *,
        greedy: bool | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        """An agent with this network; arguments as for `load_agent`."""

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        greedy: bool | None = None,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        """An agent with the network at a path, as for `read_network`.

        Raises:
            CheckpointError: there is no network, or it cannot be read.
            MissingExtraError: a checkpoint of enn-trainer needs msgpack.
        """
        weights = read_network(path)
        agent = cls.of(weights, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)
        agent.path = os.fspath(path)
        return agent

    @abstractmethod
    def choose(
        self, observation: Observation
    ) -> tuple[Mapping[ActionName, Samples], Mapping[ActionName, NDArray[np.float32]]]:
        """Legal actions for one observation, and the probabilities of all choices.

        With memory, it reads `_past()`, and sets `_after` to a new array.

        Returns:
            The choices: for each action one value per actor, as in `VecActions`. The probabilities:
            `(num_actors, num_choices)` for each action with labels or actees.

        Raises:
            SchemaError: an observation that does not fit the spaces of the network.
        """

    @abstractmethod
    def thoughts(self, obs: Batch, past: Past | None) -> Thoughts:
        """Thoughts on a batch of one observation, in the spaces of the network."""

    @abstractmethod
    def numpy_net(self) -> NumpyNet | None:
        """The network in numpy; None for a custom network."""

    @abstractmethod
    def states_after(self, obs: Batch, past: Past) -> Floats:
        """The states after a batch in the spaces of the network."""

    @abstractmethod
    def choose_rows(self, obs: Batch, past: Past | None) -> tuple[VecActions, Floats | None]:
        """Legal actions for a batch in the spaces of the network, and the states after it."""

    def choose_batch(self, obs: VecObs) -> VecActions:
        """Legal actions for a batch in the spaces of the network; remembers it."""
        return self._choose_and_remember(obs, obs)

    def forget(self) -> None:
        """Forgets all running episodes, as a new agent.

        Call it before playing another `VecEnv`. Within one, episodes are told apart by the flags
        of its batches.
        """
        self._after = None
        self._memory: EpisodeMemory[Floats] = EpisodeMemory()
        """Its state is `(1, memory_width)`."""
        self._rows = RowStates(self._width)

    def watch(self, observation: Observation) -> None:
        past = self._past()
        if observation.done:
            self._memory.begin()
        elif past is not None:
            self._require_known_game()
            batch = self._batch_of(self._adapted(observation))
            after, has_actor = self.states_after(batch, past), bool(batch.is_ready[0])
            self._memory.add(observation, after, has_actor=has_actor)

    def end_episode(self) -> None:
        self._memory.begin()

    def _past(self, observation: Observation | None = None) -> Past | None:
        """The state before the next observation, or before this one; None without memory."""
        if not self._width:
            return None
        memory = self._memory
        return self._past_of(memory.state if observation is None else memory.before(observation))

    def _past_of(self, state: Floats | None) -> Past:
        return Past(np.zeros((1, self._width), np.float32) if state is None else state)

    def _choose_and_remember(self, obs: VecObs, known: Batch) -> VecActions:
        """Decides on `known`, which is `obs` in the spaces of the network."""
        past = self._rows.past(obs) if self._width else None
        actions, states = self.choose_rows(known, past)
        if states is not None:
            self._rows.advance(obs, states)
        return actions

    @property
    def greedy(self) -> bool:
        return self.choosing.greedy

    def join(self, run: AgentRun) -> None:
        super().join(run)
        self._is_declared = run.schema is not None
        self._is_seated = True
        self._memory.begin()

    def copy_for_seat(self) -> Self:
        """A copy for another seat, with the same network and random generator."""
        copied = copy.copy(self)
        copied.forget()
        return copied

    def act(self, obs: Obs, /, *actions: Any) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if self._width and not self._is_seated:
            raise ProtocolError(
                "an agent with memory needs to know the game of each observation, and act does not "
                "name it: make one agent per game, player = agent.for_game(), and call player.act "
                "and player.game_over; Game.run does this itself"
            )
        return super().act(obs, *actions)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        if self.schema is not self._checked:
            self._fit_to(self.schema, self._is_declared)
        questions = self.questions(observation)
        chosen, probs = self.choose(self._adapted(observation))
        if self._width:
            has_actor = any(len(question.actors) for question in questions)
            self._memory.add(observation, self._after, has_actor=has_actor)
        actions = choose_in_order(questions, lambda question: chosen[question.name])
        return {name: _with_probs(each, probs.get(name)) for name, each in actions.items()}

    def think(self, observation: Observation) -> Thoughts:
        """See `PolicyAgent.think`; probabilities are at the temperature of `decide`.

        Before it joins a game, an agent expects observations in the spaces of its network. A final
        observation requests no actions; if it is empty, there are no thoughts. There is no value if
        the value head of a RogueNet is all zeros: untrained, or dropped by an export to enn-trainer
        (of a network with `separate_value`).

        Raises:
            CheckpointError: the game has other spaces, as for `decide`.
            ProtocolError: with `adapt`, before the agent has joined a game, whose spaces it needs.
            SchemaError: an observation that does not fit the spaces, or an actor without any
                allowed choice.
        """
        self._require_known_game()
        if observation.done and observation.is_blank:
            return Thoughts({})
        batch = self._batch_of(self._adapted(observation))
        found = self.thoughts(batch, self._past(observation))
        probabilities = {}
        for name in observation.actions:
            if name in found.probabilities:
                probs, mask = found.probabilities[name], batch.action_masks[name]
                if not len(probs) and isinstance(mask, VecSelectEntityActionMask):
                    probs = probs.reshape(0, len(mask.actees.values))
                probabilities[name] = probs
        attention = found.attention
        if attention is not None and (self._adaptor is not None or batch.visible):
            attention = self._spread(attention, batch, observation)
        return replace(found, probabilities=probabilities, attention=attention)

    def weigh_past(self, observation: Observation) -> list[PastStep]:
        """See `PolicyAgent.weigh_past`; raises as `think`."""
        self._require_known_game()
        steps, earlier, state = self._memory.earlier(observation)
        net = self.numpy_net() if earlier and observation.actions else None
        if net is None:
            return []
        given = self._past_of(state).states
        states = net.states_without_each(self._batch_of(*map(self._adapted, earlier)), given)
        batch = self._batch_of(*[self._adapted(observation)] * len(states))
        distributions, values, _ = net.recall(batch, Past(states))
        changes = np.zeros(len(states), np.float32)
        for name in observation.actions:
            each = distributions[name].at_temperature(self.choosing.temperature)
            np.maximum(changes, each.changes(len(states)), out=changes)
        shown = values.tolist() if net.weights.has_value else [None] * len(states)
        return past_steps(steps, changes[1:].tolist(), shown[1:])

    def _require_known_game(self) -> None:
        if (self.adapt or self._schema is not None) and self.schema is not self._checked:
            self._fit_to(self.schema, self._is_declared)

    def _spread(
        self, attention: NDArray[np.float32], batch: Batch, observation: Observation
    ) -> NDArray[np.float32]:
        """Attention among the game's entities; 0 for those that the policy does not see."""
        num_layers, num_heads, num_known, _ = attention.shape
        relations = self._spaces[0].relations
        flags = visible_entities(batch, [name for name in batch.features if name not in relations])
        seen = np.ones(num_known + 1, np.bool_)
        if flags is not None:
            seen[:num_known] = flags[:num_known]
        seen[-1] = False  # omitted entities
        index = np.arange(num_known)
        if self._adaptor is not None:
            index = self._adaptor.known_entities(observation)
            num_entities = np.count_nonzero(index >= 0)  # without the entity of global features
            index = np.append(index, np.arange(num_entities, num_known))
        (place,) = np.nonzero(seen[index])
        known = index[place]
        spread = np.zeros((num_layers, num_heads, len(index), len(index)), np.float32)
        spread[:, :, place[:, None], place] = attention[:, :, known[:, None], known]
        return spread

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        self.require_game(schema)
        known = obs if self._adaptor is None else self._adaptor.batch(obs)
        return self._choose_and_remember(obs, known)

    def require_game(self, schema: Schema) -> None:
        """Checks that the agent can play a game.

        Raises:
            CheckpointError: the agent was trained for another game, or, with `adapt`, the game
                lacks a feature or type that the network needs, or an action differs.
        """
        if schema is not self._checked:
            self._fit_to(schema, is_declared=True)

    def __getstate__(self) -> dict[str, object]:
        # Functions of the batcher write to arrays of the original, and cannot be pickled.
        state = {name: value for name, value in self.__dict__.items() if name != "_batcher"}
        # These change in place.
        return state | {"_rows": copy.deepcopy(self._rows), "_memory": copy.copy(self._memory)}

    @cached_property
    def _batcher(self) -> ObservationBatcher:
        return ObservationBatcher(*self._spaces, "the observation".format)

    def _batch_of(self, *observations: Observation) -> VecObs:
        """A checked batch of observations, valid until the next call."""
        self._batcher.clear()
        for each in observations:
            self._batcher.add(each)
        count = len(observations)
        flag, index = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
        return self._batcher.finish(np.zeros(count, dtype=np.float32), flag, flag, index, index)

    def _adapted(self, observation: Observation) -> Observation:
        return observation if self._adaptor is None else self._adaptor.observation(observation)

    def _fit_to(self, schema: Schema, is_declared: bool) -> None:
        game = schema.obs_space(), schema.action_space()
        if not is_declared:
            if not self.adapt:
                return
            game = _joined(self._spaces, game)
        found = differences(self._spaces, game)
        if found and not self.adapt:
            raise CheckpointError(self._refusal(found, game))
        try:
            self._adaptor = FeatureAdaptor(self._spaces, game) if found else None
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._retraining(game)}") from None
        self._checked = schema

    def _refusal(self, found: Sequence[str], game: Spaces) -> str:
        mend = f"Play it with the game that it was trained on, or {self._retraining(game)}"
        if hint := rename_hint(self._spaces, game):
            mend = f"{hint[0].upper()}{hint[1:]}. {mend}"
        if not unadaptable(self._spaces, game):
            mend += "; load_agent(..., adapt=True) leaves out the rest (--adapt)"
        (obs_space, actions), (game_obs, game_actions) = self._spaces, game
        if not (obs_space.entities.keys() & game_obs.entities or actions.keys() & game_actions):
            found = [f"it has {_parts(self._spaces)}; the game has {_parts(game)}"]
        return f"the checkpoint was trained for a different game: {briefly(found)}. {mend}"

    def _retraining(self, game: Spaces) -> str:
        if untransferable(self._spaces, game):
            return "train a new agent for this game"
        return fine_tuning(self.path or "AGENT")


def _parts(spaces: Spaces) -> str:
    names = [", ".join(map(repr, each)) or "none" for each in (spaces[0].entities, spaces[1])]
    return f"the entities {names[0]} and the actions {names[1]}"


def _joined(expected: Spaces, shown: Spaces) -> Spaces:
    """Spaces of a game that declares none: the shown ones, plus expected types and actions."""
    (obs_space, actions), (shown_obs, shown_actions) = expected, shown
    entities = {**obs_space.entities, **shown_obs.entities}
    in_order = dict(sorted(entities.items(), key=lambda item: item[1].references is not None))
    return ObsSpace(shown_obs.global_features, in_order), {**actions, **shown_actions}


def _with_probs(action: Action, probs: NDArray[np.float32] | None) -> Action:
    if probs is None:
        return action
    match action:
        case GlobalCategoricalAction(index, label):
            return GlobalCategoricalAction(index, label, probs[0])
        case CategoricalAction(actors, indices, index_to_label):
            return CategoricalAction(actors, indices, index_to_label, probs)
        case SelectEntityAction(actors, actees):
            return SelectEntityAction(actors, actees, probs)
        case _:
            return action
