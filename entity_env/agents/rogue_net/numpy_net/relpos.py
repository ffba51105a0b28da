"""What attention knows of relative positions, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.numpy_net.functions import (
    CLIP,
    gelu,
    input_statistics,
    linear,
    relu,
    sigmoid,
)
from entity_env.agents.rogue_net.relpos import Pairs, Relpos
from entity_env.agents.rogue_net.weights import RELPOS
from entity_env.core.spaces import EntityName

Float: TypeAlias = NDArray[np.float32]


class NumpyRelpos:
    """Learned keys and values of relative positions, one table for all blocks and heads.

    Args:
        relpos: finds the buckets.
        tensors: those of the network.
    """

    def __init__(self, relpos: Relpos, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.relpos = relpos
        self._tensors = {
            name.removeprefix(RELPOS): tensor
            for name, tensor in tensors.items()
            if name.startswith(RELPOS)
        }

    def look_up(self, inputs: Mapping[EntityName, Float], layout: Layout) -> RelposArrays:
        """The keys and values of all pairs, once for all blocks."""
        positions = self.relpos.positions(inputs)
        shape = layout.num_padded, layout.max_length
        return self.of(self.relpos.pairs(positions.at(layout.source, shape)))

    def of(self, pairs: Pairs) -> RelposArrays:
        """The keys and values of these pairs."""
        keys = self._mixed("keys.weight", pairs.keys, pairs.weights)
        values = self._mixed("values.weight", pairs.values, pairs.weights)
        if pairs.relative is not None:
            config = self.relpos.config
            normed = self._normed(pairs.relative)
            if config.value_relpos_projection:
                values = values + self._projected("vproj", normed, pairs.is_first)
            if config.key_relpos_projection:
                keys = keys + self._projected("kproj", normed, pairs.is_first)
        return RelposArrays(keys, values, self)

    def gate(self, x: Float) -> Float | None:
        """`(…, d_model)` to what every target does to its values, `(…, d_head)`."""
        kind = self.relpos.config.value_gate
        if kind is None:
            return None
        return self.activate(linear(self._tensors, "value_gate_proj", x))

    def activate(self, gate: Float) -> Float:
        """The activation of the gate."""
        match self.relpos.config.value_gate:
            case "relu":
                return relu(gate)
            case "gelu":
                return gelu(gate)
            case "sigmoid":
                return sigmoid(gate)
            case _:
                return gate

    def _mixed(
        self, table: str, buckets: Sequence[NDArray[np.int64]], weights: Sequence[Float]
    ) -> Float:
        found = [self._tensors[table].take(bucket, axis=0) for bucket in buckets]
        if not weights:
            return found[0]
        mixed: Float = np.zeros_like(found[0])
        for each, weight in zip(found, weights, strict=True):
            mixed += each * weight[..., None]
        return mixed

    def _normed(self, relative: Float) -> Float:
        mean, deviation = input_statistics(self._tensors, "relpos_norm")
        normed: Float = np.clip((relative - mean) / deviation, -CLIP, CLIP)
        return normed

    def _projected(self, name: str, normed: Float, is_first: NDArray[np.bool_]) -> Float:
        if not self.relpos.config.per_entity_projections:
            return linear(self._tensors, name, normed)
        # rogue-net adds the projections of all types, for entities of the first type only.
        each = [
            linear(self._tensors, key.removesuffix(".weight"), normed)
            for key in self._tensors
            if key.startswith(f"{name}.") and key.endswith(".weight")
        ]
        total: Float = np.sum(each, axis=0) * is_first[:, :, None, None]
        return total


@dataclass(frozen=True, slots=True)
class RelposArrays:
    """Keys and values of all pairs of a batch: `(num_padded, max_length, max_length, d_head)`."""

    keys: Float
    table_values: Float
    relpos: NumpyRelpos

    def of_queries(self, rows: NDArray[np.int64]) -> RelposArrays:
        """Only what the entities `rows` see of all others."""
        return RelposArrays(self.keys[:, rows], self.table_values[:, rows], self.relpos)

    def logits(self, q: Float) -> Float:
        """What queries `(num_padded, n_head, max_length, d_head)` add to their logits, unscaled."""
        return (self.keys @ q.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    def values(self, attention: Float, x: Float) -> Float:
        """What attention `(num_padded, n_head, max_length, max_length)` adds to its result.

        Args:
            attention: how much each entity looks at every other.
            x: `(num_padded, max_length, d_model)`, what the block's attention reads.
        """
        return self.gated(attention, self.relpos.gate(x))

    def gated(self, attention: Float, gate: Float | None) -> Float:
        """The same, with the gate `(num_padded, max_length, d_head)` of every target."""
        values: Float = self.table_values
        if gate is not None:
            values = values * gate[:, None]
        added: Float = attention.transpose(0, 2, 1, 3) @ values
        return added.transpose(0, 2, 1, 3)
