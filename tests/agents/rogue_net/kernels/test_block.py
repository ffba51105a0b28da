"""Kernels of a block equal those of torch: layer norm, GELU, sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

pytest.importorskip("numba")

from entity_env.agents.rogue_net.kernels.block import (
    add_columns,
    apply_gelu,
    broadcast_sum,
    gelu_with_slope,
    layer_norm,
    layer_norm_backward,
    multiply_columns,
    to_qkv,
)
from entity_env.agents.rogue_net.kernels.matmul import add_outer, add_product


def matrices(seed: int, *shapes: tuple[int, ...]) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) * np.float32(2) for shape in shapes]


ROWS, COLUMNS = st.integers(0, 7), st.integers(1, 19)


@settings(max_examples=40)
@given(ROWS, COLUMNS, st.integers(0, 2**32))
def test_compiled_norms_are_those_of_torch(rows: int, width: int, seed: int) -> None:
    shape = rows, width
    x, gradient, start, weight, bias = matrices(seed, shape, shape, shape, (width,), (width,))
    out, stats = np.empty_like(x), np.empty((rows, 2), np.float32)
    layer_norm(x, weight, bias, out, stats)
    exact = [torch.from_numpy(each).double().requires_grad_() for each in (x, weight, bias)]
    normed = torch.nn.functional.layer_norm(exact[0], (width,), exact[1], exact[2])
    np.testing.assert_allclose(out, normed.detach(), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(stats[:, 0], x.mean(axis=1), atol=1e-5)
    if width == 1:
        return  # a single number has no variance: its gradient is only rounding
    slopes = torch.autograd.grad(normed, exact, torch.from_numpy(gradient).double())
    added, sums = start.copy(), np.ones((3, width), np.float32)
    layer_norm_backward(gradient, x, weight, stats, added, (sums[0], sums[1], sums[2]))
    sums -= 1
    limit = 1e-4 * max(1.0, float(stats[:, 1].max(initial=0)) ** 2)
    np.testing.assert_allclose(added - start, slopes[0], rtol=1e-3, atol=limit)
    np.testing.assert_allclose(sums[0], slopes[1], rtol=1e-3, atol=limit)
    np.testing.assert_allclose(sums[1], slopes[2], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(sums[2], added.sum(axis=0), rtol=1e-3, atol=10 * limit)


@settings(max_examples=40)
@given(ROWS, COLUMNS, st.integers(0, 2**32), st.sampled_from([0.01, 1.0, 8.0, 1e3]))
def test_compiled_sums_and_gelu_are_those_of_torch(
    rows: int, width: int, seed: int, spread: float
) -> None:
    shape = rows, width
    a, b = matrices(seed, shape, shape)
    out, sums = a.copy(), np.ones(width, np.float32)
    multiply_columns(out, b, sums)
    np.testing.assert_array_equal(out, a * b)
    np.testing.assert_allclose(sums, 1 + (a * b).sum(axis=0), rtol=1e-4, atol=1e-4)
    sums[:] = 2
    add_columns(b, sums)
    np.testing.assert_allclose(sums, 2 + b.sum(axis=0), rtol=1e-4, atol=1e-4)
    broadcast_sum(out, a, sums)
    np.testing.assert_array_equal(out, a + sums)

    x = a * np.float32(spread)
    exact = torch.from_numpy(x).double().requires_grad_()
    value = torch.nn.functional.gelu(exact)
    (slope,) = torch.autograd.grad(value.sum(), [exact])
    risen = x.copy()
    apply_gelu(risen)
    gelu_with_slope(x, out)
    np.testing.assert_allclose(risen, out, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out, value.detach(), rtol=1e-5, atol=3e-6)
    np.testing.assert_allclose(x, slope, rtol=1e-5, atol=3e-6)


@settings(max_examples=40)
@given(st.integers(0, 12), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32))
def test_compiled_products_are_those_of_numpy(rows: int, depth: int, width: int, seed: int) -> None:
    a, b, out = matrices(seed, (rows, depth), (depth, width), (rows, width))
    for add, first in ((add_product, a), (add_outer, np.ascontiguousarray(a.T))):
        found = out.copy()
        add(first, b, found)
        np.testing.assert_allclose(found, out + a @ b, rtol=1e-4, atol=1e-4)


@settings(max_examples=20)
@given(st.integers(0, 9), st.sampled_from([2, 5, 16]), st.integers(1, 4), st.integers(0, 2**32))
def test_queries_keys_and_values_are_those_of_torch(
    num_entities: int, width: int, rows: int, seed: int
) -> None:
    shape = width, width
    x, w, b = matrices(seed, (num_entities, width), (width,), (width,))
    (q, k, v), (q_bias, k_bias, v_bias) = (
        matrices(seed + 1, *[each] * 3) for each in (shape, (width,))
    )
    found = np.empty((num_entities, 3 * width), np.float32)
    to_qkv(x, (w, b), (q, k, v), (q_bias, k_bias, v_bias), found, rows)
    normed = torch.nn.functional.layer_norm(
        *(torch.from_numpy(x), (width,), torch.from_numpy(w), torch.from_numpy(b))
    )
    weight, bias = np.concatenate([q, k, v]), np.concatenate([q_bias, k_bias, v_bias])
    np.testing.assert_allclose(found, normed.numpy() @ weight.T + bias, rtol=1e-2, atol=1e-2)
