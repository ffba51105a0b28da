"""Distributions in numpy and torch match the textbook, sample by sample and in their sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    GaussianArrays,
    first_of_best,
)
from entity_env.agents.rogue_net.numpy_net.functions import (
    input_statistics,
    layer_norm,
    sigmoid,
    softmax,
)
from entity_env.agents.rogue_net.torch_net.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
    at_temperature,
    sample_actions,
)
from entity_env.core.ragged import Floats

Bool = NDArray[np.bool_]
TEMPERATURES = st.sampled_from([0.05, 0.3, 1.0, 2.5, 40.0])
LARGEST = float(np.finfo(np.float32).max)


@st.composite
def puzzles(draw: st.DrawFn) -> tuple[Floats, Bool]:
    """Logits of some actors, and the legal choices of each, at least one."""
    num_actors, num_choices = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 30.0]))
    logits = (rng.normal(size=(num_actors, num_choices)) * spread).astype(np.float32)
    allowed = rng.random(logits.shape) < draw(st.sampled_from([0.1, 0.6, 1.0]))
    allowed[np.arange(num_actors), rng.integers(0, num_choices, num_actors)] = True
    return logits, allowed


def both(logits: Floats, allowed: Bool) -> tuple[CategoricalArrays, CategoricalDistribution]:
    rows = np.arange(len(logits))
    ours = CategoricalArrays.of(rows, logits, allowed)
    return ours, CategoricalDistribution(torch.from_numpy(rows), torch.from_numpy(ours.logprobs))


def plain_probs(logits: Floats, allowed: Bool, temperature: float = 1.0) -> NDArray[np.float64]:
    probs = np.zeros(logits.shape)
    for row, (own, free) in enumerate(zip(logits.tolist(), allowed.tolist(), strict=True)):
        best = max(x for x, is_free in zip(own, free, strict=True) if is_free)
        for i, x in enumerate(own):
            probs[row, i] = math.exp((x - best) / temperature) if free[i] else 0.0
        probs[row] /= probs[row].sum()
    return probs


@given(puzzles(), TEMPERATURES)
def test_labels_have_the_probabilities_of_the_book(
    puzzle: tuple[Floats, Bool], temperature: float
) -> None:
    logits, allowed = puzzle
    expected = plain_probs(logits, allowed, temperature)
    ours, theirs = both(logits, allowed)
    cooler = ours.at_temperature(temperature)
    assert cooler.probs.dtype == np.float32
    np.testing.assert_allclose(cooler.probs, expected, atol=2e-5)
    assert (cooler.probs[~allowed] == 0).all()
    assert (ours.logprobs[~allowed] < -1e29).all()
    assert np.isfinite(cooler.logprobs).all()
    other = theirs.at_temperature(temperature)
    np.testing.assert_allclose(other.logprobs.exp(), expected, atol=2e-5)
    assert torch.isfinite(other.logprobs).all()
    safe = np.where(expected > 0, expected, 1.0)
    entropy = -(expected * np.log(safe)).sum(axis=1)
    np.testing.assert_allclose(other.entropy(), entropy, atol=2e-4)
    for choice in range(logits.shape[1]):
        samples = torch.full((len(logits),), choice)
        assert torch.equal(other.logprob(samples), other.logprobs[:, choice])
        assert torch.equal(other.actions(samples), samples)


@given(puzzles(), st.sampled_from([0.5, 2.0]), st.sampled_from([0.7, 3.0]))
def test_temperatures_multiply(puzzle: tuple[Floats, Bool], first: float, second: float) -> None:
    ours, theirs = both(*puzzle)
    twice = ours.at_temperature(first).at_temperature(second)
    np.testing.assert_allclose(twice.probs, ours.at_temperature(first * second).probs, atol=1e-5)
    one, two = (
        theirs.at_temperature(first).at_temperature(second),
        at_temperature({"a": theirs}, first * second)["a"],
    )
    assert isinstance(two, CategoricalDistribution)
    torch.testing.assert_close(one.logprobs.exp(), two.logprobs.exp(), rtol=0, atol=1e-5)


@given(puzzles(), st.integers(0, 99))
def test_nothing_forbidden_is_chosen(puzzle: tuple[Floats, Bool], seed: int) -> None:
    logits, allowed = puzzle
    ours, theirs = both(logits, allowed)
    everyone = np.arange(len(logits))
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    for _ in range(20):
        assert allowed[everyone, ours.choose(False, rng)].all()
        assert allowed[everyone, theirs.draw(generator).numpy()].all()
    best = ours.choose(True, rng)
    masked = np.where(allowed, logits, -np.inf)
    # Logits that differ by rounding may become the same probability.
    np.testing.assert_allclose(masked[everyone, best], masked.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(masked[everyone, theirs.best()], masked.max(axis=1), atol=1e-5)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_draws_are_as_frequent_as_they_are_probable(temperature: float) -> None:
    count = 40_000
    logits = np.array([0.0, 1.5, -1.0, 9.0, 0.2], np.float32)
    allowed = np.array([True, True, True, False, True])
    ours, theirs = both(np.tile(logits, (count, 1)), np.tile(allowed, (count, 1)))
    expected = plain_probs(logits[None], allowed[None], temperature)[0]
    generator = torch.Generator().manual_seed(7)
    for drawn in (
        ours.at_temperature(temperature).choose(False, np.random.default_rng(7)),
        theirs.at_temperature(temperature).draw(generator).numpy(),
    ):
        shares = np.bincount(drawn, minlength=5) / count
        deviation = np.sqrt(expected * (1 - expected) / count)
        assert (np.abs(shares - expected) <= 5 * deviation).all()


def gaussians(
    seed: int, num_actors: int = 4, num_labels: int = 3
) -> tuple[GaussianArrays, GaussianDistribution]:
    rng = np.random.default_rng(seed)
    low = (rng.normal(size=num_labels) * 10).astype(np.float32)
    arrays = (
        rng.normal(size=(num_actors, num_labels)).astype(np.float32),
        rng.normal(size=num_labels).astype(np.float32),
        low,
        low + rng.random(num_labels).astype(np.float32) * 5 + np.float32(0.1),
    )
    rows = np.arange(num_actors)
    tensors = [torch.from_numpy(each) for each in (rows, *arrays)]
    return GaussianArrays(rows, *arrays), GaussianDistribution(*tensors)


@given(st.integers(0, 2**32), TEMPERATURES)
def test_real_numbers_have_the_density_of_the_book(seed: int, temperature: float) -> None:
    ours, theirs = gaussians(seed)
    samples = theirs.draw(torch.Generator().manual_seed(seed % 1000))
    std = np.exp(ours.log_std.astype(np.float64)) * math.sqrt(temperature)
    cooler = theirs.at_temperature(temperature)
    np.testing.assert_allclose(np.exp(ours.at_temperature(temperature).log_std), std, rtol=1e-5)
    off = (samples.double().numpy() - ours.mean) / std
    expected = np.log(np.exp(-0.5 * off**2 + 600) / (std * math.sqrt(2 * math.pi))) - 600
    np.testing.assert_allclose(cooler.logprob(samples), expected.sum(axis=1), rtol=1e-4, atol=1e-3)
    entropy = 0.5 * np.log(2 * math.pi * math.e * std**2).sum()
    np.testing.assert_allclose(cooler.entropy(), np.full(4, entropy), rtol=1e-4, atol=1e-4)
    assert torch.equal(cooler.best(), theirs.mean)


@given(st.integers(0, 2**32))
def test_actions_are_clipped_half_ranges(seed: int) -> None:
    _, theirs = gaussians(seed, num_labels=2)
    low, high = theirs.low.double(), theirs.high.double()
    grid = torch.linspace(-3, 3, 61).unsqueeze(1).expand(61, 2)
    actions = theirs.actions(grid)
    expected = torch.clamp((low + high) / 2 + (high - low) / 2 * grid, low, high)
    torch.testing.assert_close(actions.double(), expected, rtol=1e-5, atol=1e-5)
    assert (actions[1:] >= actions[:-1]).all()
    assert (actions[grid[:, 0] <= -1] == theirs.low).all()
    assert (actions[grid[:, 0] >= 1] == theirs.high).all()


@pytest.mark.parametrize("mean", [-1e30, -2.0, -0.5, 0.0, 0.5, 1.0, 1e30])
@pytest.mark.parametrize(
    ("low", "high"), [(-LARGEST, LARGEST), (0.0, 1e-45), (0.0, LARGEST), (-3.0, -3.0 + 2**-21)]
)
def test_extreme_bounds_are_kept_alike(mean: float, low: float, high: float) -> None:
    arrays = [np.array(each, np.float32) for each in ([[mean]], [0.0], [low], [high])]
    ours = GaussianArrays(np.zeros(1, np.int64), *arrays)
    theirs = GaussianDistribution(torch.zeros(1), *map(torch.from_numpy, arrays))
    action = ours.choose(True, np.random.default_rng(0))
    assert np.float32(low) <= action[0, 0] <= np.float32(high)
    np.testing.assert_array_equal(theirs.actions(theirs.best()), action)
    if abs(mean) >= 1:
        assert action[0, 0] == np.float32(high if mean > 0 else low)


def test_draws_of_real_numbers_have_their_mean_and_deviation() -> None:
    count = 40_000
    mean, std = np.array([0.1, -0.2], np.float32), np.array([0.05, 0.2], np.float32)
    low, high = np.array([-4.0, 0.0], np.float32), np.array([4.0, 10.0], np.float32)
    ours = GaussianArrays(np.arange(count), np.tile(mean, (count, 1)), np.log(std), low, high)
    theirs = GaussianDistribution(
        *(torch.from_numpy(a) for a in (ours.rows, ours.mean, ours.log_std, low, high))
    )
    generator = torch.Generator().manual_seed(1)
    drawn = sample_actions({"x": theirs}, greedy=False, generator=generator)[0]["x"]
    half, middle = (high - low) / 2, (high + low) / 2
    for samples in (
        (ours.choose(False, np.random.default_rng(1)) - middle) / half,
        drawn.numpy(),
    ):
        np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * 0.2 / math.sqrt(count))
        np.testing.assert_allclose(samples.std(axis=0), std, rtol=0.03)
        assert abs(np.asarray(np.corrcoef(samples.T)).item(1)) < 0.03
    surprise = -theirs.logprob(drawn).mean()
    assert float(surprise) == pytest.approx(float(theirs.entropy()[0]), abs=0.03)


@given(st.integers(0, 2**32), st.sampled_from([1e-3, 1.0, 50.0, 1e6]))
def test_functions_are_those_of_float64(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(3, 5)) * spread).astype(np.float32)
    exact = torch.from_numpy(x).double()
    np.testing.assert_allclose(softmax(x), exact.softmax(-1), atol=1e-6)
    np.testing.assert_allclose(
        CategoricalArrays.of(np.zeros(0, np.int64), x, None).logprobs,
        exact.log_softmax(-1),
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(sigmoid(x.copy()), exact.sigmoid(), atol=1e-6)
    weight, bias = rng.normal(size=(2, 5)).astype(np.float32)
    normed = torch.nn.functional.layer_norm(
        exact, (5,), torch.from_numpy(weight).double(), torch.from_numpy(bias).double()
    )
    np.testing.assert_allclose(layer_norm(x, weight, bias), normed, rtol=1e-3, atol=1e-4)


@given(st.integers(0, 2**32), st.integers(2, 40))
def test_input_statistics_are_those_of_a_sample(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(count, 3)) * [1.0, 20.0, 0.0] + [0.0, -3.0, 7.0]
    tensors = {
        "count": np.float32(count),
        "mean": seen.mean(axis=0).astype(np.float32),
        "squares_sum": np.square(seen - seen.mean(axis=0)).sum(axis=0).astype(np.float32),
    }
    tensors["squares_sum"][2] = 0.0
    arrays = {name: np.asarray(each) for name, each in tensors.items()}
    mean, deviation = input_statistics(arrays)
    np.testing.assert_allclose(mean, seen.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(deviation[:2], seen.std(axis=0, ddof=1)[:2], rtol=1e-4)
    assert deviation[2] == 1  # no division by 0 for a constant
    arrays["count"] = np.asarray(np.float32(1))
    mean, deviation = input_statistics(arrays)
    assert mean.tolist() == [0, 0, 0]
    assert deviation.tolist() == [1, 1, 1]


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 6))
def test_rounding_does_not_decide_between_equal_choices(seed: int, size: int) -> None:
    """The first of choices that differ by rounding is taken, in numpy and in torch."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(size), 4).astype(np.float32)
    twice = np.concatenate([rows, rows], axis=1) / 2 + rng.normal(scale=1e-7, size=(4, 2 * size))
    logprobs = np.log(np.maximum(twice, 1e-12)).astype(np.float32)
    first = first_of_best(np.exp(logprobs))
    assert (first < size).all()
    other = CategoricalDistribution(torch.zeros(4, dtype=torch.int64), torch.from_numpy(logprobs))
    assert other.best().tolist() == first.tolist()
    top = np.exp(logprobs).max(axis=1)
    assert (np.exp(logprobs)[np.arange(4), first] >= top - 2e-5).all()
