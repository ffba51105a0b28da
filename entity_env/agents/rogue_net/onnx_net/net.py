"""The operations of a network as an ONNX graph, for one observation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import CNNConfig, RelposEncodingConfig
from entity_env.agents.rogue_net.numpy_net.distributions import FORBIDDEN, middle_and_half
from entity_env.agents.rogue_net.numpy_net.functions import CLIP, EPSILON, HIDDEN, input_statistics
from entity_env.agents.rogue_net.onnx_net.graph import OnnxGraph, Value
from entity_env.agents.rogue_net.onnx_net.inputs import OnnxInputs
from entity_env.agents.rogue_net.onnx_net.relpos import PairGraph, PairTables
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, EntityName, GlobalCategoricalActionSpace
from entity_env.errors import SchemaError

_LOWEST: Final = np.finfo(np.float32).min


class OnnxNet:
    """Builds the graph of a network; each public method is an operation, by its kind.

    Args:
        weights: tensors must fit their description, see `Weights.require_fit`.
        has_visible: see `OnnxInputs`.

    Raises:
        SchemaError: the spaces and options of the network do not fit together, there is nothing to
            compute, or an operation has no ONNX form.
    """

    def __init__(self, weights: Weights, *, has_visible: bool = False) -> None:
        for name, space in weights.action_space.items():
            if space.given:
                raise SchemaError(
                    f"action {name!r} depends on the choice of {space.given[-1]!r}, which an ONNX "
                    "graph cannot make: write an .agent file instead"
                )
        for name in weights.obs_space.relations:
            raise SchemaError(
                f"the relation {name!r} cannot be written as ONNX: write an .agent file instead"
            )
        self.graph = OnnxGraph()
        self._weights = weights
        self._inputs = OnnxInputs(self.graph, weights, has_visible=has_visible)
        self._count: Value | None = None
        """`(1,)` number of entities, once they are concatenated."""
        self._visible: Value | None = None
        """`(num_entities,)` bool; None = all are visible."""
        buffers: dict[str, Any] = dict(self._inputs.buffers())
        for each in weights.operations():
            compute = getattr(self, each.kind, None)
            if compute is None:
                raise SchemaError(
                    f"a network with the operation {each.kind!r} cannot be written as ONNX: write "
                    "an .agent file instead"
                )
            read = [buffers[name] for name in each.inputs]
            buffers[each.output] = compute(*read, **each.of(weights.tensors), **each.constants)
        if weights.has_value:
            self.graph.output("value", self.graph.reshape(buffers["value"], 1), (1,))
        if not self.graph.outputs:
            raise SchemaError("the network has neither actions nor a value: nothing to export")

    # ------------------------------------------------------------------ of rows

    def normalize(self, x: Value, **tensors: NDArray[Any]) -> Value:
        mean, deviation = input_statistics(tensors)
        if isinstance(self._weights.config, CNNConfig):
            mean, deviation = mean.reshape(-1, 1, 1), deviation.reshape(-1, 1, 1)
        return self.graph.standardized(x, mean, deviation, float(CLIP))

    def linear(self, x: Value, weight: Floats, bias: Floats, activation: str = "") -> Value:
        return self._activated(self.graph.linear(x, weight, bias), activation)

    def _activated(self, x: Value, activation: str) -> Value:
        op = self.graph.op
        if activation == "gelu":
            raised = op("Add", op("Erf", op("Mul", x, math.sqrt(0.5))), 1.0)
            return op("Mul", op("Mul", x, 0.5), raised)
        named = {"": "", "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}
        if activation not in named:
            raise SchemaError(f"the activation {activation!r} cannot be written as ONNX")
        return op(named[activation], x) if activation else x

    def layer_norm(self, x: Value, weight: Floats, bias: Floats) -> Value:
        op = self.graph.op
        centered = op("Sub", x, op("ReduceMean", x, axes=[-1]))
        variance = op("ReduceMean", op("Mul", centered, centered), axes=[-1])
        normed = op("Div", centered, op("Sqrt", op("Add", variance, float(EPSILON))))
        return op("Add", op("Mul", normed, weight), bias)

    def add(self, x: Value, y: Value) -> Value:
        return self.graph.op("Add", x, y)

    def repeat(self, x: Value, embedding: Floats) -> Value:
        return self.graph.repeat(embedding, self.graph.count(x))

    def scale(self, x: Value, mean: Floats, std: Floats) -> Value:
        return self.graph.op("Add", self.graph.op("Mul", x, std), mean)

    # ------------------------------------------------------------------ of pictures

    def convolve(
        self, x: Value, weight: Floats, bias: Floats, stride: int, activation: str
    ) -> Value:
        """`(1, channels, height, width)`, unlike numpy's pictures."""
        found = self.graph.op("Conv", x, weight, bias, strides=[stride, stride])
        return self._activated(found, activation)

    def flatten(self, x: Value) -> Value:
        return self.graph.reshape(x, 1, -1)

    def join(self, *parts: Value) -> Value:
        return self.graph.concat(parts, 1)

    # ------------------------------------------------------------------ of all entities

    def concatenate(self, *parts: Value, entities: Sequence[EntityName]) -> Value:
        x = self.graph.concat(parts, 0)
        self._count = self.graph.count(x)
        flags = self._inputs.visible
        if flags:
            seen = [flags.get(name, np.ones(1, np.bool_)) for name in entities]
            self._visible = self.graph.concat(seen, 0)
        return x

    def positions(
        self,
        *features_of: Value,
        options: Mapping[str, Any],
        features: Mapping[EntityName, Sequence[str]],
        **tensors: NDArray[Any],
    ) -> PairTables:
        inputs = dict(zip(features, features_of, strict=True))
        config = RelposEncodingConfig(**options)
        return PairGraph(self.graph, inputs, features, config, tensors).tables()

    def attend(
        self,
        query: Value,
        key: Value,
        value: Value,
        positions: PairTables | None = None,
        gate: Value | None = None,
        *,
        n_head: int,
    ) -> Value:
        graph, op = self.graph, self.graph.op
        width = self._weights.rogue_net_config().d_model
        size = width // n_head
        q, k, v = (graph.reshape(each, -1, n_head, size) for each in (query, key, value))
        logits = op("MatMul", graph.transpose(q, 1, 0, 2), graph.transpose(k, 1, 2, 0))
        if positions is not None:
            added = op("MatMul", positions.keys, graph.transpose(q, 0, 2, 1))
            logits = op("Add", logits, graph.transpose(added, 2, 0, 1))
        logits = op("Mul", logits, 1.0 / math.sqrt(size))
        if self._visible is not None:
            is_hidden_query = graph.unsqueeze(op("Not", self._visible), 1)
            allowed = op("Or", graph.unsqueeze(self._visible, 0), is_hidden_query)
            logits = op("Where", allowed, logits, float(HIDDEN))
        attention = op("Softmax", logits, axis=-1)  # (n_head, num_entities, num_entities)
        y = graph.transpose(op("MatMul", attention, graph.transpose(v, 1, 0, 2)), 1, 0, 2)
        if positions is not None:
            values = positions.values if gate is None else op("Mul", positions.values, gate)
            y = op("Add", y, op("MatMul", graph.transpose(attention, 1, 0, 2), values))
        return graph.reshape(y, -1, width)

    def pool(self, x: Value, of: str) -> Value:
        graph, op = self.graph, self.graph.op
        width = self._weights.rogue_net_config().d_model
        seen, seen_x, shown = None, x, x
        count = graph.cast(self._entity_count, np.float32)
        if self._visible is not None:
            seen = graph.unsqueeze(self._visible, 1)
            flags = graph.cast(seen, np.float32)
            seen_x, count = op("Mul", x, flags), graph.sum_rows(flags, 1)
            shown = op("Where", seen, x, float(_LOWEST))
        parts: list[Value] = []
        if "mean" in of:
            parts.append(op("Div", graph.sum_rows(seen_x, width), op("Max", count, 1.0)))
        if "max" in of:
            padded = graph.concat([shown, np.full((1, width), _LOWEST)], 0)
            top = op("ReduceMax", padded, axes=[0])
            parts.append(op("Where", op("Greater", count, 0.0), top, 0.0))
        return graph.concat(parts, 1)

    def spread(self, x: Value) -> Value:
        return self.graph.repeat(x, self._entity_count)

    def mean(self, x: Value) -> Value:
        op, count = self.graph.op, self.graph.cast(self._entity_count, np.float32)
        total = self.graph.sum_rows(x, self._weights.rogue_net_config().d_model)
        return op("Div", total, op("Max", count, 1.0))

    @property
    def _entity_count(self) -> Value:
        if self._count is None:
            raise TypeError("no entities were concatenated")
        return self._count

    # ------------------------------------------------------------------ of actions

    def actors(self, x: Value, action: ActionName) -> Value:
        """One row for all actors if the network reads a vector."""
        if self._inputs.is_flat:
            return x
        if isinstance(self._weights.action_space[action], GlobalCategoricalActionSpace):
            return self.graph.rows(x, -1)
        return self.graph.op("Gather", x, self._inputs.actors[action])

    def actees(self, x: Value, action: ActionName) -> Value:
        return self.graph.op("Gather", x, self._inputs.actees[action])

    def compare(self, actors: Value, actees: Value, action: ActionName) -> Value:
        width = self._weights.rogue_net_config().d_qk
        logits = self.graph.op("MatMul", actors, self.graph.transpose(actees, 1, 0))
        return self.graph.op("Mul", logits, 1.0 / math.sqrt(width))

    def categorical(self, logits: Value, action: ActionName) -> None:
        op, mask = self.graph.op, self._inputs.masks[action]
        logprobs = op("LogSoftmax", op("Where", mask, logits, float(FORBIDDEN)), axis=-1)
        self.graph.output(f"logprobs/{action}", logprobs, self.graph.shape_of(mask))

    def gaussian(
        self,
        mean: Value,
        action: ActionName,
        log_std: Floats,
        low: Sequence[float],
        high: Sequence[float],
    ) -> None:
        """In units of the action, like `GaussianArrays`, but not clipped."""
        graph, op = self.graph, self.graph.op
        middle, half = middle_and_half(*(np.array(each, np.float32) for each in (low, high)))
        found = op("Add", op("Mul", mean, half), middle)
        std = (half * np.exp(log_std))[None]
        num_actors: int | str = 1
        if not self._inputs.is_flat:
            num_actors = f"actors_{action}"
        shape = num_actors, len(low)
        graph.output(f"mean/{action}", found, shape)
        graph.output(f"std/{action}", graph.repeat(std, graph.count(mean)), shape)
