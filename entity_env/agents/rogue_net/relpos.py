"""Buckets of relative positions, which attention looks up.

Shared by torch and numpy, because nothing here is learned. Operations, their order and float32
match rogue-net 0.1.9, so a position on the border of two buckets gets the same bucket in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.config import RelposEncodingConfig
from entity_env.agents.rogue_net.features import LARGEST_INPUT
from entity_env.core.ragged import Floats, Ints
from entity_env.core.spaces import GLOBAL_ENTITY, EntityName
from entity_env.errors import SchemaError

_TURN = 2 * math.pi


@dataclass(frozen=True, slots=True)
class RelposBuckets:
    """Buckets of every pair of entities in an observation; the axis of queries comes first.

    Args:
        keys: `(num_rows, length, length)` int64, row of the table of keys for each pair; several
            arrays if neighboring buckets are interpolated.
        values: as `keys`, but rows of the table of values.
        weights: float32 weight of each array in `keys`; empty if there is only one array.
        relative: `(num_rows, length, length, 3)` relative position and distance; None without
            projections.
        is_first: `(num_rows, length)` bool: the query is of the first entity type.
    """

    keys: tuple[Ints, ...]
    values: tuple[Ints, ...]
    weights: tuple[Floats, ...]
    relative: Floats | None
    is_first: NDArray[np.bool_]


class Relpos:
    """Computes the buckets of relative positions.

    Args:
        config: kind and size of the buckets.
        features: names of the features of each entity type.

    Raises:
        SchemaError: a type lacks a position feature, or `exclude_entities` names a type.
    """

    def __init__(
        self, config: RelposEncodingConfig, features: Mapping[EntityName, Sequence[str]]
    ) -> None:
        self.config = config
        self._features = {name: list(own) for name, own in features.items()}
        excluded = [name for name in config.exclude_entities if name in features]
        if excluded:
            raise SchemaError(
                f"exclude_entities must not name the entity type {excluded[0]!r}: rogue-net 0.1.9 "
                "cannot run such a network either"
            )
        for name, own in self._features.items():
            missing = [feature for feature in config.position_features if feature not in own]
            if missing and name == GLOBAL_ENTITY:
                raise SchemaError(
                    "relative positions (--relpos) cannot be used with an action that is one "
                    f"choice for the whole observation, which has no {missing[0]!r}: let actors "
                    "choose, as with Categorical(Move) for an Enum Move"
                )
            if missing:
                raise SchemaError(
                    f"relative positions need the feature {missing[0]!r} of every entity, but "
                    f"{name!r} has {', '.join(own) or 'none'}"
                )

    def buckets(self, inputs: Mapping[EntityName, Floats], layout: Layout | None) -> RelposBuckets:
        """Buckets of all pairs, padded as in `layout`; None = a single observation.

        The inputs must be `limited`, as those of `Inputs` are.
        """
        names = [name for name in self._features if name in inputs]
        wanted = self.config.position_features
        position = np.concatenate(
            [inputs[name][:, [self._features[name].index(x) for x in wanted]] for name in names]
        )
        kinds = [np.full(len(inputs[x]), i) for i, x in enumerate(self._features) if x in inputs]
        kind = np.concatenate(kinds)
        slots = np.arange(len(kind)) if layout is None else layout.source
        shape = (1, len(kind)) if layout is None else (layout.num_padded, layout.max_length)
        direction: Floats | None = None
        if self.config.radial:
            direction = np.concatenate([self._direction(name, inputs[name]) for name in names])
            direction = direction[slots].reshape(shape)
        return self._pairs(
            position[slots].reshape(*shape, -1), direction, kind[slots].reshape(shape)
        )

    def _pairs(self, position: Floats, direction: Floats | None, kind: Ints) -> RelposBuckets:
        """Buckets for `(num_rows, length, ...)` positions, directions and types of entities."""
        relative: Floats = position[:, :, None] - position[:, None, :]
        buckets, weights = self._buckets(relative, direction)
        values = buckets
        if self.config.per_entity_values:
            shift = kind[:, None, :] * self.config.num_buckets
            values = tuple(each + shift for each in buckets)
        triples: Floats | None = None
        if self.config.has_projection:
            triples = np.concatenate((relative, _norm(relative)[..., None]), axis=-1)
        return RelposBuckets(buckets, values, weights, triples, kind == 0)

    def _direction(self, name: EntityName, array: Floats) -> Floats:
        own, config = self._features[name], self.config
        vector, angle = config.rotation_vec_features, config.rotation_angle_feature
        if vector is not None and set(vector) <= set(own):
            return _angle_of(array[:, own.index(vector[0])], array[:, own.index(vector[1])])
        if angle is not None and angle in own:
            return array[:, own.index(angle)]
        return np.zeros(len(array), dtype=np.float32)

    def _buckets(
        self, relative: Floats, direction: Floats | None
    ) -> tuple[tuple[Ints, ...], tuple[Floats, ...]]:
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

    def _cells(self, relative: Floats) -> Ints:
        extent = np.array(self.config.extent, dtype=np.float32)
        with np.errstate(over="ignore"):
            scaled = relative * np.float32(1.0 / self.config.scale)
        shifted = np.maximum(np.minimum(extent, scaled), -extent) + extent
        strides = np.array(self.config.strides, dtype=np.float32)
        cells: Floats = np.rint((shifted * strides).sum(axis=-1, dtype=np.float32))
        bounded: Ints = np.clip(cells.astype(np.int64), 0, self.config.num_buckets - 1)
        return bounded

    def _angles(self, relative: Floats, direction: Floats) -> list[tuple[Ints, Floats | None]]:
        count = self.config.extent[0]
        angle = _angle_of(relative[..., 0], relative[..., 1])
        angle = angle - direction[:, :, None] + np.float32(_TURN)
        angle = np.remainder(angle / np.float32(_TURN) * np.float32(count), np.float32(count))
        # `% count`, because `remainder` rounds the result for a number just below 0 up to `count`.
        first = angle.astype(np.int64) % count
        if not self.config.interpolate:
            return [(first, None)]
        second = (first + 1) % count
        weight: Floats = np.remainder(second.astype(np.float32) - angle, np.float32(1))
        return [(first, weight), (second, 1 - weight)]

    def _rings(self, relative: Floats) -> list[tuple[Ints, Floats | None]]:
        last = self.config.extent[-1] - 1
        with np.errstate(over="ignore"):
            distance = _norm(relative) * np.float32(1.0 / self.config.scale)
        distance = np.minimum(distance, LARGEST_INPUT)
        first = np.fmin(distance, np.float32(last)).astype(np.int64)
        if not self.config.interpolate:
            return [(first, None)]
        second = np.minimum(first + 1, last)
        weight: Floats = second.astype(np.float32) - distance
        if not self.config.enable_negative_distance_weight_bug:
            weight = np.maximum(weight, np.float32(0))
        return [(first, weight), (second, 1 - weight)]


def _angle_of(x: Floats, y: Floats) -> Floats:
    """Angles from double precision: the last bit of numpy's float32 depends on the processor."""
    angle: Floats = np.arctan2(y, x, dtype=np.float64).astype(np.float32)
    return angle


def _norm(relative: Floats) -> Floats:
    norm: Floats = np.sqrt(np.square(relative).sum(axis=-1, dtype=np.float32))
    return norm
