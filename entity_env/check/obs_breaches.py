"""Everything that is wrong with the entities that a game shows, in words.

Featurizing reads what the fields of a class declare, and nothing else: a tuple may be longer than
declared, an Enum field may hold a stranger. Looking at each value would cost more than the game.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Final

import numpy as np

from entity_env.authoring.entity_type import declared_fields
from entity_env.authoring.obs import Obs, Rows
from entity_env.authoring.schema import Schema

_MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
# Looking at the annotations of a class takes 20 µs, more than all of its values.
_fields_of = cache(declared_fields)


def obs_breaches(obs: Obs, schema: Schema) -> list[str]:
    """Every value in the entities and global features that their class does not declare."""
    shown = [entity for group in obs.groups if not isinstance(group, Rows) for entity in group]
    if obs.global_features is not None:
        shown.append(obs.global_features)
    declared = {*schema.index_of, *([schema.globals.cls] if schema.globals else [])}
    return [breach for entity in shown for breach in _in_entity(entity, declared, schema)]


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
    """Whether a number is one of float32; NaN is none. As a Python float: numpy's warn and wrap."""
    try:
        return abs(float(value)) <= _MAX_FLOAT32  # type: ignore[arg-type]  # `_is_number` was asked
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
