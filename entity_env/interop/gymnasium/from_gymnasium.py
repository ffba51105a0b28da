"""GymnasiumVecEnv: a vector environment of Gymnasium as one of ours."""

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
from entity_env.core.vec_actions import checked_actions
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
)
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.flat_spaces import ActionReader, feature_names, flat
from entity_env.vec.reset_seeds import chosen_envs


class Ledger:
    """Counts the episodes of all environments."""

    def __init__(self, num_envs: int) -> None:
        self._rewards = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._numbers = np.full(num_envs, -1, dtype=np.int64)
        self._seeds = np.zeros(num_envs, dtype=object)  # of any size

    def begin(self, chosen: NDArray[np.bool_], seed: int | None) -> None:
        """Begins episodes, of a new run if there is a seed."""
        self._rewards[chosen] = 0
        self._lengths[chosen] = 0
        self._numbers[chosen] += 1
        if seed is not None:
            self._numbers[chosen] = 0
            self._seeds[chosen] = (seed + np.arange(len(chosen), dtype=object))[chosen]

    def place(self, env_id: int, steps: int = 0) -> str:
        """Episode and step of an environment, some steps after those that were counted."""
        return f"episode {self._numbers[env_id]}, step {self._lengths[env_id] + steps}"

    def step(self, reward: NDArray[np.float32], chosen: NDArray[np.bool_]) -> None:
        """Counts a step of the chosen ones."""
        self._rewards += reward
        self._lengths += chosen

    def end(self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> list[Episode]:
        """The episodes that have ended."""
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
    """What `info["action_mask"]` said of every environment last.

    Args:
        num_envs: how many environments.
        num_choices: of an action, or 0 if it is not one choice.
        where: names the source, for errors.
    """

    def __init__(self, num_envs: int, num_choices: int, where: str) -> None:
        self._allowed = np.ones((num_envs, num_choices), dtype=np.bool_)
        self._where = where
        self._is_told = False

    def read(self, info: Mapping[str, Any]) -> None:
        """Keeps what an info says, of those that it tells of.

        Raises:
            SchemaError: a mask of another shape.
        """
        told = info.get("action_mask")
        if told is None or not self._allowed.shape[1]:
            return
        masks = np.asarray(told).astype(np.bool_)
        if masks.shape != self._allowed.shape:
            raise SchemaError(
                f"{self._where}: info['action_mask'] needs the shape {self._allowed.shape}, one "
                f"flag a choice: got {masks.shape}"
            )
        whose = info.get("_action_mask", np.ones(len(masks), dtype=np.bool_))
        self._allowed[whose] = masks[whose]
        self._is_told = True

    def of(self, ready: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """`(num_ready, num_choices)`, True = allowed; None = everything.

        Raises:
            SchemaError: nothing is allowed to one of those.
        """
        if not self._is_told:
            return None
        stuck = np.flatnonzero(ready & ~self._allowed.any(axis=1))
        if len(stuck):
            raise SchemaError(
                f"{self._where}: info['action_mask'] of env {stuck[0]} allows nothing"
            )
        return self._allowed[ready]


AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]


class GymnasiumVecEnv:
    """Shows a vector environment of Gymnasium as a `VecEnvironment`, one entity an environment.

    Observations are flattened to the features of that entity, whatever their space: numbers as they
    are, choices one-hot. Actions are as `ActionReader` says. `info["action_mask"]` of a `Discrete`
    becomes the mask of the action.

    Whatever the source does with episodes that have ended, this shows `"same_step"`: their last
    observations are in `final`, and `terminated` and `truncated` are as the source says. Of a
    source that resets in the same step they come from `info["final_obs"]`. One that resets in the
    next step is asked for nothing meanwhile: such a row shows the last observation, has no actor,
    and earns nothing. One that does not reset is told to by `options["reset_mask"]`.

    Seeds are Gymnasium's: environment i begins from `seed + i`. Of later episodes only the source
    knows the seeds, so that an `Episode` tells that of the first. Arrays of a `VecObs` are valid
    until the next call that returns one.

    Args:
        env: what to show; this object closes it.
        autoreset: "disabled" leaves episodes that have ended to `reset_envs`, if `env` does.
        entity: what the entity is called.
        action: what the action is called.

    Raises:
        UsageError: observations or actions of a space that cannot be shown, a source that does not
            say what its autoreset mode is, or "disabled" for one that resets.
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
        self._reader = ActionReader(env.single_action_space, action)
        self._entity = entity
        self.autoreset: Literal["same_step", "disabled"] = autoreset
        self.num_envs = self.num_rows = env.num_envs
        self.num_agents = 1
        self._env_id = np.arange(env.num_envs)
        self._ledger = Ledger(env.num_envs)
        single = env.single_action_space
        num_choices = int(single.n) if isinstance(single, spaces.Discrete) else 0
        self._allowed = AllowedActions(env.num_envs, num_choices, str(env))
        self._obs: VecObs | None = None
        self._is_waiting = np.zeros(env.num_envs, dtype=np.bool_)
        """Whose episode has ended, and who is asked for nothing until the source resets it."""
        self._sent: NDArray[Any] | None = None
        self._is_closed = False

    def obs_space(self) -> ObsSpace:
        """What can be observed."""
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""
        return self._reader.spaces

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode in every environment.

        Args:
            seed: environment i begins from `seed + i`; None goes on.

        Raises:
            ClosedError: after `close`.
            UsageError: a seed that is no integer, or negative.
        """
        self._require_open()
        if seed is not None:
            seed = checked_seed(seed)
        self._sent = None
        obs, info = self._env.reset(seed=seed)
        self._ledger.begin(np.ones(self.num_envs, dtype=np.bool_), seed)
        self._allowed.read(info)
        self._is_waiting = no = np.zeros(self.num_envs, dtype=np.bool_)
        features = self._flat(obs)
        self._require_finite("observation", features, steps=0)
        return self._shown(features, self._nothing(), no.copy(), no.copy())

    def act(self, actions: VecActions) -> VecObs:
        """Gives every environment its action and returns the next batch.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while an environment is over and autoreset disabled.
            SchemaError: actions that do not fit, and nothing has happened then; or a reward or an
                observation of the source that is not finite.
        """
        self.send(actions)
        return self.recv()

    def send(self, actions: VecActions) -> None:
        """The first half of `act`: keeps the actions."""
        shown = self._require_shown()
        if self._sent is not None:
            raise ProtocolError("actions were sent already: call recv before the next send")
        if self.autoreset == "disabled" and self._is_waiting.any():
            raise ProtocolError(
                f"the episodes of environments {np.flatnonzero(self._is_waiting)[:20].tolist()} "
                "have ended: call reset_envs for them before act"
            )
        values = checked_actions(actions, shown.action_masks, self._reader.spaces, "env {}".format)
        self._sent = self._reader.batch(values, ~self._is_waiting)

    def recv(self) -> VecObs:
        """The second half of `act`: steps the source."""
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
        self._ledger.step(reward, ~waited)
        self._ledger.begin(waited, None)
        self._is_waiting = np.zeros_like(done)
        if not done.any():
            self._require_finite("observation", features, steps=0)
            return self._shown(features, reward, terminated, truncated)
        last, features = self._end(features, done, info)
        self._require_finite("last observation", last, np.flatnonzero(done), steps=0)
        shown = self._shown(features, reward, terminated, truncated)
        shown.episodes = self._ledger.end(terminated, truncated)
        self._ledger.begin(done & ~self._is_waiting, None)
        self._require_finite("observation", features, steps=0)
        if self.autoreset == "same_step":
            shown.final = self._final(last, shown, np.flatnonzero(done))
        return shown

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new episode in the chosen environments, with autoreset disabled.

        All others show once more what they showed last, with the same flags, but a reward of 0.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: environment i begins from `seed + i`; None goes on.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or with autoreset on.
            SchemaError: a mask of another shape or dtype.
            UsageError: a seed that is no integer, or negative.
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
        self._ledger.begin(chosen, seed)
        self._is_waiting &= ~chosen
        self._require_finite("observation", features, steps=0)
        flags = before.terminated & ~chosen, before.truncated & ~chosen
        return self._shown(features, self._nothing(), *flags)

    def close(self) -> None:
        """Closes the source; may be called twice."""
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
        """The last observations of those that are done, and what all show now."""
        if self._mode == AutoresetMode.SAME_STEP:
            return self._told_finals(done, info), features
        last = features[done]
        if self._mode == AutoresetMode.NEXT_STEP or self.autoreset == "disabled":
            self._is_waiting = done
            return last, features
        obs, info = self._env.reset(options={"reset_mask": done.copy()})
        self._allowed.read(info)
        return last, self._flat(obs)

    def _told_finals(self, done: NDArray[np.bool_], info: Mapping[str, Any]) -> NDArray[np.float32]:
        """The last observations that a source tells which resets in the same step."""
        finals = info.get("final_obs", [None] * self.num_envs)
        told = [finals[env_id] for env_id in np.flatnonzero(done).tolist()]
        missing = [int(i) for i, one in zip(np.flatnonzero(done), told, strict=True) if one is None]
        if missing:
            raise ProtocolError(
                f"{self._env}: the episode of env {missing[0]} has ended, but info['final_obs'] "
                "has no observation of it, as AutoresetMode.SAME_STEP demands"
            )
        space = self._env.single_observation_space
        room: Any = create_empty_array(space, len(told))
        return flat(space, concatenate(space, told, room), len(told))

    def _flat(self, obs: object) -> NDArray[np.float32]:
        return flat(self._env.single_observation_space, obs, self.num_envs)

    def _require_finite(
        self,
        what: str,
        rows: NDArray[np.float32],
        env_ids: NDArray[np.int64] | None = None,
        *,
        steps: int = 1,
    ) -> None:
        """Checks numbers of environments, or of some of them, `steps` after what was counted.

        Raises:
            SchemaError: one that is not finite.
        """
        is_finite = np.isfinite(rows)
        if is_finite.all():
            return
        row, column = np.argwhere(~is_finite)[0].tolist()
        env_id = row if env_ids is None else int(env_ids[row])
        part = ""
        if what != "reward":
            part = f"{self._obs_space.entities[self._entity].features[column]!r} of "
        raise SchemaError(
            f"{self._env}: env {env_id}, {self._ledger.place(env_id, steps)}: {part}the {what} "
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
        if has_global_entity(self._obs_space, self._reader.spaces):
            nothing = np.zeros((len(features), 0), dtype=np.float32)
            entities[GLOBAL_ENTITY] = RaggedArray.unchecked(nothing, one_each)
        return entities

    def _masks(
        self, ready: NDArray[np.bool_], *, is_final: bool = False
    ) -> dict[ActionName, VecActionMask]:
        """Who is asked; of last observations nobody is."""
        lengths, count = ready.astype(np.int64), int(ready.sum())
        if isinstance(self._env.single_action_space, spaces.Box):  # the entity itself acts
            actors = RaggedArray.unchecked(np.zeros(count, dtype=np.int64), lengths)
            return dict.fromkeys(self._reader.spaces, VecContinuousActionMask(actors))
        actors = RaggedArray.unchecked(np.ones(count, dtype=np.int64), lengths)
        allowed = None if is_final else self._allowed.of(ready)
        mask = None if allowed is None else RaggedArray.unchecked(allowed, lengths)
        return dict.fromkeys(self._reader.spaces, VecCategoricalActionMask(actors, mask))

    def _nothing(self) -> NDArray[np.float32]:
        """What a reset earns."""
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
            f"{env} does not say what becomes of episodes that have ended: set "
            "env.metadata['autoreset_mode'] to the AutoresetMode that it has"
        )
    return mode


def _require_autoreset(autoreset: str, mode: AutoresetMode, env: AnyVectorEnv) -> None:
    if autoreset not in ("same_step", "disabled"):
        raise UsageError(f'autoreset must be "same_step" or "disabled", got {autoreset!r}')
    if autoreset == "disabled" and mode != AutoresetMode.DISABLED:
        raise UsageError(
            f'{env} resets by itself, by {mode}: autoreset="disabled" needs one that does not, '
            "with AutoresetMode.DISABLED"
        )
