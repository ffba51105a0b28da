"""Reward and endings from pixels: pure functions of tensors, which change nothing they are given.

The distance of two pictures is a sum of whole numbers below 2**24, so it is the same in any order
and on any device; one float32 division then normalizes it. Whether a picture matches the goal is
asked of the whole number, never of the float.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from entity_env.errors import SchemaError, shown
from entity_env.games.pixel.reward.distance_cpu import distances_in_words, fits_words

Metric = Literal["absolute", "squared"]
Tau = float | str | Decimal | Fraction

NUM_SHADES = 4
# The most that one pixel can differ.
PIXEL_RANGE: dict[Metric, int] = {"absolute": 3, "squared": 9}
# Sums below this are exact in float32.
_MAX_SUM = 2**24
# Of tau as text: a fraction of whole numbers would have as many digits as its exponent says.
_MAX_DIGITS = 100
_MAX_EXPONENT = 400
_EXPONENT = re.compile(r"[eE]([-+]?[0-9_]+)\s*\Z")
# Frames a pass on the CPU: their bytes stay in the cache between one operation and the next.
_CHUNK = 32


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """What a step pays and when an episode ends.

    Attributes:
        step_cost: added at every step.
        alpha: factor of the shaping term, the distance won by the step.
        goal_bonus: added at the step that reaches the goal.
        match_k: consecutive matches that reach the goal, at least 1.
        max_steps: steps after which an episode is truncated, at least 1.

    Raises:
        SchemaError: a number is not finite, or a count is not a whole number from 1 to 2**31 - 1.
    """

    step_cost: float = -0.01
    alpha: float = 1.0
    goal_bonus: float = 10.0
    match_k: int = 2
    max_steps: int = 512

    def __post_init__(self) -> None:
        for name in ("step_cost", "alpha", "goal_bonus"):
            _check_finite(name, getattr(self, name))
        for name in ("match_k", "max_steps"):
            _check_count(name, getattr(self, name))


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The picture to reach, checked, with the bound below which another one matches it.

    Attributes:
        pixels: (H, W) uint8 in 0..3, or (N, H, W) for one goal an environment; a copy, on the
            device it was given on.
        tau: a picture matches when its distance is strictly below this, above 0. A float stands
            for the decimal number that it prints as: 0.05 is one twentieth.
        metric: "absolute" sums |frame - goal|, "squared" sums its square.
        threshold: the least sum that does not match: ceil(tau * largest sum), at most 2**31 - 1.
        divisor: () float32, the largest sum, on the device of the pixels.

    Raises:
        SchemaError: the pixels have another type, shape, dtype or range, or tau is not above 0.
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
        # A tensor on the device: CUDA divides by a number from the host as a product with its
        # reciprocal, which rounds twice.
        divisor = torch.full((), largest, dtype=torch.float32, device=self.pixels.device)
        set_field(self, "divisor", divisor)


def threshold(tau: Tau, largest: int) -> int:
    """Return the least whole sum that is not below tau * largest, in exact arithmetic.

    Raises:
        SchemaError: tau is not a finite number above 0.
    """
    exact = exact_tau(tau)
    if exact <= 0:
        raise SchemaError(f"tau: expected a number above 0, got {shown(tau)}: nothing is below 0")
    return min(math.ceil(exact * largest), 2**31 - 1)


def check_pixels(name: str, pixels: Tensor, *, ndims: tuple[int, ...]) -> None:
    """Check type, dtype, shape and range of pictures; it reads them, so not for the hot path.

    Raises:
        SchemaError: with the name, what was expected and what came.
    """
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
    """Return how far each frame is from the goal as an exact whole number.

    Args:
        frames: (N, H, W) uint8 in 0..3, on the goal's device; the range is not checked here.
        goal: with the same (H, W), and the same N where it has one.

    Returns:
        (N,) int32, from 0 to 3·H·W (absolute) or 9·H·W (squared).

    Raises:
        SchemaError: shape, dtype or device differ.
    """
    _check_frames(frames, goal)
    if goal.metric == "absolute" and fits_words(frames):
        return distances_in_words(frames, goal.pixels)
    if frames.device.type != "cpu" or len(frames) <= _CHUNK:
        return _sums(frames, goal.pixels, goal.metric)
    sums = torch.empty(len(frames), dtype=torch.int32)
    for start in range(0, len(frames), _CHUNK):
        rows = slice(start, start + _CHUNK)
        pixels = goal.pixels if goal.pixels.ndim == 2 else goal.pixels[rows]
        sums[rows] = _sums(frames[rows], pixels, goal.metric)
    return sums


def normalize(sums: Tensor, goal: Goal) -> Tensor:
    """Return (N,) float32 distances in 0..1 from (N,) whole sums: one division."""
    return sums.to(torch.float32) / goal.divisor


def distance(frames: Tensor, goal: Goal) -> Tensor:
    """Return the distance of each frame from the goal, (N,) float32 in 0..1.

    Arguments and errors are those of `distance_sum`.
    """
    return normalize(distance_sum(frames, goal), goal)


def update_match(
    sums: Tensor, match_count: Tensor, threshold: int, match_k: int
) -> tuple[Tensor, Tensor]:
    """Count consecutive matches.

    Args:
        sums: (N,) int32 from `distance_sum`.
        match_count: (N,) int32 in 0..match_k, the count before this step; 0 after a reset.
        threshold: `Goal.threshold`; a sum strictly below it matches.
        match_k: matches in a row that end the episode.

    Returns:
        The new count, (N,) int32, which stays at match_k; and terminated, (N,) bool.
    """
    count = torch.where(sums < threshold, match_count + 1, 0).clamp(max=match_k)
    return count, count >= match_k


def reward(prev_dist: Tensor, dist: Tensor, terminated: Tensor, config: RewardConfig) -> Tensor:
    """Return step_cost + alpha · (prev_dist - dist), plus goal_bonus where terminated.

    Over an episode the shaping adds up to alpha · (first - last distance), rounding aside. It is
    not discounted, so it is a potential in the sense of Ng et al. (1999) for gamma = 1 only.

    Args:
        prev_dist: (N,) float32, the distance before the step; after a reset the start frame's.
        dist: (N,) float32, the distance after it.
        terminated: (N,) bool from `update_match`.
        config: the factors.

    Returns:
        (N,) float32. Each operation rounds once, in the order of the formula.
    """
    shaped = (prev_dist - dist) * config.alpha + config.step_cost
    return shaped + terminated.to(torch.float32) * config.goal_bonus


def truncate(episode_step: Tensor, max_steps: int) -> tuple[Tensor, Tensor]:
    """Count a step, and say whose time is up.

    Args:
        episode_step: (N,) int32, steps taken before this one.
        max_steps: the length of an episode.

    Returns:
        The new count, (N,) int32, which stays at max_steps; and truncated, (N,) bool. An episode
        may be terminated too: bootstrap by terminated alone.
    """
    steps = (episode_step + 1).clamp(max=max_steps)
    return steps, steps >= max_steps


def reset_mask(terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return (N,) bool: who is over for either reason."""
    return terminated | truncated


def _sums(frames: Tensor, goal: Tensor, metric: Metric) -> Tensor:
    # The larger less the smaller: a difference of bytes the other way round would wrap.
    apart = torch.maximum(frames, goal).sub_(torch.minimum(frames, goal))
    if metric == "squared":
        apart.mul_(apart)
    return apart.flatten(1).sum(1, dtype=torch.int32)


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
    """Return tau as a fraction.

    Raises:
        SchemaError: it is no finite number, has more than 100 characters, or an exponent of ten
            below -400 or above 400.
    """
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


def _check_finite(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SchemaError(f"{name}: expected a finite number, got {value!r}")


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise SchemaError(f"{name}: expected a whole number from 1 to 2**31 - 1, got {value!r}")
