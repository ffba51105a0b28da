"""Which environments begin new episodes, and of which runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.validation import checked_mask
from entity_env.errors import SchemaError, UsageError


def chosen_envs(mask: NDArray[np.bool_] | Sequence[bool], num_envs: int) -> list[int]:
    """The environments that a mask is true for.

    Raises:
        SchemaError: a mask of another shape or dtype.
    """
    return np.flatnonzero(checked_mask(mask, num_envs)).tolist()


def new_runs(
    env_ids: Iterable[int], num_envs: int, seed: int | None, starts: ArrayLike | None
) -> dict[int, Run]:
    """The runs that environments begin; none where they go on with the one that they have.

    Args:
        env_ids: the environments that are reset.
        num_envs: how many there are.
        seed: of the new runs; None = none are new.
        starts: `(num_envs,)` integers: begin with this episode of the run that environment 0 has,
            so that equal starts are equal episodes. None = with the first one of a run of its own.

    Raises:
        SchemaError: starts of another shape or dtype, or negative.
        UsageError: starts without a seed, or a seed that is no integer, or negative.
    """
    if seed is None:
        if starts is not None:
            raise UsageError("starts are those of a seed: give it as well")
        return {}
    seeds = EpisodeSeeds(seed)  # refuses a bad one, also when nobody is reset
    if starts is None:
        return {env_id: (EpisodeSeeds(seed, env_id), 0) for env_id in env_ids}
    try:
        numbers = np.asarray(starts)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(f"starts needs one integer per environment: {error}") from error
    if numbers.shape != (num_envs,) or numbers.dtype.kind not in "iu" or numbers.min() < 0:
        raise SchemaError(
            f"starts needs the shape ({num_envs},) and integers, 0 or more: got {numbers.shape} "
            f"{numbers.dtype}" + (f", {numbers.min()}" if numbers.dtype.kind == "i" else "")
        )
    return {env_id: (seeds, int(numbers[env_id])) for env_id in env_ids}
