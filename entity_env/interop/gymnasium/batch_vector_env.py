"""BatchVectorEnv: a batch environment as a vector environment of Gymnasium."""

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
    VectorFace,
    checked_mode,
    with_finals,
)
from entity_env.interop.gymnasium.vector_env import vector_info
from entity_env.vec.batch_env.batch_env import BatchEnv, ResetMask, StepResult

_NUM_SEEDS = 2**64


class BatchVectorEnv(VectorFace):
    """Shows a batch environment as a `gymnasium.vector.VectorEnv`.

    Observations are a `Box` `(num_envs, obs_size)` float32, actions a `MultiDiscrete` or, of an
    action of one number, a `Box` `(num_envs, 1)`; numbers out of bounds are refused, and
    Gymnasium's `ClipAction` clips them. What is returned is the caller's own; `info` is empty but
    for `final_obs` and `final_info`, and `action_mask`, `(num_envs, num_choices)` int8, of a batch
    with `legal_masks`. With `AutoresetMode.NEXT_STEP`, where an environment waits for a step while
    all others go on, every second start of an environment is left out.

    Args:
        batch: what to show; this object closes it.
        autoreset_mode: what happens to episodes that have ended, a mode or its value.

    Raises:
        UsageError: a batch that cannot do without automatic resets, or with an action that is
            neither one choice nor one number.
        ValueError: there is no such mode.
    """

    def __init__(
        self, batch: BatchEnv, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    ) -> None:
        name = type(batch).__name__
        if not batch.supports_no_reset():
            raise UsageError(
                f"{name} resets what has ended by itself, so its last observations are lost: a "
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
            self._begin_from(mask, seeds, is_partial)
        elif is_partial:
            batch.reset_envs(ResetMask.from_bool(mask))
        else:
            batch.reset()
        return batch.view().observations.copy(), self._told(mask)

    def _begin_from(self, mask: Flags, seeds: list[int], is_partial: bool) -> None:
        """A batch begins environment i from `seed + i`; most often that is one seed for all."""
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
        stepped[-1].update(self._told(np.ones(self.num_envs, np.bool_)))
        return stepped

    def _told(self, told: Flags) -> Infos:
        """What infos say: what is allowed, of an environment that says so."""
        masks = self._batch.legal_masks
        return {} if masks is None else vector_info({"action_mask": masks.astype(np.int8)}, told)

    def _step_waiting(self, given: NDArray[Any]) -> Stepped:
        """A step in which those that had ended do nothing but begin."""
        batch = self._batch
        waiting = batch.view().to_reset_mask()
        if not waiting.any():
            return _copies(batch.step_no_reset_with_result(given))
        # A batch steps as a whole: those begin, are taken along, and begin again.
        batch.reset_envs(waiting)
        if batch.legal_masks is not None:  # whatever came for them need not be allowed
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
        """The actions as a batch takes them; it checks the rest."""
        given = np.asarray(actions)
        if not self._has_numbers:
            return given
        if given.shape != (self.num_envs, 1) or given.dtype.kind not in "fiu":
            raise SchemaError(
                f"{type(self._batch).__name__}: actions must be ({self.num_envs}, 1) numbers, one "
                f"row an environment: got {given.shape} {given.dtype}"
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
    """A seed that a batch takes, which is all of those below 2**64."""
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
