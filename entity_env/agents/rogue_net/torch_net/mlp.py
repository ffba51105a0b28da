"""MLPPolicy and CNNPolicy: plain networks, for observations of fixed size."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import find_row_choices
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import FlatFeatures
from entity_env.agents.rogue_net.torch_net.distributions import ActionDistribution
from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.torch_net.heads import label_head
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Policy, ValueScale
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_tensor, as_tensors
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.agents.rogue_net.weights import Picture, Weights, expected_tensors
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace, SelectEntityActionSpace
from entity_env.core.vec_obs import EntityBatch

_COUNTED: Final = 1 << 20
"""Rows whose statistics are computed at a time: in float64, with copies."""


class _FlatPolicy(Policy):
    """Heads on two vectors of a row, one for the actions and one for the value."""

    action_heads: NamedModules
    value_head: nn.Linear
    value_scale: ValueScale

    def _add_heads(self, width: int) -> None:
        self.action_heads = NamedModules(
            {
                name: label_head(name, space, width)
                for name, space in self.action_space.items()
                if not isinstance(space, SelectEntityActionSpace)  # refused before
            }
        )
        self.value_head = nn.Linear(width, 1)
        _orthogonal(self.value_head, 1.0)
        self.value_scale = ValueScale()

    @abstractmethod
    def _policy_hidden(self, x: Tensor) -> Tensor:
        """`(num_rows, width)` for the actions, of what `_read` gives."""

    @abstractmethod
    def _value_hidden(self, x: Tensor) -> Tensor:
        """`(num_rows, width)` for the value, of what `_read` gives."""

    @abstractmethod
    def _read(self, batch: EntityBatch) -> Tensor: ...

    @property
    @abstractmethod
    def _norm(self) -> InputNorm | None:
        """What normalizes features; None = nothing does."""

    @abstractmethod
    def _counted(self, batch: EntityBatch) -> NDArray[np.float32]:
        """`(num_counted, num_features)`: what `_norm` counts of a batch."""

    @property
    def has_statistics(self) -> bool:
        return self._norm is None or self._norm.has_statistics

    def update_statistics(self, batch: EntityBatch, *, restart: bool = False) -> None:
        norm = self._norm
        if norm is None:
            return
        rows = self._counted(batch)
        for start in range(0, max(len(rows), 1), _COUNTED):
            part = as_tensor(rows[start : start + _COUNTED], self.device)
            norm.update(part, restart=restart and not start)

    @property
    def device(self) -> torch.device:
        # Read many times a step; iterating over parameters takes many times as long.
        return self.value_head.weight.device

    def scale_values(self, mean: float, std: float) -> None:
        self.value_scale.change(mean, std, self.value_head)

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        x = self._read(batch)
        hidden = EncodedEntities(self._policy_hidden(x))
        distributions: dict[ActionName, ActionDistribution] = {
            name: head(hidden, find_row_choices(name, batch.action_masks[name]))
            for name, head in self.action_heads.items()
        }
        return distributions, self._values(x)

    @torch.inference_mode()
    def values(self, batch: EntityBatch) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._values(self._read(batch)).cpu().numpy()
        return values

    def _values(self, x: Tensor) -> Tensor:
        normalized = self.value_head(self._value_hidden(x)).squeeze(1)
        values: Tensor = self.value_scale(normalized)
        return values


class MLPPolicy(_FlatPolicy):
    """Two multilayer perceptrons with tanh, one for the policy and one for the value.

    The features of all entities, of which each type has exactly one, and the global features are
    one vector, which `InputNorm` normalizes with `MLPConfig.norm_inputs`. Initial weights are
    orthogonal, with the gains of Stable-Baselines3 and CleanRL: sqrt(2) of hidden layers, 0.01 of
    the actions, 1 of the value.

    Args:
        obs_space: entity types with `Entity.is_single`, or global features alone.
        action_space: labels and real numbers.
        config: sizes and options.

    Raises:
        SchemaError: an entity type that is not single, a select action, or no feature at all.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: MLPConfig | None = None,
    ) -> None:
        super().__init__(obs_space, action_space)
        self.config = config or MLPConfig()
        expected_tensors(obs_space, action_space, self.config)  # raises where it is too large
        self._flat = FlatFeatures(obs_space, action_space)
        self.input_norm = InputNorm(self._flat.width) if self.config.norm_inputs else None
        sizes = (self._flat.width, *self.config.hidden)
        self.policy_net, self.value_net = (_hidden_layers(sizes, nn.Tanh) for _ in range(2))
        self._add_heads(sizes[-1])

    @property
    def net_config(self) -> MLPConfig:
        return self.config

    @property
    def _norm(self) -> InputNorm | None:
        return self.input_norm

    def _counted(self, batch: EntityBatch) -> NDArray[np.float32]:
        return self._flat.shown(batch)

    def _read(self, batch: EntityBatch) -> Tensor:
        x = as_tensor(self._flat.array(batch), self.device)
        return x if self.input_norm is None else self.input_norm.forward(x)

    def _policy_hidden(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.policy_net(x))

    def _value_hidden(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.value_net(x))


class CNNPolicy(_FlatPolicy):
    """A convolutional network for pictures; policy and value share all but their heads.

    Each channel of the picture is normalized by the running mean and deviation of its pixels, and
    clipped as by `InputNorm`: pixels may be 0 to 255, 0 to 1, or numbers of kinds of things.
    Convolutions with ReLU follow, then layers with ReLU that also read the features of all other
    entities and the global ones. Initial weights are orthogonal, with the gains of `MLPPolicy`.

    Args:
        obs_space: entity types with `Entity.is_single`, one of them with an `Entity.shape`.
        action_space: labels and real numbers.
        config: sizes; those that are None are chosen by the size of the picture.

    Raises:
        SchemaError: as of an `MLPPolicy`; no picture or several, or one that is smaller than a
            kernel.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: CNNConfig | None = None,
    ) -> None:
        super().__init__(obs_space, action_space)
        config = config or CNNConfig()
        expected_tensors(obs_space, action_space, config)  # raises where it is too large
        self._picture = picture = Picture.of(obs_space, action_space, config)
        self.config = picture.config
        self._flat = FlatFeatures(obs_space, action_space, picture.name)
        self.picture_norm = InputNorm(picture.shape[2])
        convolutions: list[nn.Module] = []
        num_inputs = picture.shape[2]
        for num_outputs, kernel, stride in picture.config.layers or ():
            layer = nn.Conv2d(num_inputs, num_outputs, kernel, stride)
            _orthogonal(layer, math.sqrt(2))
            convolutions += [layer, nn.ReLU()]
            num_inputs = num_outputs
        self.convolutions = nn.Sequential(*convolutions)
        self.hidden = _hidden_layers(picture.sizes, nn.ReLU)
        self._add_heads(picture.sizes[-1])

    @property
    def net_config(self) -> CNNConfig:
        return self.config

    @property
    def _norm(self) -> InputNorm | None:
        return self.picture_norm

    def _counted(self, batch: EntityBatch) -> NDArray[np.float32]:
        """Pixels."""
        return batch.features[self._picture.name].values.reshape(-1, self._picture.shape[2])

    def _read(self, batch: EntityBatch) -> Tensor:
        name, shape = self._picture.name, self._picture.shape
        pixels = as_tensor(self._flat.part(name, batch), self.device).view(-1, *shape)
        x: Tensor = self.convolutions(self.picture_norm(pixels).permute(0, 3, 1, 2).contiguous())
        x = x.flatten(1)
        if self._flat.width:
            x = torch.cat((x, as_tensor(self._flat.array(batch), self.device)), dim=1)
        return cast(Tensor, self.hidden(x))

    def _policy_hidden(self, x: Tensor) -> Tensor:
        return x

    def _value_hidden(self, x: Tensor) -> Tensor:
        return x


def _hidden_layers(sizes: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for num_inputs, num_outputs in pairwise(sizes):
        layer = nn.Linear(num_inputs, num_outputs)
        _orthogonal(layer, math.sqrt(2))
        layers += [layer, activation()]
    return nn.Sequential(*layers)


def _orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def make_policy(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: NetConfig
) -> RogueNet | MLPPolicy | CNNPolicy:
    """The untrained network of a configuration; raises `SchemaError` for other classes."""
    if isinstance(config, MLPConfig):
        return MLPPolicy(obs_space, action_space, config)
    if isinstance(config, CNNConfig):
        return CNNPolicy(obs_space, action_space, config)
    # Which refuses other classes.
    return RogueNet(obs_space, action_space, cast(RogueNetConfig, config))


def policy_of(weights: Weights) -> RogueNet | MLPPolicy | CNNPolicy:
    """The network with these weights, copied, on the CPU.

    Raises:
        SchemaError: no network has such spaces and options.
    """
    net = make_policy(weights.obs_space, weights.action_space, weights.config)
    net.load_state_dict(as_tensors(weights.tensors))
    return net
