"""One vector for every entity: each type has its own embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.torch_net.attention import is_compiled
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_array
from entity_env.core.spaces import EntityName

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


CLIP = 5.0
"""Normalized features are cut at this many standard deviations."""


class InputNorm(nn.Module):
    """Shifts and scales every feature by running statistics, and cuts what is far out.

    The statistics change only in `update`, never in `forward`.

    Buffers: `count` (a scalar), `mean` and `squares_sum` (`(num_features,)`, the sum of squared
    distances from the mean), all float32.
    """

    count: Tensor
    mean: Tensor
    squares_sum: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("squares_sum", torch.zeros(num_features))
        self._state: list[tuple[int, int]] = []
        """The buffers, and how often each has changed, when they were last looked at."""
        self._known: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def update(self, features: Tensor, *, restart: bool = False) -> None:
        """Counts a batch `(num_entities, num_features)`; `restart` forgets all before it.

        Merges the moments of two sets as in Chan, Golub & LeVeque, "Updating Formulae and a
        Pairwise Algorithm for Computing Sample Variances" (1979).
        """
        if restart:
            for buffer in (self.count, self.mean, self.squares_sum):
                buffer.zero_()
        if not len(features):
            return
        batch = features.double()
        mean = batch.mean(dim=0)
        squares = (batch - mean).square().sum(dim=0)
        old_count = self.count.double()
        count = old_count + len(batch)
        delta = mean - self.mean.double()
        self.mean.add_(delta * (len(batch) / count))
        self.squares_sum.add_(squares + delta.square() * (old_count * len(batch) / count))
        self.count.copy_(count)

    def forward(self, features: Tensor) -> Tensor:
        """Normalizes `(num_entities, num_features)`; raw but cut before two rows were counted."""
        scale = self._scale()
        if scale is None:
            return features.clamp(-CLIP, CLIP)
        mean, deviation = scale
        return features.sub(mean).div_(deviation).clamp_(-CLIP, CLIP)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation that features are normalized with; 0 and 1 if none were counted."""
        return self._scale() or (torch.zeros_like(self.mean), torch.ones_like(self.mean))

    def _scale(self) -> tuple[Tensor, Tensor] | None:
        """Mean and deviation, worked out anew when the statistics have changed."""
        buffers = (self.count, self.mean, self.squares_sum)
        if any(each.is_inference() for each in buffers):  # of these nobody counts the changes
            return self._compute_scale()
        state = [(id(each), each._version) for each in buffers]
        if state != self._state:
            self._known = self._compute_scale()
            self._state = state
        return self._known

    @torch.no_grad()
    def _compute_scale(self) -> tuple[Tensor, Tensor] | None:
        if not self.count > 1:
            return None
        deviation = torch.sqrt(self.squares_sum / (self.count - 1))
        return self.mean.clone(), deviation.masked_fill(deviation == 0, 1.0)


class FeaturelessEmbedding(nn.Module):
    """One learned vector for all entities of a type that has no features."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(1, d_model))

    def forward(self, features: Tensor) -> Tensor:
        """`(num_entities, 0)` to `(num_entities, d_model)`."""
        return self.embedding.expand(len(features), -1)


def _embed_alone(module: nn.Module, features: Tensor) -> Tensor:
    """What the module does, its layers as functions: calls take longer than small products."""
    if not isinstance(module, nn.Sequential):
        embedded: Tensor = module(features)
        return embedded
    norm, linear = cast(InputNorm, module[0]), cast(nn.Linear, module[1])
    layer_norm = cast(nn.LayerNorm, module[3])
    hidden = functional.linear(norm.forward(features), linear.weight, linear.bias)
    shape, eps = layer_norm.normalized_shape, layer_norm.eps
    return torch.layer_norm(hidden.relu_(), shape, layer_norm.weight, layer_norm.bias, eps)


def _named(layer: nn.Module, prefix: str) -> dict[str, Tensor]:
    parameters = cast(Mapping[str, Tensor], layer._parameters)
    return {prefix + name: parameters[name] for name in ("weight", "bias")}


class EntityEmbedding(nn.Module):
    """Embeds the entities of each type: normalize, linear, ReLU, layer norm.

    Args:
        widths: number of features of each type, own and global ones, in order.
        d_model: length of the vectors.
    """

    def __init__(self, widths: Mapping[EntityName, int], d_model: int) -> None:
        super().__init__()
        self.embeddings = NamedModules(
            {
                name: nn.Sequential(
                    InputNorm(width), nn.Linear(width, d_model), nn.ReLU(), nn.LayerNorm(d_model)
                )
                if width
                else FeaturelessEmbedding(d_model)
                for name, width in widths.items()
            }
        )
        self._is_compilable = 0 < max(widths.values(), default=0) <= LARGEST_WIDTH

    def forward(self, features: Mapping[EntityName, Tensor]) -> Tensor:
        """Embeds `(num_entities, num_features)` a type to one packed matrix, type after type."""
        size = sum(map(len, features.values()))
        if self._is_compilable and is_compiled(size, next(iter(features.values())).device):
            return self._embed_all(features)
        return torch.cat(
            [_embed_alone(module, features[name]) for name, module in self.embeddings.items()]
        )

    def _embed_all(self, features: Mapping[EntityName, Tensor]) -> Tensor:
        shown: list[TypeFeatures] = []
        weights: list[EmbeddingWeights] = []
        for name, module in self.embeddings.items():
            if isinstance(module, nn.Sequential):
                norm, linear, layer_norm = module[0], module[1], module[3]
                shown.append(TypeFeatures(features[name], *cast(InputNorm, norm).scale()))
                own = {**_named(linear, ""), **_named(layer_norm, "norm_")}
                weights.append(EmbeddingWeights(**own))
        packed = embed(shown, weights)
        if len(shown) == len(features):
            return packed
        parts = iter(split(packed, [len(each.values) for each in shown]))
        return torch.cat(
            [
                next(parts) if isinstance(module, nn.Sequential) else module(features[name])
                for name, module in self.embeddings.items()
            ]
        )

    def update_statistics(
        self, features: Mapping[EntityName, Tensor], *, restart: bool = False
    ) -> None:
        """Counts the features of a batch into the input statistics."""
        for name, module in self.embeddings.items():
            if isinstance(module, nn.Sequential) and isinstance(module[0], InputNorm):
                module[0].update(features[name], restart=restart)

    @property
    def has_statistics(self) -> bool:
        """Whether any batch was counted yet."""
        norms = [module for module in self.modules() if isinstance(module, InputNorm)]
        return any(bool(norm.count > 0) for norm in norms)
