"""Gymnasium vector environments: EntityVectorEnv wraps a `VecEnv`, BatchVectorEnv a `BatchEnv`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, SupportsIndex, TypeAlias, cast

import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace
from entity_env.core.validation import parameters_of, require_choice
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecObs
from entity_env.episodes.episode_env import ResettableVec, Vec
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.padded import IllegalActions, Masks
from entity_env.interop.gymnasium.room import Room, padded
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult

Flags: TypeAlias = NDArray[np.bool_]
Infos: TypeAlias = dict[str, Any]
Stepped: TypeAlias = tuple[Any, NDArray[np.float64], Flags, Flags, Infos]
"""Observations, `(num_envs,)` rewards, terminations and truncations, and infos, owned by the
caller."""


class VectorEnvBase(VectorEnv[Any, Any, NDArray[Any]]):
    """Base class with the lifecycle, seeding, checks and errors of Gymnasium's `SyncVectorEnv`.

    The given spaces are those of one environment; the autoreset mode is added to `metadata`.
    """

    closed = True  # until `__init__` succeeds: older Gymnasium versions close a half-made object

    def __init__(
        self,
        num_envs: int,
        autoreset_mode: AutoresetMode,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        metadata: Mapping[str, object],
    ) -> None:
        self.num_envs = num_envs
        self.autoreset_mode = autoreset_mode
        self.metadata = {**metadata, "autoreset_mode": autoreset_mode}
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self._seeds: list[int] | None = None
        """Last seed of each environment."""
        self._was_reset = False
        self._autoreset_envs = np.zeros(num_envs, dtype=np.bool_)
        """Environments that have ended and have not been reset since."""
        self.closed = False

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as SyncVectorEnv
        """Last seed of each environment; drawn if there was none."""
        return tuple(self._drawn_seeds())

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        """Resets all environments, or those in `options["reset_mask"]`; see `SyncVectorEnv`.

        Args:
            seed: environment i gets `seed + i`, or `seed[i]` of a list, drawn if that is None.
                Without `seed`, the first reset draws seeds, and later resets continue with the next
                episodes.
            options: `reset_mask`, `(num_envs,) bool`, True = reset; other environments repeat their
                last observation. Not modified.

        Returns:
            Observations and infos, owned by the caller.

        Raises:
            ClosedEnvironmentError: after `close`.
            ResetNeeded: the mask of the first reset omits environments.
            TypeError, ValueError: a mask of the wrong type, dtype or shape, all False, or given to
                an `EntityVectorEnv` that resets itself; a wrong number of seeds.
            gymnasium.error.Error: a seed that is negative or not an integer.
        """
        self._require_open()
        seeds = None if seed is None and self._was_reset else self._checked_seeds(seed)
        mask = mask_option(options, self.num_envs)
        if mask is not None and not self._was_reset and not mask.all():
            raise error.ResetNeeded(
                "`options['reset_mask']` leaves environments out that were never reset: call "
                "env.reset() first"
            )
        chosen = np.ones(self.num_envs, dtype=np.bool_) if mask is None else mask.copy()
        shown = self._begin(chosen, seeds, is_partial=mask is not None and self._was_reset)
        if seeds is not None:
            before = self._seeds or seeds
            self._seeds = [
                new if is_new else old
                for new, old, is_new in zip(seeds, before, chosen.tolist(), strict=True)
            ]
        self._autoreset_envs[chosen] = False
        self._was_reset = True
        return shown

    def step(self, actions: Any) -> Stepped:  # noqa: ANN401 - as Gymnasium
        """Steps every environment with an element of `action_space`.

        Raises:
            AssertionError: with autoreset disabled, an ended environment has not been reset.
            ClosedEnvironmentError: after `close`.
            ResetNeeded: before `reset`.
            SchemaError: the actions do not match the action space.
        """
        self._require_open()
        if not self._was_reset:
            raise error.ResetNeeded("Cannot call env.step() before calling env.reset()")
        if self.autoreset_mode == AutoresetMode.DISABLED and self._autoreset_envs.any():
            ended = AssertionError(f"{self._autoreset_envs=}")
            ended.add_note("reset those first: env.reset(options={'reset_mask': mask})")
            raise ended
        stepped = self._step(actions)
        np.logical_or(stepped[2], stepped[3], out=self._autoreset_envs)
        return stepped

    @abstractmethod
    def _begin(self, mask: Flags, seeds: list[int] | None, is_partial: bool) -> tuple[Any, Infos]:
        """Resets the environments in a mask, with one seed each, and observes all.

        The mask is all True unless `is_partial`. Without seeds, environments continue with their
        next episodes.
        """

    @abstractmethod
    def _step(self, actions: object) -> Stepped:
        """Steps every environment."""

    def _checked_seeds(self, seed: int | Sequence[int | None] | None) -> list[int]:
        if seed is None:
            return self._drawn_seeds()
        if isinstance(seed, int | np.integer):
            return [gymnasium_seed(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                "If seeds are passed as a list the length must match "
                f"num_envs={self.num_envs} but got length={len(seed)}."
            )
        drawn = self.np_random.integers(2**31, size=self.num_envs).tolist()
        return [
            other if each is None else gymnasium_seed(each)
            for each, other in zip(seed, drawn, strict=True)
        ]

    def _drawn_seeds(self) -> list[int]:
        if self._seeds is None:
            first = int(np.random.SeedSequence().generate_state(1)[0])
            self._seeds = [first + i for i in range(self.num_envs)]
        return self._seeds

    def _require_open(self) -> None:
        if self.closed:
            raise error.ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )


def mask_option(options: Mapping[str, Any] | None, num_envs: int) -> Flags | None:
    """Reset mask of `options`, or None; errors as in `SyncVectorEnv`."""
    if options is None or "reset_mask" not in options:
        return None
    mask = options["reset_mask"]
    where = "`options['reset_mask']` must"
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"{where} be a numpy array, got {type(mask)}")
    if mask.shape != (num_envs,):
        raise ValueError(f"{where} have shape `({num_envs},)`, got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"{where} have `dtype=np.bool_`, got {mask.dtype}")
    if not mask.any():
        raise ValueError(
            f"{where} contain a boolean array with at least one True value, got reset_mask={mask}"
        )
    return mask


def gymnasium_seed(seed: object) -> int:
    """A seed as an `int`; Gymnasium's error if it is negative or not an integer."""
    if not isinstance(seed, int | np.integer):
        raise error.Error(f"Seed must be a python integer, actual type: {type(seed)}")
    if seed < 0:
        raise error.Error(f"Seed must be greater or equal to zero, actual value: {seed}")
    return int(seed)


def with_finals(infos: Infos, last: Mapping[int, object], final_info: Infos, ended: Flags) -> None:
    """Adds the last observations (`last`, by environment) and the infos of ended episodes, as for
    `AutoresetMode.SAME_STEP`."""
    final_obs = np.full(len(ended), None, dtype=object)
    for env_id, shown in last.items():
        final_obs[env_id] = shown
    infos["final_obs"], infos["_final_obs"] = final_obs, ended
    infos["final_info"], infos["_final_info"] = final_info, ended.copy()


MODES: Final[Mapping[Autoreset, AutoresetMode]] = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}
RENDER_FPS: Final = 10

RUN_SEED: Final = 2**62
"""Run that holds the episodes of all seeds; not that of seed 0, whose episodes `VecEnv` and
`Game.run` play."""
_EPISODES_A_SEED: Final = 2**31


class Uncopyable:
    """Refuses copying and pickling."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        name = type(self).__name__
        raise UsageError(
            f"this {name} cannot be copied or pickled: its game is suspended in the middle of "
            "play, on its own stack, which Python cannot copy. To branch off, make another "
            "one, reset it with the same seed and repeat the actions; to have one in another "
            f"process, send a function that makes it, lambda: {name}(...)"
        )


class EntityVectorEnv(Uncopyable, VectorEnvBase):
    """Wraps a `VecEnv` as a `gymnasium.vector.VectorEnv`.

    Observations, actions and masks are described in `entity_env.interop.gymnasium`; the caller owns
    them. The autoreset mode is the mode of `vec`: "next_step", "same_step" or "disabled"; partial
    resets need "disabled". To count entities and actors, the constructor may play the first steps
    of a few episodes.

    A seed gives the same episodes in every environment and in a `GameEnv`: seed s starts at episode
    `s * 2**31` of the run with seed `2**62`. If `vec.reset` takes no `starts`, an integer seeds the
    whole run, and a list of seeds that are not consecutive raises an error.
    `infos["episode_seed"]`, `(num_envs,)` int64, has the `Episode.seed` of every current episode,
    unless `vec` wraps a batch environment or another library.

    Args:
        vec: the environments, with one agent each; closed by this object.
        max_entities, max_actors, illegal_actions, render_mode: as for `GameEnv`.

    Raises:
        SchemaError: as for `GameEnv`.
        UsageError: several agents per environment, or an invalid setting.
    """

    has_blank_masks: ClassVar[bool] = True
    """Masks of zeros mean that no action is needed, for the importers of this package."""

    def __init__(
        self,
        vec: Vec,
        *,
        max_entities: Room | None = None,
        max_actors: Room | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
    ) -> None:
        require_one_agent(vec.num_rows // vec.num_envs)
        require_settings(illegal_actions, render_mode)
        self._vec = cast(ResettableVec, vec)  # has `reset_envs` if autoreset is disabled
        self._takes_starts = "starts" in parameters_of(vec.reset)
        self._entities, self._actions, self._obs = padded(
            self._vec, self._begin_first, max_entities, max_actors, illegal_actions
        )
        self._masks = self._actions.masks(self._obs)
        self._episode_seed: NDArray[np.int64] | None = None
        """Seeds of the current episodes, if known."""
        if hasattr(vec, "episode_seeds") and vec.episode_seeds([]) is not None:
            self._episode_seed = np.zeros(vec.num_envs, np.int64)
        super().__init__(
            vec.num_envs,
            MODES[vec.autoreset],
            self._entities.space(),
            self._actions.space(),
            {"render_modes": ["rgb_array"], "render_fps": RENDER_FPS},
        )
        self.render_mode = render_mode

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One image per environment, `(height, width, 3)` uint8; None without a render mode.

        Raises:
            NotImplementedError: the environments have no `render`.
        """
        if self.render_mode is None:
            return None
        render = getattr(self._vec, "render", None)
        if render is None:
            raise NotImplementedError(f"{type(self._vec).__name__} has no render()")
        return tuple(render(env_id) for env_id in range(self.num_envs))

    def close_extras(self, **kwargs: object) -> None:
        self._vec.close()

    def _begin_first(self) -> VecObs:
        obs = self._vec.reset(seed=0)
        if self._vec.autoreset != "disabled":
            return obs
        return past_idle(self._vec, obs, np.ones(self._vec.num_envs, dtype=np.bool_))

    def _begin(self, mask: Flags, seeds: list[int] | None, is_partial: bool) -> tuple[Any, Infos]:
        if is_partial and self.autoreset_mode != AutoresetMode.DISABLED:
            raise ValueError(
                "`options['reset_mask']` needs AutoresetMode.DISABLED, this environment has "
                f'{self.autoreset_mode}: make the VecEnv with autoreset="disabled"'
            )
        shown = self._shown(self._reset(mask if is_partial else None, seeds))
        self._read_seeds(mask)
        return shown, self._infos(self._masks, mask)

    def _reset(self, mask: Flags | None, seeds: list[int] | None) -> VecObs:
        starts: dict[str, Any] = {}
        if seeds is not None and self._takes_starts:
            starts = {"seed": RUN_SEED, "starts": [start_of(seed) for seed in seeds]}
        elif seeds is not None:
            if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
                raise UsageError(
                    f"{type(self._vec).__name__}.reset takes no starts, so environments cannot be "
                    "seeded one by one: pass one integer"
                )
            starts = {"seed": seeds[0]}
        if self.autoreset_mode != AutoresetMode.DISABLED:
            return self._vec.reset(**starts)
        if mask is None:
            mask = np.ones(self.num_envs, dtype=np.bool_)
            return past_idle(self._vec, self._vec.reset(**starts), mask)
        return past_idle(self._vec, self._vec.reset_envs(mask, **starts), mask)

    def _step(self, actions: object) -> Stepped:
        obs = self._vec.act(self._actions.answer(self._obs, self._masks, actions))
        shown = self._shown(obs)
        ended_seed = None if self._episode_seed is None else self._episode_seed.copy()
        self._read_seeds(obs.done | self._autoreset_envs)
        flags = obs.terminated.copy(), obs.truncated.copy()
        last_masks = self._actions.masks_with_final(obs, self._masks)
        is_reset = self.autoreset_mode == AutoresetMode.SAME_STEP
        masks = self._masks if is_reset else last_masks
        infos = self._infos(masks, np.ones(self.num_envs, dtype=np.bool_))
        if is_reset and obs.final is not None:
            self._add_finals(infos, obs.final, last_masks, *flags, ended_seed)
        return shown, obs.reward.astype(np.float64), *flags, infos

    def _shown(self, obs: VecObs) -> dict[str, NDArray[Any]]:
        self._obs = obs
        self._masks = self._actions.masks(obs)
        return self._entities.observe(obs)

    def _read_seeds(self, mask: Flags) -> None:
        if self._episode_seed is not None and mask.any():
            vec: Any = self._vec
            env_ids = np.flatnonzero(mask).tolist()
            self._episode_seed[env_ids] = vec.episode_seeds(env_ids)

    def _infos(
        self, masks: Masks, mask: Flags, episode_seed: NDArray[np.int64] | None = None
    ) -> Infos:
        info = self._actions.info(masks)
        if episode_seed is None:
            episode_seed = self._episode_seed
        if episode_seed is not None:
            info["episode_seed"] = episode_seed.copy()
        return vector_info(info, mask)

    def _add_finals(
        self,
        infos: Infos,
        final: VecObs,
        masks: Masks,
        terminated: Flags,
        truncated: Flags,
        episode_seed: NDArray[np.int64] | None,
    ) -> None:
        """Adds last observations and masks, and sets the flags of ended episodes, in place."""
        tables = self._entities.observe(final)
        # Backward, to keep the first of several episodes of an environment: the later ones ended
        # before their first action.
        rows = {env_id: row for row, env_id in reversed(list(enumerate(final.env_id.tolist())))}
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        ended[list(rows)] = True
        for env_id, row in rows.items():
            terminated[env_id], truncated[env_id] = final.terminated[row], final.truncated[row]
        last = {i: {key: each[row] for key, each in tables.items()} for i, row in rows.items()}
        with_finals(infos, last, self._infos(masks, ended, episode_seed), ended)


def past_idle(vec: ResettableVec, obs: VecObs, mask: Flags) -> VecObs:
    """Skips episodes that end before their first action, which Gymnasium cannot express."""
    for _ in range(MAX_IDLE_EPISODES):
        idle = obs.done & mask
        if not idle.any():
            return obs
        obs = vec.reset_envs(idle)
    raise ProtocolError(f"{MAX_IDLE_EPISODES} episodes in a row were over before the first action")


def vector_info(info: Infos, mask: Flags) -> Infos:
    """Infos in Gymnasium's format, for the environments in `mask`; zeroes other values in place."""
    infos: Infos = {}
    for key, value in info.items():
        if isinstance(value, dict):
            infos[key] = vector_info(value, mask)
        else:
            value[~mask] = 0
            infos[key] = value
        infos[f"_{key}"] = mask.copy()
    return infos


def start_of(seed: int) -> int:
    """Index of a seed's first episode in the run with seed `RUN_SEED`."""
    return _folded(seed, np.uint32) * _EPISODES_A_SEED


def require_settings(
    illegal_actions: str, render_mode: str | None, render_modes: Sequence[str] = ("rgb_array",)
) -> None:
    """Raises `UsageError` for an invalid setting."""
    require_choice("illegal_actions", illegal_actions, ("raise", "next"))
    if render_mode is not None and render_mode not in render_modes:
        modes = " or ".join(map(repr, render_modes))
        raise UsageError(f"render_mode must be {modes}, or None: got {render_mode!r}")


def require_one_agent(num_agents: int) -> None:
    """Raises `UsageError` for an environment with several agents."""
    if num_agents != 1:
        raise UsageError(
            f"a Gymnasium environment has one agent, this game is for {num_agents}: step it as a "
            "VecEnv"
        )


class BatchVectorEnv(VectorEnvBase):
    """Wraps a `BatchEnv` as a `gymnasium.vector.VectorEnv`.

    Observations are a `Box` `(num_envs, obs_size)` float32. Actions are a `MultiDiscrete`, or a
    `Box` `(num_envs, 1)` for an action of one number; numbers out of bounds raise an error, so clip
    them, for example by Gymnasium's `ClipAction`. The caller owns all returned arrays. `info` has
    `action_mask`, `(num_envs, num_choices)` int8, if the batch has `legal_masks`, and with
    `AutoresetMode.SAME_STEP` also `final_obs` and `final_info` when episodes end. With
    `AutoresetMode.NEXT_STEP`, an ended environment is reset twice, since the batch can only step as
    a whole: every second of its episodes is skipped.

    Args:
        batch: the environment, closed by this object.
        autoreset_mode: an `AutoresetMode` or its value.

    Raises:
        UsageError: the batch has several actions, or one that is neither a label nor one number.
        ValueError: an unknown `autoreset_mode`.
    """

    def __init__(
        self, batch: BatchEnv, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        self._batch = batch
        action_space = _action_space(batch)
        self._has_numbers = isinstance(action_space, spaces.Box)
        super().__init__(
            batch.num_envs,
            AutoresetMode(autoreset_mode),
            spaces.Box(-np.inf, np.inf, (batch.obs_size,), np.float32),
            action_space,
            {"render_modes": []},
        )

    def close_extras(self, **kwargs: object) -> None:
        self._batch.close()

    def _begin(self, mask: Flags, seeds: list[int] | None, is_partial: bool) -> tuple[Any, Infos]:
        own = None
        if seeds is not None:
            own = np.array([_folded(seed, np.uint64) for seed in seeds], np.uint64)
        if is_partial:
            self._batch.reset_envs(ResetMask.from_bool(mask), own)
        else:
            self._batch.reset(own)
        return self._batch.view().observations.copy(), self._info(mask)

    def _step(self, actions: object) -> Stepped:
        given = self._checked(actions)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            stepped = self._step_waiting(given)
        else:
            result = self._batch.step_no_reset_with_result(given)
            stepped = _copies(result)
            mask = result.to_reset_mask()
            if self.autoreset_mode == AutoresetMode.SAME_STEP and mask.any():
                self._begin_next(mask, stepped)
        stepped[-1].update(self._info(np.ones(self.num_envs, np.bool_)))
        return stepped

    def _info(self, mask: Flags) -> Infos:
        masks = self._batch.legal_masks
        return {} if masks is None else vector_info({"action_mask": masks.astype(np.int8)}, mask)

    def _step_waiting(self, given: NDArray[Any]) -> Stepped:
        """Steps the running environments, and resets those that ended in the previous step."""
        batch = self._batch
        waiting = batch.view().to_reset_mask()
        if not waiting.any():
            return _copies(batch.step_no_reset_with_result(given))
        # A batch steps as a whole: reset the waiting environments, step them too, and reset them
        # again.
        batch.reset_envs(waiting)
        if batch.legal_masks is not None:  # their given actions may be illegal
            given = np.where(waiting.to_bool(), batch.legal_masks.argmax(axis=1), given)
        batch.step_no_reset(given)
        batch.reset_envs(waiting)
        stepped = _copies(batch.view())
        stepped[1][waiting.indices()] = 0
        return stepped

    def _begin_next(self, mask: ResetMask, stepped: Stepped) -> None:
        obs, _, _, _, infos = stepped
        ended = mask.indices()
        last = dict(zip(ended.tolist(), obs[ended], strict=True))
        with_finals(infos, last, {}, mask.to_bool())
        self._batch.reset_envs(mask)
        obs[ended] = self._batch.view().observations[ended]

    def _checked(self, actions: object) -> NDArray[Any]:
        """The actions in the batch's format; the batch checks the rest."""
        given = np.asarray(actions)
        if not self._has_numbers:
            return given
        if given.shape != (self.num_envs, 1) or given.dtype.kind not in "fiu":
            raise SchemaError(
                f"{type(self._batch).__name__}: actions must be ({self.num_envs}, 1) numbers, one "
                f"row per environment: got {given.shape} {given.dtype}"
            )
        return given[:, 0].astype(np.float32)


def _copies(result: StepResult) -> Stepped:
    return (
        result.observations.copy(),
        result.rewards.astype(np.float64),
        result.terminals.astype(np.bool_),
        result.truncations.astype(np.bool_),
        {},
    )


def _folded(seed: int, dtype: type[np.uint32] | type[np.uint64]) -> int:
    """Folds a seed of any size into a dtype; unchanged if it fits."""
    if seed <= np.iinfo(dtype).max:
        return seed
    return int(np.random.SeedSequence(seed).generate_state(1, dtype)[0])


def _action_space(batch: BatchEnv) -> spaces.Space[Any]:
    actions = batch.action_space()
    if len(actions) == 1:
        (space,) = actions.values()
        if isinstance(space, ContinuousActionSpace):
            if len(space) == 1:
                low, high = np.float32(space.low[0]), np.float32(space.high[0])
                return spaces.Box(low, high, (1,), np.float32)
        elif not isinstance(space, SelectEntityActionSpace):
            return spaces.Discrete(len(space))
    raise UsageError(
        f"{type(batch).__name__} has the actions {dict(actions)}: a batch as a Gymnasium "
        "environment has one, of labels or of one number"
    )
