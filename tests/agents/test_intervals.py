"""Intervals: Student's quantile compared with a table and scipy, the rest with rliable 1.2."""

from __future__ import annotations

import json
import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.agents.intervals import (
    Interval,
    interquartile_mean,
    mean_of,
    probability_of_improvement,
    student_t95,
)
from tests import ROOT

CASES = json.loads((ROOT / "tests" / "data" / "intervals" / "rliable.json").read_text())
"""Scores, and rliable's results for them with 4,000 or 20,000 resamples."""
RESAMPLED = 0.03
"""Largest expected difference between two bootstraps of these scores."""


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (1, 12.706204736432095),
        (2, 4.302652729911275),
        (3, 3.182446305284263),
        (4, 2.7764451051977987),
        (5, 2.570581835636314),
        (29, 2.045229642132703),
        (30, 2.0422724563012373),
        (200, 1.9718962236316089),
        (1000, 1.9623390808264074),
        (10**9, 1.9599639868),
    ],
)
def test_the_quantile_is_that_of_tables(degrees: int, expected: float) -> None:
    assert student_t95(degrees) == pytest.approx(expected, rel=1e-9)


def test_the_quantile_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for degrees in (*range(1, 400), 10**4, 10**6):
        assert student_t95(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-9)


def test_a_mean_of_five_has_students_interval() -> None:
    found = mean_of([1, 200, 1, 1, 200])
    assert found.value == pytest.approx(80.6)
    assert found.half == pytest.approx(135.33, abs=0.01)  # 95.5 with the normal distribution
    assert found.low + found.high == pytest.approx(2 * 80.6)


def test_one_value_has_no_interval() -> None:
    for found in (mean_of([3.0]), interquartile_mean([[3.0]])):
        assert found.value == 3
        assert not found.is_known
    assert not probability_of_improvement([[3.0]], [[2.0]]).is_known


def test_students_interval_has_the_mean_in_95_of_100() -> None:
    rng = np.random.default_rng(5)
    found = [mean_of(row) for row in rng.normal(size=(4000, 5)).tolist()]
    share = statistics.fmean(each.low <= 0 <= each.high for each in found)
    assert share == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case['x'])}x{len(case['x'][0])}")
def test_figures_are_those_of_rliable(case: dict[str, Any]) -> None:
    for found, expected in (
        (interquartile_mean(case["x"]), case["iqm"]),
        (probability_of_improvement(case["x"], case["y"]), case["improvement"]),
    ):
        assert found.value == pytest.approx(expected[0], abs=1e-9)
        assert found[1:] == pytest.approx(expected[1:], abs=RESAMPLED)


@pytest.mark.slow
def test_random_scores_are_as_with_rliable() -> None:
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    rng = np.random.default_rng(7)
    for _ in range(3):
        scores = rng.normal(size=(int(rng.integers(3, 9)), int(rng.integers(1, 4))))
        values, bounds = library.get_interval_estimates(
            {"x": scores}, lambda each: np.array([metrics.aggregate_iqm(each)]), reps=20_000
        )
        expected = Interval(values["x"][0], *bounds["x"].ravel())
        assert interquartile_mean(scores.T) == pytest.approx(expected, abs=RESAMPLED)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_figures_hold_for_any_scores(scores: list[float]) -> None:
    found = interquartile_mean([scores])
    assert min(scores) - 1e-9 <= found.value <= max(scores) + 1e-9
    assert probability_of_improvement([scores], [scores]).value == pytest.approx(0.5)
    if found.is_known:
        assert found.low <= found.high
    assert found.is_known == (len(scores) > 1)
    assert math.isnan(found.low) == (len(scores) == 1)
