"""`EpisodeEnv`: one or many environments without automatic resets; `Step`, a transition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import refuse_exit
from entity_env.core.action_request import chosen_values, questions
from entity_env.core.environment import Environment
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_count, checked_seed, parameters_of, plain_number
from entity_env.core.vec_env_base import VEC_ENV_MAKERS, Autoreset
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.episodes.record import Record
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError

if TYPE_CHECKING:
    from entity_env.vec.options import Source

Actions: TypeAlias = Mapping[ActionName, Action]
OneEnv: TypeAlias = "EpisodeEnv[Observation, Actions, float, bool]"
ManyEnvs: TypeAlias = "EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]"

ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")
RewardT = TypeVar("RewardT", float, NDArray[np.float32])
FlagT = TypeVar("FlagT", bool, NDArray[np.bool_])


@dataclass(frozen=True, slots=True)
class Step(Generic[ObsT, ActT, RewardT, FlagT]):
    """One transition.

    Rewards and flags are copies; the environment defines how long observations are valid.

    Args:
        act: the action.
        obs: the observation after the action; the final observation if an episode has ended.
        reward: a float; `(num_envs,) float32` for many environments.
        is_terminated: the episode ended by its rules; a bool, or `(num_envs,) bool`.
        is_truncated: the episode was truncated, so `obs` still has a value; type as above.
        info: further values. `episodes` is a tuple of the `Episode`s that ended, if any.
        init_obs: first observation of the next episode, if `step_with_reset` ended an episode.
    """

    act: ActT
    obs: ObsT
    reward: RewardT
    is_terminated: FlagT
    is_truncated: FlagT
    info: Mapping[str, object] = field(default_factory=dict)
    init_obs: ObsT | None = None

    def is_done(self) -> FlagT:
        """Whether the episode was terminated or truncated."""
        return self.is_terminated | self.is_truncated

    @property
    def next_obs(self) -> ObsT:
        """Observation to act on: `init_obs`, or `obs` if nothing was reset."""
        return self.obs if self.init_obs is None else self.init_obs


class EpisodeEnv(ABC, Generic[ObsT, ActT, RewardT, FlagT]):
    """Base class of environments that only the caller resets.

    The seed determines an endless list of episode starts: `reset` uses the next one,
    `reset_with_index` the one with a given index. Subclasses implement `build`, `reset`, `step` and
    `reset_with_index`; `EpisodeEnv.of` wraps anything that this package can run.

    Type arguments: observation, action, reward and flag; the last two are `float` and `bool` for
    one environment, `NDArray[np.float32]` and `NDArray[np.bool_]` for many. With many, an
    environment whose episode has ended waits for its reset.
    """

    @classmethod
    @abstractmethod
    def build(cls, config: Any, seed: int) -> Self:  # noqa: ANN401 - each class has its own type
        """Makes an environment; on `EpisodeEnv` itself, same as `of(config, seed=seed)`.

        Args:
            config: its type depends on the class.
            seed: seed of the starts, 0 or more.

        Raises:
            UsageError: a seed that is negative or not an integer.
        """
        if cls is not EpisodeEnv:
            raise NotImplementedError(f"{cls.__name__} has no build()")
        built: Any = EpisodeEnv.of(config, seed=seed)
        return cast(Self, built)

    def obs_space(self) -> ObsSpace:
        """Observation space, identical on every call; NotImplementedError if not declared."""
        raise NotImplementedError(f"{type(self).__name__} has no obs_space()")

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Action spaces by name; otherwise as `obs_space`."""
        raise NotImplementedError(f"{type(self).__name__} has no action_space()")

    @abstractmethod
    def reset(self, is_done: FlagT | None = None) -> ObsT:
        """Starts the next episode and returns its first observation.

        Args:
            is_done: environments to reset; the others continue and repeat their last observation.
                None = all, even during an episode.

        Raises:
            ClosedError: after `close`.
            ProtocolError: `is_done` was given before the first reset.
            SchemaError: flags of the wrong type, shape or dtype.
        """

    @abstractmethod
    def step(self, act: ActT) -> tuple[Step[ObsT, ActT, RewardT, FlagT], Record]:
        """Performs an action.

        Returns:
            The transition, and values to log: `metrics/NAME` for each metric of a game, and for the
            episodes that have ended `episode/reward` and `episode/length` (means) and
            `episode/count`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or after the end of an episode.
            SchemaError: an invalid action; the environment is unchanged.
            WorkerError: the game called `sys.exit()`, or raised another exception that is not an
                `Exception`; with many environments, a game raised any exception. `reset` and
                `reset_with_index` also raise it.
        """

    @abstractmethod
    def reset_with_index(self, ix: int) -> ObsT:
        """Starts the episode with a given index, in all environments.

        The start depends only on the source, the seed and `ix`, so agents can be compared on the
        same starts. The next `reset` uses `ix + 1`.

        Args:
            ix: 0 or more.

        Raises:
            ClosedError: after `close`.
            ProtocolError: the source has no seed, so its starts cannot be chosen.
            UsageError: an index that is negative or not an integer.
        """

    def step_with_reset(self, act: ActT) -> tuple[Step[ObsT, ActT, RewardT, FlagT], Record]:
        """`step`, then `reset` of the environments whose episode has ended.

        After an episode ends, `obs` is the final observation and `init_obs` the first of the next
        episode; with many environments, `init_obs` covers all of them. Act on `step.next_obs`.
        Raises as `step`.
        """
        step, record = self.step(act)
        is_done = step.is_done()
        if np.any(is_done):
            last = self._kept(step.obs)
            step = replace(step, obs=last, init_obs=self.reset(is_done))
        return step, record

    def close(self) -> None:
        """Closes the environment; may be called twice."""

    def _kept(self, obs: ObsT) -> ObsT:
        """The observation, or a copy if a reset would overwrite it."""
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
        source: Any,
        *,
        num_envs: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> OneEnv | ManyEnvs:
        """An `EpisodeEnv` of a game, an environment, or many of them.

        Args:
            source: a single-agent game, an `Environment` or a function that returns one; or a
                `VecEnvironment` with autoreset "disabled". The result owns and closes it.
            num_envs: number of copies; None = one environment, with scalar rewards and flags, or
                those of the `VecEnvironment`.
            num_workers: number of worker processes; 0 = in this process.
            seed: seed of the starts. Start `ix` of one game or environment has the seed
                `EpisodeSeeds(seed)[ix]`, like episode `ix` of `Game.run(seed=seed)`; start `ix` of
                many is `VecEnv.reset(seed=EpisodeSeeds(seed)[ix])`.

        Raises:
            SchemaError: an unsupported `source`.
            UsageError: an invalid seed or number, a multi-agent game, an object combined with
                `num_envs`, or a `VecEnvironment` whose autoreset is not "disabled".
        """
        if num_envs is None and num_workers:
            raise UsageError(f"num_workers={num_workers} needs num_envs: pass both")
        if _is_vec(source):
            if num_envs is None:
                return EpisodeVec(source, seed)
            name = type(source).__name__
            raise UsageError(f"{name} already has its number of environments: leave num_envs out")
        if isinstance(source, Environment):
            if num_envs is None:
                return EpisodeOfEnvironment(source, seed)
            raise UsageError(
                f"num_envs={num_envs} needs a game, or a class or function that makes "
                f"environments: got one {type(source).__name__} object"
            )
        if not isinstance(source, Game) and not callable(source):
            raise SchemaError(
                "an EpisodeEnv needs a Game, an Environment, its class or a function that returns "
                f"one, or a VecEnv: got {source!r}{VEC_ENV_MAKERS}"
            )
        if num_envs is not None:
            return EpisodeVec.build(Copies(source, num_envs, num_workers), seed)
        if isinstance(source, Game):
            return EpisodeOfGame(source, seed)
        return EpisodeOfEnvironment.build(source, seed)


def _is_vec(source: object) -> bool:
    return not isinstance(source, type) and all(
        hasattr(source, name) for name in ("num_rows", "reset", "act", "send", "recv")
    )


class EpisodeOfEnvironment(EpisodeEnv[Observation, Actions, float, bool]):
    """`EpisodeEnv` of one `Environment`; the seed of episode `n` is `EpisodeSeeds(seed)[n]`.

    Observations are not copied. If an episode ends before its first action, `reset` returns an
    observation that is `done`: reset again.
    """

    def __init__(self, env: Environment, seed: int = 0) -> None:
        self._seeds = EpisodeSeeds(seed)
        self._env = env
        self._takes_seed = "seed" in parameters_of(env.reset)
        self._number = -1
        """Index of the current start."""
        self._reward = 0.0
        self._length = 0
        self._shown: Observation | None = None
        """Last observation; None before a reset and after an error."""
        self._is_closed = False

    @classmethod
    def build(cls, config: Callable[[], Environment], seed: int) -> Self:
        """`config` is a function that returns an `Environment`."""
        checked_seed(seed)  # before creating anything
        env: object = config()
        if not isinstance(env, Environment):
            raise SchemaError(
                "an EpisodeEnv needs a function that returns an Environment: "
                f"{config!r} returned a {type(env).__name__}"
            )
        return cls(env, seed)

    def obs_space(self) -> ObsSpace:
        return self._env.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._env.action_space()

    def reset(self, is_done: bool | None = None) -> Observation:
        self._require_open()
        if is_done is not None:
            if not isinstance(is_done, bool | np.bool_):
                raise SchemaError(f"is_done must be a bool, or None to reset: got {is_done!r}")
            shown = self._require_shown("call reset without is_done first")
            if not is_done:
                return shown
        return self._start(self._number + 1, has_jumped=False)

    def reset_with_index(self, ix: int) -> Observation:
        self._require_open()
        number = checked_count("the index of a start", ix, 0)
        if not self._takes_seed:
            raise ProtocolError(
                f"{type(self._env).__name__}.reset takes no seed, so its starts cannot be chosen: "
                "give it the keyword argument seed"
            )
        return self._start(number, has_jumped=True)

    def step(self, act: Actions) -> tuple[Step[Observation, Actions, float, bool], Record]:
        self._require_open()
        shown = self._require_shown("call reset before step")
        if shown.done:
            raise ProtocolError("the episode has ended: reset the environment before step")
        try:
            obs = self._env.act(act)
        except SchemaError:
            if not self._can_act_again(shown, act):
                self._shown = None
            raise
        except BaseException as error:
            self._shown = None
            self._refuse_exit(error)
            raise
        reward, self._shown = plain_number(obs.reward), obs
        self._reward += reward
        self._length += 1
        info, record = _summary(obs.metrics, [self._episode(obs)] if obs.done else [])
        return Step(act, obs, reward, obs.terminated, obs.truncated, info), record

    def close(self) -> None:
        self._is_closed = True
        self._env.close()

    def _can_act_again(self, shown: Observation, act: Actions) -> bool:
        """After a SchemaError: True if it was about the actions, and nothing has changed."""
        try:
            chosen_values(questions(shown, self.obs_space(), self.action_space()), act)
        except SchemaError:
            return True
        return False  # the environment failed to show its next observation

    def _begin(self, number: int, has_jumped: bool) -> Observation:
        """Resets the environment; `has_jumped` = the episode does not follow the last one."""
        return self._env.reset(seed=self._seeds[number]) if self._takes_seed else self._env.reset()

    def _start(self, number: int, *, has_jumped: bool) -> Observation:
        self._shown = None
        self._number = number
        self._reward = 0.0
        self._length = 0
        try:
            self._shown = self._begin(number, has_jumped)
        except BaseException as error:
            self._refuse_exit(error)
            raise
        return self._shown

    def _refuse_exit(self, error: BaseException) -> None:
        seed = self._seeds[self._number]
        refuse_exit(error, seed=seed, episode=self._number, step=self._length)

    def _episode(self, last: Observation) -> Episode:
        return Episode(
            reward=self._reward,
            length=self._length,
            terminated=last.terminated,
            truncated=last.truncated,
            seed=self._seeds[self._number],
            number=self._number,
            metrics=dict(last.metrics),
        )

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this EpisodeEnv is closed: make a new one")

    def _require_shown(self, how: str) -> Observation:
        if self._shown is None:
            raise ProtocolError(f"nothing is being played: {how}")
        return self._shown


def _summary(
    metrics: Mapping[str, float], episodes: Sequence[Episode]
) -> tuple[dict[str, object], Record]:
    record = Record({f"metrics/{name}": value for name, value in metrics.items()})
    if not episodes:
        return {}, record
    count = len(episodes)
    record.insert("episode/reward", sum(episode.reward for episode in episodes) / count)
    record.insert("episode/length", sum(episode.length for episode in episodes) / count)
    record.insert("episode/count", count)
    return {"episodes": tuple(episodes)}, record


class EpisodeOfGame(EpisodeOfEnvironment):
    """`EpisodeEnv` of a single-agent game; seeds are those of `Game.run`.

    A `play` that loops over episodes is not restarted between them, except after a reset
    during an episode and after `reset_with_index`.
    """

    def __init__(self, game: Game, seed: int = 0, *, transport: Transport | None = None) -> None:
        if game.num_agents != 1:
            raise UsageError(
                f"{game.name} is for {game.num_agents} agents, and an EpisodeEnv shows one: "
                "step it as a TrainAgentEnv or VecEnv"
            )
        self._game_env = _GameEnv(game, seed=seed, transport=transport)
        self._run_seed = seed
        super().__init__(self._game_env, seed)

    @classmethod
    def build(cls, config: Game, seed: int) -> Self:  # type: ignore[override]  # see EpisodeEnv
        return cls(config, seed)

    def _begin(self, number: int, has_jumped: bool) -> Observation:
        if has_jumped or not number:
            return self._game_env.begin(self._run_seed, number)
        return self._game_env.reset()

    def _can_act_again(self, shown: Observation, act: Actions) -> bool:
        return self._game_env.can_act


class _GameEnv(TrainAgentEnv):
    """A `TrainAgentEnv` that can start a run at any episode."""

    @property
    def can_act(self) -> bool:
        """False before a reset, and after an observation that the game could not show."""
        return bool(self._observations)

    def begin(self, seed: int, number: int) -> Observation:
        """Starts episode `number` of the run; unwinds a game that is still in an episode."""
        self._seeds = None
        self._ends.ended.clear()
        self._observations = []
        self._host.restart(EpisodeSeeds(seed), number)
        return self._observe_all()[0]


class Vec(VecEnvironment, Protocol):
    """`VecEnvironment` with its number of environments and autoreset mode."""

    @property
    def num_envs(self) -> int:
        """Number of environments."""

    @property
    def autoreset(self) -> Autoreset:
        """Autoreset mode, as for `VecEnv`."""


class ResettableVec(Vec, Protocol):
    """`VecEnvironment` with `reset_envs`, such as a `VecEnv` with autoreset "disabled"."""

    def reset_envs(self, mask: NDArray[np.bool_], seed: int | None = None) -> VecObs:
        """Starts a new episode where the mask is True."""


@dataclass(frozen=True)
class Copies:
    """Configuration of an `EpisodeVec`; see `VecEnv`."""

    source: Source
    num_envs: int
    num_workers: int = 0


class EpisodeVec(EpisodeEnv[VecObs, VecActions, NDArray[np.float32], NDArray[np.bool_]]):
    """`EpisodeEnv` of many environments; one whose episode has ended waits for its reset.

    Observations are views, valid until the next call, but the `Step.obs` of a step with `init_obs`
    is a copy. Rewards, flags and records are copies. Start `ix` is
    `vec.reset(seed=EpisodeSeeds(seed)[ix])`; an environment that is reset alone starts the next
    episode of its own run.
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

    @classmethod
    def build(cls, config: Copies, seed: int) -> Self:
        """Raises as `VecEnv`, and UsageError for a multi-agent game."""
        from entity_env.vec.vec_env import VecEnv  # here: a single environment does not need `vec`

        vec = VecEnv(
            config.source, config.num_envs, config.num_workers, seed=seed, autoreset="disabled"
        )
        try:
            return cls(vec, seed)
        except BaseException:
            vec.close()
            raise

    def obs_space(self) -> ObsSpace:
        return self._vec.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._vec.action_space()

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
        metrics = {name: metric.mean for name, metric in obs.metrics.items()}
        info, record = _summary(metrics, obs.episodes)
        flags = obs.terminated.copy(), obs.truncated.copy()
        return Step(act, obs, obs.reward.copy(), *flags, info), record

    def close(self) -> None:
        self._vec.close()

    def _kept(self, obs: VecObs) -> VecObs:
        copied: VecObs = _copied(obs)
        return copied


def _copied(value: Any) -> Any:  # noqa: ANN401 - same type
    if isinstance(value, np.ndarray | RaggedArray):
        return value.copy()
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _copied(getattr(value, f.name)) for f in fields(value)})
    return value
