"""Trackers: all that is known of the episodes of many machines, as tensors allocated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from entity_env.games.pixel.entities import NUM_SCREEN, NUM_TILE
from entity_env.games.pixel.reward.tiles import grid_shape, places

NUM_PLACE: Final = 2
"""Features of a tile that never change: its row and its column."""


@dataclass(frozen=True, slots=True, eq=False)
class Trackers:
    """The observations and the bookkeeping of N episodes. Addresses never change.

    A step writes all of it but `slot`. A reset begins anew what is shown and counted; what the step
    before it led to, `frames`, `dist`, `reward`, `terminated` and `truncated`, stays to be read.

    Attributes:
        frames: (N, H, W) uint8, the screens that the last step led to: of an episode that ended,
            the last one, also when it was reset since.
        stack: (N, stack_k, H, W) uint8, the screens that are shown, the newest one last; after a
            reset all of them the start's.
        tiles: (N, T, 7) float32 of the newest screen: row, column, how many pixels have shade 0,
            1, 2 and 3, distance from the goal's tile; whole numbers.
        screen: (N, 3) float32: distance of the newest screen, match_count / match_k, episode_step /
            max_steps.
        sums: (N,) int32, the distance of `frames` as a whole number.
        dist: (N,) float32, the distance of `frames`, in 0..1.
        prev_dist: (N,) float32, the distance that the next step is measured from: `dist`, or after
            a reset the start's.
        episode_step: (N,) int32, steps of the episode so far, at most max_steps.
        match_count: (N,) int32, matches in a row, at most match_k.
        terminated: (N,) bool: the last step reached the goal.
        truncated: (N,) bool: the last step was the last one of its time.
        ended: (N,) bool: either.
        reward: (N,) float32, of the last step.
        slot: (N,) int32, the start that the next episode begins from, by its place in `Starts`.
    """

    frames: Tensor
    stack: Tensor
    tiles: Tensor
    screen: Tensor
    sums: Tensor
    dist: Tensor
    prev_dist: Tensor
    episode_step: Tensor
    match_count: Tensor
    terminated: Tensor
    truncated: Tensor
    ended: Tensor
    reward: Tensor
    slot: Tensor

    @classmethod
    def allocate(
        cls, num_envs: int, stack_k: int, height: int, width: int, device: torch.device
    ) -> Trackers:
        """Make trackers of zeros, but for the places of the tiles."""

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((num_envs, *shape), dtype=dtype, device=device)

        rows, columns = grid_shape(height, width)
        tiles = zeros(torch.float32, rows * columns, NUM_TILE)
        tiles[:, :, :NUM_PLACE] = places(height, width).to(device)
        return cls(
            frames=zeros(torch.uint8, height, width),
            stack=zeros(torch.uint8, stack_k, height, width),
            tiles=tiles,
            screen=zeros(torch.float32, NUM_SCREEN),
            sums=zeros(torch.int32),
            dist=zeros(torch.float32),
            prev_dist=zeros(torch.float32),
            episode_step=zeros(torch.int32),
            match_count=zeros(torch.int32),
            terminated=zeros(torch.bool),
            truncated=zeros(torch.bool),
            ended=zeros(torch.bool),
            reward=zeros(torch.float32),
            slot=zeros(torch.int32),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Starts:
    """What the S starting snapshots show, made once. Where the goal differs by environment, M = N
    and so does what is measured; else M = 1.

    Attributes:
        bank: (S,) int32, the slot of the world's bank that each lies in.
        frames: (S, H, W) uint8, their screens.
        tiles: (S * M, T, 7) float32, as in `Trackers`.
        dist: (S * M,) float32.
        offset: (N,) int32: environment i finds its own at slot * M + offset[i].
        per_start: M.
    """

    bank: Tensor
    frames: Tensor
    tiles: Tensor
    dist: Tensor
    offset: Tensor
    per_start: int
