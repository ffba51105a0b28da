"""Random observations of a network's spaces, to compare two implementations of the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.features import input_features, picture_of
from entity_env.agents.rogue_net.numpy_net.functions import input_statistics
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats, RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ContinuousActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
    entity_widths,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)

_MAX_ENTITIES: Final = 6
"""Per type."""
_MAX_TYPES: Final = 20
"""Mean number of types with entities, since attention takes time and memory for every pair."""
_Scalar = TypeVar("_Scalar", bound=np.generic)


def sampled_batches(weights: Weights, count: int, *, has_visible: bool) -> Iterator[Batch]:
    """Batches of one observation each; those of a network are always the same.

    The first one has no entities, if the network does not need one. Features are about as large as
    in training. Those of every second batch are integers, as in a game on a grid, unless the
    network compares angles: there, the last bit of `arctan2` decides between two buckets.
    """
    config = weights.config
    relpos = config.relpos_encoding if isinstance(config, RogueNetConfig) else None
    has_integers = relpos is None or not relpos.radial
    sampler = _Sampler(weights)
    for i in range(count):
        yield sampler.batch(
            i if i < 2 else _MAX_ENTITIES,
            has_integers=has_integers and i % 2 == 1,
            has_visible=has_visible and i % 3 > 0,
        )


def _feature_statistics(
    weights: Weights, widths: Mapping[EntityName, int]
) -> dict[EntityName, tuple[Floats, Floats]]:
    """Mean and deviation of the features in training, `(num_features,)` each, where known."""
    found: dict[EntityName, tuple[Floats, Floats]] = {}
    for each in weights.operations():
        if each.kind != "normalize":
            continue
        mean, deviation = input_statistics(each.of(weights.tensors))
        source, name = each.inputs[0], picture_of(weights.obs_space)
        if source == "picture" and name is not None:  # each pixel has those of its channel
            repeats = widths[name] // len(mean)
            found[name] = np.tile(mean, repeats), np.tile(deviation, repeats)
            continue
        names = [source.removeprefix("features/")]
        if source == "features":
            names = [name for name in widths if name != GLOBAL_ENTITY]
        start = 0
        for name in [*names, GLOBAL_ENTITY]:
            part = slice(start, start + widths.get(name, 0))
            found.setdefault(name, (mean[part], deviation[part]))
            start = part.stop
    return found


class _Sampler:
    def __init__(self, weights: Weights) -> None:
        self._weights, self._rng = weights, np.random.default_rng(0)
        self._widths = entity_widths(weights.obs_space, weights.action_space)
        self._entities = input_features(weights.obs_space, weights.action_space)
        self._statistics = _feature_statistics(weights, self._widths)

    def batch(self, max_entities: int, *, has_integers: bool, has_visible: bool) -> Batch:
        features: dict[EntityName, RaggedArray[np.float32]] = {}
        visible: dict[EntityName, RaggedArray[np.bool_]] = {}
        for name, width in self._widths.items():
            count = self._count(name, max_entities)
            values = self._rng.normal(size=(count, width))
            if name in self._statistics:
                mean, deviation = self._statistics[name]
                values = mean + deviation * values
            if has_integers:
                values = np.rint(values)
            features[name] = _one(values.astype(np.float32))
            if has_visible and name != GLOBAL_ENTITY:
                visible[name] = _one(self._rng.random(count) < 0.6)
        total = sum(len(features[name].values) for name in self._entities)
        masks = {action: self._mask(action, total) for action in self._weights.action_space}
        return Batch(features, visible, masks)

    def _count(self, name: EntityName, max_entities: int) -> int:
        if name == GLOBAL_ENTITY:
            return 1
        config = self._weights.config
        if not isinstance(config, RogueNetConfig):
            return min(1, max_entities)
        translation = config.translation
        if translation is not None and translation.reference_entity == name:
            return 1
        if self._rng.random() > _MAX_TYPES / len(self._widths):
            return 0
        return int(self._rng.integers(0, max_entities + 1))

    def _mask(self, action: str, num_entities: int) -> VecActionMask:
        space, rng = self._weights.action_space[action], self._rng
        is_flat = not isinstance(self._weights.config, RogueNetConfig)
        if isinstance(space, GlobalCategoricalActionSpace):
            actors = np.array([num_entities - 1], np.int64)
        elif is_flat:
            actors = np.zeros(int(rng.integers(0, 3)), np.int64)
        else:
            actors = self._some(num_entities)
        if isinstance(space, ContinuousActionSpace):
            return VecContinuousActionMask(_one(actors))
        if not isinstance(space, SelectEntityActionSpace):
            return VecCategoricalActionMask(
                _one(actors), _one(self._allowed(len(actors), len(space)))
            )
        actees = self._some(num_entities)
        actors = actors if len(actees) else actors[:0]
        allowed = self._allowed(len(actors), len(actees))
        return VecSelectEntityActionMask(_one(actors), _one(actees), _one(allowed.reshape(-1)))

    def _some(self, num_entities: int) -> NDArray[np.int64]:
        return self._rng.permutation(num_entities)[: self._rng.integers(0, num_entities + 1)]

    def _allowed(self, num_actors: int, num_choices: int) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = self._rng.random((num_actors, num_choices)) < 0.6
        allowed[np.arange(num_actors), self._rng.integers(0, max(1, num_choices), num_actors)] = (
            True
        )
        return allowed


def _one(values: NDArray[_Scalar]) -> RaggedArray[_Scalar]:
    return RaggedArray(values, np.array([len(values)]))
