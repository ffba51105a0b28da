"""Tiles, compared with plain Python: histograms, and distances that add up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from entity_env.errors import SchemaError
from entity_env.games.pixel.reward.reward import (
    Goal,
    Metric,
    distance_sum,
    grid_shape,
    measure_tiles,
    places,
)


def shades(*shape: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(4, size=shape, dtype=np.uint8))


@settings(max_examples=30, deadline=None)
@given(
    num=st.integers(1, 4),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    own_goals=st.booleans(),
    metric=st.sampled_from(["absolute", "squared"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_tile_is_counted_by_hand(
    num: int, rows: int, columns: int, own_goals: bool, metric: Metric, seed: int
) -> None:
    shape = (8 * rows, 8 * columns)
    frames = shades(num, *shape, seed=seed)
    goal = Goal(shades(*((num, *shape) if own_goals else shape), seed=seed + 1), metric=metric)
    measured = measure_tiles(frames, goal)
    assert measured.shape == (num, rows * columns, 5)
    assert measured.dtype == torch.int32
    power = 1 if metric == "absolute" else 2
    for i in range(num):
        target = goal.pixels[i] if own_goals else goal.pixels
        for tile, (row, column) in enumerate(places(*shape).tolist()):
            at = (
                slice(8 * int(row), 8 * int(row) + 8),
                slice(8 * int(column), 8 * int(column) + 8),
            )
            here, there = frames[i][at].tolist(), target[at].tolist()
            flat = [
                (a, b) for x, y in zip(here, there, strict=True) for a, b in zip(x, y, strict=True)
            ]
            wanted = [sum(a == shade for a, _ in flat) for shade in range(4)]
            wanted.append(sum(abs(a - b) ** power for a, b in flat))
            assert measured[i, tile].tolist() == wanted
    assert torch.equal(measured[:, :, 4].sum(1, dtype=torch.int32), distance_sum(frames, goal))


def test_the_largest_distances_fit() -> None:
    largest: dict[Metric, int] = {"absolute": 3, "squared": 9}
    for metric, most in largest.items():
        goal = Goal(torch.zeros(16, 8, dtype=torch.uint8), Fraction(1), metric)
        measured = measure_tiles(torch.full((2, 16, 8), 3, dtype=torch.uint8), goal)
        assert measured[:, :, 4].tolist() == [[64 * most] * 2] * 2


def test_places_are_row_after_row() -> None:
    assert places(16, 24).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize(("height", "width"), [(63, 64), (64, 60), (0, 8), (8, 0)])
def test_a_screen_of_no_whole_tiles(height: int, width: int) -> None:
    with pytest.raises(SchemaError, match=f"multiples of 8: got {height} x {width}"):
        grid_shape(height, width)
