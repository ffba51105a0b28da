"""`Obs`: an observation, built by a game inside its loop."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from entity_env.authoring.action_type import (
    ActionKey,
    ActionType,
    Categorical,
    Composite,
    Continuous,
    GlobalCategorical,
    GlobalComposite,
    SelectEntity,
    action_type,
    joined_answers,
)
from entity_env.authoring.entity_type import entity_type
from entity_env.authoring.relations.relations import (
    Relations,
    class_of,
    mask_of,
    num_of_class,
    relation_rows,
    relation_type_in,
)
from entity_env.core.masks import is_nested, mask_rows, nested_mask, rows_of_mask, shape_of
from entity_env.core.observation import BoolMask
from entity_env.core.spaces import ActionName
from entity_env.core.validation import is_number, must_be_number, plain_number
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import is_array, np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rows(Sequence[Any]):
    """Numpy-backed entities of one class: `(num_entities, num_features)` float32.

    Args:
        cls: dataclass whose features are the columns.
        values: the rows; kept, not copied.
        entities: the objects behind the rows, which select actions return; default: the rows.
    """

    __slots__ = ("cls", "entities", "values")

    def __init__(
        self,
        cls: type,
        values: NDArray[np.float32],
        entities: Sequence[object] | NDArray[np.float32] | None = None,
    ) -> None:
        self.cls = cls
        self.values = values
        self.entities = values if entities is None else entities

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - rows or the game's own objects
        return self.entities[index]


Group: TypeAlias = "list[Any] | tuple[Any, ...] | Rows | Relations"


class Obs:
    """An observation for one agent: entities, actors, masks, and the score so far.

    The methods from `entities` to `metric` return this object, so calls can be chained. Lists,
    tuples and float32 arrays are kept, not copied, and read during `act`.

    Args:
        score: running score of this agent; its reward is the change since its last observation.
    """

    __slots__ = "actor_groups", "global_features", "groups", "hidden", "masks", "metrics", "score"
    start: ClassVar[float | None] = None
    """Score before the episode, for the reward of an agent that never acts; None = that is 0."""

    def __init__(self, score: float = 0.0) -> None:
        # Differences of numpy's unsigned integers would wrap around.
        self.score = score if score.__class__ is float else plain_number(score)
        self.groups: list[Group] = []
        self.actor_groups: list[tuple[int, tuple[ActionType[Any], ...]]] | None = None
        self.global_features: object | None = None
        self.masks: dict[ActionType[Any], BoolMask] | None = None
        self.hidden: list[tuple[type, BoolMask]] | None = None
        self.metrics: dict[str, float] | None = None

    def entities(self, entities: Collection[Any] | NDArray[Any], of: type | None = None) -> Obs:
        """Adds entities of one class.

        Args:
            entities: instances of one declared dataclass; may be empty.
            of: the class, if `entities` is an array `(num_entities, num_features)` whose columns
                are the features of that class.
        """
        if entities.__class__ is list or entities.__class__ is tuple:
            self.groups.append(entities)
        else:
            self.groups.append(_group(entities, of))
        return self

    def relations(self, relations: Collection[Any] | NDArray[Any], of: type | None = None) -> Obs:
        """Adds relations of one class: facts about pairs of entities of this observation.

        Args:
            relations: instances of a class of `Game(relations=...)`; may be empty. The entities to
                which they refer may be added later.
            of: the class, if `relations` is an array `(num_relations, num_features)`. Its first two
                columns are positions of entities: row numbers among the entities of their class.
        """
        if is_array(relations) and of is not None:  # its rows are checked when they are read
            self.groups.append(Relations(relations, of, relations))
            return self
        group = _group(relations, of)
        if isinstance(group, Rows):
            self.groups.append(Relations(group, group.cls, group.values))
        else:
            self.groups.append(Relations(group, class_of(group)))
        return self

    def actors(
        self, actors: Collection[Any] | NDArray[Any], *actions: ActionKey, of: type | None = None
    ) -> Obs:
        """Adds acting entities of one class.

        Args:
            actors, of: as in `entities`.
            actions: the requested actions that they perform; default: all.
        """
        performed = tuple(kind for key in actions for kind in action_type(key).elements)
        if own := [kind for kind in performed if kind.has_own_actor]:
            raise SchemaError(
                f"{own[0].name} is decided once per observation, and no entity performs it: "
                "leave it out of obs.actors(...)"
            )
        if self.actor_groups is None:
            self.actor_groups = []
        self.actor_groups.append((len(self.groups), performed))
        return self.entities(actors, of)

    def globals(self, features: object) -> Obs:
        """Sets the global features, an instance of the declared dataclass."""
        self.global_features = features
        return self

    def mask(self, action: ActionKey, mask: BoolMask, *, given: ActionKey | None = None) -> Obs:
        """Allows only some choices of an action.

        Args:
            action: as in `agent.act`; of a `Composite`, one of its parts.
            mask: True = allowed. `(num_choices,)` for a global action; `(num_actors, num_choices)`
                for `Categorical`; `(num_actors, num_actees)` for `SelectEntity`, where a row
                without True means no target: the answer for that actor is None. If it selects
                relations, also `(num_relations,)`; an actor can choose only those that start at it.
            given: the part before this one, if the mask depends on it. `mask` then has a row for
                every choice of that part: `(num_actors, num_earlier, num_choices)`, without the
                first dimension for a global action.

        Raises:
            SchemaError: `action` has several parts, or `given` is not the part before it.
        """
        if self.masks is None:
            self.masks = {}
        kind = action_type(action)
        if isinstance(kind, Composite | GlobalComposite):
            raise SchemaError(
                f"{kind.name} has a mask for each part: obs.mask(action.{next(iter(kind.parts))}, "
                "...)"
            )
        if given is not None:
            mask = _depending(kind, action_type(given), mask)
        self.masks[kind] = mask
        return self

    def visible(self, cls: type, visible: Sequence[bool] | NDArray[np.bool_]) -> Obs:
        """Hides entities from the policy, but not from the value function.

        Args:
            visible: one bool per entity of that class in this observation; False = hidden.
        """
        if self.hidden is None:
            self.hidden = []
        self.hidden.append((cls, visible))
        return self

    def metric(self, name: str, value: float) -> Obs:
        """Adds a metric, a named number for the logs."""
        if self.metrics is None:
            self.metrics = {}
        self.metrics[name] = value
        return self

    @property
    def actions_named(self) -> Iterator[ActionType[Any]]:
        """The actions named in masks and actors; of a decision in several parts, all parts."""
        acting = (each for _, actions in self.actor_groups or () for each in actions)
        for action in (*(self.masks or ()), *acting):
            yield from action.elements if action.whole is None else action.whole.elements

    @property
    def is_blank(self) -> bool:
        """Whether it has neither entities nor global features, as in `game_over(Obs(score))`."""
        return not self.groups and self.global_features is None

    def of_class(self, cls: type) -> list[Any]:
        """The entities of one class, in observation order."""
        return [entity for group in self.groups if class_of(group) is cls for entity in group]

    def actors_of(self, action: ActionKey) -> list[Any]:
        """The entities that perform an action, in the order of its answers."""
        kind, roles = action_type(action).elements[0], dict(self.actor_groups or ())
        if kind.has_own_actor:
            return []
        return [
            entity
            for i, group in enumerate(self.groups)
            if i in roles and (not roles[i] or kind in roles[i])
            for entity in group
        ]

    def allowed(self, action: ActionKey, *, after: object = None) -> list[Any]:
        """The legal choices of an action: Enum members, or entities of the class it selects.

        One list for a global action, else one list per actor, empty for an actor without a target.

        Args:
            after: what was chosen in the part before this one, if the mask depends on it: one
                choice for a global action, else a list with one per actor. Default: a choice is
                listed if it is legal after any choice.

        Raises:
            SchemaError: a continuous action, a mask of the wrong shape, or `after` has other
                choices than the part before.
        """
        kind = action_type(action)
        if isinstance(kind, SelectEntity):
            choices = self.of_class(kind.actee)
        elif isinstance(kind, Categorical | GlobalCategorical):
            choices = list(kind.choices)
        elif isinstance(kind, Composite | GlobalComposite):
            part = next(iter(kind.parts))
            raise SchemaError(f"{kind!r} has several parts: obs.allowed(action.{part}) lists one")
        else:
            raise SchemaError(f"{kind!r} asks for real numbers: it has no list of choices")
        is_global = kind.is_global
        count = 1 if is_global else num_actors(kind, self)
        mask = mask_of(kind, self)
        if mask is None:
            rows = [choices.copy() for _ in range(count)]
        else:
            may_block = isinstance(kind, SelectEntity)
            shape = count, len(choices)
            try:
                allowed: list[list[bool]]
                if is_nested(mask):
                    nested = mask_rows(mask, shape, kind.name)
                    if after is None:
                        places = range(len(choices))
                        allowed = [[any(row[i] for row in own) for i in places] for own in nested]
                    else:
                        given = [after] if is_global else after
                        allowed = _rows_after(kind, self, nested, given, len(choices))
                else:
                    allowed = mask_rows(
                        mask, shape, kind.name, may_block=may_block, is_global=is_global
                    )
            except SchemaError as error:
                raise mask_error(error, kind, self) from None
            rows = [list(compress(choices, row)) for row in allowed]
        return rows[0] if is_global else rows

    def frozen(self) -> Obs:
        """A copy that does not change when the game changes its entities, masks or metrics.

        It stores the features as arrays; select actions still return the game's own objects.

        Raises:
            SchemaError: an entity that cannot be featurized.
        """
        copy = Obs(self.score)
        copy.groups = [_frozen(group, self) for group in self.groups]
        copy.actor_groups = self.actor_groups and list(self.actor_groups)
        if (features := self.global_features) is not None:
            rows = features if isinstance(features, Rows) else (features,)
            copy.global_features = _frozen(rows, self)
        copy.masks = self.masks and {
            kind: np.array(mask).reshape(shape_of(mask) or -1) for kind, mask in self.masks.items()
        }
        copy.hidden = self.hidden and [(cls, np.array(seen)) for cls, seen in self.hidden]
        copy.metrics = self.metrics and dict(self.metrics)
        return copy


def obs_problem(obs: object) -> str:
    """Why an object is not a valid `Obs`, such as a score that is not a number; else empty."""
    if not isinstance(obs, Obs):
        example = f"Obs({obs!r})" if is_number(obs) else "Obs(score).entities([...])"
        kind = type(obs).__name__
        return f"an agent was shown {shown(obs)} ({kind}), expected an Obs: write {example}"
    if not is_number(obs.score):
        return (
            f"{must_be_number('score', obs.score)}: Obs(score) takes the score so far, entities go "
            "into .entities([...])"
        )
    return ""


def actions_at_truncation(
    obs: Obs, asked: tuple[ActionType[Any], ...]
) -> tuple[ActionType[Any], ...]:
    """The actions that the last observation of a truncated episode still offers.

    These are the actions requested last; or, if its masks and actors name any other action, the
    actions that they name, with all parts of a decision. Without actors, only global actions and
    those with masks; none if it is blank.
    """
    if obs.is_blank:
        return ()
    named = tuple(dict.fromkeys(obs.actions_named))
    offered = asked if set(named) <= set(asked) else named
    if obs.actor_groups is None:  # a mask without actors is refused, as in `act`
        offered = tuple(kind for kind in offered if kind.is_global or kind in named)
    return tuple(kind for kind in offered if not kind.has_own_actor or not _lacks_target(kind, obs))


def num_actors(kind: ActionType[Any], obs: Obs) -> int:
    """Number of actors of an action."""
    if kind.has_own_actor:
        return 1
    groups = obs.actor_groups or ()
    return sum(len(obs.groups[i]) for i, performs in groups if not performs or kind in performs)


def mask_error(error: SchemaError, kind: ActionType[Any], obs: Obs) -> SchemaError:
    """The error of an action's mask, with a hint if there are no actees, or the number of actors
    is wrong.
    """
    mask = (obs.masks or {}).get(kind)
    if mask is None or kind.is_global or not isinstance(kind, SelectEntity | Categorical):
        return error
    if (shape := shape_of(mask)) is None:
        return error
    hint = ""
    if isinstance(kind, SelectEntity):
        num_actees = num_of_class(kind.actee, obs)
        if not num_actees:
            actee = kind.actee.__name__
            hint = f"; the observation shows no {actee}: add obs.entities([{actee}(...), ...])"
        elif shape[-1:] != (num_actees,):
            return error
    if not hint and shape[:1] != (num_actors(kind, obs),):
        hint = _actors_hint(kind, obs, shape[0] if shape else 0)
    return SchemaError(f"{error}{hint}") if hint else error


def _actors_hint(kind: ActionType[Any], obs: Obs, wanted: int) -> str:
    """A hint on which entities perform an action, and how to change that; "" if there is none."""
    call = f"SelectEntity({kind.actee.__name__})" if isinstance(kind, SelectEntity) else repr(kind)
    acting = [(obs.groups[i], performs) for i, performs in obs.actor_groups or ()]
    mine = [group for group, performs in acting if group and (not performs or kind in performs)]
    counts: dict[str, int] = {}
    for group in mine:
        name = getattr(class_of(group), "__name__", "")
        counts[name] = counts.get(name, 0) + len(group)
    if not counts:
        return f"; no actor performs it: show those that do with obs.actors([...], {call})"
    if len({id(group) for group in mine}) < len(mine):
        return (
            "; obs.actors was called twice with the same entities: call it once, with all of their "
            "actions"
        )
    if len(counts) == 1:
        return ""
    who = " and ".join(f"{count} {name}" for name, count in counts.items())
    only = next((name for name, count in counts.items() if count == wanted), next(iter(counts)))
    return (
        f"; its actors are {who}: if only {only} performs it, say "
        f"obs.actors([{only}(...), ...], {call})"
    )


def answers_to(
    kinds: Sequence[ActionType[Any]], obs: Obs, values: Mapping[ActionName, Iterable[Any]]
) -> Any:  # noqa: ANN401 - the result of `act`
    """The result of `act`, given the values of each element of the actions, as in `VecActions`."""
    return joined_answers(kinds, [_answer_to(kind, obs, iter(values[kind.name])) for kind in kinds])


def _answer_to(kind: ActionType[Any], obs: Obs, values: Iterator[Any]) -> object:
    """The answer to one element."""
    if isinstance(kind, GlobalCategorical):
        return kind.decode([next(values)], ())
    count = num_actors(kind, obs)
    actees = obs.of_class(kind.actee) if isinstance(kind, SelectEntity) else ()
    if kind.whole is None and not isinstance(kind, SelectEntity):
        return kind.decode(list(islice(values, count)), ())
    asked = has_targets(kind, obs)
    if asked is None:
        return kind.decode(list(islice(values, count)), actees)
    answers = iter(kind.decode(list(islice(values, sum(asked))), actees))
    return [next(answers) if is_asked else None for is_asked in asked]


def has_targets(kind: ActionType[Any], obs: Obs) -> list[bool] | None:
    """Whether each actor can select an entity, in every part of a decision; None = all can.

    Raises:
        SchemaError: a mask of the wrong shape, or a decision of the whole observation that cannot
            select any entity.
    """
    if kind.has_own_actor and (part := _lacks_target(kind, obs)) is not None:
        actee = part.actee.__name__
        why = (
            "its mask forbids all" if num_of_class(part.actee, obs) else "the observation has none"
        )
        raise SchemaError(
            f"{part.name} selects a {actee}, but {why}: ask for this decision only if there is a "
            f"{actee} to choose"
        )
    found: list[bool] | None = None
    for each in (kind,) if kind.whole is None else kind.whole.elements:
        some = _has_target(each, obs) if isinstance(each, SelectEntity) else None
        if some is not None:
            found = some if found is None else [a and b for a, b in zip(found, some, strict=True)]
    return found


def _lacks_target(kind: ActionType[Any], obs: Obs) -> SelectEntity[Any] | None:
    """The first part of a global decision that cannot select any entity, if there is one."""
    parts = () if kind.whole is None else kind.whole.elements
    selects = (part for part in parts if isinstance(part, SelectEntity))
    return next((part for part in selects if _has_target(part, obs) is not None), None)


def _has_target(kind: SelectEntity[Any], obs: Obs) -> list[bool] | None:
    count, num_actees = num_actors(kind, obs), num_of_class(kind.actee, obs)
    mask: Any = mask_of(kind, obs)
    if mask is None:
        return None if num_actees else [False] * count
    if not num_actees:
        mask_rows(mask, (count, 0), kind.name, may_block=True)  # raises if it is not empty
        return [False] * count
    found: list[bool]
    try:
        if isinstance(mask, list | tuple):
            rows = mask if is_nested(mask) else rows_of_mask(mask)
            found = [any(map(any, row)) if is_nested(mask) else any(row) for row in rows]
        else:
            found = np.any(np.reshape(mask, (count, -1)), axis=1).tolist()
    except (TypeError, ValueError):
        found = []
    if len(found) != count:
        mask_rows(mask, (count, num_actees), kind.name, may_block=True)  # raises
    return None if all(found) else found


def masks_of(kind: ActionType[Any], mask: Any, asked: Sequence[bool], obs: Obs) -> Any:  # noqa: ANN401 - a mask
    """The rows of a mask that belong to actors with a target.

    Raises:
        SchemaError: the mask has the wrong shape.
    """
    if isinstance(kind, SelectEntity):
        shape = len(asked), num_of_class(kind.actee, obs)
    else:
        shape = len(asked), len(kind.space)  # type: ignore[arg-type]  # a categorical action
    if isinstance(mask, list | tuple):
        rows = mask_rows(mask, shape, kind.name, may_block=True, is_global=kind.is_global)
        return list(compress(rows, asked))
    allowed = nested_mask(mask, shape, kind.name, may_block=True, is_global=kind.is_global)
    return allowed[np.array(asked, dtype=np.bool_)]


def _depending(kind: ActionType[Any], given: ActionType[Any], mask: Any) -> Any:  # noqa: ANN401 - a mask
    """A mask that depends on an earlier part, with three dimensions."""
    before = kind.space.given[-1] if kind.space.given else None
    if before != given.name or isinstance(given, Continuous):
        hint = "reorder the fields of the dataclass"
        if before is None:
            hint = "there is none"
        elif before == given.name:
            hint = "which is a number, so it has no list of choices"
        raise SchemaError(
            f"the mask of {kind.name} can depend on the choice directly before it ({before}), got "
            f"given={given.name}: {hint}"
        )
    rows = mask
    if kind.is_global and not is_nested(mask):
        rows = mask[None] if hasattr(mask, "ndim") else [mask]
    if is_nested(rows):
        return rows
    is_empty = not rows.size if is_array(rows) else _has_only_empty_rows(rows)
    if is_empty:  # without actors, or without choices of the part before
        return _NoRows(rows)
    actors = "" if kind.is_global else "num_actors, "
    raise SchemaError(
        f"the mask of {kind.name} depends on {given.name}, so it needs the shape "
        f"({actors}num_earlier, num_choices), got {shown(mask)}"
    )


class _NoRows(list[Any]):
    """A mask with three dimensions that has no rows, which a list cannot say."""

    ndim = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self), 0, 0


def _rows_after(
    kind: ActionType[Any],
    obs: Obs,
    mask: Sequence[Sequence[list[bool]]],
    given: object,
    num_choices: int,
) -> list[list[bool]]:
    """Mask rows after the choices `given` in the part before, one per actor; None: no choice."""
    parts = () if kind.whole is None else kind.whole.elements
    before = next(part for part in parts if part.name == kind.space.given[-1])
    is_select = isinstance(before, SelectEntity)
    choices: Sequence[Any] = obs.of_class(before.actee) if is_select else before.choices  # type: ignore[attr-defined]  # labels
    if not isinstance(given, list | tuple) or len(given) != len(mask):
        raise SchemaError(
            f"obs.allowed({kind.name}, after=...) needs what {len(mask)} actors chose for "
            f"{before.name}, got {shown(given)}"
        )
    rows = []
    for each, own in zip(given, mask, strict=True):
        place = next((i for i, choice in enumerate(choices) if is_same(choice, each)), None)
        if each is not None and place is None:
            raise SchemaError(f"{shown(each)} is not a choice of {before.name}")
        rows.append([False] * num_choices if place is None else own[place])
    return rows


def is_same(entity: object, other: object) -> bool:
    """True for the same object, or for arrays that share memory, such as views of one row."""
    if is_array(entity) and is_array(other):
        return np.may_share_memory(entity, other)
    return entity is other


def _has_only_empty_rows(mask: object) -> bool:
    rows = mask if isinstance(mask, list | tuple) else (mask,)
    return all(hasattr(each, "__len__") and not len(each) for each in rows)


def class_of_globals(features: object) -> type | None:
    """The class of an observation's global features, or None."""
    if features is None:
        return None
    return features.cls if type(features) is Rows else type(features)


def _group(entities: Collection[Any] | NDArray[Any], of: type | None) -> Group:
    if isinstance(entities, Rows):
        return entities
    if is_array(entities):
        if of is None:
            raise SchemaError("an array of entities needs its class: obs.entities(rows, of=Food)")
        return Rows(of, entity_type(of).rows(entities))
    if isinstance(entities, Iterator) or not isinstance(entities, Collection):
        raise SchemaError(
            f"entities must be a list, tuple or other collection, got {type(entities).__name__}: "
            "a single entity goes into brackets, a generator into list(...)"
        )
    return tuple(entities)


def _frozen(group: Group, obs: Obs) -> Group:
    cls = class_of(group)
    if cls is None:
        return ()
    if isinstance(group, Relations):
        rows = relation_rows(relation_type_in(obs, cls), group, obs)
        return Relations(group.entities, cls, rows.copy())
    if isinstance(group, Rows):
        return Rows(cls, group.values.copy(), group.entities)
    return Rows(cls, entity_type(cls).featurize(group), tuple(group))
