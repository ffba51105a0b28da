"""EpisodeVec: many environments whose episodes the caller begins."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.episodes.episode_env import EpisodeEnv, Step, record_of, require_index
from entity_env.episodes.record import Record
from entity_env.errors import UsageError
from entity_env.vec.backend import Source
from entity_env.vec.vec_env import VecEnv

_Any = TypeVar("_Any")


class ResettableVec(VecEnvironment, Protocol):
    """Many environments that wait for their resets; see `VecEnv` with autoreset "disabled"."""

    @property
    def num_envs(self) -> int:
        """How many environments."""

    @property
    def autoreset(self) -> Autoreset:
        """What happens to ended episodes."""

    def reset_envs(self, mask: NDArray[np.bool_], seed: int | None = None) -> VecObs:
        """Begins a new episode in the chosen environments."""


@dataclass(frozen=True)
class Copies:
    """What an `EpisodeVec` is built of.

    Args:
        source: a game for one agent, a class of environments, or a function that returns one.
        num_envs: how many copies.
        num_workers: processes that share them; 0 = in this process.
    """

    source: Source
    num_envs: int
    num_workers: int = 0


class EpisodeVec(EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]):
    """Steps many environments at once; one that is over waits for its reset.

    Observations are views that stay valid until the next call, but for `Step.obs` beside an
    `init_obs`, which is a copy. Rewards, flags and records are the caller's own.

    Args:
        vec: what to step, with autoreset "disabled" and one agent an environment; this object
            closes it.
        seed: decides the starts, in place of the seed that `vec` was made with. The start of
            index `ix` is `vec.reset(seed=EpisodeSeeds(seed)[ix])`: every environment begins a run
            of its own, with which it goes on when it is reset alone.

    Raises:
        UsageError: a seed that is no integer, or negative; or a `vec` that resets by itself, or has
            several agents.
    """

    def __init__(self, vec: ResettableVec, seed: int = 0) -> None:
        self._seeds = EpisodeSeeds(seed)
        autoreset = getattr(vec, "autoreset", None)
        if autoreset != "disabled":
            has = f' with "{autoreset}"' if autoreset else ', which has no "disabled"'
            raise UsageError(
                f'an EpisodeEnv needs a VecEnv with autoreset="disabled": got a '
                f"{type(vec).__name__}{has}"
            )
        if vec.num_rows != vec.num_envs:
            raise UsageError(
                f"an EpisodeEnv shows one agent an environment, this {type(vec).__name__} has "
                f"{vec.num_rows} rows for {vec.num_envs} environments"
            )
        self._vec = vec
        self._index = -1
        """Of the start that was taken last."""

    @classmethod
    def build(cls, config: Copies, seed: int) -> Self:
        """New environments.

        Args:
            config: which, and how many.
            seed: decides the starts.

        Raises:
            SchemaError, WorkerError: as `VecEnv`.
            UsageError: as `VecEnv`, and for a game for several agents.
        """
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
        index = require_index(ix)
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
    """A copy whose arrays are its own."""
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
