"""Spaces as JSON, for checkpoints and replays, and the difference of two in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    require_names,
)
from entity_env.errors import SchemaError, shown

Spaces: TypeAlias = tuple[ObsSpace, Mapping[ActionName, ActionSpace]]
"""What can be observed and what can be done."""

_KINDS: dict[type[ActionSpace], str] = {
    CategoricalActionSpace: "categorical",
    GlobalCategoricalActionSpace: "global_categorical",
    SelectEntityActionSpace: "select_entity",
    ContinuousActionSpace: "continuous",
}


def spaces_to_json(
    obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
) -> dict[str, object]:
    """Turns both spaces into lists, dicts, strings and numbers; order is kept by lists."""
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
            }
            for name, entity in obs_space.entities.items()
        ],
        "actions": [
            {"name": name, **_action_to_json(space)} for name, space in action_space.items()
        ],
    }


def spaces_from_json(data: object) -> tuple[ObsSpace, dict[ActionName, ActionSpace]]:
    """The spaces that `spaces_to_json` wrote."""
    spaces = _as_dict(data, "spaces")
    entities = [_as_dict(item, "an entity") for item in _items(spaces, "entities")]
    actions = [_as_dict(item, "an action") for item in _items(spaces, "actions")]
    obs_space = ObsSpace(
        global_features=_strings(spaces, "global_features"),
        entities={_name(item): _entity_from_json(item) for item in entities},
    )
    action_space = {_name(item): _action_from_json(item) for item in actions}
    require_names(action_space, "actions")
    if len(obs_space.entities) != len(entities) or len(action_space) != len(actions):
        raise SchemaError("spaces in JSON name an entity or an action more than once")
    return obs_space, action_space


def _entity_from_json(data: Mapping[str, object]) -> Entity:
    shape = data.get("shape")
    if isinstance(shape, list):
        shape = tuple(shape)
    is_single, is_binary = (data.get(name) is True for name in ("is_single", "is_binary"))
    features = _strings(data, "features")
    return Entity(features, is_single, shape, is_binary)  # type: ignore[arg-type]  # checked


def differences(
    expected: Spaces,
    got: Spaces,
    *,
    expected_name: str = "the checkpoint",
    got_name: str = "the game",
) -> list[str]:
    """Every difference between two pairs of spaces, a sentence each; empty when they agree."""
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
            for sentence in _list_differences(
                "the feature",
                f"entity {name!r}: ",
                entity.features,
                got_obs.entities[name].features,
                names,
            )
        ),
        *_list_differences("the action", "", [*expected_actions], [*got_actions], names),
        *(
            sentence
            for name, space in expected_actions.items()
            if name in got_actions
            for sentence in _action_differences(name, space, got_actions[name], names)
        ),
    ]


def _list_differences(
    kind: str, where: str, expected: Sequence[str], got: Sequence[str], names: tuple[str, str]
) -> Iterator[str]:
    expected_name, got_name = names
    there, known = set(got), set(expected)
    missing = [item for item in expected if item not in there]
    added = [item for item in got if item not in known]
    yield from (f"{where}{expected_name} has {kind} {x!r}, {got_name} has not" for x in missing)
    yield from (f"{where}{got_name} has {kind} {x!r}, {expected_name} has not" for x in added)
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
    return data


def _action_from_json(data: Mapping[str, object]) -> ActionSpace:
    kind = data.get("kind")
    readers: dict[str, Callable[[], ActionSpace]] = {
        "categorical": lambda: CategoricalActionSpace(_strings(data, "labels")),
        "global_categorical": lambda: GlobalCategoricalActionSpace(_strings(data, "labels")),
        "select_entity": SelectEntityActionSpace,
        "continuous": lambda: ContinuousActionSpace(
            _numbers(data, "low"), _numbers(data, "high"), _strings(data, "labels")
        ),
    }
    if not isinstance(kind, str) or kind not in readers:
        raise SchemaError(
            f"the kind of an action is one of {', '.join(readers)}: got {shown(kind)}"
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
    """As numbers of Python, which JSON knows."""
    return [float(value) for value in values]


def _numbers(data: Mapping[str, object], key: str) -> tuple[float, ...]:
    items = _items(data, key)
    try:
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in items):
            return tuple(float(x) for x in items)  # type: ignore[arg-type]  # as was asked
    except OverflowError:
        pass  # a whole number beyond all floats
    raise SchemaError(f"spaces in JSON need numbers under {key!r}, got {shown(items)}")
