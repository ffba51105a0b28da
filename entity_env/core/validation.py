"""New."""

from __future__ import annotations

import reprlib
import sys
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
)
from entity_env.errors import SchemaError, UsageError


def of_selectors(
    mask: object, num_actors: int, num_actees: int, action: ActionName
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Who of the actors of a select action has a target, and what those may select.

    Args:
        mask: what the author gave; None allows everything.
        num_actors, num_actees: how many entities that is.
        action: which action, for errors.

    Returns:
        `(num_actors,)` bool, None when all have one; and the mask of those that have, with one row
        each, None when it allows everything.

    Raises:
        SchemaError: a mask of another shape, or values other than bools.
    """
    if mask is None:
        return (None if num_actees else np.zeros(num_actors, dtype=np.bool_)), None
    allowed = as_mask(mask, (num_actors, num_actees), action, may_block=True)
    has_target = np.asarray(allowed.any(axis=1))
    if has_target.all():
        return None, allowed
    return has_target, allowed[has_target]


def as_mask(
    mask: object, shape: tuple[int, int], action: ActionName, *, may_block: bool = False
) -> NDArray[np.bool_]:
    """Checks a mask of any dtype that holds only zeros and ones; a single row may be 1-D.

    Args:
        mask: what the author gave.
        shape: number of actors and of choices.
        action: which action, for errors.
        may_block: a row may allow nothing.

    Raises:
        SchemaError: another shape, other values, or a row that allows nothing.
    """
    try:
        array = np.asarray(mask)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(
            f"the mask of action {action!r} needs the shape (num_actors, num_choices) = {shape}: "
            f"got {mask!r}"
        ) from error
    if array.shape == shape[1:] and shape[0] == 1:
        array = array.reshape(shape)
    if array.shape != shape and not (array.size == 0 and 0 in shape):
        raise SchemaError(
            f"the mask of action {action!r} needs the shape (num_actors, num_choices) = {shape}: "
            f"got {array.shape}"
        )
    array = array.reshape(shape)
    kind = array.dtype.kind
    if kind != "b" and (kind not in "iuf" or not ((array == 0) | (array == 1)).all()):
        raise SchemaError(
            f"the mask of action {action!r} must hold bools (True = allowed), got {array.dtype} "
            f"with {array.reshape(-1)[:8]}"
        )
    allowed = array.astype(np.bool_)
    blocked = np.flatnonzero(~allowed.any(axis=1))
    if len(blocked) and not may_block:
        raise SchemaError(
            f"the mask of action {action!r} leaves actor {blocked[0]} no legal choice: "
            "allow at least one, or do not ask that actor"
        )
    return allowed


def is_number(value: object) -> bool:
    """Tells whether `value` is a real number for `float`: not a text, nor an array of numbers."""
    if isinstance(value, int | float):  # the rest takes longer, and is rare
        return not isinstance(value, int) or abs(value) <= sys.float_info.max
    if isinstance(value, str | bytes | bytearray | complex | np.complexfloating):
        return False
    if getattr(value, "ndim", 0):
        return False
    try:
        float(value)  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def must_be_number(what: str, value: object) -> str:
    """What to say of a value that is none: `what` names it."""
    return f"the {what} must be a number, got {reprlib.repr(value)} ({type(value).__name__})"


def checked_count(name: str, value: int) -> int:
    """A number of things, at least 1.

    Raises:
        UsageError: anything else.
    """
    if not is_integer(value) or value < 1:
        raise UsageError(f"{name} must be an integer, 1 or more: got {value!r}")
    return int(value)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or numpy; bools are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
