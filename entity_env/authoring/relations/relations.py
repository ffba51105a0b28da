"""`Relations` in an observation: their rows, and which of them an actor can choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from entity_env.authoring.action_type import ActionType, Continuous, SelectEntity
from entity_env.authoring.entity_type import EntityType, Places
from entity_env.authoring.relations.relation_type import relation_type
from entity_env.core.masks import (
    as_mask,
    is_nested,
    mask_rows,
    nested_mask,
    reference_error,
    wrong_reference,
)
from entity_env.core.observation import BoolMask
from entity_env.core.spaces import ActionName
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import has_numpy, is_array, np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HasGroups(Protocol):
    """An `Obs`, as far as relations need it."""

    @property
    def groups(self) -> Sequence[Any]:
        """Lists and tuples of entities, `Rows` and `Relations`."""

    @property
    def masks(self) -> Mapping[ActionType[Any], BoolMask] | None:
        """Masks of actions."""

    @property
    def actor_groups(self) -> Sequence[tuple[int, tuple[ActionType[Any], ...]]] | None:
        """Positions of groups that act, and their actions; empty = all."""


class Relations(Sequence[Any]):
    """Relations of one class.

    Args:
        entities: the game's objects, or rows of an array.
        cls: their class; None if there are none.
        values: rows whose references are positions; None if they have to be read.
    """

    __slots__ = ("cls", "entities", "sources", "values")

    def __init__(
        self,
        entities: Sequence[Any] | NDArray[Any],
        cls: type | None,
        values: NDArray[Any] | None = None,
    ) -> None:
        self.entities: Any = entities
        self.cls = cls
        self.values = values
        self.sources: NDArray[np.int64] | None = None
        """Positions of the sources, once they have been read."""

    def __len__(self) -> int:
        return len(self.entities)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - rows or the game's own objects
        return self.entities[index]


def class_of(group: Any) -> type | None:  # noqa: ANN401 - a list, tuple, `Rows` or `Relations`
    """The class of a group's entities; None for an empty list or tuple."""
    if type(group) is list or type(group) is tuple:
        return group[0].__class__ if group else None
    cls: type | None = group.cls  # isinstance takes ten times as long
    return cls


def num_of_class(cls: type, obs: HasGroups) -> int:
    """Number of entities of one class."""
    return sum(len(group) for group in obs.groups if class_of(group) is cls)


def places_of(cls: type, obs: HasGroups) -> Places:
    """The position of each entity of a class, by `id`; of an object shown twice, the first.

    A relation cannot refer to a row of an array, which only takes its position.
    """
    ids: list[int] = []
    for group in obs.groups:
        if class_of(group) is cls:
            objects = group if isinstance(group, list | tuple) else group.entities
            ids.extend([0] * len(objects) if is_array(objects) else map(id, objects))
    ids.reverse()
    return dict(zip(ids, range(len(ids) - 1, -1, -1), strict=True))


def relation_rows(kind: EntityType, group: Relations, obs: HasGroups) -> NDArray[np.float32]:
    """The rows of relations.

    Raises:
        SchemaError: a reference to an entity that the observation does not show, or rows of the
            wrong shape.
    """
    classes = kind.references or ()
    if group.values is None:
        return kind.featurize(group.entities, *(places_of(cls, obs) for cls in classes))
    rows = kind.rows(group.values)
    counts = [num_of_class(cls, obs) for cls in classes]
    if wrong := wrong_reference(rows, counts):
        names = [cls.__name__ for cls in classes]
        raise reference_error(kind.name, kind.features, names, counts, rows, *wrong)
    return rows


def relation_type_in(obs: HasGroups, cls: type) -> EntityType:
    """The type of relations between entities that the observation shows.

    Raises:
        SchemaError: it does not show both.
    """
    found = [class_of(each) for each in obs.groups if type(each) is not Relations]
    shown = {each: None for each in found if each is not None}
    try:
        return relation_type(cls, shown)
    except SchemaError:
        names = ", ".join(each.__name__ for each in shown) or "no entity"
        raise SchemaError(
            f"obs.relations got a {cls.__name__}, expected relations between two entities that the "
            f"observation shows, which are {names}: show both with obs.entities(...)"
        ) from None


def mask_of(kind: ActionType[Any], obs: HasGroups) -> BoolMask | None:
    """The mask of an action; of one that selects relations, only those whose source is the actor.

    The mask of an action whose actor is a `GlobalActor` has a row for this actor.

    Raises:
        SchemaError: the mask of such an action has the wrong shape, or an actor another class.
    """
    mask = None if obs.masks is None else obs.masks.get(kind)
    if kind.has_own_actor and mask is not None and not isinstance(kind, Continuous):
        return _mask_of_one(kind, mask, obs)
    if not isinstance(kind, SelectEntity) or kind.has_own_actor:
        return mask
    for group in obs.groups:
        if type(group) is Relations:
            break
    else:  # as in most games
        return mask
    groups = [each for each in obs.groups if type(each) is Relations and each.cls is kind.actee]
    if not any(map(len, groups)):
        return mask
    made = relation_type_in(obs, kind.actee)
    sources = [_sources_of(made, each, obs) for each in groups]
    actors = _places_of_actors(kind, obs, made)
    if all(isinstance(each, list) for each in sources):
        return _own_rows([*chain(*sources)], actors, mask, kind.name)
    places = np.array(actors, dtype=np.int64)
    return own_relations(np.concatenate(sources), places, mask, kind.name)


def _sources_of(
    kind: EntityType, group: Relations, obs: HasGroups
) -> NDArray[np.int64] | list[int]:
    """The position of the source of each relation; a list if numpy is not needed."""
    if group.sources is not None:
        return group.sources
    if group.values is None and not has_numpy():
        places = [places_of(cls, obs) for cls in kind.references or ()]
        return [int(row[0]) for row in kind.numbers(group, *places)]
    return relation_rows(kind, group, obs)[:, 0].astype(np.int64)


def _mask_of_one(kind: ActionType[Any], mask: BoolMask, obs: HasGroups) -> BoolMask:
    """The mask of a `GlobalActor`, with a row for it."""
    is_select = isinstance(kind, SelectEntity)
    num_choices = num_of_class(kind.actee, obs) if is_select else len(kind.choices)  # type: ignore[attr-defined]  # a categorical action
    read: Callable[..., BoolMask] = mask_rows if isinstance(mask, list | tuple) else nested_mask
    return read(mask, (1, num_choices), kind.name, may_block=is_select, is_global=True)


def _places_of_actors(kind: SelectEntity[Any], obs: HasGroups, relation: EntityType) -> list[int]:
    """The position of each actor among the entities of its class, that of a relation's source."""
    source = (relation.references or (object,))[0]
    roles, count = dict(obs.actor_groups or ()), 0
    places: list[int] = []
    for i, group in enumerate(obs.groups):
        is_source = class_of(group) is source
        if len(group) and i in roles and (not roles[i] or kind in roles[i]):
            if not is_source:
                raise _not_a_source(kind, relation, group[0])
            places.extend(range(count, count + len(group)))
        count += is_source * len(group)
    return places


def _not_a_source(kind: SelectEntity[Any], relation: EntityType, actor: object) -> SchemaError:
    source = (relation.references or (object,))[0].__name__
    return SchemaError(
        f"action {kind.name!r}: an actor chooses among the {relation.name} objects that start at "
        f"it, so it must be a {source}, as {relation.name}.{relation.features[0]}, got a "
        f"{type(actor).__name__}: say which actors perform it, obs.actors([{source}(...), ...], "
        f"SelectEntity({relation.name}))"
    )


def own_relations(
    sources: NDArray[np.int64],
    actors: NDArray[np.int64],
    mask: BoolMask | None,
    action: ActionName,
) -> NDArray[np.bool_]:
    """The mask of an action that selects relations: those whose source is the actor.

    Args:
        sources: `(num_relations,)` position of the source of each relation.
        actors: `(num_actors,)` position of each actor, among the entities of the class of sources.
        mask: the mask of the game, of which only allowed relations remain: `(num_relations,)`,
            `(num_actors, num_relations)`, or with a row for every choice of the part before.

    Returns:
        `(num_actors, num_relations)`, or with three dimensions as the mask of the game.

    Raises:
        SchemaError: the mask has another shape.
    """
    shape = len(actors), len(sources)
    size = 1 + max(sources.max(initial=-1), actors.max(initial=-1))
    actor_at = np.full(size, -1)
    actor_at[actors[::-1]] = np.arange(len(actors))[::-1]
    found = actor_at[sources]
    is_own = np.zeros(shape, dtype=np.bool_)
    chosen = np.flatnonzero(found >= 0)
    is_own[found[chosen], chosen] = True
    if mask is None:
        return is_own
    if is_nested(mask):
        return is_own[:, None] & nested_mask(mask, shape, action)
    return is_own & as_mask(mask, _shape_for(mask, shape, action), action, may_block=True)


def _own_rows(
    sources: Sequence[int], actors: Sequence[int], mask: BoolMask | None, action: ActionName
) -> BoolMask:
    """As `own_relations`, for lists: without numpy."""
    first: dict[int, int] = {}
    for i, place in enumerate(actors):
        first.setdefault(place, i)
    is_own = [[first.get(each) == i for each in sources] for i in range(len(actors))]
    if mask is None:
        return is_own
    shape = len(actors), len(sources)
    if is_nested(mask):
        nested = mask_rows(mask, shape, action)
        return [
            [_both(mine, row) for row in rows] for mine, rows in zip(is_own, nested, strict=True)
        ]
    rows = mask_rows(mask, _shape_for(mask, shape, action), action, may_block=True)
    each = rows * len(actors) if len(rows) == 1 else rows
    return [_both(mine, row) for mine, row in zip(is_own, each, strict=True)]


def _both(one: Sequence[bool], other: Sequence[bool]) -> list[bool]:
    return [a and b for a, b in zip(one, other, strict=True)]


def _shape_for(mask: BoolMask, shape: tuple[int, int], action: ActionName) -> tuple[int, int]:
    """The shape to read a mask of relations with: one row for all actors, or one per actor."""
    if not _is_flat(mask):
        return shape
    if len(mask) != shape[1]:
        raise SchemaError(
            f"the mask of action {action!r} needs {shape[1]} flags, one per relation, or the "
            f"shape (num_actors, num_relations) = {shape}: got {shown(mask)}"
        )
    return 1, shape[1]


def _is_flat(mask: BoolMask) -> bool:
    """Whether a mask has one dimension."""
    if hasattr(mask, "ndim"):
        return bool(mask.ndim == 1)
    return len(mask) > 0 and not hasattr(mask[0], "__len__")
