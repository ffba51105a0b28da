"""The moves of a whole batch: checked all at once, before any snake moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.games.multi_snake import MOVE, Move
from entity_env.ragged import RaggedArray
from entity_env.vec_obs import VecActions

_NAME: Final = MOVE.name
_NUM_MOVES: Final = len(Move)


def checked_moves(
    actions: VecActions, num_actors: NDArray[np.int64], total: int
) -> NDArray[np.int64]:
    """One move for every actor, in order; an array of their own, unless they come as one of int64.

    Args:
        actions: what the caller chose.
        num_actors: `(num_envs,)`, actors of each environment.
        total: their sum.

    Raises:
        SchemaError: another action, another number of values, another dtype, or a value that is no
            index of a move.
    """
    if not isinstance(actions, Mapping):
        raise SchemaError(
            f"actions must be a mapping from the name of each action to its values, one an actor: "
            f"got a {type(actions).__name__}"
        )
    for name in actions:
        if name != _NAME:
            raise SchemaError(f"action {name!r} is not in the action space, which has {_NAME}")
    given = actions.get(_NAME)
    if given is None and total:
        raise SchemaError(
            f"action {_NAME!r} is missing: {total} actors wait for it, the first in "
            f"env {np.flatnonzero(num_actors)[0]}"
        )
    values = _values(() if given is None else given, num_actors)
    if values.ndim == 0 or len(values) != total:
        came = "a single number" if values.ndim == 0 else str(len(values))
        raise SchemaError(f"action {_NAME!r} needs {total} values, one an actor: got {came}")
    if not total:
        return np.zeros(0, dtype=np.int64)
    if values.dtype.kind not in "iu":
        raise SchemaError(f"action {_NAME!r} needs integers, got {values.dtype}")
    if values.ndim != 1:
        raise SchemaError(
            f"action {_NAME!r} needs the shape ({total},), one value an actor: got {values.shape}"
        )
    # As an unsigned number a negative one is large, so that one look is enough.
    unsigned = values.view(np.uint64) if values.dtype == np.int64 else values
    if unsigned.max() >= _NUM_MOVES or (unsigned.dtype.kind == "i" and values.min() < 0):
        raise _no_move(values, num_actors)
    return np.ascontiguousarray(values, dtype=np.int64)


def _values(given: object, num_actors: NDArray[np.int64]) -> NDArray[Any]:
    """The values without their raggedness, which must be that of the actors."""
    if not isinstance(given, RaggedArray):
        try:
            return np.asarray(given)
        except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors elsewhere
            raise SchemaError(f"action {_NAME!r} needs an array of values: {error}") from error
    if len(given.lengths) != len(num_actors):
        raise SchemaError(
            f"action {_NAME!r} needs {len(num_actors)} rows, one an agent: got {len(given.lengths)}"
        )
    wrong = np.flatnonzero(given.lengths != num_actors)
    if len(wrong):
        raise SchemaError(
            f"action {_NAME!r}: env {wrong[0]} has {num_actors[wrong[0]]} actors, "
            f"got {given.lengths[wrong[0]]} values"
        )
    values: NDArray[Any] = given.values
    return values


def _no_move(values: NDArray[Any], num_actors: NDArray[np.int64]) -> SchemaError:
    """Names the first value that is no move, and where it is."""
    i = int(np.flatnonzero((values < 0) | (values >= _NUM_MOVES))[0])
    ends = np.cumsum(num_actors)
    env_id = int(np.searchsorted(ends, i, side="right"))
    actor = i - int(ends[env_id] - num_actors[env_id])
    return SchemaError(
        f"action {_NAME!r}: actor {actor} of env {env_id} chose {values[i]}, "
        f"expected 0 to {_NUM_MOVES - 1}"
    )
