"""One vector for every entity: each type has its own embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from entity_env.agents.rogue_net.torch_net.attention import is_compiled
from entity_env.agents.rogue_net.torch_net.torch_embed import (
    LARGEST_WIDTH,
    EmbeddingWeights,
    TypeFeatures,
    embed,
    split,
)
from entity_env.agents.rogue_net.torch_net.torch_input_norm import InputNorm
from entity_env.agents.rogue_net.torch_net.torch_named_modules import NamedModules
from entity_env.core.spaces import EntityName


class FeaturelessEmbedding(nn.Module):
    """One learned vector for all entities of a type that has no features."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(1, d_model))

    def forward(self, features: Tensor) -> Tensor:
        """`(num_entities, 0)` to `(num_entities, d_model)`."""
        return self.embedding.expand(len(features), -1)


def _embed(module: nn.Module, features: Tensor) -> Tensor:
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
            [_embed(module, features[name]) for name, module in self.embeddings.items()]
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
