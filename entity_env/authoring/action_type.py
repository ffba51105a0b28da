"""Action types: what a game requests, and from which actors.

With an Enum, `agent.act(obs, Move)` requests one choice for the whole observation;
`Categorical(Move)` one choice per actor; `SelectEntity(Cherry)` one observed entity per actor;
`Composite(Send)` a decision in several parts per actor.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing
from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping, Sequence
from enum import Enum, EnumType
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from entity_env.authoring.entity_type import require_no_new_type, resolved_hints
from entity_env.authoring.speedups import once_per_class
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.validation import Range
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
        whole: the decision of which this action is a part, or None.
        is_global: requested once per observation.
        has_own_actor: performed by a `GlobalActor`.
    """

    name: ActionName
    space: ActionSpace
    whole: AnyComposite | None = None
    is_global: bool = False
    has_own_actor: bool = False

    @property
    def elements(self) -> tuple[ActionType[Any], ...]:
        """The actions that have a space: the parts of a `Composite`, else this one."""
        return (self,)

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
        choices: an Enum; bool; or a frozen dataclass whose fields are Enums, for all combinations,
            with labels like `direction=Up,thrust=Full` (the last field varies fastest).
        name: key of the action; default: the class name.
        given: names of earlier actions on which this one depends, see `Composite`.

    Raises:
        SchemaError: `choices` is something else, or `name` is not text.
    """

    space: GlobalCategoricalActionSpace
    is_global = True

    def __init__(
        self, choices: type[Choice], name: str | None = None, given: Sequence[ActionName] = ()
    ) -> None:
        self.choices = _choices_of(choices)
        self.name = _checked_name(self, choices.__name__ if name is None else name)
        try:
            self.space = GlobalCategoricalActionSpace(_labels_of(choices), given)
        except SchemaError as error:
            raise SchemaError(f"action {self.name!r}: {error}") from error

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> Choice:
        choice: Choice = self.choices[chosen[0]]
        return choice


class Categorical(ActionType[list[Choice]]):
    """Requests one choice per actor of the observation; the result is a list.

    Args and Raises: as for `GlobalCategorical`.
    """

    space: CategoricalActionSpace

    def __init__(
        self, choices: type[Choice], name: str | None = None, given: Sequence[ActionName] = ()
    ) -> None:
        self.choices = _choices_of(choices)
        self.name = _checked_name(self, choices.__name__ if name is None else name)
        try:
            self.space = CategoricalActionSpace(_labels_of(choices), given)
        except SchemaError as error:
            raise SchemaError(f"action {self.name!r}: {error}") from error

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> list[Choice]:
        choices = self.choices
        return [choices[index] for index in chosen]


class SelectEntity(ActionType[list[Choice | None]]):
    """Requests one entity of a class per actor; the result is a list of the game's own objects.

    An actor without a target is skipped, and its result is None. These are the actors whose mask
    row allows no entity, or all actors if the observation has no entity of the class.

    If the class is a relation, an actor selects among those that start at it: whose first entity,
    in the order of the fields, is the actor.

    Args:
        actee: class of the selectable entities or relations: every observed instance.
        name: key of the action; default: `Select` followed by the class name.
        given: names of earlier actions on which this one depends, see `Composite`.

    Raises:
        SchemaError: `actee` is not a class, or the name is not text.
    """

    space: SelectEntityActionSpace

    def __init__(
        self, actee: type[Choice], name: str | None = None, given: Sequence[ActionName] = ()
    ) -> None:
        if not isinstance(actee, type):
            raise SchemaError(f"SelectEntity needs the class of an entity, got {actee!r}")
        self.name = _checked_name(self, f"Select{actee.__name__}" if name is None else name)
        self.actee = actee
        self.space = SelectEntityActionSpace(given)

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> list[Choice | None]:
        return [actees[index] for index in chosen]


class Continuous(ActionType[_Floats]):
    """Requests real numbers per actor; the result is `(num_actors, num_labels)` float32.

    Args:
        name: key of the action.
        low, high, labels, given: as in `ContinuousActionSpace`.

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
        given: Sequence[ActionName] = (),
    ) -> None:
        self.name = _checked_name(self, name)
        self.space = ContinuousActionSpace(tuple(low), tuple(high), tuple(labels), given)

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> Any:  # noqa: ANN401 - an array, or lists
        if self.whole is not None:  # a part, whose numbers become floats: without numpy
            return [array("f", row).tolist() for row in chosen]
        return np.array(chosen, dtype=np.float32).reshape(-1, len(self.space))


class _Parts(ActionType[Answer]):
    """A decision in several parts, see `Composite`."""

    cls: type

    def __init__(self, cls: type, name: str | None = None) -> None:
        kinds = _parts_of(cls)
        self.has_own_actor = self.is_global and not all(map(_has_labels, kinds.values()))
        is_plain = self.is_global and not self.has_own_actor
        self.cls = cls
        self.name = _checked_name(self, cls.__name__ if name is None else name)
        self.parts: dict[str, ActionType[Any]] = {}
        for field, kind in kinds.items():
            given = tuple(part.name for part in self.parts.values())
            part = _part(cls, field, kind, f"{self.name}.{field}", given, is_global=is_plain)
            part.whole = self  # type: ignore[assignment]  # of a subclass
            part.is_global, part.has_own_actor = self.is_global, self.has_own_actor
            self.parts[field] = part

    @property
    def elements(self) -> tuple[ActionType[Any], ...]:
        return tuple(self.parts.values())

    def _decisions(self, chosen: Sequence[Any]) -> list[Any]:
        """The decision of each actor, given the answers to the parts: one list each."""
        of_parts = [
            [None if each is None else float(each[0]) for each in values]
            if isinstance(part, Continuous)
            else values
            for part, values in zip(self.elements, chosen, strict=True)
        ]
        return [
            None if any(part is None for part in parts) else self.cls(*parts)
            for parts in zip(*of_parts, strict=True)
        ]

    def __getattr__(self, field: str) -> ActionType[Any]:
        parts = vars(self).get("parts", {})
        if field in parts:
            part: ActionType[Any] = parts[field]
            return part
        raise AttributeError(
            f"{type(self).__name__} has no part {field!r}: it has {', '.join(parts)}"
        )

    def __eq__(self, other: object) -> bool:
        # Not by parts, which refer to this object.
        return (
            isinstance(other, _Parts)
            and type(self) is type(other)
            and (self.cls, self.name) == (other.cls, other.name)
        )

    __hash__ = ActionType.__hash__


class Composite(_Parts[list[Choice | None]]):
    """Requests one decision in several parts per actor; the result is a list of instances.

    Each field is a part: an Enum or bool, a declared class of entities or relations (one of those
    observed), or `Annotated[float, Range(low, high)]`. Parts are chosen in the order of the fields,
    and an agent chooses each one knowing those before it. `SEND.target` is the action of the field
    `target`, for `Obs.mask`; in spaces, its name is `Send.target`.

    An actor that cannot choose any entity for some part is skipped, and its result is None.

    Args:
        cls: a frozen dataclass with at least one field.
        name: prefix of the parts' names; default: the class name.

    Raises:
        SchemaError: `cls` is something else, a field has another type, or the name is not text.
    """

    def __init__(self, cls: type[Choice], name: str | None = None) -> None:
        super().__init__(cls, name)

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> list[Choice | None]:
        """The decisions, given the answers to the parts: one list each."""
        return self._decisions(chosen)


class GlobalComposite(_Parts[Choice]):
    """Requests one decision in several parts for the whole observation; the result is an instance.

    Fields, Args and Raises: as for `Composite`. Every relation of the observation can be selected.
    A field that selects an entity needs one to choose from, else `act` raises a `SchemaError`.

    If all fields are Enums or bools, the parts are global actions. Otherwise they are actions of an
    entity without features, which every such observation gets by itself.
    """

    is_global = True

    def __init__(self, cls: type[Choice], name: str | None = None) -> None:
        super().__init__(cls, name)

    def decode(self, chosen: Sequence[Any], actees: Sequence[Any]) -> Choice:
        one_each = chosen if self.has_own_actor else [[each] for each in chosen]
        decision: Choice = self._decisions(one_each)[0]
        return decision


@dataclasses.dataclass(frozen=True)
class GlobalActor:
    """The only actor of a `GlobalComposite` that selects entities or contains numbers."""


AnyComposite: TypeAlias = "Composite[Any] | GlobalComposite[Any]"
"""A decision in several parts, of each actor or of the whole observation."""


def joined_answers(kinds: Sequence[ActionType[Any]], answers: Sequence[Any]) -> Any:  # noqa: ANN401 - the result of `act`
    """The result of `act`, given the answer to each element of the requested actions."""
    if len(answers) == 1 and kinds[0].whole is None:
        return answers[0]
    joined: list[Any] = []
    for whole, group in itertools.groupby(
        zip(kinds, answers, strict=True), key=lambda pair: pair[0].whole
    ):
        parts = [answer for _, answer in group]
        joined += parts if whole is None else [whole.decode(parts, ())]
    return joined[0] if len(joined) == 1 else tuple(joined)


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
        SchemaError: a select action, which also needs the class of its actees.
    """
    if isinstance(space, ContinuousActionSpace):
        low, high = space.low, space.high
        return Continuous(name, low=low, high=high, labels=space.labels, given=space.given)
    if isinstance(space, SelectEntityActionSpace):
        raise SchemaError(f"action {name!r} selects entities: use SelectEntity(cls, {name!r})")
    is_global = isinstance(space, GlobalCategoricalActionSpace)
    choices = _enum_of_labels(name, space.index_to_label)
    return (GlobalCategorical if is_global else Categorical)(choices, name, space.given)


def _enum_of_labels(name: str, labels: Sequence[str]) -> Any:  # noqa: ANN401 - a new Enum
    """An Enum with one member per label, in order, and its index as value.

    Members get their names afterwards: from names like `__a__`, `_Move__x` and `_missing_`, Enum
    makes no members, or raises.
    """
    choices: Any = Enum(name, {f"label_{i}": i for i in range(len(labels))})  # type: ignore[misc]  # a name that is not constant
    for label, member in zip(labels, choices, strict=True):
        member._name_ = label
    choices._member_map_ = dict(zip(labels, choices, strict=True))
    choices._member_names_ = list(labels)
    return choices


@once_per_class
def _global_choice(cls: type) -> ActionType[Any]:
    is_frozen = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    if is_frozen and not all(isinstance(kind, EnumType) for kind in resolved_hints(cls).values()):
        return GlobalComposite(cls)
    return GlobalCategorical(cls)


def _parts_of(cls: object) -> Mapping[str, Any]:
    """Types of the fields of a decision in several parts."""
    params = getattr(cls, "__dataclass_params__", None)
    fields = dataclasses.fields(cls) if isinstance(cls, type) and params is not None else ()
    if not isinstance(cls, type) or params is None or not params.frozen or not fields:
        raise SchemaError(
            f"a decision in several parts must be a frozen dataclass with fields, got {cls!r}"
        )
    hints = resolved_hints(cls)
    return {field.name: hints[field.name] for field in fields}


def _part(
    cls: type,
    field: str,
    kind: Any,  # noqa: ANN401 - any annotation
    name: ActionName,
    given: Sequence[ActionName],
    *,
    is_global: bool,
) -> ActionType[Any]:
    """The action of one field."""
    if _has_labels(kind):
        choices: Any = kind
        return (GlobalCategorical if is_global else Categorical)(choices, name, given)
    is_entity = isinstance(kind, type) and dataclasses.is_dataclass(kind)
    number, *marks = typing.get_args(kind) or (None,)
    bounds = next((each for each in marks if isinstance(each, Range)), None)
    require_no_new_type(number or kind, f"decision {cls.__name__}: field {field!r}")
    if not (is_entity or (number is float and bounds is not None)):
        raise SchemaError(
            f"decision {cls.__name__}: field {field!r} must be an Enum, bool, an entity class or "
            f"Annotated[float, Range(low, high)], got {kind!r}"
        )
    if bounds is None:
        return SelectEntity(kind, name, given)
    return Continuous(name, low=[bounds.least], high=[bounds.most], labels=[field], given=given)


def _has_labels(kind: object) -> bool:
    return kind is bool or isinstance(kind, EnumType)


def _choices_of(cls: type[Choice]) -> tuple[Choice, ...]:
    choices: Any = cls
    if choices is bool:
        return False, True  # type: ignore[return-value]  # Choice is bool
    if isinstance(choices, EnumType):
        members: tuple[Any, ...] = tuple(choices)
        if not members:
            methods = [name for name, value in vars(cls).items() if isinstance(value, FunctionType)]
            first = next((name for name in methods if not name.startswith("_")), "")
            how = f"; functions in its body become methods: write {first} = enum.member({first})"
            raise SchemaError(f"action {cls.__name__}: the Enum has no members{how * bool(first)}")
        return members
    enums = _enums_of_fields(cls)
    rows = itertools.product(*enums.values())
    return tuple(cls(**dict(zip(enums, row, strict=True))) for row in rows)


def _labels_of(cls: type) -> tuple[str, ...]:
    if cls is bool:
        return "False", "True"
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
