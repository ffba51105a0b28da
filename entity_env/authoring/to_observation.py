"""`to_observation`: an `Obs` as an `Observation`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from entity_env.authoring.action_type import (
    ActionType,
    Categorical,
    GlobalCategorical,
    SelectEntity,
)
from entity_env.authoring.entity_type import entity_type
from entity_env.authoring.obs import (
    Group,
    Obs,
    Rows,
    class_of,
    class_of_globals,
    mask_error,
    num_of_class,
)
from entity_env.authoring.schema import Schema
from entity_env.core.observation import (
    ActionMask,
    BoolMask,
    CategoricalActionMask,
    ContinuousActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import EntityName
from entity_env.core.validation import as_mask, of_selectors
from entity_env.errors import SchemaError
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_observation(
    obs: Obs,
    actions: Sequence[ActionType[Any]],
    schema: Schema,
    *,
    reward: float,
    terminated: bool = False,
    truncated: bool = False,
) -> Observation:
    """An `Obs` as an `Observation` that owns its memory; ids are positions in the `Obs`."""
    schema.require_declared(obs.actions_named)
    if not math.isfinite(reward):
        raise SchemaError(f"{schema.game}: the score must be finite, the reward is {reward}")
    features: dict[EntityName, list[NDArray[np.float32]]] = {}
    ids: dict[EntityName, list[EntityID]] = {}
    first = 0
    for group in obs.groups:
        cls = class_of(group)
        if cls is None:
            continue
        name = schema.entity(cls).name
        features.setdefault(name, []).append(_finite(name, cls, group))
        ids.setdefault(name, []).extend(range(first, first + len(group)))
        first += len(group)
    return Observation(
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        global_features=_globals(obs, schema, actions),
        features={
            name: rows[0] if len(rows) == 1 else np.concatenate(rows)
            for name, rows in features.items()
        },
        ids=ids,
        actions={kind.name: _action_mask(kind, obs, schema) for kind in actions},
        visible=_visible(obs, schema),
        metrics=dict(obs.metrics or {}),
    )


def _finite(name: EntityName, cls: type, group: Group) -> NDArray[np.float32]:
    kind = entity_type(cls)
    rows = group.values.copy() if type(group) is Rows else kind.featurize(group)
    if not np.isfinite(rows).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
        raise SchemaError(
            f"entity {name}: feature {kind.features[column]!r} of row {row} must be finite, "
            f"got {rows[row, column]}"
        )
    return rows


def _globals(obs: Obs, schema: Schema, actions: Sequence[ActionType[Any]]) -> NDArray[np.float32]:
    if obs.is_blank and not actions:
        return np.zeros(0, dtype=np.float32)
    schema.require_globals(class_of_globals(obs.global_features))
    if schema.globals is None:
        return np.zeros(0, dtype=np.float32)
    if isinstance(obs.global_features, Rows):
        group: Group = obs.global_features
    else:
        group = (obs.global_features,)
    return _finite(schema.globals.name, schema.globals.cls, group).reshape(-1)


def _action_mask(kind: ActionType[Any], obs: Obs, schema: Schema) -> ActionMask:
    mask: BoolMask | None = (obs.masks or {}).get(kind)
    if isinstance(kind, GlobalCategorical):
        return GlobalCategoricalActionMask(mask)
    if obs.actor_groups is None:
        raise schema.no_actors(kind)
    actors = _actor_ids(kind, obs)
    try:
        return _mask_for(actors, kind, obs, mask, schema)
    except SchemaError as error:
        raise mask_error(error, kind, obs) from None


def _mask_for(
    actors: list[EntityID],
    kind: ActionType[Any],
    obs: Obs,
    mask: BoolMask | None,
    schema: Schema,
) -> ActionMask:
    if isinstance(kind, SelectEntity):
        name = schema.entity(kind.actee).name
        num_actees = num_of_class(kind.actee, obs)
        has_target, allowed = of_selectors(mask, len(actors), num_actees, kind.name)
        if has_target is not None:
            actors = [actor for actor, is_asked in zip(actors, has_target, strict=True) if is_asked]
        return SelectEntityActionMask(actor_ids=actors, actee_types=[name], mask=allowed)
    if isinstance(kind, Categorical):
        if mask is not None and _num_rows(mask) != len(actors):
            # The values are checked later, where the actors are no longer known by class.
            as_mask(mask, (len(actors), len(kind.choices)), kind.name)
        return CategoricalActionMask(actor_ids=actors, mask=mask)
    if mask is not None:
        raise SchemaError(f"{schema.game}: {kind!r} takes no mask")
    return ContinuousActionMask(actor_ids=actors)


def _num_rows(mask: BoolMask) -> int | None:
    try:
        return len(mask)
    except TypeError:  # a single value
        return None


def _actor_ids(kind: ActionType[Any], obs: Obs) -> list[EntityID]:
    roles = dict(obs.actor_groups or ())
    actors: list[EntityID] = []
    first = 0
    for i, group in enumerate(obs.groups):
        if i in roles and (not roles[i] or kind in roles[i]):
            actors.extend(range(first, first + len(group)))
        first += len(group)
    return actors


def _visible(obs: Obs, schema: Schema) -> dict[EntityName, BoolMask]:
    return {schema.entity(cls).name: np.asarray(seen) for cls, seen in obs.hidden or ()}
