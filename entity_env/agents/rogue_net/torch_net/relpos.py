"""Relative position encoding of attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from entity_env.agents.rogue_net.config import RelposEncodingConfig, RogueNetConfig
from entity_env.agents.rogue_net.relpos import RelposBuckets
from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.torch_net.tensors import NamedModules, as_tensor, dropped
from entity_env.agents.rogue_net.weights import relpos_constants
from entity_env.core.spaces import EntityName


class RelposEncoding(nn.Module):
    """Learned keys and values of relative positions, shared by all blocks and heads.

    Args:
        relpos: buckets and options of relative positions.
    """

    def __init__(
        self, config: RogueNetConfig, relpos: RelposEncodingConfig, names: Sequence[EntityName]
    ) -> None:
        super().__init__()
        d_head = config.d_head
        for name, array in relpos_constants(relpos).items():
            self.register_buffer(name, torch.from_numpy(array))
        num_kinds = len(names) if relpos.per_entity_values else 1
        self.keys = _table(relpos.num_buckets, d_head, 0.05)
        self.values = _table(relpos.num_buckets * num_kinds, d_head, 0.2)
        # In rogue-net's checkpoints, but never read.
        self.distance_values = _table(len(names), d_head, 0.2)
        self.distance_values.weight.requires_grad_(False)
        if relpos.value_relpos_projection:
            self.vproj = _projection(relpos, names, d_head)
        if relpos.key_relpos_projection:
            self.kproj = _projection(relpos, names, d_head)
        if relpos.has_projection:
            self.relpos_norm = InputNorm(3)
        if relpos.value_gate is not None:
            self.value_gate_proj = nn.Linear(config.d_model, d_head)
        self.relpos = relpos

    def forward(self, pairs: RelposBuckets) -> RelposTables:
        keys = self._look_up(self.keys, pairs.keys, pairs)
        values = self._look_up(self.values, pairs.values, pairs)
        if pairs.relative is not None:
            normed = self.relpos_norm(as_tensor(pairs.relative, keys.device))
            is_first = as_tensor(pairs.is_first, keys.device)[:, :, None, None]
            if self.relpos.value_relpos_projection:
                values = values + self._project(self.vproj, normed, is_first)
            if self.relpos.key_relpos_projection:
                keys = keys + self._project(self.kproj, normed, is_first)
        return RelposTables(keys, values, self)

    def gate(self, x: Tensor) -> Tensor | None:
        """Maps key entities `(…, d_model)` to gates of their values, `(…, d_head)`."""
        match self.relpos.value_gate:
            case None:
                return None
            case "relu":
                return functional.relu(self.value_gate_proj(x))
            case "gelu":
                return functional.gelu(self.value_gate_proj(x))
            case "sigmoid":
                return torch.sigmoid(self.value_gate_proj(x))
            case _:
                linear: Tensor = self.value_gate_proj(x)
                return linear

    def _look_up(
        self, table: nn.Embedding, buckets: Sequence[np.ndarray], pairs: RelposBuckets
    ) -> Tensor:
        device = table.weight.device
        found: list[Tensor] = [table(as_tensor(bucket, device)) for bucket in buckets]
        if not pairs.weights:
            return found[0]
        weights = [as_tensor(weight, device).unsqueeze(-1) for weight in pairs.weights]
        return torch.stack([f * w for f, w in zip(found, weights, strict=True)]).sum(dim=0)

    def _project(self, projection: nn.Module, normed: Tensor, is_first: Tensor) -> Tensor:
        if not isinstance(projection, NamedModules):
            shared: Tensor = projection(normed)
            return shared
        # As in rogue-net, see `NumpyRelpos`.
        total = torch.stack([each(normed) for _, each in projection.items()]).sum(dim=0)
        return total * is_first


@dataclass(frozen=True, slots=True)
class RelposTables:
    """Keys and values of all pairs of a batch: `(num_padded, max_length, max_length, d_head)`."""

    keys: Tensor
    values: Tensor
    encoding: RelposEncoding

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        x: Tensor,
        n_head: int,
        drop: nn.Dropout,
    ) -> Tensor:
        num_padded, length = self.keys.shape[:2]
        heads = q.view(num_padded, n_head, length, -1)
        logits = torch.bmm(q, k.transpose(1, 2)).view(num_padded, n_head, length, length)
        logits = logits + torch.einsum("bhqd,bqkd->bhqk", heads, self.keys)
        logits = logits / math.sqrt(q.shape[-1])
        if bias is not None:
            hidden = bias.view(num_padded, n_head, length, -1).transpose(2, 3)
            logits = logits + hidden
        attention = dropped(drop, torch.softmax(logits, dim=-1))
        values = self.values
        gate = self.encoding.gate(x)
        if gate is not None:
            values = values * gate.view(num_padded, 1, length, -1)
        y = torch.bmm(attention.flatten(0, 1), v).view(num_padded, n_head, length, -1)
        y = y + torch.einsum("bhqk,bqkd->bhqd", attention, values)
        return y.flatten(0, 1)


def _table(num_rows: int, width: int, deviation: float) -> nn.Embedding:
    table = nn.Embedding(num_rows, width)
    nn.init.normal_(table.weight, std=deviation)
    return table


def _projection(
    relpos: RelposEncodingConfig, names: Sequence[EntityName], d_head: int
) -> nn.Module:
    if relpos.per_entity_projections:
        return NamedModules({name: nn.Linear(3, d_head) for name in names})
    return nn.Linear(3, d_head)
