"""Relative positions in ONNX: `Relpos` and `NumpyRelpos`, operator by operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.config import RelposEncodingConfig
from entity_env.agents.rogue_net.numpy_net.functions import CLIP, input_statistics
from entity_env.agents.rogue_net.onnx_net.graph import OnnxGraph, Value
from entity_env.agents.rogue_net.operations import projections
from entity_env.core.spaces import EntityName

_TURN: Final = 2 * math.pi
_Weighted: TypeAlias = tuple[Value, Value | None]
"""Buckets of all pairs, and their weights; None = 1."""


class PairTables(NamedTuple):
    """Keys and values of all pairs: `(num_entities, num_entities, d_head)`, the query first."""

    keys: Value
    values: Value


class PairGraph:
    """All pairs of entities in a `positions` operation.

    Arrays are `(num_entities, num_entities)`, the query first.

    Args:
        inputs, features: features of the entities, and the names of these features, by type.
        tensors: those of the operation.
    """

    def __init__(
        self,
        graph: OnnxGraph,
        inputs: Mapping[EntityName, Value],
        features: Mapping[EntityName, Sequence[str]],
        config: RelposEncodingConfig,
        tensors: Mapping[str, NDArray[Any]],
    ) -> None:
        self._graph, self._config, self._tensors = graph, config, tensors
        self._inputs, self._features = inputs, {name: [*own] for name, own in features.items()}
        self._relative = [self._difference(feature) for feature in config.position_features]

    def tables(self) -> PairTables:
        config, op = self._config, self._graph.op
        keys = self._buckets()
        values = keys
        if config.per_entity_values:
            shift = op("Mul", self._kinds(), config.num_buckets)
            shift = self._graph.unsqueeze(shift, 0)
            values = [(op("Add", bucket, shift), weight) for bucket, weight in keys]
        found = [self._mixed("keys.weight", keys), self._mixed("values.weight", values)]
        if config.has_projection:
            parts = ("count", "mean", "squares_sum")
            mean, deviation = input_statistics(
                {part: self._tensors[f"relpos_norm.{part}"] for part in parts}
            )
            triple = [*self._relative, self._graph.length(self._relative)]
            joined = self._graph.concat([self._graph.unsqueeze(each, 2) for each in triple], 2)
            normed = self._graph.standardized(joined, mean, deviation, float(CLIP))
            if config.key_relpos_projection:
                found[0] = op("Add", found[0], self._projected("kproj", normed))
            if config.value_relpos_projection:
                found[1] = op("Add", found[1], self._projected("vproj", normed))
        return PairTables(*found)

    def _mixed(self, table: str, weighted: Sequence[_Weighted]) -> Value:
        op, found = self._graph.op, list[Value]()
        for bucket, weight in weighted:
            rows = op("Gather", self._tensors[table], bucket)
            if weight is not None:
                rows = op("Mul", rows, self._graph.unsqueeze(weight, 2))
            found.append(rows)
        return self._graph.total(found)

    def _projected(self, part: str, normed: Value) -> Value:
        op, config = self._graph.op, self._config
        each = [
            op("Add", op("MatMul", normed, weight.T), bias)
            for layer in projections(config, [*self._features])
            if layer.startswith(part)
            for weight, bias in [[self._tensors[layer + name] for name in ("weight", "bias")]]
        ]
        if not config.per_entity_projections:
            return each[0]
        is_first = op("Equal", self._kinds(), 0)
        mask = self._graph.reshape(self._graph.cast(is_first, np.float32), -1, 1, 1)
        return op("Mul", self._graph.total(each), mask)

    # ------------------------------------------------------------------ per entity

    def _kinds(self) -> Value:
        """`(num_entities,)` int64, index of the entity type."""
        graph = self._graph
        counts = [graph.count(each) for each in self._inputs.values()]
        return graph.concat(
            [graph.repeat(np.array([i], np.int64), n) for i, n in enumerate(counts)], 0
        )

    def _column(self, name: EntityName, feature: str) -> Value:
        """`(num_entities_of_type, 1)`."""
        return self._graph.columns(self._inputs[name], [self._features[name].index(feature)])

    def _difference(self, feature: str) -> Value:
        """Query minus key."""
        graph = self._graph
        column = graph.concat([self._column(name, feature) for name in self._inputs], 0)
        return graph.op("Sub", column, graph.transpose(column, 1, 0))

    def _directions(self) -> Value:
        """`(num_entities, 1)`."""
        vector, angle = self._config.rotation_vec_features, self._config.rotation_angle_feature
        found: list[Value] = []
        for name, own in self._features.items():
            if vector is not None and set(vector) <= set(own):
                x, y = (self._column(name, feature) for feature in vector)
                found.append(self._angle(x, y))
            elif angle is not None and angle in own:
                found.append(self._column(name, angle))
            else:
                zero, count = np.zeros((1, 1), np.float32), self._graph.count(self._inputs[name])
                found.append(self._graph.repeat(zero, count))
        return self._graph.concat(found, 0)

    def _angle(self, x: Value, y: Value) -> Value:
        """`arctan2(y, x)`, which ONNX lacks, from the angle of the first eighth of a turn."""
        op = self._graph.op
        wide, high = op("Abs", x), op("Abs", y)
        most = op("Max", wide, high)
        most = op("Where", op("Greater", most, 0.0), most, 1.0)
        angle = op("Atan", op("Div", op("Min", wide, high), most))
        angle = op("Where", op("Greater", high, wide), op("Sub", math.pi / 2, angle), angle)
        angle = op("Where", op("Less", x, 0.0), op("Sub", math.pi, angle), angle)
        return op("Where", op("Less", y, 0.0), op("Neg", angle), angle)

    # ------------------------------------------------------------------ buckets

    def _buckets(self) -> list[_Weighted]:
        config, op = self._config, self._graph.op
        if config.kind == "grid":
            return [(self._cells(), None)]
        angles = self._angles() if config.radial else []
        rings = self._rings() if config.distance else []
        if not angles or not rings:
            return angles or rings
        stride = config.strides[1]
        return [
            (
                op("Add", angle, op("Mul", ring, stride)),
                None if a is None or r is None else op("Mul", a, r),
            )
            for ring, r in rings
            for angle, a in angles
        ]

    def _cells(self) -> Value:
        config, op = self._config, self._graph.op
        places: list[Value] = []
        for x, most, stride in zip(self._relative, config.extent, config.strides, strict=True):
            scaled = op("Mul", x, 1.0 / config.scale)
            shifted = op("Max", op("Min", scaled, float(most)), float(-most))
            places.append(op("Mul", op("Add", shifted, float(most)), float(stride)))
        cells = self._graph.cast(op("Round", self._graph.total(places)), np.int64)
        return op("Clip", cells, 0, config.num_buckets - 1)

    def _angles(self) -> list[_Weighted]:
        graph, op, count = self._graph, self._graph.op, self._config.extent[0]
        angle = op("Sub", self._angle(self._relative[0], self._relative[1]), self._directions())
        turns = op("Div", op("Add", angle, _TURN), _TURN)
        place = self._remainder(op("Mul", turns, float(count)), count)
        first = op("Mod", graph.cast(place, np.int64), count)
        if not self._config.interpolate:
            return [(first, None)]
        second = op("Mod", op("Add", first, 1), count)
        gap = op("Sub", graph.cast(second, np.float32), place)
        return self._split(first, second, self._remainder(gap, 1))

    def _rings(self) -> list[_Weighted]:
        graph, op, last = self._graph, self._graph.op, self._config.extent[-1] - 1
        distance = op("Mul", graph.length(self._relative), 1.0 / self._config.scale)
        distance = graph.limited(distance)
        first = graph.cast(op("Min", distance, float(last)), np.int64)
        if not self._config.interpolate:
            return [(first, None)]
        second = op("Min", op("Add", first, 1), last)
        weight = op("Sub", graph.cast(second, np.float32), distance)
        if not self._config.enable_negative_distance_weight_bug:
            weight = op("Max", weight, 0.0)
        return self._split(first, second, weight)

    def _split(self, first: Value, second: Value, weight: Value) -> list[_Weighted]:
        return [(first, weight), (second, self._graph.op("Sub", 1.0, weight))]

    def _remainder(self, x: Value, divisor: int) -> Value:
        """The remainder with the sign of the divisor, as in numpy."""
        op = self._graph.op
        rest = op("Mod", x, float(divisor), fmod=1)
        return op("Where", op("Less", rest, 0.0), op("Add", rest, float(divisor)), rest)
