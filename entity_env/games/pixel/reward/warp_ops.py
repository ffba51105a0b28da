"""WarpGoalOps: observation, reward and reset of a `PixelGoalEnv` as three Warp kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from entity_env.games.pixel.episode_state import ResetStates, Trackers
from entity_env.games.pixel.reward.reward import TILE, Goal, RewardConfig, grid_shape
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from entity_env.games.pixel.warp_utils.runtime import Argument, BoundKernel

# Threads per environment: a block measures its screen; lanes start its episode.
_BLOCK: Final = {"cpu": 1, "cuda": 64}
_LANES: Final = {"cpu": 1, "cuda": 32}


class WarpGoalOps:
    """`GoalOps` as kernels, bit for bit equal to `TorchGoalOps`.

    They run on torch's current stream and can be captured in a CUDA graph. Arguments as for
    `TorchGoalOps`.

    Raises:
        MissingExtraError: Warp is not installed.
    """

    def __init__(
        self, trackers: Trackers, goal: Goal, config: RewardConfig, starts: ResetStates
    ) -> None:
        word = warp_runtime.import_warp().uint64
        from entity_env.games.pixel.reward import warp_kernels

        t, num, device = trackers, len(trackers.frames), trackers.frames.device
        block, lanes = _BLOCK[device.type], _LANES[device.type]

        def words(pixels: Tensor) -> tuple[Tensor, object]:
            """Pixels as words of eight, one row per environment."""
            return pixels.flatten(1).view(torch.int64), word

        def bound(
            kernel: Callable[..., None], dim: int | tuple[int, int], *arguments: Argument
        ) -> BoundKernel:
            return BoundKernel(kernel, dim, arguments, device, block_dim=block)

        planes = tile_planes(goal.pixels if goal.pixels.ndim == 3 else goal.pixels[None])
        self._observe = bound(
            *(warp_kernels.observe_screens, (num, block), words(t.frames)),
            *(t.frames.shape[-1] // TILE, (planes.flatten(1), word), int(goal.metric == "squared")),
            *(words(t.stack), t.tiles.flatten(1), t.sums),
        )
        self._judge = bound(
            *(warp_kernels.judge_steps, num, t.sums, float(goal.divisor), goal.threshold),
            *(config.match_k, config.max_steps, config.step_cost, config.alpha, config.goal_bonus),
            *(t.prev_dist, t.match_count, t.episode_step, t.dist, t.reward),
            *(t.terminated, t.truncated, t.ended, t.screen),
        )
        self._begin = bound(
            *(warp_kernels.begin_episodes, (num, lanes), torch.zeros_like(t.ended)),
            *(words(starts.frames), starts.tiles.flatten(1), starts.dist, starts.offset),
            *(starts.per_start, words(t.stack), t.tiles.flatten(1), t.screen, t.prev_dist),
            *(t.episode_step, t.match_count, t.slot, torch.zeros_like(t.slot), lanes),
        )

    def observe(self) -> None:
        self._observe.launch()

    def judge(self) -> None:
        self._judge.launch()

    def reset(self, mask: Tensor) -> None:
        self._begin.set(0, mask)
        self._begin.launch()


def tile_planes(frames: Tensor) -> Tensor:
    """Tiles of pictures as two 64-bit words, packed as in `warp_kernels`."""
    rows, columns = grid_shape(*frames.shape[1:])
    tiles = frames.reshape(-1, rows, TILE, columns, TILE).transpose(2, 3).flatten(1, 2)
    row = torch.arange(TILE, device=frames.device)[:, None]
    places = TILE * row.T + 2 * (row % 4) + row // 4
    planes = [(tiles >> plane & 1).to(torch.int64) << places for plane in (0, 1)]
    return torch.stack([plane.sum((2, 3)) for plane in planes], 2)
