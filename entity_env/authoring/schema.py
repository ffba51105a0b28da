"""`Schema`: the declared entities and actions of a game, and their spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from entity_env.authoring.action_type import ActionKey, ActionType, GlobalActor, action_type
from entity_env.authoring.entity_type import EntityType, entity_type
from entity_env.authoring.relations.relation_type import relation_type
from entity_env.core.spaces import (
    ACTOR_ENTITY,
    ActionName,
    ActionSpace,
    Entity,
    ObsSpace,
    entity_widths,
    has_global_entity,
    require_given,
    require_names,
)
from entity_env.errors import SchemaError

Keys = TypeVar("Keys", bound=Sequence[ActionKey])


class Schema:
    """Entities and actions of a game.

    Args:
        entities: dataclasses of observations, in the order of the observation space.
        actions: Enums and frozen dataclasses of Enums (one choice for the whole observation), and
            `ActionType`s.
        global_features: dataclass whose fields describe the whole observation.
        game: name used in errors.
        relations: dataclasses about two entities, see `relation_type`; in the observation space,
            they follow the entities.

    Raises:
        SchemaError: a class that cannot be featurized, a `SelectEntity` of an undeclared class, or
            an invalid or duplicate name.
    """

    def __init__(
        self,
        entities: Iterable[type],
        actions: Iterable[ActionKey],
        global_features: type | None = None,
        game: str = "game",
        relations: Iterable[type] = (),
    ) -> None:
        self.game = game
        _require_several(entities, f"{game}: entities")
        _require_several(actions, f"{game}: actions")
        _require_several(relations, f"{game}: relations")
        kinds = [entity_type(cls) for cls in entities]
        classes, of_pairs = [kind.cls for kind in kinds], tuple(relations)
        self.actions: dict[ActionKey, ActionType[Any]] = {key: action_type(key) for key in actions}
        self.kinds = tuple(kind for whole in self.actions.values() for kind in whole.elements)
        if any(kind.has_own_actor for kind in self.kinds):
            kinds.append(self._type_of_actor(kinds))
        kinds += [relation_type(cls, classes, of_pairs) for cls in of_pairs]
        self.entities: tuple[EntityType, ...] = tuple(kinds)
        """Types of entities, that of `GlobalActor` if an action has it, then those of relations."""
        self.globals = None if global_features is None else entity_type(global_features)
        self._kinds = frozenset(self.kinds)
        self.index_of: dict[type, int] = {kind.cls: i for i, kind in enumerate(self.entities)}
        _require_distinct((kind.name for kind in self.entities), f"{game}: entities")
        _require_distinct((kind.name for kind in self.kinds), f"{game}: actions")
        self._require_selectable()
        self._obs_space = ObsSpace(
            global_features=self.globals.features if self.globals else (),
            entities={
                kind.name: Entity(kind.features, references=_names_of(kind))
                for kind in self.entities
            },
        )
        self._action_space = {kind.name: kind.space for kind in self.kinds}
        require_names(self._action_space, f"{game}: actions")
        require_given(self._action_space)
        self.has_global_entity = has_global_entity(self._obs_space, self._action_space)
        self.widths = entity_widths(self._obs_space, self._action_space)

    def obs_space(self) -> ObsSpace:
        """The observation space."""
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """The action space."""
        return self._action_space

    def action(self, key: ActionKey) -> ActionType[Any]:
        """The declared action for a key.

        Raises:
            SchemaError: it was not declared.
        """
        try:
            return self.actions[key]
        except (KeyError, TypeError):
            raise SchemaError(
                f"{self.game}: asked for the action {_show(key)}, which was not declared; "
                f"declared are {', '.join(map(_show, self.actions)) or 'none'}: "
                f"{_how_to_declare(key, self.actions) or 'add it to Game(actions=...)'}"
            ) from None

    def questions(self, keys: tuple[ActionKey, ...]) -> tuple[ActionType[Any], ...]:
        """The elements of the declared actions for the arguments of `act`.

        Raises:
            SchemaError: there are none, or one was not declared.
        """
        keys = require_actions(keys, f"{self.game}: ")
        return tuple(kind for key in keys for kind in self.action(key).elements)

    def entity(self, cls: type) -> EntityType:
        """The declared entity for a class.

        Raises:
            SchemaError: it was not declared.
        """
        index = self.index_of.get(cls)
        if index is None:
            raise self.undeclared(cls)
        return self.entities[index]

    def references_of(self, cls: type) -> tuple[str, ...]:
        """Names of the two fields of a relation that hold entities; none of another class."""
        index = self.index_of.get(cls)
        if index is None or self.entities[index].references is None:
            return ()
        return self.entities[index].features[:2]

    def undeclared(self, cls: type) -> SchemaError:
        """Error for an entity of an undeclared class."""
        shown = (kind.name for kind in self.entities if kind.cls is not GlobalActor)
        declared = ", ".join(shown) or "none"
        how = _how_to_declare(cls, [kind.cls for kind in self.entities])
        return SchemaError(
            f"{self.game}: an observation shows a {cls.__name__}, which was not declared; declared "
            f"are {declared}: {how or 'add it to Game(entities=...) or Game(relations=...)'}"
        )

    def require_role(self, kind: EntityType, *, is_relation: bool) -> None:
        """Raises SchemaError for a relation in `obs.entities`, or an entity in `obs.relations`.

        Args:
            is_relation: whether it was shown as a relation.
        """
        if is_relation == (kind.references is not None):
            return
        if is_relation:
            raise SchemaError(
                f"{self.game}: obs.relations got a {kind.name}, which Game declares as an entity: "
                "show it with obs.entities(...)"
            )
        raise SchemaError(
            f"{self.game}: obs.entities or obs.actors got a {kind.name}, which Game declares as a "
            "relation: show it with obs.relations(...); a relation cannot act"
        )

    def no_actors(self, kind: ActionType[Any]) -> SchemaError:
        """Error for a per-actor action in an observation that marks no actors."""
        return SchemaError(
            f"{self.game}: {kind!r} asks every actor, but the observation marks none: "
            "show them with obs.actors(...) instead of obs.entities(...)"
        )

    def require_declared(self, kinds: Iterable[ActionType[Any]]) -> None:
        """Raises SchemaError for an undeclared action, whose mask or actors would do nothing."""
        for kind in kinds:
            if kind not in self._kinds:
                raise SchemaError(
                    f"{self.game}: an observation has a mask or actors for {kind!r}, which was not "
                    f"declared; declared are {', '.join(map(repr, self._kinds)) or 'none'}"
                )

    def require_globals(self, cls: type | None) -> None:
        """Raises SchemaError unless global features have the declared class.

        Args:
            cls: their class; None if the observation has none.
        """
        if cls is (self.globals and self.globals.cls):
            return
        if self.globals is None:
            name = getattr(cls, "__name__", "")
            raise SchemaError(
                f"{self.game}: an observation has the global features {name}, which were not "
                f"declared: add Game(global_features={name})"
            )
        if cls is None:
            raise SchemaError(
                f"{self.game}: the game declared the global features {self.globals.name}, but an "
                f"observation has none: add obs.globals({self.globals.name}(...))"
            )
        raise SchemaError(
            f"{self.game}: an observation has the global features {cls.__name__}, expected "
            f"{self.globals.name}, which the game declared"
        )

    def _type_of_actor(self, kinds: Iterable[EntityType]) -> EntityType:
        if any(kind.name == ACTOR_ENTITY for kind in kinds):
            raise SchemaError(
                f"{self.game}: the entity name {ACTOR_ENTITY!r} is reserved in games with global "
                "decisions that select entities or contain numbers: choose another name"
            )
        return replace(entity_type(GlobalActor), name=ACTOR_ENTITY)

    def _require_selectable(self) -> None:
        for kind in self.kinds:
            actee = getattr(kind, "actee", None)
            if actee is not None and actee not in self.index_of:
                raise SchemaError(
                    f"{self.game}: the action {kind.name} selects {actee.__name__}, which was not "
                    f"declared: add it to Game(entities=...) or Game(relations=...)"
                )


def require_actions(keys: Keys, where: str = "") -> Keys:
    """The arguments of `act`; raises SchemaError if there are none."""
    if not keys:
        raise SchemaError(f"{where}act needs at least one action to ask for: agent.act(obs, Move)")
    return keys


def _names_of(kind: EntityType) -> tuple[str, str] | None:
    """Names of the types to which a relation refers."""
    if kind.references is None:
        return None
    source, target = kind.references
    return source.__name__, target.__name__


def _require_several(classes: object, what: str) -> None:
    if isinstance(classes, type | ActionType):
        alone = _show(classes)
        raise SchemaError(f"{what} must be a tuple, got {alone} alone: write ({alone},)")


def _require_distinct(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"{what} need different names, {name!r} came twice: rename one")
        seen.add(name)


def _show(key: ActionKey) -> str:
    return key.__name__ if isinstance(key, type) else repr(key)


def _how_to_declare(given: object, declared: Iterable[object]) -> str:
    """What to do about a class that is nearly a declared one; empty if it is not."""
    for other in declared:
        if isinstance(given, type) and isinstance(other, type) and given is not other:
            if given.__name__ == other.__name__:
                return (
                    f"{given.__module__}.{given.__qualname__} is another class with the same name "
                    f"as {other.__module__}.{other.__qualname__}: use the same object"
                )
            if issubclass(given, other):
                return (
                    f"{given.__name__} is a subclass of {other.__name__}, but instances are shown "
                    "under their own class: declare it, too, or show instances of "
                    f"{other.__name__} with a field for the kind"
                )
    return ""
