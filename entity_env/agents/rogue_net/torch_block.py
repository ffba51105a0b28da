"""A block of a transformer over packed entities, compiled where numba is installed.

Torch computes the products; what is between them goes through compiled loops that leave fewer
matrices behind, and the gradient is written down here: an operation of a graph takes longer than
to normalize a thousand entities.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.torch_attention import Packed, mix, unmix

_SLICE: Final = 3072
"""Entities that are worked on at once: their matrices stay in the cache."""


class BlockWeights(NamedTuple):
    """Parameters of a block, named as in `Block`."""

    ln1_weight: Tensor
    ln1_bias: Tensor
    query_weight: Tensor
    query_bias: Tensor
    key_weight: Tensor
    key_bias: Tensor
    value_weight: Tensor
    value_bias: Tensor
    proj_weight: Tensor
    proj_bias: Tensor
    ln2_weight: Tensor
    ln2_bias: Tensor
    mlp_weight: Tensor
    mlp_bias: Tensor
    last_weight: Tensor
    last_bias: Tensor


class _Kept(NamedTuple):
    """What the gradient needs of a forward pass, a row for each entity (but for `shares`)."""

    x: Tensor
    stats1: Tensor
    normal1: Tensor
    qkv: Tensor
    shares: NDArray[np.float32]
    mixed: Tensor
    y: Tensor
    stats2: Tensor
    normal2: Tensor
    slope: Tensor
    hidden: Tensor


def whole_block(x: Tensor, packed: Packed, weights: BlockWeights) -> Tensor:
    """All of a block; arguments as for `begin_block`; returns `(num_entities, d_model)`."""
    if not torch.is_grad_enabled():
        return _end(_begin(x.contiguous(), packed, weights), weights)
    whole: Tensor = _Whole.apply(x, packed, *weights)  # type: ignore[no-untyped-call]
    return whole


def begin_block(x: Tensor, packed: Packed, weights: BlockWeights) -> tuple[Tensor, Tensor]:
    """All of a block but its last layer.

    Args:
        x: `(num_entities, d_model)` float32.
        packed: which entities belong together.
        weights: parameters.

    Returns:
        `(num_entities, d_model)`, to which the last layer adds, and `(num_entities, 4 * d_model)`,
        what that layer is given.
    """
    if not torch.is_grad_enabled():
        kept = _begin(x.contiguous(), packed, weights)
        return kept.y, kept.hidden
    ends: tuple[Tensor, Tensor] = _Begin.apply(x, packed, *weights)  # type: ignore[no-untyped-call]
    return ends


def _begin(x: Tensor, packed: Packed, w: BlockWeights) -> _Kept:
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.block_compiled import add, gelu, normalize

    size, width = x.shape
    stats1, stats2, qkv = (x.new_empty(size, each) for each in (2, 2, 3 * width))
    normal1, normal2, y = (torch.empty_like(x) for _ in range(3))
    slope, hidden = (x.new_empty(size, len(w.mlp_bias)) for _ in range(2))
    qkv_weight = torch.cat((w.query_weight, w.key_weight, w.value_weight)).t()
    qkv_bias = torch.cat((w.query_bias, w.key_bias, w.value_bias))
    ln1, ln2 = (w.ln1_weight, w.ln1_bias), (w.ln2_weight, w.ln2_bias)
    for at in _slices(size):
        normal = normal1[at]
        normalize(*_arrays(x[at], *ln1, normal, stats1[at]))
        torch.addmm(qkv_bias, normal, qkv_weight, out=qkv[at])
    mixed, shares = mix(qkv, packed)
    proj_weight, mlp_weight = w.proj_weight.t(), w.mlp_weight.t()
    for at in _slices(size):
        part, normal, rising = y[at], normal2[at], slope[at]
        torch.mm(mixed[at], proj_weight, out=part)
        add(*_arrays(part, w.proj_bias, x[at]))
        normalize(*_arrays(part, *ln2, normal, stats2[at]))
        torch.mm(normal, mlp_weight, out=rising)
        gelu(*_arrays(rising, w.mlp_bias, hidden[at]))
    return _Kept(x, stats1, normal1, qkv, shares, mixed, y, stats2, normal2, slope, hidden)


def _end(kept: _Kept, w: BlockWeights) -> Tensor:
    from entity_env.agents.rogue_net.block_compiled import add

    out, weight = torch.empty_like(kept.y), w.last_weight.t()
    for at in _slices(len(out)):
        part = out[at]
        torch.mm(kept.hidden[at], weight, out=part)
        add(*_arrays(part, w.last_bias, kept.y[at]))
    return out


class _Begin(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, packed: Packed, *parameters: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = BlockWeights(*parameters)
        kept = _begin(x.detach().contiguous(), packed, weights)
        # No output is kept as it is: a graph that holds itself is only freed by chance.
        own = kept._replace(y=kept.y.detach(), hidden=kept.hidden.detach())
        ctx.kept = own, packed, weights  # type: ignore[attr-defined]  # takes attributes
        return kept.y, kept.hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_y: Tensor, by_hidden: Tensor) -> tuple[Tensor | None, ...]:
        kept, packed, weights = ctx.kept  # type: ignore[attr-defined]  # set in forward
        gradient = _Gradient(kept, packed, weights)
        gradient.through_mlp(by_y.clone(memory_format=torch.contiguous_format), by_hidden)
        return gradient.through_attention(), None, *gradient.by[:-2], None, None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, packed: Packed, *parameters: Tensor) -> Tensor:
        weights = BlockWeights(*parameters)
        kept = _begin(x.detach().contiguous(), packed, weights)
        ctx.kept = kept, packed, weights  # type: ignore[attr-defined]  # takes attributes
        return _end(kept, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_out: Tensor) -> tuple[Tensor | None, ...]:
        kept, packed, weights = ctx.kept  # type: ignore[attr-defined]  # set in forward
        gradient = _Gradient(kept, packed, weights)
        gradient.through_mlp(by_out.clone(memory_format=torch.contiguous_format), None)
        return gradient.through_attention(), None, *gradient.by


class _Gradient:
    """Goes back through a block.

    Args:
        kept: what the block left.
        packed, weights: what it was given.
    """

    def __init__(self, kept: _Kept, packed: Packed, weights: BlockWeights) -> None:
        self._kept = kept
        self._packed = packed
        self._weights = weights
        self.by = BlockWeights(*(torch.zeros_like(each) for each in weights))
        """The gradients of the parameters."""

    def through_mlp(self, by_y: Tensor, by_hidden: Tensor | None) -> None:
        """From the gradients of what the block gave, of which the first is changed.

        Without that of `hidden`, the last layer has been part of the block.
        """
        from entity_env.agents.rogue_net.block_compiled import multiply, normalize_backward

        kept, w, by = self._kept, self._weights, self.by
        self._by_y, self._by_mixed = by_y, torch.empty_like(by_y)
        size, width = len(w.mlp_bias), by_y.shape[1]
        room, sums = by_y.new_empty(min(_SLICE, len(by_y)), size), by_y.new_empty(3, width)
        bias = by_y.new_empty(size)
        for at in _slices(len(by_y)):
            part = by_y[at]
            if by_hidden is None:
                by.last_weight.addmm_(part.t(), kept.hidden[at])
                by.last_bias.add_(part.sum(0))
            given = part.mm(w.last_weight) if by_hidden is None else by_hidden[at].contiguous()
            rising = room[: len(part)]
            multiply(*_arrays(given, kept.slope[at], rising, bias))
            by.mlp_bias.add_(bias)
            by.mlp_weight.addmm_(rising.t(), kept.normal2[at])
            normal = rising.mm(w.mlp_weight)
            before = kept.y[at], w.ln2_weight, kept.stats2[at]
            normalize_backward(*_arrays(normal, *before, part, sums))
            by.ln2_weight.add_(sums[0])
            by.ln2_bias.add_(sums[1])
            by.proj_bias.add_(sums[2])
            by.proj_weight.addmm_(part.t(), kept.mixed[at])
            torch.mm(part, w.proj_weight, out=self._by_mixed[at])

    def through_attention(self) -> Tensor:
        """On from there to the gradient of `x`, which is given."""
        from entity_env.agents.rogue_net.block_compiled import normalize_backward, sum_columns

        kept, w, by, by_x = self._kept, self._weights, self.by, self._by_y
        by_qkv = unmix(kept.qkv, self._by_mixed, kept.shares, self._packed)
        weight = torch.cat((w.query_weight, w.key_weight, w.value_weight))
        by_weight, bias = torch.zeros_like(weight), by_x.new_empty(len(weight))
        sums = by_x.new_empty(3, by_x.shape[1])
        for at in _slices(len(by_x)):
            part = by_qkv[at]
            by_weight.addmm_(part.t(), kept.normal1[at])
            normal = part.mm(weight)
            before = kept.x[at], w.ln1_weight, kept.stats1[at]
            normalize_backward(*_arrays(normal, *before, by_x[at], sums))
            by.ln1_weight.add_(sums[0])
            by.ln1_bias.add_(sums[1])
        sum_columns(*_arrays(by_qkv, bias))
        query, key, value = by_weight.chunk(3)
        query_bias, key_bias, value_bias = bias.chunk(3)
        self.by = by._replace(
            query_weight=query,
            query_bias=query_bias,
            key_weight=key,
            key_bias=key_bias,
            value_weight=value,
            value_bias=value_bias,
        )
        return by_x


def _slices(size: int) -> list[slice]:
    return [slice(at, min(at + _SLICE, size)) for at in range(0, size, _SLICE)]


def _arrays(*tensors: Tensor) -> list[NDArray[np.float32]]:
    """Their numbers, in their own memory."""
    return [tensor.detach().numpy() for tensor in tensors]
