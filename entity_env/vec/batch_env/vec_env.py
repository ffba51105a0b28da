"""BatchVecEnv: a batch environment as a `VecEnv`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from entity_env.core.vec_env_base import Autoreset
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import BatchSource, made_or_factory, require_made
from entity_env.vec.batch_env.stepper import BatchEnvStepper
from entity_env.vec.vec_env import VecEnv


class BatchVecEnv(VecEnv):
    """Steps a batch environment as a `VecEnv`, for use with all trainers and tools.

    Environment i is row i of the batch environment; it shows `num_entities` entities of one type,
    and optional global features. Without workers, `features` and `reward` are the batch
    environment's own arrays where possible, not copies. Everything else is as for `VecEnv`:
    autoreset, last observations in `final`, `reset_envs`, `send` and `recv`, workers, errors.

    Environment i starts a sequence of episodes from its seed in `BatchEnv.env_seeds`, or, in a
    reset with `starts`, from the seed of environment `starts[i]`. Its episodes report that seed and
    their index in the sequence; a batch of one with that seed repeats them. With "next_step" every
    other episode is skipped, because a batch steps all environments or none, including those that
    should show their first observation. From its second episode on, an environment therefore plays
    different episodes than in the other modes.

        with BatchVecEnv(CartPole(4096)) as vec: ...
        with BatchVecEnv(CartPole, 4096, num_workers=2) as vec: ...

    Args:
        source: a batch environment, closed by this object; or its class, or any function that takes
            a number of environments and returns a batch of that size.
        num_envs: None = the number of copies of `source`, if that is a batch environment.
        num_workers: number of processes, each with a batch environment for its share; 0 = in this
            process. Does not change results.
        seed: of the run.
        autoreset: see `Autoreset`.
        step_timeout_s, start_method: as for `VecEnv`.

    Raises:
        UsageError: an invalid number or mode, or workers with an object instead of a class or
            function.
        SchemaError: `source` is not a batch environment and does not make one, or its spaces are
            not one entity type and one action.
        WorkerError: a worker could not be started.
    """

    def __init__(
        self,
        source: BatchEnv | Callable[[int], BatchEnv],
        num_envs: int | None = None,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        step_timeout_s: float | None = None,
        start_method: str | None = None,
    ) -> None:
        make, num_envs = made_or_factory(
            source,
            num_envs,
            num_workers,
            BatchEnv,  # type: ignore[type-abstract]  # used only for isinstance
            "BatchVecEnv",
        )
        super().__init__(
            BatchEnvSource(make),
            num_envs,
            num_workers,
            seed=seed,
            autoreset=autoreset,
            step_timeout_s=step_timeout_s,
            start_method=start_method,
        )


@dataclass(frozen=True)
class BatchEnvSource(BatchSource):
    """Source of batch environments: a class, or a function of the number of environments."""

    factory: Callable[[int], BatchEnv]

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> BatchEnvStepper:
        env = require_made(
            self.factory,
            len(envs),
            BatchEnv,  # type: ignore[type-abstract]
            "BatchVecEnv",
        )
        return BatchEnvStepper(env, autoreset, first_env=envs.start)
