"""BatchSource: environments that a `VecEnv` steps as arrays, and their sequence seeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_env_base import Autoreset, env_seeds, reset_runs
from entity_env.errors import SchemaError, UsageError
from entity_env.vec.process_batch import ProcessBatch


class BatchSource(ABC):
    """`VecEnv` source of environments that are stepped as arrays; pickled for workers.

    Attributes:
        autoresets: supported autoreset modes.
        has_episode_seeds: True = every episode has its own seed, as in a `Game`; False = an episode
            has the seed of its environment's sequence of episodes.
    """

    autoresets: ClassVar[tuple[Autoreset, ...]] = get_args(Autoreset)
    has_episode_seeds: ClassVar[bool] = False

    @abstractmethod
    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> ProcessBatch:
        """Makes some of the `num_envs` environments of a `VecEnv`."""

    def new_runs(
        self, env_ids: Sequence[int], num_envs: int, seed: int | None, starts: ArrayLike | None
    ) -> dict[int, Run]:
        """The runs to start, from `reset_runs` if `has_episode_seeds`, else `sequence_runs`."""
        make = reset_runs if self.has_episode_seeds else sequence_runs
        return make(env_ids, num_envs, seed, starts)


_LARGEST_START: Final = 2**62 - 1
SEED_BITS: Final = 63
"""Bits of the largest seed, which `Episode` stores as int64."""


class SequenceSeeds(EpisodeSeeds):
    """Seeds of an environment in a batch, which has one seed per sequence of episodes."""

    def __getitem__(self, episode: int) -> int:
        """Seed of the sequence that starts at an episode; different for every episode index.

        A sequence cannot start in the middle, so an environment whose process died starts a new
        sequence with this seed.
        """
        return self.seed if not episode else super().__getitem__(episode)

    def __reduce__(self) -> tuple[type[SequenceSeeds], tuple[int]]:
        """Omits the block of seeds: workers get one object per environment."""
        return SequenceSeeds, (self.seed,)


def sequence_runs(
    env_ids: Iterable[int],
    num_envs: int,
    seed: int | None,
    starts: ArrayLike | None,
    seeds_of: Callable[[int, NDArray[np.int64]], NDArray[np.uint64]] = env_seeds,
) -> dict[int, Run]:
    """Like `reset_runs`, but every environment starts a sequence, with its seed from `seeds_of`.

    With `starts`, environment i has the seed of environment `starts[i]`.
    """
    env_ids = list(env_ids)
    reset_runs((), num_envs, seed, starts)  # raises for invalid arguments
    if seed is None:
        return {}
    numbers = np.arange(num_envs)
    if starts is not None:
        numbers = np.asarray(starts).astype(np.int64) & _LARGEST_START
    seeds = seeds_of(checked_seed(seed, bits=SEED_BITS), numbers).tolist()
    return {i: (SequenceSeeds(seeds[i]), 0) for i in env_ids}


class HasEnvs(Protocol):
    """Object with a number of environments."""

    @property
    def num_envs(self) -> int:
        """Number of environments."""


Made = TypeVar("Made", bound=HasEnvs)


def made_or_factory(
    source: Made | Callable[[int], Made],
    num_envs: int | None,
    num_workers: int,
    kind: type[Made],
    user: str,
) -> tuple[Callable[[int], Made], int]:
    """Factory of environments, and their number.

    Args:
        source: an object of `kind`, or a function that takes a number of environments.
        num_envs: None = the object's number.
        kind: class of the environments.
        user: name of the stepping class, for messages.

    Raises:
        SchemaError: `source` is neither.
        UsageError: workers for an object, a number that differs from the object's, or no number for
            a function.
    """
    if isinstance(source, kind):
        made: Made = source
        if num_workers:
            raise UsageError(
                f"a {kind.__name__} that was made already cannot be split over workers: pass a "
                f"function that makes it, as {user}(make, {made.num_envs}, "
                f"num_workers={num_workers})"
            )
        if num_envs not in (None, made.num_envs):
            raise UsageError(f"num_envs must be None or {made.num_envs}, as made; got {num_envs}")
        return lambda _: made, made.num_envs
    if not callable(source):
        raise SchemaError(
            f"a {user} needs a {kind.__name__}, or a function that takes a number of environments "
            f"and returns one: got {source!r}"
        )
    if num_envs is None:
        raise UsageError("num_envs is missing: pass the number of environments to make")
    return source, checked_count("num_envs", num_envs)


def require_made(
    factory: Callable[[int], Made], num_envs: int, kind: type[Made], user: str
) -> Made:
    """Calls a factory of environments; raises `SchemaError` for a wrong kind or number."""
    made: object = factory(num_envs)
    if not isinstance(made, kind) or made.num_envs != num_envs:
        got = f"one of {made.num_envs}" if isinstance(made, kind) else type(made).__name__
        raise SchemaError(
            f"a {user} needs a {kind.__name__}, or a function that takes a number of environments "
            f"and returns one: {factory!r} was called with {num_envs} and returned {got}"
        )
    return made
