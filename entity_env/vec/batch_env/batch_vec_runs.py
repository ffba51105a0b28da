"""Which sequence of episodes each environment of a batch begins, by seeds that count up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.errors import UsageError
from entity_env.vec.reset_seeds import new_runs

_NUM_SEEDS: Final = 2**63
"""Episodes tell their seed in 64 bits with a sign."""


class SequenceSeeds(EpisodeSeeds):
    """The seeds of one environment of a batch, which has one for a whole sequence of episodes.

    Args:
        seed: of the sequence, from its first episode on.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = int(seed)

    def __getitem__(self, episode: int) -> int:
        """Seed of the sequence that begins with an episode: another one for every number.

        Nobody can begin in the middle of a sequence. Who must go on elsewhere, after a process
        died, begins a sequence of its own.
        """
        return self.seed if not episode else super().__getitem__(episode)

    def __reduce__(self) -> tuple[type[SequenceSeeds], tuple[int]]:
        """Workers are sent one for each of their environments."""
        return SequenceSeeds, (self.seed,)


def sequence_runs(
    env_ids: Iterable[int], num_envs: int, seed: int | None, starts: ArrayLike | None
) -> dict[int, Run]:
    """The runs that environments of a batch begin; none where they go on with their sequence.

    Args:
        env_ids: the environments that are reset.
        num_envs: how many there are.
        seed: environment i begins the sequence `seed + i`; None = it goes on with its own.
        starts: `(num_envs,)` integers: environment i begins the sequence `seed + starts[i]`.

    Raises:
        SchemaError: starts of another shape or dtype, or negative.
        UsageError: starts without a seed, or a seed that is no integer, negative or too large.
    """
    env_ids = list(env_ids)
    new_runs((), num_envs, seed, starts)  # refuses what makes no sense
    if seed is None:
        return {}
    offsets = np.arange(num_envs) if starts is None else np.asarray(starts)
    require_seed(seed, int(offsets.max()) + 1)
    return {i: (SequenceSeeds(int(seed) + int(offsets[i])), 0) for i in env_ids}


def require_seed(seed: int, num_seeds: int) -> None:
    """Checks a seed that is an integer, and those that follow it.

    Raises:
        UsageError: they are too large.
    """
    if int(seed) + num_seeds > _NUM_SEEDS:
        raise UsageError(
            f"a seed must be at most 2**63 - {num_seeds}, for {num_seeds} sequences that begin at "
            f"it: got {seed}"
        )
