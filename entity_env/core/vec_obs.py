"""A batch of observations, and the interface of whatever steps many environments at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import is_number, must_be_number


@dataclass(frozen=True, slots=True)
class VecCategoricalActionMask:
    """Who chooses a label in each observation; serves categorical and global actions.

    Args:
        actors: per observation the index of every acting entity among all entities of that
            observation, in the order of the observation space. A global action has one actor,
            the `GLOBAL_ENTITY` row, whose index follows the last entity's; or none.
        mask: per observation `(num_actors, num_choices)` bool, True = allowed; None = everything.
    """

    actors: RaggedArray[np.int64]
    mask: RaggedArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class VecSelectEntityActionMask:
    """Actors and actees of a select action in each observation.

    Args:
        actors: per observation the index of every selecting entity.
        actees: per observation the index of every entity that can be selected. An action is a
            position in this list, not an index of an entity.
        mask: per observation `num_actors * num_actees` bool in row-major order, True = allowed;
            None = everything.
    """

    actors: RaggedArray[np.int64]
    actees: RaggedArray[np.int64]
    mask: RaggedArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class VecContinuousActionMask:
    """Which entities choose real numbers in each observation."""

    actors: RaggedArray[np.int64]


VecActionMask: TypeAlias = (
    VecCategoricalActionMask | VecSelectEntityActionMask | VecContinuousActionMask
)

VecActions: TypeAlias = Mapping[
    ActionName,
    RaggedArray[np.int64] | RaggedArray[np.float32] | NDArray[np.int64] | NDArray[np.float32],
]
"""Per action one value an actor, in the order of `VecObs.action_masks[name].actors.values`:
`(num_actors,)` integers for categorical (index of the label) and select actions (position in the
actee list), `(num_actors, num_labels)` floats for continuous ones. An action without any actor may
be left out."""


@dataclass(slots=True)
class Metric:
    """Running count, sum, smallest and largest of one named number."""

    count: int = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")

    def push(self, value: float) -> None:
        """Adds a value."""
        self.count += 1
        self.sum += value
        self.min = min(self.min, value)
        self.max = max(self.max, value)

    @property
    def mean(self) -> float:
        """Mean of the values so far, 0 when there are none."""
        return self.sum / self.count if self.count else 0.0


def metric_problem(name: object, value: object) -> str:
    """Why a metric is invalid; empty if it is valid."""
    if not isinstance(name, str):
        return f"the name of a metric must be a text, got {name!r} ({type(name).__name__})"
    try:
        is_sendable = "\0" not in name and name.encode() is not None
    except UnicodeEncodeError:
        is_sendable = False
    if not is_sendable:
        return f"the name of the metric {name!r} must be a text that UTF-8 can hold, without \\0"
    return "" if is_number(value) else must_be_number(f"metric {name!r}", value)


@dataclass(slots=True)
class EntityBatch:
    """The part of a `VecObs` that a network reads."""

    features: Mapping[EntityName, RaggedArray[np.float32]]
    visible: Mapping[EntityName, RaggedArray[np.bool_]]
    action_masks: Mapping[ActionName, VecActionMask]


@dataclass(slots=True)
class VecObs(EntityBatch):
    """A batch of observations, one row each agent of each environment.

    Row `r` is agent `agent_id[r]` of environment `env_id[r]`. The row of an agent without a
    pending action has no entities and no actors. Arrays are views that stay valid until the next
    `act`, `recv`, `reset` or `reset_envs`; `copy()` what you keep.

    Args:
        features: per entity type `(num_entities, num_features)` float32 and a length a row, in
            the order of the observation space; `GLOBAL_ENTITY` last, one entity a row, when there
            are global features or a global action.
        visible: per entity type, only for types that a game hides some of, `(num_entities,)`
            bool: False = hidden from the policy, not from the value function.
        action_masks: per action, always all of them.
        reward: `(num_rows,)` float32, earned since that row's previous observation.
        terminated: `(num_rows,)` bool, the episode ended by its rules.
        truncated: `(num_rows,)` bool, the episode was cut.
        env_id: `(num_rows,)` int64.
        agent_id: `(num_rows,)` int64, all 0 in games for one agent.
        final: with autoreset "same_step", the last observations of the episodes that ended in
            this step, one row each, with their `env_id` and `agent_id`; else None. In
            the other modes the row itself is the last observation.
        metrics: the games' named numbers over this batch.
        episodes: summaries of the episodes that ended in this step.
    """

    features: dict[EntityName, RaggedArray[np.float32]]
    visible: dict[EntityName, RaggedArray[np.bool_]]
    action_masks: dict[ActionName, VecActionMask]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    env_id: NDArray[np.int64]
    agent_id: NDArray[np.int64]
    final: VecObs | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()

    @property
    def done(self) -> NDArray[np.bool_]:
        """`(num_rows,)` bool: the episode ended, by its rules or by a cut."""
        return self.terminated | self.truncated

    @property
    def is_ready(self) -> NDArray[np.bool_]:
        """`(num_rows,)` bool: at least one entity of the row is asked for an action."""
        ready = np.zeros(len(self.reward), dtype=np.bool_)
        for mask in self.action_masks.values():
            ready |= mask.actors.lengths > 0
        return ready

    def __len__(self) -> int:
        return len(self.reward)


def find_not_finite(
    features: Mapping[EntityName, RaggedArray[np.float32]],
) -> tuple[EntityName, int, int, float] | None:
    """The first number that is not finite: entity type, row, feature, value; None if all are."""
    for name, entities in features.items():
        if not np.isfinite(entities.values).all():
            index, feature = np.argwhere(~np.isfinite(entities.values))[0].tolist()
            value = float(entities.values[index, feature])
            return name, int(entities.row_index[index]), feature, value
    return None


class VecEnvironment(Protocol):
    """Steps many environments at once; see `entity_env.vec.VecEnv` for one."""

    def obs_space(self) -> ObsSpace:
        """Observation space."""

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Action space."""

    @property
    def num_rows(self) -> int:
        """Length of every batch: environments times agents in each."""

    def reset(self, seed: int | None = None) -> VecObs:
        """Resets all environments."""

    def act(self, actions: VecActions) -> VecObs:
        """Performs one action per actor of the last batch and returns the next batch."""

    def send(self, actions: VecActions) -> None:
        """First half of `act`: sends the actions; the last batch stays valid."""

    def recv(self) -> VecObs:
        """Second half of `act`: waits for the next batch."""

    def close(self) -> None:
        """Closes all environments; may be called twice."""
