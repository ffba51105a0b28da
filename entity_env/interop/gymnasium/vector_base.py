"""VectorFace: what our vector environments for Gymnasium share, which is what it asks of them."""

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
"""Observations, `(num_envs,)` rewards, terminations and truncations, infos: all the caller's."""


class VectorFace(VectorEnv[Any, Any, NDArray[Any]]):
    """Checks what comes in as `SyncVectorEnv` does, with its errors and its messages.

    Args:
        num_envs: how many environments.
        autoreset_mode: what happens to episodes that have ended.
        observation_space, action_space: of one environment.
        metadata: more of what `metadata` says.
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
        """The seeds that environments were given last."""
        self._was_reset = False
        self._autoreset_envs = np.zeros(num_envs, dtype=np.bool_)
        """Those whose episode has ended, as far as they were not reset since."""

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # as SyncVectorEnv
        """The seed that each environment was given last; drawn when there was none."""
        return tuple(self._drawn_seeds())

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Infos]:
        """Begins new episodes, in all environments or in those of `options["reset_mask"]`.

        Args:
            seed: environment i begins anew from `seed + i`, or from `seed[i]`, where None draws
                one; None goes on with the next episodes.
            options: `reset_mask`, `(num_envs,)` bool, True = reset; the others show once more what
                they showed. Stays as it is.

        Returns:
            Observations and infos, the caller's own.

        Raises:
            ClosedEnvironmentError: after `close`.
            ResetNeeded: a mask at the first reset that leaves environments out.
            TypeError, ValueError: a mask of another type, dtype or shape, or of nobody; seeds of
                another number.
            gymnasium.error.Error: a seed that is no integer, or negative.
        """
        self._require_open()
        seeds = None if seed is None and self._was_reset else self._checked_seeds(seed)
        mask = mask_option(options, self.num_envs)
        if mask is not None and not self._was_reset and not mask.all():
            raise error.ResetNeeded(
                "`options['reset_mask']` leaves environments out that were never reset: call "
                "env.reset() first"
            )
        everyone = np.ones(self.num_envs, dtype=np.bool_)
        chosen = everyone if mask is None else mask.copy()
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
        """Steps every environment.

        Args:
            actions: one an environment, as in `action_space`.

        Raises:
            AssertionError: with autoresets disabled, an environment has ended and was not reset.
            ClosedEnvironmentError: after `close`.
            ResetNeeded: before `reset`.
            SchemaError: actions that do not fit.
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
        """Resets the environments of a mask, with those seeds, and shows all of them.

        Args:
            mask: `(num_envs,)`, all True unless `is_partial`.
            seeds: one an environment; None goes on.
            is_partial: there was a mask, and a reset before.
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
    """The mask of `options`, None if there is none.

    Raises:
        TypeError, ValueError: it is of another type, dtype or shape, or all False.
    """
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
    """One seed, as a plain integer.

    Raises:
        gymnasium.error.Error: it is no integer, or negative.
    """
    if not isinstance(seed, int | np.integer):
        raise error.Error(f"Seed must be a python integer, actual type: {type(seed)}")
    if seed < 0:
        raise error.Error(f"Seed must be greater or equal to zero, actual value: {seed}")
    return int(seed)


def checked_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """A mode, from its value too.

    Raises:
        ValueError: there is no such mode.
    """
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def with_finals(
    infos: Infos, final_obs: NDArray[np.object_], final_info: Infos, ended: Flags
) -> None:
    """Adds what `AutoresetMode.SAME_STEP` says of episodes that have ended."""
    infos["final_obs"], infos["_final_obs"] = final_obs, ended
    infos["final_info"], infos["_final_info"] = final_info, ended.copy()
