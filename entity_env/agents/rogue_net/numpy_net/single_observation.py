"""Reads one observation as arrays, without making a batch of it.

Only the common form: arrays of numbers of the right shape, and masks that fit. For everything else
the result is None, and the caller makes a batch, which converts, checks, and raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.action_request import MASK_OF_SPACE
from entity_env.core.observation import ActionMask, Observation, SelectEntityActionMask
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
from entity_env.errors import SchemaError

Float: TypeAlias = NDArray[np.float32]


class RequestedAction(NamedTuple):
    """A requested action; every actor has an allowed choice."""

    name: ActionName
    actors: NDArray[np.int64]
    """`(num_actors,)` index of every actor."""
    actees: NDArray[np.int64] | None
    """`(num_actees,)` index of every entity that can be selected."""
    allowed: NDArray[np.bool_] | None
    """`(num_actors, num_choices)`; None = everything."""


class SingleObservation(NamedTuple):
    """One observation.

    Args:
        own: per type in the observation `(num_entities, num_features)`.
        shared: `(num_global_features,)`.
        visible: `(num_entities,)`, the entity of global actions included; None = all are.
        asked: the requested actions.
    """

    own: dict[EntityName, Float]
    shared: Float
    visible: NDArray[np.bool_] | None
    asked: list[RequestedAction]


class SingleObservationReader:
    """Reads observations of these spaces."""

    def __init__(self, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> None:
        self._obs_space = obs_space
        self._actions = action_space
        self._widths = [(name, len(each.features)) for name, each in obs_space.entities.items()]
        self._num_shared = len(obs_space.global_features)
        self._num_global = int(
            any(isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values())
        )

    def read(self, observation: Observation) -> SingleObservation | None:
        """The observation; None unless it has the common form."""
        own = self._features(observation)
        if own is None or len(observation.global_features) != self._num_shared:
            return None
        try:
            shared = _as_float(np.asarray(observation.global_features))
            visible = self._visible(observation, own) if observation.visible else None
            asked = [
                self._asked(name, mask, observation) for name, mask in observation.actions.items()
            ]
        except (SchemaError, LookupError, TypeError, ValueError):
            return None
        if shared.ndim != 1 or not all(asked):
            return None
        return SingleObservation(own, shared, visible, [each for each in asked if each is not None])

    def _features(self, observation: Observation) -> dict[EntityName, Float] | None:
        given = observation.features
        own: dict[EntityName, Float] = {}
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
        self, observation: Observation, own: Mapping[EntityName, Float]
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
    ) -> RequestedAction | None:
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
            return RequestedAction(name, actors, actees, None) if can_choose else None
        allowed = as_mask(given, (len(actors), num_choices), name)
        return RequestedAction(name, actors, actees, allowed) if allowed.any(axis=1).all() else None


def _as_float(array: NDArray[Any]) -> Float:
    """As float32; larger numbers become infinite, which the network detects."""
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # a microsecond, so only where it is needed
        return array.astype(np.float32)


def _num_choices(space: ActionSpace, actees: NDArray[np.int64] | None) -> int:
    if isinstance(space, ContinuousActionSpace):
        return len(space)
    if isinstance(space, SelectEntityActionSpace):
        return 0 if actees is None else len(actees)
    return len(space)
