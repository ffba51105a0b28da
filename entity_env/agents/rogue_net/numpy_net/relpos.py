"""Attention with relative positions, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.config import RelposEncodingConfig
from entity_env.agents.rogue_net.numpy_net.functions import InputScale, linear, product
from entity_env.agents.rogue_net.operations import Operation, projections
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName


class NumpyRelpos:
    """Keys and values of a `positions` operation, shared by all blocks and heads."""

    def __init__(self, operation: Operation, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._config = RelposEncodingConfig(**operation.constants["options"])
        self._relpos = Relpos(self._config, operation.constants["features"])
        self.names: list[EntityName] = [*operation.constants["features"]]
        self._tensors = operation.of(tensors)
        self._norm: InputScale | None = None
        if self._config.has_projection:
            parts = ("count", "mean", "squares_sum")
            self._norm = InputScale({part: self._tensors[f"relpos_norm.{part}"] for part in parts})

    def look_up(
        self, inputs: Mapping[EntityName, Floats], layout: Layout | None = None
    ) -> RelposArrays:
        """The keys and values of all pairs; arguments as for `Relpos.buckets`."""
        found = self._relpos.buckets(inputs, layout)
        keys = self._mixed("keys.weight", found.keys, found.weights)
        values = self._mixed("values.weight", found.values, found.weights)
        if found.relative is not None and self._norm is not None:
            normed = self._norm(found.relative)
            if self._config.value_relpos_projection:
                values = values + self._projected("vproj", normed, found.is_first)
            if self._config.key_relpos_projection:
                keys = keys + self._projected("kproj", normed, found.is_first)
        return RelposArrays(keys, values)

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
        each = [
            linear(normed, self._tensors[f"{layer}weight"], self._tensors[f"{layer}bias"])
            for layer in projections(self._config, self.names)
            if layer.startswith(name)
        ]
        if not self._config.per_entity_projections:
            return each[0]
        # As in rogue-net: the sum of all types' projections, only for queries of the first type.
        total: Floats = np.sum(each, axis=0) * is_first[:, :, None, None]
        return total


@dataclass(frozen=True, slots=True)
class RelposArrays:
    """Keys and values of all pairs of a batch: `(num_padded, max_length, max_length, d_head)`."""

    keys: Floats
    table_values: Floats

    def of_queries(self, rows: NDArray[np.int64]) -> RelposArrays:
        return RelposArrays(self.keys[:, rows], self.table_values[:, rows])

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
