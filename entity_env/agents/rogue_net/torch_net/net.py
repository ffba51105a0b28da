"""RogueNet: a transformer over entities, with one head per action and one for the value.

Names and results match rogue-net 0.1.9 in evaluation mode, so its checkpoints can be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entity_env.agents.rogue_net.action_index import find_choices
from entity_env.agents.rogue_net.batch_layout import Layout, lay_out
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.operations import MEMORY_POOLING, has_selection
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.agents.rogue_net.torch_net.attention import (
    PooledLayout,
    RelationAttention,
    attention_layout,
)
from entity_env.agents.rogue_net.torch_net.distributions import ActionDistribution
from entity_env.agents.rogue_net.torch_net.embedding import EntityEmbedding
from entity_env.agents.rogue_net.torch_net.heads import Heads, conditionings, make_head
from entity_env.agents.rogue_net.torch_net.policy import (
    Decisions as Decisions,
    Evaluation as Evaluation,
    Memory,
    Policy,
    PolicyOutput as PolicyOutput,
    ValueScale,
    no_past,
)
from entity_env.agents.rogue_net.torch_net.tensors import (
    NamedModules,
    as_tensor,
    as_tensors,
    use_kernels,
)
from entity_env.agents.rogue_net.torch_net.transformer import EncodedEntities, Transformer
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    EntityName,
    ObsSpace,
)
from entity_env.core.vec_obs import EntityBatch


class RogueNet(Policy):
    """Policy and value network over entities.

    Only `update_statistics`, `scale_values` and an optimizer change the network. It is created in
    evaluation mode; training mode only adds dropout.

    Args:
        obs_space: the order of entities and features matters.

    Raises:
        SchemaError: no entity, a bound of a continuous action that float32 cannot hold, options
            that name missing features, or too many features or parameters.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        config: RogueNetConfig | None = None,
    ) -> None:
        super().__init__(obs_space, action_space)
        self.config = config or RogueNetConfig()
        expected_tensors(obs_space, action_space, self.config)  # raises if it is too large
        self.inputs = Inputs(obs_space, action_space, self.config.translation)
        relpos = self.config.relpos_encoding
        self._relpos = None if relpos is None else Relpos(relpos, self.inputs.features)
        self._names = self.inputs.names
        d_model = self.config.d_model
        self.embedding = EntityEmbedding(self.inputs.widths, d_model)
        self.memory: Memory | None = None
        if width := self.config.memory:
            self.memory = Memory(2 * d_model, width, d_model)
        self.relations: RelationAttention | None = None
        if self.inputs.references:
            has_out = has_selection(action_space)
            self.relations = RelationAttention(self.config, has_out=has_out)
        self.backbone = Transformer(self.config, self._names)
        self.action_heads = NamedModules(
            {name: make_head(name, space, self.config) for name, space in action_space.items()}
        )
        self.value_net: RogueNet | None = None
        self.conditionings = conditionings(action_space, d_model)
        heads: dict[str, nn.Module] = {}
        if self.config.separate_value:
            self.value_net = RogueNet(obs_space, {}, replace(self.config, separate_value=False))
        else:
            heads["value"] = value = nn.Linear(d_model, 1)
            nn.init.zeros_(value.weight)
            nn.init.zeros_(value.bias)
            if self.config.value_scale:
                heads["value_scale"] = ValueScale()
        self.auxiliary_heads = NamedModules(heads)
        self.eval()

    @classmethod
    def of(cls, weights: Weights) -> RogueNet:
        """The network with copies of these weights, on the CPU.

        Raises:
            SchemaError: the network is not a RogueNet, or its spaces and options do not fit.
        """
        net = cls(weights.obs_space, weights.action_space, weights.rogue_net_config())
        net.load_state_dict(as_tensors(weights.tensors))
        return net

    @property
    def net_config(self) -> RogueNetConfig:
        return self.config

    @property
    def device(self) -> torch.device:
        # Read many times per step; iterating over parameters takes three times as long.
        if self.value_net is not None:
            return self.value_net.device
        return cast(nn.Linear, self.auxiliary_heads["value"]).weight.device

    @torch.inference_mode()
    def values(self, batch: EntityBatch, past: Past | None = None) -> NDArray[np.float32]:
        past = past or no_past(self, batch)
        if self.value_net is not None:
            return self.value_net.values(batch, self._past_of_value(past))
        layout = self._lay_out(batch)
        x, _, _ = self._encode(batch, layout, 0, past)
        values: NDArray[np.float32] = self._value(x, layout).cpu().numpy()
        return values

    def distributions(
        self, batch: EntityBatch
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor]:
        """The distribution of every action, and the `(num_rows,)` values."""
        distributions, values, _ = self.recall(batch, no_past(self, batch))
        return distributions, values

    def recall(
        self, batch: EntityBatch, past: Past
    ) -> tuple[dict[ActionName, ActionDistribution], Tensor, Tensor]:
        layout = self._lay_out(batch)
        masks = batch.action_masks
        # Found before encoding, so an invalid mask raises early; dependent masks are found later.
        choices = {
            name: find_choices(name, masks[name], layout)
            for name, space in self.action_space.items()
            if not space.given
        }
        num_gathered = sum(each.num_picked for each in choices.values())
        x, everything, states = self._encode(batch, layout, num_gathered, past)
        distributions = Heads(self.action_heads, self.conditionings).distributions(
            everything,
            masks,
            lambda name, mask: choices.get(name) or find_choices(name, mask, layout),
        )
        if self.value_net is None:
            return distributions, self._value(x, layout), states
        _, values, of_value = self.value_net.recall(batch, self._past_of_value(past))
        return distributions, values, torch.cat((states, of_value), dim=1)

    def _past_of_value(self, past: Past) -> Past:
        """The past of a separate value network: the second half of the states."""
        return past.part(slice(self.config.memory, None))

    def scale_values(self, mean: float, std: float) -> None:
        if self.value_net is not None:
            self.value_net.scale_values(mean, std)
        elif self.config.value_scale:
            scale = cast(ValueScale, self.auxiliary_heads["value_scale"])
            scale.change(mean, std, cast(nn.Linear, self.auxiliary_heads["value"]))

    def update_statistics(self, batch: EntityBatch, *, restart: bool = False) -> None:
        if self.value_net is not None:
            self.value_net.update_statistics(batch, restart=restart)
        inputs = self.inputs.arrays(batch)
        self.embedding.update_statistics(self._tensors(inputs), restart=restart)
        if self._relpos is not None and self._relpos.config.has_projection:
            self._update_relpos(self._relpos, inputs, lay_out(batch, self._names), restart)

    @property
    def has_statistics(self) -> bool:
        return self.embedding.has_statistics

    def _update_relpos(
        self,
        relpos: Relpos,
        inputs: Mapping[EntityName, NDArray[np.float32]],
        layout: Layout,
        restart: bool,
    ) -> None:
        """Adds the relative positions of all pairs to the statistics, without empty slots."""
        encoding, pairs = self.backbone.relpos_encoding, relpos.buckets(inputs, layout)
        if encoding is None or pairs.relative is None:
            return
        flat = np.zeros(layout.num_padded * layout.max_length, dtype=np.bool_)
        flat[layout.slots] = True
        is_full = flat.reshape(layout.num_padded, layout.max_length)
        counted = pairs.relative[is_full[:, :, None] & is_full[:, None, :]]
        encoding.relpos_norm.update(as_tensor(counted, self.device), restart=restart)

    def _encode(
        self, batch: EntityBatch, layout: Layout, num_gathered: int, past: Past
    ) -> tuple[EncodedEntities, EncodedEntities, Tensor]:
        """The encoded entities, these with relations after them, and the states.

        Heads will gather `num_gathered` of them.
        """
        inputs = self.inputs.arrays(batch)
        x = self.embedding.forward(self._tensors(inputs))
        x, embedded = x[: len(layout.order)], x[len(layout.order) :]
        states = x.new_zeros(len(layout.lengths), 0)
        if self.memory is not None:
            x, states = self._remember(self.memory, x, layout, past)
        if not len(layout.order):
            return EncodedEntities(x), EncodedEntities(x), states
        if self.relations is None or layout.relations is None:
            encoded = self._transform(x, inputs, layout, num_gathered)
            return encoded, encoded, states
        x = self.relations.forward(x, embedded, layout.relations)
        # All entities: the ends of relations are gathered, too.
        encoded = self._transform(x, inputs, layout, len(x))
        found = self.relations.encoded(encoded.x, embedded, layout.relations)
        if found is None:
            return encoded, encoded, states
        return encoded, EncodedEntities(torch.cat((encoded.x, found))), states

    def _transform(
        self,
        x: Tensor,
        inputs: Mapping[EntityName, NDArray[np.float32]],
        layout: Layout,
        num_gathered: int,
    ) -> EncodedEntities:
        pairs = None if self._relpos is None else self._relpos.buckets(inputs, layout)
        tables = None if pairs is None else self.backbone.look_up(pairs)
        is_dropping = self.training and self.config.dropout > 0
        place = attention_layout(layout, self.config, x.device, tables, is_dropping=is_dropping)
        if is_dropping or 2 * num_gathered > len(x):
            return EncodedEntities(self.backbone.forward(x, place))
        return self.backbone.encode(x, place)

    def _remember(
        self, memory: Memory, x: Tensor, layout: Layout, past: Past
    ) -> tuple[Tensor, Tensor]:
        """Adds what is remembered to every embedded entity; returns these and the states."""
        pooled = PooledLayout.of(layout, x.device)
        own = past if self.value_net is None else past.part(slice(0, memory.width))
        states = memory.forward(pooled.pool(x, MEMORY_POOLING), own)
        context = cast(nn.Linear, memory.context).forward(states)
        return x + context.index_select(0, pooled.rows), states

    def _lay_out(self, batch: EntityBatch) -> Layout:
        size = sum(len(batch.features[name].values) for name in self._names)
        is_compiled = use_kernels(size, self.device)
        return lay_out(batch, self._names, self.inputs.references, is_compiled=is_compiled)

    def _tensors(
        self, arrays: Mapping[EntityName, NDArray[np.float32]]
    ) -> dict[EntityName, Tensor]:
        """Inputs of the embedding; those of relations lack the references."""
        known = {name: as_tensor(values, self.device) for name, values in arrays.items()}
        return known | {name: known[name][:, 2:] for name in self.inputs.references}

    def _value(self, x: EncodedEntities, layout: Layout) -> Tensor:
        value: Tensor = self.auxiliary_heads["value"](x.mean_pool(layout)).squeeze(1)
        if self.config.value_scale:
            value = self.auxiliary_heads["value_scale"](value)
        return value
