"""TrainedAgent: plays as a network decides, whatever computes the network."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.agents.rogue_net.adapt import FeatureAdaptor, unadaptable
from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.authoring.local_run import AgentRun
from entity_env.authoring.schema import Schema
from entity_env.core.observation import (
    Action,
    CategoricalAction,
    GlobalCategoricalAction,
    Observation,
    SelectEntityAction,
)
from entity_env.core.space_json import Spaces, differences
from entity_env.core.spaces import ActionName, ObsSpace
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import CheckpointError, UsageError

Samples: TypeAlias = NDArray[np.int64] | NDArray[np.float32]
"""One value an actor: `(num_actors,)` int64 or `(num_actors, num_labels)` float32."""


@dataclass(frozen=True)
class Choosing:
    """How an agent chooses among what its network finds probable.

    Args:
        greedy: take what is most probable, of real numbers the mean; otherwise draw, as in
            training.
        temperature: draw from the network's probabilities to the power of `1 / temperature`: above
            1 more evenly, below 1 more often what is probable; of real numbers the deviation is
            times its root. 1 = as in training. The probabilities that are told follow it.

    Raises:
        UsageError: a temperature that is not above 0, or not finite.
    """

    greedy: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise UsageError(
                f"temperature must be a finite number above 0, got {self.temperature!r}: for what "
                "is most probable choose greedy"
            )


class TrainedAgent(PolicyAgent):
    """Plays as a network decides; its choices tell the probabilities of all others.

    Args:
        spaces: what the network was made for.
        choosing: how it chooses.
        adapt: plays also in a game that has more features and entities than the network was trained
            for, or the same in another order; it does not see the new ones. See `FeatureAdaptor`.

    Raises:
        CheckpointError: on the first decision, when the game declared another schema than the
            network was trained for, or, with `adapt`, lacks some of it; the message names every
            difference. A game whose `play` is called directly declares none: then only what it
            shows is checked.
    """

    def __init__(self, spaces: Spaces, choosing: Choosing, *, adapt: bool = False) -> None:
        super().__init__()
        self.choosing = choosing
        self.adapt = adapt
        self._spaces = spaces
        self._is_declared = False
        self._checked: Schema | None = None
        """The schema of the game that was found to fit."""
        self._adaptor: FeatureAdaptor | None = None
        """Between that game and the network; None when they agree."""

    @classmethod
    @abstractmethod
    def load(
        cls,
        path: str | Path,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> TrainedAgent:
        """Reads the network from a checkpoint, or from the folder of a training run.

        Raises:
            CheckpointError: there is none, or it cannot be read.
        """

    @abstractmethod
    def choose(
        self, observation: Observation
    ) -> tuple[Mapping[ActionName, Samples], Mapping[ActionName, NDArray[np.float32]]]:
        """Legal actions of one observation, and the probabilities of all labels and entities.

        Returns:
            Per action one value an actor, as in `VecActions`; per action with labels or actees
            `(num_actors, num_choices)`.

        Raises:
            SchemaError: an observation that does not fit the spaces of the network.
        """

    @abstractmethod
    def choose_batch(self, obs: Batch) -> VecActions:
        """Legal actions of a batch that fits the spaces of the network."""

    @property
    def greedy(self) -> bool:
        """Whether it takes what is most probable instead of drawing."""
        return self.choosing.greedy

    def join(self, run: AgentRun) -> None:
        super().join(run)
        self._is_declared = True

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        if self.schema is not self._checked:
            self._fit_to(self.schema, self._is_declared)
        questions = self.questions(observation)
        adaptor = self._adaptor
        seen = observation if adaptor is None else adaptor.observation(observation)
        chosen, probs = self.choose(seen)
        return {
            question.name: _with_probs(
                question.action(chosen[question.name]), probs.get(question.name)
            )
            for question in questions
        }

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        """See `BatchPolicy`."""
        if schema is not self._checked:
            self._fit_to(schema, is_declared=True)
        return self.choose_batch(obs if self._adaptor is None else self._adaptor.batch(obs))

    def _fit_to(self, schema: Schema, is_declared: bool) -> None:
        """Checks that the network can play a game, and makes the adaptor if it takes one."""
        game = schema.obs_space(), schema.action_space()
        if not is_declared:
            if not self.adapt:
                return
            game = _joined(self._spaces, game)
        found = differences(self._spaces, game)
        if found and not self.adapt:
            raise CheckpointError(self._refusal(found, game))
        self._adaptor = FeatureAdaptor(self._spaces, game) if found else None
        self._checked = schema

    def _refusal(self, found: Sequence[str], game: Spaces) -> str:
        mend = "Play it with the game that it was trained on, or train it anew"
        if not unadaptable(self._spaces, game):
            mend += "; load_agent(..., adapt=True) leaves out what it does not know (--adapt)"
        return f"the checkpoint was trained for another game: {'; '.join(found)}. {mend}"


def _joined(expected: Spaces, shown: Spaces) -> Spaces:
    """What a game may show that declares nothing: of what is not shown now, what is expected."""
    (obs_space, actions), (shown_obs, shown_actions) = expected, shown
    entities = {**obs_space.entities, **shown_obs.entities}
    return ObsSpace(shown_obs.global_features, entities), {**actions, **shown_actions}


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
