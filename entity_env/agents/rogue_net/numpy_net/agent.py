"""NumpyAgent: computes its network without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.config import state_width
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.neural_agent import Choosing, TrainedAgent
from entity_env.agents.rogue_net.numpy_net.distributions import (
    FORBIDDEN,
    CategoricalArrays,
    Distribution,
    GaussianArrays,
    bounds,
    choose_label,
)
from entity_env.agents.rogue_net.numpy_net.functions import softmax
from entity_env.agents.rogue_net.numpy_net.fused import FusedNet
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.weights import Weights
from entity_env.authoring.local_run import Thoughts
from entity_env.core.action_request import MASK_OF_SPACE
from entity_env.core.observation import ActionMask, Observation, SelectEntityActionMask
from entity_env.core.ragged import Floats
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import as_mask
from entity_env.core.vec_obs import VecActions
from entity_env.errors import CheckpointError, SchemaError

_NOTHING: Final = np.zeros(0, dtype=np.float32)


class _RequestedAction(NamedTuple):
    """A requested action; every actor has an allowed choice."""

    name: ActionName
    actors: NDArray[np.int64]
    """`(num_actors,)` indices of entities."""
    actees: NDArray[np.int64] | None
    """`(num_actees,)` indices of entities; None unless the action selects entities."""
    allowed: NDArray[np.bool_] | None
    """`(num_actors, num_choices)` bool; None = all choices."""


class _SingleObservation(NamedTuple):
    """One observation.

    Args:
        own: `(num_entities, num_features)` per type in the observation.
        shared: `(num_global_features,)`.
        visible: `(num_entities,)` bool, including the entity of global actions; None = all are
            visible.
    """

    own: dict[EntityName, Floats]
    shared: Floats
    visible: NDArray[np.bool_] | None
    asked: list[_RequestedAction]


class SingleObservationReader:
    """Reads single observations of these spaces as arrays, without a batch.

    Reads only the common form: numeric arrays of the right shape, and masks that fit. Otherwise
    `read` returns None, and the caller makes a batch, which converts, checks and raises.
    """

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> None:
        self._obs_space = obs_space
        self._actions = action_space
        self._widths = [(name, len(each.features)) for name, each in obs_space.entities.items()]
        self._num_shared = len(obs_space.global_features)
        self._num_global = int(
            any(isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values())
        )

    def read(self, observation: Observation) -> _SingleObservation | None:
        own = self._features(observation)
        if own is None or len(observation.global_features) != self._num_shared:
            return None
        try:
            shared = _NOTHING
            if self._num_shared:
                shared = _as_float(np.asarray(observation.global_features))
            visible = self._visible(observation, own) if observation.visible else None
            asked = [
                self._asked(name, mask, observation) for name, mask in observation.actions.items()
            ]
        except (SchemaError, LookupError, TypeError, ValueError):
            return None
        known = [each for each in asked if each is not None]
        if shared.ndim != 1 or len(known) < len(asked):
            return None
        return _SingleObservation(own, shared, visible, known)

    def _features(self, observation: Observation) -> dict[EntityName, Floats] | None:
        given = observation.features
        own: dict[EntityName, Floats] = {}
        for name, width in self._widths:
            rows = given.get(name)
            if rows is None:
                continue
            if type(rows) is not np.ndarray or rows.ndim != 2 or rows.shape[1] != width:
                return None
            if rows.dtype.kind not in "fiub":
                return None
            own[name] = _as_float(rows)
        return own if len(own) == len(given) else None

    def _visible(
        self, observation: Observation, own: Mapping[EntityName, Floats]
    ) -> NDArray[np.bool_]:
        hidden = observation.visible
        if not hidden.keys() <= self._obs_space.entities.keys():
            raise LookupError
        flags = [
            as_mask(np.asarray(hidden[name])[None], (1, len(rows)), name)[0]
            if name in hidden
            else np.ones(len(rows), dtype=np.bool_)
            for name, rows in own.items()
        ]
        return np.concatenate([*flags, np.ones(self._num_global, dtype=np.bool_)])

    def _asked(
        self, name: ActionName, mask: ActionMask, observation: Observation
    ) -> _RequestedAction | None:
        space = self._actions[name]
        if type(mask) is not MASK_OF_SPACE[type(space)]:
            return None
        actors = observation.actor_indices(name, self._obs_space)
        actees = None
        if isinstance(mask, SelectEntityActionMask):
            actees = observation.actee_indices(name, self._obs_space)
        num_choices = _num_choices(space, actees)
        given = getattr(mask, "mask", None)
        if given is None:
            can_choose = num_choices or not len(actors)
            return _RequestedAction(name, actors, actees, None) if can_choose else None
        allowed = as_mask(given, (len(actors), num_choices), name)
        return (
            _RequestedAction(name, actors, actees, allowed) if allowed.any(axis=1).all() else None
        )


def _as_float(array: NDArray[Any]) -> Floats:
    """As float32; numbers that do not fit become infinite, which the network detects."""
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # a microsecond, so only if needed
        return array.astype(np.float32)


def _num_choices(space: ActionSpace, actees: NDArray[np.int64] | None) -> int:
    if isinstance(space, ContinuousActionSpace):
        return len(space)
    if isinstance(space, SelectEntityActionSpace):
        return 0 if actees is None else len(actees)
    return len(space)


Choice: TypeAlias = tuple[dict[ActionName, Samples], dict[ActionName, Floats]]
"""Samples and probabilities, see `TrainedAgent.choose`."""


class NumpyAgent(TrainedAgent):
    """Plays a trained network in numpy, in a fraction of torch's time per observation.

    A seed gives the same samples on every machine, but not those of `NeuralAgent`.

    Args:
        weights: tensors must fit their description, see `Weights.require_fit`.
        greedy, temperature: see `Choosing`.
        adapt: see `TrainedAgent`.

    Raises:
        UsageError: a temperature below 1e-6, or not finite.
        CheckpointError: the spaces and options of the network do not fit together. Also raised on
            the first decision, see `TrainedAgent`.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> None:
        obs_space, action_space = weights.obs_space, weights.action_space
        width = state_width(weights.config)
        choosing = Choosing(greedy, temperature)
        super().__init__((obs_space, action_space), choosing, width, adapt=adapt)
        try:
            self._net = NumpyNet(weights)
            is_fused = not width and FusedNet.fits(weights.operations())
            self._fused = FusedNet(weights) if is_fused else None
        except SchemaError as error:
            raise CheckpointError(str(error)) from error
        self.weights = weights
        self._rng = np.random.default_rng(seed)
        self._reader = SingleObservationReader(obs_space, action_space)

    @classmethod
    def of(
        cls,
        weights: Weights,
        *,
        greedy: bool = False,
        temperature: float = 1.0,
        seed: int | None = None,
        adapt: bool = False,
    ) -> Self:
        return cls(weights, greedy=greedy, temperature=temperature, seed=seed, adapt=adapt)

    def choose(self, observation: Observation) -> Choice:
        fused = self._fused
        one = None if fused is None else self._reader.read(observation)
        x = None if fused is None or one is None else _encode(fused, one)
        if fused is None or one is None or x is None:
            return self._choose_from_batch(observation)
        chosen: dict[ActionName, Samples] = {}
        probs: dict[ActionName, Floats] = {}
        stop = 0
        for asked in one.asked:
            start, middle = stop, stop + len(asked.actors)
            stop = middle + (0 if asked.actees is None else len(asked.actees))
            actors, actees = x[start:middle], x[middle:stop]
            space = self.weights.action_space[asked.name]
            if isinstance(space, ContinuousActionSpace):
                chosen[asked.name] = self._numbers(fused, asked, space, actors)
            else:
                probs[asked.name] = self._probs(fused, asked, actors, actees)
                chosen[asked.name] = choose_label(
                    probs[asked.name], self.choosing.greedy, self._rng
                )
        return chosen, probs

    def thoughts(self, obs: Batch) -> Thoughts:
        distributions, values, attention = self._net.attended(obs, self._past())
        value = float(values[0]) if self.weights.has_value else None
        return Thoughts(_probs_of(self._tempered(distributions)), value, attention)

    def choose_rows(self, obs: Batch, past: Past | None) -> tuple[VecActions, Floats | None]:
        distributions, states = self._distributions(obs, past)
        return self._sample(distributions), states

    def _probs(
        self, fused: FusedNet, asked: _RequestedAction, actors: Floats, actees: Floats
    ) -> Floats:
        if asked.actees is None:
            logits = fused.score_labels(asked.name, actors)
        else:
            logits = fused.score_actees(asked.name, actors, actees)
        if self.choosing.temperature != 1.0:
            logits /= np.float32(self.choosing.temperature)
        if asked.allowed is not None:
            logits = np.where(asked.allowed, logits, FORBIDDEN)
        return softmax(logits) if logits.size else logits

    def _numbers(
        self,
        fused: FusedNet,
        asked: _RequestedAction,
        space: ContinuousActionSpace,
        actors: Floats,
    ) -> Floats:
        mean = fused.score_labels(asked.name, actors)
        log_std = self.weights.tensors[f"action_heads.{asked.name}.log_std"]
        numbers = GaussianArrays(asked.actors, mean, log_std, *bounds(space))
        return numbers.at_temperature(self.choosing.temperature).choose(
            self.choosing.greedy, self._rng
        )

    def _choose_from_batch(self, observation: Observation) -> Choice:
        """`choose` with a batch of one observation, which converts and checks everything."""
        batch = self._batch_of_one(observation)
        distributions, self._after = self._distributions(batch, self._past())
        return self._sample(distributions), _probs_of(distributions)

    def _distributions(
        self, obs: Batch, past: Past | None
    ) -> tuple[dict[ActionName, Distribution], Floats | None]:
        if past is None:
            return self._tempered(self._net.distributions(obs)[0]), None
        distributions, _, states = self._net.recall(obs, past)
        return self._tempered(distributions), states

    def _tempered(
        self, distributions: dict[ActionName, Distribution]
    ) -> dict[ActionName, Distribution]:
        temperature = self.choosing.temperature
        if temperature == 1.0:
            return distributions
        return {name: each.at_temperature(temperature) for name, each in distributions.items()}

    def _sample(
        self, distributions: Mapping[ActionName, Distribution]
    ) -> dict[ActionName, Samples]:
        greedy = self.choosing.greedy
        return {name: each.choose(greedy, self._rng) for name, each in distributions.items()}


def _probs_of(distributions: Mapping[ActionName, Distribution]) -> dict[ActionName, Floats]:
    return {
        name: each.probs
        for name, each in distributions.items()
        if isinstance(each, CategoricalArrays)
    }


def _encode(fused: FusedNet, one: _SingleObservation) -> Floats | None:
    """States of actors and actees, action by action; None if there are none, or `encode` fails."""
    asked = [each for action in one.asked for each in (action.actors, action.actees)]
    present = [each for each in asked if each is not None and len(each)]
    if not present:
        return None
    wanted = present[0] if len(present) == 1 else np.concatenate(present)
    return fused.encode(one.own, one.shared, one.visible, wanted)


RogueNetAgent: TypeAlias = NumpyAgent
"""`NumpyAgent` by its name in entity-gym-rs; `RogueNetAgent.load(path)` also reads checkpoints of
enn-trainer.
"""
