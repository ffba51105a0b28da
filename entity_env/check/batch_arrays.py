"""Finds violations in the arrays of a `BatchEnv`, and differences between snapshots of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.check.violations import Snapshot, difference
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchActionSpace, BatchEnv, StepResult
from entity_env.vec.batch_env.batch_spaces import require_masks

OBSERVATION: Final = "the observation"
MASK: Final = "the legal mask"
FLAGS: Final = ("terminals", "truncations")


class Difference(NamedTuple):
    """First difference between two snapshots."""

    text: str
    is_rounding: bool
    """Whether all numbers in the row are nearly equal."""


def misshapen(env: BatchEnv, result: StepResult, space: BatchActionSpace) -> Iterator[str]:
    """Violations: arrays of a wrong type, shape or dtype, including the legal masks."""
    num = env.num_envs
    wanted = {
        "observations": ((num, env.obs_size), np.float32),
        "rewards": ((num,), np.float32),
        "terminals": ((num,), np.uint8),
        "truncations": ((num,), np.uint8),
    }
    for name, (shape, dtype) in wanted.items():
        array: object = getattr(result, name)
        got = f"a {type(array).__name__}"
        if isinstance(array, np.ndarray):
            if array.shape == shape and array.dtype == dtype:
                continue
            got = f"{array.shape} {array.dtype}"
        yield f"{name} must be {shape} {np.dtype(dtype)}, got {got}"
    try:
        require_masks(env, space)
    except SchemaError as error:
        yield str(error)


def arrays_of(env: BatchEnv, result: StepResult, columns: Sequence[str]) -> Snapshot:
    """Copies of the result's arrays and of the legal masks, if any; `columns` are feature names."""
    shown: dict[str, tuple[NDArray[Any], Sequence[str]]] = {
        OBSERVATION: (result.observations.copy(), columns)
    }
    shown |= {name: (getattr(result, name).copy(), ()) for name in ("rewards", *FLAGS)}
    if (masks := env.legal_masks) is not None:
        shown[MASK] = masks.copy(), ()
    return shown


def flags_of(shown: Snapshot) -> NDArray[np.bool_]:
    """`(num_envs,)`: True where the episode has ended."""
    ended: NDArray[np.bool_] = np.any([shown[name][0] != 0 for name in FLAGS], axis=0)
    return ended


def wrong_values(shown: Snapshot) -> Iterator[str]:
    """Violations: invalid flags or numbers, and masks without a legal choice; the first of each."""
    for name in FLAGS:
        flags = shown[name][0]
        for env_id in np.flatnonzero(flags > np.uint8(1))[:1]:
            yield f"{name} of environment {env_id} is {flags[env_id]}, expected 0 or 1"
    observations, columns = shown[OBSERVATION]
    for env_id, column in np.argwhere(~np.isfinite(observations))[:1]:
        value = observations[env_id, column]
        yield (
            f"feature {columns[column]!r} of environment {env_id} is {value}, expected a finite "
            "number that fits float32"
        )
    rewards = shown["rewards"][0]
    for env_id in np.flatnonzero(~np.isfinite(rewards))[:1]:
        yield f"the reward of environment {env_id} is {rewards[env_id]}, expected a finite number"
    if MASK in shown:
        is_empty = ~shown[MASK][0].any(axis=1) & ~flags_of(shown)
        for env_id in np.flatnonzero(is_empty)[:1]:
            yield f"legal_masks allows no choice in environment {env_id}, which has not ended"


def first_difference(
    one: Snapshot, two: Snapshot, rows: Sequence[int] | NDArray[np.int64], names: Sequence[int] = ()
) -> Difference | None:
    """Difference in the first of `rows` in which two snapshots differ, or None.

    `names`: the environment to name for each row; default: the row itself.
    """
    if difference(_rows(one, rows), _rows(two, rows)) is None:
        return None
    for row in rows:
        if text := difference(_rows(one, [row]), _rows(two, [row])):
            close = all(
                np.allclose(one[part][0][row], two[part][0][row], rtol=1e-4) for part in one
            )
            return Difference(f"environment {names[row] if names else row}: {text}", close)
    return None


def _rows(shown: Snapshot, rows: Sequence[int] | NDArray[np.int64]) -> Snapshot:
    return {part: (array[rows], columns) for part, (array, columns) in shown.items()}
