"""Reads the payload of a `STEP`: observations as a `Frame` of views, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.batching.frame import ActionSlots, Frame, FrameLayout, Slot
from entity_env.core.action_request import other_actors
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_actions import row_without_next
from entity_env.core.vec_obs import wrong_relation
from entity_env.errors import shown
from entity_env.vec.external.messages import (
    ALIGNMENT,
    MAX_BYTES,
    Place,
    ReadyMessage,
    aligned,
    json_in,
)

TERMINATED, TRUNCATED, FAILED, IS_NEW = 1, 2, 4, 8
"""Flags of an end; `IS_NEW` = its episode started in this step."""
_ARE_ENDS: Final = np.isin(np.arange(16), (1, 2, 4, 9, 10, 12))
STARTED, WAITS = 1, 2
"""Flags of a copy."""
_MAX_SCORE: Final = 1e300
_MAX_TEXT_BYTES: Final = 16 * 2**20
"""Maximum size of the failures: JSON takes up to 24 times its size in memory."""
_MAX_BARE: Final = 2**22
"""Maximum number of entities in a frame that take no bytes, because they have no features."""
_COUNTS: Final = Struct("<QQ")
_BYTE, _INT, _FLOAT, _DOUBLE = map(np.dtype, (np.uint8, np.int64, np.float32, np.float64))
# Half the time of the methods of arrays.
_ALL: Final = np.logical_and.reduce
_ANY: Final = np.logical_or.reduce
_MAX_PLANS: Final = 4
Check: TypeAlias = Callable[[Place], None]
"""Raises `MessageError` for invalid numbers."""


@dataclass
class Ends:
    """Episodes of agents that ended in a step.

    Args:
        rows: `(num_ends,)` int64, row of each end.
        flags: `(num_ends,)` int64.
        scores: `(num_ends,)` float64.
        metrics: `(num_metrics, num_ends)` float64, NaN = none.
        frame: last observations.
    """

    rows: NDArray[np.int64]
    flags: NDArray[np.int64]
    scores: NDArray[np.float64]
    metrics: NDArray[np.float64]
    frame: Frame


class GameFailure(NamedTuple):
    """An exception of a game."""

    message: str
    traceback: str


UNKNOWN_FAILURE: Final = GameFailure("the game failed", "")
"""Of a row that failed without a reason."""


@dataclass
class StepMessage:
    """Payload of a `STEP`; the arrays are views of the received bytes.

    Args:
        copies: `(num_copies,)` uint8 flags.
        asks: `(num_rows,)` bool, True = the row asks for actions.
        scores: `(num_rows,)` float64.
        metrics: `(num_metrics, num_rows)` float64, NaN = none.
        ends: None if no episode ended.
        failures: by row of an agent.
    """

    copies: NDArray[np.uint8]
    asks: NDArray[np.bool_]
    scores: NDArray[np.float64]
    metrics: NDArray[np.float64]
    frame: Frame
    ends: Ends | None = None
    failures: Mapping[int, GameFailure] = field(default_factory=dict)


class StepParser:
    """Reads payloads of a game with these spaces; raises `MessageError` for invalid ones."""

    def __init__(self, layout: FrameLayout, ready: ReadyMessage) -> None:
        self._layout = layout
        self._num_agents = ready.num_agents
        self._num_metrics = len(ready.metrics)
        self._plans: dict[int, _Plan] = {}
        """By identity of the memory of a payload."""
        entities = layout.entities
        self._has_globals = GLOBAL_ENTITY in entities
        self._required = [int(_is_required(layout, slot)) for slot in layout.slots]
        self._optional = [0] * len(layout.slots)
        self._presences: set[bytes] = set()
        """Flags of slots that are known to be right."""
        self._actor_lines = [action.row for action in layout.actions.values()]
        kinds = (action.space for action in layout.actions.values())
        self._are_global = all(isinstance(each, GlobalCategoricalActionSpace) for each in kinds)
        self._bare_lines = [each.row for each in entities.values() if not each.values.width]
        for where in entities.values():
            self._optional[where.visible.index] = 1
        for action in layout.actions.values():
            if not isinstance(action.space, ContinuousActionSpace):
                self._optional[action.mask.index] = 1
        self._selected = ready.selects
        self._selects: Mapping[str, int] = {
            name: entities[selected].row for name, selected in ready.selects.items()
        }

    def read(self, num_copies: int, payload: memoryview, place: Place) -> StepMessage:
        """Reads the answer to a request about `num_copies` copies."""
        num_ends, num_text = _COUNTS.unpack_from(payload) if len(payload) >= 16 else (0, 0)
        num_rows = num_copies * self._num_agents
        plan = self._plan(payload, num_copies, place)
        if num_ends > 2 * num_rows:
            place.refuse(f"{num_ends} ends for {num_rows} rows, expected at most 2 per row")
        if np.maximum.reduce(plan.copies) > STARTED + WAITS:
            place.refuse(f"the flags of copies must be 0 to 3, got {plan.copies.max()}")
        for check in plan.checks:
            check(place)
        self._check_rows(plan.frame, plan.asks, place)
        _check_scores(plan.scores, plan.asks, "a score", place)
        _check_metrics(plan.metrics, place)
        cursor = _Cursor(payload, place, plan.end)
        ends = self._ends(cursor, num_ends, num_rows) if num_ends else None
        if ends is not None:
            self._check_ends(ends, plan.copies, place)
        failures = self._failures(cursor, num_text, num_rows) if num_text else {}
        cursor.require_end()
        return StepMessage(
            plan.copies, plan.asks, plan.scores, plan.metrics, plan.frame, ends, failures
        )

    def _plan(self, payload: memoryview, num_copies: int, place: Place) -> _Plan:
        """Views of the rows; those of the last payload in this memory if its lengths were equal."""
        last = self._plans.get(id(payload.obj))
        if last is not None and last.num_copies == num_copies:
            first, size = last.first, len(last.shape)
            if last.end <= len(payload) and payload[first : first + size] == last.shape:
                return last
        num_rows = num_copies * self._num_agents
        cursor = _Cursor(payload, place, _COUNTS.size)
        checks: list[Check] = []
        copies = cursor.array(_BYTE, num_copies)
        asks = cursor.flags(num_rows, "the flags of rows", checks)
        scores = cursor.array(_DOUBLE, num_rows)
        metrics = cursor.array(_DOUBLE, self._num_metrics * num_rows)
        first = cursor.at
        frame, size = self._frame(cursor, num_rows, checks)
        shape = bytes(payload[first : first + size])
        metrics = metrics.reshape(self._num_metrics, num_rows)
        plan = _Plan(
            num_copies, copies, asks, scores, metrics, frame, checks, cursor.at, first, shape
        )
        self._plans[id(payload.obj)] = plan
        if len(self._plans) > _MAX_PLANS:  # memory that was replaced by larger memory
            del self._plans[next(iter(self._plans))]
        return plan

    def _ends(self, cursor: _Cursor, num_ends: int, num_rows: int) -> Ends:
        rows = cursor.array(_INT, num_ends)
        if rows[0] < 0 or rows[-1] >= num_rows or _ANY(rows[1:] < rows[:-1]):
            cursor.place.refuse(f"the rows of ends must be 0 to {num_rows - 1}, in this order")
        flags = cursor.array(_INT, num_ends)
        most = np.maximum.reduce(flags.view(np.uint64))
        if most >= len(_ARE_ENDS) or not _ALL(_ARE_ENDS[flags]):
            cursor.place.refuse(
                f"the flags of an end must be 1, 2 or 4, or 8 more: got {shown(flags.tolist())}"
            )
        scores = cursor.array(_DOUBLE, num_ends)
        metrics = cursor.array(_DOUBLE, self._num_metrics * num_ends)
        checks: list[Check] = []
        frame, _ = self._frame(cursor, num_ends, checks)
        for check in checks:
            check(cursor.place)
        return Ends(rows, flags, scores, metrics.reshape(self._num_metrics, num_ends), frame)

    def _check_ends(self, ends: Ends, copies: NDArray[np.uint8], place: Place) -> None:
        flags, lengths = ends.flags, ends.frame.lengths
        is_new, has_failed = flags >= IS_NEW, (flags & FAILED) != 0
        if _ANY(is_new & ((copies[ends.rows // self._num_agents] & STARTED) == 0)):
            place.refuse("an episode ended that started in this step, but its copy started none")
        if _ANY((ends.rows[1:] == ends.rows[:-1]) & ~(is_new[1:] & ~is_new[:-1])):
            place.refuse(
                "of two ends of a row, only the second must be of an episode that started in this "
                "step"
            )
        _check_scores(ends.scores, ~has_failed, "a final score", place)
        _check_metrics(ends.metrics, place)
        is_shown = np.add.reduce(lengths) > 0
        self._check_globals(lengths, is_shown, place)
        if _ANY(is_shown & has_failed):
            place.refuse("the last observation after a failure must be empty")
        acting = np.add.reduce(lengths[self._actor_lines])
        if _ANY(acting) and _ANY(acting[(flags & TRUNCATED) == 0]):
            place.refuse("the last observation of a terminated episode has actors")

    def _failures(self, cursor: _Cursor, size: int, num_rows: int) -> dict[int, GameFailure]:
        if size > _MAX_TEXT_BYTES or size % ALIGNMENT:
            cursor.place.refuse(
                f"the failures must have a multiple of {ALIGNMENT} bytes, at most "
                f"{_MAX_TEXT_BYTES}: got {size}"
            )
        found = json_in(bytes(cursor.array(_BYTE, size)), "the failures are", cursor.place)
        is_list = isinstance(found, list) and all(
            isinstance(each, dict)
            and type(each.get("row")) is int
            and 0 <= each["row"] < num_rows
            and isinstance(each.get("message"), str)
            and isinstance(each.get("traceback", ""), str)
            for each in found
        )
        if not is_list:
            cursor.place.refuse(f"failures must be a list of row and message, got {shown(found)}")
        return {x["row"]: GameFailure(x["message"], x.get("traceback", "")) for x in found}

    def _frame(self, cursor: _Cursor, num_rows: int, checks: list[Check]) -> tuple[Frame, int]:
        """The next frame, and the size of its flags and lengths; adds checks of its numbers."""
        layout, place, begin = self._layout, cursor.place, cursor.at
        is_present = bytes(cursor.array(_BYTE, len(layout.slots)))
        if is_present not in self._presences:
            self._check_presence(is_present, place)
        num_lengths = layout.num_lengths * num_rows
        lengths = cursor.array(_INT, num_lengths).reshape(layout.num_lengths, num_rows)
        size = cursor.at - begin
        # As unsigned integers, those below 0 are the largest.
        if num_lengths and np.maximum.reduce(lengths.view(np.uint64), axis=None) > MAX_BYTES:
            place.refuse(f"a length is {lengths.min()} to {lengths.max()}, expected 0 or more")
        totals = np.add.reduce(lengths, axis=1).tolist()
        if (num_bare := sum(totals[line] for line in self._bare_lines)) > _MAX_BARE:
            place.refuse(
                f"{num_bare} entities of types without features, expected at most {_MAX_BARE}"
            )
        slots: list[NDArray[Any] | None] = [None] * len(layout.slots)
        first = cursor.at
        for name, entity in layout.entities.items():
            count = totals[entity.row]
            if is_present[entity.values.index]:
                values = cursor.array(_FLOAT, count * entity.values.width)
                slots[entity.values.index] = values
            if is_present[entity.visible.index]:
                flags = cursor.flags(count, f"visible of {name!r}", checks)
                slots[entity.visible.index] = flags
        numbers = {name: slots[each.values.index] for name, each in layout.entities.items()}
        has_flags = any(is_present[each.visible.index] for each in layout.entities.values())
        region = None if has_flags else cursor.between(first)
        checks.append(partial(_require_finite, region, numbers))
        for name, action in layout.actions.items():
            self._read_action(cursor, name, action, lengths, totals, is_present, slots, checks)
        frame = Frame(layout, lengths, slots)
        if layout.relations:
            checks.append(partial(self._check_relations, layout, lengths, slots))
        return frame, size

    def _check_relations(
        self,
        layout: FrameLayout,
        lengths: NDArray[np.int64],
        slots: list[NDArray[Any] | None],
        place: Place,
    ) -> None:
        """Refuses wrong references, and masks that allow an actor the relations of another one."""
        frame = Frame(layout, lengths, slots)  # new, because the memory has new numbers
        if (wrong := wrong_relation(layout.relations, frame.features)) is not None:
            place.refuse(f"row {wrong[0]}: {wrong[1]}")
        for name, selected in self._selected.items():
            action = layout.actions[name]
            if selected not in layout.relations or not lengths[action.row].any():
                continue
            if slots[action.mask.index] is None:
                place.refuse(f"action {name!r} selects relations, so it must have a mask")
            if problem := frame.foreign_relation(action, selected):
                place.refuse(f"action {name!r}: {problem}")

    def _check_presence(self, is_present: bytes, place: Place) -> None:
        """Refuses wrong flags of slots, and remembers right ones."""
        for i, flag in enumerate(is_present):
            if not self._required[i] <= flag <= self._required[i] + self._optional[i]:
                place.refuse(f"slot {i} has the flag {flag}, see Slots in the protocol")
        self._presences.add(is_present)

    def _read_action(
        self,
        cursor: _Cursor,
        name: str,
        action: ActionSlots,
        lengths: NDArray[np.int64],
        totals: Sequence[int],
        is_present: Sequence[int],
        slots: list[NDArray[Any] | None],
        checks: list[Check],
    ) -> None:
        place = cursor.place
        num_actors = totals[action.row]
        is_select = isinstance(action.space, SelectEntityActionSpace)
        if isinstance(action.space, GlobalCategoricalActionSpace):
            if num_actors and lengths[action.row].max() > 1:
                place.refuse(f"action {name!r}: a row asks for it more than once")
        else:
            actors = slots[action.actors.index] = cursor.array(_INT, num_actors)
            what = f"the actors of {name!r}"
            checks.append(partial(self._check_indices, actors, lengths, action.row, what))
        for other in action.space.given:
            self._require_same_lengths(name, other, lengths, place)
            checks.append(partial(self._check_same_actors, slots, name, other))
        widths = lengths[action.actee_row] if is_select else None
        if is_present[action.mask.index]:
            per_actor = action.per_actor(lengths)
            size = num_actors * action.mask.width
            if widths is not None or per_actor is not None:
                # As floats, because the product of lengths may exceed an int64.
                sizes = lengths[action.row].astype(np.float64) * action.mask.width
                for each in (widths, per_actor):
                    sizes = sizes if each is None else sizes * each
                size = int(sizes.sum())
                if size > MAX_BYTES:
                    place.refuse(f"action {name!r}: a mask of {size} flags is too large")
            mask = cursor.flags(size, f"the mask of {name!r}", checks)
            slots[action.mask.index] = mask
            if per_actor is None:
                checks.append(
                    partial(self._check_mask, mask, lengths[action.row], widths, name, action)
                )
            elif action.given is not None:
                frame = Frame(self._layout, lengths, slots)
                checks.append(partial(_check_choices_after, frame, name, action, action.given))
        if widths is not None:
            self._read_actees(cursor, name, action, lengths, slots, checks)

    def _require_same_lengths(
        self, name: str, other: str, lengths: NDArray[np.int64], place: Place
    ) -> None:
        one, two = (lengths[self._layout.actions[each].row] for each in (name, other))
        wrong = np.flatnonzero(one != two)
        if len(wrong):
            row = wrong[0]
            place.refuse(str(other_actors(name, other, int(one[row]), int(two[row]))))

    def _check_same_actors(
        self, slots: Sequence[NDArray[Any] | None], name: str, other: str, place: Place
    ) -> None:
        one, two = (slots[self._layout.actions[each].actors.index] for each in (name, other))
        if one is not None and two is not None and not np.array_equal(one, two):
            place.refuse(str(other_actors(name, other, len(one), len(two))))

    def _read_actees(
        self,
        cursor: _Cursor,
        name: str,
        action: ActionSlots,
        lengths: NDArray[np.int64],
        slots: list[NDArray[Any] | None],
        checks: list[Check],
    ) -> None:
        """Reads the actees: all entities of the selected type, wherever the action is asked."""
        place, selected = cursor.place, self._selects[name]
        widths, asked = lengths[action.actee_row], lengths[action.row]
        wanted = lengths[selected]
        if ((widths != wanted) & (widths > 0)).any() or (widths[asked > 0] == 0).any():
            place.refuse(
                f"action {name!r}: the actees must be all entities of the type it selects, and an "
                "actor without actees must be left out"
            )
        actees = cursor.array(_INT, int(widths.sum()))
        first = lengths[:selected].sum(axis=0)
        starts = np.cumsum(widths) - widths
        expected = np.arange(len(actees)) + np.repeat(first - starts, widths)
        slots[action.actees.index] = actees

        def check(place: Place) -> None:
            if not np.array_equal(actees, expected):
                place.refuse(f"action {name!r}: the actees are not the indices of their entities")

        checks.append(check)

    def _check_indices(
        self,
        indices: NDArray[np.int64],
        lengths: NDArray[np.int64],
        line: int,
        what: str,
        place: Place,
    ) -> None:
        if not len(indices):
            return
        counts = lengths[line]
        num_acting_types = self._layout.num_local_types - len(self._layout.relations)
        num_entities = lengths[:num_acting_types].sum(axis=0)
        limits = np.repeat(num_entities, counts)
        if indices.min() < 0 or (indices >= limits).any():
            others = ", not of relations" if self._layout.relations else ""
            place.refuse(f"{what} must be indices of entities of their observation{others}")
        if len(indices) > 1:
            is_first = np.zeros(len(indices) + 1, dtype=np.bool_)
            is_first[np.cumsum(counts)] = True
            if ((np.diff(indices) <= 0) & ~is_first[1:-1]).any():
                place.refuse(f"{what} must increase within an observation")

    def _check_mask(
        self,
        mask: NDArray[np.bool_],
        counts: NDArray[np.int64],
        widths: NDArray[np.int64] | None,
        name: str,
        action: ActionSlots,
        place: Place,
    ) -> None:
        if not len(mask):
            return
        if widths is None:
            has_choice = bool(_ALL(_ANY(mask.reshape(-1, action.mask.width), axis=1)))
        else:
            sizes = np.repeat(widths, counts)
            has_choice = bool(sizes.min(initial=1)) and bool(
                np.logical_or.reduceat(mask, np.cumsum(sizes) - sizes).all()
            )
        if not has_choice:
            place.refuse(f"action {name!r}: an actor has no allowed choice: leave it out")

    def _check_rows(self, frame: Frame, asks: NDArray[np.bool_], place: Place) -> None:
        lengths = frame.lengths
        if not _ALL(asks):
            blank = lengths[:, ~asks]
            if blank.any():
                place.refuse("a row that does not ask has entities or actors")
        self._check_globals(lengths, asks, place)
        if self._are_global and _ANY(_ANY(lengths[self._actor_lines] != 0) != asks):
            place.refuse("a row asks for none of the actions")

    def _check_globals(
        self, lengths: NDArray[np.int64], is_shown: NDArray[np.bool_], place: Place
    ) -> None:
        if self._has_globals:
            line = lengths[self._layout.entities[GLOBAL_ENTITY].row]
            if _ANY(line != is_shown):
                place.refuse(f"each observation must have exactly one {GLOBAL_ENTITY!r}")


def packed(space: ActionSpace, values: ArrayLike) -> bytes:
    """The values of an action in an `ACT`."""
    dtype = "<f4" if isinstance(space, ContinuousActionSpace) else "<i8"
    data = np.asarray(values, dtype).tobytes()
    return data.ljust(aligned(len(data)), b"\0")


def _is_required(layout: FrameLayout, slot: Slot) -> bool:
    for entity in layout.entities.values():
        if slot is entity.values:
            return slot.width > 0
    for action in layout.actions.values():
        if slot is action.actors:
            return not isinstance(action.space, GlobalCategoricalActionSpace)
        if slot is action.actees:
            return isinstance(action.space, SelectEntityActionSpace)
    return False


def _check_choices_after(
    frame: Frame, name: str, action: ActionSlots, given: ActionSlots, place: Place
) -> None:
    """Refuses a mask that forbids everything after a legal choice of the action before."""
    mask, before = frame.mask_of(action), frame.mask_of(given)
    if (found := row_without_next(name, action.space, mask, before, given.space)) is not None:
        place.refuse(str(found[1]))


def _require_finite(
    region: NDArray[np.float32] | None,
    numbers: Mapping[str, NDArray[Any] | None],
    place: Place,
) -> None:
    """Refuses features that are not finite; `region` has all of them and their padding."""
    # A sum is faster than a test of each number; finite numbers may have an infinite sum.
    if region is not None:
        with np.errstate(invalid="ignore"):
            if isfinite(np.add.reduce(region, dtype=np.float64)):
                return
    for name, values in numbers.items():
        if values is not None and not np.isfinite(values).all():
            bad = values[~np.isfinite(values)][0]
            place.refuse(f"the features of {name!r} must be finite, got {bad}")


def _check_scores(
    scores: NDArray[np.float64], counts: NDArray[np.bool_], what: str, place: Place
) -> None:
    if not _ALL(np.abs(scores) <= _MAX_SCORE):  # False for NaN
        bad = scores[~(np.abs(scores) <= _MAX_SCORE) & counts]
        if len(bad):
            place.refuse(f"{what} must be finite and at most {_MAX_SCORE:g}: got {bad[0]}")


def _check_metrics(metrics: NDArray[np.float64], place: Place) -> None:
    if metrics.size and _ANY(np.abs(metrics) > _MAX_SCORE, axis=None):
        bad = metrics[np.abs(metrics) > _MAX_SCORE][0]
        place.refuse(f"a metric must be NaN or at most {_MAX_SCORE:g}: got {bad}")


class _Plan(NamedTuple):
    """Views of the rows of a payload, and checks of their numbers.

    Args:
        end: position after the rows.
        first: position of `shape`.
        shape: flags of the slots and lengths, which determine all other positions.
    """

    num_copies: int
    copies: NDArray[np.uint8]
    asks: NDArray[np.bool_]
    scores: NDArray[np.float64]
    metrics: NDArray[np.float64]
    frame: Frame
    checks: Sequence[Check]
    end: int
    first: int
    shape: bytes


class _Cursor:
    """Reads arrays from a payload, one after another."""

    def __init__(self, payload: memoryview, place: Place, at: int) -> None:
        self.place = place
        self.at = at
        self._payload = payload

    def array(self, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
        """The next array, a view."""
        size = count * dtype.itemsize
        begin, end = self.at, self.at + aligned(size)
        if end > len(self._payload):
            self.place.refuse(
                f"the payload has {len(self._payload)} bytes, too few: an array of {size} bytes "
                f"starts at {begin}"
            )
        self.at = end
        if not count:
            return np.zeros(0, dtype=dtype)
        found: NDArray[Any] = np.frombuffer(self._payload, dtype, count, begin)
        return found

    def between(self, first: int) -> NDArray[np.float32]:
        """The numbers from a position to the next array."""
        if first == self.at:
            return np.zeros(0, np.float32)
        return np.frombuffer(self._payload, np.float32, (self.at - first) // 4, first)

    def flags(self, count: int, what: str, checks: list[Check]) -> NDArray[np.bool_]:
        """The next array of bytes as bool; adds a check that they are 0 or 1."""
        found = self.array(_BYTE, count)

        def check(place: Place) -> None:
            if count and np.maximum.reduce(found) > 1:
                place.refuse(f"{what} must be 0 or 1, got {found.max()}")

        checks.append(check)
        return found.view(np.bool_)

    def require_end(self) -> None:
        """Refuses bytes after the last array."""
        if self.at != len(self._payload):
            self.place.refuse(
                f"the payload has {len(self._payload)} bytes, expected {self.at} for its lengths"
            )
