"""RogueNet in plain numpy, for batches: computes the same as `torch_net`.

`fused` computes the same for one observation, several times faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Choices, find_choices, find_row_choices
from entity_env.agents.rogue_net.batch_layout import Batch, Layout, lay_out
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig
from entity_env.agents.rogue_net.features import FlatFeatures, Inputs
from entity_env.agents.rogue_net.numpy_net.distributions import (
    CategoricalArrays,
    Distribution,
    GaussianArrays,
    bounds,
)
from entity_env.agents.rogue_net.numpy_net.functions import (
    HIDDEN,
    affine,
    convolve,
    input_statistics,
    layer_norm,
    linear,
    normalize,
    normalize_features,
    relu,
    softmax,
    table_gelu,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos, RelposArrays
from entity_env.agents.rogue_net.weights import Picture, Weights, value_head
from entity_env.core.ragged import Floats
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    EntityName,
    SelectEntityActionSpace,
)


class NumpyNet:
    """Action distributions and values of batches. Immutable; arrays of a batch are only read.

    Args:
        weights: a network that fits its own description, see `Weights.require_fit`.

    Raises:
        SchemaError: no network has such spaces and options.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._tensors: dict[str, NDArray[Any]] = dict(weights.tensors)
        self._config = config = weights.rogue_net_config()
        self._inputs = Inputs(weights.obs_space, weights.action_space, config.translation)
        self._relpos = NumpyRelpos.of(weights, self._inputs)
        self._value_net = NumpyNet(weights.value_net()) if config.separate_value else None
        if not config.separate_value:
            self._value_head = value_head(self._tensors)

    def distributions(self, batch: Batch) -> tuple[dict[ActionName, Distribution], Floats]:
        """The distribution of every action, and the `(num_rows,)` values.

        Raises:
            SchemaError: an actor without an allowed choice, or an index out of range.
        """
        return self._run(batch)

    def attended(
        self, batch: Batch
    ) -> tuple[dict[ActionName, Distribution], Floats, Floats | None]:
        """`distributions` of a batch of one observation, and its attention weights.

        These are `(n_layer, n_head, num_entities, num_entities)`, query before key, in the order of
        the space, the entity of the global features last; None if the network pools or has no
        layers.
        """
        found: list[Floats] = []
        distributions, values = self._run(batch, found)
        if self._config.pooling is not None or not self._config.n_layer:
            return distributions, values, None
        size = sum(len(batch.features[name].values) for name in self._inputs.names)
        shape = self._config.n_layer, self._config.n_head, size, size
        return distributions, values, np.array(found, np.float32).reshape(shape)

    def _run(
        self, batch: Batch, found: list[Floats] | None = None
    ) -> tuple[dict[ActionName, Distribution], Floats]:
        layout = lay_out(batch, self._inputs.names)
        choices = {
            name: find_choices(name, batch.action_masks[name], layout)
            for name in self.weights.action_space
        }
        x = self._encode(batch, layout, found)
        distributions = {
            name: self._head(name, space, x, choices[name])
            for name, space in self.weights.action_space.items()
        }
        if self._value_net is not None:
            return distributions, self._value_net.distributions(batch)[1]
        return distributions, self._values(x, layout)

    def _encode(self, batch: Batch, layout: Layout, found: list[Floats] | None) -> Floats:
        """`(num_entities, d_model)`, packed; appends the attention of every layer to `found`."""
        inputs = self._inputs.arrays(batch)
        x = np.concatenate([self._embed(name, inputs[name]) for name in self._inputs.names])
        if not layout.num_padded:
            return x
        relpos = None if self._relpos is None else self._relpos.look_up(inputs, layout)
        for i in range(self._config.n_layer):
            normed = self._norm(f"backbone.blocks.{i}.ln1", x)
            if self._config.pooling is not None:
                x = x + self._pool(i, normed, layout, self._config.pooling)
            else:
                x = x + self._attend(i, normed, layout, relpos, found)
            x = x + self._mlp(i, self._norm(f"backbone.blocks.{i}.ln2", x))
        return x

    def _embed(self, name: EntityName, features: Floats) -> Floats:
        prefix = f"embedding.embeddings.{name}"
        if not features.shape[1]:
            return np.repeat(self._tensors[f"{prefix}.embedding"], len(features), axis=0)
        normed = normalize_features(self._tensors, f"{prefix}.0", features)
        return self._norm(f"{prefix}.3", relu(linear(self._tensors, f"{prefix}.1", normed)))

    def _norm(self, prefix: str, x: Floats) -> Floats:
        return layer_norm(x, self._tensors[f"{prefix}.weight"], self._tensors[f"{prefix}.bias"])

    def _attend(
        self,
        block: int,
        x: Floats,
        layout: Layout,
        relpos: RelposArrays | None,
        found: list[Floats] | None,
    ) -> Floats:
        prefix = f"backbone.blocks.{block}.attn"
        shape = layout.num_padded, layout.max_length
        # (num_padded, n_head, max_length, d_head)
        q, k, v = (
            linear(self._tensors, f"{prefix}.{part}", x)[layout.source]
            .reshape(*shape, self._config.n_head, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        logits = q @ k.swapaxes(-1, -2)
        if relpos is not None:
            logits = logits + relpos.logits(q)
        logits = logits * np.float32(1.0 / math.sqrt(q.shape[-1]))
        if layout.hidden is not None:
            logits = np.where(layout.hidden.swapaxes(1, 2)[:, None], HIDDEN, logits)
        attention = softmax(logits)
        if found is not None:
            found.append(attention)
        y = attention @ v
        if relpos is not None:
            gate = relpos.relpos.gate(x[layout.source].reshape(*shape, -1))
            y = y + relpos.values(attention, gate)
        packed = y.transpose(0, 2, 1, 3).reshape(len(layout.source), -1)[layout.slots]
        return linear(self._tensors, f"{prefix}.proj", packed)

    def _pool(self, block: int, x: Floats, layout: Layout, pooling: str) -> Floats:
        prefix = f"backbone.blocks.{block}.attn"
        x = linear(self._tensors, f"{prefix}.prepool", x)[layout.order]
        visible = np.ones(len(x), np.bool_) if layout.visible is None else layout.visible
        seen = visible[layout.order, None].astype(np.float32)
        starts = layout.offsets[:-1][layout.lengths > 0]
        count: Floats = np.add.reduceat(seen, starts)
        parts: list[Floats] = []
        if "mean" in pooling:
            parts.append(np.add.reduceat(x * seen, starts))
            parts[0] /= np.maximum(count, 1)
        if "max" in pooling:
            shown = np.where(seen > 0, x, np.float32(-np.inf))
            parts.append(np.where(count > 0, np.maximum.reduceat(shown, starts), np.float32(0)))
        pooled = linear(self._tensors, f"{prefix}.proj", np.concatenate(parts, axis=1))
        own: Floats = pooled[(np.cumsum(layout.lengths > 0) - 1)[layout.rows]]
        return own

    def _mlp(self, block: int, x: Floats) -> Floats:
        prefix = f"backbone.blocks.{block}.mlp"
        return linear(
            self._tensors, f"{prefix}.2", table_gelu(linear(self._tensors, f"{prefix}.0", x))
        )

    def _head(
        self, name: ActionName, space: ActionSpace, x: Floats, choices: Choices
    ) -> Distribution:
        if isinstance(space, SelectEntityActionSpace):
            logits = self._compare(f"action_heads.{name}", x, choices)
            return CategoricalArrays.of(choices.rows, logits, choices.allowed)
        return label_distribution(self._tensors, name, space, x[choices.packed], choices)

    def _compare(self, prefix: str, x: Floats, choices: Choices) -> Floats:
        """`(num_actors, max_actees)` logits of a select action."""
        actees = choices.actees
        if actees is None or not len(choices.packed):
            return np.zeros((0, 1), dtype=np.float32)
        d_qk = self._config.d_qk
        queries = np.zeros((actees.num_rows * actees.max_actors, d_qk), dtype=np.float32)
        keys = np.zeros((actees.num_rows * actees.max_actees, d_qk), dtype=np.float32)
        queries[actees.actor_slots] = linear(
            self._tensors, f"{prefix}.query_proj", x[choices.packed]
        )
        keys[actees.slots] = linear(self._tensors, f"{prefix}.key_proj", x[actees.packed])
        logits: Floats = queries.reshape(actees.num_rows, actees.max_actors, d_qk) @ (
            keys.reshape(actees.num_rows, actees.max_actees, d_qk).swapaxes(1, 2)
        )
        flat = logits.reshape(-1, actees.max_actees)[actees.actor_slots]
        return flat * np.float32(1.0 / math.sqrt(d_qk))

    def _values(self, x: Floats, layout: Layout) -> Floats:
        total = np.zeros((len(layout.lengths), x.shape[1]), dtype=np.float32)
        np.add.at(total, layout.rows, x)
        count = np.maximum(layout.lengths, 1).astype(np.float32)
        weight, bias = self._value_head
        values: Floats = (total / count[:, None]) @ weight[0] + bias
        return values


class NumpyMLP:
    """Action distributions and values of an `MLPPolicy` or `CNNPolicy`; otherwise as `NumpyNet`.

    Args:
        weights: a network that fits its own description, see `Weights.require_fit`.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._tensors: dict[str, NDArray[Any]] = dict(weights.tensors)
        spaces, config = (weights.obs_space, weights.action_space), weights.config
        self._picture = Picture.of(*spaces, config) if isinstance(config, CNNConfig) else None
        self._flat = FlatFeatures(*spaces, None if self._picture is None else self._picture.name)
        names = ("policy_net", "value_net") if self._picture is None else ("hidden",)
        self._layers = {name: list(_layers(self._tensors, name)) for name in names}
        self._norm = "input_norm" if self._picture is None else "picture_norm"
        norm = f"{self._norm}."
        self._counted = [each for name, each in self._tensors.items() if name.startswith(norm)]
        self._known: list[bytes] = []
        """Content of `_counted` when `_statistics` were computed."""
        self._statistics: tuple[Floats, Floats] | None = None
        self.read_statistics()

    def read_statistics(self) -> None:
        """Computes mean and deviation of the features again if their tensors have changed."""
        content = [each.tobytes() for each in self._counted]
        if content != self._known:
            self._known = content
            self._statistics = input_statistics(self._tensors, self._norm)

    def distributions(self, batch: Batch) -> tuple[dict[ActionName, Distribution], Floats]:
        """The distribution of every action, and the `(num_rows,)` values."""
        if self._picture is None:
            x = self._normalized(self._flat.array(batch))
            hidden = self._hidden("policy_net", x, np.tanh)
            of_value = self._hidden("value_net", x, np.tanh)
        else:
            hidden = of_value = self._hidden("hidden", self._convolved(self._picture, batch), relu)
        distributions: dict[ActionName, Distribution] = {}
        for name, space in self.weights.action_space.items():
            choices = find_row_choices(name, batch.action_masks[name])
            distributions[name] = label_distribution(
                self._tensors, name, space, hidden[choices.rows], choices
            )
        std, mean = (self._tensors[f"value_scale.{part}"] for part in ("std", "mean"))
        normalized = linear(self._tensors, "value_head", of_value)[:, 0]
        return distributions, normalized * std + mean

    def _normalized(self, x: Floats) -> Floats:
        return x if self._statistics is None else normalize(x, *self._statistics)

    def _hidden(self, net: str, x: Floats, activation: Callable[[Floats], Floats]) -> Floats:
        for weight, bias in self._layers[net]:
            x = activation(affine(x, weight, bias))
        return x

    def _convolved(self, picture: Picture, batch: Batch) -> Floats:
        """`(num_rows, picture.sizes[0])`: the picture after all convolutions, and all else."""
        x = self._flat.part(picture.name, batch).reshape(-1, *picture.shape)
        x = self._normalized(x)
        for i, (_, _, stride) in enumerate(picture.config.layers or ()):
            x = relu(convolve(self._tensors, f"convolutions.{2 * i}", x, stride))
        # Channel after channel, as in torch.
        convolved = x.transpose(0, 3, 1, 2).reshape(len(x), picture.num_convolved)
        if not picture.width:
            return convolved
        return np.concatenate((convolved, self._flat.array(batch)), axis=1)


def _layers(tensors: Mapping[str, NDArray[Any]], net: str) -> Iterator[tuple[Floats, Floats]]:
    """Weight and bias of each layer, as `affine` takes them."""
    i = 0
    while f"{net}.{i}.weight" in tensors:
        yield tensors[f"{net}.{i}.weight"].T, tensors[f"{net}.{i}.bias"]
        i += 2


def numpy_net(weights: Weights) -> NumpyNet | NumpyMLP:
    """The network of these weights."""
    is_flat = isinstance(weights.config, MLPConfig | CNNConfig)
    return NumpyMLP(weights) if is_flat else NumpyNet(weights)


def label_distribution(
    tensors: Mapping[str, NDArray[Any]],
    name: ActionName,
    space: ActionSpace,
    x: Floats,
    choices: Choices,
) -> Distribution:
    """The distribution of an action that selects no entities; `x` has a row an actor."""
    prefix = f"action_heads.{name}"
    logits = linear(tensors, f"{prefix}.proj", x)
    if isinstance(space, ContinuousActionSpace):
        log_std = tensors[f"{prefix}.log_std"]
        return GaussianArrays(choices.rows, logits, log_std, *bounds(space))
    return CategoricalArrays.of(choices.rows, logits, choices.allowed)
