"""Distances on the CPU, eight pixels at a time: words of 64 bits as eight counters that add up.

For shades a and b, |a - b| = 2 max(a, b) - a - b, so a distance is sums of bytes of at most 3. Of
such words 80 add up without a byte carrying into its neighbour.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

_WORD: Final = 8
# 85 words of bytes up to 3 stay below 256.
_MAX_WORDS: Final = 80
# Groups whose bytes, added in pairs, stay below 2**15.
_MAX_GROUPS: Final = 64
_EVERY_SECOND: Final = 0x00FF00FF00FF00FF
# Pixels that are worked on at once: they stay in a cache from one pass to the next.
_CHUNK: Final = 2**21


def fits_words(frames: Tensor) -> bool:
    """Tell whether frames can be read as words: on the CPU, in one piece, eight by eight."""
    return (
        frames.device.type == "cpu"
        and frames.is_contiguous()
        and frames.storage_offset() % _WORD == 0
        and frames.shape[1] * frames.shape[2] % _WORD == 0
    )


def distances_in_words(frames: Tensor, goal: Tensor) -> Tensor:
    """Return the sums of |frame - goal|, (N,) int32.

    Args:
        frames: (N, H, W) uint8 in 0..3, for which `fits_words` holds.
        goal: (H, W) or (N, H, W) uint8 in 0..3, contiguous.
    """
    num, height, width = frames.shape
    num_words = height * width // _WORD
    size = _group_size(num_words)
    groups = num_words // size
    words = frames.flatten().view(torch.int64).view(num, groups, size)
    step = max(1, _CHUNK // (height * width))
    larger = torch.empty((min(step, num), height, width), dtype=torch.uint8)
    larger_words = larger.flatten().view(torch.int64).view(len(larger), groups, size)
    # The same for both: sums of groups of words, of the larger pixels and of the frames'.
    sums = torch.empty((2, num, groups), dtype=torch.int64)
    for begin in range(0, num, step):
        rows = slice(begin, min(begin + step, num))
        count = rows.stop - begin
        wanted = goal if goal.ndim == 2 else goal[rows]
        torch.maximum(frames[rows], wanted, out=larger[:count])
        torch.sum(larger_words[:count], 2, out=sums[0, rows])
        torch.sum(words[rows], 2, out=sums[1, rows])
    totals = _totals(sums.view(2 * num, groups))
    own = goal.flatten(-2).sum(-1, dtype=torch.int32)
    return totals[:num].mul_(2).sub_(totals[num:]).sub_(own)


def _totals(sums: Tensor) -> Tensor:
    """Add up the eight bytes of every word of a row: (R, G) int64 to (R,) int32."""
    if sums.shape[1] > _MAX_GROUPS:
        return sums.view(torch.uint8).sum(1, dtype=torch.int32)
    halves = (sums & _EVERY_SECOND) + (sums >> 8 & _EVERY_SECOND)
    return halves.sum(1).view(torch.int16).view(len(sums), 4).sum(1, dtype=torch.int32)


@lru_cache(maxsize=64)
def _group_size(num_words: int) -> int:
    """The most words that can be added, of those that divide a picture evenly."""
    return max(size for size in range(1, _MAX_WORDS + 1) if num_words % size == 0)
