"""MLPPolicy: policy and value as two plain networks, for observations of fixed size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import find_row_choices
from entity_env.agents.rogue_net.config import MLPConfig, NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import FlatFeatures
from entity_env.agents.rogue_net.torch_net.distributions import ActionDistribution
from entity_env.agents.rogue_net.torch_net.heads import label_head
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Policy, ValueScale
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_tensor, as_tensors
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace, SelectEntityActionSpace
from entity_env.core.vec_obs import EntityBatch


class MLPPolicy(Policy):
    """Two multilayer perceptrons with tanh, one for the policy and one for the value.

    The features of all entities, of which each type has exactly one, and the global features are
    one vector. Initial weights are orthogonal, with the gains of Stable-Baselines3 and CleanRL:
    sqrt(2) of hidden layers, 0.01 of the actions, 1 of the value.

    Args:
        obs_space: entity types with `Entity.is_single`, or global features alone.
        action_space: labels and real numbers.
        config: sizes of the hidden layers.

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
        sizes = (self._flat.width, *self.config.hidden)
        self.policy_net, self.value_net = _hidden_layers(sizes), _hidden_layers(sizes)
        self.action_heads = NamedModules(
            {
                name: label_head(name, space, sizes[-1])
                for name, space in action_space.items()
                if not isinstance(space, SelectEntityActionSpace)  # refused above
            }
        )
        self.value_head = nn.Linear(sizes[-1], 1)
        _orthogonal(self.value_head, 1.0)
        self.value_scale = ValueScale()

    @property
    def net_config(self) -> MLPConfig:
        return self.config

    def scale_values(self, mean: float, std: float) -> None:
        self.value_scale.change(mean, std, self.value_head)

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        x = self._features(batch)
        hidden = EncodedEntities(self.policy_net(x))
        distributions: dict[ActionName, ActionDistribution] = {
            name: head(hidden, find_row_choices(name, batch.action_masks[name]))
            for name, head in self.action_heads.items()
        }
        return distributions, self._values(x)

    @torch.inference_mode()
    def values(self, batch: EntityBatch) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._values(self._features(batch)).cpu().numpy()
        return values

    def _features(self, batch: EntityBatch) -> Tensor:
        return as_tensor(self._flat.array(batch), self.device)

    def _values(self, x: Tensor) -> Tensor:
        values: Tensor = self.value_scale(self.value_head(self.value_net(x)).squeeze(1))
        return values


def _hidden_layers(sizes: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for num_inputs, num_outputs in pairwise(sizes):
        layer = nn.Linear(num_inputs, num_outputs)
        _orthogonal(layer, math.sqrt(2))
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers)


def _orthogonal(layer: nn.Linear, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)


def make_policy(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: NetConfig
) -> RogueNet | MLPPolicy:
    """The untrained network of a configuration; raises `SchemaError` for other classes."""
    if isinstance(config, MLPConfig):
        return MLPPolicy(obs_space, action_space, config)
    # Which refuses other classes.
    return RogueNet(obs_space, action_space, cast(RogueNetConfig, config))


def policy_of(weights: Weights) -> RogueNet | MLPPolicy:
    """The network with these weights, copied, on the CPU.

    Raises:
        SchemaError: no network has such spaces and options.
    """
    net = make_policy(weights.obs_space, weights.action_space, weights.config)
    net.load_state_dict(as_tensors(weights.tensors))
    return net
