"""GymnasiumVecEnv: a `gymnasium.vector.VectorEnv` as a `VecEnvironment`."""

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
    Entity,
    EntityName,
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
from entity_env.interop.gymnasium.flat_spaces import (
    ActionConverter,
    feature_names,
    flatten_observations,
)


class AllowedActions:
    """The last `info["action_mask"]` of each environment.

    `num_choices` is 0 if the action is not one choice; `where` names the source in errors.
    """

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
        self._mode = _mode_of(env)
        _require_autoreset(autoreset, self._mode, env)
        features = feature_names(env.single_observation_space)
        self._obs_space = ObsSpace(entities={entity: Entity(features)})
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
        shown.episodes = [
            self._stats.episode(i, terminated[i], truncated[i])
            for i in np.flatnonzero(done).tolist()
        ]
        self._begin(done & ~self._is_waiting, None)
        self._require_finite("observation", features, num_steps=0)
        if self.autoreset == "same_step":
            shown.final = self._final(last, shown, np.flatnonzero(done))
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
        self._obs = VecObs(
            features=self._entities(features),
            visible={},
            action_masks=self._masks(~self._is_waiting),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_id,
            agent_id=np.zeros_like(self._env_id),
        )
        return self._obs

    def _final(
        self, last: NDArray[np.float32], shown: VecObs, env_ids: NDArray[np.int64]
    ) -> VecObs:
        return VecObs(
            features=self._entities(last),
            visible={},
            action_masks=self._masks(np.zeros(len(env_ids), dtype=np.bool_), is_final=True),
            reward=shown.reward[env_ids],
            terminated=shown.terminated[env_ids],
            truncated=shown.truncated[env_ids],
            env_id=env_ids,
            agent_id=np.zeros_like(env_ids),
            episodes=shown.episodes,
        )

    def _entities(self, features: NDArray[np.float32]) -> dict[EntityName, RaggedArray[np.float32]]:
        one_each = np.ones(len(features), dtype=np.int64)
        entities = {self._entity: RaggedArray.unchecked(features, one_each)}
        if has_global_entity(self._obs_space, self._converter.spaces):
            nothing = np.zeros((len(features), 0), dtype=np.float32)
            entities[GLOBAL_ENTITY] = RaggedArray.unchecked(nothing, one_each)
        return entities

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


def _mode_of(env: AnyVectorEnv) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise UsageError(
            f"{env} does not say what happens to ended episodes: set "
            "env.metadata['autoreset_mode'] to its AutoresetMode"
        )
    return mode


def _require_autoreset(autoreset: str, mode: AutoresetMode, env: AnyVectorEnv) -> None:
    if autoreset not in ("same_step", "disabled"):
        raise UsageError(f'autoreset must be "same_step" or "disabled", got {autoreset!r}')
    if autoreset == "disabled" and mode != AutoresetMode.DISABLED:
        raise UsageError(
            f'{env} resets environments itself, with {mode}: autoreset="disabled" needs one with '
            "AutoresetMode.DISABLED"
        )
