"""Compiled blocks and embeddings equal torch, in values and gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.batch_layout import ObsBatch, lay_out
from entity_env.agents.rogue_net.torch_net import (
    block as torch_block,
    tensors as torch_tensors,
)
from entity_env.agents.rogue_net.torch_net.attention import (
    Attention,
    PackedLayout,
    attention_layout,
)
from entity_env.agents.rogue_net.torch_net.block import TransformerBlock
from entity_env.agents.rogue_net.torch_net.embedding import CLIP, LARGEST_WIDTH, EntityEmbedding
from entity_env.core.ragged import RaggedArray

pytest.importorskip("numba")

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any)
PLAIN = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=[3, 96], ids=["slices", "whole"])
def _slice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes compiled code handle every size, in slices of a few entities or all at once."""
    monkeypatch.setattr(torch_tensors, "FEW", 0)
    monkeypatch.setattr(torch_block, "_SLICE", request.param)


def randomized(module: nn.Module, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module


def by_book(block: TransformerBlock, x: Tensor, rows: Tensor, n_head: int) -> Tensor:
    """A textbook block, observation by observation with a mask."""
    normal = block.ln1(x)
    attn = cast(Attention, block.attn)
    parts = []
    for layer in (attn.query, attn.key, attn.value):
        parts.append(layer(normal).view(len(x), n_head, -1).transpose(0, 1))
    q, k, v = parts
    logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    logits = logits.masked_fill(rows[:, None] != rows[None, :], -1e9)
    y = x + attn.proj((logits.softmax(-1) @ v).transpose(0, 1).reshape(x.shape))
    hidden = nn.functional.gelu(block.mlp[0](block.ln2(y)))
    out: Tensor = y + block.mlp[2](hidden)
    return out


def assert_same_gradients(
    got: Tensor, wanted: Tensor, given: Sequence[Tensor], exact: Sequence[Tensor]
) -> None:
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=5e-5)
    slope = torch.randn(got.shape, generator=torch.Generator().manual_seed(5))
    for one, two in zip(
        torch.autograd.grad((got * slope).sum(), given),
        torch.autograd.grad((wanted * slope).sum(), exact),
        strict=True,
    ):
        torch.testing.assert_close(one.double(), two, rtol=1e-3, atol=5e-4)


@pytest.mark.usefixtures("_slice")
@PLAIN
@given(
    LENGTHS,
    st.sampled_from([(1, 8), (2, 16), (2, 10), (3, 24)]),
    st.sampled_from([0, 128]),
    st.integers(0, 9),
)
def test_a_block_equals_the_book(
    lengths: list[int], shape: tuple[int, int], widest: int, seed: int
) -> None:
    n_head, d_model = shape
    config = RogueNetConfig(d_model=d_model, n_layer=1, n_head=n_head)
    block, exact = TransformerBlock(config), TransformerBlock(config)
    randomized(block, seed)
    exact.load_state_dict(block.state_dict())
    exact.double()
    counts = np.array(lengths)
    features = {"A": RaggedArray(np.zeros((counts.sum(), 1), dtype=np.float32), counts)}
    layout = lay_out(ObsBatch(features, {}, {}), ["A"])
    place = attention_layout(layout, config, torch.device("cpu"))
    assert isinstance(place, PackedLayout)
    x = torch.randn(counts.sum(), d_model, generator=torch.Generator().manual_seed(seed))
    own, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    wanted = by_book(exact, theirs, torch.from_numpy(layout.rows), n_head)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_block, "LARGEST_MODEL", widest)
        assert block.has_kernel(place) is bool(widest)
        got = block(own, place)
        with torch.no_grad():
            assert torch.equal(block(own, place), got)
    given, others = (own, *block.parameters()), (theirs, *exact.parameters())
    assert_same_gradients(got, wanted, given, others)
    assert torch.equal(own.detach(), x)


@settings(max_examples=40)
@given(st.integers(0, 21), st.integers(0, 9), st.integers(1, 75), st.integers(0, 2**32))
def test_compiled_products_are_those_of_numpy(rows: int, depth: int, width: int, seed: int) -> None:
    from entity_env.agents.rogue_net.kernels.matmul import add_outer, add_product

    rng = np.random.default_rng(seed)

    def matrix(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    a, b, turned, start = (
        matrix(*shape) for shape in ((rows, depth), (depth, width), (depth, rows), (rows, width))
    )
    for add, left, by in ((add_product, a, a), (add_outer, turned, turned.T)):
        out = start.copy()
        add(left, b, out)
        exact = start + by.astype(np.float64) @ b
        np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5)
    # Tiles of any size sum in the same order: a row does not depend on the number of rows.
    both, one, vectors = start.copy(), start[-1:].copy(), width - width % 8
    add_product(a, b, both)
    add_product(a[-1:], b, one)
    assert np.array_equal(both[-1:, :vectors], one[:, :vectors])


@pytest.mark.usefixtures("_slice")
def test_a_block_sees_every_change_of_its_parameters() -> None:
    config = RogueNetConfig(d_model=8, n_layer=1, n_head=1)
    block, x = TransformerBlock(config), torch.randn(40, 8)
    features = {"A": RaggedArray(np.zeros((40, 1), dtype=np.float32), np.array([40]))}
    layout = lay_out(ObsBatch(features, {}, {}), ["A"])
    place = attention_layout(layout, config, torch.device("cpu"))

    def check(one: TransformerBlock) -> None:
        exact = TransformerBlock(config)
        exact.load_state_dict(one.state_dict())
        wanted = by_book(exact.double(), x.double(), torch.from_numpy(layout.rows), 1)
        with torch.no_grad():
            torch.testing.assert_close(one(x, place).double(), wanted, rtol=1e-4, atol=1e-5)

    check(block)
    randomized(block, 3)
    check(block)
    other = copy.deepcopy(block)
    randomized(block, 4)
    check(block)
    check(other)
    block.ln1.weight.data = torch.randn(8)
    block.attn.proj = nn.Linear(8, 8)
    check(block)
    block.mlp[0].weight.data = torch.randn(8, 32).t()
    check(block)
    with torch.no_grad():
        next(block.mlp.parameters()).mul_(2)
    check(block)
    check(pickle.loads(pickle.dumps(other)))


def test_a_block_is_freed_without_the_collector() -> None:
    import gc
    import weakref

    config = RogueNetConfig(d_model=8, n_layer=1, n_head=1)
    block, counts = TransformerBlock(config), np.array([40])
    features = {"A": RaggedArray(np.zeros((40, 1), dtype=np.float32), counts)}
    layout = lay_out(ObsBatch(features, {}, {}), ["A"])
    place = attention_layout(layout, config, torch.device("cpu"))
    gc.disable()
    try:
        out = block.forward(torch.randn(40, 8, requires_grad=True), place)
        node = weakref.ref(out)
        del out
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("_slice")
@PLAIN
@given(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), st.integers(0, 3))
def test_an_embedding_equals_that_of_torch(counts: list[int], updates: int) -> None:
    widths = {"A": 3, "none": 0, "B": 1}
    embedding = EntityEmbedding(widths, 16)
    randomized(embedding, 7)
    generator = torch.Generator().manual_seed(updates)
    features = {
        name: 3 * torch.randn(count, width, generator=generator)
        for count, (name, width) in zip(counts, widths.items(), strict=True)
    }
    for _ in range(updates):
        embedding.update_statistics(
            {name: torch.randn(4, width, generator=generator) for name, width in widths.items()}
        )
    exact = EntityEmbedding(widths, 16)
    exact.load_state_dict(embedding.state_dict())
    exact.double()
    wanted = torch.cat(
        [
            module(features[name].double())
            if widths[name] == 0
            else by_layers(module, features[name])
            for name, module in exact.embeddings.items()
        ]
    )
    got = embedding.forward(features)
    with torch.no_grad():
        assert torch.equal(embedding.forward(features), got)
    assert_same_gradients(got, wanted, list(embedding.parameters()), list(exact.parameters()))


def by_layers(module: nn.Module, features: Tensor) -> Tensor:
    x = features.double()
    for layer in module.children():
        x = layer(x)
    return x


@pytest.mark.usefixtures("_slice")
def test_an_embedding_cuts_what_is_far_out_and_tells_of_nan() -> None:
    embedding = EntityEmbedding({"A": 1}, 8)
    shown = torch.tensor([[1e6], [CLIP], [-1e6], [-CLIP], [float("nan")]])
    out = embedding.forward({"A": shown})
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[2], out[3])
    assert out[4].isnan().all()


@pytest.mark.usefixtures("_slice")
def test_many_features_are_left_to_torch() -> None:
    embedding = EntityEmbedding({"A": LARGEST_WIDTH + 1}, 8)
    shown = torch.randn(50, LARGEST_WIDTH + 1)
    torch.testing.assert_close(
        embedding.forward({"A": shown}).double(),
        by_layers(embedding.double().embeddings["A"], shown),
        rtol=1e-4,
        atol=1e-5,
    )
