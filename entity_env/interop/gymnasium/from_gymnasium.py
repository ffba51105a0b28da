"""GymnasiumVecEnv: a `gymnasium.vector.VectorEnv` as a `VecEnv`, with converted spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import ArrayLike, NDArray

from entity_env.core.episode_stats import EpisodeStats
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import Run
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ContinuousActionSpace,
    EntityName,
    has_global_entity,
)
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import (
    Metric,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    find_not_finite,
    merge_metrics,
)
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.game import WithRegistry
from entity_env.interop.gymnasium.spaces import (
    INFO,
    ActionConverter,
    EntityParts,
    FeatureNames,
    ObsConverter,
    batched,
)
from entity_env.interop.gymnasium.vector_env import VectorEnvBase
from entity_env.vec.batch_env.array_batch import ActionValues, ArrayBatch
from entity_env.vec.batch_env.source import (
    BatchSource,
    made_or_factory,
    require_made,
    sequence_runs,
)
from entity_env.vec.options import OnError
from entity_env.vec.vec_env import VecEnv


class AllowedActions:
    """Action masks from the latest infos; `num_choices` is 0 unless the action is one choice."""

    def __init__(self, num_envs: int, num_choices: int, where: str) -> None:
        self._allowed = np.ones((num_envs, num_choices), dtype=np.bool_)
        self._where = where
        self._has_masks = False

    def read(self, info: Mapping[str, Any]) -> None:
        """Stores the masks of an info; `SchemaError` for a wrong shape."""
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
        """Choices allowed in `ready` environments, `(num_ready, num_choices)`; None = all.

        Raises:
            SchemaError: a mask allows nothing.
        """
        if not self._has_masks:
            return None
        empty = np.flatnonzero(ready & ~self._allowed.any(axis=1))
        if len(empty):
            raise SchemaError(
                f"{self._where}: info['action_mask'] of env {empty[0]} allows nothing"
            )
        return self._allowed[ready]

    def of_last(
        self, done: NDArray[np.bool_], truncated: NDArray[np.bool_], final_info: object
    ) -> NDArray[np.bool_] | None:
        """Choices allowed by the last observations of truncated episodes,
        `(num_truncated, num_choices)`; None = all.

        Args:
            done, truncated: `(num_envs,)` bool.
            final_info: `final_info` of environments that reset themselves; None = use the last
                masks read.
        """
        if not self._has_masks:
            return None
        allowed = self._allowed
        if final_info is not None:
            allowed = np.ones_like(self._allowed)
            given = final_info.get("action_mask") if isinstance(final_info, Mapping) else None
            if given is not None and np.shape(given) == allowed.shape:
                allowed[done] = np.asarray(given)[done].astype(np.bool_)
        return allowed[truncated]


_WITH_SEEDS: Final = (SyncVectorEnv, AsyncVectorEnv, VectorEnvBase)
"""Vector environments whose `reset` takes a list of seeds."""

AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]
Entities: TypeAlias = dict[EntityName, RaggedArray[np.float32]]


class GymnasiumVecEnv(VecEnv):
    """Steps a `gymnasium.vector.VectorEnv` as a `VecEnv`.

    **Observations.** Each environment is one entity, `Env`. Its features are the flattened
    observation, with choices one-hot. Parts of a `Dict` or `Tuple` named in `entities` become
    separate entities::

        GymnasiumVecEnv(env, entities={"Unit": ("units", "unit_mask"), "Shot": "shots"})

    A part is a `Box` of shape (num_entities, num_features), with one row per entity, and its mask
    is a `MultiBinary` or `Box` of shape (num_entities,), 1 = present; absent rows are dropped. Or
    the part is a `Sequence`, with one entity per element. Nested parts have dotted names,
    `"player.units"`; parts of a `Tuple` are numbered, `"0"`; the whole observation is named `""`.

    **Actions.** A `Discrete` is one choice, a `MultiDiscrete` or `MultiBinary` one choice per
    element, a bounded `Box` a continuous action. A `Dict` or `Tuple` has the actions of its parts,
    with dotted names, `Action.move`. `info["action_mask"]` of a `Discrete` is its mask.

    **Metrics.** Numbers in step infos become metrics: `info["success"]` becomes `info/success`.
    `Episode.metrics` has the numbers of an episode's last step. Arrays and nested infos are
    omitted.

    By default, the autoreset mode is `"same_step"` for any mode of `env`: last observations are in
    `final`; `terminated` and `truncated` come from `env`. If `env` has SAME_STEP, last observations
    come from `info["final_obs"]`. With NEXT_STEP, the last observation is also returned, without
    actors, and the next step only resets that environment, with reward 0. With DISABLED, this
    object resets environments with `options["reset_mask"]`.

    Seeding follows Gymnasium: environment i gets `seed + i`, or `seed + starts[i]` in `reset_envs`
    with `starts`; an `env` with one shared generator gets the smallest of these. Only `env` knows
    the seeds of later episodes, so `Episode.seed` is the seed of the first.

    Workers need a function that makes their vector environments::

        GymnasiumVecEnv(lambda num: gymnasium.make_vec("CartPole-v1", num), 64, num_workers=2)

    Args:
        env: the vector environment, closed by this object; or a function that takes a number of
            environments and returns a vector environment of that size.
        num_envs: number of environments; not needed for a vector environment.
        num_workers: number of processes, each with a vector environment for its share; 0 = in this
            process.
        autoreset: "disabled" leaves resets to `reset_envs`. This mode, and `reset_envs` in any
            mode, require that the mode of `env` is DISABLED.
        seed: see above.
        entity: name of the entity made of all parts that `entities` does not name.
        action: name of the action, or the first part of the names of several actions.
        entities: entity types, each with its part of the observation, or a part and its mask.
        features: feature names of some entities; default: `position.0` and so on.
        on_error, step_timeout_s, start_method: as for `VecEnv`.

    Raises:
        SchemaError: `env` is not a vector environment and does not make one of the right size.
        UsageError: an invalid number or mode; workers with an object instead of a function; an
            observation or action space that cannot be converted; no autoreset mode in
            `env.metadata`; or "disabled" for an `env` with another mode.
        WorkerError: a worker could not be started.
    """

    def __init__(
        self,
        env: AnyVectorEnv | Callable[[int], AnyVectorEnv],
        num_envs: int | None = None,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Literal["same_step", "disabled"] = "same_step",
        entity: EntityName = "Env",
        action: ActionName = "Action",
        entities: EntityParts | None = None,
        features: FeatureNames | None = None,
        on_error: OnError = "raise",
        step_timeout_s: float | None = None,
        start_method: str | None = None,
    ) -> None:
        make, num_envs = made_or_factory(env, num_envs, num_workers, VectorEnv, "GymnasiumVecEnv")
        super().__init__(
            GymnasiumSource(
                WithRegistry(make) if num_workers else make, entity, action, entities, features
            ),
            num_envs,
            num_workers,
            seed=seed,
            autoreset=autoreset,
            on_error=on_error,
            step_timeout_s=step_timeout_s,
            start_method=start_method,
        )


@dataclass(frozen=True)
class GymnasiumSource(BatchSource):
    """Source of vector environments; arguments as for `GymnasiumVecEnv`."""

    autoresets: ClassVar[tuple[Autoreset, ...]] = ("same_step", "disabled")

    factory: Callable[[int], AnyVectorEnv]
    entity: EntityName
    action: ActionName
    entities: EntityParts | None
    features: FeatureNames | None

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> GymnasiumBatch:
        env = require_made(self.factory, len(envs), VectorEnv, "GymnasiumVecEnv")
        actions = ActionConverter(env.single_action_space, self.action)
        shown = ObsConverter(
            env.single_observation_space,
            self.entity,
            self.entities,
            self.features,
            has_actor=actions.has_numbers,
        )
        return GymnasiumBatch(env, autoreset, actions, shown, envs.start)

    def new_runs(
        self, env_ids: Sequence[int], num_envs: int, seed: int | None, starts: ArrayLike | None
    ) -> dict[int, Run]:
        return sequence_runs(env_ids, num_envs, seed, starts, _gymnasium_seeds)


class GymnasiumBatch(ArrayBatch):
    """Steps a vector environment of Gymnasium.

    Args:
        env: the vector environment, closed by this object.
        actions, shown: converters of the action and observation spaces.
        first_env: as for `ArrayBatch`.
    """

    def __init__(
        self,
        env: AnyVectorEnv,
        autoreset: Autoreset,
        actions: ActionConverter,
        shown: ObsConverter,
        first_env: int,
    ) -> None:
        super().__init__(env.num_envs, 1, (shown.obs_space, actions.spaces), first_env)
        self._env = env
        self._mode = _mode_of(env, autoreset)
        self._actions = actions
        self._shown = shown
        self._is_disabled = autoreset == "disabled"
        # In other modes `env` may ignore `options["reset_mask"]` and reset every environment.
        self.can_reset_envs = self._mode == AutoresetMode.DISABLED
        self._stats = EpisodeStats(env.num_envs)
        self._allowed = AllowedActions(env.num_envs, actions.num_choices, str(env))
        self._obs: VecObs | None = None
        """Latest observations; None before the first reset."""
        self._nobody = np.zeros(env.num_envs, dtype=np.bool_)

    def begin(self, env_ids: Sequence[int], runs: dict[int, Run]) -> VecObs:
        before, chosen = self._obs, np.zeros(self.num_envs, dtype=np.bool_)
        chosen[list(env_ids)] = True
        terminated, truncated = (np.zeros(self.num_envs, dtype=np.bool_) for _ in range(2))
        seeds = {i: run[number] for i, (run, number) in runs.items()}
        seed: Any = self._reset_seed(seeds, len(env_ids))
        if before is None or chosen.all():
            features = self._read_reset(*self._env.reset(seed=seed))
        else:
            if self._is_disabled:
                terminated, truncated = before.terminated & ~chosen, before.truncated & ~chosen
            features = {name: before.features[name] for name in self.spaces[0].entities}
            if chosen.any():
                options = {"reset_mask": chosen.copy()}
                features = self._read_reset(*self._env.reset(seed=seed, options=options))
        self._stats.begin(chosen)
        for i, (_, number) in runs.items():
            self._stats.seed[i], self._stats.number[i] = seeds[i], number
        waiting = self._is_waiting & ~chosen
        self.over = waiting if waiting.any() else None
        self._require_finite("observation", features)
        reward = np.zeros(self.num_envs, dtype=np.float32)
        return self._make_obs(features, reward, terminated, truncated)

    @property
    def _is_waiting(self) -> NDArray[np.bool_]:
        """Environments whose episode has ended and that are not reset yet, as in `over`."""
        return self._nobody if self.over is None else self.over

    def numbers(self, env_id: int) -> Sequence[int]:
        return (int(self._stats.number[env_id]) + self.is_env_over(env_id),)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return int(self._stats.seed[env_id])

    def _reset_seed(
        self, seeds: Mapping[int, int], num_resets: int
    ) -> int | list[int | None] | None:
        """Seed for `VectorEnv.reset`: one number if all seeds count up from it, or if `env` has one
        generator; otherwise one per environment. None without seeds."""
        if not seeds:
            return None
        first, *others = {seed - i for i, seed in seeds.items()}
        if len(seeds) == num_resets and not others and first >= 0:
            return first
        # Environments that share one generator have one seed.
        has_one = not isinstance(self._env.unwrapped, _WITH_SEEDS)
        return min(seeds.values()) if has_one else [seeds.get(i) for i in range(self.num_envs)]

    def _read_reset(self, obs: object, info: Mapping[str, Any]) -> Entities:
        self._allowed.read(info)
        return self._shown.rows(obs, self.num_envs)

    def advance(self, values: ActionValues) -> VecObs:
        batch = self._actions.batch(values, ~self._is_waiting)
        obs, rewards, terminations, truncations, info = self._env.step(batch)
        self._allowed.read(info)
        waited = self._is_waiting
        reward = np.asarray(rewards, dtype=np.float32).copy()
        terminated = np.asarray(terminations, dtype=np.bool_) & ~waited
        truncated = np.asarray(truncations, dtype=np.bool_) & ~waited
        reward[waited] = 0
        done = terminated | truncated
        metrics, of_episodes = self._metrics(info, done, ~waited)
        features = self._shown.rows(obs, self.num_envs)
        self._require_finite_rewards(reward)
        self._stats.reward += reward
        self._stats.length += ~waited
        if self.over is not None:
            self._stats.begin(waited)
        self.over = None
        if not done.any():
            self._require_finite("observation", features)
            shown = self._make_obs(features, reward, terminated, truncated)
            shown.metrics = metrics
            return shown
        has_reset = self._mode == AutoresetMode.SAME_STEP
        is_cut = truncated & ~terminated
        allowed = self._allowed.of_last(
            done, is_cut, info.get("final_info", {}) if has_reset else None
        )
        last, features = self._end(features, done, info)
        self._require_finite("last observation", last, np.flatnonzero(done))
        shown = self._make_obs(features, reward, terminated, truncated)
        shown.metrics = metrics
        env_ids = np.flatnonzero(done)
        shown.episodes = [
            self._stats.episode(i, terminated[i], truncated[i], of_episodes.get(i))
            for i in env_ids.tolist()
        ]
        self._stats.begin(done & ~self._is_waiting)
        self._require_finite("observation", features)
        masks = self._masks(last, is_cut[env_ids], allowed)
        flags = reward[env_ids], terminated[env_ids], truncated[env_ids]
        shown.final = self._batch(last, masks, *flags, env_ids)
        shown.final.episodes = shown.episodes
        return shown

    def close(self) -> None:
        self._env.close()

    def _metrics(
        self, info: Mapping[str, Any], done: NDArray[np.bool_], stepped: NDArray[np.bool_]
    ) -> tuple[dict[str, Metric], dict[int, dict[str, float]]]:
        """Numeric infos of a step, and of every episode that it ended."""
        metrics: dict[str, Metric] = {}
        of_episodes: dict[int, dict[str, float]] = {}
        if not info:
            return metrics, of_episodes
        parts = [(info, stepped)]
        if self._mode == AutoresetMode.SAME_STEP and done.any():
            # Infos of ended environments belong to their resets.
            finals = info.get("final_info")
            parts = [(info, stepped & ~done), (finals if isinstance(finals, dict) else {}, done)]
        for part, rows in parts:
            for name, values, chosen in _numbers(part, rows):
                seen = values[chosen].astype(np.float64)
                found = Metric(len(seen), float(seen.sum()), float(seen.min()), float(seen.max()))
                merge_metrics(metrics, {name: found})
                for env_id in np.flatnonzero(chosen & done).tolist():
                    of_episodes.setdefault(env_id, {})[name] = float(values[env_id])
        return metrics, of_episodes

    def _end(
        self, features: Entities, done: NDArray[np.bool_], info: Mapping[str, Any]
    ) -> tuple[Entities, Entities]:
        """Last observations of ended environments, and current observations of all."""
        if self._mode == AutoresetMode.SAME_STEP:
            return self._final_obs(done, info), features
        last = {name: rows[done] for name, rows in features.items()}
        if self._mode == AutoresetMode.NEXT_STEP or self._is_disabled:
            self.over = done
            return last, features
        return last, self._read_reset(*self._env.reset(options={"reset_mask": done.copy()}))

    def _final_obs(self, done: NDArray[np.bool_], info: Mapping[str, Any]) -> Entities:
        """Last observations in the info of an `env` with SAME_STEP."""
        finals = info.get("final_obs", [None] * self.num_envs)
        env_ids = np.flatnonzero(done).tolist()
        missing = [env_id for env_id in env_ids if finals[env_id] is None]
        if missing:
            raise ProtocolError(
                f"{self._env}: the episode of env {missing[0]} has ended, but info['final_obs'] "
                "has no observation of it; AutoresetMode.SAME_STEP requires one"
            )
        last = batched(self._env.single_observation_space, [finals[i] for i in env_ids])
        return self._shown.rows(last, len(env_ids))

    def _require_finite_rewards(self, reward: NDArray[np.float32]) -> None:
        wrong = np.flatnonzero(~np.isfinite(reward)).tolist()
        if wrong:
            raise self._not_finite("the reward", wrong[0], 1, reward[wrong[0]])

    def _require_finite(
        self, what: str, features: Entities, env_ids: NDArray[np.int64] | None = None
    ) -> None:
        found = find_not_finite(features)
        if found is None:
            return
        name, row, column, value = found
        part = f"{self.spaces[0].entities[name].features[column]!r} of the {what}"
        raise self._not_finite(part, row if env_ids is None else int(env_ids[row]), 0, value)

    def _not_finite(self, what: str, env_id: int, num_steps: int, value: float) -> SchemaError:
        where = f"env {self.first_env + env_id}, {self._stats.place(env_id, num_steps)}"
        return SchemaError(f"{self._env}: {where}: {what} must be finite, got {value}")

    def _make_obs(
        self,
        features: Entities,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> VecObs:
        ready = ~self._is_waiting
        masks = self._masks(features, ready, self._allowed.of(ready))
        self._obs = self._batch(features, masks, reward, terminated, truncated, self.env_id)
        return self._obs

    def _batch(
        self,
        features: Entities,
        masks: dict[ActionName, VecActionMask],
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        env_ids: NDArray[np.int64],
    ) -> VecObs:
        entities = dict(features)
        if has_global_entity(self.spaces[0], self._actions.spaces):
            nothing = np.zeros((len(env_ids), 0), dtype=np.float32)
            one_each = np.ones(len(env_ids), dtype=np.int64)
            entities[GLOBAL_ENTITY] = RaggedArray.unchecked(nothing, one_each)
        no_agents = np.zeros_like(env_ids)
        return VecObs(entities, {}, masks, reward, terminated, truncated, env_ids, no_agents)

    def _masks(
        self,
        features: Entities,
        ready: NDArray[np.bool_],
        allowed: NDArray[np.bool_] | None,
    ) -> dict[ActionName, VecActionMask]:
        """Masks of some rows; rows that are not ready have no actors."""
        lengths, count = ready.astype(np.int64), int(ready.sum())
        num_entities = np.add.reduce([rows.lengths for rows in features.values()])[ready]
        of_choices = RaggedArray.unchecked(num_entities, lengths)  # the actor is the global row
        of_numbers = RaggedArray.unchecked(np.zeros(count, dtype=np.int64), lengths)
        mask = None if allowed is None else RaggedArray.unchecked(allowed, lengths)
        return {
            name: VecContinuousActionMask(of_numbers)
            if isinstance(space, ContinuousActionSpace)
            else VecCategoricalActionMask(of_choices, mask)
            for name, space in self._actions.spaces.items()
        }


def _numbers(
    info: Mapping[str, Any], rows: NDArray[np.bool_]
) -> Iterator[tuple[str, NDArray[Any], NDArray[np.bool_]]]:
    """Numbers of an info, one per environment: metric name, values, and which values count."""
    for name, values in info.items():
        is_array = isinstance(values, np.ndarray) and values.shape == rows.shape
        if is_array and values.dtype.kind in "biuf" and not name.startswith("_"):
            chosen = rows & info.get(f"_{name}", True) & np.isfinite(values)
            if chosen.any():
                yield f"{INFO}{name}", values, chosen


def _gymnasium_seeds(seed: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Seeds as in a vector environment of Gymnasium: counting up from the seed."""
    return (numbers.astype(np.uint64) + np.uint64(seed)) & np.uint64(2**63 - 1)


def _mode_of(env: AnyVectorEnv, autoreset: Autoreset) -> AutoresetMode:
    """Autoreset mode of `env`; raises an error if `autoreset` is impossible with it."""
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise UsageError(
            f"{env} does not say what happens to ended episodes: set "
            "env.metadata['autoreset_mode'] to its AutoresetMode"
        )
    if autoreset == "disabled" and mode != AutoresetMode.DISABLED:
        raise UsageError(
            f'{env} resets environments itself, with {mode}: autoreset="disabled" needs one with '
            "AutoresetMode.DISABLED"
        )
    return mode
