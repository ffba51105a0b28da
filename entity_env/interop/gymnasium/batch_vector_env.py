"""BatchVectorEnv: a batch environment as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace
from entity_env.errors import SchemaError, UsageError
from entity_env.interop.gymnasium.vector_base import (
    Flags,
    Infos,
    Stepped,
    VectorEnvBase,
    checked_mode,
    with_finals,
)
from entity_env.interop.gymnasium.vector_env import vector_info
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult

_NUM_SEEDS = 2**64


class BatchVectorEnv(VectorEnvBase):
    """Wraps a `BatchEnv` as a `gymnasium.vector.VectorEnv`.

    Observations are a `Box` `(num_envs, obs_size)` float32. Actions are a `MultiDiscrete`, or a
    `Box` `(num_envs, 1)` for an action of one number; numbers out of bounds are errors, which
    Gymnasium's `ClipAction` prevents. The caller owns all returned arrays. `info` has `final_obs`
    and `final_info`, and for a batch with `legal_masks` the `action_mask`,
    `(num_envs, num_choices)` int8. With `AutoresetMode.NEXT_STEP` every second start of an
    environment is skipped: it is reset twice while it waits for the other environments.

    Args:
        batch: the environment; this object closes it.
        autoreset_mode: an `AutoresetMode` or its value.

    Raises:
        UsageError: a batch without `supports_no_reset()`, or with an action that is neither one
            choice nor one number.
        ValueError: no such mode.
    """

    def __init__(
        self, batch: BatchEnv, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        name = type(batch).__name__
        if not batch.supports_no_reset():
            raise UsageError(
                f"{name} resets ended environments itself, so their last observations are lost: a "
                "Gymnasium environment needs one whose supports_no_reset() is True"
            )
        self._batch = batch
        action_space = _action_space(batch)
        self._has_numbers = isinstance(action_space, spaces.Box)
        super().__init__(
            batch.num_envs,
            checked_mode(autoreset_mode),
            spaces.Box(-np.inf, np.inf, (batch.obs_size,), np.float32),
            action_space,
            {"render_modes": []},
        )

    def close_extras(self, **kwargs: object) -> None:
        self._batch.close()

    def _begin(self, mask: Flags, seeds: list[int] | None, is_partial: bool) -> tuple[Any, Infos]:
        batch = self._batch
        if seeds is not None:
            self._begin_seeded(mask, seeds, is_partial)
        elif is_partial:
            batch.reset_envs(ResetMask.from_bool(mask))
        else:
            batch.reset()
        return batch.view().observations.copy(), self._info(mask)

    def _begin_seeded(self, mask: Flags, seeds: list[int], is_partial: bool) -> None:
        """Resets by groups of environments i whose `seeds[i] - i` are equal, most often all."""
        by_seed: dict[int, list[int]] = {}
        for env_id in np.flatnonzero(mask).tolist():
            by_seed.setdefault((_folded(seeds[env_id]) - env_id) % _NUM_SEEDS, []).append(env_id)
        if not is_partial:
            self._batch.reset(next(iter(by_seed)))
            if len(by_seed) == 1:
                return
        for seed, env_ids in by_seed.items():
            chosen = np.zeros(self.num_envs, dtype=np.bool_)
            chosen[env_ids] = True
            self._batch.reset_envs(ResetMask.from_bool(chosen), seed)

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
        """The action masks of some environments, if the batch has any."""
        masks = self._batch.legal_masks
        return {} if masks is None else vector_info({"action_mask": masks.astype(np.int8)}, mask)

    def _step_waiting(self, given: NDArray[Any]) -> Stepped:
        """A step that only resets environments whose episode had ended."""
        batch = self._batch
        waiting = batch.view().to_reset_mask()
        if not waiting.any():
            return _copies(batch.step_no_reset_with_result(given))
        # A batch steps as a whole: reset the waiting ones, step them too, and reset them again.
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
        final_obs = np.full(self.num_envs, None, dtype=object)
        for env_id, last in zip(ended.tolist(), obs[ended], strict=True):
            final_obs[env_id] = last
        with_finals(infos, final_obs, {}, mask.to_bool())
        self._batch.reset_envs(mask)
        obs[ended] = self._batch.view().observations[ended]

    def _checked(self, actions: object) -> NDArray[Any]:
        """The actions as the batch takes them, which checks the rest."""
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


def _folded(seed: int) -> int:
    """A seed below 2**64, as a batch takes it."""
    if seed < _NUM_SEEDS:
        return seed
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


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
