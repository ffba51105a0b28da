"""`to_observation`: an `Obs` as an `Observation`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

from entity_env.authoring.action_type import (
    ActionType,
    Categorical,
    Continuous,
    GlobalCategorical,
    SelectEntity,
)
from entity_env.authoring.entity_type import EntityType, Places
from entity_env.authoring.obs import (
    Group,
    Obs,
    Rows,
    class_of_globals,
    has_targets,
    mask_error,
    masks_of,
)
from entity_env.authoring.relations.relations import (
    Relations,
    class_of,
    mask_of,
    num_of_class,
    places_of,
    relation_rows,
)
from entity_env.authoring.schema import Schema
from entity_env.core.masks import mask_rows, nested_mask
from entity_env.core.observation import (
    ActionMask,
    BoolMask,
    CategoricalActionMask,
    ContinuousActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    PlainObservation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import ACTOR_ENTITY, EntityName
from entity_env.core.validation import plain_numbers
from entity_env.errors import SchemaError, shown
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
    plain: bool = False,
) -> Observation:
    """Converts an `Obs` to an `Observation`; ids are positions in the `Obs`.

    Features are copied; masks and visibility flags may be the arrays of the `Obs`. If `plain`,
    makes a `PlainObservation`, without numpy.
    """
    schema.require_declared(obs.actions_named)
    if not math.isfinite(reward):
        raise SchemaError(f"{schema.game}: the score must be finite, the reward is {reward}")
    read: Callable[..., Any] = _finite_numbers if plain else _finite
    features: dict[EntityName, list[Any]] = {}
    ids: dict[EntityName, list[EntityID]] = {}
    first = 0
    for group in obs.groups:
        cls = class_of(group)
        if cls is None:
            continue
        kind = schema.entity(cls)
        name = kind.name
        if kind.references is None and type(group) is not Relations:
            rows = read(kind, group)
        else:
            schema.require_role(kind, is_relation=type(group) is Relations)
            rows = read(kind, group, obs)
        features.setdefault(name, []).append(rows)
        ids.setdefault(name, []).extend(range(first, first + len(group)))
        first += len(group)
    if any(kind.has_own_actor for kind in actions):
        features[ACTOR_ENTITY] = [[[]] if plain else np.zeros((1, 0), dtype=np.float32)]
        ids[ACTOR_ENTITY] = [first]
    make = PlainObservation if plain else Observation
    return make(
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        global_features=_globals(obs, schema, actions, plain=plain),
        features={name: _joined(parts) for name, parts in features.items()},
        ids=ids,
        actions={kind.name: _action_mask(kind, obs, schema, plain=plain) for kind in actions},
        visible=_visible(obs, schema, plain=plain),
        metrics=plain_numbers(obs.metrics or {}),
    )


def _joined(parts: list[Any]) -> Any:  # noqa: ANN401 - an array, or a list of rows
    if len(parts) == 1:
        return parts[0]
    is_plain = isinstance(parts[0], list)
    return list(chain.from_iterable(parts)) if is_plain else np.concatenate(parts)


def _finite(kind: EntityType, group: Group, obs: Obs | None = None) -> NDArray[np.float32]:
    """The rows of a group; of relations, in this observation."""
    if type(group) is Relations and obs is not None:
        rows = relation_rows(kind, group, obs)
        group.sources = rows[:, 0].astype(np.int64)
        rows = rows if group.values is None else rows.copy()
    else:
        rows = group.values.copy() if type(group) is Rows else kind.featurize(group)
    if not np.isfinite(rows).all():
        raise _not_finite(kind, rows.tolist())
    return rows


def _finite_numbers(kind: EntityType, group: Group, obs: Obs | None = None) -> list[list[float]]:
    places: list[Places] = []
    if type(group) is Relations and group.values is None and obs is not None:
        places = [places_of(cls, obs) for cls in kind.references or ()]
    elif type(group) is Rows or type(group) is Relations:
        return list(_finite(kind, group, obs).tolist())
    rows = kind.numbers(group, *places)
    if not all(math.isfinite(sum(row)) for row in rows):  # a sum of float32s cannot overflow
        raise _not_finite(kind, rows)
    return rows


def _not_finite(kind: EntityType, rows: list[list[float]]) -> SchemaError:
    row, column, value = next(
        (i, j, each)
        for i, row in enumerate(rows)
        for j, each in enumerate(row)
        if not math.isfinite(each)
    )
    feature = kind.features[column]
    return SchemaError(
        f"entity {kind.name}: feature {feature!r} of row {row} must be finite, got {value}"
    )


def _globals(
    obs: Obs, schema: Schema, actions: Sequence[ActionType[Any]], *, plain: bool
) -> NDArray[np.float32] | list[float]:
    if not (obs.is_blank and not actions):
        schema.require_globals(class_of_globals(obs.global_features))
        if schema.globals is not None:
            given = obs.global_features
            group: Group = given if isinstance(given, Rows) else (given,)
            if plain:
                return _finite_numbers(schema.globals, group)[0]
            return _finite(schema.globals, group).reshape(-1)
    return [] if plain else np.zeros(0, dtype=np.float32)


def _action_mask(kind: ActionType[Any], obs: Obs, schema: Schema, *, plain: bool) -> ActionMask:
    if isinstance(kind, GlobalCategorical):
        mask: BoolMask | None = (obs.masks or {}).get(kind)
        if plain and mask is not None:
            mask = mask_rows(mask, (1, len(kind.choices)), kind.name, is_global=True)
        return GlobalCategoricalActionMask(mask)
    if obs.actor_groups is None and not kind.has_own_actor:
        raise schema.no_actors(kind)
    actors = _actor_ids(kind, obs)
    try:
        return _mask_for(actors, kind, obs, mask_of(kind, obs), schema, plain=plain)
    except SchemaError as error:
        raise mask_error(error, kind, obs) from None


def _mask_for(
    actors: list[EntityID],
    kind: ActionType[Any],
    obs: Obs,
    mask: BoolMask | None,
    schema: Schema,
    *,
    plain: bool,
) -> ActionMask:
    if mask is not None and isinstance(kind, Continuous):
        raise SchemaError(f"{schema.game}: {kind!r} takes no mask")
    if isinstance(kind, SelectEntity) or kind.whole is not None:
        asked = has_targets(kind, obs)
        if asked is not None:
            actors = list(compress(actors, asked))
            mask = None if mask is None else masks_of(kind, mask, asked, obs)
    if isinstance(kind, SelectEntity):
        if mask is not None:
            shape = len(actors), num_of_class(kind.actee, obs)
            mask = _checked(mask, shape, kind, plain=plain)
        name = schema.entity(kind.actee).name
        return SelectEntityActionMask(actor_ids=actors, actee_types=[name], mask=mask)
    if isinstance(kind, Categorical):
        if mask is not None and (plain or kind.is_global or _num_rows(mask) != len(actors)):
            # Raise now: the later check cannot name the actors' classes, or that there are none.
            mask = _checked(mask, (len(actors), len(kind.choices)), kind, plain=plain)
        return CategoricalActionMask(actor_ids=actors, mask=mask)
    return ContinuousActionMask(actor_ids=actors)


def _checked(
    mask: BoolMask, shape: tuple[int, int], kind: ActionType[Any], *, plain: bool
) -> BoolMask:
    """A mask of bools; lists if `plain`."""
    read: Callable[..., BoolMask] = mask_rows if plain else nested_mask
    return read(mask, shape, kind.name, is_global=kind.is_global)


def _num_rows(mask: BoolMask) -> int | None:
    try:
        return len(mask)
    except TypeError:  # a single value
        return None


def _actor_ids(kind: ActionType[Any], obs: Obs) -> list[EntityID]:
    if kind.has_own_actor:  # it follows all others
        return [sum(map(len, obs.groups))]
    roles = dict(obs.actor_groups or ())
    actors: list[EntityID] = []
    first = 0
    for i, group in enumerate(obs.groups):
        if i in roles and (not roles[i] or kind in roles[i]):
            actors.extend(range(first, first + len(group)))
        first += len(group)
    return actors


def _visible(obs: Obs, schema: Schema, *, plain: bool) -> dict[EntityName, BoolMask]:
    keep: Callable[[BoolMask], BoolMask] = _bools if plain else np.asarray
    found = {}
    for cls, seen in obs.hidden or ():
        name, count = schema.entity(cls).name, num_of_class(cls, obs)
        if _num_rows(seen) != count:
            raise SchemaError(
                f"{schema.game}: visible of {name} needs {count} bools, one per entity: "
                f"got {shown(seen)}"
            )
        found[name] = keep(seen)
    return found


def _bools(seen: BoolMask) -> list[bool]:
    return [bool(each) for each in seen]  # `map` would end at a StopIteration
