"""Features, entities, observations and actions as text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from entity_env.core.observation import (
    Action,
    CategoricalAction,
    ContinuousAction,
    GlobalCategoricalAction,
    Observation,
    SelectEntityAction,
)
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, EntityName, ObsSpace
from entity_env.lazy_imports import is_array
from entity_env.views.scene import clipped, one_line
from entity_env.views.seen import SeenEntity, is_part, member_of, presence_of, seen_entities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from entity_env.views.look import Look

_MAX_ACTORS: Final = 8
_MAX_FEATURES: Final = 40
_MAX_NAME: Final = 16
_HIDDEN_END: Final = "hidden"
_MAX_END: Final = 24
"""Maximum characters of an entity in the words of its relation."""
_MAX_WORDS: Final = 160
"""Maximum features and characters of an entity in words."""


def describe_number(value: float) -> str:
    """A feature or reward: integers in full, other numbers with three digits, or one decimal if
    large."""
    if float(value).is_integer():
        return str(int(value))
    # 999.5 or more with three digits would be 1e+03.
    return f"{value:.1f}" if abs(value) >= 999.5 else f"{value:.3g}"


def percent(share: float) -> str:
    """A probability in whole percents, or `<1%`; as `percent` in `board.js`."""
    if not math.isfinite(share):
        return "?"
    share = round(float(share), 4)
    whole = math.floor(100 * share + 0.5)
    return f"{whole}%" if whole or not share else "<1%"


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


def _entity_texts(entity: SeenEntity) -> Iterator[tuple[str, str]]:
    """As `_feature_texts`; of a picture only its shape, since it may have 100,000 pixels."""
    if entity.shape is None:
        yield from _feature_texts(entity.names, entity.features)
    else:
        yield "picture", "x".join(map(str, entity.shape))


def _ends_of(entity: SeenEntity, look: Look | None = None) -> dict[str, str]:
    """The two entities of a relation in words, by the names of its references; empty if none."""
    return {
        one_line(name): clipped(words_of(end, look), _MAX_END) if end.is_visible else _HIDDEN_END
        for name, end in zip(entity.names, entity.ends, strict=False)
    }


@lru_cache(maxsize=256)
def _fields_of(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one_line(field), one_line(member)) for field, member in map(member_of, names)]


@dataclass(frozen=True)
class EntityRow:
    """Entities of one type with equal text and visibility.

    Args:
        entity: the first of them.
        cells: values by field name.
    """

    entity: SeenEntity
    cells: Mapping[str, str]
    count: int = 1


def entity_tables(
    entities: Iterable[SeenEntity], look: Look | None = None
) -> dict[EntityName, list[EntityRow]]:
    """The rows of each type, in entity order; equal entities share a row.

    The look describes the entities of relations.
    """
    tables: dict[EntityName, dict[tuple[tuple[tuple[str, str], ...], bool], list[SeenEntity]]] = {}
    for entity in entities:
        cells: dict[str, str] = {}
        ends = _ends_of(entity, look)
        for name, text in _entity_texts(entity):
            text = ends.get(name, text)
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
    names = obs_space.entities[entity.type].features
    return one_line(f"{entity.type} {_described(entity, names, entity.features)}")


def _described(
    entity: SeenEntity,
    names: Sequence[str],
    values: Sequence[float] | NDArray[Any],
    look: Look | None = None,
) -> str:
    """Some features of an entity, as in `describe_features`; of a relation with its entities."""
    if entity.shape is not None:
        return " ".join(map(" ".join, _entity_texts(entity)))
    if not entity.ends:
        return describe_features(names, values)
    ends = _ends_of(entity, look)
    texts = _feature_texts(names, values)
    return " ".join(
        f"{name}=({ends[name]})" if name in ends else f"{name}={text}" for name, text in texts
    )


def words_of(entity: SeenEntity, look: Look | None = None) -> str:
    """An entity in words: see `Look.describe`. At most 160 characters, and "(hidden)"."""
    words = ""
    name = "" if entity.type == GLOBAL_ENTITY else entity.type
    if name and look is not None and look.describe is not None:
        words = look.call("describe", entity)
    if not words:
        names, features = list(entity.names), list(entity.features)
        style = None if look is None else look.style(entity.type)
        if name and style is not None and style.label:
            value = entity[style.label]
            label = describe_number(value) if isinstance(value, float) else str(value or "")
            kept = [i for i, each in enumerate(names) if member_of(each)[0] != style.label]
            names, features = [names[i] for i in kept], [features[i] for i in kept]
            name = f"{name} {label}"
        names, features = names[:_MAX_FEATURES], features[:_MAX_FEATURES]
        words = f"{name} {_described(entity, names, features, look)}"
    text = clipped(one_line(words), _MAX_WORDS)
    return text if entity.is_visible else f"{text} (hidden)"


def action_words(action: ActionName) -> str:
    """The name of an action in words: "Select foe" for `SelectFoe`; other names are unchanged."""
    words = re.findall("[A-Z][a-z0-9]+", action)
    if "".join(words) != action:
        return action
    return " ".join([*words[:1], *map(str.lower, words[1:])])


def label_of(action: ActionName, label: str, look: Look | None = None) -> str:
    """A choice in words, as in `Look.labels`; else its label."""
    words = {} if look is None else look.labels.get(action, {})
    return one_line(words.get(label, label))


def describe_observation(observation: Observation, obs_space: ObsSpace) -> str:
    """Lines for the global features, every visible entity, and the reward if it is not 0."""
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
    look: Look | None = None,
) -> str:
    """Actions in words: `UP`; `UP, LEFT` for two actors; `Move UP; Fire YES` for two actions.

    `UP 93%` includes the probability of a global action, if known. The result is "" without actions
    or actors. The look may describe choices and selected entities.
    """
    words = {
        name: _describe_action(name, action, observation, obs_space, look)
        for name, action in actions.items()
    }
    if len(words) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{one_line(name)} {text}" for name, text in words.items() if text)


def _describe_action(
    name: ActionName,
    action: Action,
    observation: Observation,
    obs_space: ObsSpace,
    look: Look | None,
) -> str:
    match action:
        case GlobalCategoricalAction():
            sure = "" if action.probs is None else f" {percent(action.probs[action.index])}"
            chosen = [label_of(name, action.label, look) + sure]
        case CategoricalAction():
            chosen = [label_of(name, label, look) for label in action.labels]
        case SelectEntityAction():
            seen = seen_entities(observation, obs_space)
            entities = {entity.id: entity for entity in seen}
            chosen = [words_of(entities[actee], look) for actee in action.actees]
        case ContinuousAction():
            chosen = [" ".join(map(describe_number, row)) for row in action.values]
    more = [f"and {len(chosen) - _MAX_ACTORS} more"] if len(chosen) > _MAX_ACTORS else []
    return one_line(", ".join([*chosen[:_MAX_ACTORS], *more]))


def shown_names(
    names: Sequence[str],
    humans: Sequence[int] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Short, distinct names of agents for drawings, without folders; humans are `you`.

    Of a bot `FILE.py:CLASS`, the class; with its file only if another file has a bot of that name.
    Drawings are shared, but the folders of a machine are private.

    Args:
        labels: for some of the names, what is shown instead.
    """
    files = [one_line(name.rstrip("/\\").replace("\\", "/")) for name in names]
    files = [name.rpartition("/")[2] or name for name in files]
    bots = [name.rpartition(".py:")[2] for name in files]
    num_files = Counter(bot for _, bot in {*zip(files, bots, strict=True)})
    shown = []
    for seat, (name, file, bot) in enumerate(zip(names, files, bots, strict=True)):
        short = bot if num_files[bot] == 1 and bot else file
        if len(short) > _MAX_NAME:
            short = clipped(short.removesuffix(".agent"), _MAX_NAME)
        label = clipped(one_line(labels.get(name, "")), _MAX_NAME)
        shown.append("you" if seat in humans else label or short)
    counts, seen = Counter(shown), Counter[str]()
    numbered = []
    for name in shown:
        seen[name] += 1
        numbered.append(f"{name} {seen[name]}" if counts[name] > 1 else name)
    return numbered
