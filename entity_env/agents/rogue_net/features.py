"""Input features of a network: per entity (own, global, moved positions), or as one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.config import TranslationConfig
from entity_env.core.ragged import Floats
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.errors import SchemaError

MAX_COLUMNS = 1 << 20
"""Limit for the features of all entity types together, `GLOBAL_ENTITY` included; global features
count once per type.
"""
DISTANCE_FEATURE = "TranslatePositions.distance"
"""rogue-net's name for the distance to the reference entity."""
LARGEST_INPUT = np.float32(1e18)
"""Features and positions beyond this count as this, so no distance between two is infinite."""


def limited(numbers: Floats) -> Floats:
    """The numbers from `-LARGEST_INPUT` to `LARGEST_INPUT`; the same array if all are."""
    # Two reductions, because few arrays need a copy.
    highest = np.maximum.reduce(numbers, axis=None, initial=-LARGEST_INPUT)
    lowest = np.minimum.reduce(numbers, axis=None, initial=LARGEST_INPUT)
    if highest <= LARGEST_INPUT and lowest >= -LARGEST_INPUT:
        return numbers
    return np.clip(numbers, -LARGEST_INPUT, LARGEST_INPUT)


def input_features(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[EntityName, tuple[str, ...]]:
    """Names of the features per entity type: its own, then the global features.

    `GLOBAL_ENTITY` is the last type if there is a global action. Relations are left out. Raises
    `SchemaError` for more than `MAX_COLUMNS` features.
    """
    shared = tuple(obs_space.global_features)
    own = sum(len(entity.features) for entity in obs_space.entities.values())
    num_columns = own + len(shared) * (1 + len(obs_space.entities))
    if num_columns > MAX_COLUMNS:
        raise SchemaError(
            f"all entity types have {num_columns} features together, with the global features "
            f"counted for each type: a network reads at most {MAX_COLUMNS}"
        )
    features = {
        name: (*entity.features, *shared)
        for name, entity in obs_space.entities.items()
        if entity.references is None
    }
    if any(isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values()):
        features[GLOBAL_ENTITY] = shared
    return features


class Inputs:
    """Input arrays of a network; they may be the batch's own arrays, which are never modified.

    Raises:
        SchemaError: no entity type, more features than `MAX_COLUMNS`, or the translation's
            reference entity or one of its features is missing.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        translation: TranslationConfig | None = None,
    ) -> None:
        self.features = input_features(obs_space, action_space)
        """Feature names per entity type, without distances and relations."""
        if not self.features:
            raise SchemaError("there is no entity to learn from: declare one, or a global action")
        self.names = tuple(self.features)
        self.references = {
            name: each.references
            for name, each in obs_space.entities.items()
            if each.references is not None
        }
        """Both entity types of each relation."""
        self._relation_widths = {
            name: len(obs_space.entities[name].features) - 2 + len(obs_space.global_features)
            for name in self.references
        }
        self.has_globals = bool(obs_space.global_features)
        self.translation = None if translation is None else _Translation(translation, self.features)

    @property
    def widths(self) -> dict[EntityName, int]:
        """Number of features per entity type, with distances; then of relations, without the
        references.
        """
        moved = self.translation
        widths = {
            name: len(features) + (moved is not None and moved.adds_distance(name))
            for name, features in self.features.items()
        }
        return widths | self._relation_widths

    def arrays(self, batch: Batch) -> dict[EntityName, Floats]:
        """`(num_entities, width)` per type, packed as in the batch.

        Arrays of relations begin with two more columns, the references.
        """
        arrays = self._joined(batch)
        if self.translation is None:
            return arrays
        return self.translation.of_batch(arrays, batch)

    def of_one(self, own: Mapping[EntityName, Floats], shared: Floats) -> dict[EntityName, Floats]:
        """`arrays` of a single observation, without the types that are not in `own`.

        The features must be `limited`.
        """
        arrays: dict[EntityName, Floats] = {}
        for name in self.names:
            if name == GLOBAL_ENTITY:
                arrays[name] = shared[None]
            elif name in own:
                arrays[name] = own[name]
                if len(shared):
                    repeated = np.broadcast_to(shared, (len(own[name]), len(shared)))
                    arrays[name] = np.concatenate((own[name], repeated), axis=1)
        return arrays if self.translation is None else self.translation.of_one(arrays)

    def _joined(self, batch: Batch) -> dict[EntityName, Floats]:
        if not self.has_globals:
            names = *self.names, *self.references
            return {name: limited(batch.features[name].values) for name in names}
        shared = batch.features[GLOBAL_ENTITY]
        # A row without a `GLOBAL_ENTITY` has no entities that could look up its place.
        place = shared.offsets[:-1]
        joined: dict[EntityName, Floats] = {}
        for name in (*self.names, *self.references):
            own = batch.features[name]
            values = own.values
            if name != GLOBAL_ENTITY:
                values = np.concatenate((values, shared.values[place[own.row_index]]), axis=1)
            joined[name] = limited(values)
        return joined


def is_flat(obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> bool:
    """True if observations have a fixed size above 0 and no action selects entities.

    Such games suit an MLP, or a CNN if `picture_of` names an entity.
    """
    return _variable_size(obs_space, action_space) is None


def _variable_size(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> str | None:
    """Why a network that reads a fixed-size vector cannot play; None = it can."""
    for name, entity in obs_space.entities.items():
        if entity.references is not None:
            return f"relation {name!r} cannot be read by an MLP or CNN: use a RogueNet"
        if not entity.is_single:
            return (
                "an MLP or CNN needs observations of fixed size, but there may be any number of "
                f"{name!r} entities: use a RogueNet, or declare it with is_single=True"
            )
    for action, space in action_space.items():
        if isinstance(space, SelectEntityActionSpace):
            return f"action {action!r} selects entities, which no MLP or CNN can do: use a RogueNet"
    if not sum(entity_widths(obs_space, action_space).values()):
        return "an MLP or CNN needs at least one feature, got none"
    return None


def picture_of(obs_space: ObsSpace) -> EntityName | None:
    """The picture entity (`Entity.shape`) for a CNN; None unless there is exactly one."""
    pictures = [name for name, entity in obs_space.entities.items() if entity.shape is not None]
    return pictures[0] if len(pictures) == 1 else None


class FlatFeatures:
    """Features of fixed-size observations as one vector: every entity's, then the global features.

    Args:
        left_out: an entity type that is read separately, by `part`.

    Raises:
        SchemaError: `is_flat` is False.
    """

    def __init__(
        self,
        obs_space: ObsSpace,
        action_space: Mapping[ActionName, ActionSpace],
        left_out: EntityName | None = None,
    ) -> None:
        if reason := _variable_size(obs_space, action_space):
            raise SchemaError(reason)
        self._widths = {
            name: width for name, width in entity_widths(obs_space, action_space).items() if width
        }
        self._names = [name for name in self._widths if name != left_out]
        self.width = sum(self._widths[name] for name in self._names)
        """Length of the vector."""

    def array(self, batch: Batch) -> Floats:
        """`(num_rows, width)`; zeros for a missing entity."""
        parts = [self.part(name, batch) for name in self._names]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def shown(self, batch: Batch) -> Floats:
        """`array` without rows of empty observations."""
        array = self.array(batch)
        has_any = np.logical_or.reduce([batch.features[name].lengths > 0 for name in self._names])
        return array if has_any.all() else array[has_any]

    def part(self, name: EntityName, batch: Batch) -> Floats:
        """`(num_rows, num_features)` of one entity type; zeros as in `array`."""
        ragged = batch.features[name]
        lengths = ragged.lengths
        # Not the method `all`, which takes twice as long for few numbers.
        if np.logical_and.reduce(lengths == 1):
            return limited(ragged.values)
        if lengths.max(initial=0) > 1:
            row = int(lengths.argmax())
            raise SchemaError(
                f"row {row} has {lengths[row]} entities of type {name!r}, which is declared as "
                "single: an MLP or CNN reads one"
            )
        part = np.zeros((len(lengths), self._widths[name]), dtype=np.float32)
        part[ragged.row_index] = limited(ragged.values)
        return part


@dataclass(frozen=True, slots=True)
class _Reference:
    """Positions of the reference entities, `(n, num_positions)`, and directions, `(n, 2)`.

    `direction` is None without rotation.
    """

    origin: Floats
    direction: Floats | None


class _Translation:
    """Moves and rotates positions, see `TranslationConfig`."""

    def __init__(
        self, config: TranslationConfig, features: Mapping[EntityName, Sequence[str]]
    ) -> None:
        self._config = config
        reference = features.get(config.reference_entity)
        if reference is None:
            raise SchemaError(
                f"translation refers to the entity {config.reference_entity!r}, expected one of "
                f"{', '.join(features)}"
            )
        self._origin = self._columns(reference, config.position_features)
        self._vector = self._columns(reference, config.rotation_vec_features or ())
        angle = config.rotation_angle_feature
        self._angle = None if angle is None else self._columns(reference, (angle,))[0]
        self._moved = {
            name: self._columns(own, config.position_features)
            for name, own in features.items()
            if name != config.reference_entity and set(config.position_features) <= set(own)
        }

    def adds_distance(self, name: EntityName) -> bool:
        return self._config.add_dist_feature and name in self._moved

    def of_batch(self, arrays: dict[EntityName, Floats], batch: Batch) -> dict[EntityName, Floats]:
        reference = batch.features[self._config.reference_entity]
        frame = self._frame(arrays[self._config.reference_entity])
        moved = dict(arrays)
        for name, columns in self._moved.items():
            rows = batch.features[name].row_index
            self._require_one(reference.lengths[rows], rows)
            moved[name] = self._move(arrays[name], columns, frame, reference.offsets[rows])
        return moved

    def of_one(self, arrays: dict[EntityName, Floats]) -> dict[EntityName, Floats]:
        moved = dict(arrays)
        names = [name for name in self._moved if name in arrays and len(arrays[name])]
        if not names:
            return moved
        reference = arrays.get(self._config.reference_entity, ())
        self._require_one(np.array([len(reference)]), np.zeros(1, dtype=np.int64))
        frame = self._frame(arrays[self._config.reference_entity])
        for name in names:
            moved[name] = self._move(arrays[name], self._moved[name], frame, slice(None))
        return moved

    def _frame(self, reference: Floats) -> _Reference:
        origin = reference[:, self._origin]
        if self._angle is not None:
            # In double precision: the last bit of numpy's float32 depends on the processor.
            angle = reference[:, self._angle].astype(np.float64)
            turn = np.stack((np.cos(angle), np.sin(angle)), axis=1).astype(np.float32)
            return _Reference(origin, turn)
        return _Reference(origin, reference[:, self._vector] if self._vector else None)

    def _move(
        self, array: Floats, columns: list[int], frame: _Reference, at: NDArray[np.int64] | slice
    ) -> Floats:
        position = array[:, columns] - frame.origin[at]
        if frame.direction is not None:
            (x, y), (cosine, sine) = position.T, frame.direction[at].T
            position = np.stack((x * cosine + y * sine, y * cosine - x * sine), axis=1)
        position = limited(position)
        if self._config.add_dist_feature:
            distance = np.linalg.norm(position, axis=1, keepdims=True)
            moved = np.concatenate((array, distance.astype(np.float32)), axis=1)
        else:
            moved = array.copy()
        moved[:, columns] = position
        return moved

    def _require_one(self, counts: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        wrong = counts != 1
        if wrong.any():
            at = int(wrong.argmax())
            raise SchemaError(
                f"row {rows[at]} has {counts[at]} entities of type "
                f"{self._config.reference_entity!r}, but the network needs exactly one, relative "
                "to which it places the other entities: show one in every observation"
            )

    def _columns(self, features: Sequence[str], wanted: Sequence[str]) -> list[int]:
        missing = [name for name in wanted if name not in features]
        if missing:
            raise SchemaError(
                f"translation needs the feature {missing[0]!r} of "
                f"{self._config.reference_entity!r}, which has {', '.join(features) or 'none'}"
            )
        return [list(features).index(name) for name in wanted]
