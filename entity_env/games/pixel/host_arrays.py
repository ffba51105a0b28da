"""The host interface of `PixelGoalEnv`: checked actions in, numpy arrays out."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.errors import SchemaError
from entity_env.games.pixel.episode_state import Trackers
from entity_env.games.pixel.worlds.world import Button
from entity_env.vec.batch_env.batch_env import StepResult

_LABELS: Final = ", ".join(f"{button.value} = {button.name}" for button in Button)


def checked_buttons(given: object, num_envs: int) -> NDArray[np.int32]:
    """Actions of any integer dtype as `(num_envs,)` int32."""
    try:
        actions: NDArray[Any] = np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(f"Press actions must be ({num_envs},) integers: {error}") from error
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise SchemaError(
            f"Press actions must be ({num_envs},) integers, one per environment: got "
            f"{actions.shape} {actions.dtype}"
        )
    wrong = np.flatnonzero((actions < 0) | (actions >= len(Button)))
    if len(wrong):
        more = f", and {len(wrong) - 1} more out of range" if len(wrong) > 1 else ""
        raise SchemaError(
            f"Press actions must be one of {_LABELS}: got {actions[wrong[0]]} for environment "
            f"{wrong[0]}{more}"
        )
    return actions.astype(np.int32)


class HostRows:
    """A `StepResult`, made once, and copies of the episode state into it.

    `is_stale` means that the episode state may have changed since it was read.
    """

    def __init__(self, trackers: Trackers, obs_size: int) -> None:
        num_envs = len(trackers.reward)
        self.is_stale = True
        self._trackers = trackers
        self._result = StepResult(
            np.zeros((num_envs, obs_size), np.float32),
            np.zeros(num_envs, np.float32),
            np.zeros(num_envs, np.uint8),
            np.zeros(num_envs, np.uint8),
        )
        observations = torch.from_numpy(self._result.observations)
        num_tile_numbers = trackers.tiles[0].numel()
        self._tiles = observations[:, :num_tile_numbers].view_as(trackers.tiles)
        self._screen = observations[:, num_tile_numbers:]

    def read(self) -> StepResult:
        """The result; copied if stale."""
        if self.is_stale:
            t, result = self._trackers, self._result
            self._tiles.copy_(t.tiles)
            self._screen.copy_(t.screen)
            torch.from_numpy(result.rewards).copy_(t.reward)
            is_playing = t.episode_step > 0  # a reset clears flags
            torch.from_numpy(result.terminals).copy_(t.terminated & is_playing)
            torch.from_numpy(result.truncations).copy_(t.truncated & is_playing)
            self.is_stale = False
        return self._result

    def is_over(self) -> NDArray[np.bool_]:
        """`(num_envs,)` bool: ended and not reset."""
        if self.is_stale:
            t = self._trackers
            over: NDArray[np.bool_] = (t.ended & (t.episode_step > 0)).cpu().numpy()
            return over
        return (self._result.terminals | self._result.truncations).astype(np.bool_)
