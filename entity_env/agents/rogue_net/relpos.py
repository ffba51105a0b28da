"""Where entities are relative to each other, in the buckets that attention looks up.

All of it follows from features alone, without a learned number, so torch and numpy share it. Every
operation is that of rogue-net 0.1.9, in float32 and in its order: a position on the border of two
buckets falls into the same one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.options import RelposEncodingConfig
from entity_env.core.spaces import EntityName
from entity_env.errors import SchemaError

Float: TypeAlias = NDArray[np.float32]
Int: TypeAlias = NDArray[np.int64]

_TURN = 2 * math.pi


@dataclass(frozen=True, slots=True)
class Positions:
    """Of every entity, in any order: where it is, where it looks, and of which type it is.

    Args:
        position: `(num_entities, num_positions)`.
        direction: `(num_entities,)` radians; None unless angles count.
        kind: `(num_entities,)` number of its type.
    """

    position: Float
    direction: Float | None
    kind: Int

    def at(self, slots: Int, shape: tuple[int, int]) -> Positions:
        """Those of the entities `slots`, with each field's first axis split into `shape`."""
        direction = self.direction
        return Positions(
            self.position[slots].reshape(*shape, -1),
            None if direction is None else direction[slots].reshape(shape),
            self.kind[slots].reshape(shape),
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every two entities of an observation, first whoever looks, then whom it looks at.

    Args:
        keys: `(num_rows, length, length)` buckets, as rows of the table of keys; more than one
            array when neighbouring buckets are mixed.
        values: the same for the table of values.
        weights: how much of each bucket, float32; empty when there is one.
        relative: `(num_rows, length, length, 3)` relative position and distance, only for
            projections.
        is_first: `(num_rows, length)` bool: whoever looks is of the first type.
    """

    keys: tuple[Int, ...]
    values: tuple[Int, ...]
    weights: tuple[Float, ...]
    relative: Float | None
    is_first: NDArray[np.bool_]


class Relpos:
    """Finds the buckets of relative positions.

    Args:
        config: how they are told apart.
        features: per entity type the features that the network reads.

    Raises:
        SchemaError: a type without a position.
    """

    def __init__(
        self, config: RelposEncodingConfig, features: Mapping[EntityName, Sequence[str]]
    ) -> None:
        self.config = config
        self._features = {name: list(own) for name, own in features.items()}
        excluded = [name for name in config.exclude_entities if name in features]
        if excluded:
            raise SchemaError(
                f"relative positions exclude the entity {excluded[0]!r}: rogue-net 0.1.9 cannot "
                "run such a network either"
            )
        for name, own in self._features.items():
            missing = [feature for feature in config.position_features if feature not in own]
            if missing:
                raise SchemaError(
                    f"relative positions need the feature {missing[0]!r} of every entity, but "
                    f"{name!r} has {', '.join(own) or 'none'}"
                )

    def positions(self, inputs: Mapping[EntityName, Float]) -> Positions:
        """Of every entity, type after type; types without entities may be left out."""
        wanted = self.config.position_features
        present = [name for name in self._features if name in inputs]
        columns = {name: [own.index(x) for x in wanted] for name, own in self._features.items()}
        directions = [self._direction(name, inputs[name]) for name in present]
        return Positions(
            np.concatenate([inputs[name][:, columns[name]] for name in present]),
            np.concatenate(directions) if self.config.radial else None,
            np.concatenate(
                [
                    np.full(len(inputs[name]), kind)
                    for kind, name in enumerate(self._features)
                    if name in inputs
                ]
            ),
        )

    def pairs(self, at: Positions) -> Pairs:
        """Of entities side by side: `(num_rows, length, …)` positions."""
        relative: Float = at.position[:, :, None] - at.position[:, None, :]
        buckets, weights = self._buckets(relative, at.direction)
        values = buckets
        if self.config.per_entity_values:
            shift = at.kind[:, None, :] * self.config.num_buckets
            values = tuple(each + shift for each in buckets)
        triples: Float | None = None
        if self.config.has_projection:
            triples = np.concatenate((relative, _norm(relative)[..., None]), axis=-1)
        return Pairs(buckets, values, weights, triples, at.kind == 0)

    def _direction(self, name: EntityName, array: Float) -> Float:
        own, config = self._features[name], self.config
        vector, angle = config.rotation_vec_features, config.rotation_angle_feature
        if vector is not None and set(vector) <= set(own):
            return np.arctan2(array[:, own.index(vector[1])], array[:, own.index(vector[0])])
        if angle is not None and angle in own:
            return array[:, own.index(angle)]
        return np.zeros(len(array), dtype=np.float32)

    def _buckets(
        self, relative: Float, direction: Float | None
    ) -> tuple[tuple[Int, ...], tuple[Float, ...]]:
        if direction is None and not self.config.distance:
            return (self._cells(relative),), ()
        angles = () if direction is None else self._angles(relative, direction)
        rings = self._rings(relative) if self.config.distance else ()
        if not angles or not rings:
            axes = angles or rings
            return tuple(bucket for bucket, _ in axes), tuple(w for _, w in axes if w is not None)
        stride = self.config.strides[1]
        mixed = [(angle, ring) for ring in rings for angle in angles]
        return (
            tuple(angle + ring * stride for (angle, _), (ring, _) in mixed),
            tuple(a * r for (_, a), (_, r) in mixed if a is not None and r is not None),
        )

    def _cells(self, relative: Float) -> Int:
        extent = np.array(self.config.extent, dtype=np.float32)
        scaled = relative * np.float32(1.0 / self.config.scale)
        shifted = np.maximum(np.minimum(extent, scaled), -extent) + extent
        strides = np.array(self.config.strides, dtype=np.float32)
        cells: Float = np.rint((shifted * strides).sum(axis=-1, dtype=np.float32))
        bounded: Int = np.clip(cells.astype(np.int64), 0, self.config.num_buckets - 1)
        return bounded

    def _angles(self, relative: Float, direction: Float) -> list[tuple[Int, Float | None]]:
        count = self.config.extent[0]
        angle: Float = np.arctan2(relative[..., 1], relative[..., 0])
        angle = angle - direction[:, :, None] + np.float32(_TURN)
        angle = np.remainder(angle / np.float32(_TURN) * np.float32(count), np.float32(count))
        # What is hardly below 0 is rounded up to `count`.
        first = angle.astype(np.int64) % count
        if not self.config.interpolate:
            return [(first, None)]
        second = (first + 1) % count
        weight: Float = np.remainder(second.astype(np.float32) - angle, np.float32(1))
        return [(first, weight), (second, 1 - weight)]

    def _rings(self, relative: Float) -> list[tuple[Int, Float | None]]:
        last = self.config.extent[-1] - 1
        distance = _norm(relative) * np.float32(1.0 / self.config.scale)
        first = np.fmin(distance, np.float32(last)).astype(np.int64)
        if not self.config.interpolate:
            return [(first, None)]
        second = np.minimum(first + 1, last)
        weight: Float = second.astype(np.float32) - distance
        if not self.config.enable_negative_distance_weight_bug:
            weight = np.maximum(weight, np.float32(0))
        return [(first, weight), (second, 1 - weight)]


def _norm(relative: Float) -> Float:
    norm: Float = np.sqrt(np.square(relative).sum(axis=-1, dtype=np.float32))
    return norm
