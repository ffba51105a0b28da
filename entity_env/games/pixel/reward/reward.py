"""Distance of screens from a goal, rewards, and end-of-episode flags: pure functions of tensors.

The distance of two pictures is an integer sum below 2**24, independent of order and device. One
float32 division normalizes it. Matches compare the integer, never the float.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

import torch
from torch import Tensor

from entity_env.core.validation import Range, check_settings
from entity_env.errors import SchemaError, shown

Metric = Literal["absolute", "squared"]
Tau = float | str | Decimal | Fraction

NUM_SHADES = 4
# Largest difference of one pixel.
PIXEL_RANGE: dict[Metric, int] = {"absolute": 3, "squared": 9}
# Sums below this are exact in float32.
_MAX_SUM = 2**24
# Limits on tau as text: a short text with a large exponent would make a huge `Fraction`.
_MAX_DIGITS = 100
_MAX_EXPONENT = 400
_EXPONENT = re.compile(r"[eE]([-+]?[0-9_]+)\s*\Z")
# Frames per pass on the CPU: their bytes stay in the cache.
_CHUNK_FRAMES = 32
# Distances are computed in 64-bit words of eight byte counters; 85 words of bytes up to 3 stay
# below 256.
_WORD: Final = 8
_MAX_WORDS: Final = 80
# Sums of this many groups, with bytes added in pairs, stay below 2**15.
_MAX_GROUPS: Final = 64
_EVERY_SECOND: Final = 0x00FF00FF00FF00FF
# Pixels per pass; they stay in the cache.
_CHUNK_PIXELS: Final = 2**21

_Count: TypeAlias = Annotated[int, Range(1, 2**31 - 1)]


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Rewards and limits of an episode.

    Attributes:
        step_cost: added at every step.
        alpha: factor of the shaping term, the decrease of the distance.
        goal_bonus: added at the step that reaches the goal.
        match_k: consecutive matches that reach the goal, at least 1.
        max_steps: steps after which an episode is truncated, at least 1.

    Raises:
        UsageError: a number is not finite, or a count is not an integer from 1 to 2**31 - 1.
    """

    step_cost: float = -0.01
    alpha: float = 1.0
    goal_bonus: float = 10.0
    match_k: _Count = 2
    max_steps: _Count = 512

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """Picture to reach, and the distance below which a screen matches it.

    Attributes:
        pixels: (H, W) uint8 in 0..3, or (N, H, W) for one goal per environment; copied, on the same
            device.
        tau: a screen matches if its distance is strictly below tau; above 0. A float stands for the
            decimal number it prints as: 0.05 is one twentieth.
        metric: "absolute" sums |frame - goal|, "squared" sums its square.
        threshold: the smallest sum that does not match: ceil(tau * largest sum), at most 2**31 - 1.
        divisor: () float32, largest sum, on the device of the pixels.

    Raises:
        SchemaError: pixels of the wrong type, shape, size, dtype or range, an unknown metric, or an
            invalid tau.
    """

    pixels: Tensor
    tau: Tau = 0.05
    metric: Metric = "absolute"
    threshold: int = field(init=False)
    divisor: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.metric not in PIXEL_RANGE:
            raise SchemaError(f"metric: expected one of {list(PIXEL_RANGE)}, got {self.metric!r}")
        check_pixels("goal", self.pixels, ndims=(2, 3))
        largest = PIXEL_RANGE[self.metric] * self.pixels.shape[-2] * self.pixels.shape[-1]
        if largest >= _MAX_SUM:
            raise SchemaError(
                f"goal: a picture of {tuple(self.pixels.shape[-2:])} can differ by {largest}, "
                f"expected less than {_MAX_SUM}: use a smaller picture"
            )
        set_field = object.__setattr__
        set_field(self, "threshold", threshold(self.tau, largest))
        set_field(self, "pixels", self.pixels.detach().clone().contiguous())
        # A tensor: CUDA divides by a host number by multiplying with its reciprocal, which rounds
        # twice.
        divisor = torch.full((), largest, dtype=torch.float32, device=self.pixels.device)
        set_field(self, "divisor", divisor)


def threshold(tau: Tau, largest: int) -> int:
    """Smallest integer not below tau * largest, exactly; at most 2**31 - 1."""
    exact = exact_tau(tau)
    if exact <= 0:
        raise SchemaError(f"tau: expected a number above 0, got {shown(tau)}: nothing is below 0")
    return min(math.ceil(exact * largest), 2**31 - 1)


def check_pixels(name: str, pixels: Tensor, *, ndims: tuple[int, ...]) -> None:
    """Checks type, dtype, shape and range of pictures; synchronizes with the device."""
    if not isinstance(pixels, Tensor):
        raise SchemaError(f"{name}: expected a torch.Tensor, got {type(pixels).__name__}")
    if pixels.dtype != torch.uint8:
        raise SchemaError(f"{name}: expected dtype torch.uint8, got {pixels.dtype}")
    if pixels.ndim not in ndims or 0 in pixels.shape:
        wanted = " or ".join({2: "(H, W)", 3: "(N, H, W)", 4: "(N, K, H, W)"}[n] for n in ndims)
        raise SchemaError(
            f"{name}: expected shape {wanted}, none of them 0, got {tuple(pixels.shape)}"
        )
    brightest = int(pixels.max())
    if brightest >= NUM_SHADES:
        raise SchemaError(f"{name}: expected pixels in 0..3, got {brightest}")


def distance_sum(frames: Tensor, goal: Goal) -> Tensor:
    """Distance of each frame from the goal, before normalization."""
    _check_frames(frames, goal)
    if goal.metric == "absolute" and fits_words(frames):
        return distances_in_words(frames, goal.pixels)
    if frames.device.type != "cpu" or len(frames) <= _CHUNK_FRAMES:
        return _apart(frames, goal.pixels, goal.metric).flatten(1).sum(1, dtype=torch.int32)
    sums = torch.empty(len(frames), dtype=torch.int32)
    for start in range(0, len(frames), _CHUNK_FRAMES):
        rows = slice(start, start + _CHUNK_FRAMES)
        pixels = goal.pixels if goal.pixels.ndim == 2 else goal.pixels[rows]
        sums[rows] = _apart(frames[rows], pixels, goal.metric).flatten(1).sum(1)
    return sums


def normalize_sums(sums: Tensor, goal: Goal) -> Tensor:
    """Distances in 0..1, (N,) float32, of sums (N,): one division."""
    return sums.to(torch.float32) / goal.divisor


def distance(frames: Tensor, goal: Goal) -> Tensor:
    """Distance of each frame from the goal, (N,) float32 in 0..1; see `distance_sum`."""
    return normalize_sums(distance_sum(frames, goal), goal)


def update_match(
    sums: Tensor, match_count: Tensor, threshold: int, match_k: int
) -> tuple[Tensor, Tensor]:
    """Consecutive matches, (N,) int32 up to match_k, and terminated, (N,) bool."""
    count = torch.where(sums < threshold, match_count + 1, 0).clamp(max=match_k)
    return count, count >= match_k


def reward(prev_dist: Tensor, dist: Tensor, terminated: Tensor, config: RewardConfig) -> Tensor:
    """step_cost + alpha · (prev_dist - dist), plus goal_bonus where terminated, (N,) float32.

    Over an episode the shaping adds up to alpha · (first - last distance), rounding aside. It is
    not discounted, so it is potential-based (Ng et al. 1999) only for gamma = 1. Each operation
    rounds once, in formula order.
    """
    shaped = (prev_dist - dist) * config.alpha + config.step_cost
    return shaped + terminated.to(torch.float32) * config.goal_bonus


def truncate(episode_step: Tensor, max_steps: int) -> tuple[Tensor, Tensor]:
    """Steps of the episode, (N,) int32 up to max_steps, and truncated, (N,) bool.

    `episode_step`, (N,) int32, is the count before this step. If an episode is both terminated and
    truncated, do not bootstrap.
    """
    steps = (episode_step + 1).clamp(max=max_steps)
    return steps, steps >= max_steps


def reset_mask(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Environments whose episode has ended, (N,) bool."""
    return terminated | truncated


def fits_words(frames: Tensor) -> bool:
    """Whether frames can be read as words: on the CPU, contiguous, aligned, without a remainder."""
    return (
        frames.device.type == "cpu"
        and frames.is_contiguous()
        and frames.storage_offset() % _WORD == 0
        and frames.shape[1] * frames.shape[2] % _WORD == 0
    )


def distances_in_words(frames: Tensor, goal: Tensor) -> Tensor:
    """Sums of |frame - goal|, (N,) int32, as 2 max(frame, goal) - frame - goal."""
    num, height, width = frames.shape
    num_words = height * width // _WORD
    size = _group_size(num_words)
    groups = num_words // size
    words = frames.flatten().view(torch.int64).view(num, groups, size)
    step = max(1, _CHUNK_PIXELS // (height * width))
    larger = torch.empty((min(step, num), height, width), dtype=torch.uint8)
    larger_words = larger.flatten().view(torch.int64).view(len(larger), groups, size)
    # Sums of groups of words: of the larger pixels, and of the frames.
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
    """Sums of all bytes in rows of words: (R, G) int64 to (R,) int32."""
    if sums.shape[1] > _MAX_GROUPS:
        return sums.view(torch.uint8).sum(1, dtype=torch.int32)
    halves = (sums & _EVERY_SECOND) + (sums >> 8 & _EVERY_SECOND)
    return halves.sum(1).view(torch.int16).view(len(sums), 4).sum(1, dtype=torch.int32)


@lru_cache(maxsize=64)
def _group_size(num_words: int) -> int:
    """Largest divisor of `num_words` up to `_MAX_WORDS`, so sums of bytes do not overflow."""
    return max(size for size in range(1, _MAX_WORDS + 1) if num_words % size == 0)


def _apart(frames: Tensor, goal: Tensor, metric: Metric) -> Tensor:
    """Distances of pixels, uint8."""
    # Larger minus smaller: bytes would wrap below 0.
    apart = torch.maximum(frames, goal).sub_(torch.minimum(frames, goal))
    if metric == "squared":
        apart.mul_(apart)
    return apart


def _check_frames(frames: Tensor, goal: Goal) -> None:
    if frames.dtype != torch.uint8:
        raise SchemaError(f"frames: expected dtype torch.uint8, got {frames.dtype}")
    if frames.ndim != 3 or frames.shape[-goal.pixels.ndim :] != goal.pixels.shape:
        raise SchemaError(
            f"frames: expected shape (N, H, W) for a goal of {tuple(goal.pixels.shape)}, "
            f"got {tuple(frames.shape)}"
        )
    if frames.device != goal.pixels.device:
        raise SchemaError(
            f"frames: expected the goal's device {goal.pixels.device}, got {frames.device}"
        )


def exact_tau(tau: Tau) -> Fraction:
    """Tau as a fraction."""
    if isinstance(tau, bool) or not isinstance(tau, int | float | str | Decimal | Fraction):
        raise SchemaError(f"tau: expected a number above 0, got {shown(tau)}")
    try:
        text = str(tau)
        exponent = _EXPONENT.search(text) if len(text) <= _MAX_DIGITS else None
        is_short = len(text) <= _MAX_DIGITS and text.isascii()
        if is_short and (exponent is None or abs(int(exponent[1])) <= _MAX_EXPONENT):
            return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise SchemaError(f"tau: expected a finite number above 0, got {shown(tau)}") from error
    raise SchemaError(
        f"tau: expected a number of at most {_MAX_DIGITS} characters and an exponent of at most "
        f"{_MAX_EXPONENT}, got {shown(tau)}"
    )


TILE: Final = 8
"""Pixels along each side of a tile."""


def grid_shape(height: int, width: int) -> tuple[int, int]:
    """Rows and columns of tiles of a screen."""
    if height % TILE or width % TILE or not height or not width:
        raise SchemaError(
            f"a screen is shown as tiles of {TILE} x {TILE}, so its sides must be multiples of "
            f"{TILE}: got {height} x {width}"
        )
    return height // TILE, width // TILE


def places(height: int, width: int) -> Tensor:
    """Row and column of every tile, (T, 2) float32, row by row from the top left."""
    rows, columns = grid_shape(height, width)
    tiles = torch.arange(rows * columns)
    return torch.stack((tiles // columns, tiles % columns), 1).to(torch.float32)


def measure_tiles(frames: Tensor, goal: Goal) -> Tensor:
    """Per tile: histogram of shades, and distance from the goal's tile; (N, T, 5) int32."""
    apart = _apart(frames, goal.pixels, goal.metric)
    counts = [_tile_sums((frames == shade).view(torch.uint8)) for shade in range(NUM_SHADES)]
    return torch.stack((*counts, _tile_sums(apart)), 2)


def _tile_sums(pixels: Tensor) -> Tensor:
    """Sums of the tiles, (N, T) int32, of pixels (N, H, W) uint8 up to 9."""
    num, height, width = pixels.shape
    # A tile's column adds up to at most 8 * 9, which fits a byte.
    columns = pixels.view(num, height // TILE, TILE, width).sum(2, dtype=torch.uint8)
    sums = columns.view(num, height // TILE, width // TILE, TILE).sum(3, dtype=torch.int32)
    return sums.flatten(1)
