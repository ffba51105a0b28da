"""Attention with relative positions, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.config import RelposEncodingConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import (
    linear,
    normalize_features,
    product,
    relu,
    sigmoid,
    table_gelu,
)
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.agents.rogue_net.weights import RELPOS, Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName


class NumpyRelpos:
    """Learned keys and values of relative positions, one table for all blocks and heads.

    Args:
        config: the options.
        features: per entity type the features that the network reads.
        tensors: the parameters of the network.
    """

    def __init__(
        self,
        config: RelposEncodingConfig,
        features: Mapping[EntityName, Sequence[str]],
        tensors: Mapping[str, NDArray[Any]],
    ) -> None:
        self._config = config
        self._relpos = Relpos(config, features)
        self._tensors = {
            name.removeprefix(RELPOS): tensor
            for name, tensor in tensors.items()
            if name.startswith(RELPOS)
        }

    @classmethod
    def of(cls, weights: Weights, inputs: Inputs) -> NumpyRelpos | None:
        """That of a network; None if it has none."""
        config = weights.rogue_net_config().relpos_encoding
        return None if config is None else cls(config, inputs.features, weights.tensors)

    def look_up(
        self, inputs: Mapping[EntityName, Floats], layout: Layout | None = None
    ) -> RelposArrays:
        """The keys and values of all pairs; arguments as for `Relpos.buckets`."""
        found = self._relpos.buckets(inputs, layout)
        keys = self._mixed("keys.weight", found.keys, found.weights)
        values = self._mixed("values.weight", found.values, found.weights)
        if found.relative is not None:
            normed = normalize_features(self._tensors, "relpos_norm", found.relative)
            if self._config.value_relpos_projection:
                values = values + self._projected("vproj", normed, found.is_first)
            if self._config.key_relpos_projection:
                keys = keys + self._projected("kproj", normed, found.is_first)
        return RelposArrays(keys, values, self)

    def gate(self, x: Floats) -> Floats | None:
        """`(…, d_model)` to the gate of the values of every key, `(…, d_head)`."""
        if self._config.value_gate is None:
            return None
        return self.activate(linear(self._tensors, "value_gate_proj", x))

    def activate(self, gate: Floats) -> Floats:
        """The activation of the gate."""
        match self._config.value_gate:
            case "relu":
                return relu(gate)
            case "gelu":
                return table_gelu(gate)
            case "sigmoid":
                return sigmoid(gate)
            case _:
                return gate

    def _mixed(
        self, table: str, buckets: Sequence[NDArray[np.int64]], weights: Sequence[Floats]
    ) -> Floats:
        found = [self._tensors[table].take(bucket, axis=0) for bucket in buckets]
        if not weights:
            return found[0]
        mixed: Floats = np.zeros_like(found[0])
        for each, weight in zip(found, weights, strict=True):
            mixed += each * weight[..., None]
        return mixed

    def _projected(self, name: str, normed: Floats, is_first: NDArray[np.bool_]) -> Floats:
        if not self._config.per_entity_projections:
            return linear(self._tensors, name, normed)
        # rogue-net adds the projections of all types, for entities of the first type only.
        each = [
            linear(self._tensors, key.removesuffix(".weight"), normed)
            for key in self._tensors
            if key.startswith(f"{name}.") and key.endswith(".weight")
        ]
        total: Floats = np.sum(each, axis=0) * is_first[:, :, None, None]
        return total


@dataclass(frozen=True, slots=True)
class RelposArrays:
    """Keys and values of all pairs of a batch: `(num_padded, max_length, max_length, d_head)`."""

    keys: Floats
    table_values: Floats
    relpos: NumpyRelpos

    def of_queries(self, rows: NDArray[np.int64]) -> RelposArrays:
        """Those of the queries `rows` and all keys."""
        return RelposArrays(self.keys[:, rows], self.table_values[:, rows], self.relpos)

    def logits(self, q: Floats) -> Floats:
        """Unscaled logits to add, for queries `(num_padded, n_head, max_length, d_head)`."""
        return product(self.keys, q.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    def values(self, attention: Floats, gate: Floats | None) -> Floats:
        """Values to add to the result of attention."""
        values: Floats = self.table_values
        if gate is not None:
            values = values * gate[:, None]
        added = product(attention.transpose(0, 2, 1, 3), values)
        return added.transpose(0, 2, 1, 3)
