"""BatchSource: what a `VecEnv` steps as arrays, and the seeds of its sequences of episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, get_args

import numpy as np
from numpy.typing import ArrayLike

from entity_env.core.seeding import EpisodeSeeds, Run, env_seeds
from entity_env.core.validation import checked_seed
from entity_env.core.vec_env_base import Autoreset, reset_runs
from entity_env.vec.process_batch import ProcessBatch


class BatchSource(ABC):
    """Source of a `VecEnv` that steps its environments as arrays; pickled for workers.

    Attributes:
        autoresets: the modes that its environments have.
        has_episode_seeds: every episode has its own seed, as those of a `Game` have; else that of a
            sequence of episodes, which its environment plays.
    """

    autoresets: ClassVar[tuple[Autoreset, ...]] = get_args(Autoreset)
    has_episode_seeds: ClassVar[bool] = False

    @abstractmethod
    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> ProcessBatch:
        """Makes some of the `num_envs` environments of a `VecEnv`."""

    def new_runs(
        self, env_ids: Sequence[int], num_envs: int, seed: int | None, starts: ArrayLike | None
    ) -> dict[int, Run]:
        """New runs of environments that are reset; see `sequence_runs`."""
        return sequence_runs(env_ids, num_envs, seed, starts)


_LARGEST_START: Final = 2**62 - 1
SEED_BITS: Final = 63
"""Of the largest seed: an `Episode` has it as int64."""


class SequenceSeeds(EpisodeSeeds):
    """Seeds of one environment of a batch, which has one seed for a whole sequence of episodes."""

    def __getitem__(self, episode: int) -> int:
        """Seed of the sequence that begins with an episode: another one for every number.

        A sequence cannot begin in its middle: after a process died, a new sequence begins.
        """
        return self.seed if not episode else super().__getitem__(episode)

    def __reduce__(self) -> tuple[type[SequenceSeeds], tuple[int]]:
        """Without the block of seeds: workers get one for each of their environments."""
        return SequenceSeeds, (self.seed,)


def sequence_runs(
    env_ids: Iterable[int], num_envs: int, seed: int | None, starts: ArrayLike | None
) -> dict[int, Run]:
    """As `reset_runs`, but every environment begins a sequence, and has its seed of `env_seeds`.

    With `starts` environment i has the seed of environment `starts[i]`.
    """
    env_ids = list(env_ids)
    reset_runs((), num_envs, seed, starts)  # raises for arguments that are not valid
    if seed is None:
        return {}
    numbers = np.arange(num_envs)
    if starts is not None:
        numbers = np.asarray(starts).astype(np.int64) & _LARGEST_START
    seeds = env_seeds(checked_seed(seed, bits=SEED_BITS), numbers).tolist()
    return {i: (SequenceSeeds(seeds[i]), 0) for i in env_ids}
