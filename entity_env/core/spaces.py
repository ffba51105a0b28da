"""Observation and action spaces. Names and keywords are those of entity-gym."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

from entity_env.errors import SchemaError, shown

EntityName: TypeAlias = str
"""Name of an entity type: in a `Game`, the name of its class."""
ActionName: TypeAlias = str
"""Name of an action; for the default names in a `Game` see the subclasses of `ActionType`."""

GLOBAL_ENTITY = "__global__"
"""Name of the entity that holds a batch's global features: one row per nonempty observation."""
ACTOR_ENTITY: Final = "__actor__"
"""Name of the entity, without features, that makes a `Game`'s global decisions that select entities
or contain numbers; an observation has one if it asks for such a decision."""
_NO_NAME: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that names of arrays in a file cannot hold: NUL and unpaired surrogates."""


@dataclass(frozen=True)
class Entity:
    """The features of one entity type, in column order.

    Comparisons ignore `is_single`, `shape` and `is_binary`.

    A *relation* is a row about two entities of the same observation, such as a route between two
    planets. Its first two features are references: the position of an entity among the
    observation's entities of its type, a whole number from 0.

    Args:
        is_single: every observation has exactly one entity of this type, so a network can read it
            as a vector.
        shape: height, width and channels, if the features are the pixels of a picture in row-major
            order, channels last; None = not a picture.
        is_binary: all features are 0 or 1, such as a one-hot vector.
        references: of a relation, the types of the two entities; None = not a relation.

    Raises:
        SchemaError: a duplicate or invalid feature name, a shape that does not match the number
            of features, or a relation without two references.
    """

    features: Sequence[str]
    is_single: bool = field(default=False, compare=False)
    shape: tuple[int, int, int] | None = field(default=None, compare=False)
    is_binary: bool = field(default=False, compare=False)
    references: tuple[EntityName, EntityName] | None = None

    def __post_init__(self) -> None:
        _require_unique(self.features, "entity features")
        self._require_references()
        shape = self.shape
        if shape is None:
            return
        sizes: object = shape  # any type, if read from a file
        is_shape = isinstance(sizes, tuple) and [type(size) for size in sizes] == [int] * 3
        if not is_shape or min(shape) < 1 or prod(shape) != len(self.features):
            raise SchemaError(
                "the shape of a picture must be (height, width, channels), with a product equal to "
                f"the number of features, {len(self.features)}: got {shown(shape)}"
            )

    def _require_references(self) -> None:
        """Raises SchemaError for a relation without two columns of references."""
        given: object = self.references  # any type, if read from a file
        if given is None:
            return
        is_pair = isinstance(given, tuple) and [type(name) for name in given] == [str] * 2
        if not is_pair or len(self.features) < 2 or self.is_single or self.shape is not None:
            raise SchemaError(
                "a relation needs the names of two entity types, and two features that refer to "
                "their entities; it cannot be single or a picture: got references "
                f"{shown(given)} and the features {', '.join(self.features) or 'none'}"
            )


@dataclass(frozen=True)
class ObsSpace:
    """Observation space: global features and entity types, both ordered; relations come last.

    Raises:
        SchemaError: a reserved or duplicate name, an entity type after a relation, or a relation
            to something else than an entity type.
    """

    global_features: Sequence[str] = ()
    entities: Mapping[EntityName, Entity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_unique(self.global_features, "global features")
        require_names(self.entities, "entities")
        for name in self.entities:
            if not name or name == GLOBAL_ENTITY:
                raise SchemaError(f"entity name {name!r} is reserved: choose another name")
        types = [name for name, each in self.entities.items() if each.references is None]
        if types != [*self.entities][: len(types)]:
            raise SchemaError(
                f"relations must come after all entity types: got {', '.join(self.entities)}"
            )
        for name, entity in self.relations.items():
            unknown = [other for other in entity.references or () if other not in types]
            if unknown:
                raise SchemaError(
                    f"relation {name!r} refers to {unknown[0]!r}, expected an entity type: "
                    f"{', '.join(types) or 'there are none'}"
                )

    @property
    def relations(self) -> dict[EntityName, Entity]:
        """The entity types that are relations, see `Entity`."""
        return {name: each for name, each in self.entities.items() if each.references is not None}


@dataclass(frozen=True)
class _Labelled:
    index_to_label: Sequence[str]
    given: Sequence[ActionName] = ()

    def __post_init__(self) -> None:
        if not len(self.index_to_label):
            raise SchemaError("a categorical action needs at least one label, got none")
        _require_unique(self.index_to_label, "action labels")

    def __len__(self) -> int:
        return len(self.index_to_label)


class CategoricalActionSpace(_Labelled):
    """Each actor chooses one label.

    Args:
        given: names of earlier actions of the same actors, in order: an actor makes those choices
            first, and this one depends on them. A mask may depend on the last of them.
    """


class GlobalCategoricalActionSpace(_Labelled):
    """The agent chooses one label for the whole observation; `given` names global actions."""


@dataclass(frozen=True)
class SelectEntityActionSpace:
    """Each actor selects one entity; `given` as in `CategoricalActionSpace`."""

    given: Sequence[ActionName] = ()


@dataclass(frozen=True)
class ContinuousActionSpace:
    """Each actor chooses one real number per label.

    Args:
        low: smallest allowed value per label, finite.
        high: largest allowed value per label, finite, above `low`.
        labels: a name per number; default `("0", "1", ...)`.
        given: as in `CategoricalActionSpace`.
    """

    low: Sequence[float]
    high: Sequence[float]
    labels: Sequence[str] = ()
    given: Sequence[ActionName] = ()

    def __post_init__(self) -> None:
        if not self.labels:
            object.__setattr__(self, "labels", tuple(str(i) for i in range(len(self.low))))
        if not len(self.low) == len(self.high) == len(self.labels) or not self.labels:
            raise SchemaError(
                "a continuous action needs as many low as high bounds and labels, at least one: "
                f"got {len(self.low)} low, {len(self.high)} high, {len(self.labels)} labels"
            )
        require_names(self.labels, "action labels")
        for label, low, high in zip(self.labels, self.low, self.high, strict=True):
            bounds: tuple[object, object] = (low, high)
            if any(isinstance(bound, str) for bound in bounds):
                raise SchemaError(
                    f"continuous action {label!r} needs numbers as bounds: got low {low!r}, "
                    f"high {high!r}; the order is low, high, labels"
                )
            if not -float("inf") < low < high < float("inf"):
                raise SchemaError(
                    f"continuous action {label!r} needs finite bounds with low < high: "
                    f"got low {low}, high {high}"
                )

    def __len__(self) -> int:
        return len(self.labels)


ActionSpace: TypeAlias = (
    CategoricalActionSpace
    | GlobalCategoricalActionSpace
    | SelectEntityActionSpace
    | ContinuousActionSpace
)
"""Any kind of action space."""


def require_given(action_space: Mapping[ActionName, ActionSpace]) -> None:
    """Raises SchemaError unless each action depends on earlier actions of the same kind of actor.

    An action may not depend on a later one or on itself, and a global action only on global ones.
    """
    earlier: dict[ActionName, bool] = {}
    for name, space in action_space.items():
        is_global = isinstance(space, GlobalCategoricalActionSpace)
        for other in space.given:
            if other not in earlier:
                raise SchemaError(
                    f"action {name!r} depends on {other!r}, which must be an earlier action: "
                    f"earlier are {', '.join(earlier) or 'none'}"
                )
            if earlier[other] != is_global:
                raise SchemaError(
                    f"action {name!r} depends on {other!r}, but only one of them is global: both "
                    "need the same actors"
                )
        _require_unique(space.given, "actions that another depends on")
        earlier[name] = is_global


def has_dependent(action_space: Mapping[ActionName, ActionSpace]) -> bool:
    """Whether any action depends on another."""
    return any(space.given for space in action_space.values())


def has_global_entity(obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> bool:
    """Whether a batch has a `GLOBAL_ENTITY` row for every observation that is not empty.

    True if there are global features or a global action: the row is the actor of global actions.
    """
    return bool(obs_space.global_features) or any(
        isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values()
    )


def entity_widths(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[EntityName, int]:
    """Number of features of each entity type in a batch; `GLOBAL_ENTITY` is last if present."""
    widths = {name: len(entity.features) for name, entity in obs_space.entities.items()}
    if has_global_entity(obs_space, action_space):
        widths[GLOBAL_ENTITY] = len(obs_space.global_features)
    return widths


def require_names(names: Iterable[object], kind: str) -> None:
    """Raises SchemaError if a name cannot be stored: it has NUL or an unpaired surrogate."""
    for name in names:
        if isinstance(name, str) and _NO_NAME.search(name):
            raise SchemaError(
                f"{kind} need names without NUL and lone surrogates: rename {shown(name)}"
            )


def _require_unique(names: Sequence[str], kind: str) -> None:
    if isinstance(names, str):
        raise SchemaError(f"{kind} must be a list of names, got the single string {names!r}")
    require_names(names, kind)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise SchemaError(f"{kind} must differ: got {', '.join(repeated)} more than once")


# ------------------------------------------------------------------ as JSON

Spaces: TypeAlias = tuple[ObsSpace, Mapping[ActionName, ActionSpace]]
"""Observation space and action space."""

_KINDS: dict[type[ActionSpace], str] = {
    CategoricalActionSpace: "categorical",
    GlobalCategoricalActionSpace: "global_categorical",
    SelectEntityActionSpace: "select_entity",
    ContinuousActionSpace: "continuous",
}


def spaces_to_json(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[str, object]:
    """Converts both spaces to JSON data; lists preserve the order."""
    require_names(action_space, "actions")
    return {
        "global_features": list(obs_space.global_features),
        "entities": [
            {
                "name": name,
                "features": list(entity.features),
                **({"is_single": True} if entity.is_single else {}),
                **({"shape": list(entity.shape)} if entity.shape is not None else {}),
                **({"is_binary": True} if entity.is_binary else {}),
                **({"references": list(entity.references)} if entity.references else {}),
            }
            for name, entity in obs_space.entities.items()
        ],
        "actions": [
            {"name": name, **_action_to_json(space)} for name, space in action_space.items()
        ],
    }


def spaces_from_json(data: object) -> tuple[ObsSpace, dict[ActionName, ActionSpace]]:
    """Inverse of `spaces_to_json`; raises SchemaError for other data."""
    spaces = _as_dict(data, "spaces")
    entities = [_as_dict(item, "an entity") for item in _items(spaces, "entities")]
    actions = [_as_dict(item, "an action") for item in _items(spaces, "actions")]
    obs_space = ObsSpace(
        global_features=_strings(spaces, "global_features"),
        entities={_name(item): _entity_from_json(item) for item in entities},
    )
    action_space = {_name(item): _action_from_json(item) for item in actions}
    require_names(action_space, "actions")
    require_given(action_space)
    if len(obs_space.entities) != len(entities) or len(action_space) != len(actions):
        raise SchemaError("spaces in JSON name an entity or an action more than once")
    return obs_space, action_space


def _entity_from_json(data: Mapping[str, object]) -> Entity:
    shape = data.get("shape")
    if isinstance(shape, list):
        shape = tuple(shape)
    is_single, is_binary = (data.get(name) is True for name in ("is_single", "is_binary"))
    features = _strings(data, "features")
    references = _strings(data, "references") if "references" in data else None
    return Entity(features, is_single, shape, is_binary, references)  # type: ignore[arg-type]  # checked


def briefly(differences: Sequence[str], most: int = 6) -> str:
    """The first differences, and the number of the others, for messages."""
    more = len(differences) - most
    return "; ".join(differences[:most]) + (f"; and {more} more" if more > 0 else "")


def differences(
    expected: Spaces,
    got: Spaces,
    *,
    expected_name: str = "the checkpoint",
    got_name: str = "the game",
) -> list[str]:
    """One sentence per difference in names, order, kinds or bounds between two pairs of spaces."""
    names = (expected_name, got_name)
    (expected_obs, expected_actions), (got_obs, got_actions) = expected, got
    return [
        *_list_differences(
            "the global feature", "", expected_obs.global_features, got_obs.global_features, names
        ),
        *_list_differences("the entity", "", [*expected_obs.entities], [*got_obs.entities], names),
        *(
            sentence
            for name, entity in expected_obs.entities.items()
            if name in got_obs.entities
            for sentence in _entity_differences(name, entity, got_obs.entities[name], names)
        ),
        *_list_differences("the action", "", [*expected_actions], [*got_actions], names),
        *(
            sentence
            for name, space in expected_actions.items()
            if name in got_actions
            for sentence in _action_differences(name, space, got_actions[name], names)
        ),
    ]


def _entity_differences(
    name: EntityName, expected: Entity, got: Entity, names: tuple[str, str]
) -> Iterator[str]:
    where = f"entity {name!r}: "
    yield from _list_differences("the feature", where, expected.features, got.features, names)
    references = expected.references or (), got.references or ()
    yield from _list_differences("the reference to", f"relation {name!r}: ", *references, names)


def _list_differences(
    kind: str, where: str, expected: Sequence[str], got: Sequence[str], names: tuple[str, str]
) -> Iterator[str]:
    expected_name, got_name = names
    there, known = set(got), set(expected)
    missing = [item for item in expected if item not in there]
    added = [item for item in got if item not in known]
    yield from (f"{where}{expected_name} has {kind} {x!r}, {got_name} does not" for x in missing)
    yield from (f"{where}{got_name} has {kind} {x!r}, {expected_name} does not" for x in added)
    if not missing and not added and list(expected) != list(got):
        yield (
            f"{where}{kind.removeprefix('the ')} order differs: {expected_name} has "
            f"{', '.join(expected)}; {got_name} has {', '.join(got)}"
        )


def _action_differences(
    name: ActionName, expected: ActionSpace, got: ActionSpace, names: tuple[str, str]
) -> Iterator[str]:
    expected_name, got_name = names
    where = f"action {name!r}: "
    if type(expected) is not type(got):
        yield (
            f"{where}{expected_name} has the kind {_KINDS[type(expected)]}, "
            f"{got_name} has {_KINDS[type(got)]}"
        )
        return
    yield from _list_differences("the label", where, _labels(expected), _labels(got), names)
    yield from _list_differences("the earlier action", where, expected.given, got.given, names)
    if isinstance(expected, ContinuousActionSpace) and isinstance(got, ContinuousActionSpace):
        bounds = [(_floats(space.low), _floats(space.high)) for space in (expected, got)]
        if bounds[0] != bounds[1]:
            yield (
                f"{where}{expected_name} has the bounds {bounds[0][0]} to {bounds[0][1]}, "
                f"{got_name} has {bounds[1][0]} to {bounds[1][1]}"
            )


def _labels(space: ActionSpace) -> Sequence[str]:
    if isinstance(space, CategoricalActionSpace | GlobalCategoricalActionSpace):
        return space.index_to_label
    return space.labels if isinstance(space, ContinuousActionSpace) else ()


def _action_to_json(space: ActionSpace) -> dict[str, object]:
    data: dict[str, object] = {"kind": _KINDS[type(space)]}
    if not isinstance(space, SelectEntityActionSpace):
        data["labels"] = list(_labels(space))
    if isinstance(space, ContinuousActionSpace):
        data |= {"low": _floats(space.low), "high": _floats(space.high)}
    if space.given:
        data["given"] = list(space.given)
    return data


def _action_from_json(data: Mapping[str, object]) -> ActionSpace:
    kind = data.get("kind")
    given = _strings(data, "given") if "given" in data else ()
    readers: dict[str, Callable[[], ActionSpace]] = {
        "categorical": lambda: CategoricalActionSpace(_strings(data, "labels"), given),
        "global_categorical": lambda: GlobalCategoricalActionSpace(_strings(data, "labels"), given),
        "select_entity": lambda: SelectEntityActionSpace(given),
        "continuous": lambda: ContinuousActionSpace(
            _numbers(data, "low"), _numbers(data, "high"), _strings(data, "labels"), given
        ),
    }
    if not isinstance(kind, str) or kind not in readers:
        raise SchemaError(
            f"the kind of an action must be one of {', '.join(readers)}: got {shown(kind)}"
        )
    return readers[kind]()


def _as_dict(data: object, what: str) -> dict[str, object]:
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise SchemaError(f"{what} in JSON must be an object, got {type(data).__name__}")
    return data


def _items(data: Mapping[str, object], key: str) -> list[object]:
    value = data.get(key)
    if not isinstance(value, list):
        raise SchemaError(f"spaces in JSON need a list under {key!r}, got {shown(value)}")
    return value


def _name(data: Mapping[str, object]) -> str:
    name = data.get("name")
    if not isinstance(name, str):
        raise SchemaError(f"spaces in JSON need a text under 'name', got {shown(name)}")
    return name


def _strings(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    items = _items(data, key)
    texts = tuple(item for item in items if isinstance(item, str))
    if len(texts) != len(items):
        raise SchemaError(f"spaces in JSON need texts under {key!r}, got {shown(items)}")
    return texts


def _floats(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values]


def _numbers(data: Mapping[str, object], key: str) -> tuple[float, ...]:
    items = _items(data, key)
    try:
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in items):
            return tuple(float(x) for x in items)  # type: ignore[arg-type]  # checked above
    except OverflowError:
        pass  # an integer larger than any float
    raise SchemaError(f"spaces in JSON need numbers under {key!r}, got {shown(items)}")
