"""Episodes: the stepped contract, and what is reported of an episode that has ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.episodes.record import Record
from entity_env.episodes.single import EpisodeOfEnvironment
from entity_env.errors import SchemaError, UsageError

if TYPE_CHECKING:
    from entity_env.authoring.game import Game
    from entity_env.core.environment import Environment
    from entity_env.core.observation import Action, Observation
    from entity_env.core.spaces import ActionName
    from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs

    Actions: TypeAlias = Mapping[ActionName, Action]

    OneEnv: TypeAlias = "EpisodeEnv[Observation, Actions, float, bool]"

    ManyEnvs: TypeAlias = "EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]"

    from entity_env.episodes.single import EpisodeOfGame
    from entity_env.episodes.vectorized import EpisodeVec


ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")
RewardT = TypeVar("RewardT", float, NDArray[np.float32])
FlagT = TypeVar("FlagT", bool, NDArray[np.bool_])


@dataclass(frozen=True, slots=True)
class Step(Generic[ObsT, ActT, RewardT, FlagT]):
    """What came of one action.

    Args:
        act: the action.
        obs: what it led to; of an episode that has ended, the last observation.
        reward: what it earned.
        is_terminated: the episode ended by its rules: nothing comes after.
        is_truncated: the episode was cut: `obs` has a future, and a value.
        info: more of it, by name. Our environments tell `episodes`, a tuple of the `Episode`s
            that ended, when there are any.
        init_obs: the first observation of the next episode, after `step_with_reset` and an end.

    With many environments at once `reward` is `(num_envs,)` float32 and both flags are
    `(num_envs,)` bool, arrays of this step's own; otherwise they are a float and bools.
    """

    act: ActT
    obs: ObsT
    reward: RewardT
    is_terminated: FlagT
    is_truncated: FlagT
    info: Mapping[str, object] = field(default_factory=dict)
    init_obs: ObsT | None = None

    def is_done(self) -> FlagT:
        """The episode has ended, by its rules or by a cut."""
        return self.is_terminated | self.is_truncated

    @property
    def next_obs(self) -> ObsT:
        """What the next action answers: `init_obs`, or `obs` when nothing was reset."""
        return self.obs if self.init_obs is None else self.init_obs


class EpisodeEnv(ABC, Generic[ObsT, ActT, RewardT, FlagT]):
    """An environment whose episodes are under the caller's control: it never resets by itself.

    Its starts are a list without end that its seed decides: `reset` takes the next one, and
    `reset_with_index` the one of that index. Subclasses implement `build`, `reset`, `step` and
    `reset_with_index`; `EpisodeEnv.of` makes one of whatever this package can run.

    The type arguments are what is observed, what is done, and whether rewards and flags are those
    of one environment, `float` and `bool`, or of many, `NDArray[np.float32]` and
    `NDArray[np.bool_]`. With many, an environment that is over waits for its reset.
    """

    @classmethod
    @abstractmethod
    def build(cls, config: Any, seed: int) -> Self:  # noqa: ANN401 - every class has its own
        """A new environment.

        Args:
            config: what to make; each class says of which type.
            seed: decides the starts.

        Raises:
            UsageError: a seed that is no integer, or negative.
        """

    @abstractmethod
    def reset(self, is_done: FlagT | None = None) -> ObsT:
        """Begins the next episode, and returns its first observation.

        Args:
            is_done: only where this is true; what is played elsewhere goes on, and shows once more
                what it showed last. None = everywhere, also in the middle of an episode.

        Raises:
            ClosedError: after `close`.
            ProtocolError: `is_done` was given before the first reset.
            SchemaError: flags of another kind, shape or dtype.
        """

    @abstractmethod
    def step(self, act: ActT) -> tuple[Step[ObsT, ActT, RewardT, FlagT], Record]:
        """Performs an action.

        Returns:
            What came of it, and numbers worth writing down: our environments give `metrics/NAME`
            for whatever a game tells, and `episode/reward`, `episode/length` and `episode/count`
            of the episodes that have ended, the first two as means.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or after the end of an episode.
            SchemaError: an action that does not fit; nothing has happened then.
        """

    @abstractmethod
    def reset_with_index(self, ix: int) -> ObsT:
        """Begins the episode that has the start of that index, everywhere.

        It is the same in every environment of the same source and seed, whatever was played
        before, so that several agents can meet the same starts. `reset` goes on with `ix + 1`.

        Args:
            ix: 0 or more.

        Raises:
            ClosedError: after `close`.
            ProtocolError: the source takes no seed, so that its starts cannot be chosen.
            UsageError: an index that is no integer, or negative.
        """

    def step_with_reset(self, act: ActT) -> tuple[Step[ObsT, ActT, RewardT, FlagT], Record]:
        """Performs an action, and begins the next episode wherever one ended.

        Then `init_obs` holds the first observation of the next one, while `obs` stays the last one
        of the old; with many environments `init_obs` shows all of them, those that go on as in
        `obs`. The next action answers `step.next_obs`.

        Raises:
            ClosedError, ProtocolError, SchemaError: as `step`.
        """
        step, record = self.step(act)
        is_done = step.is_done()
        if np.any(is_done):
            last = self._kept(step.obs)
            step = replace(step, obs=last, init_obs=self.reset(is_done))
        return step, record

    def close(self) -> None:
        """Releases what the environment holds; may be called twice."""

    def _kept(self, obs: ObsT) -> ObsT:
        """The observation in a form that a reset leaves as it is; for those who return views."""
        return obs

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    @staticmethod
    def of(source: Game | Environment | Callable[[], Environment], *, seed: int = 0) -> OneEnv: ...

    @overload
    @staticmethod
    def of(
        source: Game | Callable[[], Environment],
        *,
        num_envs: int,
        num_workers: int = 0,
        seed: int = 0,
    ) -> ManyEnvs: ...

    @overload
    @staticmethod
    def of(source: VecEnvironment, *, seed: int = 0) -> ManyEnvs: ...

    @staticmethod
    def of(
        source: Game | Environment | Callable[[], Environment] | VecEnvironment,
        *,
        num_envs: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> OneEnv | ManyEnvs:
        """An `EpisodeEnv` of a game, an environment, or many of them.

        Args:
            source: a game for one agent, an `Environment`, a class of such, or a function that
                returns one; or a `VecEnv`, or its like, with autoreset "disabled". An object that
                is handed in belongs to the result from then on, which closes it.
            num_envs: how many copies to step at once; None = one, without arrays around it.
            num_workers: processes that share them; 0 = in this process.
            seed: decides the starts. The start of index `ix` of one game or environment has the
                seed `EpisodeSeeds(seed)[ix]`, as episode `ix` of `Game.run(seed=seed)`; the one of
                many is `VecEnv.reset(seed=EpisodeSeeds(seed)[ix])`.

        Raises:
            SchemaError: `source` is nothing that can be run.
            UsageError: a seed or number that makes no sense, a game for several agents, one
                object to make many of, or a `VecEnv` that resets by itself.
        """
        from entity_env.episodes.base import episode_env_of

        return episode_env_of(source, num_envs, num_workers, seed)


# By name, and only when asked for: the contract does not know of agents and vec.
_OF_GAME: Final = "entity_env.episodes.single:EpisodeOfGame"
_OF_MANY: Final = "entity_env.episodes.vectorized:EpisodeVec"


def episode_env_of(
    source: object, num_envs: int | None, num_workers: int, seed: int
) -> OneEnv | ManyEnvs:
    """See `EpisodeEnv.of`."""
    if num_envs is None and num_workers:
        raise UsageError(f"num_workers={num_workers} needs num_envs: how many environments")
    if _is_vec(source):
        return _of_vec(source, num_envs, seed)
    if isinstance(source, Environment):
        return _of_environment(source, num_envs, seed)
    if not isinstance(source, Game) and not callable(source):
        raise SchemaError(
            "an EpisodeEnv needs a Game, an Environment, its class or a function that returns one, "
            f"or a VecEnv: got {source!r}"
        )
    if num_envs is not None:
        of_many: type[EpisodeVec] = resolve_name(_OF_MANY)
        return of_many.of_copies(source, num_envs, num_workers, seed)
    if isinstance(source, Game):
        of_game: type[EpisodeOfGame] = resolve_name(_OF_GAME)
        return of_game(source, seed)
    return EpisodeOfEnvironment.build(source, seed)


def _of_vec(source: Any, num_envs: int | None, seed: int) -> ManyEnvs:  # noqa: ANN401 - checked
    if num_envs is not None:
        raise UsageError(f"{type(source).__name__} has its number of environments: leave it out")
    of_many: type[EpisodeVec] = resolve_name(_OF_MANY)
    return of_many(source, seed)


def _of_environment(env: Environment, num_envs: int | None, seed: int) -> OneEnv:
    if num_envs is not None:
        raise UsageError(
            f"num_envs={num_envs} needs a game, or a class or function that makes environments: "
            f"got one {type(env).__name__} object"
        )
    return EpisodeOfEnvironment(env, seed)


def _is_vec(source: object) -> bool:
    return not isinstance(source, type) and all(
        hasattr(source, name) for name in ("num_rows", "reset", "act", "send", "recv")
    )
