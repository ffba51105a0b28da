"""The parameters of a RogueNet, made ready for `numpy_fused`: see there for what is fused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import SCALE, SHIFT, input_statistics
from entity_env.agents.rogue_net.weights import RELPOS
from entity_env.core.spaces import ActionName, EntityName

Float: TypeAlias = NDArray[np.float32]
Double: TypeAlias = NDArray[np.float64]

_CONSTANT: Final = 8.0
"""What the constant hidden unit is before and after the GELU."""


class Kind(NamedTuple):
    """Where one type of entity lies in the matrix of all features."""

    name: EntityName
    own: slice
    shared: slice
    mark: int
    """Column that is 1 for entities of this type."""
    own_mean: Float
    shared_mean: Float


class Normed(NamedTuple):
    """A layer norm with the linear layer behind it."""

    matrix: Float
    """`(d_model, width + d_model)`"""
    bias: Float
    """`(width,)`"""
    width: int


class Block(NamedTuple):
    """One block of the transformer, with biases as rows of the matrices they are added by."""

    attention: Normed
    projection: Float
    hidden: Normed
    output: Float


def find_kinds(inputs: Inputs, tensors: Mapping[str, NDArray[Any]], num_shared: int) -> list[Kind]:
    """The types of entities, in order; their last `num_shared` features come from elsewhere."""
    kinds: list[Kind] = []
    start, num_columns = 0, sum(inputs.widths.values())
    for number, (name, width) in enumerate(inputs.widths.items()):
        middle, stop = start + width - num_shared, start + width
        mean = np.zeros(0, dtype=np.float32)
        if width:
            mean, _ = input_statistics(tensors, f"embedding.embeddings.{name}.0")
        kinds.append(
            Kind(
                name,
                slice(start, middle),
                slice(middle, stop),
                num_columns + number,
                mean[: middle - start],
                mean[middle - start :],
            )
        )
        start = stop
    return kinds


def fuse_embedding(
    inputs: Inputs, tensors: Mapping[str, Double], d_model: int
) -> tuple[Float, Float]:
    """Inverse deviations of all features, and one matrix for all types.

    Its columns are the linear layer, then the scale and the shift of the layer norm, which follow
    from the type alone. A type without features is all shift.
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
            tensors[f"{prefix}.3.weight"] * math.sqrt(d_model),  # what `_centering` divides by
            tensors[f"{prefix}.3.bias"],
        ]
        start += width
    return f32(inverse), f32(matrix.reshape(len(matrix), -1))


def fuse_block(config: RogueNetConfig, tensors: Mapping[str, Double], i: int) -> Block:
    """Block `i` of the transformer."""
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
    return Block(
        attention=_normed(tensors, f"{prefix}.ln1", *_attention(config, tensors, prefix)),
        projection=f32(projection.reshape(-1, config.d_model)),
        hidden=_normed(
            tensors,
            f"{prefix}.ln2",
            np.concatenate((hidden_weight, constant[0]), axis=1),
            np.concatenate((hidden_bias, constant[1])),
        ),
        output=f32(np.concatenate((output, output_bias[None]))),
    )


def _attention(
    config: RogueNetConfig, tensors: Mapping[str, Double], prefix: str
) -> tuple[Double, Double]:
    """Head after head query, key, value and a one; then the gate of relative positions, if any."""
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


def _normed(
    tensors: Mapping[str, Double],
    norm: str,
    weight: Double,
    bias: Double,
) -> Normed:
    d_model = len(weight)
    centered = centering(d_model)
    scaled = tensors[f"{norm}.weight"][:, None] * weight
    matrix = np.concatenate((centered @ scaled, centered / math.sqrt(d_model)), axis=1)
    return Normed(f32(matrix), f32(tensors[f"{norm}.bias"] @ weight + bias), len(bias))


def centering(d_model: int) -> Double:
    """Subtracts from every number of a row their mean."""
    return np.eye(d_model) - 1.0 / d_model


def fuse_select(
    tensors: Mapping[str, Double], name: ActionName, d_qk: int
) -> tuple[Float, Float, Float, Float]:
    """Weight and bias of queries, which are scaled, and of keys."""
    prefix, scale = f"action_heads.{name}", 1.0 / math.sqrt(d_qk)
    return (
        f32(tensors[f"{prefix}.query_proj.weight"].T * scale),
        f32(tensors[f"{prefix}.query_proj.bias"] * scale),
        f32(tensors[f"{prefix}.key_proj.weight"].T),
        f32(tensors[f"{prefix}.key_proj.bias"]),
    )


def f32(array: Double) -> Float:
    """As float32, in one piece."""
    return np.ascontiguousarray(array, dtype=np.float32)
