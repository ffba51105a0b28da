"""A transformer block: attention or pooling, then an MLP, each on normalized input.

Calling a torch operation takes longer than normalizing a thousand entities, and its result has left
the cache before the next operation reads it. With numba kernels, a block is a few passes over its
entities, with a handwritten gradient.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.attention import (
    Attention,
    AttentionLayout,
    PackedLayout,
    Pool,
    attention_backward,
    attention_forward,
)
from entity_env.agents.rogue_net.torch_net.tensors import as_array, dropped, layer_norm, linear
from entity_env.core.ragged import Floats

_SLICE: Final = 192
"""Number of entities per pass, to keep activations in the cache."""
LARGEST_MODEL: Final = 128
"""Widest block for the kernels; for wider blocks, torch's BLAS is faster."""


class TransformerBlock(nn.Module):
    """A transformer block, see the top of the module."""

    def __init__(self, config: RogueNetConfig) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.d_model)
        self.ln2 = nn.LayerNorm(config.d_model)
        self.attn = Attention(config) if config.pooling is None else Pool(config)
        self.drop = nn.Dropout(config.dropout)
        self.mlp = nn.Sequential(
            nn.Linear(config.d_model, 4 * config.d_model),
            nn.GELU(),
            nn.Linear(4 * config.d_model, config.d_model),
        )

    def forward(self, x: Tensor, layout: AttentionLayout) -> Tensor:
        """Maps packed `(num_entities, d_model)` to the same shape."""
        if self.has_kernel(layout):
            parameters = self._in_order()
            weights = BlockWeights(*map(as_array, parameters))
            if not torch.is_grad_enabled():
                return torch.from_numpy(block_forward(as_array(x), layout, weights)[0])
            out: Tensor = _Block.apply(x, layout, weights, *parameters)  # type: ignore[no-untyped-call]
            return out
        x, hidden, last = self.begin(x, layout)
        return x + dropped(self.drop, linear(last, hidden))

    def has_kernel(self, layout: AttentionLayout) -> TypeGuard[PackedLayout]:
        """True if a kernel computes the whole block; a partial kernel would be slower."""
        return isinstance(layout, PackedLayout) and len(self.ln1.weight) <= LARGEST_MODEL

    def begin(self, x: Tensor, layout: AttentionLayout) -> tuple[Tensor, Tensor, nn.Linear]:
        """Computes all but the last layer; returns `x`, the input of that layer, and the layer."""
        mixed = self.attn.forward(layer_norm(self.ln1, x), layout)  # type: ignore[arg-type]  # fits
        x = x + dropped(self.drop, mixed)
        first, last = self.mlp[0], cast(nn.Linear, self.mlp[2])
        return x, functional.gelu(linear(first, layer_norm(self.ln2, x))), last

    def weights(self) -> BlockWeights:
        """The parameters as arrays, sharing memory where contiguous."""
        return BlockWeights(*map(as_array, self._in_order()))

    def _in_order(self) -> list[Tensor]:
        attn = cast(Attention, self.attn)
        last = self.ln2, self.mlp[0], self.mlp[2]
        layers = (self.ln1, attn.query, attn.key, attn.value, attn.proj, *last)
        return [
            cast(Tensor, layer._parameters[name]) for layer in layers for name in ("weight", "bias")
        ]


class BlockWeights(NamedTuple):
    """Parameters of a `TransformerBlock`, or their gradients."""

    ln1_weight: Floats
    ln1_bias: Floats
    query_weight: Floats
    query_bias: Floats
    key_weight: Floats
    key_bias: Floats
    value_weight: Floats
    value_bias: Floats
    proj_weight: Floats
    proj_bias: Floats
    ln2_weight: Floats
    ln2_bias: Floats
    mlp_weight: Floats
    mlp_bias: Floats
    last_weight: Floats
    last_bias: Floats


class _Saved(NamedTuple):
    """Activations for the backward pass, one row per entity (except `shares`)."""

    x: Floats
    qkv: Floats
    shares: Floats
    mixed: Floats
    y: Floats


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, packed: PackedLayout, weights: BlockWeights, *_: Tensor
    ) -> Tensor:
        out, saved = block_forward(as_array(x), packed, weights)
        ctx.saved = saved, packed, weights  # type: ignore[attr-defined]  # takes attributes
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_out: Tensor) -> tuple[Tensor | None, ...]:
        by_x, by = _block_backward(as_array(by_out), *ctx.saved)  # type: ignore[attr-defined]  # set in forward
        return torch.from_numpy(by_x), None, None, *map(torch.from_numpy, by)


def block_forward(x: Floats, packed: PackedLayout, w: BlockWeights) -> tuple[Floats, _Saved]:
    """The output of a block by numba kernels, and activations for the backward pass."""
    # Late import: numba is slow to load, and optional.
    from entity_env.agents.rogue_net.kernels.block import to_out, to_qkv

    qkv = np.empty((len(x), 3 * x.shape[1]), dtype=np.float32)
    norm, weights = (w.ln1_weight, w.ln1_bias), (w.query_weight, w.key_weight, w.value_weight)
    to_qkv(x, norm, weights, (w.query_bias, w.key_bias, w.value_bias), qkv, _SLICE)
    mixed, shares = attention_forward(qkv, packed)
    y, out = np.empty_like(x), np.empty_like(x)
    norm, weights = (w.ln2_weight, w.ln2_bias), (w.proj_weight, w.mlp_weight, w.last_weight)
    to_out(x, mixed, norm, weights, (w.proj_bias, w.mlp_bias, w.last_bias), y, out, _SLICE)
    return out, _Saved(x, qkv, shares, mixed, y)


def _block_backward(
    by_out: Floats, saved: _Saved, packed: PackedLayout, w: BlockWeights
) -> tuple[Floats, BlockWeights]:
    """Gradients of input and parameters, given the gradient of the output."""
    from entity_env.agents.rogue_net.kernels.block import to_out_backward, to_qkv_backward

    by = BlockWeights(*map(np.zeros_like, w))
    by_mixed, by_x = np.empty_like(by_out), np.empty_like(by_out)
    to_out_backward(
        by_out,
        (saved.mixed, saved.y),
        (w.ln2_weight, w.ln2_bias),
        (w.proj_weight, w.mlp_weight, w.last_weight),
        w.mlp_bias,
        (by.ln2_weight, by.ln2_bias),
        (by.proj_weight, by.mlp_weight, by.last_weight),
        (by.proj_bias, by.mlp_bias, by.last_bias),
        by_mixed,
        by_x,
        _SLICE,
    )
    by_qkv = attention_backward(saved.qkv, by_mixed, saved.shares, packed)
    width = by_x.shape[1]
    by_weight = np.zeros((3 * width, width), dtype=np.float32)
    by_bias = np.zeros(3 * width, dtype=np.float32)
    to_qkv_backward(
        by_qkv,
        saved.x,
        (w.ln1_weight, w.ln1_bias),
        (w.query_weight, w.key_weight, w.value_weight),
        (by.ln1_weight, by.ln1_bias),
        by_weight,
        by_bias,
        by_x,
        _SLICE,
    )
    query, key, value = (slice(at, at + width) for at in range(0, 3 * width, width))
    return by_x, by._replace(
        query_weight=by_weight[query],
        query_bias=by_bias[query],
        key_weight=by_weight[key],
        key_bias=by_bias[key],
        value_weight=by_weight[value],
        value_bias=by_bias[value],
    )
