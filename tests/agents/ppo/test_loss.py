"""The compiled loss equals the plain one, in its figures and its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.loss import Before, ppo_loss
from entity_env.agents.rogue_net.torch_net import attention as torch_attention
from entity_env.agents.rogue_net.torch_net.net import Evaluation

pytest.importorskip("numba")


def numbers(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    return rng.normal(size=count).astype(np.float32)


def told(
    new: list[Tensor],
    old: Before,
    mb_inds: NDArray[np.int64],
    config: PPOConfig,
    is_compiled: bool,
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Loss, figures, and gradients of thrice the loss."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_attention, "FEW", 0)
        patch.setattr(torch_attention, "has_numba", lambda: is_compiled)
        loss, figures = ppo_loss(Evaluation(*new), old, mb_inds, config, 0.1)
    return loss.detach(), figures, torch.autograd.grad(3 * loss, new)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 40),
    spread=st.sampled_from([0.0, 0.05, 0.5, 2.0]),
    clip_coef=st.sampled_from([0.1, 0.2, 0.7]),
    switches=st.tuples(st.booleans(), st.booleans()),
)
def test_the_loss_is_the_same_without_numba(
    seed: int, count: int, spread: float, clip_coef: float, switches: tuple[bool, bool]
) -> None:
    rng = np.random.default_rng(seed)
    old = Before(*(numbers(rng, count) for _ in range(4)))
    mb_inds = rng.permutation(count)[: int(rng.integers(1, count + 1))]
    moved = spread * numbers(rng, len(mb_inds))
    arrays = old.logprobs[mb_inds] + moved, numbers(rng, len(mb_inds)), old.values[mb_inds] - moved
    new = [torch.from_numpy(each).requires_grad_() for each in arrays]
    config = PPOConfig(clip_coef=clip_coef, norm_adv=switches[0], clip_vloss=switches[1])
    loss, figures, gradients = told(new, old, mb_inds, config, is_compiled=True)
    plain, expected, wanted = told(new, old, mb_inds, config, is_compiled=False)
    assert figures.dtype == torch.float32
    assert not figures.requires_grad
    torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(figures, expected, rtol=1e-4, atol=1e-5)
    for one, two in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("at", [-0.2, 0.2])
def test_the_bound_itself_is_free(at: float, is_compiled: bool) -> None:
    """Where the ratio is the bound to the last bit, both terms are the same."""
    one, zero = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    config = PPOConfig(norm_adv=False, clip_vloss=True, clip_coef=0.2)
    value = torch.full((1,), at).requires_grad_()
    new = [torch.zeros(1).requires_grad_(), torch.zeros(1).requires_grad_(), value]
    _, figures, (by_logprob, _, by_value) = told(
        new, Before(zero, zero, one, 5 * one), np.arange(1), config, is_compiled
    )
    assert float(by_logprob) == -3.0
    assert float(by_value) == pytest.approx(3 * config.vf_coef * (at - 5))
    assert figures[4] == 0


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_probability_that_is_no_number_is_told(is_compiled: bool) -> None:
    rng = np.random.default_rng(0)
    old = Before(*(numbers(rng, 3) for _ in range(4)))
    new = [torch.zeros(3).requires_grad_() for _ in range(3)]
    with torch.no_grad():
        new[0][1] = torch.nan
    loss, figures, gradients = told(new, old, np.arange(3), PPOConfig(), is_compiled)
    assert loss.isnan()
    assert figures[0].isnan()
    assert gradients[0].isnan().tolist() == [False, True, False]
