"""FeatureAdaptor and `renamed`: agents for games that show more, or use other names.

As in entity-gym-rs, features and entity types unknown to the agent are left out. If entities of an
unknown type can act or be selected, converting the observation raises `SchemaError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import Batch, ObsBatch
from entity_env.agents.rogue_net.config import NetConfig, RogueNetConfig
from entity_env.agents.rogue_net.weights import Weights, expected_tensors
from entity_env.core.observation import (
    ActionMask,
    EntityID,
    Features,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
    Spaces,
    briefly,
    differences,
    entity_widths,
)
from entity_env.core.vec_obs import VecActionMask, VecSelectEntityActionMask
from entity_env.errors import CheckpointError, SchemaError, UsageError

Columns: TypeAlias = NDArray[np.int64]
_Value = TypeVar("_Value")


def unadaptable(agent: Spaces, game: Spaces) -> list[str]:
    """Differences that `FeatureAdaptor` cannot remove, one sentence each."""
    (agent_obs, agent_actions), (game_obs, game_actions) = agent, game
    entities: dict[EntityName, Entity] = {}
    for name, entity in agent_obs.entities.items():
        there = game_obs.entities.get(name)
        if there is not None and {*(there.references or ())} <= {*entities}:
            features = _known(entity.features, there.features)
            entities[name] = Entity(features, references=there.references)
    known = ObsSpace(_known(agent_obs.global_features, game_obs.global_features), entities)
    asked = [*_known([*agent_actions], game_actions), *game_actions]
    return differences(agent, (known, {name: game_actions[name] for name in asked}))


def renamed(weights: Weights, names: Mapping[str, str]) -> Weights:
    """The network with other names.

    Args:
        names: new names of entity types, features, actions and choices, by old name.

    Raises:
        UsageError: the network lacks a name, or two names would become equal.
    """
    used: set[str] = set()

    def to(name: str) -> str:
        used.add(name)
        return names.get(name, name)

    def all_to(old: Sequence[str]) -> tuple[str, ...]:
        new = tuple(map(to, old))
        if len({*new}) < len({*old}):
            raise UsageError(f"names: two of {', '.join(old)} would have the same name")
        return new

    def entity(old: Entity) -> Entity:
        features, references = all_to(old.features), None
        if old.references is not None:
            source, target = map(to, old.references)
            references = source, target
        return replace(old, features=features, references=references)

    def action(old: ActionSpace) -> ActionSpace:
        given = all_to(old.given)
        match old:
            case CategoricalActionSpace() | GlobalCategoricalActionSpace():
                return replace(old, index_to_label=all_to(old.index_to_label), given=given)
            case ContinuousActionSpace():
                return replace(old, labels=all_to(old.labels), given=given)
        return replace(old, given=given)

    old_obs, old_actions = weights.obs_space, weights.action_space
    entities = zip(all_to([*old_obs.entities]), map(entity, old_obs.entities.values()), strict=True)
    obs_space = ObsSpace(all_to(old_obs.global_features), dict(entities))
    actions = zip(all_to([*old_actions]), map(action, old_actions.values()), strict=True)
    action_space, config = dict(actions), _renamed_config(weights.config, names)
    if unknown := sorted(names.keys() - used):
        known = ", ".join(sorted(used))
        raise UsageError(f"names: the network has nothing called {unknown[0]!r}; it has {known}")
    before = expected_tensors(old_obs, old_actions, weights.config)
    after = expected_tensors(obs_space, action_space, config)
    tensors = {
        new: weights.tensors[old] for old, new in zip(before, after, strict=True)
    }  # both in the order of the spaces
    return replace(
        weights, obs_space=obs_space, action_space=action_space, config=config, tensors=tensors
    )


def _renamed_config(config: NetConfig, names: Mapping[str, str]) -> NetConfig:
    if not isinstance(config, RogueNetConfig):
        return config
    parts: dict[str, Any] = {}
    for part in ("relpos_encoding", "translation"):
        old = getattr(config, part)
        named = {} if old is None else {key: getattr(old, key, None) for key in _NAMING}
        new = {
            key: names.get(value, value)
            if isinstance(value, str)
            else tuple(names.get(each, each) for each in value)
            for key, value in named.items()
            if value is not None
        }
        parts[part] = old if old is None else replace(old, **new)
    return replace(config, **parts)


_NAMING: Final = (
    *("position_features", "rotation_vec_features", "rotation_angle_feature"),
    *("exclude_entities", "reference_entity"),
)
"""Fields of `RelposEncodingConfig` and `TranslationConfig` that hold names."""


class FeatureAdaptor:
    """Converts observations of a game to the spaces of an agent; the order of features may differ.

    Raises:
        CheckpointError: the game lacks a feature or type of the agent, or an action differs; the
            message names every such difference.
    """

    def __init__(self, agent: Spaces, game: Spaces) -> None:
        if found := unadaptable(agent, game):
            raise CheckpointError(
                f"the checkpoint cannot be adapted to the game: {briefly(found)}. Features and "
                "entities that the agent does not know are left out, but the game must have all "
                "that the agent was trained on"
            )
        (agent_obs, _), (game_obs, _) = agent, game
        self._widths = {name: len(entity.features) for name, entity in game_obs.entities.items()}
        self._columns = {
            name: _positions(entity.features, game_obs.entities[name].features)
            for name, entity in agent_obs.entities.items()
        }
        self._relations = {*agent_obs.relations, *game_obs.relations}
        self._globals = _positions(agent_obs.global_features, game_obs.global_features)
        self._num_globals = len(game_obs.global_features)
        self._shown = tuple(entity_widths(*game))
        """Types in a batch of the game."""
        self._seen = tuple(entity_widths(*agent))
        """Types in a batch of the agent; all exist in the game."""

    def observation(self, observation: Observation) -> Observation:
        """The observation in the agent's spaces; actors and actees keep their order."""
        shared = observation.global_features
        if len(shared) != self._num_globals:
            raise SchemaError(f"{len(shared)} global features, expected {self._num_globals}")
        return Observation(
            reward=observation.reward,
            terminated=observation.terminated,
            truncated=observation.truncated,
            global_features=np.asarray(shared)[self._globals],
            features={
                name: self._take(name, rows)
                for name, rows in observation.features.items()
                if name in self._columns
            },
            ids=_only(observation.ids, self._columns),
            actions={
                name: self._mask(name, mask, observation)
                for name, mask in observation.actions.items()
            },
            visible=_only(observation.visible, self._columns),
            metrics=observation.metrics,
        )

    def known_entities(self, observation: Observation) -> NDArray[np.int64]:
        """`(num_entities,)`: for every entity, its index after adapting; -1 = left out.

        Relations do not count.
        """
        starts, stop = {}, 0
        for name in self._columns:
            if name not in self._relations:
                starts[name], stop = stop, stop + observation.num_entities(name)
        index: list[int] = []
        for name in self._widths:
            if name in self._relations:
                continue
            count = observation.num_entities(name)
            first = starts.get(name)
            index += [-1] * count if first is None else range(first, first + count)
        return np.array(index, np.int64)

    def batch(self, obs: Batch) -> ObsBatch:
        """The batch in the agent's spaces; actors and actees keep their order."""
        shift, ends = self._shifts(obs)
        features = {name: obs.features[name] for name in self._seen}
        return ObsBatch(
            features={
                name: RaggedArray.unchecked(rows.values[:, self._columns_of(name)], rows.lengths)
                for name, rows in features.items()
            },
            visible=_only(obs.visible, self._columns),
            action_masks={
                name: self._vec_mask(name, mask, shift, ends)
                for name, mask in obs.action_masks.items()
            },
        )

    def _columns_of(self, name: EntityName) -> Columns:
        return self._globals if name == GLOBAL_ENTITY else self._columns[name]

    def _take(self, name: EntityName, rows: Features) -> Features:
        if not len(rows):
            return rows
        array, width = np.asarray(rows), self._widths[name]
        if array.ndim != 2 or array.shape[1] != width:
            raise SchemaError(
                f"entity {name}: features need the shape (num_entities, {width}), got {array.shape}"
            )
        taken: Features = array[:, self._columns[name]]
        return taken

    def _mask(self, action: ActionName, mask: ActionMask, observation: Observation) -> ActionMask:
        """The mask for the agent; without ids and types, it names all types the agent knows."""
        if isinstance(mask, GlobalCategoricalActionMask):
            return mask
        actors = self._types(action, "act", mask.actor_ids, mask.actor_types, observation)
        if not isinstance(mask, SelectEntityActionMask):
            return replace(mask, actor_types=actors)
        actees = self._types(action, "be selected", mask.actee_ids, mask.actee_types, observation)
        return replace(mask, actor_types=actors, actee_types=actees)

    def _types(
        self,
        action: ActionName,
        role: str,
        ids: Sequence[EntityID] | None,
        types: Sequence[EntityName] | None,
        observation: Observation,
    ) -> Sequence[EntityName] | None:
        """The known ones among `types` (None = all); None if the entities are given by ids."""
        named = list(self._widths if types is None else types)
        for name in self._widths.keys() - self._columns.keys():
            count = observation.num_entities(name)
            if ids is None:
                is_needed = count > 0 and name in named
            else:
                known = observation.ids.get(name, [(name, i) for i in range(count)])
                is_needed = not set(ids).isdisjoint(known)
            if is_needed:
                raise _unknown(action, role, name)
        return None if ids is not None else [name for name in named if name in self._columns]

    def _shifts(self, obs: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shift of each type's entity indices, and the index where the type ends in the game.

        Both are `(num_types, num_rows)`, in the order of the game's types.
        """
        counts = {name: obs.features[name].lengths for name in self._shown}
        stops = np.cumsum(list(counts.values()), axis=0)
        place = np.cumsum([counts[name] for name in self._seen], axis=0)
        shift = np.zeros_like(stops)
        for i, name in enumerate(self._seen):
            at = self._shown.index(name)
            shift[at] = place[i] - stops[at]
        return shift, stops

    def _vec_mask(
        self,
        action: ActionName,
        mask: VecActionMask,
        shift: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> VecActionMask:
        actors = self._moved(action, "act", mask.actors, shift, ends)
        if not isinstance(mask, VecSelectEntityActionMask):
            return replace(mask, actors=actors)
        actees = self._moved(action, "be selected", mask.actees, shift, ends)
        return replace(mask, actors=actors, actees=actees)

    def _moved(
        self,
        action: ActionName,
        role: str,
        entities: RaggedArray[np.int64],
        shift: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> RaggedArray[np.int64]:
        """The same entities, as indices in the agent's observations."""
        rows = entities.row_index
        kinds = (entities.values >= ends[:, rows]).sum(axis=0)
        for kind in np.unique(kinds):
            if self._shown[kind] not in self._seen:
                raise _unknown(action, role, self._shown[kind])
        return RaggedArray.unchecked(entities.values + shift[kinds, rows], entities.lengths)


def _known(wanted: Sequence[str], there: Collection[str]) -> list[str]:
    return [name for name in wanted if name in there]


def _positions(wanted: Sequence[str], there: Sequence[str]) -> Columns:
    place = {name: i for i, name in enumerate(there)}
    return np.array([place[name] for name in wanted], dtype=np.int64)


def _only(mapping: Mapping[EntityName, _Value], names: Collection[str]) -> dict[EntityName, _Value]:
    return {name: value for name, value in mapping.items() if name in names}


def _unknown(action: ActionName, role: str, name: EntityName) -> SchemaError:
    return SchemaError(
        f"action {action!r}: entities of type {name} can {role}, but the agent was trained without "
        "this type; train the agent again, or leave the type out of the action"
    )
