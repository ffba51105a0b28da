"""`relation_type`: a dataclass about two entities; its references become their positions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from entity_env.authoring.entity_type import (
    EntityType,
    compiled_type,
    declared_fields,
    is_dataclass_type,
    without_none,
)
from entity_env.authoring.speedups import once_per_class
from entity_env.errors import SchemaError


def relation_type(
    cls: type, entities: Collection[type], relations: Collection[type] = ()
) -> EntityType:
    """The `EntityType` of a relation: a dataclass with two fields that hold entities.

    The first two features are the positions of these entities in the observation, the others those
    of the other fields.

    Args:
        cls: the class of the relation.
        entities: all classes of entities.
        relations: all classes of relations, to which no field may refer.

    Raises:
        SchemaError: the errors of `entity_type`, or another number of such fields.
    """
    if not is_dataclass_type(cls):
        raise SchemaError(
            f"a relation must be a dataclass, got {cls!r}: decorate its class with @dataclass, and "
            "declare the class, not an instance"
        )
    fields = _fields_of(cls)
    if wrong := next((name for name, kind in fields if kind in relations), None):
        raise SchemaError(
            f"relation {cls.__name__}: field {wrong!r} refers to a relation, expected an entity: "
            "a relation connects two entities"
        )
    found = tuple((name, kind) for name, kind in fields if kind in entities)
    if len(found) != 2:
        names = ", ".join(name for name, _ in found) or "none"
        known = ", ".join(each.__name__ for each in entities) or "none"
        raise SchemaError(
            f"relation {cls.__name__} needs exactly two fields that hold an entity of the game "
            f"({known}), such as source: Planet and target: Planet, got {names}: "
            f"{_how(cls, entities, len(found))}"
        )
    return _made_once(cls, found)


def _how(cls: type, entities: Collection[type], num_found: int) -> str:
    if num_found > 2:
        return "hide the others with field(metadata=HIDDEN)"
    for name, kind in declared_fields(cls).items():
        if without_none(kind) in entities:
            return f"{name} must not be None: show only relations that have both"
    return "add them, or declare their classes in Game(entities=...)"


@once_per_class
def _fields_of(cls: type) -> Sequence[tuple[str, type]]:
    """The fields that hold a dataclass."""
    fields = declared_fields(cls).items()
    return [(name, kind) for name, kind in fields if is_dataclass_type(kind)]


@once_per_class
def _made_once(cls: type, references: tuple[tuple[str, type], ...]) -> EntityType:
    return compiled_type(cls, dict(references))
