"""Seeds of episodes, derived from one seed of a run."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import UsageError

_BLOCK: Final = 64
_NO_SEEDS: Final[NDArray[np.uint64]] = np.zeros(0, dtype=np.uint64)


class EpisodeSeeds:
    """The seeds of one environment's episodes, by number.

    The seed of episode `n` depends on the seed of the run, the index of the environment and `n`
    alone, whatever happened before. Made in blocks, since a `SeedSequence` takes 15 µs to set up.

    Args:
        seed: seed of the run, 0 or more.
        env_id: index of the environment.

    Raises:
        UsageError: a seed that is no integer, or negative.
    """

    def __init__(self, seed: int, env_id: int = 0) -> None:
        if not _is_seed(seed):
            raise UsageError(f"a seed must be an integer, 0 or more: got {seed!r}")
        self._seed = seed
        self._env_id = env_id
        self._block = -1
        self._seeds = _NO_SEEDS

    def __getitem__(self, episode: int) -> int:
        """Seed of an episode, `0 <= seed < 2**63`."""
        block, index = divmod(episode, _BLOCK)
        if block != self._block:
            sequence = np.random.SeedSequence(self._seed, spawn_key=(self._env_id, block))
            self._seeds = sequence.generate_state(_BLOCK, np.uint64) >> np.uint64(1)
            self._block = block
        return int(self._seeds[index])


Run: TypeAlias = tuple[EpisodeSeeds, int]
"""A run of episodes: their seeds, and the number of the one that comes next."""


def _is_seed(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0
