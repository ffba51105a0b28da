"""`Violations` of the contract, as sentences, and the functions that find them."""

from __future__ import annotations

import dataclasses
import logging
import re
import sys
import threading
import traceback
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.entity_type import (
    Features,
    array_shape,
    as_float32,
    declared_fields,
    features_of_class,
    without_none,
)
from entity_env.authoring.game_traceback import (
    is_failure,
    line_of_error,
    reason_of,
    stack_of,
    suggestion_of,
    summary_of,
    text_of,
)
from entity_env.authoring.obs import Obs, Rows, actions_at_truncation
from entity_env.authoring.schema import Schema
from entity_env.authoring.speedups import once_per_class
from entity_env.authoring.step_timeout import GameHangs
from entity_env.batching.frame import LocalMemory
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.batching.observation_batcher import ObservationBatcher
from entity_env.core.action_request import questions
from entity_env.core.observation import EntityID, Observation, SelectEntityActionMask
from entity_env.core.spaces import ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import metric_problem
from entity_env.errors import ContractError, SchemaError

_LOGGER: Final = logging.getLogger("entity_env.check")
_GRACE_S: Final = 2.0  # that a thread or process may take to end
_NUMBER: Final = re.compile(r"\d+")

Snapshot: TypeAlias = Mapping[str, tuple[NDArray[np.generic], Sequence[str]]]
"""Copies of the parts of an observation or of a batch's arrays, with feature names. Ids are
excluded, because they may be any object."""
Trace: TypeAlias = Sequence[tuple[str, Snapshot]]
"""All observations of a run, each with its place."""


class CannotContinueError(Exception):
    """The check cannot continue; the violation is already in the list."""


class LikelyMistake(str):
    """A sentence about something valid but probably not intended."""

    __slots__ = ()


def is_of(source: object, kind: type) -> bool:
    """Whether a source is an instance of a class, or a subclass of it."""
    return isinstance(source, kind) or (isinstance(source, type) and issubclass(source, kind))


class Violations:
    """List of violations: each kind once, with its first place and how often it was found.

    `LikelyMistake`s are kept separately and logged at the end.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.place = ""
        """For example "episode 0 (seed 7), step 3"."""
        self.cause: BaseException | None = None
        """Unexpected exception, for its traceback: the first, or that of a hang."""
        self.line = ""
        """Line of the game: "game.py:12 in play"."""
        self.hangs = False
        """Whether the timeout stopped the game."""
        self._found: dict[str, tuple[str, int]] = {}
        self._likely: dict[str, tuple[str, int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def likely(self) -> list[LikelyMistake]:
        """The likely mistakes, with their places."""
        return [LikelyMistake(text) for text, _ in self._likely.values()]

    def add(self, violation: str) -> None:
        """Adds a violation; texts that differ only in numbers are one kind."""
        text = f"{self.place}: {violation}" if self.place else violation
        if self.line:
            text = f"{text} ({self.line})"
        kind = _NUMBER.sub("#", violation)
        found = self._likely if isinstance(violation, LikelyMistake) else self._found
        first, count = found.get(kind, (text, 0))
        found[kind] = first, count + 1

    def extend(self, violations: Iterable[str]) -> int:
        """Adds several; returns how many are violations."""
        found = list(violations)
        for violation in found:
            self.add(violation)
        return sum(not isinstance(violation, LikelyMistake) for violation in found)

    def include(self, others: Violations) -> None:
        self._found.update(others._found)
        self.cause = self.cause or others.cause
        self.hangs = self.hangs or others.hangs

    def raised(self, call: str, error: BaseException, problem: str = "", hint: str = "") -> None:
        self.cause = self.cause or error
        own = f"{call} raised {summary_of(error)}{suggestion_of(error)}"
        self.add(f"{problem or own} ({line_of_error(error) or _origin(error)}){hint}")

    @contextmanager
    def of_game(
        self, call: str, hint: Callable[[BaseException], str] = lambda _: ""
    ) -> Iterator[None]:
        """Adds what the game raises in the block, or where it hangs."""
        try:
            yield
        except SchemaError as error:  # the text names the mistake, so no traceback is needed
            self.add(f"{text_of(error)} ({line_of_error(error) or _origin(error)}){hint(error)}")
        except Exception as error:
            self.raised(call, error, hint=hint(error))
        except GameHangs as hang:
            self.hangs = True
            self.cause = hang
            self.add(f"{call} hangs, {hang}: {stack_of(hang)}")
        except BaseException as error:
            if not is_failure(error):
                raise
            self.raised(call, error, reason_of(error))

    def raise_if_any(self) -> None:
        if self._found:
            problems = [text + _repeats(count) for text, count in self._found.values()]
            raise ContractError(self.name, problems) from self.cause

    def log_likely_mistakes(self) -> None:
        for text, count in self._likely.values():
            _LOGGER.warning("%s: %s%s", self.name, text, _repeats(count))


@contextmanager
def nothing_left_behind(violations: Violations) -> Iterator[None]:
    """Adds a violation for each thread and child process that outlives the block."""
    import multiprocessing  # 15 ms, not needed for importing the package

    threads = set(threading.enumerate())
    processes = set(multiprocessing.active_children())
    yield
    violations.place = "after close"
    for thread in set(threading.enumerate()) - threads:
        thread.join(_GRACE_S)
        if thread.is_alive():
            violations.add(f"the thread {thread.name!r} is left behind: join it")
    for process in set(multiprocessing.active_children()) - processes:
        process.join(_GRACE_S)
        if process.is_alive():
            violations.add(f"the process {process.name!r} is left behind: join it")


def is_finite(value: object, largest: float = sys.float_info.max) -> bool:
    """Whether a value is a bool, or a number of absolute value at most `largest`."""
    try:  # as a Python float: numpy scalars warn and wrap
        return _is_number(value) and abs(float(value)) <= largest
    except OverflowError:  # an int larger than any float
        return False


def snapshot(observation: Observation, obs_space: ObsSpace) -> Snapshot:
    """Copies of the parts of a valid observation."""
    parts: dict[str, NDArray[np.generic]] = {
        "the reward": np.array(observation.reward),
        "terminated": np.array(observation.terminated),
        "truncated": np.array(observation.truncated),
        "the global features": np.array(observation.global_features, ndmin=2),
    }
    columns: dict[str, Sequence[str]] = {"the global features": obs_space.global_features}
    for name, rows in observation.features.items():
        if len(rows):
            parts[f"entity {name!r}"] = np.array(rows)
            columns[f"entity {name!r}"] = obs_space.entities[name].features
    for name, seen in observation.visible.items():
        parts[f"the visible {name!r}"] = np.array(seen)
    for name, mask in observation.actions.items():
        parts[f"the actors of {name!r}"] = observation.actor_indices(name, obs_space)
        parts[f"the mask of {name!r}"] = np.array(getattr(mask, "mask", None))
        if isinstance(mask, SelectEntityActionMask):
            parts[f"the actees of {name!r}"] = observation.actee_indices(name, obs_space)
    return {part: (array, columns.get(part, ())) for part, array in parts.items()}


def difference(first: Snapshot, second: Snapshot) -> str | None:
    """Sentence about the first part that differs between two snapshots, or None."""
    for part in dict.fromkeys([*first, *second]):
        one, two = first.get(part), second.get(part)
        if one is None or two is None:
            return f"{part} {'appears' if one is None else 'is missing'} the second time"
        (was, columns), (now, _) = one, two
        if np.array_equal(was, now):
            continue
        if not columns:
            return f"{part} is first {_brief(was)} and then {_brief(now)}"
        if was.shape != now.shape:
            return f"{part} has first {len(was)} rows and then {len(now)}"
        row, column = (int(i) for i in np.argwhere(was != now)[0])
        of_row = f" of row {row}" if len(was) > 1 else ""
        return (
            f"{part}: feature {columns[column]!r}{of_row} is first {was[row, column]} and then "
            f"{now[row, column]}"
        )
    return None


def require_same(
    first: Trace, second: Trace, violations: Violations, cause: Callable[[], str] = lambda: ""
) -> None:
    """Adds a violation for the first step in which two runs with one seed differ."""
    violations.place = ""
    for (place, one), (other_place, two) in zip(first, second, strict=False):
        differs = f"then comes {other_place}" if place != other_place else difference(one, two)
        if differs:
            violations.add(f"one seed gives different episodes: {place}: {differs}{cause()}")
            return


def _repeats(count: int) -> str:
    return {1: "", 2: " (seen twice)"}.get(count, f" (seen {count} times)")


def _brief(array: NDArray[np.generic]) -> str:
    return np.array2string(array, threshold=20, edgeitems=2, separator=", ").replace("\n", "")


def _origin(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "nowhere"
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}"


ActionSpaces = Mapping[ActionName, ActionSpace]


def observation_violations(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces, *, is_first: bool
) -> list[str]:
    """Sentences about the violations in an observation, whatever it contains."""
    try:
        found = list(_violations(observation, obs_space, action_space))
        if is_first and observation.done:
            found.append("the first observation is already done: no action was taken yet")
        if is_first and not found and observation.reward != 0:
            found.append(
                f"the first observation has the reward {observation.reward}, expected 0: "
                "nothing was done yet"
            )
        return found or list(_refusals(observation, obs_space, action_space))
    except Exception as error:  # its contents can raise anything
        return [f"the observation cannot be read: {summary_of(error)}"]


def _violations(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    if not is_finite(observation.reward):
        yield f"the reward is {observation.reward!r}, expected a finite number"
    yield from _in_metrics(observation.metrics)
    if observation.done and observation.is_blank:
        return
    yield from _in_rows("globals", obs_space.global_features, [observation.global_features])
    for name, rows in observation.features.items():
        if name in obs_space.entities:
            features = obs_space.entities[name].features
            yield from _in_rows(f"entity {name!r}", features, rows)
        else:
            known = ", ".join(obs_space.entities) or "none"
            yield f"entity {name!r} is not in the observation space, which has {known}"
    in_ids = list(_in_ids(observation, obs_space))
    yield from in_ids
    yield from _in_visible(observation, obs_space)
    if not in_ids:
        yield from _in_actions(observation, obs_space, action_space)


def _in_metrics(metrics: Mapping[str, float]) -> Iterator[str]:
    for name, value in metrics.items():
        if problem := metric_problem(name, 0.0):
            yield problem
        elif not is_finite(value):
            yield f"the metric {name!r} is {value!r}, expected a finite number"


def _in_rows(where: str, features: Sequence[str], rows: object) -> Iterator[str]:
    try:
        array = np.asarray(rows)
    except ValueError:
        yield f"{where}: rows have different lengths, expected {len(features)} features each"
        return
    if not len(array):
        return
    if array.ndim != 2 or array.shape[1] != len(features):
        yield (
            f"{where}: got the shape {array.shape}, expected {len(features)} columns: "
            f"{', '.join(features)}"
        )
    elif array.dtype.kind not in "fiub" and array.size:
        yield f"{where}: features are {array.dtype}, expected numbers"
    else:
        yield from _not_finite(where, features, array)


def _not_finite(where: str, features: Sequence[str], array: NDArray[np.number]) -> Iterator[str]:
    for column, feature in enumerate(features):
        bad = np.flatnonzero(~np.isfinite(as_float32(array[:, column])))
        if len(bad):
            value = array[bad[0], column]
            yield (
                f"{where}: feature {feature!r} of row {bad[0]} is {value}, expected a finite "
                "number that fits float32"
            )


def _in_ids(observation: Observation, obs_space: ObsSpace) -> Iterator[str]:
    owners: dict[EntityID, EntityName] = {}
    for name, ids in observation.ids.items():
        if name not in obs_space.entities:
            yield f"ids are given for entity {name!r}, which is not in the observation space"
            continue
        num_rows = observation.num_entities(name)
        if len(ids) != num_rows:
            yield f"entity {name!r}: {num_rows} rows of features but {len(ids)} ids"
        for entity_id in ids:
            try:
                owner = owners.setdefault(entity_id, name) if entity_id not in owners else None
            except TypeError:
                yield f"entity {name!r}: the id {entity_id!r} cannot be hashed"
                break
            if owner is None:
                yield (
                    f"the duplicate id {entity_id!r} of entity {name!r} belongs to one of "
                    f"{owners[entity_id]!r} already: ids must differ over all types"
                )


def _in_visible(observation: Observation, obs_space: ObsSpace) -> Iterator[str]:
    for name, seen in observation.visible.items():
        flags = np.asarray(seen)
        num_rows = observation.num_entities(name)
        if name not in obs_space.entities:
            yield f"visible names entity {name!r}, which is not in the observation space"
        elif flags.shape != (num_rows,) or (num_rows and flags.dtype.kind not in "biu"):
            yield (
                f"visible of {name!r} has the shape {flags.shape} and dtype {flags.dtype}, "
                f"expected {num_rows} bools"
            )


def _in_actions(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    for name, mask in observation.actions.items():
        if name not in action_space:
            known = ", ".join(action_space) or "none"
            yield f"action {name!r} is not in the action space, which has {known}"
            continue
        given = set(action_space[name].given) & observation.actions.keys()
        alone = Observation(
            reward=0.0,
            features=observation.features,
            ids=observation.ids,
            actions={**{other: observation.actions[other] for other in given}, name: mask},
        )
        try:
            question = questions(alone, obs_space, action_space)[-1]
        except SchemaError as error:
            yield str(error)
            continue
        for actor, times in Counter(question.actors).items():
            if times > 1:
                yield f"action {name!r} asks the actor {actor!r} {times} times"


def _refusals(
    observation: Observation, obs_space: ObsSpace, action_space: ActionSpaces
) -> Iterator[str]:
    """Errors of `ObservationBatcher`, for an observation without other violations."""
    writer = ObservationBatcher(obs_space, action_space, where="this observation".format)
    flag = np.zeros(1, dtype=np.bool_)
    index = np.zeros(1, dtype=np.int64)
    try:
        writer.add(observation, ask=not observation.done)
        writer.finish(np.zeros(1, dtype=np.float32), flag, flag, index, index)
    except SchemaError as error:
        yield str(error)


def final_violations(
    obs: Obs, asked: tuple[ActionType[typing.Any], ...], schema: Schema
) -> list[str]:
    """Errors of the actors and masks of a truncated episode's last observation, as in training.

    Args:
        asked: the actions that the agent was asked for last.
    """
    try:
        batcher = ObsBatcher(schema, "the last observation".format, is_final=True)
        batcher.add(obs, actions_at_truncation(obs, asked))
        batcher.write(LocalMemory())
    except SchemaError as error:
        return [str(error)]
    return []


_MAX_EXACT: Final = 2**24
"""float32 represents every integer up to this."""
_MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
# Reading the annotations of a class takes 20 µs, more than checking its values.
_fields_of = once_per_class(declared_fields)


def obs_violations(obs: Obs, schema: Schema) -> list[str]:
    """Sentences about values that do not fit their fields, and entities of undeclared classes."""
    groups = [group for group in obs.groups if getattr(group, "values", None) is None]
    shown = [entity for group in groups for entity in group]
    if obs.global_features is not None and not isinstance(obs.global_features, Rows):
        shown.append(obs.global_features)
    declared = {*schema.index_of, *([schema.globals.cls] if schema.globals else [])}
    found = [violation for entity in shown for violation in _in_entity(entity, declared, schema)]
    return found + [LikelyMistake(text) for text in getattr(obs, "odd_values", tuple)()]


def _in_entity(entity: object, declared: set[type], schema: Schema) -> Iterator[str]:
    cls: type = type(entity)
    if cls not in declared:
        yield str(schema.undeclared(cls))
        return
    references = schema.references_of(cls)
    for name, kind in _fields_of(cls).items():
        if name in references:  # found when they are read
            continue
        value = getattr(entity, name, None)
        yield from _in_value(f"entity {cls.__name__}: field {name!r}", value, kind)


def _in_value(where: str, value: object, kind: object) -> Iterator[str]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if (shape := array_shape(kind)) is not None:
        if not isinstance(value, np.ndarray):
            yield f"{where} holds {value!r}, declared an array of the shape {shape}"
        elif value.shape != shape:
            yield f"{where} holds an array of the shape {value.shape}, declared {shape}"
    elif (converted := features_of_class(kind)) is not None:
        yield from _in_converted(where, value, args[0], converted)
    elif origin is typing.Annotated:
        yield from _in_value(where, value, args[0])
    elif (some := without_none(kind)) is not None:
        if value is not None:
            yield from _in_value(where, value, some)
    elif origin is typing.Literal:
        if (type(value), value) not in [(type(one), one) for one in args]:
            yield f"{where} holds {value!r}, declared one of {', '.join(map(repr, args))}"
    elif origin is tuple:
        yield from _in_tuple(where, value, args)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, kind):
            yield f"{where} holds {value!r}, declared {kind.__name__}"
            return
        for name, nested in _fields_of(kind).items():
            yield from _in_value(f"{where[:-1]}.{name}'", getattr(value, name, None), nested)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if not isinstance(value, kind):
            yield f"{where} holds {value!r}, declared one of {', '.join(m.name for m in kind)}"
    elif not _is_number(value):
        yield f"{where} holds {value!r}, declared {_show(kind)}"
    elif not is_finite(value, _MAX_FLOAT32):
        yield f"{where} holds {value!r}, expected a finite number that fits float32"
    elif isinstance(value, int) and abs(value) > _MAX_EXACT:
        yield LikelyMistake(
            f"{where} holds {value!r}, which agents see as {np.float32(value):.9g}: float32 cannot "
            f"hold every integer beyond {_MAX_EXACT:,}; show a smaller number"
        )


def _in_converted(where: str, value: object, cls: object, converted: Features) -> Iterator[str]:
    if isinstance(cls, type) and not isinstance(value, cls):
        yield f"{where} holds {value!r}, declared {_show(cls)}"
    elif converted.read is None:
        for name in converted.names:
            yield from _in_value(f"{where[:-1]}.{name}'", getattr(value, name, None), float)


def _in_tuple(where: str, value: object, args: tuple[object, ...]) -> Iterator[str]:
    if not isinstance(value, tuple | list):
        yield f"{where} holds {value!r}, declared a tuple of {len(args)}"
    elif len(value) != len(args):
        yield f"{where} holds {len(value)} items, declared {len(args)}: {value!r}"
    else:
        for i, (item, kind) in enumerate(zip(value, args, strict=True)):
            yield from _in_value(f"{where[:-1]}.{i}'", item, kind)


def _is_number(value: object) -> typing.TypeGuard[float]:
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def _show(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type | types.GenericAlias) else str(kind)
