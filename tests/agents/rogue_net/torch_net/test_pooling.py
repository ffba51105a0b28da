"""What looks at the ends of a network equals plain torch in float64, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import Actees, Choices, find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, ObsBatch, lay_out
from entity_env.agents.rogue_net.torch_net import attention as torch_attention, heads as torch_heads
from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.agents.rogue_net.torch_net.heads import CategoricalHead, SelectEntityHead
from entity_env.agents.rogue_net.torch_net.pooling import Ends, Pairs
from entity_env.core.ragged import RaggedArray
from entity_env.core.vec_obs import VecCategoricalActionMask, VecSelectEntityActionMask

pytest.importorskip("numba")

NAMES = ("A", "B")
COUNTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6).filter(
    lambda counts: any(map(any, counts))
)
WIDTHS = st.sampled_from([8, 13, 32, 64])
LOOKS = st.lists(st.sampled_from(["pick", "mean", "compare"]), min_size=1, max_size=4)
MANY = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code takes care of everything."""
    monkeypatch.setattr(torch_attention, "FEW", 0)


def layout_of(counts: list[tuple[int, int]]) -> Layout:
    lengths = np.array(counts, dtype=np.int64).T
    features = {
        name: RaggedArray(np.zeros((each.sum(), 1), dtype=np.float32), each)
        for name, each in zip(NAMES, lengths, strict=True)
    }
    return lay_out(ObsBatch(features, {}, {}), NAMES)


@dataclass
class Case:
    """Random entities in float32 and the same in float64."""

    layout: Layout
    given: list[Tensor]
    exact: list[Tensor]
    last: nn.Linear | None
    whole: Tensor

    def ends(self) -> Ends:
        if self.last is None:
            return Ends(self.given[0])
        return Ends(self.given[0], self.given[1], self.last)


def case_of(counts: list[tuple[int, int]], width: int, has_hidden: bool, seed: int) -> Case:
    layout = layout_of(counts)
    generator = torch.Generator().manual_seed(seed)
    sizes: list[tuple[int, ...]] = [(len(layout.order), width)]
    if has_hidden:
        sizes += [(len(layout.order), 4 * width), (width, 4 * width), (width,)]
    # Each number of a sum of as many as a row has: none far from 1.
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
    """Of a random weighted sum of all outputs; the outputs are the same, too."""
    generator = torch.Generator().manual_seed(3)
    one, two = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for tensor, other in zip(given, exact, strict=True):  # so that all have a gradient
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


def pairs_of(layout: Layout, rng: np.random.Generator) -> Pairs:
    """Some actors anywhere, each with some entities of its row; some rows have none."""
    lengths = rng.integers(0, layout.lengths + 1)
    first = layout.offsets[:-1]
    packed = [layout.order[at : at + size] for at, size in zip(first, lengths, strict=True)]
    rows = np.sort(rng.choice(np.flatnonzero(layout.lengths), rng.integers(0, 6)))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Pairs(rows, np.concatenate(packed), offsets, int(lengths.max()))


def compared_by_book(whole: Tensor, wanted: Tensor, pairs: Pairs) -> Tensor:
    logits = whole.new_zeros(len(pairs.rows), pairs.max_actees)
    for actor, row in enumerate(pairs.rows):
        actees = pairs.packed[pairs.offsets[row] : pairs.offsets[row + 1]]
        logits[actor, : len(actees)] = whole[actees.tolist()] @ wanted[actor]
    return logits


@MANY
@given(COUNTS, WIDTHS, st.booleans(), LOOKS, st.integers(0, 99))
def test_looks_equal_the_book_in_any_order(
    counts: list[tuple[int, int]], width: int, has_hidden: bool, looks: list[str], seed: int
) -> None:
    case = case_of(counts, width, has_hidden, seed)
    rng = np.random.default_rng(seed)
    ends, whole, given, exact = case.ends(), case.whole, list(case.given), list(case.exact)
    got, wanted = [], []
    for look in looks:
        if look == "pick" or (look == "compare" and not ends.is_compiled):
            index = rng.integers(0, len(case.layout.order), rng.integers(0, 9))
            got.append(ends.pick(index))
            wanted.append(whole[index.tolist()])
        elif look == "mean":
            got.append(ends.mean(case.layout))
            wanted.append(mean_by_book(whole, case.layout))
        else:
            pairs = pairs_of(case.layout, rng)
            own = torch.from_numpy(rng.normal(size=(len(pairs.rows), width)).astype(np.float32))
            given.append(own.requires_grad_())
            exact.append(own.detach().double().requires_grad_())
            got.append(ends.compare(own, torch.zeros(1), pairs))
            wanted.append(compared_by_book(whole, exact[-1], pairs))
    assert_same_gradients(got, wanted, given, exact)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_a_look_that_nothing_comes_of_has_no_gradient(used: int) -> None:
    case = case_of([(3, 2), (0, 0), (1, 1)], 8, has_hidden=False, seed=1)
    pairs = pairs_of(case.layout, np.random.default_rng(5))
    ends, own = case.ends(), torch.ones(len(pairs.rows), 8)
    index = np.array([2, 2, 0])
    looks = [ends.pick(index), ends.compare(own, torch.zeros(1), pairs), ends.mean(case.layout)]
    books = [
        case.whole[index.tolist()],
        compared_by_book(case.whole, own.double(), pairs),
        mean_by_book(case.whole, case.layout),
    ]
    assert_same_gradients([looks[used]], [books[used]], case.given, case.exact)


def test_a_graph_that_is_kept_gives_its_gradients_again() -> None:
    case = case_of([(2, 2), (3, 0)], 8, has_hidden=False, seed=2)
    ends = case.ends()
    total = ends.pick(np.array([0, 3])).sum() + ends.mean(case.layout).square().sum()
    first = torch.autograd.grad(total, case.given, retain_graph=True)
    for one, two in zip(first, torch.autograd.grad(total, case.given), strict=True):
        assert torch.equal(one, two)


def test_without_gradients_nothing_is_handed_on() -> None:
    case = case_of([(2, 2), (3, 0)], 8, has_hidden=False, seed=2)
    ends = case.ends()
    pairs = pairs_of(case.layout, np.random.default_rng(0))
    with torch.no_grad():
        told = [ends.mean(case.layout), ends.pick(np.array([0]))]
        told.append(ends.compare(torch.ones(len(pairs.rows), 8), torch.zeros(1), pairs))
    assert ends.x is case.given[0]
    assert not any(each.requires_grad for each in told)


def test_what_was_looked_at_stays_as_it_is() -> None:
    case = case_of([(2, 2), (3, 0)], 8, has_hidden=False, seed=2)
    before, ends = case.given[0].detach().clone(), case.ends()
    (ends.mean(case.layout).sum() + ends.pick(np.array([1, 1])).sum()).backward()  # type: ignore[no-untyped-call]
    assert torch.equal(case.given[0].detach(), before)
    assert torch.equal(ends.x.detach(), before)
    share = torch.tensor([0.25, 0.25, 1 / 3, 1 / 3, 1 / 3, 0.25, 0.25])
    share[1] += 2
    assert case.given[0].grad is not None
    torch.testing.assert_close(case.given[0].grad, share[:, None].expand(7, 8))


def select_mask(
    layout: Layout, rng: np.random.Generator, masked: bool
) -> VecSelectEntityActionMask:
    """Random actors and actees of each row; every actor may choose something."""
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


def categorical_mask(
    layout: Layout, rng: np.random.Generator, masked: bool
) -> VecCategoricalActionMask:
    num_actors = np.where(layout.lengths > 0, rng.integers(0, 3, len(layout.lengths)), 0)
    actors = RaggedArray(
        rng.integers(0, np.repeat(layout.lengths, num_actors).clip(1)).astype(np.int64), num_actors
    )
    allowed = rng.random((len(actors.values), 4)) < 0.5
    allowed[:, 1] = True
    return VecCategoricalActionMask(actors, RaggedArray(allowed, num_actors) if masked else None)


def head_of(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    head, generator = make(), torch.Generator().manual_seed(seed)
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
    return head


def outcome(
    heads: Sequence[nn.Module], chosen: Sequence[Choices], ends: Ends, layout: Layout, seed: int
) -> list[Tensor]:
    """Log-probabilities and entropy of some samples of all actions, and the mean of entities."""
    rng = np.random.default_rng(seed)
    told: list[Tensor] = []
    for head, choices in zip(heads, chosen, strict=True):
        distribution = head(ends, choices)
        assert isinstance(distribution, CategoricalDistribution)
        picks = rng.random(distribution.logprobs.shape)
        if choices.allowed is not None and len(choices.rows):
            picks[~choices.allowed] = -1
        samples = torch.from_numpy(picks.argmax(axis=1))
        told += distribution.weigh(samples)
        told.append(distribution.logprobs.exp())
    return [*told, ends.mean(layout)]


@MANY
@given(
    COUNTS,
    WIDTHS,
    st.booleans(),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([0, 2, 100]),
    st.integers(0, 99),
)
def test_heads_are_the_same_without_numba(
    counts: list[tuple[int, int]],
    width: int,
    has_hidden: bool,
    masked: tuple[bool, bool],
    many: int,
    seed: int,
) -> None:
    case, rng = case_of(counts, width, has_hidden, seed), np.random.default_rng(seed)
    masks = (
        select_mask(case.layout, rng, masked[0]),
        categorical_mask(case.layout, rng, masked[1]),
        select_mask(case.layout, rng, masked[1]),
    )
    chosen = [find_choices("act", mask, case.layout) for mask in masks]
    heads = [
        head_of(lambda: SelectEntityHead(width, 6), seed),
        head_of(lambda: CategoricalHead(width, 4), seed + 1),
        head_of(lambda: SelectEntityHead(width, 3), seed + 2),
    ]
    parameters = [p for head in heads for p in head.parameters()]
    given = [*case.given, *parameters]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_heads, "MANY", many)
        got = outcome(heads, chosen, case.ends(), case.layout, seed)
        gradients = gradients_of(got, given)
        patch.setattr(torch_attention, "has_numba", lambda: False)
        wanted = outcome(heads, chosen, case.ends(), case.layout, seed)
        plain = gradients_of(wanted, given)
    for mine, other in zip([*got, *gradients], [*wanted, *plain], strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-3, atol=1e-3)


def gradients_of(told: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    total = torch.zeros(())
    for each in told:
        total = total + (each * torch.randn(each.shape, generator=generator)).sum()
    gradients = torch.autograd.grad(total, given, allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient  # type: ignore[redundant-expr]
        for tensor, gradient in zip(given, gradients, strict=True)
    ]


def actees_of(lengths: list[int], actors: list[int]) -> Actees:
    size = sum(lengths)
    index: NDArray[np.int64] = np.concatenate([np.arange(each) for each in lengths])
    own = np.zeros(sum(actors), dtype=np.int64)
    mask = VecSelectEntityActionMask(RaggedArray(own, actors), RaggedArray(index, lengths))
    return Actees(np.arange(size), mask)


def test_actees_tell_their_places() -> None:
    actees = actees_of([2, 0, 3], [1, 0, 2])
    assert (actees.num_rows, actees.max_actors, actees.max_actees) == (3, 2, 3)
    assert actees.slots.tolist() == [0, 1, 6, 7, 8]
    assert actees.actor_slots.tolist() == [0, 4, 5]
    assert actees.num_pairs == 2 * 1 + 3 * 2


def test_few_actors_make_no_keys_and_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of([(3, 2), (4, 3)], 8, False, 0)
    rng = np.random.default_rng(0)
    compared: list[int] = []
    real = Ends.compare

    def compare(ends: Ends, wanted: Tensor, bias: Tensor, pairs: Pairs) -> Tensor:
        compared.append(len(pairs.rows))
        return real(ends, wanted, bias, pairs)

    monkeypatch.setattr(Ends, "compare", compare)
    choices = find_choices("act", select_mask(case.layout, rng, False), case.layout)
    assert choices.actees is not None
    head = SelectEntityHead(8, 4)
    for many in (0, 1e9):
        monkeypatch.setattr(torch_heads, "MANY", many)
        head(case.ends(), choices)
        assert compared == ([len(choices.packed)] if many else [])
