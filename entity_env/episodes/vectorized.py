"""`EpisodeVec`: an `EpisodeEnv` of many environments."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.episodes.episode_env import EpisodeEnv, Step, record_of
from entity_env.episodes.record import Record
from entity_env.errors import UsageError
from entity_env.vec.options import Source
from entity_env.vec.vec_env import VecEnv

_Any = TypeVar("_Any")


class ResettableVec(VecEnvironment, Protocol):
    """`VecEnvironment` with `reset_envs`, as `VecEnv` with autoreset "disabled"."""

    @property
    def num_envs(self) -> int:
        """Number of environments."""

    @property
    def autoreset(self) -> Autoreset:
        """Mode of resets, as for `VecEnv`."""

    def reset_envs(self, mask: NDArray[np.bool_], seed: int | None = None) -> VecObs:
        """Begins a new episode where the mask is True."""


@dataclass(frozen=True)
class Copies:
    """Configuration of an `EpisodeVec`; arguments as for `VecEnv`."""

    source: Source
    num_envs: int
    num_workers: int = 0


class EpisodeVec(EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]):
    """`EpisodeEnv` of many environments; one whose episode has ended waits for its reset.

    Observations are views, valid until the next call, except a `Step.obs` with an `init_obs`,
    which is a copy. Rewards, flags and records are copies.

    Args:
        vec: with autoreset "disabled" and one agent per environment; owned and closed by this
            object.
        seed: of the starts, in place of the seed of `vec`. Start `ix` is
            `vec.reset(seed=EpisodeSeeds(seed)[ix])`; an environment that is reset alone takes the
            next episode of its own run.

    Raises:
        UsageError: a seed that is no integer, or negative; or a `vec` with autoreset or several
            agents.
    """

    def __init__(self, vec: ResettableVec, seed: int = 0) -> None:
        self._seeds = EpisodeSeeds(checked_seed(seed))
        autoreset = getattr(vec, "autoreset", None)
        if autoreset != "disabled":
            has = f' with "{autoreset}"' if autoreset else ', which has no "disabled"'
            raise UsageError(
                f'an EpisodeEnv needs a VecEnv with autoreset="disabled": got a '
                f"{type(vec).__name__}{has}"
            )
        if vec.num_rows != vec.num_envs:
            raise UsageError(
                f"an EpisodeEnv needs one agent per environment, this {type(vec).__name__} has "
                f"{vec.num_rows} rows for {vec.num_envs} environments"
            )
        self._vec = vec
        self._index = -1
        """Of the last start."""

    @classmethod
    def build(cls, config: Copies, seed: int) -> Self:
        """`EpisodeEnv.build`; raises as `VecEnv`, and UsageError for a game for several agents."""
        return cls.of_copies(config.source, config.num_envs, config.num_workers, seed)

    @classmethod
    def of_copies(cls, source: Source, num_envs: int, num_workers: int, seed: int) -> Self:
        """See `build`."""
        vec = VecEnv(source, num_envs, num_workers, seed=seed, autoreset="disabled")
        try:
            return cls(vec, seed)
        except BaseException:
            vec.close()
            raise

    def reset(self, is_done: NDArray[np.bool_] | None = None) -> VecObs:
        if is_done is None:
            return self.reset_with_index(self._index + 1)
        return self._vec.reset_envs(is_done)

    def reset_with_index(self, ix: int) -> VecObs:
        index = checked_count("the index of a start", ix, 0)
        obs = self._vec.reset(seed=self._seeds[index])
        self._index = index
        return obs

    def step(
        self, act: VecActions
    ) -> tuple[Step[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]], Record]:
        obs = self._vec.act(act)
        metrics = {f"metrics/{name}": metric.mean for name, metric in obs.metrics.items()}
        record = Record(metrics)
        info: dict[str, object] = {}
        if obs.episodes:
            info["episodes"] = tuple(obs.episodes)
            record = record.merge(record_of(obs.episodes))
        step = Step(
            act=act,
            obs=obs,
            reward=obs.reward.copy(),
            is_terminated=obs.terminated.copy(),
            is_truncated=obs.truncated.copy(),
            info=info,
        )
        return step, record

    def close(self) -> None:
        self._vec.close()

    def _kept(self, obs: VecObs) -> VecObs:
        return _copied(obs)


def _copied(value: _Any) -> _Any:
    """A deep copy of arrays in dicts, dataclasses and ragged arrays."""
    copied: Any = value
    if isinstance(value, np.ndarray):
        copied = value.copy()
    elif isinstance(value, RaggedArray):
        copied = RaggedArray.unchecked(value.values.copy(), value.lengths.copy())
    elif isinstance(value, dict):
        copied = {name: _copied(each) for name, each in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        copied = replace(value, **{f.name: _copied(getattr(value, f.name)) for f in fields(value)})
    result: _Any = copied
    return result
