"""WarpGoalOps: observation, reward and reset of a `PixelGoalEnv` as three Warp kernels."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from entity_env.games.pixel.episode_state import ResetStates, Trackers
from entity_env.games.pixel.reward.reward import TILE, Goal, RewardConfig, grid_shape
from entity_env.games.pixel.warp_utils import runtime as warp_runtime
from entity_env.games.pixel.warp_utils.runtime import BoundKernel

# Threads that share an environment: a block that measures, lanes that begin an episode.
_BLOCK: Final = {"cpu": 1, "cuda": 64}
_LANES: Final = {"cpu": 1, "cuda": 32}


class WarpGoalOps:
    """The operations of `GoalOps` as kernels, with the same bits as `TorchGoalOps`.

    They run on torch's current stream and can be captured in a CUDA graph. Arguments as for
    `TorchGoalOps`.

    Raises:
        MissingExtraError: Warp is not installed.
    """

    def __init__(
        self, trackers: Trackers, goal: Goal, config: RewardConfig, starts: ResetStates
    ) -> None:
        device = trackers.frames.device
        self._observe = _bind_observe(trackers, goal, device)
        self._judge = _bind_judge(trackers, goal, config, device)
        self._begin = _bind_begin(trackers, starts, device)

    def observe(self) -> None:
        self._observe.launch()

    def judge(self) -> None:
        self._judge.launch()

    def reset(self, mask: Tensor) -> None:
        self._begin.set(0, mask)
        self._begin.launch()


def tile_planes(frames: Tensor) -> Tensor:
    """Each tile of pictures as two words of 64 bits, as `warp_kernels` packs it."""
    rows, columns = grid_shape(*frames.shape[1:])
    tiles = frames.reshape(-1, rows, TILE, columns, TILE).transpose(2, 3).flatten(1, 2)
    row = torch.arange(TILE, device=frames.device)[:, None]
    places = TILE * row.T + 2 * (row % 4) + row // 4
    planes = [(tiles >> plane & 1).to(torch.int64) << places for plane in (0, 1)]
    return torch.stack([plane.sum((2, 3)) for plane in planes], 2)


def _bind_observe(t: Trackers, goal: Goal, device: torch.device) -> BoundKernel:
    warp = warp_runtime.import_warp()
    from entity_env.games.pixel.reward import warp_kernels

    pixels = goal.pixels if goal.pixels.ndim == 3 else goal.pixels[None]
    block = _BLOCK[device.type]
    return BoundKernel(
        warp_kernels.observe_screens,
        (len(t.frames), block),
        (
            _words(t.frames),
            t.frames.shape[-1] // TILE,
            (tile_planes(pixels).flatten(1), warp.uint64),
            int(goal.metric == "squared"),
            _words(t.stack),
            (t.tiles.flatten(1), warp.float32),
            (t.sums, warp.int32),
        ),
        device,
        block_dim=block,
    )


def _bind_judge(t: Trackers, goal: Goal, config: RewardConfig, device: torch.device) -> BoundKernel:
    warp = warp_runtime.import_warp()
    from entity_env.games.pixel.reward import warp_kernels

    return BoundKernel(
        warp_kernels.judge_steps,
        len(t.frames),
        (
            (t.sums, warp.int32),
            float(goal.divisor),
            goal.threshold,
            config.match_k,
            config.max_steps,
            config.step_cost,
            config.alpha,
            config.goal_bonus,
            (t.prev_dist, warp.float32),
            (t.match_count, warp.int32),
            (t.episode_step, warp.int32),
            (t.dist, warp.float32),
            (t.reward, warp.float32),
            (t.terminated, warp.bool),
            (t.truncated, warp.bool),
            (t.ended, warp.bool),
            (t.screen, warp.float32),
        ),
        device,
        block_dim=_BLOCK[device.type],
    )


def _bind_begin(t: Trackers, starts: ResetStates, device: torch.device) -> BoundKernel:
    warp = warp_runtime.import_warp()
    from entity_env.games.pixel.reward import warp_kernels

    lanes = _LANES[device.type]
    return BoundKernel(
        warp_kernels.begin_episodes,
        (len(t.frames), lanes),
        (
            (torch.zeros_like(t.ended), warp.bool),
            _words(starts.frames),
            (starts.tiles.flatten(1), warp.float32),
            (starts.dist, warp.float32),
            (starts.offset, warp.int32),
            starts.per_start,
            _words(t.stack),
            (t.tiles.flatten(1), warp.float32),
            (t.screen, warp.float32),
            (t.prev_dist, warp.float32),
            (t.episode_step, warp.int32),
            (t.match_count, warp.int32),
            (t.slot, warp.int32),
            (torch.zeros_like(t.slot), warp.int32),
            lanes,
        ),
        device,
        block_dim=_BLOCK[device.type],
    )


def _words(pixels: Tensor) -> tuple[Tensor, object]:
    """Pixels as words of eight, a row per environment, with their Warp type."""
    return pixels.flatten(1).view(torch.int64), warp_runtime.import_warp().uint64
