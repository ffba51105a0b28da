"""Output of the transformer: gathered entities and means equal plain torch in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.peers.network_vectors import random_weights
from entity_env.agents.rogue_net import NeuralAgent
from entity_env.agents.rogue_net.action_index import Actees, find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, ObsBatch, lay_out
from entity_env.agents.rogue_net.torch_net import tensors as torch_tensors
from entity_env.agents.rogue_net.torch_net.distributions import (
    CategoricalDistribution,
    sample_actions,
)
from entity_env.agents.rogue_net.torch_net.heads import SelectEntityHead
from entity_env.agents.rogue_net.torch_net.mlp import policy_of
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import VecSelectEntityActionMask
from tests.page.test_network import DEPENDENT_CONFIGS, dependent_observation

NAMES = ("A", "B")
COUNTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6).filter(
    lambda counts: any(map(any, counts))
)
WIDTHS = st.sampled_from([8, 13, 32, 64])
READS = st.lists(st.sampled_from(["gather", "mean"]), min_size=1, max_size=4)


def layout_of(counts: list[tuple[int, int]]) -> Layout:
    lengths = np.array(counts, dtype=np.int64).T
    features = {
        name: RaggedArray(np.zeros((each.sum(), 1), dtype=np.float32), each)
        for name, each in zip(NAMES, lengths, strict=True)
    }
    return lay_out(ObsBatch(features, {}, {}), NAMES)


@dataclass
class Case:
    """Random entities in float32 and float64."""

    layout: Layout
    given: list[Tensor]
    exact: list[Tensor]
    last: nn.Linear | None
    whole: Tensor

    def encoded(self) -> EncodedEntities:
        if self.last is None:
            return EncodedEntities(self.given[0])
        return EncodedEntities(self.given[0], self.given[1], self.last)


def case_of(counts: list[tuple[int, int]], width: int, has_hidden: bool, seed: int) -> Case:
    layout = layout_of(counts)
    generator = torch.Generator().manual_seed(seed)
    sizes: list[tuple[int, ...]] = [(len(layout.order), width)]
    if has_hidden:
        sizes += [(len(layout.order), 4 * width), (width, 4 * width), (width,)]
    # Scaled by the number of summands, so sums stay near 1.
    scales = [1.0, 1.0, (4 * width) ** -0.5, 1.0]
    given = [
        (torch.randn(size, generator=generator) * scale).requires_grad_()
        for size, scale in zip(sizes, scales, strict=False)
    ]
    exact = [each.detach().double().requires_grad_() for each in given]
    if not has_hidden:
        return Case(layout, given, exact, None, exact[0])
    last = nn.Linear(4 * width, width)
    last.weight, last.bias = nn.Parameter(given[2].detach()), nn.Parameter(given[3].detach())
    given[2:] = last.weight, last.bias
    whole = exact[0] + nn.functional.linear(exact[1], exact[2], exact[3])
    return Case(layout, given, exact, last, whole)


def assert_same_gradients(
    got: Sequence[Tensor],
    wanted: Sequence[Tensor],
    given: Sequence[Tensor],
    exact: Sequence[Tensor],
) -> None:
    """Compares outputs, and gradients of a random weighted sum of all outputs."""
    generator = torch.Generator().manual_seed(3)
    one, two = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for tensor, other in zip(given, exact, strict=True):  # makes all have a gradient
        one, two = one + 0 * tensor.sum(), two + 0 * other.sum()
    for mine, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-3, atol=2e-4)
        slope = torch.randn(mine.shape, generator=generator)
        one, two = one + (mine * slope).sum(), two + (other * slope).sum()
    for mine, other in zip(
        torch.autograd.grad(one, given), torch.autograd.grad(two, exact), strict=True
    ):
        torch.testing.assert_close(mine.double(), other, rtol=1e-3, atol=1e-3)


def mean_by_book(whole: Tensor, layout: Layout) -> Tensor:
    rows = [
        torch.from_numpy(np.flatnonzero(layout.rows == row)) for row in range(len(layout.lengths))
    ]
    zero = whole.new_zeros(whole.shape[1])
    return torch.stack([whole[each].mean(0) if len(each) else zero for each in rows])


@pytest.fixture(params=[0, 1000], ids=["kernels", "torch"])
def _few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes compiled code handle every size, or none."""
    monkeypatch.setattr(torch_tensors, "FEW", request.param)


@pytest.mark.usefixtures("_few")
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(COUNTS, WIDTHS, st.booleans(), READS, st.integers(0, 99))
def test_reads_equal_the_book_in_any_order(
    counts: list[tuple[int, int]], width: int, has_hidden: bool, reads: list[str], seed: int
) -> None:
    case = case_of(counts, width, has_hidden, seed)
    rng = np.random.default_rng(seed)
    encoded, before = case.encoded(), case.given[0].detach().clone()
    got, wanted = [], []
    for read in reads:
        if read == "gather":
            index = rng.integers(0, len(case.layout.order), rng.integers(0, 9))
            got.append(encoded.gather(index))
            wanted.append(case.whole[index.tolist()])
        else:
            got.append(encoded.mean_pool(case.layout))
            wanted.append(mean_by_book(case.whole, case.layout))
    assert_same_gradients(got, wanted, case.given, case.exact)
    assert torch.equal(encoded.x.detach(), before)


def select_mask(
    layout: Layout, rng: np.random.Generator, masked: bool
) -> VecSelectEntityActionMask:
    """Random actors and actees of each row; every actor has a legal choice."""
    num_actors = np.where(layout.lengths > 0, rng.integers(0, 4, len(layout.lengths)), 0)
    num_actees = np.where(
        layout.lengths > 0, rng.integers(1, layout.lengths + 1 + (layout.lengths == 0)), 0
    )
    actors, actees, allowed = [], [], []
    for length, asked, offered in zip(layout.lengths, num_actors, num_actees, strict=True):
        actors.append(rng.integers(0, max(length, 1), asked))
        actees.append(rng.permutation(length)[:offered])
        free = rng.random((asked, offered)) < 0.6
        free[:, :1] = True
        allowed.append(free.reshape(-1))
    return VecSelectEntityActionMask(
        RaggedArray(np.concatenate(actors).astype(np.int64), num_actors),
        RaggedArray(np.concatenate(actees).astype(np.int64), num_actees),
        RaggedArray(np.concatenate(allowed), num_actors * num_actees) if masked else None,
    )


@settings(max_examples=40, deadline=None)
@given(COUNTS, WIDTHS, st.booleans(), st.booleans(), st.integers(0, 99))
def test_a_select_head_equals_the_book(
    counts: list[tuple[int, int]], width: int, has_hidden: bool, masked: bool, seed: int
) -> None:
    case, rng = case_of(counts, width, has_hidden, seed), np.random.default_rng(seed)
    mask = select_mask(case.layout, rng, masked)
    head = SelectEntityHead(width, 6)
    distribution = head(case.encoded(), find_choices("act", mask, case.layout))
    assert isinstance(distribution, CategoricalDistribution)
    query, key = head.query_proj.double(), head.key_proj.double()
    actor = 0
    for row, actors in enumerate(mask.actors):
        start, actees = case.layout.offsets[row], mask.actees[row]
        allowed = None if mask.mask is None else mask.mask[row].reshape(len(actors), len(actees))
        keys = key(case.whole[case.layout.order[start + actees].tolist()])
        for i, index in enumerate(case.layout.order[start + actors].tolist()):
            logits = keys @ query(case.whole[index]) * head.scale
            if allowed is not None:
                logits = logits.masked_fill(torch.from_numpy(~allowed[i]), -torch.inf)
            got = distribution.logprobs[actor].exp().double()
            wanted = logits.softmax(dim=0)
            torch.testing.assert_close(got[: len(actees)], wanted, rtol=1e-3, atol=1e-4)
            assert (got[len(actees) :] == 0).all()
            actor += 1
    assert actor == len(distribution.logprobs) or not len(mask.actors.values)


def actees_of(lengths: list[int], actors: list[int]) -> Actees:
    size = sum(lengths)
    index: NDArray[np.int64] = np.concatenate([np.arange(each) for each in lengths])
    own = np.zeros(sum(actors), dtype=np.int64)
    mask = VecSelectEntityActionMask(RaggedArray(own, actors), RaggedArray(index, lengths))
    return Actees(np.arange(size), mask)


def test_actees_know_their_slots() -> None:
    actees = actees_of([2, 0, 3], [1, 0, 2])
    assert (actees.num_rows, actees.max_actors, actees.max_actees) == (3, 2, 3)
    assert actees.slots.tolist() == [0, 1, 6, 7, 8]
    assert actees.source.tolist() == [0, 1, 0, 0, 0, 0, 2, 3, 4]
    assert actees.actor_slots.tolist() == [0, 4, 5]


def test_a_distribution_needs_only_the_samples_of_earlier_actions() -> None:
    """It does not matter whether the distributions of these actions were made before."""
    obs_space, actions, config = DEPENDENT_CONFIGS["entities"]
    weights = random_weights((obs_space, actions), config)
    agent = NeuralAgent.of(weights, greedy=True)
    batch = agent._batch_of(dependent_observation((obs_space, actions), 2))
    net = policy_of(weights)
    with torch.no_grad():
        in_order, _ = net.distributions(batch)
        chosen, known = sample_actions(in_order, greedy=True, generator=None)
        for name, expected in known.items():
            if not actions[name].given:
                continue
            alone = net.distributions(batch)[0][name].given(chosen)
            assert torch.equal(alone.logprob(chosen[name]), expected.logprob(chosen[name]))
