"""Observations in words, for people who play or watch: features, entities, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.observation import EntityID, Observation
from entity_env.spaces import EntityName, ObsSpace

_ONE_HOT = ".is_"


class SeenEntity(NamedTuple):
    """One entity of an observation: its id, its type, its features, and whether it is visible."""

    id: EntityID
    type: EntityName
    features: NDArray[np.float64]
    is_visible: bool


def seen_entities(observation: Observation, obs_space: ObsSpace) -> Iterator[SeenEntity]:
    """Yields the entities of an observation in the order of `Observation.entity_ids`."""
    ids = iter(observation.entity_ids(obs_space))
    for name in obs_space.entities:
        visible = observation.visible.get(name)
        for i in range(observation.num_entities(name)):
            row = np.asarray(observation.features[name][i], dtype=np.float64)
            yield SeenEntity(next(ids), name, row, visible is None or bool(visible[i]))


def describe_number(value: float) -> str:
    """A feature or reward, with no more digits than it needs."""
    return str(int(value)) if float(value).is_integer() else f"{value:.3g}"


def describe_features(names: Sequence[str], values: Sequence[float] | NDArray[np.float64]) -> str:
    """Features as `x=3 stance=Calm`: a one-hot group becomes the member that is set."""
    words = []
    for name, value in zip(names, values, strict=True):
        field, is_one_hot, member = name.partition(_ONE_HOT)
        if not is_one_hot:
            words.append(f"{name}={describe_number(value)}")
        elif value:
            words.append(f"{field}={member}")
    return " ".join(words)


def describe_entity(entity: SeenEntity, obs_space: ObsSpace) -> str:
    """An entity as `Food x=3 y=1`."""
    features = describe_features(obs_space.entities[entity.type].features, entity.features)
    return f"{entity.type} {features}".rstrip()


def describe_observation(observation: Observation, obs_space: ObsSpace) -> str:
    """What can be seen, a line each for the global features, every visible entity, and a reward."""
    lines = []
    if obs_space.global_features and len(observation.global_features):
        values = np.asarray(observation.global_features, dtype=np.float64)
        lines.append(describe_features(obs_space.global_features, values))
    lines += [
        describe_entity(entity, obs_space)
        for entity in seen_entities(observation, obs_space)
        if entity.is_visible
    ]
    if observation.reward:
        lines.append(f"reward {observation.reward:+g}")
    return "\n".join(lines)
