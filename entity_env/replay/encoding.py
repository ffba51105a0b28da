"""Observations and actions as JSON, and the checksum of an observation."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zlib import crc32

from entity_env.core.action_request import Question, questions
from entity_env.core.masks import (
    is_nested,
    reference_error,
    rows_of_mask,
    without_equal_rows,
    wrong_reference,
)
from entity_env.core.observation import (
    Action,
    ActionMask,
    BoolMask,
    CategoricalAction,
    CategoricalActionMask,
    ContinuousAction,
    ContinuousActionMask,
    EntityID,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityAction,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
    Spaces,
)
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import is_array, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Json: TypeAlias = Any
"""Any JSON value: text, number, boolean, None, list, or dict with text keys."""

_FLAGS: Final = {True: b"\x01", False: b"\x00"}
_SINGLE: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")
_NORMAL: Final = 2.0**-126
"""The smallest normal number in single precision."""
_EXACT: Final = 2**53
"""Integers up to this are exact as floats."""


# ------------------------------------------------------------------ numbers


def json_number(value: float) -> int | float:
    """The shortest JSON number with the same value."""
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def json_numbers(values: NDArray[Any] | Sequence[float]) -> list[int | float]:
    """The shortest JSON numbers that have the same values in single precision."""
    if is_array(values):
        single = np.asarray(values, dtype=np.float32)
        numbers, shortest = single.tolist(), map(float, map(str, single))
    else:
        numbers = array("f", values).tolist()
        shortest = map(_shortest, numbers)
    if not all(map(float.is_integer, numbers)):
        return list(map(json_number, shortest))
    return list(map(int, numbers)) if all(abs(n) < _EXACT for n in numbers) else numbers


def _shortest(value: float) -> float:
    """The shortest number that rounds to `value` in single precision."""
    # For a normal number six digits are never too many, and nine always enough.
    for digits in range(6 if abs(value) >= _NORMAL else 1, 9):
        # Above a power of two, the gap to the next number is twice the gap below it.
        for each in (value, value * (1 + 2**-25)) if abs(math.frexp(value)[0]) == 0.5 else (value,):
            found = float(f"{each:.{digits}g}")
            with suppress(OverflowError):  # rounded beyond the largest float
                if _SINGLE.unpack(_SINGLE.pack(found))[0] == value:
                    return found
    return float(f"{value:.9g}")


def json_rows(values: object) -> list[list[int | float]]:
    """Rows of single-precision numbers as JSON."""
    table: Any = np.asarray(values, dtype=np.float32) if is_array(values) else values
    if is_array(table) and table.size and not np.any(table % 1) and np.all(abs(table) < _EXACT):
        rows: list[list[int | float]] = table.astype(np.int64).tolist()
        return rows
    return list(map(json_numbers, table))


# ------------------------------------------------------------------ checksums


def checksum(observation: Observation, obs_space: ObsSpace) -> int:
    """CRC-32 of an observation, with entity types in the order of the observation space.

    Covers the reward, the flags, the global features, and per type the number of entities, their
    features and visibility. Except in an episode's last observation, it also covers name, actors,
    actees and mask of each action. 0 and -0 are equal.
    """
    parts = [
        _DOUBLE.pack(observation.reward + 0.0),
        _FLAGS[observation.terminated],
        _FLAGS[observation.truncated],
        _bytes_of(observation.global_features),
    ]
    features, visible = observation.features, observation.visible
    for name in obs_space.entities:
        rows = features.get(name, ())
        parts.append(len(rows).to_bytes(4, "little"))
        if len(rows):
            parts.append(_bytes_of(rows))
            if name in visible:
                parts.append(_index_bytes(_hidden(visible[name])))
    for name, mask in () if observation.done else observation.actions.items():
        parts.append(name.encode("utf-8", "backslashreplace"))
        if not isinstance(mask, GlobalCategoricalActionMask):
            parts.append(_index_bytes(observation.actor_positions(name, obs_space)))
        if isinstance(mask, SelectEntityActionMask):
            parts.append(_index_bytes(observation.actee_positions(name, obs_space)))
        allowed = getattr(mask, "mask", None)
        if allowed is not None:
            parts.append(_bits_of(without_equal_rows(allowed)))
    return crc32(b"".join(parts))


def _bytes_of(values: Any) -> bytes:  # noqa: ANN401 - an array, numbers or rows of numbers
    """Numbers as float32, row by row; -0 becomes 0."""
    if is_array(values):
        return (np.asarray(values, dtype=np.float32) + np.float32(0)).tobytes()
    rows = values if len(values) and isinstance(values[0], Sequence) else [values]
    return array("f", [float(each) + 0.0 for row in rows for each in row]).tobytes()


def _index_bytes(indices: Sequence[int]) -> bytes:
    return array("q", indices).tobytes()


def _bits_of(mask: Any) -> bytes:  # noqa: ANN401 - an array, bools or rows of bools
    """Bools as bits, highest bit first, padded with zeros to whole bytes."""
    if is_array(mask):
        return np.packbits(np.asarray(mask, dtype=np.bool_)).tobytes()
    bits = "".join(
        map(_digits, chain.from_iterable(mask) if is_nested(mask) else rows_of_mask(mask))
    )
    size = -(-len(bits) // 8)
    return int(bits.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def _digits(row: Sequence[Any]) -> str:
    return "".join("1" if each else "0" for each in row)


def _hidden(seen: BoolMask) -> list[int]:
    return [i for i, is_seen in enumerate(seen) if not is_seen]


# ------------------------------------------------------------------ actions


def actions_to_json(
    actions: Mapping[str, Action], observation: Observation, obs_space: ObsSpace
) -> dict[str, Json]:
    """Actions as label indices, entity indices in space order, or numbers."""
    return {name: _to_json(action, observation, obs_space) for name, action in actions.items()}


def _to_json(action: Action, observation: Observation, obs_space: ObsSpace) -> Json:
    match action:
        case GlobalCategoricalAction():
            return int(action.index)
        case CategoricalAction():
            return action.indices.tolist() if is_array(action.indices) else list(action.indices)
        case SelectEntityAction():
            index_of = observation.index_of_ids(obs_space)
            return [index_of[actee] for actee in action.actees]
        case ContinuousAction():
            return json_rows(action.values)


def actions_from_json(
    data: Mapping[str, Json],
    observation: Observation,
    spaces: Spaces,
    known: Sequence[Question] | None = None,
) -> dict[str, Action]:
    """Inverse of `actions_to_json`, for the same observation.

    An action without actors may be omitted. `known` are the observation's questions; None = find
    them.

    Raises:
        SchemaError: the observation requests other actions, or does not allow these.
    """
    if known is None:
        known = questions(observation, *spaces)
    asked = {question.name: question for question in known}
    data = {**{name: [] for name, question in asked.items() if not len(question.actors)}, **data}
    if set(asked) != set(data):
        raise SchemaError(
            f"requested: {', '.join(asked) or 'no action'}, recorded: {', '.join(data) or 'none'}"
        )
    made: dict[str, Action] = {}
    chosen: dict[str, list[Any]] = {}
    for name, question in asked.items():
        values = data[name] if isinstance(data[name], list) else [data[name]]
        if isinstance(observation.actions[name], SelectEntityActionMask):
            values = _positions(values, observation.entity_ids(spaces[0]), question.actees)
        chosen[name] = values
        made[name] = question.after(chosen).action(values)
    return made


def _positions(values: list[Any], ids: list[EntityID], actees: Sequence[EntityID]) -> list[int]:
    position_of = {actee: i for i, actee in enumerate(actees)}
    found = [position_of.get(ids[i], -1) if i < len(ids) else -1 for i in values]
    if -1 in found:
        lost = values[found.index(-1)]
        raise SchemaError(f"selects entity {lost}, which cannot be selected")
    return found


def action_problem(value: Json, space: ActionSpace) -> str:
    """The expected form of an invalid action in JSON, else ""."""
    if isinstance(space, GlobalCategoricalActionSpace):
        return "" if _is_index(value, len(space)) else f"an index below {len(space)}"
    if not isinstance(value, list):
        return "a list with one value per actor"
    if isinstance(space, CategoricalActionSpace):
        fits = all(_is_index(each, len(space)) for each in value)
        return "" if fits else f"indices below {len(space)}"
    if isinstance(space, ContinuousActionSpace):
        fits = all(is_row(each, len(space)) for each in value)
        return "" if fits else f"rows of {len(space)} finite numbers"
    return "" if all(_is_index(each, _EXACT) for each in value) else "indices of entities"


def _is_index(value: Json, count: int) -> bool:
    return type(value) is int and 0 <= value < count


def is_row(value: Json, width: int) -> bool:
    """Whether a value is a list of `width` finite single-precision numbers."""
    return (
        isinstance(value, list)
        and len(value) == width
        and all(is_json_number(each) and abs(each) <= 3.4028235e38 for each in value)
    )


def is_json_number(value: Json) -> bool:
    """Whether a JSON value is a finite number, below 2**53 if it is an integer."""
    if type(value) is int:
        return abs(value) < _EXACT
    return type(value) is float and math.isfinite(value)


# ------------------------------------------------------------------ observations


def observation_to_json(observation: Observation, obs_space: ObsSpace) -> dict[str, Json]:
    """An observation without reward and flags: `o`, `q`, `h` and `m` of a line."""
    data: dict[str, Json] = {
        "o": {
            name: json_rows(observation.features[name])
            for name in obs_space.entities
            if observation.num_entities(name)
        }
    }
    if len(observation.global_features):
        data["q"] = json_numbers(observation.global_features)
    hidden = {name: _hidden(seen) for name, seen in observation.visible.items()}
    if any(hidden.values()):
        data["h"] = {name: rows for name, rows in hidden.items() if rows}
    if observation.actions:
        data["m"] = {
            name: _mask_to_json(name, mask, observation, obs_space)
            for name, mask in observation.actions.items()
        }
    return data


def _require_references(obs_space: ObsSpace, features: Mapping[str, NDArray[np.float32]]) -> None:
    """Raises SchemaError if a relation refers to an entity that the observation lacks."""
    for name, relation in obs_space.relations.items():
        types, rows = relation.references or (), features.get(name)
        counts = [len(features.get(other, ())) for other in types]
        if rows is not None and (wrong := wrong_reference(rows, counts)) is not None:
            raise reference_error(name, relation.features, types, counts, rows, *wrong)


def _mask_to_json(
    name: str, mask: ActionMask, observation: Observation, obs_space: ObsSpace
) -> dict[str, Json]:
    data: dict[str, Json] = {}
    if not isinstance(mask, GlobalCategoricalActionMask):
        data["actors"] = list(observation.actor_positions(name, obs_space))
    if isinstance(mask, SelectEntityActionMask):
        data["actees"] = list(observation.actee_positions(name, obs_space))
    allowed = getattr(mask, "mask", None)
    if allowed is not None:
        # One text of 0 and 1 per actor takes half the space of a list. If the mask depends on an
        # earlier action, each actor has a list of texts, one per choice of that action.
        rows: Any = allowed.tolist() if is_array(allowed) else allowed
        if is_nested(rows):
            data["mask"] = [list(map(_digits, each)) for each in rows]
        else:
            data["mask"] = list(map(_digits, rows_of_mask(rows)))
    return data


def observation_from_json(
    data: Mapping[str, Json],
    spaces: Spaces,
    *,
    reward: float,
    terminated: bool = False,
    truncated: bool = False,
    metrics: Mapping[str, float] | None = None,
) -> Observation:
    """Inverse of `observation_to_json`; ids are indices in space order.

    Raises:
        SchemaError: the data does not match the spaces.
    """
    obs_space, action_space = spaces
    features: dict[str, NDArray[np.float32]] = {}
    ids: dict[str, Sequence[EntityID]] = {}
    first = 0
    given = _dict(data.get("o", {}), obs_space.entities, "entities")
    for name, entity in obs_space.entities.items():
        if name not in given:
            continue
        features[name] = _matrix(given[name], len(entity.features), f"entities {name!r}")
        ids[name] = range(first, first + len(features[name]))
        first += len(features[name])
    _require_references(obs_space, features)
    visible = {}
    for name, rows in _dict(data.get("h", {}), features, "hidden entities").items():
        visible[name] = np.ones(len(features[name]), dtype=np.bool_)
        visible[name][_indices(rows, len(features[name]), f"hidden entities {name!r}")] = False
    masks = _dict(data.get("m", {}), action_space, "masks")
    width = len(obs_space.global_features)
    values = data.get("q", [])
    if values != [] and not is_row(values, width):
        raise SchemaError(f"needs {width} global features, got {shown(values)}")
    return Observation(
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        global_features=np.array(values, dtype=np.float32),
        features=features,
        ids=ids,
        visible=visible,
        actions={
            name: _mask_from_json(mask, action_space[name], first, name)
            for name, mask in masks.items()
        },
        metrics=metrics,
    )


def _mask_from_json(data: Json, space: ActionSpace, count: int, name: str) -> ActionMask:
    where = f"the mask of {name!r}"
    given = _dict(data, ("actors", "actees", "mask"), where)
    actors = _indices(given.get("actors", []), count, where)
    actees = _indices(given.get("actees", []), count, where)
    is_global = isinstance(space, GlobalCategoricalActionSpace)
    is_selecting = not is_global and not hasattr(space, "__len__")
    mask = None
    if "mask" in given:
        shape = (
            1 if is_global else len(actors),
            len(actees) if is_selecting else len(space),  # type: ignore[arg-type]  # not a select action
        )
        rows = given["mask"]
        num_earlier = None
        if space.given and isinstance(rows, list) and rows and isinstance(rows[0], list):
            num_earlier = len(rows[0])
            are_equal = all(isinstance(each, list) and len(each) == num_earlier for each in rows)
            rows = list(chain.from_iterable(rows)) if are_equal else None
        num_texts = shape[0] * (1 if num_earlier is None else num_earlier)
        is_text = isinstance(rows, list) and all(isinstance(row, str) for row in rows)
        lists = [[int(each in "1") for each in row] for row in rows] if is_text else None
        if lists is None or len(lists) != num_texts or any(len(row) != shape[1] for row in lists):
            raise SchemaError(
                f"{where} needs {shape[0]} texts of {shape[1]} digits 0 or 1, or lists of them if "
                f"it depends on an earlier action: got {shown(given['mask'])}"
            )
        mask = np.array(lists, dtype=np.bool_)
        mask = mask.reshape(shape if num_earlier is None else (shape[0], num_earlier, shape[1]))
    if is_global:
        return GlobalCategoricalActionMask(mask)
    if isinstance(space, CategoricalActionSpace):
        return CategoricalActionMask(actor_ids=actors, mask=mask)
    if isinstance(space, ContinuousActionSpace):
        return ContinuousActionMask(actor_ids=actors)
    return SelectEntityActionMask(actor_ids=actors, actee_ids=actees, mask=mask)


def _dict(data: Json, names: Mapping[str, Any] | Sequence[str], what: str) -> dict[str, Json]:
    """The known names of a dict; others come from a later version."""
    if not isinstance(data, dict):
        raise SchemaError(f"{what} must be an object, got {shown(data)}")
    return {name: value for name, value in data.items() if name in names}


def _matrix(rows: Json, width: int, what: str) -> NDArray[np.float32]:
    if not isinstance(rows, list) or not all(is_row(row, width) for row in rows):
        raise SchemaError(f"{what} needs rows of {width} finite numbers, got {shown(rows)}")
    return np.array(rows, dtype=np.float32).reshape(len(rows), width)


def _indices(values: Json, count: int, what: str) -> list[int]:
    if not isinstance(values, list) or not all(_is_index(each, count) for each in values):
        raise SchemaError(f"{what}: needs indices below {count}, got {shown(values)}")
    return values
