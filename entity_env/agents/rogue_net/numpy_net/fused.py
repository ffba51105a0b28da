"""RogueNet for one observation at a time, in as few calls of numpy as possible.

Ten entities keep numpy busy for less time than it takes to call it, so everything that does not
depend on the observation is worked into the parameters once: normalization into the layers that
follow it, biases into matrix products, the embeddings of all types into one matrix.

- A layer norm followed by a linear layer is `x @ A / deviation + b`: subtracting the mean is
  linear, so it is in `A`, and the scale and shift of the norm are in `A` and `b`. The same product
  has `x @ (1 - 1/d) / sqrt(d)` as its last columns, whose squares add up to the variance.
- Values have a column of ones behind each head, so that the product with unnormalized attention
  gives its sum too, and the bias of the projection after it is a row of a matrix.
- The hidden layer has a constant unit for the bias of the next one, and comes scaled as the table
  of the GELU wants it.

`numpy_net` is the same network in plain steps; tests hold the two side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import (
    CLIP,
    EPSILON,
    gelu_of_scaled,
)
from entity_env.agents.rogue_net.numpy_net.fused_parameters import (
    Block,
    Normed,
    centering,
    f32,
    find_kinds,
    fuse_block,
    fuse_embedding,
    fuse_select,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos, RelposArrays
from entity_env.agents.rogue_net.relpos import Relpos
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName, SelectEntityActionSpace

Float: TypeAlias = NDArray[np.float32]

_row_dot: Callable[[Float, Float], Float] = getattr(np, "vecdot", partial(np.einsum, "ij,ij->i"))
"""Dot products of rows. Five of them are a tenth of a decision by `einsum`, which numpy 1 has."""
_HIDDEN: Final = np.float32(-1e9)
_MIN_SUM: Final = 1e-25
_MAX_SUM: Final = 1e30
"""Sums of unnormalized attention between these are exact enough; others are computed anew."""


class FusedNet:
    """Encodes one observation, and scores what its actors may choose.

    Nothing changes it, so several agents may share one, on any thread.

    Args:
        weights: the network, which fits its own description.

    Raises:
        SchemaError: no network has such spaces and options.
    """

    def __init__(self, weights: Weights) -> None:
        self.config = weights.config
        self._inputs = Inputs(weights.obs_space, weights.action_space, weights.config.translation)
        tensors: dict[str, NDArray[np.float64]] = {
            name: tensor.astype(np.float64) for name, tensor in weights.tensors.items()
        }
        relpos = weights.config.relpos_encoding
        self._relpos: NumpyRelpos | None = None
        if relpos is not None:
            geometry = Relpos(relpos, self._inputs.features)
            self._relpos = NumpyRelpos(geometry, weights.tensors)
        # Options need all features of an entity in one array; else they go straight to `_embed`.
        self._is_joined = relpos is not None or weights.config.translation is not None
        num_shared = 0 if self._is_joined else len(weights.obs_space.global_features)
        self._kinds = find_kinds(self._inputs, weights.tensors, num_shared)
        self._inverse, self._embedding = fuse_embedding(self._inputs, tensors, self.config.d_model)
        self._centering = f32(centering(self.config.d_model) / math.sqrt(self.config.d_model))
        self._blocks = [fuse_block(self.config, tensors, i) for i in range(self.config.n_layer)]
        self._labels = {
            name: (
                f32(tensors[f"action_heads.{name}.proj.weight"].T),
                f32(tensors[f"action_heads.{name}.proj.bias"]),
            )
            for name, space in weights.action_space.items()
            if not isinstance(space, SelectEntityActionSpace)
        }
        self._selects = {
            name: fuse_select(tensors, name, self.config.d_qk)
            for name, space in weights.action_space.items()
            if isinstance(space, SelectEntityActionSpace)
        }
        self._value = (
            f32(tensors["auxiliary_heads.value.weight"][0]),
            float(tensors["auxiliary_heads.value.bias"][0]),
        )

    def encode(
        self,
        own: Mapping[EntityName, Float],
        shared: Float,
        visible: NDArray[np.bool_] | None = None,
        wanted: NDArray[np.int64] | None = None,
    ) -> Float | None:
        """The vector of every entity, `(num_entities, d_model)`, type after type.

        Args:
            own: per type `(num_entities, num_features)` float32; types without entities may be
                left out. Only read.
            shared: `(num_global_features,)` float32.
            visible: `(num_entities,)` bool, with `GLOBAL_ENTITY` if there is one; None = all are.
            wanted: `(num_wanted,)` index of the entities whose vectors are asked for, in any order:
                the last block is spared the others. None = all.

        Returns:
            `(num_wanted, d_model)`, or of all entities;
            None when there is no entity, or a feature is not finite.

        Raises:
            SchemaError: not exactly one entity that the others are placed around.
        """
        if not self._is_joined:
            arrays = own
            if GLOBAL_ENTITY in self._inputs.features:
                arrays = {**own, GLOBAL_ENTITY: np.zeros((1, 0), dtype=np.float32)}
        else:
            arrays = self._inputs.of_one(own, shared)
        with np.errstate(all="ignore"):
            x = self._embed(arrays, shared)
            if x is None:
                return None
            tables = None if self._relpos is None else _look_up(self._relpos, arrays)
            bias = None if visible is None else _hidden(visible)
            for block in self._blocks[:-1]:
                x += self._attend(block, x, bias, tables)
                x += self._think(block, x)
            rows = None if wanted is None or len(wanted) >= len(x) else wanted
            for block in self._blocks[-1:]:
                mixed = self._attend(block, x, bias, tables, rows)
                x = mixed + (x if rows is None else x.take(rows, axis=0))
                x += self._think(block, x)
        if wanted is None or (rows is not None and self._blocks):
            return x
        return x.take(wanted, axis=0)

    def score_labels(self, name: ActionName, actors: Float) -> Float:
        """`(num_actors, num_labels)` logits, or means of real numbers, for vectors of actors."""
        weight, bias = self._labels[name]
        logits: Float = actors @ weight
        logits += bias
        return logits

    def score_actees(self, name: ActionName, actors: Float, actees: Float) -> Float:
        """`(num_actors, num_actees)` logits, for vectors of actors and actees."""
        query, query_bias, key, key_bias = self._selects[name]
        queries = actors @ query
        queries += query_bias
        keys = actees @ key
        keys += key_bias
        logits: Float = queries @ keys.T
        return logits

    def value(self, x: Float) -> float:
        """The discounted reward that the network expects."""
        weight, bias = self._value
        return float(x.mean(axis=0) @ weight) + bias

    def _embed(self, arrays: Mapping[EntityName, Float], shared: Float) -> Float | None:
        num_entities = sum(map(len, arrays.values()))
        if not num_entities:
            return None
        wide = np.zeros((num_entities, len(self._embedding)), dtype=np.float32)
        stop = 0
        for name, own, common, mark, own_mean, shared_mean in self._kinds:
            array = arrays.get(name)
            if array is None or not len(array):
                continue
            start, stop = stop, stop + len(array)
            rows = wide[start:stop]
            np.subtract(array, own_mean, out=rows[:, own])
            if len(shared_mean):
                np.subtract(shared, shared_mean, out=rows[:, common])
            rows[:, mark] = 1.0
        if not math.isfinite(np.add.reduce(wide, axis=None)):
            return None
        wide *= self._inverse
        np.maximum(wide, -CLIP, out=wide)
        np.minimum(wide, CLIP, out=wide)
        d_model = self.config.d_model
        product = wide @ self._embedding
        x: Float = np.maximum(product[:, :d_model], np.float32(0)) @ self._centering
        x /= _deviation(x)
        x *= product[:, d_model : 2 * d_model]
        x += product[:, 2 * d_model :]
        return x

    def _attend(
        self,
        block: Block,
        x: Float,
        bias: Float | None,
        tables: RelposArrays | None,
        rows: NDArray[np.int64] | None = None,
    ) -> Float:
        """What attention adds to every entity, or to the entities `rows`."""
        n_head, d_head, length = self.config.n_head, self.config.d_head, len(x)
        normed = _norm(block.attention, x)
        heads = normed[:, : n_head * (3 * d_head + 1)].reshape(length, n_head, -1)
        heads = heads.transpose(1, 0, 2)
        q, v = heads[:, :, :d_head], heads[:, :, 2 * d_head :]
        k = heads[:, :, d_head : 2 * d_head].transpose(0, 2, 1)
        if rows is not None:
            q = q[:, rows]
            bias = None if bias is None else bias[rows]
            tables = None if tables is None else tables.of_queries(rows)
        logits = np.matmul(q, k)
        if tables is not None:
            logits += tables.logits(q[None])[0]
        if bias is not None:
            logits += bias
        raised = np.exp(logits)
        y = np.matmul(raised, v)
        total = y[:, :, d_head:]
        if not (
            np.minimum.reduce(total, axis=None) > _MIN_SUM
            and np.maximum.reduce(total, axis=None) < _MAX_SUM
        ):
            logits -= logits.max(axis=2, keepdims=True)
            raised = np.exp(logits)
            y = np.matmul(raised, v)
            total = y[:, :, d_head:]
        if tables is not None:
            gate = normed[None, :, n_head * (3 * d_head + 1) :]
            gated = tables.relpos.activate(gate) if gate.shape[2] else None
            y[:, :, :d_head] += tables.gated(raised[None], gated)[0]
        mixed = np.empty((y.shape[1], n_head, d_head + 1), dtype=np.float32)
        np.divide(y, total, out=mixed.transpose(1, 0, 2))
        result: Float = mixed.reshape(len(mixed), -1) @ block.projection
        return result

    def _think(self, block: Block, x: Float) -> Float:
        result: Float = gelu_of_scaled(_norm(block.hidden, x)) @ block.output
        return result


def _deviation(centered: Float) -> Float:
    """`(num_entities, 1)`: of rows that are centered and divided by the root of their length."""
    variance = _row_dot(centered, centered)
    variance += EPSILON
    return np.sqrt(variance, out=variance)[:, None]


def _norm(layer: Normed, x: Float) -> Float:
    product = x @ layer.matrix
    normed: Float = product[:, : layer.width] / _deviation(product[:, layer.width :])
    normed += layer.bias
    return normed


def _hidden(visible: NDArray[np.bool_]) -> Float | None:
    """What is added to logits, query before key; None when nothing is hidden."""
    if visible.all():
        return None
    hidden: NDArray[np.bool_] = visible[:, None] & ~visible
    bias: Float = hidden * _HIDDEN
    return bias


def _look_up(relpos: NumpyRelpos, arrays: Mapping[EntityName, Float]) -> RelposArrays:
    positions = relpos.relpos.positions(arrays)
    count = len(positions.kind)
    return relpos.of(relpos.relpos.pairs(positions.at(np.arange(count), (1, count))))
