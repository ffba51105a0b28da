"""RogueNet for one observation at a time, in as few calls of numpy as possible.

With ten entities a call of numpy takes longer than its arithmetic, so everything that does not
depend on the observation is fused into the parameters once:

- Embeddings: the features of all types are columns of one matrix, with one more column per type
  that is 1 for its entities. One product applies the linear layers of all types.
- Layer norms subtract the mean of a row, which is linear: whatever adds to a state adds numbers of
  mean 0, and the mean to a column of its own. Scale and shift are in the matrix after the norm.
- Values have a column of ones behind each head, so that the product with unnormalized attention
  also gives its sum, and the bias of the projection after it is a row of a matrix.
- Attention of few entities compares normed states with each other: the keys' matrix is in that of
  the queries, and the values' matrix in that of the projection.
- The hidden layer has a constant unit for the bias of the next one, and is scaled for the table
  of the GELU.

`plan` lays out the calls; `net` is the same network in plain steps; tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import Inputs
from entity_env.agents.rogue_net.numpy_net.functions import (
    CLIP,
    EPSILON,
    SCALE,
    SHIFT,
    input_statistics,
    product,
)
from entity_env.agents.rogue_net.numpy_net.plan import (
    Block,
    Buffers,
    Columns,
    Embedding,
    Parameters,
    Plan,
    Size,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos
from entity_env.agents.rogue_net.weights import RELPOS, Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName, SelectEntityActionSpace

Double: TypeAlias = NDArray[np.float64]

_CONSTANT: Final = 8.0
"""The constant hidden unit, before and after the GELU."""
_MAX_PLANS: Final = 256
"""Plans that are kept, each with some 30 kB of objects."""
_MAX_ENTITIES: Final = 256
"""Plans of more are not kept, nor is their memory: making them takes no time beside the rest."""
_MAX_SCORES: Final = 1 << 15
"""Numbers in the matrix that compares states, at most."""
_NO_FEATURES: Final = np.zeros((1, 0), dtype=np.float32)


class _Plans:
    """Plans by size, with their memory. Not for several threads at once."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._buffers = Buffers()
        self._plans: dict[Size, Plan] = {}

    def of(self, size: Size) -> Plan:
        plan = self._plans.get(size)
        if plan is None:
            if size.length > _MAX_ENTITIES:
                return Plan(self._parameters, size, Buffers())
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[size] = Plan(self._parameters, size, self._buffers)
        return plan


class FusedNet:
    """Embeddings and logits of one observation.

    Several agents may share one, on any thread.

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
        self._names = self._inputs.names
        self._has_global = GLOBAL_ENTITY in self._inputs.features
        # Options need all features of an entity in one array; else they go straight to `_embed`.
        self._is_joined = relpos is not None or config.translation is not None
        num_shared = 0 if self._is_joined else len(weights.obs_space.global_features)
        self._parameters = Parameters(
            n_head=config.n_head,
            d_head=config.d_head,
            has_relpos=relpos is not None,
            embedding=_fuse_embedding(
                self._inputs,
                tensors,
                config.d_model,
                _entity_columns(self._inputs, weights.tensors, num_shared),
            ),
            blocks=[_fuse_block(config, tensors, i) for i in range(config.n_layer)],
        )
        self._idle: list[_Plans] = []
        """Those that no thread is using."""
        self._labels = {
            name: _of_state(
                tensors[f"action_heads.{name}.proj.weight"].T,
                tensors[f"action_heads.{name}.proj.bias"],
            )
            for name, space in weights.action_space.items()
            if not isinstance(space, SelectEntityActionSpace)
        }
        self._selects = {
            name: _fuse_select(tensors, name, self.config.d_qk)
            for name, space in weights.action_space.items()
            if isinstance(space, SelectEntityActionSpace)
        }

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_idle": []}  # arrays of a plan share memory, copies would not

    def encode(
        self,
        own: Mapping[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None = None,
        wanted: NDArray[np.int64] | None = None,
    ) -> Floats | None:
        """States of the entities, or of those wanted, type after type; see `plan`.

        None if there is no entity, or a feature that is not finite, or beyond 1e19.
        """
        arrays = own
        with np.errstate(all="ignore"):
            if self._is_joined:
                arrays = self._inputs.of_one(own, shared)
            elif self._has_global:
                arrays = {**own, GLOBAL_ENTITY: _NO_FEATURES}
            counts = tuple([len(arrays[name]) if name in arrays else 0 for name in self._names])
            length = sum(counts)
            if not length:
                return None
            is_hidden = visible is not None and not visible.all()
            tables = None if self._relpos is None else self._relpos.look_up(arrays)
            size = Size(length, None if wanted is None else len(wanted), is_hidden)
            try:
                plans = self._idle.pop()
            except IndexError:
                plans = _Plans(self._parameters)
            x = plans.of(size).run(counts, arrays, shared, visible, wanted, tables)
            self._idle.append(plans)
        return x

    def score_labels(self, name: ActionName, actors: Floats) -> Floats:
        """`(num_actors, num_labels)` logits, or means of a continuous action, of states."""
        return product(actors, self._labels[name])

    def score_actees(self, name: ActionName, actors: Floats, actees: Floats) -> Floats:
        """`(num_actors, num_actees)` logits of states."""
        query, key = self._selects[name]
        return product(product(actors, query), product(actees, key).T)


def _entity_columns(
    inputs: Inputs, tensors: Mapping[str, NDArray[Any]], num_shared: int
) -> list[Columns]:
    """Columns of every type, in order; the last `num_shared` features are the global ones."""
    found: list[Columns] = []
    start, num_columns = 0, sum(inputs.widths.values())
    for number, (name, width) in enumerate(inputs.widths.items()):
        middle, stop = start + width - num_shared, start + width
        mean = np.zeros(0, dtype=np.float32)
        if width:
            mean, _ = input_statistics(tensors, f"embedding.embeddings.{name}.0")
        found.append(
            Columns(
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
    inputs: Inputs, tensors: Mapping[str, Double], d_model: int, columns: list[Columns]
) -> Embedding:
    """One matrix for all types. A type without features has only the shift."""
    num_columns = sum(inputs.widths.values())
    deviations = np.full(num_columns + len(inputs.names), np.inf)
    linear = np.zeros((len(deviations), d_model + 1))
    scale = np.zeros((len(inputs.names), d_model))
    shift = np.zeros((len(inputs.names), d_model + 2))
    linear[num_columns:, d_model] = 1.0
    start = 0
    for number, (name, width) in enumerate(inputs.widths.items()):
        prefix = f"embedding.embeddings.{name}"
        if not width:
            shift[number] = _to_state(tensors[f"{prefix}.embedding"][0], is_start=True)
            continue
        rows = slice(start, start + width)
        _, deviations[rows] = input_statistics(tensors, f"{prefix}.0")
        linear[rows, :d_model] = tensors[f"{prefix}.1.weight"].T / deviations[rows, None]
        linear[num_columns + number, :d_model] = tensors[f"{prefix}.1.bias"]
        scale[number] = tensors[f"{prefix}.3.weight"] * math.sqrt(d_model)
        shift[number] = _to_state(tensors[f"{prefix}.3.bias"], is_start=True)
        start += width
    centering = np.zeros((d_model + 1, d_model + 1))
    centering[:d_model, :d_model] = _centering(d_model)
    centering[d_model, d_model] = _constant(d_model)
    return Embedding(
        columns,
        limit=_f32(float(CLIP) * deviations),
        linear=_f32(linear),
        centering=_f32(centering),
        scale=_f32(scale),
        state=_f32(_to_state(np.eye(d_model))),
        shift=_f32(shift),
    )


def _to_state(added: Double, is_start: bool = False) -> Double:
    """Embeddings, or matrices of which they are the columns, as states, or what adds to these."""
    d_model = added.shape[-1]
    constant = np.full((*added.shape[:-1], 1), _constant(d_model) if is_start else 0.0)
    mean = added.mean(axis=-1, keepdims=True)
    return np.concatenate((added - mean, constant, mean), axis=-1)


def _of_state(weight: Double, bias: Double) -> Floats:
    """Matrix of the linear layer of the embeddings that are in states."""
    d_model = len(weight)
    constant = bias / _constant(d_model)
    return _f32(np.concatenate((weight, constant[None], weight.sum(axis=0, keepdims=True))))


def _constant(d_model: int) -> float:
    """Column of a state: its square over `d_model` is what layer norms add to the variance."""
    return math.sqrt(float(EPSILON) * d_model)


def _fuse_block(config: RogueNetConfig, tensors: Mapping[str, Double], i: int) -> Block:
    """Block `i` of the transformer."""
    prefix = f"backbone.blocks.{i}"
    n_head, d_model = config.n_head, config.d_model
    projection = np.zeros((n_head, config.d_head + 1, d_model))
    projection[:, :-1] = tensors[f"{prefix}.attn.proj.weight"].T.reshape(
        n_head, config.d_head, d_model
    )
    projection[0, -1] = tensors[f"{prefix}.attn.proj.bias"]
    attention = _fuse_norm(tensors, f"{prefix}.ln1", *_attention(config, tensors, prefix))
    scores, values, largest_logit = None, np.zeros((0, d_model)), math.inf
    if config.relpos_encoding is None and n_head * (d_model + 1) ** 2 <= _MAX_SCORES:
        heads = attention[:, : n_head * (3 * config.d_head + 1)].reshape(d_model + 1, n_head, -1)
        q, k, v = np.split(heads, (config.d_head, 2 * config.d_head), axis=2)
        by_head = np.einsum("ihc,jhc->ihj", q, k)
        scores = _f32(by_head.reshape(d_model + 1, -1))
        values = np.einsum("ihc,hcj->hij", v, projection).reshape(-1, d_model)
        # Normed states are at most 1 long, without their last column, a one.
        norm = np.hypot.reduce
        of_head = norm(norm(by_head[:-1, :, :-1], axis=2), axis=0) + abs(by_head[-1, :, -1])
        of_head += norm(by_head[:-1, :, -1], axis=0) + norm(by_head[-1, :, :-1], axis=1)
        largest_logit = float(of_head.max())
    output_bias = tensors[f"{prefix}.mlp.2.bias"] / _CONSTANT
    output = np.concatenate((tensors[f"{prefix}.mlp.2.weight"].T, output_bias[None]))
    weight = np.pad(tensors[f"{prefix}.mlp.0.weight"].T * SCALE, ((0, 0), (0, 1)))
    bias = np.append(tensors[f"{prefix}.mlp.0.bias"], _CONSTANT) * SCALE + SHIFT
    return Block(
        attention=_f32(attention),
        projection=_f32(_to_state(projection).reshape(-1, d_model + 2)),
        scores=scores,
        values=_f32(_to_state(values)),
        largest_logit=largest_logit,
        hidden=_f32(_fuse_norm(tensors, f"{prefix}.ln2", weight, bias)),
        output=_f32(_to_state(output)),
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


def _fuse_norm(tensors: Mapping[str, Double], norm: str, weight: Double, bias: Double) -> Double:
    """A layer norm's scale and shift with the linear layer after it, see `Block`."""
    scaled = math.sqrt(len(weight)) * tensors[f"{norm}.weight"][:, None] * weight
    return np.concatenate((scaled, (tensors[f"{norm}.bias"] @ weight + bias)[None]))


def _centering(d_model: int) -> Double:
    """Matrix that subtracts the mean of a row."""
    return np.eye(d_model) - 1.0 / d_model


def _fuse_select(
    tensors: Mapping[str, Double], name: ActionName, d_qk: int
) -> tuple[Floats, Floats]:
    """Matrices of the scaled queries, and of the keys."""
    prefix, scale = f"action_heads.{name}", 1.0 / math.sqrt(d_qk)
    query, key = (
        (tensors[f"{prefix}.{part}_proj.weight"].T, tensors[f"{prefix}.{part}_proj.bias"])
        for part in ("query", "key")
    )
    return _of_state(query[0] * scale, query[1] * scale), _of_state(*key)


def _f32(array: Double) -> Floats:
    """Contiguous, as float32."""
    return np.ascontiguousarray(array, dtype=np.float32)
