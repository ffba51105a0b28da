"""The policy of a rollout: a forward pass in a few numba kernels or, for an MLP, in numpy.

For a few hundred entities, calling a torch operation takes longer than computing it, and calling a
module even longer. Arrays of the network are looked up once per rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import Choices, Samples, find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, lay_out
from entity_env.agents.rogue_net.memory import Past, recur
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays
from entity_env.agents.rogue_net.numpy_net.functions import gelu, product
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.operations import MEMORY_POOLING
from entity_env.agents.rogue_net.torch_net.attention import LARGEST_HEAD, PackedLayout
from entity_env.agents.rogue_net.torch_net.block import (
    LARGEST_MODEL,
    TransformerBlock,
    block_forward,
)
from entity_env.agents.rogue_net.torch_net.embedding import (
    LARGEST_WIDTH,
    FeaturelessEmbedding,
    InputNorm,
    embed_type,
)
from entity_env.agents.rogue_net.torch_net.heads import (
    CategoricalHead,
    Conditioning,
    SelectEntityHead,
)
from entity_env.agents.rogue_net.torch_net.mlp import MLPPolicy
from entity_env.agents.rogue_net.torch_net.net import RogueNet
from entity_env.agents.rogue_net.torch_net.policy import Memory, Policy, PolicyOutput, no_past
from entity_env.agents.rogue_net.torch_net.tensors import FEW_PRODUCTS, as_array, has_kernels
from entity_env.agents.rogue_net.weights import Weights, value_head
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, has_dependent
from entity_env.core.vec_actions import narrowed
from entity_env.core.vec_obs import EntityBatch
from entity_env.errors import CheckpointError, TrainingDivergedError

Pair: TypeAlias = tuple[Floats, Floats]
_ALL: Final = np.empty((0, 0), dtype=np.bool_)
"""Empty mask: all choices are allowed."""


class ActingPolicy(Protocol):
    """Object with the `act` of a `Policy`, without `greedy` and `temperature`."""

    def act(
        self,
        batch: EntityBatch,
        *,
        generator: torch.Generator | None,
        past: Past | None = None,
    ) -> PolicyOutput: ...


class _Embedding(NamedTuple):
    """Mean and deviation, linear layer, layer norm of one entity type."""

    scale: Pair
    linear: Pair
    norm: Pair


class _Memory(NamedTuple):
    """Gates, recurrent weight and context layer of a memory."""

    gates: Pair
    weight: Floats
    context: Pair

    def remember(self, pooled: Floats, past: Past) -> Floats:
        """The states after every row; each row is a sequence."""
        weight, bias = self.gates
        own = past.part(slice(0, self.weight.shape[1]))
        return recur(product(pooled, weight.T) + bias, self.weight, own).states


class _Head(NamedTuple):
    """Linear layer from states to logits: `(num_labels, d_model)` and `(num_labels,)`.

    For a select action `(d_model, d_model)` and `(d_model,)`, which merge query and key projection:
    the dot product of the output with an encoded actee is a logit, up to a constant per actor.
    """

    weight: Floats
    bias: Floats


class _Conditioning(NamedTuple):
    """`Conditioning` of an action that depends on others, without numbers among these."""

    choices: Mapping[ActionName, Pair]
    hidden: Pair
    out: Pair

    def actors(
        self,
        x: Floats,
        rows: NDArray[np.int64],
        earlier: Mapping[ActionName, Choices],
        chosen: Mapping[ActionName, Samples],
    ) -> Floats:
        """The changed vectors of the actors in these rows of `x`."""
        actors = x[rows]
        context = np.zeros_like(actors)
        for name, (weight, bias) in self.choices.items():
            place, samples = earlier[name], chosen[name].astype(np.int64, copy=False)
            if place.actees is None:
                context += weight.T[samples]
            else:
                context += product(x[place.actees.picked(place.rows, samples)], weight.T)
            context += bias
        (weight, bias), (last, shift) = self.hidden, self.out
        hidden = gelu(product(np.concatenate((actors, context), axis=1), weight.T) + bias)
        actors += product(hidden, last.T)
        actors += shift
        return actors


def fastest_policy(net: Policy) -> ActingPolicy:
    """The fastest equivalent of `net.act`, valid until the network changes."""
    if isinstance(net, RogueNet) and CompiledPolicy.fits(net):
        return CompiledPolicy(net)
    if type(net) is not MLPPolicy or net.device.type != "cpu" or has_dependent(net.action_space):
        return net
    return ArrayPolicy(net)


class ArrayPolicy:
    """`act` of an `MLPPolicy`, in numpy for few rows: torch would take several times as long.

    Args:
        net: on the CPU; its parameters and statistics are read in place.
    """

    def __init__(self, net: MLPPolicy) -> None:
        self._net = net
        tensors = {name: as_array(tensor) for name, tensor in net.state_dict().items()}
        self._most_rows = FEW_PRODUCTS // max(tensor.size for tensor in tensors.values())
        self._arrays = NumpyNet(Weights(net.obs_space, net.action_space, net.config, tensors))

    def act(
        self,
        batch: EntityBatch,
        *,
        generator: torch.Generator | None,
        past: Past | None = None,
    ) -> PolicyOutput:
        """See `Policy.act`; the same draws choose the same actions."""
        if len(next(iter(batch.features.values()))) > self._most_rows:
            return self._net.act(batch, generator=generator, past=past)
        self._arrays.read_statistics()
        past = past or no_past(self._net, batch)
        try:
            distributions, values, states = self._arrays.recall(batch, past)
        except CheckpointError as error:
            raise TrainingDivergedError(str(error)) from error
        logprobs, entropy = np.zeros((2, len(values)), dtype=np.float32)
        samples: dict[ActionName, Samples] = {}
        actions: dict[ActionName, Samples] = {}
        for name, each in distributions.items():
            if isinstance(each, CategoricalArrays):
                draws = torch.empty(each.logprobs.shape).exponential_(generator=generator)
                samples[name], logprob, own_entropy = each.race(draws.numpy())
                actions[name] = samples[name]
            else:
                draws = torch.empty(each.mean.shape).normal_(generator=generator)
                drawn, logprob, own_entropy = each.shift(draws.numpy())
                samples[name], actions[name] = drawn, each.actions(drawn)
            np.add.at(logprobs, each.rows, logprob)
            np.add.at(entropy, each.rows, own_entropy)
        kept = states if self._net.memory_width else None
        return PolicyOutput(actions, samples, logprobs, entropy, values, kept)


class CompiledPolicy:
    """`act` of a network in kernels, valid until the network changes.

    Args:
        net: must fit, see `fits`.
    """

    def __init__(self, net: RogueNet) -> None:
        self._net = net
        self._inputs = net.inputs
        self._n_head = net.config.n_head
        self._embeddings = {
            name: _embedding(module) for name, module in net.embedding.embeddings.items()
        }
        self._blocks = [cast(TransformerBlock, each).weights() for each in net.backbone.blocks]
        self._heads = {name: _head(module) for name, module in net.action_heads.items()}
        self._conditionings = {
            name: _conditioning(cast(Conditioning, module))
            for name, module in net.conditionings.items()
        }
        self._memory = None if net.memory is None else _memory(net.memory)
        self._value_policy = None if net.value_net is None else CompiledPolicy(net.value_net)
        if net.value_net is None:
            heads = net.auxiliary_heads.state_dict(prefix="auxiliary_heads.")
            self._value = value_head({name: as_array(tensor) for name, tensor in heads.items()})

    @staticmethod
    def fits(net: RogueNet) -> bool:
        """True if kernels can compute the whole network."""
        return (
            net.device.type == "cpu"
            and has_kernels()
            and net.config.relpos_encoding is None
            and net.config.pooling is None
            and net.relations is None
            and net.config.d_head <= LARGEST_HEAD
            and net.config.d_model <= LARGEST_MODEL
            and max(net.inputs.widths.values()) <= LARGEST_WIDTH
            and all(
                isinstance(head, CategoricalHead | SelectEntityHead)
                for _, head in net.action_heads.items()
            )
        )

    def act(
        self,
        batch: EntityBatch,
        *,
        generator: torch.Generator | None,
        past: Past | None = None,
    ) -> PolicyOutput:
        """See `Policy.act`; the same draws choose the same actions."""
        # Late import: numba is slow to load, and optional.
        from entity_env.agents.rogue_net.kernels.policy import draw_categorical

        layout = lay_out(batch, self._inputs.names, is_compiled=True)
        asked = {
            name: find_choices(name, batch.action_masks[name], layout)
            for name in self._heads
            if name not in self._conditionings
        }
        past = past or no_past(self._net, batch)
        x, states = self._encode(batch, layout, past)
        logprobs, entropy = np.zeros((2, len(layout.lengths)), dtype=np.float32)
        if self._value_policy is None:
            values = self._values(x, layout)
        else:
            values, of_value = self._value_policy.recall_values(batch, past)
            states = np.concatenate((states, of_value), axis=1)
        samples: dict[ActionName, Samples] = {}
        for name, head in self._heads.items():
            actors = None
            if (conditioning := self._conditionings.get(name)) is not None:
                before = samples[self._net.action_space[name].given[-1]]
                mask = narrowed(batch.action_masks[name], before)
                asked[name] = find_choices(name, mask, layout)
                actors = conditioning.actors(x, asked[name].packed, asked, samples)
            choices = asked[name]
            logits = _logits(head, x, choices, actors)
            race = torch.empty(logits.shape).exponential_(generator=generator).numpy()
            chosen = np.empty(len(choices.rows), dtype=np.int64)
            allowed = _ALL if choices.allowed is None else _writable(choices.allowed)
            draw_categorical(logits, allowed, race, choices.rows, chosen, logprobs, entropy)
            samples[name] = chosen
        kept = None if self._memory is None else states
        return PolicyOutput(samples, samples, logprobs, entropy, values, kept)

    def recall_values(self, batch: EntityBatch, past: Past) -> tuple[Floats, Floats]:
        """Values and states of a value network; its past is the second half of the states."""
        layout = lay_out(batch, self._inputs.names, is_compiled=True)
        x, states = self._encode(batch, layout, past.part(slice(self._net.config.memory, None)))
        return self._values(x, layout), states

    def _values(self, x: Floats, layout: Layout) -> Floats:
        from entity_env.agents.rogue_net.kernels.policy import mean_values

        values = np.zeros(len(layout.lengths), dtype=np.float32)
        mean_values(x, layout.order, layout.offsets, *self._value, values)
        return values

    def _encode(self, batch: EntityBatch, layout: Layout, past: Past) -> tuple[Floats, Floats]:
        """The encoded entities and the states, see `RogueNet`."""
        arrays = self._inputs.arrays(batch)
        width = self._net.config.d_model
        x = np.empty((len(layout.order), width), dtype=np.float32)
        at = 0
        for name, embedding in self._embeddings.items():
            features = _writable(arrays[name])
            part = x[at : at + len(features)]
            at += len(features)
            if isinstance(embedding, _Embedding):
                embed_type(features, *embedding, part)
            else:
                part[:] = embedding
        states = np.zeros((len(layout.lengths), 0), np.float32)
        if self._memory is not None:
            states = self._memory.remember(layout.pooled(x, MEMORY_POOLING), past)
            weight, bias = self._memory.context
            x += (product(states, weight.T) + bias)[layout.rows]
        packed = PackedLayout.of(layout, self._n_head)
        for weights in self._blocks:
            x, _ = block_forward(x, packed, weights)
        return x, states


def _memory(memory: Memory) -> _Memory:
    return _Memory(_arrays(memory.gates), as_array(memory.weight), _arrays(memory.context))


def _embedding(module: nn.Module) -> _Embedding | Floats:
    if isinstance(module, FeaturelessEmbedding):
        return as_array(module.embedding)
    layers = cast(nn.Sequential, module)
    mean, deviation = cast(InputNorm, layers[0]).scale()
    return _Embedding((as_array(mean), as_array(deviation)), _arrays(layers[1]), _arrays(layers[3]))


def _arrays(layer: nn.Module | None) -> Pair:
    layer = cast(nn.Module, layer)
    return as_array(cast(Tensor, layer.weight)), as_array(cast(Tensor, layer.bias))


def _head(module: nn.Module) -> _Head:
    if isinstance(module, CategoricalHead):
        return _Head(*_arrays(module.proj))
    select = cast(SelectEntityHead, module)
    (query, bias), (key, _) = _arrays(select.query_proj), _arrays(select.key_proj)
    scaled = key.T @ query * np.float32(select.scale), bias @ key * np.float32(select.scale)
    return _Head(*map(np.ascontiguousarray, scaled))


def _conditioning(module: Conditioning) -> _Conditioning:
    choices = {name: _arrays(layer) for name, layer in module.choices.items()}
    return _Conditioning(choices, _arrays(module.hidden), _arrays(module.out))


def _logits(head: _Head, x: Floats, choices: Choices, actors: Floats | None = None) -> Floats:
    """The logits of an action; `actors` replaces the actors' rows of `x`."""
    from entity_env.agents.rogue_net.kernels.policy import actee_logits, label_logits

    num_actors, actees = len(choices.packed), choices.actees
    scored = np.empty((num_actors, len(head.bias)), dtype=np.float32)
    if actors is None:
        label_logits(x, choices.packed, *head, scored)
    else:
        label_logits(actors, np.arange(num_actors), *head, scored)
    if actees is None:
        return scored
    logits = np.empty((num_actors, max(actees.max_actees, 1)), dtype=np.float32)
    actee_logits(x, scored, choices.rows, actees.packed, actees.mask.actees.offsets, logits)
    return logits


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous and writable array, because numba compiles separately for read-only arrays."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else array.copy()
