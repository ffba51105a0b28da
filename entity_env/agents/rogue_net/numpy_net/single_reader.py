"""Single observations as arrays, without a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.action_request import MASK_OF_SPACE
from entity_env.core.masks import as_mask, nested_mask
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
from entity_env.errors import SchemaError

_NOTHING: Final = np.zeros(0, dtype=np.float32)


class RequestedAction(NamedTuple):
    """A requested action; every actor has an allowed choice."""

    name: ActionName
    actors: NDArray[np.int64]
    """`(num_actors,)` indices of entities."""
    actees: NDArray[np.int64] | None
    """`(num_actees,)` indices of entities; None unless the action selects entities."""
    allowed: NDArray[np.bool_] | None
    """`(num_actors, num_choices)` bool; None = all choices. If it depends on the action directly
    before, `(num_actors, num_earlier, num_choices)`, with a choice after each legal one before.
    """
    answers: Floats
    """`(num_actors, num_choices)`, for the results of the network: probabilities, or the means of a
    continuous action in the units of its space.
    """

    def only(self, chosen: NDArray[Any]) -> RequestedAction:
        """Allows only what each actor has chosen."""
        allowed = np.zeros(self.answers.shape, np.bool_)
        allowed[np.arange(len(allowed)), chosen] = True
        return self._replace(allowed=allowed, answers=np.empty_like(self.answers))

    def after(self, chosen: NDArray[Any]) -> RequestedAction:
        """Allows what is legal after the choices of the action directly before."""
        if self.allowed is None or self.allowed.ndim == 2:
            return self
        return self._replace(allowed=self.allowed[np.arange(len(self.allowed)), chosen])


class SingleObservation(NamedTuple):
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
    asked: list[RequestedAction]


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

    def read(self, observation: Observation) -> SingleObservation | None:
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
        if shared.ndim != 1 or len(known) < len(asked) or not self._fit_together(known):
            return None
        return SingleObservation(own, shared, visible, known)

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
            can_choose = num_choices > 0 or not len(actors)
            allowed = None
        else:
            depends = bool(space.given)
            allowed = nested_mask(given, (len(actors), num_choices), name, depends=depends)
            can_choose = allowed.ndim == 3 or bool(allowed.any(axis=1).all())
        if not can_choose:
            return None
        answers = np.empty((len(actors), num_choices), np.float32)
        return RequestedAction(name, actors, actees, allowed, answers)

    def _fit_together(self, asked: list[RequestedAction]) -> bool:
        """Whether actions that depend on others have their actors, and choices after theirs."""
        by_name: dict[ActionName, RequestedAction] = {}
        for each in asked:
            by_name[each.name] = each
            given = self._actions[each.name].given
            if not given:
                continue
            if not all(
                name in by_name and np.array_equal(by_name[name].actors, each.actors)
                for name in given
            ):
                return False
            if each.allowed is None or each.allowed.ndim == 2 or not len(each.actors):
                continue
            before = by_name[given[-1]]
            legal = before.allowed
            if each.allowed.shape[1] != before.answers.shape[1]:
                return False
            is_stuck = np.logical_not(each.allowed.any(axis=2))
            if legal is not None:
                is_stuck &= legal.any(axis=1) if legal.ndim == 3 else legal
            if is_stuck.any():
                return False
        return True


def _as_float(array: NDArray[Any]) -> Floats:
    """As contiguous float32; numbers that do not fit become infinite, which the network detects."""
    if array.dtype == np.float32 and array.flags.c_contiguous:
        return array
    with np.errstate(over="ignore"):  # a microsecond, so only if needed
        return array.astype(np.float32, order="C")


def _num_choices(space: ActionSpace, actees: NDArray[np.int64] | None) -> int:
    if isinstance(space, ContinuousActionSpace):
        return len(space)
    if isinstance(space, SelectEntityActionSpace):
        return 0 if actees is None else len(actees)
    return len(space)
