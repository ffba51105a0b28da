"""RandomAgent: uniformly random legal actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.schema import Schema
from entity_env.core.action_request import random_action as random_action, random_answers
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_actions import narrowed
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
)


class RandomAgent(PolicyAgent):
    """Chooses uniformly among the allowed actions.

    Args:
        seed: of the choices; None = different in every run of the program.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        return random_answers(self.questions(observation), self._rng)

    def decide_batch(self, obs: VecObs, schema: Schema) -> VecActions:
        return random_actions(obs, schema.action_space(), self._rng)


def random_actions(
    vec_obs: VecObs, action_space: Mapping[ActionName, ActionSpace], rng: np.random.Generator
) -> dict[ActionName, NDArray[Any]]:
    """Legal actions for a batch, uniform over each actor's allowed choices or within its bounds.

    Returns:
        A new array per action, one value per actor, as in `VecActions`.
    """
    chosen: dict[ActionName, NDArray[Any]] = {}
    for name, space in action_space.items():
        mask = vec_obs.action_masks[name]
        if space.given:
            mask = narrowed(mask, chosen[space.given[-1]])
        chosen[name] = _random_values(mask, space, rng)
    return chosen


def _random_values(
    mask: VecActionMask, space: ActionSpace, rng: np.random.Generator
) -> NDArray[Any]:
    num_actors = len(mask.actors.values)
    if isinstance(space, ContinuousActionSpace):
        return _uniform(space, (num_actors, len(space)), rng).astype(np.float32)
    if isinstance(mask, VecSelectEntityActionMask):
        return _random_actees(mask, rng)
    if isinstance(mask, VecCategoricalActionMask) and mask.mask is not None:
        return _random_allowed(mask.mask.values, rng)
    num_choices = 0 if isinstance(space, SelectEntityActionSpace) else len(space)
    return rng.integers(num_choices, size=num_actors)


def _random_allowed(allowed: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Column of a uniformly random True in each row."""
    rank = (rng.random(len(allowed)) * allowed.sum(axis=1)).astype(np.int64)
    return np.asarray(np.argmax(np.cumsum(allowed, axis=1) > rank[:, None], axis=1))


def _random_actees(mask: VecSelectEntityActionMask, rng: np.random.Generator) -> NDArray[np.int64]:
    num_actees = mask.actees.lengths[mask.actors.row_index]
    if mask.mask is None:
        return (rng.random(len(num_actees)) * num_actees).astype(np.int64)
    widest = int(num_actees.max(initial=1))
    allowed = np.zeros((len(num_actees), widest), dtype=np.bool_)
    allowed[np.arange(widest) < num_actees[:, None]] = mask.mask.values
    return _random_allowed(allowed, rng)


def _uniform(
    space: ContinuousActionSpace, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.float64]:
    return rng.uniform(space.low, space.high, size=shape)
