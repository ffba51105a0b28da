"""VectorEnvBase: base class of our Gymnasium vector environments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

Flags: TypeAlias = NDArray[np.bool_]
Infos: TypeAlias = dict[str, Any]
Stepped: TypeAlias = tuple[Any, NDArray[np.float64], Flags, Flags, Infos]
"""Observations, `(num_envs,)` rewards, terminations and truncations, infos; the caller owns all."""


class VectorEnvBase(VectorEnv[Any, Any, NDArray[Any]]):
    """Lifecycle, seeds and checks as in `gymnasium.vector.SyncVectorEnv`, with its errors.

    Spaces are those of one environment; `metadata` is added to the autoreset mode.
    """

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
        """Environments whose episode has ended, and that were not reset since."""

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as SyncVectorEnv
        """The last seed of each environment; drawn if there was none."""
        return tuple(self._drawn_seeds())

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        """Resets all environments, or those in `options["reset_mask"]`; see `SyncVectorEnv`.

        Args:
            seed: environment i gets the seed `seed + i`, or `seed[i]`, where None draws one; None
                continues with the next episodes.
            options: `reset_mask`, `(num_envs,) bool`, True = reset; other environments return their
                last observation again. Not modified.

        Returns:
            Observations and infos, owned by the caller.

        Raises:
            ClosedEnvironmentError: after `close`.
            ResetNeeded: a mask at the first reset that leaves environments out.
            TypeError, ValueError: a mask of another type, dtype or shape, or all False; a wrong
                number of seeds.
            gymnasium.error.Error: a seed that is not an integer, or negative.
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
            AssertionError: with autoresets disabled, an environment has ended and was not reset.
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
        """Resets the environments in a mask, with one seed each, and observes all of them.

        The mask is all True unless `is_partial`; without seeds the next episodes follow.
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
    """The reset mask of `options`, None if there is none; errors as in `SyncVectorEnv`."""
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
    """A seed as an `int`; raises Gymnasium's error if it is not an integer, or negative."""
    if not isinstance(seed, int | np.integer):
        raise error.Error(f"Seed must be a python integer, actual type: {type(seed)}")
    if seed < 0:
        raise error.Error(f"Seed must be greater or equal to zero, actual value: {seed}")
    return int(seed)


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """An autoreset mode, from itself or its value."""
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def with_finals(
    infos: Infos, final_obs: NDArray[np.object_], final_info: Infos, ended: Flags
) -> None:
    """Adds the last observations and infos of ended episodes, for `AutoresetMode.SAME_STEP`."""
    infos["final_obs"], infos["_final_obs"] = final_obs, ended
    infos["final_info"], infos["_final_info"] = final_info, ended.copy()
