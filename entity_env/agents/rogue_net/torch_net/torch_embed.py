"""Embeds the entities of all types at once, compiled where numba is installed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.torch_net.tensors import as_array

LARGEST_WIDTH: Final = 32
"""More features are left to products of torch, which are good at them."""

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
Triple = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


class EmbeddingWeights(NamedTuple):
    """Parameters of the embedding of one type that has features."""

    weight: Tensor
    bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor


class TypeFeatures(NamedTuple):
    """What was observed of one type.

    Args:
        values: `(num_entities, num_features)` float32.
        mean, deviation: `(num_features,)`, what normalizes them.
    """

    values: Tensor
    mean: Tensor
    deviation: Tensor


def embed(features: Sequence[TypeFeatures], weights: Sequence[EmbeddingWeights]) -> Tensor:
    """Embeds all entities, type after type: `(num_entities, d_model)`."""
    if not torch.is_grad_enabled():
        return _embed(features, weights)[0]
    parameters = (each for own in weights for each in own)
    packed: Tensor = _Embed.apply(features, *parameters)  # type: ignore[no-untyped-call]
    return packed


def split(x: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """So many rows each, one after another, as views."""
    ends = accumulate(lengths)
    return [x[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def embed_type(
    features: NDArray[np.float32], scale: Pair, linear: Pair, norm: Pair, out: NDArray[np.float32]
) -> Triple:
    """Embeds the entities of one type into `out`, and tells what the gradient needs of it."""
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels import embedding as embedding_compiled

    widths = features.shape[1], out.shape[1], 2
    inputs, hidden, stats = (np.empty((len(features), each), dtype=np.float32) for each in widths)
    kept = inputs, hidden, stats
    embedding_compiled.embed(features, scale, linear, norm, kept, out)
    return kept


def _embed(
    features: Sequence[TypeFeatures], weights: Sequence[EmbeddingWeights]
) -> tuple[Tensor, list[Triple]]:
    width = len(weights[0].bias)
    out = weights[0].bias.new_empty(sum(len(own.values) for own in features), width)
    parts = split(out, [len(own.values) for own in features])
    kept: list[Triple] = []
    for own, w, part in zip(features, weights, parts, strict=True):
        scale, linear = _pair(own.mean, own.deviation), _pair(w.weight, w.bias)
        norm = _pair(w.norm_weight, w.norm_bias)
        kept.append(embed_type(as_array(own.values), scale, linear, norm, part.numpy()))
    return out, kept


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, features: Sequence[TypeFeatures], *parameters: Tensor) -> Tensor:
        size = len(EmbeddingWeights._fields)
        weights = [
            EmbeddingWeights(*parameters[at : at + size]) for at in range(0, len(parameters), size)
        ]
        out, kept = _embed(features, weights)
        ctx.kept = kept, weights  # type: ignore[attr-defined]  # a context takes attributes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from entity_env.agents.rogue_net.kernels import embedding as embedding_compiled

        kept, weights = ctx.kept  # type: ignore[attr-defined]  # set in forward
        given: list[Tensor | None] = [None]
        parts = split(gradient.contiguous(), [len(own[0]) for own in kept])
        for own, w, part in zip(kept, weights, parts, strict=True):
            weight = torch.zeros(w.weight.shape[::-1])
            others = [torch.zeros_like(w.bias) for _ in range(3)]
            bias, norm_weight, norm_bias = others
            embedding_compiled.embed_backward(
                part.numpy(),
                own,
                w.norm_weight.detach().numpy(),
                _pair(weight, bias),
                _pair(norm_weight, norm_bias),
            )
            given += (weight.t(), bias, norm_weight, norm_bias)
        return tuple(given)


def _pair(first: Tensor, second: Tensor) -> Pair:
    """Their numbers, in their own memory."""
    return as_array(first), as_array(second)
