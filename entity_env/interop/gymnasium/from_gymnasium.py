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
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.game import WithRegistry
from entity_env.interop.gymnasium.masks import AllowedActions, MaskPart, MaskReader
from entity_env.interop.gymnasium.spaces import (
    EntityParts,
    FeatureNames,
    ObsConverter,
    batched,
    parts_in,
)
from entity_env.interop.gymnasium.sub_envs import check_sub_envs
from entity_env.interop.gymnasium.vector_env import VectorEnvBase
from entity_env.interop.results import (
    INFO,
    ResultOf,
    call_reset,
    called,
    checked_batch_step,
    checked_reset,
    number_or_nan,
)
from entity_env.vec.batch_env.array_batch import ActionValues, ArrayBatch
from entity_env.vec.batch_env.source import (
    BatchSource,
    made_or_factory,
    require_made,
    sequence_runs,
)
from entity_env.vec.options import OnError
from entity_env.vec.vec_env import VecEnv

AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]
Rows: TypeAlias = NDArray[np.bool_]
Entities: TypeAlias = dict[EntityName, RaggedArray[np.float32]]


_WITH_SEEDS: Final = (SyncVectorEnv, AsyncVectorEnv, VectorEnvBase)
"""Vector environments whose `reset` takes a list of seeds."""


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
    with dotted names, `Action.move`. Integers of a `Box` are choices, numbers with equal bounds are
    constant.

    **Masks.** `info["action_mask"]`, a part `action_mask` of a `Dict` observation, and a method
    `action_masks()` are masks of the actions; with several of them, all must allow a choice. A mask
    has the form for `sample(mask)` of the action space, or is flat, with one flag per choice of all
    actions. It holds for one step; without a mask, everything is allowed. If `observation` is the
    only other part of the observation, it becomes the observation.

    **Metrics.** Numbers in step infos become metrics: `info["success"]` becomes `info/success`.
    `Episode.metrics` has the numbers of an episode's last step. Arrays and nested infos are
    omitted.

    By default, the autoreset mode is `"same_step"` for any mode of `env`: last observations are in
    `final`; `terminated` and `truncated` come from `env`, and an episode with both is terminated.
    If `env` has SAME_STEP, last observations come from `info["final_obs"]`. With NEXT_STEP, the
    last observation is also returned, without actors, and the next step only resets that
    environment, with reward 0. With DISABLED, this object resets environments with
    `options["reset_mask"]`.

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
        asked = self.factory, len(envs), VectorEnv, "GymnasiumVecEnv"
        env: VectorEnv[Any, Any, Any] = called("making the environments", require_made, *asked)
        actions = ActionConverter(env.single_action_space, self.action)
        reader = MaskReader(actions, env)
        part = MaskPart(env.single_observation_space, reader, parts_in(self.entities))
        shown = ObsConverter(
            part.space, self.entity, self.entities, self.features, has_actor=actions.has_numbers
        )
        allowed = AllowedActions(len(envs), reader, str(env), check_sub_envs(env, envs.start))
        return GymnasiumBatch(env, autoreset, actions, shown, part, allowed, envs.start)

    def new_runs(
        self, env_ids: Sequence[int], num_envs: int, seed: int | None, starts: ArrayLike | None
    ) -> dict[int, Run]:
        return sequence_runs(env_ids, num_envs, seed, starts, _gymnasium_seeds)


class GymnasiumBatch(ArrayBatch):
    """Steps a vector environment of Gymnasium.

    Args:
        env: the vector environment, closed by this object.
        actions, shown: converters of the action space, and of the observation space without masks.
        mask_part: the masks in observations.
        allowed: the legal choices.
        first_env: as for `ArrayBatch`.
    """

    def __init__(
        self,
        env: AnyVectorEnv,
        autoreset: Autoreset,
        actions: ActionConverter,
        shown: ObsConverter,
        mask_part: MaskPart,
        allowed: AllowedActions,
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
        self._mask_part = mask_part
        self._allowed = allowed
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
            features = self._reset({"seed": seed})
        else:
            if self._is_disabled:
                terminated, truncated = before.terminated & ~chosen, before.truncated & ~chosen
            features = {name: before.features[name] for name in self.spaces[0].entities}
            if chosen.any():
                features = self._reset({"seed": seed}, chosen)
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

    def _reset(self, given: Mapping[str, object], rows: Rows | None = None) -> Entities:
        """Resets some environments, or all, and reads their observations and masks."""
        if rows is not None:
            given = {**given, "options": {"reset_mask": rows.copy()}}
        call = f"{self._env}: env.reset"
        obs, info = checked_reset(call_reset(self._env.reset, self._env, call, **given), call)
        obs, masks = self._mask_part.split(obs)
        self._allowed.read(info, masks, rows)
        with ResultOf(call):
            return self._shown.rows(obs, self.num_envs)

    def advance(self, values: ActionValues) -> VecObs:
        batch = self._actions.batch(values, ~self._is_waiting)
        call = f"{self._env}: env.step"
        result = called(call, self._env.step, batch)
        obs, rewards, terminations, truncations, info = checked_batch_step(
            result, call, self.num_envs
        )
        obs, masks = self._mask_part.split(obs)
        self._allowed.read(info, masks)
        waited = self._is_waiting
        reward = rewards.astype(np.float32)
        terminated = terminations & ~waited
        truncated = truncations & ~terminations & ~waited
        reward[waited] = 0
        done = terminated | truncated
        metrics, of_episodes = self._metrics(info, done, ~waited)
        with ResultOf(call):
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
        last, allowed, features = self._end(features, done, truncated, info)
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
        masks = self._masks(last, truncated[env_ids], allowed)
        flags = reward[env_ids], terminated[env_ids], truncated[env_ids]
        shown.final = self._batch(last, masks, *flags, env_ids)
        shown.final.episodes = shown.episodes
        return shown

    def close(self) -> None:
        called(f"{self._env}: env.close", self._env.close)

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
                seen = values[chosen]
                found = Metric(len(seen), float(seen.sum()), float(seen.min()), float(seen.max()))
                merge_metrics(metrics, {name: found})
                for env_id in np.flatnonzero(chosen & done).tolist():
                    of_episodes.setdefault(env_id, {})[name] = float(values[env_id])
        return metrics, of_episodes

    def _end(
        self, features: Entities, done: Rows, truncated: Rows, info: Mapping[str, Any]
    ) -> tuple[Entities, Rows | None, Entities]:
        """Last observations of ended environments, masks of the truncated ones, and current
        observations of all."""
        if self._mode == AutoresetMode.SAME_STEP:
            last, masks = self._final_obs(done, info)
            infos = info.get("final_info")
            finals = infos if isinstance(infos, Mapping) else {}, masks
            return last, self._allowed.of_last(truncated, finals), features
        last = {name: rows[done] for name, rows in features.items()}
        allowed = self._allowed.of_last(truncated, None)
        if self._mode == AutoresetMode.NEXT_STEP or self._is_disabled:
            self.over = done
            return last, allowed, features
        return last, allowed, self._reset({}, done)

    def _final_obs(
        self, done: Rows, info: Mapping[str, Any]
    ) -> tuple[Entities, list[object] | None]:
        """Last observations in the info of an `env` with SAME_STEP, and their masks by env."""
        finals = info.get("final_obs", [None] * self.num_envs)
        env_ids = np.flatnonzero(done).tolist()
        missing = [env_id for env_id in env_ids if finals[env_id] is None]
        if missing:
            raise ProtocolError(
                f"{self._env}: the episode of env {missing[0]} has ended, but info['final_obs'] "
                "has no observation of it; AutoresetMode.SAME_STEP requires one"
            )
        masks: list[object] = [None] * self.num_envs
        shown = []
        for env_id in env_ids:
            obs, masks[env_id] = self._mask_part.split(finals[env_id])
            shown.append(obs)
        return self._shown.rows(batched(self._mask_part.space, shown), len(env_ids)), masks

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
        masks: dict[ActionName, VecActionMask] = {}
        for name, space in self._actions.spaces.items():
            if isinstance(space, ContinuousActionSpace):
                masks[name] = VecContinuousActionMask(of_numbers)
                continue
            mask = None
            if allowed is not None:
                flags = np.ascontiguousarray(allowed[:, self._allowed.place_of(name)])
                mask = RaggedArray.unchecked(flags, lengths)
            masks[name] = VecCategoricalActionMask(of_choices, mask)
        return masks


def _numbers(
    info: Mapping[Any, Any], rows: NDArray[np.bool_]
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.bool_]]]:
    """Numbers of an info, one per environment: metric name, values, and which values count."""
    for name, values in info.items():
        if isinstance(name, str) and name.startswith("_") and f"_{name}" not in info:
            continue  # flags of `name[1:]`
        if not isinstance(values, np.ndarray) or values.shape != rows.shape:
            continue
        present: Any = info.get(f"_{name}")
        has_flags = getattr(present, "dtype", None) == np.bool_
        chosen = rows & present if has_flags else rows.copy()
        numbers = _as_numbers(values, chosen)
        chosen &= np.isfinite(numbers)
        if chosen.any():
            yield f"{INFO}{name}", numbers, chosen


def _as_numbers(values: NDArray[Any], chosen: Rows) -> NDArray[np.float64]:
    """Values of the chosen environments as numbers, NaN if they are something else."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    numbers = np.full(len(values), np.nan)
    if values.dtype == np.object_:
        # Gymnasium keeps numpy bools, and numbers next to other values, as objects.
        numbers[chosen] = [number_or_nan(each) for each in values[chosen]]
    return numbers


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
