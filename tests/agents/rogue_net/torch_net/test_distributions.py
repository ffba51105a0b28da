"""Log-probabilities and entropies of categorical distributions, with masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.rogue_net.torch_net.distributions import (
    FORBIDDEN,
    CategoricalDistribution,
    GaussianDistribution,
    masked_log_softmax,
)

Bool = NDArray[np.bool_]


def weigh(logprobs: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.arange(len(logprobs))
    return CategoricalDistribution(rows, logprobs).weigh(samples)


@st.composite
def puzzles(draw: st.DrawFn) -> tuple[Tensor, Bool | None, Tensor]:
    """Logits, legal choices and chosen actions of some actors."""
    num_actors, num_choices = draw(st.integers(1, 6)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1.0, 30.0]))
    logits = (rng.normal(size=(num_actors, num_choices)) * spread).astype(np.float32)
    share = draw(st.sampled_from([0.1, 0.6, 1.0]))
    allowed = rng.random(logits.shape) < share
    samples = rng.integers(0, num_choices, num_actors)
    allowed[np.arange(num_actors), samples] = True
    mask = None if share == 1 and draw(st.booleans()) else allowed
    return torch.from_numpy(logits), mask, torch.from_numpy(samples)


def by_book(logits: Tensor, allowed: Bool | None, samples: Tensor) -> list[Tensor]:
    """Log-probabilities, log-probabilities of the samples, and the entropy."""
    if allowed is not None:
        logits = logits.masked_fill(torch.from_numpy(~allowed), FORBIDDEN)
    logprobs = torch.log_softmax(logits, dim=-1)
    chosen = torch.stack([row[sample] for row, sample in zip(logprobs, samples, strict=True)])
    return [logprobs, chosen, -(logprobs.exp() * logprobs).sum(dim=1)]


@settings(max_examples=80, deadline=None)
@given(puzzles(), st.integers(0, 9))
def test_probabilities_equal_the_book(
    puzzle: tuple[Tensor, Bool | None, Tensor], seed: int
) -> None:
    logits, allowed, samples = puzzle
    mine, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    logprobs = masked_log_softmax(mine, allowed)
    got, wanted = [logprobs, *weigh(logprobs, samples)], by_book(exact, allowed, samples)
    free = torch.ones(logits.shape, dtype=torch.bool)
    if allowed is not None:
        free = torch.from_numpy(allowed)
    generator = torch.Generator().manual_seed(seed)
    one, two = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for part, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(part.double(), other, rtol=1e-5, atol=2e-5)
        slope = torch.randn(part.shape, generator=generator)
        if part is logprobs:  # illegal choices do not matter
            slope, part, other = slope[free], part[free], other[free]
        one, two = one + (part * slope).sum(), two + (other * slope).sum()
    (gradient,), (expected,) = torch.autograd.grad(one, mine), torch.autograd.grad(two, exact)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=5e-5)
    assert (gradient[~free] == 0).all()
    assert (logprobs[~free].exp() == 0).all()
    assert logprobs.isfinite().all()


@pytest.mark.parametrize("sample", [-1, 3, 99])
def test_there_is_no_such_choice(sample: int) -> None:
    logprobs = masked_log_softmax(torch.zeros(2, 3).requires_grad_(), None)
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        weigh(logprobs, torch.tensor([0, sample]))


def test_what_is_no_number_stays_none() -> None:
    logits = torch.zeros(2, 3)
    logits[1, 2] = torch.nan
    logprobs = masked_log_softmax(logits, None)
    assert logprobs[0].isfinite().all()
    assert logprobs[1, 2].isnan()
    chosen, entropy = weigh(logprobs, torch.tensor([0, 2]))
    assert chosen.isnan().tolist() == [False, True]
    assert entropy.isnan().tolist() == [False, True]


def test_numbers_that_do_not_lie_side_by_side() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).t().requires_grad_()
    logprobs = masked_log_softmax(logits, None)
    torch.testing.assert_close(logprobs, torch.log_softmax(logits, dim=-1))
    chosen, _ = weigh(logprobs, torch.arange(8)[::2][:3].flip(0) // 2)
    (gradient,) = torch.autograd.grad(chosen.sum(), logits)
    expected = torch.eye(4)[[2, 1, 0]] - logprobs.exp()
    torch.testing.assert_close(gradient, expected)


def test_real_numbers_are_weighed_as_ever() -> None:
    mean, log_std = torch.tensor([[0.5, -1.0]]), torch.tensor([0.1, -0.2])
    bounds = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0])
    gaussian = GaussianDistribution(torch.zeros(1, dtype=torch.int64), mean, log_std, *bounds)
    samples = torch.tensor([[0.0, 0.3]])
    logprob, entropy = gaussian.weigh(samples)
    assert torch.equal(logprob, gaussian.logprob(samples))
    assert torch.equal(entropy, gaussian.entropy())
