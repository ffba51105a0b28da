"""MLPPolicy and CNNPolicy: networks for observations of fixed size."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import find_row_choices
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.features import FlatFeatures, limited
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.operations import Picture
from entity_env.agents.rogue_net.torch_net.distributions import (
    FORBIDDEN,
    HALF_LOG_TWO_PI,
    ActionDistribution,
)
from entity_env.agents.rogue_net.torch_net.embedding import CLIP, InputNorm
from entity_env.agents.rogue_net.torch_net.heads import (
    CategoricalHead,
    GaussianHead,
    Heads,
    conditionings,
    label_head,
)
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Memory, Policy, ValueScale, no_past
from entity_env.agents.rogue_net.torch_net.tensors import (
    FEW_PRODUCTS,
    NamedModules,
    as_array,
    as_tensor,
    as_tensors,
)
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace, SelectEntityActionSpace
from entity_env.core.vec_obs import EntityBatch

Draws: TypeAlias = NDArray[np.int64 | np.float32]
Layers: TypeAlias = Sequence[tuple[Floats, Floats]]
"""`(num_outputs, num_inputs)` weight and `(num_outputs, 1)` bias of each layer."""
_COUNTED: Final = 1 << 20
"""Maximum number of rows per pass over statistics: each pass copies its rows to float64."""


class _FlatPolicy(Policy):
    """Heads on two vectors per row, one for the actions and one for the value."""

    action_heads: NamedModules
    conditionings: NamedModules
    value_head: nn.Linear
    value_scale: ValueScale
    memory: Memory | None

    def _add_heads(self, width: int) -> None:
        self.action_heads = NamedModules(
            {
                name: label_head(name, space, width)
                for name, space in self.action_space.items()
                if not isinstance(space, SelectEntityActionSpace)  # refused by `FlatFeatures`
            }
        )
        self.conditionings = conditionings(self.action_space, width)
        self.value_head = nn.Linear(width, 1)
        _orthogonal(self.value_head, 1.0)
        self.value_scale = ValueScale()

    @abstractmethod
    def _policy_hidden(self, x: Tensor) -> Tensor:
        """`(num_rows, width)` for the actions, from the output of `_hidden`."""

    @abstractmethod
    def _value_hidden(self, x: Tensor) -> Tensor:
        """`(num_rows, width)` for the value, from the output of `_hidden`."""

    @abstractmethod
    def _read(self, batch: EntityBatch) -> Tensor:
        """`(num_rows, num_inputs)`: what the memory and `_hidden` read."""

    def _hidden(self, x: Tensor) -> Tensor:
        """Layers that policy and value share, after the memory."""
        return x

    @property
    @abstractmethod
    def _norm(self) -> InputNorm | None:
        """Normalization of features, if any."""

    @abstractmethod
    def _counted(self, batch: EntityBatch) -> NDArray[np.float32]:
        """`(num_counted, num_features)`: the input of `_norm`'s statistics in a batch."""

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
        # Read many times per step; iterating over parameters is many times slower.
        return self.value_head.weight.device

    def scale_values(self, mean: float, std: float) -> None:
        self.value_scale.change(mean, std, self.value_head)

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        distributions, values, _ = self.recall(batch, no_past(self, batch))
        return distributions, values

    def recall(
        self, batch: EntityBatch, past: Past
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor, Tensor]:
        x, states = self._remember(batch, past)
        hidden = EncodedEntities(self._policy_hidden(x))
        heads = Heads(self.action_heads, self.conditionings)
        distributions = heads.distributions(hidden, batch.action_masks, find_row_choices)
        return distributions, self._values(x), states

    @torch.inference_mode()
    def values(self, batch: EntityBatch, past: Past | None = None) -> NDArray[np.float32]:
        x, _ = self._remember(batch, past or no_past(self, batch))
        values: NDArray[np.float32] = self._values(x).cpu().numpy()
        return values

    def _remember(self, batch: EntityBatch, past: Past) -> tuple[Tensor, Tensor]:
        """The output of `_hidden`, and the states."""
        x = self._read(batch)
        if self.memory is None:
            return self._hidden(x), x.new_zeros(len(x), 0)
        states = self.memory.forward(x, past)
        return self._hidden(torch.cat((x, states), dim=1)), states

    def _values(self, x: Tensor) -> Tensor:
        normalized = self.value_head(self._value_hidden(x)).squeeze(1)
        values: Tensor = self.value_scale(normalized)
        return values


class MLPPolicy(_FlatPolicy):
    """Two multilayer perceptrons with tanh, one for the policy and one for the value.

    The features of all entities (one of each type, zeros if it is missing) and the global features
    are one vector; with `MLPConfig.norm_inputs`, `InputNorm` normalizes it. Initial weights are
    orthogonal, with the gains of Stable-Baselines3 and CleanRL: sqrt(2) in hidden layers, 0.01 for
    actions, 1 for the value.

    Args:
        obs_space: entity types with `Entity.is_single`, or only global features.
        action_space: categorical and continuous actions.

    Raises:
        SchemaError: an entity type that is not single, a select action, no features, or too many
            parameters.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: MLPConfig | None = None,
    ) -> None:
        super().__init__(obs_space, action_space)
        self.config = config or MLPConfig()
        expected_tensors(obs_space, action_space, self.config)  # raises if it is too large
        self._flat = FlatFeatures(obs_space, action_space)
        self.input_norm = InputNorm(self._flat.width) if self.config.norm_inputs else None
        width = self._flat.width
        self.memory = None
        if self.config.memory:
            self.memory = Memory(width, self.config.memory)
            width += self.config.memory
        sizes = (width, *self.config.hidden)
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

    Each channel is normalized by the running mean and deviation of its pixels, and clipped as in
    `InputNorm`: pixels may be 0 to 255, 0 to 1, or codes of objects. Convolutions with ReLU follow,
    then layers with ReLU that also read all other features. Initial weights are orthogonal, with
    the gains of `MLPPolicy`.

    Args:
        obs_space: entity types with `Entity.is_single`, one of them with an `Entity.shape`.
        action_space: categorical and continuous actions.
        config: sizes that are None depend on the size of the picture.

    Raises:
        SchemaError: as in `MLPPolicy`; no picture or several, or one smaller than a kernel.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: CNNConfig | None = None,
    ) -> None:
        super().__init__(obs_space, action_space)
        config = config or CNNConfig()
        expected_tensors(obs_space, action_space, config)  # raises if it is too large
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
        self.memory = None
        if picture.config.memory:
            self.memory = Memory(picture.num_read, picture.config.memory)
        self.hidden = _hidden_layers(picture.sizes, nn.ReLU)
        self._add_heads(picture.sizes[-1])

    @property
    def net_config(self) -> CNNConfig:
        return self.config

    @property
    def _norm(self) -> InputNorm | None:
        return self.picture_norm

    def _counted(self, batch: EntityBatch) -> NDArray[np.float32]:
        pixels = batch.features[self._picture.name].values
        return limited(pixels).reshape(-1, self._picture.shape[2])

    def _read(self, batch: EntityBatch) -> Tensor:
        name, shape = self._picture.name, self._picture.shape
        pixels = as_tensor(self._flat.part(name, batch), self.device).view(-1, *shape)
        x: Tensor = self.convolutions(self.picture_norm(pixels).permute(0, 3, 1, 2).contiguous())
        x = x.flatten(1)
        if self._flat.width:
            x = torch.cat((x, as_tensor(self._flat.array(batch), self.device)), dim=1)
        return x

    def _hidden(self, x: Tensor) -> Tensor:
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


class MLPEvaluation(NamedTuple):
    """`Evaluation` in float32 arrays, with the inputs of `MLPGradient.add`.

    Args:
        logprobs, entropy, values: `(num_rows,)`.
        of_logprobs, of_entropy: gradients of `logprobs` and `entropy` with respect to the outputs
            of the head, `(num_outputs, num_rows)`. For a continuous action, rows for `log_std`
            follow, and `of_entropy` has a single column.
        policy, value: `(width, num_rows)` input of every layer of the two networks.
    """

    logprobs: Floats
    entropy: Floats
    values: Floats
    of_logprobs: Floats
    of_entropy: Floats
    policy: list[Floats]
    value: list[Floats]


class MLPGradient:
    """Evaluates decisions by an `MLPPolicy` and adds to its gradient, in numpy.

    With minibatches of 64, torch's operations take several times as long to call as to compute.
    Parameters are read in place; feature and return statistics are those at creation.

    Args:
        net: a network that `of` accepts.
        x: `(num_decisions, num_features)` float32, before `MLPConfig.norm_inputs` applies.
        samples: one per decision.
        allowed: `(num_decisions, num_choices)` bool; None = all choices.
    """

    def __init__(
        self, net: MLPPolicy, x: Floats, samples: Draws, allowed: NDArray[np.bool_] | None
    ) -> None:
        self._x, self._samples, self._allowed = x, samples, allowed
        self._input_scale: tuple[Floats, Floats] | None = None
        if net.input_norm is not None:
            mean, deviation = net.input_norm.scale()
            self._input_scale = as_array(mean), as_array(deviation)
        self._value_scale = float(net.value_scale.std), float(net.value_scale.mean)
        policy, value, log_std = _towers(net)
        self._policy, self._value = _layer_arrays(policy), _layer_arrays(value)
        self._log_std = None if log_std is None else as_array(log_std)[:, None]
        layers = (*reversed(policy), *reversed(value))
        self._parameters = [each for layer in layers for each in (layer.weight, layer.bias)]
        self._parameters += [] if log_std is None else [log_std]

    @classmethod
    def of(
        cls, net: Policy, obs: EntityBatch, samples: Mapping[ActionName, Draws]
    ) -> MLPGradient | None:
        """The gradient for all decisions of a rollout; None if only torch can compute it.

        The network must be an unmodified `MLPPolicy` with one action, on the CPU, and every
        observation must have exactly one actor.

        Raises:
            SchemaError: an actor without any allowed choice.
        """
        if type(net) is not MLPPolicy or len(net.action_space) != 1 or not _is_as_built(net):
            return None
        (name,) = net.action_space
        mask = obs.action_masks[name]
        if not (mask.actors.lengths == 1).all():
            return None
        allowed = find_row_choices(name, mask).allowed
        return cls(net, net._flat.array(obs), samples[name], allowed)

    def evaluate(self, index: NDArray[np.int64]) -> MLPEvaluation:
        x, samples = self._x[index], self._samples[index]
        if self._input_scale is not None:
            mean, deviation = self._input_scale
            x -= mean
            x /= deviation
            np.clip(x, -CLIP, CLIP, out=x)
        outputs, policy = _forward(self._policy, x.T)
        (normalized,), value = _forward(self._value, x.T)
        std, mean_value = self._value_scale
        values = normalized * std + mean_value
        if self._log_std is not None:
            weighed = _weigh_numbers(outputs, self._log_std, samples.T)
        else:
            allowed = None if self._allowed is None else self._allowed[index].T
            weighed = _weigh_labels(outputs, samples, allowed)
        logprobs, entropy, of_logprobs, of_entropy = weighed
        return MLPEvaluation(logprobs, entropy, values, of_logprobs, of_entropy, policy, value)

    def add(
        self, found: MLPEvaluation, of_logprobs: Floats, of_entropy: float, of_values: Floats
    ) -> None:
        """Adds the gradient of a loss, given its gradients with respect to the evaluation.

        Args:
            found: result of `evaluate` with the same parameters; its arrays are overwritten.
            of_logprobs, of_values: `(num_rows,)` float32.
            of_entropy: the gradient of every row's entropy, one number for all rows.
        """
        outputs = found.of_logprobs * of_logprobs
        outputs += found.of_entropy * of_entropy
        num_outputs = len(self._policy[-1][0])
        normalized = (of_values * self._value_scale[0])[None]
        gradients = [
            *_backward(self._policy, found.policy, outputs[:num_outputs]),
            *_backward(self._value, found.value, normalized),
        ]
        if self._log_std is not None:
            gradients.append(np.add.reduce(outputs[num_outputs:], axis=1))
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.from_numpy(gradient)
            else:
                parameter.grad += torch.from_numpy(gradient)


def _towers(net: MLPPolicy) -> tuple[list[nn.Linear], list[nn.Linear], nn.Parameter | None]:
    """Layers of the policy and of the value, each with its head; `log_std` if continuous."""
    ((_, head),) = net.action_heads.items()
    policy, value = (list(tower)[::2] for tower in (net.policy_net, net.value_net))
    return (
        cast(list[nn.Linear], [*policy, head.proj]),
        cast(list[nn.Linear], [*value, net.value_head]),
        head.log_std if isinstance(head, GaussianHead) else None,
    )


def _is_as_built(net: MLPPolicy) -> bool:
    """True if a network with one action is unmodified, without memory, and on the CPU."""
    if net.memory is not None:
        return False
    ((_, head),) = net.action_heads.items()
    layers = [nn.Linear, nn.Tanh] * len(net.config.hidden)
    if type(head) not in (CategoricalHead, GaussianHead) or any(
        type(tower) is not nn.Sequential or [type(each) for each in tower] != layers
        for tower in (net.policy_net, net.value_net)
    ):
        return False
    policy, value, log_std = _towers(net)
    parameters = list(net.parameters())
    return (
        all(type(layer) is nn.Linear for layer in (policy[-1], value[-1]))
        and len(parameters) == 2 * len(policy + value) + (log_std is not None)
        and not any(each._forward_hooks or each._forward_pre_hooks for each in net.modules())
        and all(
            each.device.type == "cpu"
            and each.dtype == torch.float32
            and each.is_contiguous()
            and each.requires_grad
            and not each._backward_hooks
            for each in parameters
        )
    )


def _layer_arrays(layers: Sequence[nn.Linear]) -> Layers:
    return [(as_array(each.weight), as_array(each.bias)[:, None]) for each in layers]


def _product(a: Floats, b: Floats) -> Floats:
    if a.size * b.shape[1] <= FEW_PRODUCTS:
        return a @ b
    return torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()


def _forward(layers: Layers, x: Floats) -> tuple[Floats, list[Floats]]:
    """Outputs, and the inputs of all layers; tanh follows all layers but the last."""
    inputs = [x]
    for weight, bias in layers:
        x = _product(weight, x)
        x += bias
        if len(inputs) < len(layers):
            np.tanh(x, out=x)
            inputs.append(x)
    return x, inputs


def _backward(layers: Layers, inputs: Sequence[Floats], slopes: Floats) -> Iterator[Floats]:
    """Gradients of weight and bias, from the last layer to the first; overwrites the inputs.

    If `slopes` is the gradient of a layer's outputs, the gradient of its weight is `slopes @ x.T`,
    and that of its input `weight.T @ slopes`; the derivative of tanh with output x is `1 - x**2`.
    """
    for i in range(len(layers) - 1, -1, -1):
        x = inputs[i]
        yield _product(slopes, x.T)
        yield np.add.reduce(slopes, axis=1)
        if i:
            slopes = _product(layers[i][0].T, slopes)
            x *= x
            slopes *= np.subtract(1.0, x, out=x)


def _weigh_labels(
    logits: Floats, samples: Draws, allowed: NDArray[np.bool_] | None
) -> tuple[Floats, Floats, Floats, Floats]:
    """The fields of an `MLPEvaluation` that follow from `(num_choices, num_rows)` logits.

    With probabilities p and entropy H, the derivative by logit j is `(i == j) - p[j]` for
    `log p[i]`, and `-p[j] * (log p[j] + H)` for H.
    """
    if allowed is not None:
        logits = np.where(allowed, logits, FORBIDDEN)
    logits -= np.maximum.reduce(logits)
    probs = np.exp(logits)
    total = np.add.reduce(probs)
    probs /= total
    logits -= np.log(total)
    entropy = -np.add.reduce(probs * logits)
    of_entropy = -probs * (logits + entropy)
    chosen = samples, np.arange(len(samples))
    of_logprobs = np.negative(probs, out=probs)
    of_logprobs[chosen] += 1
    return logits[chosen], entropy, of_logprobs, of_entropy


def _weigh_numbers(
    mean: Floats, log_std: Floats, samples: Draws
) -> tuple[Floats, Floats, Floats, Floats]:
    """Like `_weigh_labels`, from `(num_labels, num_rows)` means; adds rows for `log_std`.

    With d = (sample - mean) / std, the gradients of the log-probability are `d / std` and
    `d**2 - 1`; those of the entropy are 0 and 1.
    """
    inverse = np.exp(-log_std)
    distance = (samples - mean) * inverse
    squares = distance * distance
    normalizer = float(np.add.reduce(log_std)[0]) + len(mean) * HALF_LOG_TWO_PI
    logprobs = np.add.reduce(squares) * -0.5 - normalizer
    entropy = np.full_like(logprobs, normalizer + 0.5 * len(mean))
    of_entropy = np.repeat(np.array([[0.0], [1.0]], np.float32), len(mean), axis=0)
    return logprobs, entropy, np.concatenate((distance * inverse, squares - 1)), of_entropy


def make_policy(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace], config: NetConfig
) -> RogueNet | MLPPolicy | CNNPolicy:
    """The untrained network of a configuration.

    Raises:
        SchemaError: an `OwnNetConfig`, or the spaces and options do not fit together.
    """
    if isinstance(config, MLPConfig):
        return MLPPolicy(obs_space, action_space, config)
    if isinstance(config, CNNConfig):
        return CNNPolicy(obs_space, action_space, config)
    # RogueNet refuses other classes.
    return RogueNet(obs_space, action_space, cast(RogueNetConfig, config))


def policy_of(weights: Weights) -> RogueNet | MLPPolicy | CNNPolicy:
    """The network with copies of these weights, on the CPU.

    Raises:
        SchemaError: an `OwnNetConfig`, or the spaces and options do not fit together.
    """
    net = make_policy(weights.obs_space, weights.action_space, weights.config)
    net.load_state_dict(as_tensors(weights.tensors))
    return net
