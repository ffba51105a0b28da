"""Entity embedding: maps the features of every type to vectors of equal length."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.torch_net.tensors import (
    NamedModules,
    as_array,
    layer_norm,
    linear,
    use_kernels,
)
from entity_env.core.spaces import EntityName

LARGEST_WIDTH: Final = 32
"""Largest number of features for the kernel; for more, torch's BLAS is faster."""
CLIP = 5.0
"""Limit of normalized features, in standard deviations."""

Pair = tuple[NDArray[np.float32], NDArray[np.float32]]
Triple = tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]


class InputNorm(nn.Module):
    """Normalizes every feature by running statistics and clips it; `forward` changes no statistics.

    Buffers: `count` (a scalar), `mean` and `squares_sum` (`(num_features,)`, the sum of squared
    distances from the mean), all float32. After `go_on`, `is_new` (`(num_features,)` bool, not in
    checkpoints) marks features that are counted separately: their `squares_sum` is scaled so that
    `count` rows give their own deviation.
    """

    count: Tensor
    mean: Tensor
    squares_sum: Tensor
    is_new: Tensor | None

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("squares_sum", torch.zeros(num_features))
        self.register_buffer("is_new", None, persistent=False)
        self._new_count = 0
        """Number of rows counted for new features."""
        self._state: list[tuple[int, int]] = []
        """Identity and version of each buffer at the last computation of the scale."""
        self._known: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def update(self, features: Tensor, *, restart: bool = False) -> None:
        """Adds a batch `(num_entities, num_features)`; `restart` resets the statistics first."""
        if restart:
            self.reset()
        if not len(features):
            return
        batch = features.double()
        mean = batch.mean(dim=0)
        self.merge(len(batch), mean, (batch - mean).square().sum(dim=0))

    @torch.no_grad()
    def merge(self, count: int, mean: Tensor, squares_sum: Tensor) -> None:
        """Adds `count` rows, given their float64 moments as in the buffers.

        Follows Chan, Golub & LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
        Sample Variances" (1979).
        """
        if not count:
            return
        common = old_count = self.count.double()
        before = self.squares_sum.double()
        if self.is_new is not None:
            old_count = old_count.where(~self.is_new, self._new_count)
            before = before * _freedom(old_count) / _freedom(common)
        total = old_count + count
        delta = mean - self.mean.double()
        self.mean.add_(delta * (count / total))
        after = before + squares_sum + delta.square() * (old_count * count / total)
        if self.is_new is not None:
            self._new_count += count
            after = after * _freedom(common + count) / _freedom(total)
        self.squares_sum.copy_(after)
        self.count.copy_(common + count)

    def go_on(self, is_new: Tensor) -> None:
        """Continues with the current statistics, but counts features in `is_new` from 0.

        `is_new` is `(num_features,)` bool.
        """
        self.is_new = is_new.to(self.mean.device)
        self._new_count = 0

    @property
    def has_statistics(self) -> bool:
        is_waiting = self.is_new is not None and not self._new_count and bool(self.is_new.any())
        return bool(self.count > 0) and not is_waiting

    @torch.no_grad()
    def reset(self) -> None:
        """Resets all statistics; after `go_on`, only those of new features."""
        if self.is_new is None:
            for buffer in self._statistics:
                buffer.zero_()
        else:
            for buffer in (self.mean, self.squares_sum):
                buffer.masked_fill_(self.is_new, 0.0)
        self._new_count = 0

    def take(self) -> InputNorm:
        """Returns a copy, and restarts all statistics here, including those of `go_on`."""
        taken = copy.deepcopy(self)
        self.is_new = None
        self.reset()
        return taken

    @torch.no_grad()
    def put(self, taken: InputNorm) -> None:
        """Replaces all statistics with those of another instance."""
        for mine, theirs in zip(self._statistics, taken._statistics, strict=True):
            mine.copy_(theirs)
        self.is_new, self._new_count = taken.is_new, taken._new_count

    @property
    def _statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.count, self.mean, self.squares_sum

    def forward(self, features: Tensor) -> Tensor:
        """Normalizes `(num_entities, num_features)`; only clips until two rows were counted."""
        scale = self._scale()
        if scale is None:
            return features.clamp(-CLIP, CLIP)
        mean, deviation = scale
        return features.sub(mean).div_(deviation).clamp_(-CLIP, CLIP)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (1 for constant features); 0 and 1 until two rows counted."""
        return self._scale() or (torch.zeros_like(self.mean), torch.ones_like(self.mean))

    def _scale(self) -> tuple[Tensor, Tensor] | None:
        """See `scale`; cached until the statistics change."""
        if any(each.is_inference() for each in self._statistics):  # they have no version
            return self._compute_scale()
        state = [(id(each), each._version) for each in self._statistics]
        if state != self._state:
            self._known = self._compute_scale()
            self._state = state
        return self._known

    @torch.no_grad()
    def _compute_scale(self) -> tuple[Tensor, Tensor] | None:
        if not self.count > 1:
            return None
        deviation = torch.sqrt(self.squares_sum / (self.count - 1))
        return self.mean.clone(), deviation.masked_fill(~(deviation > 0), 1.0)


def _freedom(count: Tensor) -> Tensor:
    """Degrees of freedom of a variance; with fewer than two rows, the variance is zero."""
    return (count - 1).clamp(min=1)


class FeaturelessEmbedding(nn.Module):
    """One learned vector for all entities of a type without features."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(1, d_model))

    def forward(self, features: Tensor) -> Tensor:
        """Maps `(num_entities, 0)` to `(num_entities, d_model)`."""
        return self.embedding.expand(len(features), -1)


def _embed_by_torch(module: nn.Module, features: Tensor) -> Tensor:
    if not isinstance(module, nn.Sequential):
        embedded: Tensor = module(features)
        return embedded
    hidden = linear(module[1], cast(InputNorm, module[0]).forward(features))
    return layer_norm(cast(nn.LayerNorm, module[3]), hidden.relu_())


class EntityEmbedding(nn.Module):
    """Embeds the entities of each type: normalize, linear, ReLU, layer norm.

    A type without features has one learned vector.

    Args:
        widths: number of features per type (own, global and distance), in packed order.
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
        self._has_kernel = 0 < max(widths.values(), default=0) <= LARGEST_WIDTH

    def forward(self, features: Mapping[EntityName, Tensor]) -> Tensor:
        """Maps `(num_entities, num_features)` per type to one packed matrix, ordered by type."""
        size = sum(map(len, features.values()))
        if self._has_kernel and use_kernels(size, next(iter(features.values())).device):
            return self._embed_by_kernels(features)
        return torch.cat(
            [_embed_by_torch(module, features[name]) for name, module in self.embeddings.items()]
        )

    def _embed_by_kernels(self, features: Mapping[EntityName, Tensor]) -> Tensor:
        shown: list[TypeFeatures] = []
        weights: list[EmbeddingWeights] = []
        for name, module in self.embeddings.items():
            if isinstance(module, nn.Sequential):
                shown.append(TypeFeatures(features[name], *cast(InputNorm, module[0]).scale()))
                own = (module[at]._parameters[key] for at in (1, 3) for key in ("weight", "bias"))
                weights.append(EmbeddingWeights(*cast(Iterator[Tensor], own)))
        packed: Tensor
        if torch.is_grad_enabled():
            parameters = (each for own in weights for each in own)
            packed = _Embed.apply(shown, *parameters)  # type: ignore[no-untyped-call]
        else:
            packed, _ = _embed_types(shown, weights)
        if len(shown) == len(features):
            return packed
        parts = iter(torch.split(packed, [len(each.values) for each in shown]))
        return torch.cat(
            [
                next(parts) if isinstance(module, nn.Sequential) else module(features[name])
                for name, module in self.embeddings.items()
            ]
        )

    def update_statistics(
        self, features: Mapping[EntityName, Tensor], *, restart: bool = False
    ) -> None:
        for name, module in self.embeddings.items():
            if isinstance(module, nn.Sequential) and isinstance(module[0], InputNorm):
                module[0].update(features[name], restart=restart)

    @property
    def has_statistics(self) -> bool:
        """True if any type was counted, and no new feature (see `InputNorm.go_on`) is uncounted."""
        norms = [module for module in self.modules() if isinstance(module, InputNorm)]
        is_new = [norm for norm in norms if norm.is_new is not None and not norm.has_statistics]
        return not is_new and any(norm.has_statistics for norm in norms)


class EmbeddingWeights(NamedTuple):
    """Parameters of a type with features."""

    weight: Tensor
    bias: Tensor
    norm_weight: Tensor
    norm_bias: Tensor


class TypeFeatures(NamedTuple):
    """Features of the entities of one type.

    Args:
        values: `(num_entities, num_features)` float32.
        mean, deviation: `(num_features,)`, for normalization.
    """

    values: Tensor
    mean: Tensor
    deviation: Tensor


def _embed_types(
    features: Sequence[TypeFeatures], weights: Sequence[EmbeddingWeights]
) -> tuple[Tensor, list[Triple]]:
    """All entities ordered by type, `(num_entities, d_model)`, and each type's activations."""
    lengths = [len(own.values) for own in features]
    out = weights[0].bias.new_empty(sum(lengths), len(weights[0].bias))
    saved: list[Triple] = []
    for own, w, part in zip(features, weights, torch.split(out, lengths), strict=True):
        scale, layer = _pair(own.mean, own.deviation), _pair(w.weight, w.bias)
        norm = _pair(w.norm_weight, w.norm_bias)
        saved.append(embed_type(as_array(own.values), scale, layer, norm, part.numpy()))
    return out, saved


def embed_type(
    features: NDArray[np.float32], scale: Pair, linear: Pair, norm: Pair, out: NDArray[np.float32]
) -> Triple:
    """Writes the embedding of one type to `out`; returns activations for the backward pass."""
    # Late import: numba is slow to load, and optional.
    from entity_env.agents.rogue_net.kernels.embedding import embed_rows

    widths = features.shape[1], out.shape[1], 2
    inputs, hidden, stats = (np.empty((len(features), each), dtype=np.float32) for each in widths)
    embed_rows(features, scale, linear, norm, (inputs, hidden, stats), out)
    return inputs, hidden, stats


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, features: Sequence[TypeFeatures], *parameters: Tensor) -> Tensor:
        size = len(EmbeddingWeights._fields)
        weights = [
            EmbeddingWeights(*parameters[at : at + size]) for at in range(0, len(parameters), size)
        ]
        out, saved = _embed_types(features, weights)
        ctx.saved = saved, weights  # type: ignore[attr-defined]  # a context takes attributes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from entity_env.agents.rogue_net.kernels.embedding import embed_rows_backward

        saved, weights = ctx.saved  # type: ignore[attr-defined]  # set in forward
        by: list[Tensor | None] = [None]
        parts = torch.split(gradient.contiguous(), [len(own[0]) for own in saved])
        for own, w, part in zip(saved, weights, parts, strict=True):
            weight = torch.zeros(w.weight.shape[::-1])
            bias, norm_weight, norm_bias = (torch.zeros_like(w.bias) for _ in range(3))
            embed_rows_backward(
                part.numpy(),
                own,
                w.norm_weight.detach().numpy(),
                _pair(weight, bias),
                _pair(norm_weight, norm_bias),
            )
            by += (weight.t(), bias, norm_weight, norm_bias)
        return tuple(by)


def _pair(first: Tensor, second: Tensor) -> Pair:
    return as_array(first), as_array(second)
