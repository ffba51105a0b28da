"""Compiled attention and sums equal plain versions, in values and gradients, in every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.batch_layout import Layout, ObsBatch, lay_out
from entity_env.agents.rogue_net.torch_net import (
    attention as torch_attention,
    tensors as torch_tensors,
)
from entity_env.agents.rogue_net.torch_net.attention import PackedLayout, attend
from entity_env.agents.rogue_net.torch_net.tensors import use_kernels
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)

pytest.importorskip("numba")

OBS_SPACE = ObsSpace(entities={"A": Entity(["x", "y"]), "B": Entity([]), "C": Entity(["z"])})
NAMES = tuple(OBS_SPACE.entities)
COUNTS = st.lists(st.tuples(*(st.integers(0, 4) for _ in NAMES)), min_size=1, max_size=5).filter(
    lambda counts: any(map(any, counts))
)
SHAPES = [(1, 16), (2, 8), (2, 5), (4, 16)]


def batch_of(counts: list[tuple[int, ...]], seed: int, hides: bool = False) -> ObsBatch:
    """A random batch with the given number of entities of each type in each row."""
    rng = np.random.default_rng(seed)
    lengths = np.array(counts, dtype=np.int64).T
    features = {
        name: RaggedArray(
            rng.normal(size=(each.sum(), len(entity.features))).astype(np.float32), each
        )
        for each, (name, entity) in zip(lengths, OBS_SPACE.entities.items(), strict=True)
    }
    visible = {"A": RaggedArray(rng.random(lengths[0].sum()) < 0.5, lengths[0])} if hides else {}
    return ObsBatch(features, visible, {})


def plain(qkv: torch.Tensor, layout: Layout, n_head: int) -> torch.Tensor:
    """Textbook attention, row by row."""
    mixed = torch.zeros(len(qkv), qkv.shape[1] // 3, dtype=qkv.dtype)
    for row in np.flatnonzero(layout.lengths):
        mine = torch.from_numpy(np.flatnonzero(layout.rows == row))
        q, k, v = qkv[mine].view(len(mine), 3, n_head, -1).permute(1, 2, 0, 3)
        logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if layout.visible is not None:
            seen = torch.from_numpy(layout.visible)[mine]
            logits = logits.masked_fill(seen[:, None] & ~seen[None, :], -1e9)
        mixed = mixed.index_copy(
            0, mine, (logits.softmax(-1) @ v).transpose(0, 1).reshape(len(mine), mixed.shape[1])
        )
    return mixed


def require_the_book(
    layout: Layout, n_head: int, d_head: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checks attention and its gradient against the textbook; returns input and output."""
    generator = torch.Generator().manual_seed(seed)
    size = (len(layout.order), 3 * n_head * d_head)
    qkv = (3 * torch.randn(size, generator=generator)).requires_grad_()
    slope = torch.randn(size[0], n_head * d_head, generator=generator)
    mixed = attend(qkv, PackedLayout.of(layout, n_head))
    (got,) = torch.autograd.grad((mixed * slope).sum(), qkv)
    exact = qkv.detach().double().requires_grad_()
    expected = plain(exact, layout, n_head)
    (wanted,) = torch.autograd.grad((expected * slope).sum(), exact)
    # The textbook in float32 rounds, too: large logits of wide heads lose digits.
    rounded = plain(qkv.detach(), layout, n_head).double() - expected.detach()
    atol = max(2e-5, 2 * float(rounded.abs().max()))
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-4, atol=atol)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=5e-5)
    return qkv, mixed


@settings(max_examples=40, deadline=None)
@given(COUNTS, st.booleans(), st.sampled_from(SHAPES), st.integers(0, 9))
def test_attention_equals_the_book(
    counts: list[tuple[int, ...]], hides: bool, shape: tuple[int, int], seed: int
) -> None:
    n_head, d_head = shape
    layout = lay_out(batch_of(counts, seed, hides), NAMES)
    qkv, mixed = require_the_book(layout, n_head, d_head, seed)
    with torch.no_grad():
        assert torch.equal(attend(qkv, PackedLayout.of(layout, n_head)), mixed)


def layout_of(lengths: list[int], seed: int, hides: bool) -> Layout:
    """Layout of observations with these numbers of entities, packed in any order."""
    rng = np.random.default_rng(seed)
    counts = np.array(lengths, dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    order = rng.permutation(int(counts.sum()))
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    rows = np.repeat(np.arange(len(counts)), counts)[places]
    visible = rng.random(len(order)) < 0.5 if hides else None
    return Layout(counts, offsets, rows, places, order, visible)


LENGTHS = st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any)


@settings(max_examples=100, deadline=None)
@given(
    LENGTHS,
    st.booleans(),
    st.sampled_from([4, 8, 16, 24, 32, 64]),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_attention_equals_the_book_for_every_length(
    lengths: list[int], hides: bool, d_head: int, n_head: int, seed: int
) -> None:
    layout = layout_of(lengths, seed, hides)
    require_the_book(layout, n_head, d_head, seed)


@pytest.mark.parametrize("lengths", [[1], [2], [3], [4], [5], [8], [9], [16], [17], [1, 0, 4, 12]])
def test_attention_writes_nothing_else(lengths: list[int]) -> None:
    """It does not write outside its output, and leaves none of the old content."""
    forward, backward = torch_attention._kernels()
    layout = layout_of(lengths, 0, hides=False)
    packed, size, room = PackedLayout.of(layout, 2), len(layout.order), 64
    rng, scale = np.random.default_rng(0), np.float32(8**-0.5)
    qkv, given = (rng.normal(size=size * width).astype(np.float32) for width in (48, 16))
    results = []
    for filler in (np.float32(7), np.float32(np.nan)):
        sizes = size * 16, packed.num_shares, size * 48
        whole = [np.full(each + room, filler) for each in sizes]
        mixed, shares, moved = (array[:-room] for array in whole)
        index = packed.order, packed.offsets
        forward(qkv, *index, packed.visible, 2, scale, mixed, shares, packed.max_length)
        backward(qkv, *index, 2, scale, shares, given, moved, packed.max_length)
        for array in whole:
            np.testing.assert_array_equal(array[-room:], filler)
        results.append((mixed, moved))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("lengths", [[3, 2, 4], [9, 5, 17], [4, 12, 1]])
def test_no_number_stays_in_its_observation(lengths: list[int]) -> None:
    layout = layout_of(lengths, 1, hides=False)
    qkv = torch.randn(sum(lengths), 48, generator=torch.Generator().manual_seed(0))
    clean = attend(qkv, PackedLayout.of(layout, 2))
    broken = qkv.clone()
    rows = torch.from_numpy(layout.rows)
    broken[rows == 1] = torch.nan
    mixed = attend(broken, PackedLayout.of(layout, 2))
    assert mixed[rows == 1].isnan().all()
    assert torch.equal(mixed[rows != 1], clean[rows != 1])


@pytest.mark.parametrize("length", [2, 4, 5, 9, 20])
@pytest.mark.parametrize("far", [30.0, 60.0, 1e3])
def test_far_logits_have_the_shares_of_the_book(length: int, far: float) -> None:
    layout = layout_of([length], 0, hides=False)
    generator = torch.Generator().manual_seed(length)
    qkv = torch.randn(length, 24, generator=generator)
    qkv[:, :8] *= far
    packed = PackedLayout.of(layout, 1)
    torch.testing.assert_close(attend(qkv, packed), plain(qkv, layout, 1), rtol=1e-3, atol=1e-3)
    assert attend(qkv, packed).isfinite().all()


def test_a_hidden_entity_has_no_share_in_a_visible_one() -> None:
    for length in (3, 7, 12):
        layout = layout_of([length], 2, hides=True)
        assert layout.visible is not None
        seen = torch.from_numpy(layout.visible)
        qkv = torch.randn(length, 48, generator=torch.Generator().manual_seed(0))
        changed = qkv.clone()
        changed[~seen] += 1
        packed = PackedLayout.of(layout, 2)
        mixed, other = attend(qkv, packed), attend(changed, packed)
        assert seen.any()
        assert not seen.all()
        assert torch.equal(mixed[seen], other[seen])
        assert not torch.equal(mixed[~seen], other[~seen])


@pytest.mark.parametrize("far", [0.0, 30.0, 1e4])
def test_attention_stays_finite_however_far_logits_are_apart(far: float) -> None:
    layout = lay_out(batch_of([(3, 0, 0)], 0), NAMES)
    qkv = torch.zeros(3, 24)
    qkv[0, :16] = far
    mixed = attend(qkv, PackedLayout.of(layout, 1))
    assert mixed.isfinite().all()
    torch.testing.assert_close(mixed, plain(qkv, layout, 1))


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes compiled code handle every size."""
    monkeypatch.setattr(torch_tensors, "FEW", 0)


@pytest.mark.usefixtures("_few")
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(COUNTS, st.sampled_from([1, 7, 8, 20]), st.integers(0, 9))
def test_mean_equals_the_mean_of_all(counts: list[tuple[int, ...]], width: int, seed: int) -> None:
    layout = lay_out(batch_of(counts, seed), NAMES)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(layout.order), width, generator=generator).requires_grad_()
    hidden = torch.randn(len(x), 4 * width, generator=generator).requires_grad_()
    last = torch.nn.Linear(4 * width, width)
    encoded, whole = EncodedEntities(x, hidden, last), x + last(hidden)
    mean = encoded.mean_pool(layout)
    expected = torch.stack(
        [
            whole[torch.from_numpy(layout.rows == row)].mean(0) if length else torch.zeros(width)
            for row, length in enumerate(layout.lengths)
        ]
    )
    torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)
    every = (x, hidden, *last.parameters())
    slope = torch.randn(mean.shape, generator=generator)
    for got, wanted in zip(
        torch.autograd.grad((mean * slope).sum(), every),
        torch.autograd.grad((expected * slope).sum(), every),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    index = np.arange(len(x))[::-1].copy()
    torch.testing.assert_close(encoded.gather(index), whole[index.tolist()], rtol=1e-4, atol=1e-5)


ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["a", "b", "c"]),
    "pick": SelectEntityActionSpace(),
}


def asked(batch: ObsBatch, names: list[str]) -> ObsBatch:
    """The first entity of each nonempty row acts, and may select all entities."""
    lengths = np.sum([each.lengths for each in batch.features.values()], axis=0)
    first = (lengths > 0).astype(np.int64)
    actors = RaggedArray(np.zeros(first.sum(), dtype=np.int64), first)
    actees = RaggedArray(np.concatenate([np.arange(n) for n in lengths]), lengths)
    masks: dict[str, VecActionMask] = {
        "move": VecCategoricalActionMask(actors),
        "pick": VecSelectEntityActionMask(actors, actees),
    }
    return ObsBatch(batch.features, batch.visible, {name: masks[name] for name in names})


def outcome(
    counts: list[tuple[int, ...]], names: list[str], n_layer: int
) -> tuple[list[NDArray[np.float32]], list[torch.Tensor]]:
    torch.manual_seed(1)
    config = RogueNetConfig(d_model=16, n_layer=n_layer, n_head=2)
    net = RogueNet(OBS_SPACE, {name: ACTIONS[name] for name in names}, config)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    batch = asked(batch_of(counts, 3, hides=True), names)
    net.update_statistics(batch)
    decisions = net.act(batch, generator=torch.Generator().manual_seed(2))
    new = net.evaluate(batch, decisions.samples)
    (new.logprobs.sum() + new.entropy.sum() + new.values.square().sum()).backward()  # type: ignore[no-untyped-call]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
    arrays = [decisions.logprobs, decisions.entropy, decisions.values, net.values(batch)]
    return arrays, gradients


@pytest.mark.parametrize("names", [["move"], ["move", "pick"]])
@pytest.mark.parametrize("n_layer", [0, 1, 2])
@pytest.mark.parametrize(
    "counts",
    [[(2, 1, 3), (0, 0, 0), (4, 4, 4)], [(1, 0, 0)] * 3, [(3, 2, 1), (0, 0, 0)]],
    ids=["hole", "single", "empty_end"],
)
def test_the_network_is_the_same_without_numba(
    monkeypatch: pytest.MonkeyPatch, names: list[str], n_layer: int, counts: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr(torch_tensors, "FEW", 0)
    compiled, gradients = outcome(counts, names, n_layer)
    monkeypatch.setattr(torch_tensors, "has_numba", lambda: False)
    assert not use_kernels(1, torch.device("cpu"))
    padded, plain_gradients = outcome(counts, names, n_layer)
    for got, wanted in zip(compiled, padded, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)
    for mine, other in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_a_last_row_without_entities_is_worth_the_bias() -> None:
    torch.manual_seed(0)
    net = RogueNet(OBS_SPACE, {"move": ACTIONS["move"]}, RogueNetConfig(d_model=16))
    torch.nn.init.constant_(net.auxiliary_heads["value"].bias, 0.25)  # type: ignore[arg-type]
    batch = asked(batch_of([(1, 2, 1), (0, 0, 0)], 0), ["move"])
    assert net.values(batch).shape == (2,)
    assert net.values(batch)[1] == np.float32(0.25)
    assert net.act(batch).values[1] == np.float32(0.25)


def test_many_entities_on_a_cpu_are_left_to_the_compiler() -> None:
    assert use_kernels(33, torch.device("cpu"))
    assert not use_kernels(32, torch.device("cpu"))
    assert not use_kernels(33, torch.device("meta"))
