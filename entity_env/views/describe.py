"""Features, entities, observations and actions as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from entity_env.core.observation import (
    Action,
    CategoricalAction,
    ContinuousAction,
    GlobalCategoricalAction,
    Observation,
    SelectEntityAction,
)
from entity_env.core.spaces import ActionName, EntityName, ObsSpace
from entity_env.lazy_imports import is_array
from entity_env.views.scene import one_line
from entity_env.views.seen import SeenEntity, is_part, member_of, presence_of, seen_entities

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_ACTORS: Final = 8


def describe_number(value: float) -> str:
    """A feature or reward: integers in full, other numbers with three digits, or one decimal if
    large."""
    if float(value).is_integer():
        return str(int(value))
    # 999.5 or more with three digits would be 1e+03.
    return f"{value:.1f}" if abs(value) >= 999.5 else f"{value:.3g}"


def describe_features(names: Sequence[str], values: Sequence[float] | NDArray[Any]) -> str:
    """Features as `x=3 stance=Calm`; a one-hot group shows its set member, absent fields are left
    out."""
    return " ".join(f"{name}={text}" for name, text in _feature_texts(names, values))


def _feature_texts(
    names: Sequence[str], values: Sequence[float] | NDArray[Any]
) -> Iterator[tuple[str, str]]:
    """Name and value of each present field; for a Flag one pair per set bit."""
    names = tuple(names)
    presence = presence_of(names)
    if is_array(values):
        values = values.tolist()
    absent = {
        presence[name]
        for name, value in zip(names, values, strict=True)
        if not value and name in presence
    }
    lengths = {len(field) for field in absent}
    for name, value, (field, member) in zip(names, values, _fields_of(names), strict=True):
        is_absent = any(name[:n] in absent and is_part(name, name[:n]) for n in lengths)
        if name in presence or is_absent:
            continue
        if not member:
            yield field, describe_number(value)
        elif value:
            yield field, member


@lru_cache(maxsize=256)
def _fields_of(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one_line(field), one_line(member)) for field, member in map(member_of, names)]


@dataclass(frozen=True)
class EntityRow:
    """Entities of one type with equal text.

    Args:
        entity: the first of them.
        cells: values by field name.
    """

    entity: SeenEntity
    cells: Mapping[str, str]
    count: int = 1


def entity_tables(entities: Iterable[SeenEntity]) -> dict[EntityName, list[EntityRow]]:
    """The rows of each type, in entity order; equal entities share a row."""
    tables: dict[EntityName, dict[tuple[tuple[tuple[str, str], ...], bool], list[SeenEntity]]] = {}
    for entity in entities:
        cells: dict[str, str] = {}
        for name, text in _feature_texts(entity.names, entity.features):
            cells[name] = f"{cells[name]}|{text}" if name in cells else text
        key = (tuple(cells.items()), entity.is_visible)
        tables.setdefault(entity.type, {}).setdefault(key, []).append(entity)
    return {
        name: [EntityRow(same[0], dict(cells), len(same)) for (cells, _), same in rows.items()]
        for name, rows in tables.items()
    }


def table_columns(rows: Iterable[EntityRow]) -> dict[str, int]:
    """The fields of rows, with the length of their longest text or name."""
    widths: dict[str, int] = {}
    for row in rows:
        for name, text in row.cells.items():
            widths[name] = max(widths.get(name, len(name)), len(text))
    return widths


def describe_entity(entity: SeenEntity, obs_space: ObsSpace) -> str:
    """An entity as `Food x=3 y=1`."""
    features = describe_features(obs_space.entities[entity.type].features, entity.features)
    return one_line(f"{entity.type} {features}")


def describe_observation(observation: Observation, obs_space: ObsSpace) -> str:
    """Lines for the global features, every visible entity, and the reward."""
    lines = []
    if obs_space.global_features and len(observation.global_features):
        lines.append(describe_features(obs_space.global_features, observation.global_features))
    lines += [
        describe_entity(entity, obs_space)
        for entity in seen_entities(observation, obs_space)
        if entity.is_visible
    ]
    if observation.reward:
        lines.append(f"reward {observation.reward:+g}")
    return "\n".join(lines)


def describe_actions(
    actions: Mapping[ActionName, Action],
    observation: Observation,
    obs_space: ObsSpace,
    describe: Callable[[SeenEntity], str] | None = None,
) -> str:
    """Actions as `UP`, or `UP, LEFT` for several actors; "" without actions or actors.

    `UP 93%` includes the probability of a global action, if known. `describe` gives the text of
    selected entities; None = `describe_entity`.
    """
    describe = describe or (lambda entity: describe_entity(entity, obs_space))
    words = {
        name: _describe_action(action, observation, obs_space, describe)
        for name, action in actions.items()
    }
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{one_line(name)} {text}" for name, text in words.items() if text)


def _describe_action(
    action: Action,
    observation: Observation,
    obs_space: ObsSpace,
    describe: Callable[[SeenEntity], str],
) -> str:
    match action:
        case GlobalCategoricalAction():
            sure = "" if action.probs is None else f" {action.probs[action.index]:.0%}"
            chosen = [action.label + sure]
        case CategoricalAction():
            chosen = action.labels
        case SelectEntityAction():
            seen = seen_entities(observation, obs_space)
            entities = {entity.id: entity for entity in seen}
            chosen = [describe(entities[actee]) for actee in action.actees]
        case ContinuousAction():
            chosen = [" ".join(map(describe_number, row)) for row in action.values]
    more = [f"and {len(chosen) - _MAX_ACTORS} more"] if len(chosen) > _MAX_ACTORS else []
    return one_line(", ".join([*chosen[:_MAX_ACTORS], *more]))
