"""Checks of the spaces and masks of a batch environment, and the layout of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import checked_count
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchActionSpace, BatchEnv


@dataclass(frozen=True, slots=True)
class RowParts:
    """Splits rows of observations into features of entities and global features."""

    num_entities: int
    num_features: int
    num_globals: int

    @property
    def obs_size(self) -> int:
        return self.num_entities * self.num_features + self.num_globals

    @property
    def are_views(self) -> bool:
        """True if `entities` returns a view of contiguous rows; with global features it copies."""
        return not self.num_globals

    def entities(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows * num_entities, num_features)` float32."""
        own = rows[:, : self.num_entities * self.num_features]
        return own.reshape(len(rows) * self.num_entities, self.num_features)

    def globals(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows, num_globals)` float32."""
        return np.ascontiguousarray(rows[:, self.obs_size - self.num_globals :])


def require_batch_env(env: BatchEnv) -> tuple[EntityName, RowParts, ActionName, BatchActionSpace]:
    """Entity type, row layout, action name and action space.

    Raises `SchemaError` if they are unsupported, and `UsageError` for an invalid `num_entities`.
    """
    name = type(env).__name__
    observed, done = env.obs_space(), env.action_space()
    if len(observed.entities) != 1 or len(done) != 1:
        raise SchemaError(
            f"{name}: a batch environment must have one entity type and one action, got the "
            f"entities {list(observed.entities)} and the actions {list(done)}"
        )
    [(entity, features)], [(action, space)] = observed.entities.items(), done.items()
    num_entities = checked_count("num_entities", env.num_entities)
    parts = RowParts(num_entities, len(features.features), len(observed.global_features))
    if parts.obs_size != env.obs_size:
        many = f"{num_entities} * " if num_entities > 1 else ""
        shared = f" + {parts.num_globals} global features" if parts.num_globals else ""
        raise SchemaError(
            f"{name}: obs_size must be {parts.obs_size} ({many}{parts.num_features} features of "
            f"{entity}{shared}), got {env.obs_size}"
        )
    if num_entities > 1 and not isinstance(space, GlobalCategoricalActionSpace):
        raise SchemaError(
            f"{name}: action {action!r} must be global (a GlobalCategoricalActionSpace), because "
            f"nothing says which of {num_entities} entities acts"
        )
    if isinstance(space, SelectEntityActionSpace):
        raise SchemaError(
            f"{name}: action {action!r} must not select entities: num_entities is 1, so there is "
            "nothing to select"
        )
    if isinstance(space, ContinuousActionSpace) and len(space) != 1:
        raise SchemaError(
            f"{name}: action {action!r} has the labels {list(space.labels)}, but a batch "
            "environment takes one number"
        )
    return entity, parts, action, space


def require_masks(env: BatchEnv, space: BatchActionSpace) -> None:
    """Raises `SchemaError` if `legal_masks` is invalid, or given for a continuous action."""
    masks: object = env.legal_masks
    if masks is None:
        return
    name = type(env).__name__
    if isinstance(space, ContinuousActionSpace):
        raise SchemaError(f"{name}: legal_masks must be None for a continuous action")
    wanted = env.num_envs, len(space)
    got = f"a {type(masks).__name__}"
    if isinstance(masks, np.ndarray):
        if masks.shape == wanted and masks.dtype == np.bool_:
            return
        got = f"{masks.shape} {masks.dtype}"
    raise SchemaError(f"{name}: legal_masks must be {wanted} bool, got {got}")
