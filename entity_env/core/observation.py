"""Observations, action masks and actions. Names and keywords are those of entity-gym."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from entity_env.core.spaces import ActionName, EntityName, ObsSpace
from entity_env.errors import SchemaError
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

EntityID: TypeAlias = Hashable
Features: TypeAlias = "NDArray[np.floating] | NDArray[np.integer] | Sequence[Sequence[float]]"
"""`(num_entities, num_features)`: an array of any numeric dtype, or a sequence of rows."""
BoolMask: TypeAlias = (
    "NDArray[np.bool_] | NDArray[np.integer] | Sequence[int] | Sequence[Sequence[int]] | "
    "Sequence[Sequence[Sequence[int]]]"
)
"""True (or 1) = allowed. Bools and numbers of any dtype are accepted if all are 0 or 1.

A mask with three dimensions has a row for every choice of the action before, on which it depends.
"""


@dataclass(frozen=True, init=False)
class CategoricalActionMask:
    """Actors of a categorical action, and their allowed labels.

    Args:
        actor_ids: ids of the acting entities; exclusive with `actor_types`.
        actor_types: types whose entities all act. If neither is given, every entity acts.
        mask: `(num_actors, num_choices)` bool, True = allowed; None allows everything.
    """

    actor_ids: Sequence[EntityID] | None
    actor_types: Sequence[EntityName] | None
    mask: BoolMask | None

    def __init__(
        self,
        actor_ids: Sequence[EntityID] | None = None,
        actor_types: Sequence[EntityName] | None = None,
        mask: BoolMask | None = None,
    ) -> None:
        if actor_ids is not None and actor_types is not None:
            raise _not_both("actor_ids", "actor_types")
        fields = self.__dict__  # twice as fast as the generated constructor
        fields["actor_ids"] = actor_ids
        fields["actor_types"] = actor_types
        fields["mask"] = mask


@dataclass(frozen=True)
class GlobalCategoricalActionMask:
    """Requests one label for the whole observation.

    Args:
        mask: `(num_choices,)` or `(1, num_choices)` bool, True = allowed; None allows everything.
    """

    mask: BoolMask | None = None


@dataclass(frozen=True)
class SelectEntityActionMask:
    """Actors of a select action, and the entities that each actor may select.

    Args:
        actor_ids, actor_types: the actors, as in `CategoricalActionMask`.
        actee_ids: ids of the selectable entities; exclusive with `actee_types`.
        actee_types: types whose entities can all be selected. If neither is given, all types.
        mask: `(num_actors, num_actees)` bool, True = allowed; None allows everything.
    """

    actor_ids: Sequence[EntityID] | None = None
    actor_types: Sequence[EntityName] | None = None
    actee_types: Sequence[EntityName] | None = None
    actee_ids: Sequence[EntityID] | None = None
    mask: BoolMask | None = None

    def __post_init__(self) -> None:
        if self.actor_ids is not None and self.actor_types is not None:
            raise _not_both("actor_ids", "actor_types")
        if self.actee_ids is not None and self.actee_types is not None:
            raise _not_both("actee_ids", "actee_types")


@dataclass(frozen=True)
class ContinuousActionMask:
    """Actors of a continuous action; arguments as for `CategoricalActionMask`."""

    actor_ids: Sequence[EntityID] | None = None
    actor_types: Sequence[EntityName] | None = None

    def __post_init__(self) -> None:
        if self.actor_ids is not None and self.actor_types is not None:
            raise _not_both("actor_ids", "actor_types")


ActionMask: TypeAlias = (
    CategoricalActionMask
    | GlobalCategoricalActionMask
    | SelectEntityActionMask
    | ContinuousActionMask
)
"""Actors and allowed choices, for any kind of action."""


@dataclass(frozen=True, init=False)
class CategoricalAction:
    """One label per actor.

    Args:
        actors: ids of the acting entities, in mask order.
        indices: `(num_actors,)` int64, index of the chosen label; a list for a `PlainObservation`.
        probs: `(num_actors, num_choices)` float32, the agent's probabilities, if known.
    """

    actors: Sequence[EntityID]
    indices: NDArray[np.int64]
    index_to_label: Sequence[str]
    probs: NDArray[np.float32] | None

    def __init__(
        self,
        actors: Sequence[EntityID],
        indices: NDArray[np.int64],
        index_to_label: Sequence[str],
        probs: NDArray[np.float32] | None = None,
    ) -> None:
        fields = self.__dict__  # for speed, as in `CategoricalActionMask`
        fields["actors"] = actors
        fields["indices"] = indices
        fields["index_to_label"] = index_to_label
        fields["probs"] = probs

    @property
    def labels(self) -> list[str]:
        """The chosen labels, one per actor."""
        return [self.index_to_label[i] for i in self.indices]


@dataclass(frozen=True)
class GlobalCategoricalAction:
    """One label for the whole observation; `probs` is `(num_choices,)` float32 if known."""

    index: int
    label: str
    probs: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SelectEntityAction:
    """One selected entity per actor.

    Args:
        actors: ids of the selecting entities, in mask order.
        actees: id of the entity selected by each actor.
        probs: `(num_actors, num_actees)` float32, the agent's probabilities, if known.
    """

    actors: Sequence[EntityID]
    actees: Sequence[EntityID]
    probs: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class ContinuousAction:
    """Real numbers per actor.

    Args:
        values: `(num_actors, num_labels)` float32; a sequence of numbers per actor for a
            `PlainObservation`.
    """

    actors: Sequence[EntityID]
    values: NDArray[np.float32]


Action: TypeAlias = (
    CategoricalAction | GlobalCategoricalAction | SelectEntityAction | ContinuousAction
)
"""Any kind of action."""


@dataclass(init=False)
class Observation:
    """Features, action masks, reward and flags of one step.

    Arrays are kept, not copied.

    Args:
        terminated: the episode ended by its rules; default False.
        truncated: the episode was stopped early, as by a time limit; its last state still has a
            value.
        done: entity-gym's name for the argument `terminated`; pass only one of the two.
        reward: earned since the previous observation; 0 for the first of an episode.
        global_features: one number per global feature.
        features: per entity type `(num_entities, num_features)`. An absent type has no entities.
        ids: per entity type one hashable id per entity, unique across all types; default
            `(type, position)`.
        entities: entity-gym's short form, in place of `features`: `{type: features}` or
            `{type: (features, ids)}`.
        actions: masks of the requested actions; an absent action has no actors.
        visible: per entity type `(num_entities,)` bool; False hides an entity from the policy but
            not from the value function.
        metrics: named numbers to log.
    """

    global_features: NDArray[np.floating] | NDArray[np.integer] | Sequence[float]
    features: Mapping[EntityName, Features]
    actions: Mapping[ActionName, ActionMask]
    reward: float
    terminated: bool
    truncated: bool
    ids: Mapping[EntityName, Sequence[EntityID]]
    visible: Mapping[EntityName, BoolMask]
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __init__(
        self,
        *,
        reward: float,
        done: bool | None = None,
        terminated: bool | None = None,
        truncated: bool = False,
        global_features: NDArray[np.floating] | NDArray[np.integer] | Sequence[float] = (),
        features: Mapping[EntityName, Features] | None = None,
        ids: Mapping[EntityName, Sequence[EntityID]] | None = None,
        entities: Mapping[EntityName, Features | tuple[Features, Sequence[EntityID]] | None]
        | None = None,
        actions: Mapping[ActionName, ActionMask] | None = None,
        visible: Mapping[EntityName, BoolMask] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        if done is not None and terminated is not None:
            raise _not_both("done", "terminated")
        if features is not None and entities is not None:
            raise _not_both("features", "entities")
        self.terminated = bool(done or terminated)
        self.truncated = bool(truncated)
        self.reward = reward
        self.global_features = global_features
        self.features = features if features is not None else _features_of(entities or {})
        self.ids = ids if ids is not None else _ids_of(entities or {})
        self.actions = actions or {}
        self.visible = visible or {}
        self.metrics = metrics or {}

    @property
    def done(self) -> bool:
        """`terminated or truncated`."""
        return self.terminated or self.truncated

    @property
    def is_blank(self) -> bool:
        """True if `features` and `global_features` are empty, as in some final observations."""
        return not len(self.features) and not len(self.global_features)

    def num_entities(self, entity: EntityName) -> int:
        """Number of entities of one type in this observation."""
        return len(self.features[entity]) if entity in self.features else 0

    def entity_ids(self, obs_space: ObsSpace) -> list[EntityID]:
        """Ids of all entities in observation space order; an id's position is its entity's index.

        Raises:
            SchemaError: the numbers of ids and entities of a type differ.
        """
        ids: list[EntityID] = []
        for name in obs_space.entities:
            if name in self.features or name in self.ids:  # fast even with thousands of types
                ids.extend(self._ids_of_type(name))
        return ids

    def index_of_ids(self, obs_space: ObsSpace) -> dict[EntityID, int]:
        """Index of each entity by id, in entity order.

        Raises:
            SchemaError: an id is not hashable, or belongs to several entities; or the numbers of
                ids and entities differ.
        """
        ids = self.entity_ids(obs_space)
        try:
            index_of = dict(zip(ids, range(len(ids)), strict=True))
        except TypeError as error:
            raise SchemaError(f"ids of entities must be hashable: {error}") from error
        if len(index_of) != len(ids):
            repeated = next(x for i, x in enumerate(ids) if index_of[x] != i)
            raise SchemaError(
                f"the id {repeated!r} belongs to more than one entity: "
                "ids must differ over all types"
            )
        return index_of

    def actor_indices(self, action: ActionName, obs_space: ObsSpace) -> NDArray[np.int64]:
        """Index of every entity that performs `action`, in mask order; empty if not requested.

        The actor of a global action has the index after the last entity's.

        Raises:
            SchemaError: an id that is not in this observation, a type that is not in `obs_space`,
                or the errors of `index_of_ids`.
        """
        return _as_array(self.actor_positions(action, obs_space))

    def actee_indices(self, action: ActionName, obs_space: ObsSpace) -> NDArray[np.int64]:
        """Index of every entity that `action` can select, in mask order; empty if not requested.

        Raises:
            SchemaError: `action` is not a select action; or the errors of `actor_indices`.
        """
        return _as_array(self.actee_positions(action, obs_space))

    def actor_positions(self, action: ActionName, obs_space: ObsSpace) -> Sequence[int]:
        """`actor_indices` as a list or range; needs no numpy."""
        mask = self.actions.get(action)
        if mask is None:
            return ()
        if isinstance(mask, GlobalCategoricalActionMask):
            return [sum(self.num_entities(name) for name in obs_space.entities)]
        return self._positions(action, "actor", mask.actor_ids, mask.actor_types, obs_space)

    def actee_positions(self, action: ActionName, obs_space: ObsSpace) -> Sequence[int]:
        """`actee_indices` as a list or range; needs no numpy."""
        mask = self.actions.get(action)
        if mask is None:
            return ()
        if not isinstance(mask, SelectEntityActionMask):
            raise SchemaError(f"action {action!r} selects no entity: its mask is {mask!r}")
        return self._positions(action, "actee", mask.actee_ids, mask.actee_types, obs_space)

    def actor_ids(self, action: ActionName, obs_space: ObsSpace) -> list[EntityID]:
        """Id of every entity that performs a requested, non-global `action`, in mask order.

        Raises:
            SchemaError: the errors of `actor_indices`; the action is global; or the numbers of ids
                and entities differ.
        """
        mask = self.actions[action]
        if isinstance(mask, GlobalCategoricalActionMask):
            raise SchemaError(f"action {action!r} is global: no entity performs it")
        return self._chosen_ids(action, "actor", mask.actor_ids, mask.actor_types, obs_space)

    def actee_ids(self, action: ActionName, obs_space: ObsSpace) -> list[EntityID]:
        """Id of every entity that the requested `action` can select.

        Raises:
            SchemaError: the errors of `actee_indices`; or the numbers of ids and entities differ.
        """
        mask = self.actions[action]
        if not isinstance(mask, SelectEntityActionMask):
            raise SchemaError(f"action {action!r} selects no entity: its mask is {mask!r}")
        return self._chosen_ids(action, "actee", mask.actee_ids, mask.actee_types, obs_space)

    def _ids_of_type(self, name: EntityName) -> Sequence[EntityID]:
        count = self.num_entities(name)
        ids = self.ids.get(name)
        if ids is None:
            return [(name, i) for i in range(count)]
        if len(ids) != count:
            raise SchemaError(
                f"entity {name!r}: {count} rows of features but {len(ids)} ids; give one id per row"
            )
        return ids

    def _chosen_ids(
        self,
        action: ActionName,
        role: str,
        ids: Sequence[EntityID] | None,
        types: Sequence[EntityName] | None,
        obs_space: ObsSpace,
    ) -> list[EntityID]:
        if ids is not None or types is None or self.ids:
            index = self._positions(action, role, ids, types, obs_space)
            known = self.entity_ids(obs_space)
            return [known[i] for i in index]
        # Avoids creating the ids of other types.
        _require_types(action, role, types, obs_space)
        return [entity_id for name in types for entity_id in self._ids_of_type(name)]

    def _positions(
        self,
        action: ActionName,
        role: str,
        ids: Sequence[EntityID] | None,
        types: Sequence[EntityName] | None,
        obs_space: ObsSpace,
    ) -> Sequence[int]:
        if ids is not None:
            index_of = self.index_of_ids(obs_space)
            missing = [entity_id for entity_id in ids if entity_id not in index_of]
            if missing:
                raise unknown_id(action, role, missing[0], index_of)
            return [index_of[entity_id] for entity_id in ids]
        ranges: dict[EntityName, range] = {}
        stop = 0
        for name in obs_space.entities:
            start, stop = stop, stop + self.num_entities(name)
            ranges[name] = range(start, stop)
        if types is None:
            return range(stop)
        _require_types(action, role, types, obs_space)
        if len(types) == 1:
            return ranges[types[0]]
        return [position for name in types for position in ranges[name]]


class PlainObservation(Observation):
    """An observation whose numbers and masks are lists, so it needs no numpy.

    Agents that read a game's objects, such as `ScriptedAgent`, pass it to watchers that need no
    arrays. Features are numbers rounded to single precision; masks are bools.
    """


def _as_array(positions: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(positions, range):  # many times faster
        return np.arange(positions.start, positions.stop, dtype=np.int64)
    return np.array(positions, dtype=np.int64)


def _require_types(
    action: ActionName, role: str, types: Sequence[EntityName], obs_space: ObsSpace
) -> None:
    for name in types:
        if name not in obs_space.entities:
            raise unknown_type(action, role, name, obs_space.entities)


def unknown_type(
    action: ActionName, role: str, name: EntityName, known: Collection[EntityName]
) -> SchemaError:
    """Error for an "actor" or "actee" of an undeclared type."""
    return SchemaError(
        f"action {action!r}: {role} type {name!r} is not in the observation space, "
        f"which has {', '.join(known)}"
    )


def unknown_id(
    action: ActionName, role: str, entity_id: EntityID, known: Collection[EntityID]
) -> SchemaError:
    """Error for an "actor" or "actee" that is not among the entities."""
    return SchemaError(
        f"action {action!r}: {role} {entity_id!r} is not among the entities observed; "
        f"their ids are {list(known)[:20]}"
    )


def _features_of(
    entities: Mapping[EntityName, Features | tuple[Features, Sequence[EntityID]] | None],
) -> dict[EntityName, Features]:
    for name, value in entities.items():
        if isinstance(value, tuple) and len(value) != 2:
            raise SchemaError(
                f"entity {name!r}: a tuple means (features, ids), got {len(value)} items: "
                "pass rows as a list or an array"
            )
    return {
        name: value[0] if isinstance(value, tuple) else value
        for name, value in entities.items()
        if value is not None
    }


def _ids_of(
    entities: Mapping[EntityName, Features | tuple[Features, Sequence[EntityID]] | None],
) -> dict[EntityName, Sequence[EntityID]]:
    return {name: value[1] for name, value in entities.items() if isinstance(value, tuple)}


def _not_both(a: str, b: str) -> SchemaError:
    return SchemaError(f"pass {a} or {b}, not both")
