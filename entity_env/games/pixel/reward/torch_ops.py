"""Observation, reward and reset of a `PixelGoalEnv`: interface, and torch reference."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from entity_env.games.pixel.episode_state import NUM_PLACE, ResetStates, Trackers
from entity_env.games.pixel.reward.reward import (
    Goal,
    RewardConfig,
    measure_tiles,
    normalize_sums,
    reset_mask,
    reward,
    truncate,
    update_match,
)


class GoalOps(Protocol):
    """Operations of a step on `Trackers`; all implementations give identical bits.

    They neither allocate lasting memory nor synchronize with the device.
    """

    def observe(self) -> None:
        """Pushes `frames` on the stack and measures them; writes stack, tiles, sums."""
        ...

    def judge(self) -> None:
        """Computes reward, flags and counters; writes all but frames, stack, tiles, sums, slot."""
        ...

    def reset(self, mask: Tensor) -> None:
        """Starts episodes in a mask, (N,) bool, from each slot, and advances the slots."""
        ...


class TorchGoalOps:
    """`GoalOps` in torch; the reference implementation.

    Args:
        trackers: read and written.
        goal: on the device of the trackers.
    """

    def __init__(
        self, trackers: Trackers, goal: Goal, config: RewardConfig, starts: ResetStates
    ) -> None:
        self._trackers = trackers
        self._goal = goal
        self._config = config
        self._starts = starts
        # Tensors: see `Goal.divisor`.
        device = trackers.frames.device
        self._match_k = torch.full((), config.match_k, dtype=torch.float32, device=device)
        self._max_steps = torch.full((), config.max_steps, dtype=torch.float32, device=device)

    def observe(self) -> None:
        t = self._trackers
        for k in range(t.stack.shape[1] - 1):
            t.stack[:, k].copy_(t.stack[:, k + 1])
        t.stack[:, -1].copy_(t.frames)
        measured = measure_tiles(t.frames, self._goal)
        t.tiles[:, :, NUM_PLACE:].copy_(measured)
        t.sums.copy_(measured[:, :, -1].sum(1, dtype=torch.int32))

    def judge(self) -> None:
        t, config = self._trackers, self._config
        t.dist.copy_(normalize_sums(t.sums, self._goal))
        count, terminated = update_match(
            t.sums, t.match_count, self._goal.threshold, config.match_k
        )
        steps, truncated = truncate(t.episode_step, config.max_steps)
        t.reward.copy_(reward(t.prev_dist, t.dist, terminated, config))
        t.match_count.copy_(count)
        t.episode_step.copy_(steps)
        t.terminated.copy_(terminated)
        t.truncated.copy_(truncated)
        t.ended.copy_(reset_mask(terminated, truncated))
        t.prev_dist.copy_(t.dist)
        t.screen[:, 0].copy_(t.dist)
        t.screen[:, 1].copy_(count / self._match_k)
        t.screen[:, 2].copy_(steps / self._max_steps)

    def reset(self, mask: Tensor) -> None:
        t, starts = self._trackers, self._starts
        own = t.slot * starts.per_start + starts.offset
        frames, tiles = starts.frames.index_select(0, t.slot), starts.tiles.index_select(0, own)
        start_dist = starts.dist.index_select(0, own)
        t.stack.copy_(torch.where(mask[:, None, None, None], frames[:, None], t.stack))
        t.tiles.copy_(torch.where(mask[:, None, None], tiles, t.tiles))
        t.prev_dist.copy_(torch.where(mask, start_dist, t.prev_dist))
        t.screen[:, 0].copy_(t.prev_dist)
        t.screen[:, 1:].masked_fill_(mask[:, None], 0.0)
        t.episode_step.masked_fill_(mask, 0)
        t.match_count.masked_fill_(mask, 0)
        t.slot.add_(mask).remainder_(len(starts.bank))
