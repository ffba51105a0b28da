"""Distance, match, reward and truncation, compared with exact arithmetic."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor

from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.reward.reward import (
    Goal,
    Metric,
    RewardConfig,
    Tau,
    check_pixels,
    distance,
    distance_sum,
    normalize_sums,
    reset_mask,
    reward,
    threshold,
    truncate,
    update_match,
)

METRICS: tuple[Metric, ...] = ("absolute", "squared")
Shades = NDArray[np.uint8]


def shades(*shape: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(4, size=shape, dtype=np.uint8))


def plain_sums(frames: Tensor, goal: Tensor, metric: Metric) -> list[int]:
    power = 1 if metric == "absolute" else 2
    apart = np.abs(frames.numpy().astype(np.int64) - goal.numpy().astype(np.int64)) ** power
    return [int(frame.sum()) for frame in apart]


@settings(max_examples=50, deadline=None)
@given(
    num=st.integers(1, 70),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    own_goals=st.booleans(),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_distance_is_the_exact_sum_divided_once(
    num: int, height: int, width: int, own_goals: bool, metric: Metric, seed: int
) -> None:
    frames = shades(num, height, width, seed=seed)
    shape = (num, height, width) if own_goals else (height, width)
    goal = Goal(shades(*shape, seed=seed + 1), metric=metric)
    before = frames.clone()
    sums = distance_sum(frames, goal)
    assert sums.dtype == torch.int32
    assert sums.tolist() == plain_sums(frames, goal.pixels, metric)
    largest = {"absolute": 3, "squared": 9}[metric] * height * width
    expected = [float(np.float32(total) / np.float32(largest)) for total in sums.tolist()]
    assert distance(frames, goal).tolist() == expected
    assert torch.equal(frames, before)


@pytest.mark.parametrize("metric", METRICS)
def test_bytes_do_not_wrap(metric: Metric) -> None:
    dark, light = torch.zeros(1, 2, 3, dtype=torch.uint8), torch.full((1, 2, 3), 3).to(torch.uint8)
    assert distance(dark, Goal(light[0], metric=metric)).tolist() == [1.0]
    assert distance(light, Goal(dark[0], metric=metric)).tolist() == [1.0]
    assert distance(light, Goal(light[0], metric=metric)).tolist() == [0.0]


def test_frames_need_not_be_contiguous() -> None:
    frames = shades(40, 6, 5).transpose(1, 2)
    goal = Goal(shades(6, 5, seed=3).T)
    assert distance_sum(frames, goal).tolist() == plain_sums(frames, goal.pixels, "absolute")


def test_goal_keeps_a_copy() -> None:
    pixels = shades(2, 2)
    goal = Goal(pixels)
    pixels.zero_()
    assert torch.equal(goal.pixels, shades(2, 2))


def test_threshold_is_that_of_the_number_as_written() -> None:
    assert threshold(0.05, 17280) == 864
    assert threshold("0.05", 17280) == threshold(Fraction(1, 20), 17280) == 864
    assert threshold(Decimal("0.05"), 24576) == 1229
    assert Goal(shades(72, 80)).threshold == 864
    assert Goal(shades(72, 80), metric="squared").threshold == 2592
    assert threshold(1e30, 12) == 2**31 - 1


@given(tau=st.fractions(min_value="1/1000000", max_value=2), largest=st.integers(1, 2**24 - 1))
def test_below_the_threshold_is_strictly_below_tau(tau: Fraction, largest: int) -> None:
    bound = threshold(tau, largest)
    assert Fraction(bound - 1, largest) < tau <= Fraction(bound, largest)


@pytest.mark.parametrize("tau", [0, 0.0, -0.1, "0", float("nan"), float("inf"), "x", "1/0", True])
def test_refuses_tau(tau: Tau) -> None:
    with pytest.raises(SchemaError, match=r"^tau: expected a .*number above 0, got "):
        Goal(shades(2, 2), tau=tau)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((2, 2), np.uint8), "expected a torch.Tensor, got ndarray"),
        (torch.zeros(2, 2), "expected dtype torch.uint8, got torch.float32"),
        (torch.zeros(4, dtype=torch.uint8), r"expected shape \(H, W\) or \(N, H, W\), .*\(4,\)"),
        (torch.zeros(0, 4, dtype=torch.uint8), r"none of them 0, got \(0, 4\)"),
        (torch.tensor([[0, 4]], dtype=torch.uint8), r"expected pixels in 0\.\.3, got 4"),
        (torch.zeros(4096, 4096, dtype=torch.uint8), r"can differ by 50331648, expected less"),
    ],
)
def test_refuses_a_goal(pixels: Tensor, message: str) -> None:
    with pytest.raises(SchemaError, match=f"^goal: .*{message}"):
        Goal(pixels)


def test_refuses_another_metric() -> None:
    with pytest.raises(SchemaError, match=r"^metric: expected one of .* got 'cubed'"):
        Goal(shades(2, 2), metric="cubed")  # type: ignore[arg-type]


def test_names_what_it_checks() -> None:
    check_pixels("start", shades(3, 2, 2), ndims=(3,))
    with pytest.raises(SchemaError, match=r"^start: expected shape \(N, H, W\),"):
        check_pixels("start", shades(2, 2), ndims=(3,))


@pytest.mark.parametrize(
    ("frames", "goal"),
    [
        (torch.zeros(3, 2, 2), shades(2, 2)),
        (shades(2, 2), shades(2, 2)),
        (shades(3, 2, 3), shades(2, 2)),
        (shades(3, 2, 2), shades(4, 2, 2)),
        (shades(1, 2, 2), shades(4, 2, 2)),
        (torch.zeros(3, 2, 2, dtype=torch.uint8, device="meta"), shades(2, 2)),
    ],
)
def test_refuses_frames(frames: Tensor, goal: Tensor) -> None:
    with pytest.raises(SchemaError, match=r"^frames: expected "):
        distance_sum(frames, Goal(goal))


@given(
    matches=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=20),
    match_k=st.integers(1, 4),
)
def test_match_counts_runs(matches: list[list[bool]], match_k: int) -> None:
    count = torch.zeros(3, dtype=torch.int32)
    runs = [0, 0, 0]
    for row in matches:
        sums = torch.tensor([6 if match else 7 for match in row], dtype=torch.int32)
        count, terminated = update_match(sums, count, 7, match_k)
        runs = [run + 1 if match else 0 for run, match in zip(runs, row, strict=True)]
        assert count.dtype == torch.int32
        assert count.tolist() == [min(run, match_k) for run in runs]
        assert terminated.tolist() == [run >= match_k for run in runs]


def test_match_saturates_at_the_largest_count() -> None:
    most = 2**31 - 1
    count, terminated = update_match(
        torch.zeros(1, dtype=torch.int32), torch.tensor([5], dtype=torch.int32), 1, 5
    )
    assert (count.tolist(), terminated.tolist()) == ([5], [True])
    steps, truncated = truncate(torch.tensor([most - 1], dtype=torch.int32), most)
    assert (steps.tolist(), truncated.tolist()) == ([most], [True])


def test_truncates_at_max_steps_and_not_before() -> None:
    steps, truncated = truncate(torch.tensor([0, 1, 2, 3], dtype=torch.int32), 3)
    assert steps.dtype == torch.int32
    assert steps.tolist() == [1, 2, 3, 3]
    assert truncated.tolist() == [False, False, True, True]


def test_either_end_resets() -> None:
    ends = torch.tensor([[True, True, False, False], [True, False, True, False]])
    assert reset_mask(*ends).tolist() == [True, True, True, False]


def test_reward_by_hand() -> None:
    before, after = torch.tensor([0.5, 0.5, 0.25]), torch.tensor([0.25, 0.75, 0.25])
    config = RewardConfig(step_cost=-0.5, alpha=2.0, goal_bonus=8.0)
    got = reward(before, after, torch.tensor([False, False, True]), config)
    assert got.dtype == torch.float32
    assert got.tolist() == [0.0, -1.0, 7.5]


def test_reward_defaults() -> None:
    zero = torch.zeros(2)
    got = reward(zero, zero, torch.tensor([False, True]), RewardConfig())
    assert got.tolist() == pytest.approx([-0.01, 9.99])


@settings(max_examples=50, deadline=None)
@given(
    steps=st.integers(1, 40),
    alpha=st.floats(-100, 100, width=32),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**32 - 1),
)
def test_shaping_telescopes(steps: int, alpha: float, metric: Metric, seed: int) -> None:
    goal = Goal(shades(5, 7, seed=seed), metric=metric)
    frames = shades(steps + 1, 5, 7, seed=seed + 1)
    sums = distance_sum(frames, goal)
    dist = normalize_sums(sums, goal)
    config = RewardConfig(step_cost=0.0, alpha=alpha, goal_bonus=0.0)
    paid = reward(dist[:-1], dist[1:], torch.zeros(steps, dtype=torch.bool), config)
    whole = alpha * (float(dist[0]) - float(dist[-1]))
    # Two roundings per step, each at most half a unit in the last place of a number up to alpha.
    bound = steps * (abs(alpha) * 2.0**-23 + 2.0**-149)
    assert math.fsum(paid.tolist()) == pytest.approx(whole, rel=0, abs=bound)
    exact = Fraction(int(sums[0]) - int(sums[-1]), int(goal.divisor))
    assert float(dist[0]) - float(dist[-1]) == pytest.approx(float(exact), rel=0, abs=2.0**-23)


@given(nearer=st.integers(0, 105), farther=st.integers(0, 105))
def test_nearer_pays_more(nearer: int, farther: int) -> None:
    goal = Goal(shades(5, 7))
    dist = normalize_sums(torch.tensor([nearer, farther], dtype=torch.int32), goal)
    paid = reward(torch.tensor([0.5, 0.5]), dist, torch.zeros(2, dtype=torch.bool), RewardConfig())
    assert (paid[0] > paid[1]).item() == (nearer < farther)


@pytest.mark.parametrize("name", ["step_cost", "alpha", "goal_bonus"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True])
def test_refuses_factors(name: str, value: Any) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(UsageError, match=f"^{name} must be a finite number"):
        RewardConfig(**{name: value})


@pytest.mark.parametrize("name", ["match_k", "max_steps"])
@pytest.mark.parametrize("value", [0, -1, 2**31, 1.0, True])
def test_refuses_counts(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"^{name} must be an integer from 1"):
        RewardConfig(**{name: value})  # type: ignore[arg-type]
