"""BatchSource: factory of batch environments, and checks of their spaces, masks and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import EpisodeSeeds, Run, env_seeds
from entity_env.core.spaces import (
    ActionName,
    CategoricalActionSpace,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_env_base import reset_runs
from entity_env.errors import SchemaError
from entity_env.vec.batch_env.batch_env import BatchEnv


@dataclass(frozen=True, slots=True)
class RowParts:
    """Splits rows of observations into the features of entities, and the global ones after them."""

    num_entities: int
    num_features: int
    num_globals: int

    @property
    def obs_size(self) -> int:
        """Numbers in a row."""
        return self.num_entities * self.num_features + self.num_globals

    @property
    def are_views(self) -> bool:
        """Whether the parts of rows that follow each other are views; else some are copies."""
        return not self.num_globals

    def entities(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows * num_entities, num_features)` float32."""
        own = rows[:, : self.num_entities * self.num_features]
        return own.reshape(len(rows) * self.num_entities, self.num_features)

    def globals(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows, num_globals)` float32."""
        return np.ascontiguousarray(rows[:, self.obs_size - self.num_globals :])


BatchActionSpace: TypeAlias = (
    CategoricalActionSpace | GlobalCategoricalActionSpace | ContinuousActionSpace
)
"""Action spaces that a batch environment can have."""


@dataclass(frozen=True)
class BatchSource:
    """Factory of batch environments: a class, or a function of the number of environments."""

    factory: Callable[[int], BatchEnv]

    def make(self, num_envs: int) -> BatchEnv:
        """Makes a batch; a `SchemaError` if it is no batch environment, or of another size."""
        env: object = self.factory(num_envs)
        if not isinstance(env, BatchEnv) or env.num_envs != num_envs:
            got = f"one of {env.num_envs}" if isinstance(env, BatchEnv) else type(env).__name__
            raise SchemaError(
                f"a BatchVecEnv needs a BatchEnv, or a function that takes a number of "
                f"environments and returns one: {self.factory!r} was called with {num_envs} "
                f"and returned {got}"
            )
        return env


def require_batch_env(env: BatchEnv) -> tuple[EntityName, RowParts, ActionName, BatchActionSpace]:
    """Entity type, parts of the observations, action and action space of a batch environment."""
    name = type(env).__name__
    observed, done = env.obs_space(), env.action_space()
    if len(observed.entities) != 1 or len(done) != 1:
        raise SchemaError(
            f"{name}: a batch environment shows one entity type and asks for one action: got the "
            f"entities {list(observed.entities)} and the actions {list(done)}"
        )
    [(entity, features)], [(action, space)] = observed.entities.items(), done.items()
    num_entities = checked_count("num_entities", env.num_entities)
    parts = RowParts(num_entities, len(features.features), len(observed.global_features))
    if parts.obs_size != env.obs_size:
        many = f" times {num_entities} entities" if num_entities > 1 else ""
        shared = f" and {parts.num_globals} global ones" if parts.num_globals else ""
        raise SchemaError(
            f"{name}: {entity} has {parts.num_features} features{many}{shared}, but obs_size is "
            f"{env.obs_size}"
        )
    if num_entities > 1 and not isinstance(space, GlobalCategoricalActionSpace):
        raise SchemaError(
            f"{name}: action {action!r} must be global, a GlobalCategoricalActionSpace: nothing "
            f"says which of {num_entities} entities acts"
        )
    if isinstance(space, SelectEntityActionSpace):
        raise SchemaError(f"{name}: action {action!r} selects entities, and there is but one")
    if isinstance(space, ContinuousActionSpace) and len(space) != 1:
        raise SchemaError(
            f"{name}: action {action!r} has the labels {list(space.labels)}, but a batch "
            "environment takes one number"
        )
    return entity, parts, action, space


def require_masks(env: BatchEnv, space: BatchActionSpace) -> None:
    """Raises a `SchemaError` for `legal_masks` of another shape or dtype, or of numbers."""
    masks: object = env.legal_masks
    if masks is None:
        return
    name = type(env).__name__
    if isinstance(space, ContinuousActionSpace):
        raise SchemaError(f"{name}: legal_masks must be None for an action of numbers")
    wanted = env.num_envs, len(space)
    got = f"a {type(masks).__name__}"
    if isinstance(masks, np.ndarray):
        if masks.shape == wanted and masks.dtype == np.bool_:
            return
        got = f"{masks.shape} {masks.dtype}"
    raise SchemaError(f"{name}: legal_masks must be {wanted} bool, got {got}")


_LARGEST_START: Final = 2**62 - 1
SEED_BITS: Final = 63
"""Of the largest seed: an `Episode` has it as int64."""


class SequenceSeeds(EpisodeSeeds):
    """Seeds of one environment of a batch, which has one seed for a whole sequence of episodes."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = int(seed)

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
