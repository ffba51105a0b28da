"""RogueNet for one observation at a time, in as few calls of numpy as possible.

With ten entities a call of numpy takes longer than its arithmetic, so everything that does not
depend on the observation is fused into the parameters once:

- Embeddings: the features of all types are columns of one matrix, with one more column per type
  that is 1 for its entities. One product applies the linear layers of all types.
- A layer norm and the linear layer after it are `x @ A / deviation + b`: subtracting the mean is
  linear, so it is in `A`, and the scale and shift of the norm are in `A` and `b`. The last columns
  of the same product are `x @ (1 - 1/d) / sqrt(d)`, whose squares add up to the variance.
- Values have a column of ones behind each head, so that the product with unnormalized attention
  also gives its sum, and the bias of the projection after it is a row of a matrix.
- The hidden layer has a constant unit for the bias of the next one, and is scaled for the table
  of the GELU.

`net` is the same network in plain steps; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import (
    CLIP,
    EPSILON,
    HIDDEN,
    SCALE,
    SHIFT,
    gelu_of_scaled,
    input_statistics,
    product,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos, RelposArrays
from entity_env.agents.rogue_net.weights import RELPOS, Weights
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName, SelectEntityActionSpace

Float: TypeAlias = NDArray[np.float32]
Double: TypeAlias = NDArray[np.float64]

_row_dot: Callable[[Float, Float], Float] = getattr(np, "vecdot", partial(np.einsum, "ij,ij->i"))
"""Dot products of rows. Five of them are a tenth of a decision by `einsum`, which numpy 1 has."""
_CONSTANT: Final = 8.0
"""The constant hidden unit, before and after the GELU."""
_MIN_SUM: Final = 1e-25
_MAX_SUM: Final = 1e30
"""Sums of unnormalized attention between these are exact enough; others are computed again."""


class _Columns(NamedTuple):
    """Columns of one entity type in the matrix of all features."""

    name: EntityName
    own: slice
    shared: slice
    mark: int
    """Column that is 1 for entities of this type."""
    own_mean: Float
    shared_mean: Float


class _Normed(NamedTuple):
    """A layer norm with the linear layer after it."""

    matrix: Float
    """`(d_model, width + d_model)`"""
    bias: Float
    """`(width,)`"""
    width: int


class _FusedBlock(NamedTuple):
    """One block of the transformer, with biases as rows of the matrices that add them."""

    attention: _Normed
    projection: Float
    hidden: _Normed
    output: Float


class FusedNet:
    """Embeddings and logits of one observation.

    It is immutable: several agents may share one, on any thread.

    Args:
        weights: as for `NumpyNet`.

    Raises:
        SchemaError: no network has such spaces and options.
    """

    def __init__(self, weights: Weights) -> None:
        self.config = config = weights.rogue_net_config()
        self._inputs = Inputs(weights.obs_space, weights.action_space, config.translation)
        tensors: dict[str, NDArray[np.float64]] = {
            name: tensor.astype(np.float64) for name, tensor in weights.tensors.items()
        }
        relpos = config.relpos_encoding
        self._relpos = NumpyRelpos.of(weights, self._inputs)
        # Options need all features of an entity in one array; else they go straight to `_embed`.
        self._is_joined = relpos is not None or config.translation is not None
        num_shared = 0 if self._is_joined else len(weights.obs_space.global_features)
        self._columns = _entity_columns(self._inputs, weights.tensors, num_shared)
        self._inverse, self._embedding = _fuse_embedding(self._inputs, tensors, self.config.d_model)
        self._centering = _f32(_centering(self.config.d_model) / math.sqrt(self.config.d_model))
        self._blocks = [_fuse_block(self.config, tensors, i) for i in range(self.config.n_layer)]
        self._labels = {
            name: (
                _f32(tensors[f"action_heads.{name}.proj.weight"].T),
                _f32(tensors[f"action_heads.{name}.proj.bias"]),
            )
            for name, space in weights.action_space.items()
            if not isinstance(space, SelectEntityActionSpace)
        }
        self._selects = {
            name: _fuse_select(tensors, name, self.config.d_qk)
            for name, space in weights.action_space.items()
            if isinstance(space, SelectEntityActionSpace)
        }

    def encode(
        self,
        own: Mapping[EntityName, Float],
        shared: Float,
        visible: NDArray[np.bool_] | None = None,
        wanted: NDArray[np.int64] | None = None,
    ) -> Float | None:
        """Embeddings of the entities, type after type."""
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
            tables = None if self._relpos is None else self._relpos.look_up(arrays)
            bias = None if visible is None else _hidden(visible)
            for block in self._blocks[:-1]:
                x += self._attend(block, x, bias, tables)
                x += self._mlp(block, x)
            rows = None if wanted is None or len(wanted) >= len(x) else wanted
            for block in self._blocks[-1:]:
                mixed = self._attend(block, x, bias, tables, rows)
                x = mixed + (x if rows is None else x.take(rows, axis=0))
                x += self._mlp(block, x)
        if wanted is None or (rows is not None and self._blocks):
            return x
        return x.take(wanted, axis=0)

    def score_labels(self, name: ActionName, actors: Float) -> Float:
        """`(num_actors, num_labels)` logits, or means of a continuous action."""
        weight, bias = self._labels[name]
        logits = product(actors, weight)
        logits += bias
        return logits

    def score_actees(self, name: ActionName, actors: Float, actees: Float) -> Float:
        """`(num_actors, num_actees)` logits."""
        query, query_bias, key, key_bias = self._selects[name]
        queries = product(actors, query)
        queries += query_bias
        keys = product(actees, key)
        keys += key_bias
        return product(queries, keys.T)

    def _embed(self, arrays: Mapping[EntityName, Float], shared: Float) -> Float | None:
        num_entities = sum(map(len, arrays.values()))
        if not num_entities:
            return None
        wide = np.zeros((num_entities, len(self._embedding)), dtype=np.float32)
        stop = 0
        for name, own, common, mark, own_mean, shared_mean in self._columns:
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
        parts = product(wide, self._embedding)
        x = product(np.maximum(parts[:, :d_model], np.float32(0)), self._centering)
        x /= _deviation(x)
        x *= parts[:, d_model : 2 * d_model]
        x += parts[:, 2 * d_model :]
        return x

    def _attend(
        self,
        block: _FusedBlock,
        x: Float,
        bias: Float | None,
        tables: RelposArrays | None,
        rows: NDArray[np.int64] | None = None,
    ) -> Float:
        """Attention of every entity, or of the entities `rows`."""
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
        logits = product(q, k)
        if tables is not None:
            logits += tables.logits(q[None])[0]
        if bias is not None:
            logits += bias
        raised = np.exp(logits)
        y = product(raised, v)
        total = y[:, :, d_head:]
        if not (
            np.minimum.reduce(total, axis=None) > _MIN_SUM
            and np.maximum.reduce(total, axis=None) < _MAX_SUM
        ):
            logits -= logits.max(axis=2, keepdims=True)
            raised = np.exp(logits)
            y = product(raised, v)
            total = y[:, :, d_head:]
        if tables is not None:
            gate = normed[None, :, n_head * (3 * d_head + 1) :]
            gated = tables.relpos.activate(gate) if gate.shape[2] else None
            y[:, :, :d_head] += tables.values(raised[None], gated)[0]
        mixed = np.empty((y.shape[1], n_head, d_head + 1), dtype=np.float32)
        np.divide(y, total, out=mixed.transpose(1, 0, 2))
        return product(mixed.reshape(len(mixed), -1), block.projection)

    def _mlp(self, block: _FusedBlock, x: Float) -> Float:
        return product(gelu_of_scaled(_norm(block.hidden, x)), block.output)


def _deviation(centered: Float) -> Float:
    """`(num_entities, 1)` of rows that are centered and divided by the root of their length."""
    variance = _row_dot(centered, centered)
    variance += EPSILON
    return np.sqrt(variance, out=variance)[:, None]


def _norm(layer: _Normed, x: Float) -> Float:
    parts = product(x, layer.matrix)
    normed: Float = parts[:, : layer.width] / _deviation(parts[:, layer.width :])
    normed += layer.bias
    return normed


def _hidden(visible: NDArray[np.bool_]) -> Float | None:
    """Bias of the logits, `(num_entities, num_entities)`, query first; None = nothing is hidden."""
    if visible.all():
        return None
    hidden: NDArray[np.bool_] = visible[:, None] & ~visible
    bias: Float = hidden * HIDDEN
    return bias


def _entity_columns(
    inputs: Inputs, tensors: Mapping[str, NDArray[Any]], num_shared: int
) -> list[_Columns]:
    """Columns of every type, in order; the last `num_shared` features are the global ones."""
    found: list[_Columns] = []
    start, num_columns = 0, sum(inputs.widths.values())
    for number, (name, width) in enumerate(inputs.widths.items()):
        middle, stop = start + width - num_shared, start + width
        mean = np.zeros(0, dtype=np.float32)
        if width:
            mean, _ = input_statistics(tensors, f"embedding.embeddings.{name}.0")
        found.append(
            _Columns(
                name,
                slice(start, middle),
                slice(middle, stop),
                num_columns + number,
                mean[: middle - start],
                mean[middle - start :],
            )
        )
        start = stop
    return found


def _fuse_embedding(
    inputs: Inputs, tensors: Mapping[str, Double], d_model: int
) -> tuple[Float, Float]:
    """Inverse deviations of all features, and one matrix for all types.

    Its columns are the linear layer, then the scale and the shift of the layer norm, which depend
    on the type alone. A type without features has only the shift.
    """
    num_columns = sum(inputs.widths.values())
    inverse = np.ones(num_columns + len(inputs.names))
    matrix = np.zeros((num_columns + len(inputs.names), 3, d_model))
    start = 0
    for number, (name, width) in enumerate(inputs.widths.items()):
        mark, prefix = num_columns + number, f"embedding.embeddings.{name}"
        if not width:
            matrix[mark, 2] = tensors[f"{prefix}.embedding"][0]
            continue
        _, deviation = input_statistics(tensors, f"{prefix}.0")
        inverse[start : start + width] = 1.0 / deviation
        matrix[start : start + width, 0] = tensors[f"{prefix}.1.weight"].T
        matrix[mark] = [
            tensors[f"{prefix}.1.bias"],
            tensors[f"{prefix}.3.weight"] * math.sqrt(d_model),  # the divisor of `_centering`
            tensors[f"{prefix}.3.bias"],
        ]
        start += width
    return _f32(inverse), _f32(matrix.reshape(len(matrix), -1))


def _fuse_block(config: RogueNetConfig, tensors: Mapping[str, Double], i: int) -> _FusedBlock:
    """_FusedBlock `i` of the transformer."""
    prefix = f"backbone.blocks.{i}"
    width = config.d_head + 1
    projection = np.zeros((config.n_head, width, config.d_model))
    projection[:, :-1] = tensors[f"{prefix}.attn.proj.weight"].T.reshape(
        config.n_head, config.d_head, config.d_model
    )
    projection[0, -1] = tensors[f"{prefix}.attn.proj.bias"]
    output = tensors[f"{prefix}.mlp.2.weight"].T
    output_bias = tensors[f"{prefix}.mlp.2.bias"] / _CONSTANT
    hidden_weight = tensors[f"{prefix}.mlp.0.weight"].T * SCALE
    hidden_bias = tensors[f"{prefix}.mlp.0.bias"] * SCALE + SHIFT
    constant = np.zeros((config.d_model, 1)), [_CONSTANT * SCALE + SHIFT]
    return _FusedBlock(
        attention=_fuse_norm(tensors, f"{prefix}.ln1", *_attention(config, tensors, prefix)),
        projection=_f32(projection.reshape(-1, config.d_model)),
        hidden=_fuse_norm(
            tensors,
            f"{prefix}.ln2",
            np.concatenate((hidden_weight, constant[0]), axis=1),
            np.concatenate((hidden_bias, constant[1])),
        ),
        output=_f32(np.concatenate((output, output_bias[None]))),
    )


def _attention(
    config: RogueNetConfig, tensors: Mapping[str, Double], prefix: str
) -> tuple[Double, Double]:
    """Query, key, value and a one, head after head; then the gate of relative positions, if any."""
    scale = 1.0 / math.sqrt(config.d_head)
    weights: list[Double] = []
    biases: list[Double] = []
    for head in range(config.n_head):
        rows = slice(head * config.d_head, (head + 1) * config.d_head)
        for part, factor in (("query", scale), ("key", 1.0), ("value", 1.0)):
            weights.append(tensors[f"{prefix}.attn.{part}.weight"][rows].T * factor)
            biases.append(tensors[f"{prefix}.attn.{part}.bias"][rows] * factor)
        weights.append(np.zeros((config.d_model, 1)))
        biases.append(np.ones(1))
    if config.relpos_encoding is not None and config.relpos_encoding.value_gate is not None:
        weights.append(tensors[f"{RELPOS}value_gate_proj.weight"].T)
        biases.append(tensors[f"{RELPOS}value_gate_proj.bias"])
    return np.concatenate(weights, axis=1), np.concatenate(biases)


def _fuse_norm(
    tensors: Mapping[str, Double],
    norm: str,
    weight: Double,
    bias: Double,
) -> _Normed:
    d_model = len(weight)
    centered = _centering(d_model)
    scaled = tensors[f"{norm}.weight"][:, None] * weight
    matrix = np.concatenate((centered @ scaled, centered / math.sqrt(d_model)), axis=1)
    return _Normed(_f32(matrix), _f32(tensors[f"{norm}.bias"] @ weight + bias), len(bias))


def _centering(d_model: int) -> Double:
    """Matrix that subtracts the mean of a row."""
    return np.eye(d_model) - 1.0 / d_model


def _fuse_select(
    tensors: Mapping[str, Double], name: ActionName, d_qk: int
) -> tuple[Float, Float, Float, Float]:
    """Weight and bias of the scaled queries, and of the keys."""
    prefix, scale = f"action_heads.{name}", 1.0 / math.sqrt(d_qk)
    return (
        _f32(tensors[f"{prefix}.query_proj.weight"].T * scale),
        _f32(tensors[f"{prefix}.query_proj.bias"] * scale),
        _f32(tensors[f"{prefix}.key_proj.weight"].T),
        _f32(tensors[f"{prefix}.key_proj.bias"]),
    )


def _f32(array: Double) -> Float:
    """Contiguous, as float32."""
    return np.ascontiguousarray(array, dtype=np.float32)
