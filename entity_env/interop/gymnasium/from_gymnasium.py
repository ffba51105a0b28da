"""GymnasiumVecEnv: a `gymnasium.vector.VectorEnv` as a `VecEnvironment`, its spaces converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from entity_env.core.episode import EpisodeStats
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    Entity,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    has_global_entity,
)
from entity_env.core.vec_env_base import SyncVecEnv
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.errors import ProtocolError, SchemaError, UsageError


def feature_names(space: spaces.Space[Any], prefix: str = "") -> list[str]:
    """A name for each column of `flatten_observations`, such as `position.0` or `mode=2`."""
    match space:
        case spaces.Dict():
            parts: list[tuple[object, spaces.Space[Any]]] = [*space.spaces.items()]
        case spaces.Tuple():
            parts = [*enumerate(space.spaces)]
        case spaces.Discrete():
            return [f"{_joined(prefix, ())}={space.start + i}" for i in range(int(space.n))]
        case spaces.MultiDiscrete():
            return [
                f"{_joined(prefix, index)}={space.start[index] + i}"
                for index in np.ndindex(space.nvec.shape)
                for i in range(int(space.nvec[index]))
            ]
        case spaces.Box() | spaces.MultiBinary():
            names = [_joined(prefix, index) for index in np.ndindex(space.shape)]
            order = np.arange(len(names)).reshape(space.shape).transpose(picture_axes(space))
            return [names[i] for i in order.ravel().tolist()]
        case _:
            raise UsageError(
                f"the observation {prefix or 'of this environment'} is a {space}, which has no "
                "fixed size: wrap the environment so that it is a Box"
            )
    return [
        name
        for key, part in parts
        for name in feature_names(part, f"{prefix}.{key}" if prefix else str(key))
    ]


def picture_axes(space: spaces.Space[Any]) -> tuple[int, ...]:
    """The axes in the order of `flatten_observations`; of a picture: height, width, channels.

    A picture is a `Box` of three dimensions. Its channels come last, but first where that dimension
    is smaller than both others, as in stacked frames.
    """
    shape = space.shape or ()
    is_channels_first = len(shape) == 3 and shape[0] < min(shape[1:])
    return (1, 2, 0) if is_channels_first else tuple(range(len(shape)))


def flatten_observations(
    space: spaces.Space[Any],
    batch: Any,  # noqa: ANN401 - of that space
    num_rows: int,
) -> NDArray[np.float32]:
    """Batched observations of a single space as `(num_rows, num_features)` float32."""
    match space:
        case spaces.Dict():
            pairs = [(part, batch[key]) for key, part in space.spaces.items()]
        case spaces.Tuple():
            pairs = list(zip(space.spaces, batch, strict=True))
        case spaces.Discrete():
            return _one_hot(np.asarray(batch) - space.start, int(space.n))
        case spaces.MultiDiscrete():
            chosen = (np.asarray(batch) - space.start).reshape(num_rows, -1)
            columns = [_one_hot(chosen[:, i], int(n)) for i, n in enumerate(space.nvec.ravel())]
            return np.concatenate(columns, axis=1)
        case _:
            axes = (0, *(axis + 1 for axis in picture_axes(space)))
            moved = np.asarray(batch).reshape(num_rows, *(space.shape or ())).transpose(axes)
            return np.asarray(moved, dtype=np.float32).reshape(num_rows, -1)
    parts = [flatten_observations(part, values, num_rows) for part, values in pairs]
    return np.concatenate(parts, axis=1)


class ActionConverter:
    """Converts actions to those of a Gymnasium space; raises `UsageError` for others."""

    def __init__(self, space: spaces.Space[Any], name: ActionName) -> None:
        self._space = space
        self._name = name
        self.spaces: dict[ActionName, ActionSpace] = _action_spaces(space, name)
        """The action space."""

    def batch(
        self, values: Mapping[ActionName, NDArray[Any]], ready: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Actions for all environments, as in the batched space: any for those not `ready`."""
        space, num_envs = self._space, len(ready)
        if isinstance(space, spaces.Box):
            numbers = np.tile(space.low, (num_envs, *([1] * space.low.ndim)))
            given = values[self._name].reshape(-1, *space.shape)
            # A float32 at a bound may lie beyond it by half a unit in the last place.
            numbers[ready] = np.clip(given, space.low, space.high)
            return numbers
        chosen = np.zeros((num_envs, len(self.spaces)), dtype=space.dtype)
        for i, name in enumerate(self.spaces):
            chosen[ready, i] = values[name]
        start = getattr(space, "start", 0)
        if isinstance(space, spaces.Discrete):
            return np.asarray(chosen[:, 0] + start, dtype=space.dtype)
        return np.asarray(chosen.reshape(num_envs, *(space.shape or ())) + start, dtype=space.dtype)


def _action_spaces(space: spaces.Space[Any], name: ActionName) -> dict[ActionName, ActionSpace]:
    match space:
        case spaces.Discrete():
            return {name: _choice(int(space.start), int(space.n))}
        case spaces.MultiDiscrete():
            pairs = zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True)
            return {f"{name}.{i}": _choice(start, n) for i, (start, n) in enumerate(pairs)}
        case spaces.MultiBinary():
            return {f"{name}.{i}": _choice(0, 2) for i in range(int(np.prod(space.shape)))}
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise UsageError(
                    f"actions are a {space}, which has no bounds: wrap the environment in "
                    "gymnasium's RescaleAction, or in a wrapper of yours that sets bounds"
                )
            labels = [_joined("", index) for index in np.ndindex(space.shape)]
            bounds = space.low.ravel().tolist(), space.high.ravel().tolist()
            return {name: ContinuousActionSpace(*bounds, labels)}
    raise UsageError(
        f"actions are a {space}: expected a Discrete, MultiDiscrete, MultiBinary or a Box of floats"
    )


def _choice(start: int, count: int) -> GlobalCategoricalActionSpace:
    return GlobalCategoricalActionSpace([str(start + i) for i in range(count)])


def _joined(prefix: str, index: tuple[int, ...]) -> str:
    return ".".join([*filter(None, [prefix]), *map(str, index)]) or "value"


def _one_hot(chosen: NDArray[Any], count: int) -> NDArray[np.float32]:
    return np.asarray(np.arange(count) == chosen.reshape(-1, 1), dtype=np.float32)


class AllowedActions:
    """The last `info["action_mask"]`; `num_choices` is 0 if the action is not one choice."""

    def __init__(self, num_envs: int, num_choices: int, where: str) -> None:
        self._allowed = np.ones((num_envs, num_choices), dtype=np.bool_)
        self._where = where
        self._has_masks = False

    def read(self, info: Mapping[str, Any]) -> None:
        """Stores the masks of an info; raises `SchemaError` for another shape."""
        given = info.get("action_mask")
        if given is None or not self._allowed.shape[1]:
            return
        masks = np.asarray(given).astype(np.bool_)
        if masks.shape != self._allowed.shape:
            raise SchemaError(
                f"{self._where}: info['action_mask'] needs the shape {self._allowed.shape}, one "
                f"flag per choice: got {masks.shape}"
            )
        chosen = info.get("_action_mask", np.ones(len(masks), dtype=np.bool_))
        self._allowed[chosen] = masks[chosen]
        self._has_masks = True

    def of(self, ready: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """`(num_ready, num_choices)`, True = allowed; None = everything is allowed."""
        if not self._has_masks:
            return None
        empty = np.flatnonzero(ready & ~self._allowed.any(axis=1))
        if len(empty):
            raise SchemaError(
                f"{self._where}: info['action_mask'] of env {empty[0]} allows nothing"
            )
        return self._allowed[ready]


AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]


class GymnasiumVecEnv(SyncVecEnv):
    """Wraps a `gymnasium.vector.VectorEnv` as a `VecEnvironment`, with one entity per environment.

    Observations of any space are flattened to the features of that entity, with choices one-hot.
    A `Discrete` action is one choice, a `MultiDiscrete` or `MultiBinary` one choice per element,
    and a bounded `Box` a continuous action. `info["action_mask"]` of a `Discrete` is its mask.

    The autoreset mode is `"same_step"` whatever that of `env`: last observations are in `final`,
    `terminated` and `truncated` come from `env`. With SAME_STEP the last observations come from
    `info["final_obs"]`. With NEXT_STEP an environment that waits for its reset returns its last
    observation, no actors, and reward 0. With DISABLED this object resets by
    `options["reset_mask"]`.

    Seeds are Gymnasium's: environment i gets `seed + i`. Seeds of later episodes are known only to
    `env`, so `Episode.seed` is that of the first. Arrays of a `VecObs` are valid until the next
    call that returns one.

    Args:
        env: the vector environment; this object closes it.
        autoreset: "disabled" leaves resets to `reset_envs`, if the mode of `env` is DISABLED.
        entity: name of the entity.
        action: name of the action.

    Raises:
        UsageError: an observation or action space that cannot be converted, no autoreset mode in
            `env.metadata`, or "disabled" for an `env` with another mode.
    """

    def __init__(
        self,
        env: AnyVectorEnv,
        *,
        autoreset: Literal["same_step", "disabled"] = "same_step",
        entity: EntityName = "Env",
        action: ActionName = "Action",
    ) -> None:
        self._env = env
        self._mode = _mode_of(env, autoreset)
        space = env.single_observation_space
        shape = tuple((space.shape or ())[axis] for axis in picture_axes(space))
        is_picture = isinstance(space, spaces.Box) and len(shape) == 3
        picture = shape if is_picture else None
        own = Entity(feature_names(space), is_single=True, shape=picture)  # type: ignore[arg-type]
        self._obs_space = ObsSpace(entities={entity: own})
        self._converter = ActionConverter(env.single_action_space, action)
        self._entity = entity
        super().__init__(env.num_envs, 1, autoreset)
        self._stats = EpisodeStats(env.num_envs, seed_dtype=object)  # seeds of any size
        single = env.single_action_space
        num_choices = int(single.n) if isinstance(single, spaces.Discrete) else 0
        self._allowed = AllowedActions(env.num_envs, num_choices, str(env))
        self._is_waiting = np.zeros(env.num_envs, dtype=np.bool_)
        """Environments whose episode has ended and that the source has not reset yet."""

    def obs_space(self) -> ObsSpace:
        """The observation space."""
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """The action space."""
        return self._converter.spaces

    def _reset(self, chosen: NDArray[np.bool_] | None, seed: int | None) -> VecObs:
        before = self._obs
        terminated, truncated = (np.zeros(self.num_envs, dtype=np.bool_) for _ in range(2))
        if before is None or chosen is None:
            chosen = np.ones(self.num_envs, dtype=np.bool_)
            features = self._read_reset(*self._env.reset(seed=seed))
        else:
            terminated, truncated = before.terminated & ~chosen, before.truncated & ~chosen
            features = before.features[self._entity].values
            if chosen.any():
                options = {"reset_mask": chosen.copy()}
                features = self._read_reset(*self._env.reset(seed=seed, options=options))
        self._begin(chosen, seed)
        self._is_waiting = self._is_waiting & ~chosen
        self._require_finite("observation", features, num_steps=0)
        reward = np.zeros(self.num_envs, dtype=np.float32)
        return self._make_obs(features, reward, terminated, truncated)

    def _begin(self, chosen: NDArray[np.bool_], seed: int | None) -> None:
        """Counts new episodes, of a new run if there is a seed."""
        self._stats.begin(chosen)
        if seed is not None:
            self._stats.number[chosen] = 0
            self._stats.seed[chosen] = (seed + np.arange(self.num_envs, dtype=object))[chosen]

    def _read_reset(self, obs: object, info: Mapping[str, Any]) -> NDArray[np.float32]:
        self._allowed.read(info)
        return self._flat(obs)

    def _ended_envs(self) -> list[int]:
        return np.flatnonzero(self._is_waiting).tolist()

    def _step(self, actions: Mapping[ActionName, NDArray[Any]]) -> VecObs:
        batch = self._converter.batch(actions, ~self._is_waiting)
        obs, rewards, terminations, truncations, info = self._env.step(batch)
        self._allowed.read(info)
        waited = self._is_waiting
        reward = np.asarray(rewards, dtype=np.float32).copy()
        terminated = np.asarray(terminations, dtype=np.bool_) & ~waited
        truncated = np.asarray(truncations, dtype=np.bool_) & ~waited
        reward[waited] = 0
        done = terminated | truncated
        features = self._flat(obs)
        self._require_finite("reward", reward[:, None])
        self._stats.reward += reward
        self._stats.length += ~waited
        self._begin(waited, None)
        self._is_waiting = np.zeros_like(done)
        if not done.any():
            self._require_finite("observation", features, num_steps=0)
            return self._make_obs(features, reward, terminated, truncated)
        last, features = self._end(features, done, info)
        self._require_finite("last observation", last, np.flatnonzero(done), num_steps=0)
        shown = self._make_obs(features, reward, terminated, truncated)
        env_ids = np.flatnonzero(done)
        shown.episodes = [
            self._stats.episode(i, terminated[i], truncated[i]) for i in env_ids.tolist()
        ]
        self._begin(done & ~self._is_waiting, None)
        self._require_finite("observation", features, num_steps=0)
        if self.autoreset == "same_step":
            masks = self._masks(np.zeros(len(env_ids), dtype=np.bool_), is_final=True)
            flags = reward[env_ids], terminated[env_ids], truncated[env_ids]
            shown.final = self._batch(last, masks, *flags, env_ids)
            shown.final.episodes = shown.episodes
        return shown

    def close(self) -> None:
        """Closes `env`; may be called twice."""
        self._is_closed = True
        self._env.close()

    def _end(
        self, features: NDArray[np.float32], done: NDArray[np.bool_], info: Mapping[str, Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The last observations of the ended environments, and the current ones of all."""
        if self._mode == AutoresetMode.SAME_STEP:
            return self._final_obs(done, info), features
        last = features[done]
        if self._mode == AutoresetMode.NEXT_STEP or self.autoreset == "disabled":
            self._is_waiting = done
            return last, features
        return last, self._read_reset(*self._env.reset(options={"reset_mask": done.copy()}))

    def _final_obs(self, done: NDArray[np.bool_], info: Mapping[str, Any]) -> NDArray[np.float32]:
        """The last observations in the info of an `env` with SAME_STEP."""
        finals = info.get("final_obs", [None] * self.num_envs)
        env_ids = np.flatnonzero(done).tolist()
        missing = [env_id for env_id in env_ids if finals[env_id] is None]
        if missing:
            raise ProtocolError(
                f"{self._env}: the episode of env {missing[0]} has ended, but info['final_obs'] "
                "has no observation of it, as AutoresetMode.SAME_STEP demands"
            )
        space = self._env.single_observation_space
        last = [finals[env_id] for env_id in env_ids]
        room: Any = create_empty_array(space, len(last))
        return flatten_observations(space, concatenate(space, last, room), len(last))

    def _flat(self, obs: object) -> NDArray[np.float32]:
        return flatten_observations(self._env.single_observation_space, obs, self.num_envs)

    def _require_finite(
        self,
        what: str,
        rows: NDArray[np.float32],
        env_ids: NDArray[np.int64] | None = None,
        *,
        num_steps: int = 1,
    ) -> None:
        """Raises a `SchemaError` for a number that is not finite."""
        is_finite = np.isfinite(rows)
        if is_finite.all():
            return
        row, column = np.argwhere(~is_finite)[0].tolist()
        env_id = row if env_ids is None else int(env_ids[row])
        part = ""
        if what != "reward":
            part = f"{self._obs_space.entities[self._entity].features[column]!r} of "
        raise SchemaError(
            f"{self._env}: env {env_id}, {self._stats.place(env_id, num_steps)}: {part}the {what} "
            f"must be finite, got {rows[row, column]}"
        )

    def _make_obs(
        self,
        features: NDArray[np.float32],
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> VecObs:
        masks = self._masks(~self._is_waiting)
        self._obs = self._batch(features, masks, reward, terminated, truncated, self._env_id)
        return self._obs

    def _batch(
        self,
        features: NDArray[np.float32],
        masks: dict[ActionName, VecActionMask],
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        env_ids: NDArray[np.int64],
    ) -> VecObs:
        one_each = np.ones(len(features), dtype=np.int64)
        entities = {self._entity: RaggedArray.unchecked(features, one_each)}
        if has_global_entity(self._obs_space, self._converter.spaces):
            nothing = np.zeros((len(features), 0), dtype=np.float32)
            entities[GLOBAL_ENTITY] = RaggedArray.unchecked(nothing, one_each)
        no_agents = np.zeros_like(env_ids)
        return VecObs(entities, {}, masks, reward, terminated, truncated, env_ids, no_agents)

    def _masks(
        self, ready: NDArray[np.bool_], *, is_final: bool = False
    ) -> dict[ActionName, VecActionMask]:
        """Masks of the environments that are not over; last observations have no actors."""
        lengths, count = ready.astype(np.int64), int(ready.sum())
        if isinstance(self._env.single_action_space, spaces.Box):  # the actor is the entity
            actors = RaggedArray.unchecked(np.zeros(count, dtype=np.int64), lengths)
            return dict.fromkeys(self._converter.spaces, VecContinuousActionMask(actors))
        actors = RaggedArray.unchecked(np.ones(count, dtype=np.int64), lengths)
        allowed = None if is_final else self._allowed.of(ready)
        mask = None if allowed is None else RaggedArray.unchecked(allowed, lengths)
        return dict.fromkeys(self._converter.spaces, VecCategoricalActionMask(actors, mask))


def _mode_of(env: AnyVectorEnv, autoreset: str) -> AutoresetMode:
    """The mode of `env`, with which `autoreset` is possible."""
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise UsageError(
            f"{env} does not say what happens to ended episodes: set "
            "env.metadata['autoreset_mode'] to its AutoresetMode"
        )
    if autoreset not in ("same_step", "disabled"):
        raise UsageError(f'autoreset must be "same_step" or "disabled", got {autoreset!r}')
    if autoreset == "disabled" and mode != AutoresetMode.DISABLED:
        raise UsageError(
            f'{env} resets environments itself, with {mode}: autoreset="disabled" needs one with '
            "AutoresetMode.DISABLED"
        )
    return mode
