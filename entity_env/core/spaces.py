"""What can be observed and what can be done. Names and keywords are entity-gym's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, TypeAlias

from entity_env.errors import SchemaError, shown

EntityName: TypeAlias = str
"""Name of an entity type: that of its class."""
ActionName: TypeAlias = str
"""Name of an action: that of its class of choices, unless it was given another."""

GLOBAL_ENTITY = "__global__"
"""Name under which a batch holds the global features, one row an observation."""
_NO_NAME: Final = re.compile("[\0\ud800-\udfff]")
"""Characters that names of members of files cannot have."""


@dataclass(frozen=True)
class Entity:
    """Lists the features of one type of entity, in the order of their columns.

    Args:
        features: their names.
        is_single: every observation has exactly one, so that a network can read it as a vector; no
            part of a comparison.
        shape: height, width and channels, if the features are the pixels of a picture, row after
            row and each with its channels; None = they are not. No part of a comparison.
        is_binary: all features are 0 or 1, as the one-hot vector of a choice; no part of a
            comparison.

    Raises:
        SchemaError: a feature twice or without a valid name, or a shape of another number of
            features.
    """

    features: Sequence[str]
    is_single: bool = field(default=False, compare=False)
    shape: tuple[int, int, int] | None = field(default=None, compare=False)
    is_binary: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        _require_unique(self.features, "entity features")
        shape = self.shape
        if shape is None:
            return
        sizes: object = shape  # of any type, from a file
        is_shape = isinstance(sizes, tuple) and [type(size) for size in sizes] == [int] * 3
        if not is_shape or min(shape) < 1 or prod(shape) != len(self.features):
            raise SchemaError(
                "the shape of a picture is its height, width and channels, whose product is the "
                f"number of features, {len(self.features)}: got {shown(shape)}"
            )


@dataclass(frozen=True)
class ObsSpace:
    """Defines what can be observed: global features and types of entities, both in order."""

    global_features: Sequence[str] = ()
    entities: Mapping[EntityName, Entity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_unique(self.global_features, "global features")
        require_names(self.entities, "entities")
        for name in self.entities:
            if not name or name == GLOBAL_ENTITY:
                raise SchemaError(f"entity name {name!r} is reserved: choose another name")


@dataclass(frozen=True)
class _Labelled:
    """A choice among labels."""

    index_to_label: Sequence[str]

    def __post_init__(self) -> None:
        if not len(self.index_to_label):
            raise SchemaError("a categorical action needs at least one label, got none")
        _require_unique(self.index_to_label, "action labels")

    def __len__(self) -> int:
        return len(self.index_to_label)


class CategoricalActionSpace(_Labelled):
    """Lets each of several entities choose one of the labels."""


class GlobalCategoricalActionSpace(_Labelled):
    """Lets the agent choose one of the labels, once for the whole observation."""


@dataclass(frozen=True)
class SelectEntityActionSpace:
    """Lets each of several entities select one other entity."""


@dataclass(frozen=True)
class ContinuousActionSpace:
    """Lets each of several entities choose one real number per label.

    Args:
        low: smallest allowed value per label, finite.
        high: largest allowed value per label, finite, above `low`.
        labels: a name per number; `("0", "1", ...)` when left out.
    """

    low: Sequence[float]
    high: Sequence[float]
    labels: Sequence[str] = ()

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


def has_global_entity(obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> bool:
    """Tells whether a batch carries a `GLOBAL_ENTITY` row for every observation.

    It does when there are global features, or a global action, whose actor that row is.
    """
    return bool(obs_space.global_features) or any(
        isinstance(space, GlobalCategoricalActionSpace) for space in action_space.values()
    )


def entity_widths(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[EntityName, int]:
    """Number of features of every entity type of a batch, in order, `GLOBAL_ENTITY` last if any."""
    widths = {name: len(entity.features) for name, entity in obs_space.entities.items()}
    if has_global_entity(obs_space, action_space):
        widths[GLOBAL_ENTITY] = len(obs_space.global_features)
    return widths


def require_names(names: Iterable[object], kind: str) -> None:
    """Checks that names can be written to files.

    Raises:
        SchemaError: one has a NUL or half of a surrogate pair.
    """
    for name in names:
        if isinstance(name, str) and _NO_NAME.search(name):
            raise SchemaError(
                f"{kind} need names without NUL and halves of surrogate pairs: rename {shown(name)}"
            )


def _require_unique(names: Sequence[str], kind: str) -> None:
    if isinstance(names, str):
        raise SchemaError(f"{kind} must be a list of names, got the single string {names!r}")
    require_names(names, kind)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise SchemaError(f"{kind} must differ: {', '.join(repeated)} came more than once")
