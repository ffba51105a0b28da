"""Checks of arguments: counts, indices, seeds, masks, choices, and whether numba is installed."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import ActionName
from entity_env.errors import MissingExtraError, SchemaError, UsageError


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


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an `int` or a numpy integer, but not a bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_index(value: object, size: int) -> TypeGuard[int]:
    """Whether a value is an integer from 0 to `size - 1`."""
    return is_integer(value) and 0 <= value < size


def checked_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """An integer from `least` to `most`, or without an upper limit.

    Raises:
        UsageError: anything else.
    """
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f", {least} or more" if most is None else f" from {least} to {most}"
        raise UsageError(f"{name} must be an integer{allowed}: got {value!r}")
    return int(value)


def checked_index(name: str, value: object, size: int) -> int:
    """An integer from 0 to `size - 1`.

    Raises:
        UsageError: anything else.
    """
    if not is_integer(value) or not 0 <= value < size:
        raise UsageError(f"{name} must be an integer from 0 to {size - 1}: got {value!r}")
    return int(value)


def checked_seed(seed: object, *, bits: int | None = None) -> int:
    """A seed: an integer, 0 or more, below `2**bits` if that is given.

    Raises:
        UsageError: anything else.
    """
    if not is_integer(seed) or seed < 0 or (bits is not None and int(seed) >> bits):
        allowed = ", 0 or more" if bits is None else f" from 0 to 2**{bits} - 1"
        raise UsageError(f"a seed must be an integer{allowed}: got {seed!r}")
    return int(seed)


def checked_mask(mask: object, num_envs: int) -> NDArray[np.bool_]:
    """A reset mask as an array, `(num_envs,) bool`; True = reset.

    Raises:
        SchemaError: another shape or dtype.
    """
    try:
        array = np.asarray(mask)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(f"mask needs one bool per environment: {error}") from error
    if array.shape != (num_envs,) or array.dtype != np.bool_:
        raise SchemaError(
            f"mask needs the shape ({num_envs},) and bools: got {array.shape} {array.dtype}"
        )
    return array


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Checks that a setting is one of a few texts.

    Raises:
        UsageError: it is not.
    """
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


@cache
def has_numba() -> bool:
    """Whether numba is installed; does not import it."""
    return find_spec("numba") is not None


def uses_numba(owner: str, backend: str, choices: Sequence[str]) -> bool:
    """Whether a backend is compiled: "numba" is, "auto" is where numba is installed.

    Args:
        owner: class or function with the argument `backend`, for errors.
        backend, choices: the argument and its allowed values.

    Raises:
        UsageError: no such backend.
        MissingExtraError: "numba" where numba is not installed.
    """
    require_choice(f"{owner}: backend", backend, choices)
    if backend == "numba" and not has_numba():
        raise MissingExtraError("numba", "fast", f'{owner}(backend="numba")')
    return backend in ("auto", "numba") and has_numba()
