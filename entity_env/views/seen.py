"""`SeenObservation`: one agent's observation in one step, by name."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from entity_env.core.observation import EntityID, Observation, PlainObservation
from entity_env.core.spaces import ACTOR_ENTITY, GLOBAL_ENTITY, EntityName, ObsSpace
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ONE_HOT: Final = ".is_"
_HAS: Final = "has_"


@dataclass(frozen=True, eq=False)
class SeenEntity:
    """One entity of an observation, with its features as attributes.

    `ship.x` is a number; `ship.kind` is the name of the Enum member whose one-hot feature is set
    (None if none is, `A|B` for several bits of a Flag); `ship.position` is a list of the numbers
    `position.x`, `position.y` and so on. `ship["x"]` is equivalent, and also works for features
    named like a field below.

    Args:
        id: as in `Observation.entity_ids`.
        features: `(num_features,)` float64; a list in a `PlainObservation`.
        is_visible: False if hidden from the policy.
        index: position among all entities, in the order of the space; -1 for the global features.
        ends: the two entities of a relation; empty for an entity.
        shape: of a picture, as in `Entity`; None = not a picture.
    """

    id: EntityID
    type: EntityName
    features: NDArray[np.float64]
    is_visible: bool = True
    names: Sequence[str] = ()
    index: int = -1
    ends: tuple[SeenEntity, ...] = ()
    shape: tuple[int, int, int] | None = None

    def __getitem__(self, name: str) -> float | str | list[float] | None:
        if name in self.names:
            return float(self.features[self.names.index(name)])
        members = [
            (i, member)
            for i, (field, member) in enumerate(map(member_of, self.names))
            if field == name and member
        ]
        if members:
            return "|".join(member for i, member in members if self.features[i]) or None
        parts = [i for i, each in enumerate(self.names) if each.startswith(f"{name}.")]
        if not parts:
            raise KeyError(f"{self.type} has no feature {name!r}; it has {', '.join(self.names)}")
        return [float(self.features[i]) for i in parts]

    def __getattr__(self, name: str) -> float | str | list[float] | None:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None


class Spot(NamedTuple):
    """One place of a choice.

    Args:
        x, y: coordinates of the game; if the look has `draw` and `size`, those of the scene.
        words: name of this part of a choice that has several parts; "" = the choice itself.
    """

    x: float
    y: float
    words: str = ""


Place: TypeAlias = "Spot | tuple[float, float] | SeenEntity"
"""One place of a choice; an entity stands for the center of its first shape."""
Chosen: TypeAlias = "str | SeenEntity | Sequence[float]"
"""A label, a selected entity, or the numbers of a continuous action."""


class SeenObservation:
    """One agent's observation: `seen["Food"]` lists its entities of one type.

    Args:
        observation: observation of one step; its arrays are not copied.
        agent_id: the observing agent; the game may show the observation from its point of view.
        hidden: also list entities hidden from the policy.
        agent_names: display names of all agents; empty = unknown.
        viewer: id of the agent whose side is drawn first, if observations are open to all.
    """

    def __init__(
        self,
        observation: Observation,
        obs_space: ObsSpace,
        agent_id: int = 0,
        *,
        hidden: bool = True,
        agent_names: Sequence[str] = (),
        viewer: int = 0,
    ) -> None:
        self.agent_names = agent_names
        self.viewer = viewer
        self.observation = observation
        self.obs_space = obs_space
        self.agent_id = agent_id
        self.entities: list[SeenEntity] = [
            entity
            for entity in seen_entities(observation, obs_space)
            if hidden or entity.is_visible
        ]
        """In space order."""
        values = _numbers(observation, observation.global_features)
        names = obs_space.global_features if len(values) else ()
        self.globals = SeenEntity(None, GLOBAL_ENTITY, values, True, names)
        """The global features."""

    def __getitem__(self, name: EntityName) -> list[SeenEntity]:
        """The entities of one type; KeyError if the space has no such type."""
        if name not in self.obs_space.entities:
            types = ", ".join(self.obs_space.entities)
            raise KeyError(f"there is no entity type {name!r}; the types are {types}")
        return [entity for entity in self.entities if entity.type == name]


def seen_entities(observation: Observation, obs_space: ObsSpace) -> Iterator[SeenEntity]:
    """Yields the entities in the order of `Observation.entity_ids`, without `ACTOR_ENTITY`."""
    ids = enumerate(observation.entity_ids(obs_space))
    ends: dict[EntityName, list[SeenEntity]] = {
        name: [] for relation in obs_space.relations.values() for name in relation.references or ()
    }
    for name, space in obs_space.entities.items():
        if name not in observation.features:
            continue
        visible = observation.visible.get(name)
        for i in range(observation.num_entities(name)):
            row = _numbers(observation, observation.features[name][i])
            index, entity_id = next(ids)
            is_visible = visible is None or bool(visible[i])
            of = tuple(
                ends[other][int(row[column])]
                for column, other in enumerate(space.references or ())
                if 0 <= row[column] < len(ends[other])
            )
            of = of if len(of) == 2 else ()  # else wrong rows of an environment
            names, shape = space.features, space.shape
            entity = SeenEntity(entity_id, name, row, is_visible, names, index, of, shape)
            if name in ends:
                ends[name].append(entity)
            if name != ACTOR_ENTITY:
                yield entity


def _numbers(observation: Observation, values: Any) -> Any:  # noqa: ANN401 - an array or a list
    if isinstance(observation, PlainObservation):
        return values
    return np.asarray(values, dtype=np.float64)


@lru_cache(maxsize=256)
def presence_of(names: tuple[str, ...]) -> Mapping[str, str]:
    """Maps each feature that says whether a field is present to that field.

    For example, `ship.has_target` maps to `ship.target`.
    """
    found: dict[str, str] = {}
    ordered = sorted(names)
    for name in names:
        prefix, dot, last = name.rpartition(".")
        if not last.startswith(_HAS):
            continue
        field = f"{prefix}{dot}{last.removeprefix(_HAS)}"
        nearest = (
            ordered[(i := bisect_left(ordered, each)) : i + 1] for each in (field, f"{field}.")
        )
        if any(is_part(other, field) for others in nearest for other in others):
            found[name] = field
    return MappingProxyType(found)


def is_part(feature: str, field: str) -> bool:
    """Whether a feature is a field, or part of it."""
    return feature == field or feature.startswith(f"{field}.")


def first_enum(features: Sequence[str]) -> tuple[str, dict[int, str]]:
    """The first field with one-hot features, or "", and its members by column."""
    found = [(i, *member_of(name)) for i, name in enumerate(features)]
    first = next((field for _, field, member in found if member), "")
    return first, {i: member for i, field, member in found if member and field == first}


def member_of(feature: str) -> tuple[str, str]:
    """Field and member of a one-hot feature such as `stance.is_Calm`; else the name and ""."""
    field, _, member = feature.rpartition(_ONE_HOT)
    if not field or not member.isidentifier():  # such as `parts.is_left.x`
        return feature, ""
    return field, member
