"""GymnasiumVecEnv: a `gymnasium.vector.VectorEnv` as a `VecEnvironment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from entity_env.core.episode import Episode
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
from entity_env.core.validation import checked_seed
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.flat_spaces import (
    ActionConverter,
    feature_names,
    flatten_observations,
)
from entity_env.vec.reset_seeds import chosen_envs


class GymnasiumEpisodeStats:
    """Return, length, seed and index of the current episode of each environment."""

    def __init__(self, num_envs: int) -> None:
        self._rewards = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._numbers = np.full(num_envs, -1, dtype=np.int64)
        self._seeds = np.zeros(num_envs, dtype=object)  # of any size

    def begin(self, chosen: NDArray[np.bool_], seed: int | None) -> None:
        """Starts episodes in the chosen environments; a seed starts a new run."""
        self._rewards[chosen] = 0
        self._lengths[chosen] = 0
        self._numbers[chosen] += 1
        if seed is not None:
            self._numbers[chosen] = 0
            self._seeds[chosen] = (seed + np.arange(len(chosen), dtype=object))[chosen]

    def place(self, env_id: int, steps: int = 0) -> str:
        """Episode and step of an environment, `steps` after the counted ones, for errors."""
        return f"episode {self._numbers[env_id]}, step {self._lengths[env_id] + steps}"

    def step(self, reward: NDArray[np.float32], chosen: NDArray[np.bool_]) -> None:
        """Counts a step of the chosen environments."""
        self._rewards += reward
        self._lengths += chosen

    def end(self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> list[Episode]:
        """The episodes that ended in this step."""
        return [
            Episode(
                reward=float(self._rewards[i]),
                length=int(self._lengths[i]),
                terminated=bool(terminated[i]),
                truncated=bool(truncated[i]),
                seed=int(self._seeds[i]),
                number=int(self._numbers[i]),
                env_id=i,
            )
            for i in np.flatnonzero(terminated | truncated).tolist()
        ]


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


class GymnasiumVecEnv:
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
        self.autoreset: Literal["same_step", "disabled"] = autoreset
        self.num_envs = self.num_rows = env.num_envs
        self.num_agents = 1
        self._env_id = np.arange(env.num_envs)
        self._stats = GymnasiumEpisodeStats(env.num_envs)
        single = env.single_action_space
        num_choices = int(single.n) if isinstance(single, spaces.Discrete) else 0
        self._allowed = AllowedActions(env.num_envs, num_choices, str(env))
        self._obs: VecObs | None = None
        self._is_waiting = np.zeros(env.num_envs, dtype=np.bool_)
        """Environments that wait for a reset, without actors."""
        self._sent: NDArray[Any] | None = None
        self._is_closed = False

    def obs_space(self) -> ObsSpace:
        """The observation space."""
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """The action space."""
        return self._converter.spaces

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode in every environment.

        Args:
            seed: environment i gets `seed + i`; None continues the run.

        Raises:
            ClosedError: after `close`.
            UsageError: a seed that is not an integer, or negative.
        """
        self._require_open()
        if seed is not None:
            seed = checked_seed(seed)
        self._sent = None
        obs, info = self._env.reset(seed=seed)
        self._stats.begin(np.ones(self.num_envs, dtype=np.bool_), seed)
        self._allowed.read(info)
        self._is_waiting = no = np.zeros(self.num_envs, dtype=np.bool_)
        features = self._flat(obs)
        self._require_finite("observation", features, steps=0)
        return self._shown(features, self._no_reward(), no.copy(), no.copy())

    def act(self, actions: VecActions) -> VecObs:
        """Gives every environment its action and returns the next batch.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or with autoreset disabled while an environment is over.
            SchemaError: the actions do not match the action space, before anything is stepped; or a
                reward or an observation is not finite.
        """
        self.send(actions)
        return self.recv()

    def send(self, actions: VecActions) -> None:
        """The first half of `act`: checks and stores the actions."""
        shown = self._require_shown()
        if self._sent is not None:
            raise ProtocolError("actions were sent already: call recv before the next send")
        if self.autoreset == "disabled" and self._is_waiting.any():
            raise ProtocolError(
                f"the episodes of environments {np.flatnonzero(self._is_waiting)[:20].tolist()} "
                "have ended: call reset_envs for them before act"
            )
        values = checked_vec_actions(
            actions, shown.action_masks, self._converter.spaces, "env {}".format
        )
        self._sent = self._converter.batch(values, ~self._is_waiting)

    def recv(self) -> VecObs:
        """The second half of `act`: steps `env`."""
        self._require_shown()
        if self._sent is None:
            raise ProtocolError("no actions were sent: call send before recv")
        sent, self._sent = self._sent, None
        obs, rewards, terminations, truncations, info = self._env.step(sent)
        self._allowed.read(info)
        waited = self._is_waiting
        reward = np.asarray(rewards, dtype=np.float32).copy()
        terminated = np.asarray(terminations, dtype=np.bool_) & ~waited
        truncated = np.asarray(truncations, dtype=np.bool_) & ~waited
        reward[waited] = 0
        done = terminated | truncated
        features = self._flat(obs)
        self._require_finite("reward", reward[:, None])
        self._stats.step(reward, ~waited)
        self._stats.begin(waited, None)
        self._is_waiting = np.zeros_like(done)
        if not done.any():
            self._require_finite("observation", features, steps=0)
            return self._shown(features, reward, terminated, truncated)
        last, features = self._end(features, done, info)
        self._require_finite("last observation", last, np.flatnonzero(done), steps=0)
        shown = self._shown(features, reward, terminated, truncated)
        shown.episodes = self._stats.end(terminated, truncated)
        self._stats.begin(done & ~self._is_waiting, None)
        self._require_finite("observation", features, steps=0)
        if self.autoreset == "same_step":
            shown.final = self._final(last, shown, np.flatnonzero(done))
        return shown

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new episode in some environments; needs `autoreset="disabled"`.

        Other environments return their last observation and flags again, with reward 0.

        Args:
            mask: `(num_envs,) bool`, True = reset.
            seed: environment i gets `seed + i`; None continues the run.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or with another autoreset mode.
            SchemaError: a mask of another shape or dtype.
            UsageError: a seed that is not an integer, or negative.
        """
        if self.autoreset != "disabled":
            raise ProtocolError(
                f'reset_envs needs autoreset="disabled", this has {self.autoreset!r}'
            )
        before = self._require_shown()
        if self._sent is not None:
            raise ProtocolError("actions were sent: call recv before reset_envs")
        chosen = np.zeros(self.num_envs, dtype=np.bool_)
        chosen[chosen_envs(mask, self.num_envs)] = True
        if seed is not None:
            seed = checked_seed(seed)
        features = before.features[self._entity].values
        if chosen.any():
            obs, info = self._env.reset(seed=seed, options={"reset_mask": chosen.copy()})
            self._allowed.read(info)
            features = self._flat(obs)
        self._stats.begin(chosen, seed)
        self._is_waiting &= ~chosen
        self._require_finite("observation", features, steps=0)
        flags = before.terminated & ~chosen, before.truncated & ~chosen
        return self._shown(features, self._no_reward(), *flags)

    def close(self) -> None:
        """Closes `env`; may be called twice."""
        self._is_closed = True
        self._env.close()

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> GymnasiumVecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        obs, info = self._env.reset(options={"reset_mask": done.copy()})
        self._allowed.read(info)
        return last, self._flat(obs)

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
        steps: int = 1,
    ) -> None:
        """Raises `SchemaError` for values of environments, all or some, that are not finite."""
        is_finite = np.isfinite(rows)
        if is_finite.all():
            return
        row, column = np.argwhere(~is_finite)[0].tolist()
        env_id = row if env_ids is None else int(env_ids[row])
        part = ""
        if what != "reward":
            part = f"{self._obs_space.entities[self._entity].features[column]!r} of "
        raise SchemaError(
            f"{self._env}: env {env_id}, {self._stats.place(env_id, steps)}: {part}the {what} "
            f"must be finite, got {rows[row, column]}"
        )

    def _shown(
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
        """Action masks with an actor in each row that is ready."""
        lengths, count = ready.astype(np.int64), int(ready.sum())
        if isinstance(self._env.single_action_space, spaces.Box):  # the actor is the entity
            actors = RaggedArray.unchecked(np.zeros(count, dtype=np.int64), lengths)
            return dict.fromkeys(self._converter.spaces, VecContinuousActionMask(actors))
        actors = RaggedArray.unchecked(np.ones(count, dtype=np.int64), lengths)
        allowed = None if is_final else self._allowed.of(ready)
        mask = None if allowed is None else RaggedArray.unchecked(allowed, lengths)
        return dict.fromkeys(self._converter.spaces, VecCategoricalActionMask(actors, mask))

    def _no_reward(self) -> NDArray[np.float32]:
        return np.zeros(self.num_envs, dtype=np.float32)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this GymnasiumVecEnv is closed: make a new one")

    def _require_shown(self) -> VecObs:
        self._require_open()
        if self._obs is None:
            raise ProtocolError("nothing is being played: call reset first")
        return self._obs


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
