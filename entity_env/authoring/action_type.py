"""Action types: what a game requests, and from which actors.

With an Enum, `agent.act(obs, Move)` requests one choice for the whole observation;
`Categorical(Move)` one choice per actor; `SelectEntity(Cherry)` one observed entity per actor.
"""

from __future__ import annotations

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum, EnumType
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from entity_env.authoring.entity_type import resolved_hints
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Floats: TypeAlias = NDArray[np.float32]
else:
    _Floats = Any

Answer = TypeVar("Answer")
Choice = TypeVar("Choice")

ActionKey: TypeAlias = "type | ActionType[Any]"
"""A class of choices (one global choice), or an `ActionType`."""


class ActionType(ABC, Generic[Answer]):
    """A kind of action that a game requests, with results of type `Answer`.

    Instances with equal arguments are equal, so a game may write `Categorical(Move)` at every call.

    Attributes:
        name: key of the action in spaces, batches and checkpoints.
    """

    name: ActionName
    space: ActionSpace

    @abstractmethod
    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> Answer:
        """Converts the chosen values to the result that the game receives.

        Args:
            chosen: one value per requested actor, as in `VecActions`.
            actees: the selectable entities of a select action, else empty.
        """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class GlobalCategorical(ActionType[Choice]):
    """Requests one choice for the whole observation.

    Args:
        choices: an Enum; or a frozen dataclass whose fields are Enums, for all combinations, with
            labels like `direction=Up,thrust=Full` (the last field varies fastest).
        name: key of the action; default: the class name.

    Raises:
        SchemaError: `choices` is something else, or `name` is not text.
    """

    space: GlobalCategoricalActionSpace

    def __init__(self, choices: type[Choice], name: str | None = None) -> None:
        self.choices = _choices_of(choices)
        self.name = _checked_name(self, name or choices.__name__)
        self.space = GlobalCategoricalActionSpace(_labels_of(choices))

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> Choice:
        choice: Choice = self.choices[chosen[0]]
        return choice


class Categorical(ActionType[list[Choice]]):
    """Requests one choice per actor of the observation; the result is a list.

    Args and Raises: as for `GlobalCategorical`.
    """

    space: CategoricalActionSpace

    def __init__(self, choices: type[Choice], name: str | None = None) -> None:
        self.choices = _choices_of(choices)
        self.name = _checked_name(self, name or choices.__name__)
        self.space = CategoricalActionSpace(_labels_of(choices))

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> list[Choice]:
        choices = self.choices
        return [choices[index] for index in chosen]


class SelectEntity(ActionType[list[Choice | None]]):
    """Requests one entity of a class per actor; the result is a list of the game's own objects.

    An actor without a target is skipped, and its result is None. These are the actors whose mask
    row allows no entity, or all actors if the observation has no entity of the class.

    Args:
        actee: class of the selectable entities: every observed instance.
        name: key of the action; default: `Select` followed by the class name.

    Raises:
        SchemaError: `actee` is not a class, or the name is not text.
    """

    space: SelectEntityActionSpace

    def __init__(self, actee: type[Choice], name: str | None = None) -> None:
        if not isinstance(actee, type):
            raise SchemaError(f"SelectEntity needs the class of an entity, got {actee!r}")
        self.name = _checked_name(self, name or f"Select{actee.__name__}")
        self.actee = actee
        self.space = SelectEntityActionSpace()

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> list[Choice | None]:
        return [actees[index] for index in chosen]


class Continuous(ActionType[_Floats]):
    """Requests real numbers per actor; the result is `(num_actors, num_labels)` float32.

    Args:
        name: key of the action.
        low, high, labels: as in `ContinuousActionSpace`.

    Raises:
        SchemaError: a name that is not text, or invalid bounds.
    """

    space: ContinuousActionSpace

    def __init__(
        self,
        name: str,
        *,
        low: Sequence[float],
        high: Sequence[float],
        labels: Sequence[str] = (),
    ) -> None:
        self.name = _checked_name(self, name)
        self.space = ContinuousActionSpace(tuple(low), tuple(high), tuple(labels))

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> NDArray[np.float32]:
        return np.array(chosen, dtype=np.float32).reshape(-1, len(self.space))


def _checked_name(action: ActionType[Any], name: object) -> ActionName:
    if isinstance(name, str) and name:
        return name
    kind = type(action).__name__
    takes_class = isinstance(name, type) and not isinstance(action, Continuous)
    one = f"; {kind} takes one class" if takes_class else ""
    raise SchemaError(f"{kind}: name must be a text, such as 'move', got {name!r}{one}")


def action_type(key: ActionKey) -> ActionType[Any]:
    """The key itself if it is an `ActionType`; for a class, its `GlobalCategorical`, cached."""
    if isinstance(key, ActionType):
        return key
    if not isinstance(key, type):
        raise _no_choices(key)
    return _global_choice(key)


def kind_of_space(name: ActionName, space: ActionSpace) -> ActionType[Any]:
    """An action with this space, whose choices are members of a new Enum with their index as value.

    Raises:
        SchemaError: a select action, which also needs the class of its actees; or a label that no
            Enum member can have.
    """
    if isinstance(space, ContinuousActionSpace):
        return Continuous(name, low=space.low, high=space.high, labels=space.labels)
    if isinstance(space, SelectEntityActionSpace):
        raise SchemaError(f"action {name!r} selects entities: use SelectEntity(cls, {name!r})")
    labels = {label: i for i, label in enumerate(space.index_to_label)}
    try:
        choices: Any = Enum(name, labels)  # type: ignore[misc]  # a name that is not constant
    except (ValueError, TypeError) as error:
        raise SchemaError(f"action {name!r} has a label that cannot be used: {error}") from error
    is_global = isinstance(space, GlobalCategoricalActionSpace)
    return GlobalCategorical(choices, name) if is_global else Categorical(choices, name)


@cache
def _global_choice(cls: type) -> ActionType[Any]:
    return GlobalCategorical(cls)


def _choices_of(cls: type[Choice]) -> tuple[Choice, ...]:
    choices: object = cls
    if isinstance(choices, EnumType):
        members: tuple[Any, ...] = tuple(choices)
        return members
    enums = _enums_of_fields(cls)
    rows = itertools.product(*enums.values())
    return tuple(cls(**dict(zip(enums, row, strict=True))) for row in rows)


def _labels_of(cls: type) -> tuple[str, ...]:
    if issubclass(cls, Enum):
        return tuple(member.name for member in cls)
    enums = _enums_of_fields(cls)
    names = itertools.product(*([member.name for member in enum] for enum in enums.values()))
    return tuple(
        ",".join(f"{field}={name}" for field, name in zip(enums, row, strict=True)) for row in names
    )


def _enums_of_fields(cls: type) -> dict[str, type[Enum]]:
    given: object = cls
    params = getattr(given, "__dataclass_params__", None) if isinstance(given, type) else None
    if params is None or not params.frozen:
        raise _no_choices(cls)
    hints = resolved_hints(cls)
    enums: dict[str, type[Enum]] = {}
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if not (isinstance(kind, type) and issubclass(kind, Enum)):
            raise SchemaError(
                f"action {cls.__name__}: field {field.name!r} must be an Enum, got {kind!r}"
            )
        enums[field.name] = kind
    if not enums:
        raise SchemaError(f"action {cls.__name__} has no fields, so there is nothing to choose")
    return enums


def _no_choices(key: object) -> SchemaError:
    return SchemaError(
        "an action must be an Enum, a frozen dataclass whose fields are Enums, or an ActionType "
        f"such as Categorical(Move): got {key!r}"
    )
