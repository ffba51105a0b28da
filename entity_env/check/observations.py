"""Violations of the contract in one `Observation` or `Obs`, as sentences."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.entity_type import as_float32, declared_fields
from entity_env.authoring.obs import Obs, Rows
from entity_env.authoring.schema import Schema
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.check.violations import is_finite
from entity_env.core.action_request import questions
from entity_env.core.observation import EntityID, Observation
from entity_env.core.spaces import ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.vec_obs import metric_problem
from entity_env.errors import SchemaError

ActionSpaces = Mapping[ActionName, ActionSpace]


def observation_violations(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces, *, is_first: bool
) -> list[str]:
    """Violations in one observation, with any content at all; empty when it is valid."""
    try:
        found = list(_violations(observation, obs_space, action_space))
        if is_first and observation.done:
            found.append("the first observation is done already: nothing was done yet")
        if is_first and not found and observation.reward != 0:
            found.append(
                f"the first observation has the reward {observation.reward}, expected 0: "
                "nothing was done yet"
            )
        return found or list(_refusals(observation, obs_space, action_space))
    except Exception as error:  # its content can raise anything
        return [f"the observation cannot be read: {type(error).__name__}: {error}"]


def _violations(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    if not is_finite(observation.reward):
        yield f"the reward is {observation.reward!r}, expected a finite number"
    yield from _in_metrics(observation.metrics)
    if observation.done and observation.is_blank:
        return
    yield from _in_globals(observation, obs_space)
    for name, rows in observation.features.items():
        if name in obs_space.entities:
            features = obs_space.entities[name].features
            yield from _in_rows(f"entity {name!r}", features, rows)
        else:
            known = ", ".join(obs_space.entities) or "none"
            yield f"entity {name!r} is not in the observation space, which has {known}"
    in_ids = list(_in_ids(observation, obs_space))
    yield from in_ids
    yield from _in_visible(observation, obs_space)
    if not in_ids:
        yield from _in_actions(observation, obs_space, action_space)


def _in_metrics(metrics: Mapping[str, float]) -> Iterator[str]:
    for name, value in metrics.items():
        if problem := metric_problem(name, 0.0):
            yield problem
        elif not is_finite(value):
            yield f"the metric {name!r} is {value!r}, expected a finite number"


def _in_globals(observation: Observation, obs_space: ObsSpace) -> Iterator[str]:
    yield from _in_rows("globals", obs_space.global_features, [observation.global_features])


def _in_rows(where: str, features: Sequence[str], rows: object) -> Iterator[str]:
    try:
        array = np.asarray(rows)
    except ValueError:
        yield f"{where}: rows have different lengths, expected {len(features)} features each"
        return
    if not len(array):
        return
    if array.ndim != 2 or array.shape[1] != len(features):
        yield (
            f"{where}: got the shape {array.shape}, expected {len(features)} columns: "
            f"{', '.join(features)}"
        )
    elif array.dtype.kind not in "fiub" and array.size:
        yield f"{where}: features are {array.dtype}, expected numbers"
    else:
        yield from _not_finite(where, features, array)


def _not_finite(where: str, features: Sequence[str], array: NDArray[np.number]) -> Iterator[str]:
    for column, feature in enumerate(features):
        bad = np.flatnonzero(~np.isfinite(as_float32(array[:, column])))
        if len(bad):
            value = array[bad[0], column]
            yield (
                f"{where}: feature {feature!r} of row {bad[0]} is {value}, expected a finite "
                "number that fits float32"
            )


def _in_ids(observation: Observation, obs_space: ObsSpace) -> Iterator[str]:
    owners: dict[EntityID, EntityName] = {}
    for name, ids in observation.ids.items():
        if name not in obs_space.entities:
            yield f"ids are given for entity {name!r}, which is not in the observation space"
            continue
        num_rows = observation.num_entities(name)
        if len(ids) != num_rows:
            yield f"entity {name!r}: {num_rows} rows of features but {len(ids)} ids"
        for entity_id in ids:
            try:
                owner = owners.setdefault(entity_id, name) if entity_id not in owners else None
            except TypeError:
                yield f"entity {name!r}: the id {entity_id!r} cannot be hashed"
                break
            if owner is None:
                yield (
                    f"the duplicate id {entity_id!r} of entity {name!r} belongs to one of "
                    f"{owners[entity_id]!r} already: ids must differ over all types"
                )


def _in_visible(observation: Observation, obs_space: ObsSpace) -> Iterator[str]:
    for name, seen in observation.visible.items():
        flags = np.asarray(seen)
        num_rows = observation.num_entities(name)
        if name not in obs_space.entities:
            yield f"visible names entity {name!r}, which is not in the observation space"
        elif flags.shape != (num_rows,) or (num_rows and flags.dtype.kind not in "biu"):
            yield (
                f"visible of {name!r} has the shape {flags.shape} and dtype {flags.dtype}, "
                f"expected {num_rows} bools"
            )


def _in_actions(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    for name, mask in observation.actions.items():
        if name not in action_space:
            known = ", ".join(action_space) or "none"
            yield f"action {name!r} is not in the action space, which has {known}"
            continue
        alone = Observation(
            reward=0.0, features=observation.features, ids=observation.ids, actions={name: mask}
        )
        try:
            [question] = questions(alone, obs_space, action_space)
        except SchemaError as error:
            yield str(error)
            continue
        for actor, times in Counter(question.actors).items():
            if times > 1:
                yield f"action {name!r} asks the actor {actor!r} {times} times"


def _refusals(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    """Errors of `ObservationBatcher` for an observation without other violations."""
    writer = ObservationBatcher(obs_space, action_space, where="this observation".format)
    flag = np.zeros(1, dtype=np.bool_)
    index = np.zeros(1, dtype=np.int64)
    try:
        writer.add(observation, ask=not observation.done)
        writer.finish(np.zeros(1, dtype=np.float32), flag, flag, index, index)
    except SchemaError as error:
        yield str(error)


_MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
# Reading the annotations of a class takes 20 µs, more than checking its values.
_fields_of = cache(declared_fields)


def obs_violations(obs: Obs, schema: Schema) -> list[str]:
    """Values of entities and global features that are not of their declared type."""
    shown = [entity for group in obs.groups if not isinstance(group, Rows) for entity in group]
    if obs.global_features is not None:
        shown.append(obs.global_features)
    declared = {*schema.index_of, *([schema.globals.cls] if schema.globals else [])}
    return [violation for entity in shown for violation in _in_entity(entity, declared, schema)]


def _in_entity(entity: object, declared: set[type], schema: Schema) -> Iterator[str]:
    cls: type = type(entity)
    if cls not in declared:
        yield str(schema.undeclared(cls))
        return
    for name, kind in _fields_of(cls).items():
        value = getattr(entity, name, None)
        yield from _in_value(f"entity {cls.__name__}: field {name!r}", value, kind)


def _in_value(where: str, value: object, kind: object) -> Iterator[str]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        yield from _in_value(where, value, args[0])
    elif origin is tuple:
        yield from _in_tuple(where, value, args)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, kind):
            yield f"{where} holds {value!r}, declared {kind.__name__}"
            return
        for name, nested in _fields_of(kind).items():
            yield from _in_value(f"{where[:-1]}.{name}'", getattr(value, name, None), nested)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if not isinstance(value, kind):
            yield f"{where} holds {value!r}, declared one of {', '.join(m.name for m in kind)}"
    elif not _is_number(value):
        yield f"{where} holds {value!r}, declared {_show(kind)}"
    elif not _fits(value):
        yield f"{where} holds {value!r}, expected a finite number that fits float32"


def _fits(value: object) -> bool:
    """Whether float32 can hold a number, not NaN. As a Python float: numpy's warn and wrap."""
    try:
        return abs(float(value)) <= _MAX_FLOAT32  # type: ignore[arg-type]
    except OverflowError:
        return False


def _in_tuple(where: str, value: object, args: tuple[object, ...]) -> Iterator[str]:
    if not isinstance(value, tuple | list):
        yield f"{where} holds {value!r}, declared a tuple of {len(args)}"
    elif len(value) != len(args):
        yield f"{where} holds {len(value)} items, declared {len(args)}: {value!r}"
    else:
        for i, (item, kind) in enumerate(zip(value, args, strict=True)):
            yield from _in_value(f"{where[:-1]}.{i}'", item, kind)


def _is_number(value: object) -> typing.TypeGuard[float]:
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def _show(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type | types.GenericAlias) else str(kind)
